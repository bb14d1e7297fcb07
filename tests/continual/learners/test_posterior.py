"""Learners with draws: what they predict and how sure they are, against the same numbers written out."""

import pytest
import torch
from torch.nn import functional

from toys import blobs
from vestige.continual.learners import Vanilla, build, posterior
from vestige.continual.learners.posterior import Posterior, how_sure
from vestige.continual.learners.vanilla import VanillaConfig
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data.streams import split
from vestige.metrics.uncertainty import Uncertainty, expected_calibration_error
from vestige.nets.bayesian import member_seed

FIELDS = {
    "vcl": {"hidden": (8,), "test_samples": 6, "fit_steps": 3},
    "vcl_coreset": {"hidden": (8,), "test_samples": 6, "fit_steps": 3, "coreset": 3, "coreset_steps": 2},
    "mc_dropout": {"hidden": (8,), "test_samples": 6},
    "ensemble": {"hidden": (8,), "members": 6},
}


def trained(name, tasks=2, **fields):
    stream = split(blobs(), 2)
    learner = build(name, stream, **(FIELDS[name] | fields))
    for task in stream:
        learner.begin_task(task)
        learner.observe(task.x[:20], task.y[:20])
        learner.end_task(task)
        if task.info.index == tasks - 1:
            return learner, stream.info(0)
    return None


def inputs(n=9):
    return torch.rand(n, 6, 6, generator=rng.fork(0, "x"))


@pytest.mark.parametrize("name", FIELDS)
class TestEvery:
    def test_a_prediction_is_the_log_of_the_mean_probability(self, name):
        learner, first = trained(name)
        assert isinstance(learner, Posterior)
        logits = torch.cat(list(learner.draws(inputs(), 6, rng.fork(0, "predict"))))
        mean = logits[..., :4].softmax(-1).mean(0)  # two tasks of two classes so far
        torch.testing.assert_close(learner.predict(inputs())[:, :4].exp(), mean)
        told = torch.cat(list(learner.draws(inputs(), 6, rng.fork(0, "predict"), first)))[..., :2].softmax(-1).mean(0)
        torch.testing.assert_close(learner.predict(inputs(), first)[:, :2].exp(), told)

    def test_uncertainty_is_what_the_draws_say(self, name, monkeypatch):
        learner, _ = trained(name)
        monkeypatch.setattr(posterior, "ROWS", 5)
        found = learner.uncertainty(inputs(), seed=4, outputs=[1, 3, 5]).compute()
        for i, rows in enumerate(inputs().split(5)):
            log_p = learner.posterior_log_p(rows, seed=rng.child_seed(4, "rows", i), outputs=[1, 3, 5])
            assert log_p.shape == (6, len(rows), 3)
            torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(6, len(rows)))
            for key, value in Uncertainty().update(log_p).compute().items():
                torch.testing.assert_close(found[key][5 * i : 5 * i + 5], value)
        assert float(found["mutual"].min()) > 0

    def test_draws_follow_from_the_seed(self, name):
        learner, _ = trained(name)
        one, same, other = (learner.posterior_log_p(inputs(), seed=seed) for seed in (1, 1, 2))
        assert torch.equal(one, same)
        assert torch.equal(one, other) is (name == "ensemble")


def test_means_over_inputs_and_calibration():
    learner, _ = trained("ensemble")
    y = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4])
    found = how_sure(learner, inputs(), y, [3, 2, 1, 0])  # class 4 is not among them: a miss, whatever is answered
    p = learner.posterior_log_p(inputs(), outputs=[3, 2, 1, 0]).exp().double()
    confidence, guess = p.mean(0).max(1)
    right = torch.tensor([3, 2, 1, 0])[guess] == y
    assert float(found["ece"]) == pytest.approx(expected_calibration_error(confidence, right), abs=1e-6)
    expected = torch.special.entr(p).sum(-1).mean()
    assert float(found["expected_entropy"]) == pytest.approx(float(expected), abs=1e-6)
    gap = float(found["predictive_entropy"] - found["expected_entropy"])
    assert float(found["mutual_information"]) == pytest.approx(gap)
    assert float(found["reliability_count"].sum()) == 9


