"""Weighted replay: where weights enter, by hand; what is resampled; what is followed, and counted."""

import pytest
import torch
from torch.nn import functional

import toys
from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.generative_replay import ReplayBatch
from vestige.continual.learners.weighted_replay import tempered
from vestige.core.errors import InputError
from vestige.data.streams import permuted, split
from vestige.generators.vae import VAE

TINY = {"encoder": (8,), "decoder": (8,), "codes": 3, "steps": 10, "batch_size": 20, "collapse": 0.0}
FIELDS = {"hidden": (6,), "replay": {"options": TINY, "samples_per_class": 5}, "min_rows": 40, "chain_samples": 40}


def tasks():
    return split(blobs(n_classes=4), 2)


def at_second_task(**fields):
    stream = tasks()
    return toys.at_second_task(build("weighted_replay", stream, **FIELDS | fields), stream)


def test_weights_enter_the_replayed_part_of_the_loss_alone():
    learner, task, _ = at_second_task(share=0.25)
    replay = learner.replay_
    replay.pool, replay.weights = ReplayBatch(torch.rand(6, 6, 6), torch.tensor([0, 1] * 3)), torch.arange(6) / 2.5
    rows = torch.tensor([5, 0, 3])
    replay.next_rows = lambda n: rows
    with torch.no_grad():
        new = functional.cross_entropy(learner.net(task.x), task.y)
        each = functional.cross_entropy(learner.net(replay.pool.x[rows]), replay.pool.y[rows], reduction="none")
        found = learner.loss(task.x, task.y)
    assert found.item() == pytest.approx((0.25 * new + 0.75 * (each @ torch.tensor([2.0, 0.0, 1.2])) / 3).item())


def test_each_condition_has_weights_of_mean_one_from_its_own_ratio():
    learner, _, _ = at_second_task(ess=0.5)
    learner.replay_.follower_.log_ratio = lambda x, c, *, seed: x.flatten(1).sum(1).double() * (c + 1)
    drawn = learner.replay_.draw(5, "pool")
    for c in (0, 1):
        expected = tempered(drawn.x[5 * c : 5 * c + 5].flatten(1).sum(1).double() * (c + 1), 0.5)[0]
        torch.testing.assert_close(learner.replay_.weights[5 * c : 5 * c + 5], expected)
    told = learner.report_["solver"]
    assert told["weights"].keys() == {0, 1}
    assert told["weights"][0]["ess"] >= 0.5 - 1e-9
    learner.replay_.follower_.log_ratio = lambda x, c, *, seed: 100 * x.flatten(1).sum(1).double()
    learner.replay_.draw(5, "pool")
    told = learner.report_["solver"]["weights"][0]
    assert told["raw_ess"] < 0.5 - 1e-3
    assert told["ess"] == pytest.approx(0.5, abs=1e-3)
    without, _, _ = at_second_task(solver=False)
    without.replay_.draw(5, "pool")
    assert (without.replay_.weights == 1).all()
    assert "solver" not in without.report_


@pytest.mark.slow
def test_the_next_generator_is_taught_samples_drawn_by_weight(monkeypatch):
    given = []
    fit = VAE.fit
    monkeypatch.setattr(
        VAE, "fit", lambda self, x, t, replay=None, **o: given.append(replay) or fit(self, x, t, replay, **o)
    )
    learner, task, _ = at_second_task(resample=True, oversample=3)

    middle = {}

    def by_brightness(x, condition, seed):
        middle[condition] = x.flatten(1).mean(1).median()
        bright = x.flatten(1).mean(1) > middle[condition]
        return 2.0 * bright.double(), tempered(torch.zeros(len(x), dtype=torch.float64), 0.5)[1]

    monkeypatch.setattr(learner.replay_, "weigh", by_brightness)
    learner.end_task(task)
    first, replay = given
    assert first is None
    assert replay.keys() == {0, 1}
    for c, rows in replay.items():
        assert rows.shape == (5, 6, 6)
        assert (rows.flatten(1).mean(1) > middle[c]).all()
        assert len({row.numpy().tobytes() for row in rows}) == 5, "of seven bright ones each comes at most once"
    without, task, _ = at_second_task()
    without.end_task(task)
    assert given[-1] is None


def test_a_task_is_resampled_for_each_of_its_classes():
    learner, _, _ = at_second_task(resample=True, condition="task")
    assert {c: len(rows) for c, rows in learner.replay_.resampled(learner.replay_.generator).items()} == {0: 2 * 5}


def test_the_chain_sees_of_each_condition_its_own_data_under_the_generator_that_learnt_it(monkeypatch):
    learner, task, _ = at_second_task()
    seen = []
    monkeypatch.setattr(
        learner.replay_.follower_, "step", lambda generator, data, *, seed: seen.append((generator, data))
    )
    learner.end_task(task)
    ((generator, data),) = seen
    assert generator.known_ == (0, 1, 2, 3)
    assert data.keys() == {2, 3}
    assert all(torch.equal(rows, task.x[task.y == c]) for c, rows in data.items())


def test_a_class_that_returns_is_taught_beside_samples_of_its_earlier_domain(monkeypatch):
    stream, given, fit = permuted(blobs(n_classes=2), 2), [], VAE.fit
    monkeypatch.setattr(
        VAE,
        "fit",
        lambda self, x, t, replay=None, **o: given.append((replay, set(t.tolist()))) or fit(self, x, t, replay, **o),
    )
    learner = build("weighted_replay", stream, resample=True, **FIELDS)
    protocol.run(stream, learner)
    (first, of_first), (second, of_second) = given
    assert (first, of_first, of_second) == (None, {0, 1}, {2, 3})
    assert {c: len(rows) for c, rows in second.items()} == {0: 5, 1: 5}
    assert learner.replay_.follower_.arrival_ == {0: 0, 1: 0, 2: 1, 3: 1}, "each with data once"


def test_a_condition_is_followed_from_its_arrival_and_anchors_are_counted():
    learner, task, _ = at_second_task()
    assert learner.replay_.follower_.arrival_ == {0: 0, 1: 0}
    learner.end_task(task)
    assert learner.replay_.follower_.arrival_ == {0: 0, 1: 0, 2: 1, 3: 1}
    anchors = 4 * 40 * 3 * 8  # conditions, samples of the chain, codes, in double precision
    held = learner.bytes()
    assert held["anchors"] > anchors
    assert held["memory"] == 0, "no row of the data is kept"
    assert sum(held.values()) == sum(
        v.numel() * v.element_size() for k, v in learner.state_dict().items() if k != "json"
    )


def test_bad_settings_are_refused():
    for field, value in (("ess", 0.0), ("ess", 1.2), ("blur", -1.0), ("oversample", 0), ("chain_samples", 20)):
        with pytest.raises(InputError, match=f"'{field}' of WeightedReplay"):
            build("weighted_replay", tasks(), **{field: value})
    with pytest.raises(InputError, match="'generator' of WeightedReplay must be one with codes"):
        build("weighted_replay", tasks(), replay={"generator": "fgan"})
