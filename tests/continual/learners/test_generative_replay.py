"""Generated replay: what is taught when, how many samples join which batch, and that a run goes on to the same bits."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from toys import Means, blobs
from vestige import generators
from vestige.continual import protocol
from vestige.continual.learners.base import Spec
from vestige.continual.learners.generative_replay import GeneratedReplay, GeneratorReplay
from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.core.errors import InputError, StoreError
from vestige.data.streams import blurred, permuted, split


@dataclass(frozen=True)
class ReplayingConfig(VanillaConfig):
    """Plain training, and what is replayed."""

    replay: GeneratedReplay = GeneratedReplay()  # noqa: RUF009 - it is frozen


class Replaying(Vanilla):
    """Plain training on batch and replay; it writes down what it was given."""

    config: ReplayingConfig
    replay_: GeneratorReplay
    per_task: ClassVar = False

    def __init__(self, spec, config=None, *, seed=0):
        super().__init__(spec, config, seed=seed)
        self.replay_ = GeneratorReplay(self.config.replay, spec, per_task=self.per_task, seed=seed)
        self.joins = []

    def begin_task(self, task):
        super().begin_task(task)
        self.outputs_ = self.replay_.begin_task(task.info, self.outputs_)

    def observe(self, x, y):
        joined = self.replay_.joined(x, y)
        self.joins.append((len(y), joined))
        return super().observe(*joined)

    def end_task(self, task):
        super().end_task(task)
        self.replay_.teach(task)

    def bytes(self):
        return self.replay_.counted(super().bytes())


class ATaskEach(Replaying):
    per_task = True


@pytest.fixture(autouse=True)
def means(monkeypatch):
    monkeypatch.setitem(generators.GENERATORS, "means", Means)


def make(kind=Replaying, tasks=None, **fields):
    tasks = tasks or split(blobs(), 2)
    replay = GeneratedReplay(**{"generator": "means", "options": {"collapse": 0.0}} | fields)
    return kind(Spec(tasks.input_shape, tasks.n_outputs), ReplayingConfig(hidden=(8,), replay=replay))


@pytest.mark.parametrize("kind", [Replaying, ATaskEach])
def test_each_epoch_brings_every_sample_once_and_nothing_of_the_task_itself(kind):
    """Three tasks of 80 rows in batches of 16, 10 samples a class: 2 a batch and class that is gone, 10 an epoch."""
    tasks = split(blobs(), 2)
    learner = make(kind, samples_per_class=10)
    protocol.run(tasks, learner, epochs=2, batch_size=16)
    assert len(learner.joins) == 3 * 2 * 5
    for k in range(3):
        epochs = [learner.joins[10 * k + 5 * e :][:5] for e in range(2)]
        for epoch in epochs:
            assert [len(joined.y) - n for n, joined in epoch] == [4 * k] * 5
            old = torch.cat([joined.y[n:] for n, joined in epoch])
            assert Counter(old.tolist()) == dict.fromkeys(range(2 * k), 10)
        rows = [torch.cat([joined.x[n:] for n, joined in epoch]).flatten(1) for epoch in epochs]
        if k:
            assert len(rows[0].unique(dim=0)) == 20 * k, "a sample is dealt once an epoch"
            assert torch.equal(rows[0].unique(dim=0), rows[1].unique(dim=0)), "and drawn once a task"
            assert not torch.equal(rows[0], rows[1])


def test_samples_are_of_their_class_and_fresh_for_each_task_or_epoch():
    tasks, truth = split(blobs(), 2), blobs()
    x, y = truth.floats(truth.train_x), truth.train_y
    for fresh in ("task", "epoch"):
        learner = make(samples_per_class=5, fresh=fresh)
        protocol.run(tasks, learner, epochs=2, batch_size=80)
        old = [joined.x[n:] for n, joined in learner.joins]
        for n, joined in learner.joins:
            for row, c in zip(joined.x[n:], joined.y[n:].tolist(), strict=True):
                torch.testing.assert_close(row, x[y == c].mean(0), atol=0.01, rtol=0)
        second, again, third = old[2].flatten(1), old[3].flatten(1), old[4].flatten(1)
        assert torch.equal(second.unique(dim=0), again.unique(dim=0)) is (fresh == "task")
        assert not (set(map(tuple, second.tolist())) & set(map(tuple, third.tolist())))


def test_without_a_number_as_many_are_drawn_as_a_class_has():
    learner = make()
    protocol.run(split(blobs(per_class=30), 2), learner, batch_size=60)
    assert [len(joined.y) for _, joined in learner.joins] == [60, 120, 180]


def test_a_generator_of_its_own_for_each_task_keeps_classes_that_return_apart():
    """Permuted tasks have the same classes: one generator would write over them."""
    tasks = permuted(blobs(), 3, train_logits="all")
    first = next(iter(tasks)).x.clone()
    learner = make(ATaskEach, tasks, samples_per_class=4)
    states = []
    for task in permuted(blobs(), 3, train_logits="all"):
        learner.begin_task(task)
        learner.observe(task.x, task.y)
        learner.end_task(task)
        states.append({k: v for k, v in learner.state_dict().items() if k.startswith("replay_.generators_.0.")})
    assert len(learner.replay_.generators) == 3
    assert len(learner.joins[2][1].y) == 240 + 2 * 6 * 4
    assert all(torch.equal(states[0][k], later[k]) for later in states[1:] for k in states[0])
    drawn = learner.replay_.generators[0].sample(3, 2)
    torch.testing.assert_close(drawn[0], first[task_rows(2)].mean(0), atol=0.01, rtol=0)


def task_rows(c):
    return (blobs().train_y == c).nonzero()[:, 0]


def test_one_generator_learns_task_after_task():
    learner = make()
    protocol.run(split(blobs(), 2), learner)
    assert list(learner.replay_.generators) == [0]
    assert learner.replay_.generators[0].known_ == tuple(range(6))
    assert learner.replay_.replayed() == list(range(6))


def test_replayed_classes_compete_where_a_stream_trains_the_current_ones_alone():
    tasks = split(blobs(), 2, train_logits="current", head="multi")
    learner, seen = make(tasks=tasks), []
    for task in tasks:
        learner.begin_task(task)
        seen.append(learner.outputs_.outputs)
        learner.observe(task.x, task.y)
        learner.end_task(task)
    assert seen == [(0, 1), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5)]


def test_without_borders_nothing_is_replayed():
    tasks = blurred(blobs(), 2)
    learner = make(tasks=tasks)
    protocol.run(tasks, learner, batch_size=16)
    assert learner.replay_.generators == {}
    assert all(len(joined.y) == n for n, joined in learner.joins)


@pytest.mark.parametrize("fresh", ["task", "epoch"])
def test_taken_over_in_the_middle_of_an_epoch_it_deals_the_same_samples(fresh):
    learner, copy = make(ATaskEach, fresh=fresh, samples_per_class=7), make(ATaskEach, fresh=fresh, samples_per_class=7)
    for k, task in enumerate(split(blobs(), 2)):
        learner.begin_task(task)
        for i, (x, y) in enumerate(zip(task.x.repeat(2, 1, 1).split(25), task.y.repeat(2).split(25), strict=True)):
            if (k, i) == (1, 2):
                copy.load_state_dict(learner.state_dict())
            learner.observe(x, y)
            if k == 1 and i >= 2:
                copy.observe(x, y)
                assert torch.equal(copy.joins[-1][1].x, learner.joins[-1][1].x)
        if k == 1:
            break
        learner.end_task(task)
    for each in (copy.replay_, learner.replay_):
        assert (each.task_, each.rows_, each.each_, each.seen_, each.drawn_) == (1, 80, 7, 160, 28)
    a, b = learner.state_dict(), copy.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_generators_are_counted_and_no_sample_is_kept_between_tasks():
    learner = make(ATaskEach)
    assert learner.bytes()["generator"] == 0
    held = []
    for task in split(blobs(), 2):
        learner.begin_task(task)
        learner.observe(task.x, task.y)
        learner.end_task(task)
        assert learner.replay_.pool is None
        held.append(learner.bytes())
    one = learner.replay_.generators[0].bytes()
    assert [h["generator"] for h in held] == [one, 2 * one, 3 * one]
    assert one >= 2 * 36 * 4
    total = sum(v.numel() * v.element_size() for k, v in learner.state_dict().items() if k != "json")
    assert sum(held[-1].values()) == total
    assert held[-1]["memory"] == 0


def test_what_cannot_be_used_is_refused_at_the_door():
    for fields, name in (
        ({"generator": "mean"}, "name"),
        ({"preset": "huge"}, "preset"),
        ({"options": {"wide": 3}}, "options"),
        ({"samples_per_class": 0}, "samples_per_class"),
        ({"fresh": "batch"}, "fresh"),
    ):
        with pytest.raises(InputError, match=f"'{name}' of"):
            make(**fields)


def test_a_generator_that_does_not_fit_is_named():
    learner = make(ATaskEach)
    protocol.run(split(blobs(), 2), learner)
    state = learner.state_dict()
    state["replay_.generators_.1.net.weight"] = torch.zeros(2, 3)
    with pytest.raises(StoreError, match=r"net\.weight"):
        make(ATaskEach).load_state_dict(state)