def test_one_network_has_an_entropy_and_no_mutual_information():
    stream = split(blobs(), 2)
    learner, y = build("vanilla", stream, hidden=(8,)), torch.zeros(9, dtype=torch.int64)
    found = how_sure(learner, inputs(), y, range(6))
    p = learner.net(inputs()).softmax(1).detach()
    assert float(found["predictive_entropy"]) == pytest.approx(float(torch.special.entr(p).sum(1).mean()), rel=1e-5)
    assert "mutual_information" not in found
    with pytest.raises(InputError, match="'uncertainty' of ICaRL"):
        how_sure(build("icarl", stream, hidden=(8,)), inputs(), y, range(6))


def test_members_of_an_ensemble_train_as_they_would_alone():
    """With plain gradient descent, which unlike Adam tells a loss from a multiple of it."""
    stream = split(blobs(), 2, train_logits="seen")
    together = build("ensemble", stream, hidden=(8,), members=3, optimizer="sgd", learning_rate=0.1, seed=5)
    config = VanillaConfig(hidden=(8,), optimizer="sgd", learning_rate=0.1)
    alone = [Vanilla(together.spec, config, seed=member_seed(5, i)) for i in range(3)]
    for task in stream:
        for learner in (together, *alone):
            learner.begin_task(task)
            infos = [learner.observe(x, y) for x, y in zip(task.x.split(40), task.y.split(40), strict=True)]
            learner.end_task(task)
        assert all(float(info.loss) > 0 for info in infos)
    for i, learner in enumerate(alone):
        for stacked, own in zip(together.net.parameters(), learner.net.parameters(), strict=True):
            torch.testing.assert_close(stacked[i], own, atol=2e-5, rtol=1e-4)
    with pytest.raises(InputError, match="'samples' of Ensemble must be 3"):
        together.posterior_log_p(inputs(), 4)


def test_the_loss_of_dropout_is_a_cross_entropy_under_one_mask_and_the_squared_weights():
    stream = split(blobs(), 2, train_logits="all")
    learner, task = build("mc_dropout", stream, hidden=(8,), l2=0.5, dropout=0.4), next(iter(stream))
    learner.begin_task(task)
    logits = learner.net(task.x, 1, rng.fork(0, "mask", 1))[0].detach()
    squares = sum(float(p.detach().square().sum()) for p in learner.net.parameters() if p.ndim == 2)
    info = learner.observe(task.x, task.y)
    assert float(info.loss) == pytest.approx(float(functional.cross_entropy(logits, task.y)) + 0.5 * squares, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("mc_dropout", {"dropout": 1.0}),
        ("mc_dropout", {"l2": -1.0}),
        ("mc_dropout", {"net": "table4"}),
        ("mc_dropout", {"head": "grown"}),
        ("ensemble", {"members": 1}),
        ("ensemble", {"net": "conv"}),
    ],
)
def test_settings_that_cannot_be_used_are_refused(name, fields):
    with pytest.raises(InputError, match=f"'{next(iter(fields))}' of "):
        build(name, split(blobs(), 2), **fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vcl", "mc_dropout"])
def test_the_convolutional_network_learns(name):
    stream = split(blobs(per_class=500), 2, train_logits="current")  # VCL gets half of 80 rows right in 400 steps
    extra = {"train_samples": 1, "fit_steps": 10, "test_samples": 5} if name == "vcl" else {"l2": 0.0}
    learner, task = build(name, stream, net="conv", hidden=(16,), learning_rate=3e-3, **extra), next(iter(stream))
    learner.begin_task(task)
    for _ in range(8):
        for x, y in zip(task.x.split(80), task.y.split(80), strict=True):
            learner.observe(x, y)
    learner.end_task(task)
    assert float((learner.predict(task.x, task.info)[:, :2].argmax(1) == task.y).double().mean()) > 0.9
