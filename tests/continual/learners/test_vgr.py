"""VGR: Eq. 8 by hand, the prior that stays and the one that moves, generators that are left alone, capped batches."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from toys import Means, blobs
from vestige import generators
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.base import Info
from vestige.continual.learners.vcl import VCL
from vestige.continual.learners.vgr import VGR, VGRVCL
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data.streams import split

MEANS = {"generator": "means", "options": {"collapse": 0.0}}
FIELDS = {"hidden": (16,), "test_samples": 5, "replay": MEANS, "learning_rate": 1e-2}
VARIATIONAL = FIELDS | {"train_samples": 3, "fit_steps": 5}


@pytest.fixture(autouse=True)
def means(monkeypatch):
    monkeypatch.setitem(generators.GENERATORS, "means", Means)


def stream():
    return split(blobs(), 2, train_logits="all")


def trained(learner, tasks=2, batch=20):
    """Up to the middle of task `tasks`: the learner, and that task."""
    for task in stream():
        learner.begin_task(task)
        if task.info.index + 1 == tasks:
            return task
        for x, y in zip(task.x.split(batch), task.y.split(batch), strict=True):
            learner.observe(x, y)
        learner.end_task(task)
    raise AssertionError


def gaussian_kl(net, prior):
    """Sum over weights and biases, each from the prior of its own place."""
    total = 0.0
    for layer, before in zip(net.layers(), prior, strict=True):
        for name in ("weight", "bias"):
            mean, log_var = getattr(layer, name).detach(), getattr(layer, f"{name}_log_var").detach()
            total += float(kl_divergence(Normal(mean, (log_var / 2).exp()), Normal(*before[name])).sum())
    return total


def standard(net):
    return [{"weight": (0.0, 1.0), "bias": (0.0, 1.0)} for _ in net.layers()]


def posterior(net):
    return [
        {n: (getattr(layer, n).detach().clone(), (getattr(layer, f"{n}_log_var") / 2).exp().detach().clone())
         for n in ("weight", "bias")}
        for layer in net.layers()
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["vgr", "vgr_vcl"])
def test_the_loss_is_equation_8(name):
    """In the third of three tasks of 80 rows: mean loss over real and generated rows, KL over N T = 240."""
    learner = build(name, stream(), **VARIATIONAL | {"replay": MEANS | {"samples_per_class": 10}})
    prior = standard(learner.net)
    for task in stream():
        learner.begin_task(task)
        if task.info.index == 2:
            break
        learner.observe(task.x, task.y)
        learner.end_task(task)
        prior = posterior(learner.net) if name == "vgr_vcl" else prior
    for _ in range(3):  # away from the last posterior
        learner.observe(task.x[:10], task.y[:10])
    x, y = task.x[:30], task.y[:30]
    seen, old = learner.replay_.seen_, 40 * 60 // 80 - 40 * 30 // 80
    kl = gaussian_kl(learner.net, prior)
    joins = []
    joined = learner.replay_.joined

    def watched(*batch):
        joins.append(joined(*batch))
        return joins[-1]

    learner.replay_.joined = watched
    before = {k: v.clone() for k, v in learner.net.state_dict().items()}
    steps = learner.steps_
    loss = float(learner.observe(x, y).loss)
    rows, labels = joins[0]
    assert (seen, len(labels)) == (30, 30 + old)
    assert set(labels[30:].tolist()) <= {0, 1, 2, 3}
    learner.net.load_state_dict(before)
    logits = learner.net(rows, 3, rng.fork(0, "noise", steps + 1)).detach()
    by_hand = -sum(logits[s].log_softmax(1)[range(len(labels)), labels].mean() for s in range(3)) / 3
    assert loss == pytest.approx(float(by_hand) + kl / 240, rel=1e-5)


def test_the_prior_stays_or_moves():
    plain, merged = (build(name, stream(), **VARIATIONAL) for name in ("vgr", "vgr_vcl"))
    for learner in (plain, merged):
        trained(learner)
    for layer in plain.net.layers():
        assert float(layer.prior_weight.abs().max()) == 0 == float(layer.prior_weight_log_var.abs().max())
    for layer in merged.net.layers():
        assert torch.equal(layer.prior_weight, layer.weight.detach())
    assert (plain.rows_, merged.rows_) == (160, 160)


def test_weights_go_on_from_the_task_before():
    learner = build("vgr", stream(), **VARIATIONAL)
    tasks = iter(stream())
    first = next(tasks)
    learner.begin_task(first)
    learner.observe(first.x, first.y)
    learner.end_task(first)
    before = learner.net.head.weight.detach().clone()
    learner.begin_task(next(tasks))
    assert torch.equal(learner.net.head.weight, before)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "base"), [("vgr", "vcl"), ("vgr_mc_dropout", "mc_dropout")])
def test_it_remembers_what_the_method_without_replay_forgets(name, base):
    fields = FIELDS | ({} if name == "vgr_mc_dropout" else {"train_samples": 3, "fit_steps": 20})
    without = {k: v for k, v in fields.items() if k != "replay"}
    options = {"l2": 0.0} if name == "vgr_mc_dropout" else {}
    ends = []
    for method, given in ((name, fields), (base, without)):
        record = protocol.run(stream(), build(method, stream(), **given, **options), epochs=40, batch_size=16)
        ends.append(float(record.R[-1].mean()))
    assert ends[0] > 0.75
    assert ends[1] < 0.5


def test_dropout_trains_on_real_and_generated_rows_under_its_own_loss():
    learner = build("vgr_mc_dropout", stream(), l2=0.3, **FIELDS | {"replay": MEANS | {"samples_per_class": 10}})
    task = trained(learner)
    before = {k: v.clone() for k, v in learner.net.state_dict().items()}
    joined, steps = learner.replay_.joined(task.x, task.y), learner.steps_
    assert len(joined.y) == 80 + 20
    learner.replay_.seen_ = learner.replay_.drawn_ = 0
    loss = float(learner.observe(task.x, task.y).loss)
    learner.net.load_state_dict(before)
    logits = learner.net(joined.x, 1, rng.fork(0, "mask", steps + 1))[0].detach()
    by_hand = -logits.log_softmax(1)[range(100), joined.y].mean() + 0.3 * sum(
        v.square().sum() for k, v in before.items() if k.endswith("weight")
    )
    assert loss == pytest.approx(float(by_hand), rel=1e-5)


def test_a_batch_beyond_the_cap_is_mixed_and_cut():
    learner = build("vgr", stream(), batch_cap=70, **VARIATIONAL | {"replay": MEANS | {"samples_per_class": 40}})
    task = trained(learner)
    sizes, mixed = [], []
    likelihood = learner.likelihood_loss

    def watched(x, y):
        sizes.append(len(y))
        mixed.append(set(y.tolist()))
        return likelihood(x, y)

    learner.likelihood_loss = watched
    learner.observe(task.x, task.y)
    assert sizes == [54, 53, 53]
    assert all(m == {0, 1, 2, 3} for m in mixed)
    assert int(learner.state_dict()["optimizer.0.step"]) == 3


def test_the_loss_of_a_batch_that_was_cut_is_the_mean_over_its_parts(monkeypatch):
    learner = build("vgr", stream(), batch_cap=70, **VARIATIONAL | {"replay": MEANS | {"samples_per_class": 40}})
    task = trained(learner)
    monkeypatch.setattr(VCL, "train_on", lambda self, x, y: Info(torch.tensor(float(len(y)))))
    assert float(learner.observe(task.x, task.y).loss) == pytest.approx(160 / 3)


def test_the_classes_are_what_they_say():
    assert not VGR.moves_prior
    assert VGRVCL.moves_prior
    assert all(build(n, stream(), **FIELDS).replay_.per_task for n in ("vgr", "vgr_mc_dropout"))
    with pytest.raises(InputError, match="'batch_cap' of VGR"):
        build("vgr", stream(), batch_cap=0, **VARIATIONAL)
