"""Search: no test row in reach, several seeds, their spread, and a choice by the first tasks alone."""

from dataclasses import replace

import pytest
import torch

from toys import blobs
from vestige import data
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.record import Tried
from vestige.continual.search import best, by_setting, first_tasks, search
from vestige.core.errors import InputError

SENTINEL = 255  # of every pixel of a test row, and of no training row


def marked():
    """Blobs whose test rows are told by every pixel."""
    plain = blobs()
    return replace(plain, train_x=plain.train_x.clamp(max=SENTINEL - 1), test_x=torch.full_like(plain.test_x, SENTINEL))


STREAMS = {
    "split": lambda: data.split(marked(), 2),
    "permuted": lambda: data.permuted(marked(), 2),
    "domains": lambda: data.domains(marked(), 3),
    "long": lambda: data.long(marked(), 3, kinds=("classes", "permutation")),
    "blurred": lambda: data.blurred(marked(), 2),
}


@pytest.mark.parametrize("name", STREAMS)
def test_no_test_row_is_in_the_stream_that_settings_are_chosen_on(name):
    stream = STREAMS[name]()
    assert all((test.x == 1).all() for test in stream.test_sets()), "the sentinel is what is tested on"
    held = stream.validation(6)
    tests = [test.x for test in held.test_sets()]
    assert all(len(x) and float(x.max()) < 1 for x in tests)
    assert all(float(segment.dataset.test_x.max()) < SENTINEL for segment in held._segments), "nor out of sight"
    tasks = [task.x.clone() for task in held]
    told = {row.numpy().tobytes() for x in tests for row in x}
    assert not any(row.numpy().tobytes() in told for x in tasks for row in x), (
        "and none that is tested on is trained on"
    )
    assert [len(x) for x in tasks] == [held.info(k).n for k in range(len(held))]


def test_a_search_never_meets_a_test_row(monkeypatch):
    stream, seen = data.split(marked(), 2), []

    def make(stream, *, seed, **settings):
        learner = build("vanilla", stream, seed=seed, hidden=(4,), **settings)
        observe, predict = learner.observe, learner.predict
        monkeypatch.setattr(learner, "observe", lambda x, y: seen.append(float(x.max())) or observe(x, y))
        monkeypatch.setattr(learner, "predict", lambda x, t=None: seen.append(float(x.max())) or predict(x, t))
        return learner

    found = search(stream, make, {"learning_rate": [1e-3, 1e-2]})
    assert len(seen) > 50
    assert max(seen) < 1
    assert [len(each.scores) for each in found.tried] == [3, 3]
    assert found.on == "every 6th training row of a class, all tasks"


def test_the_first_tasks_alone_choose_what_their_part_of_a_whole_run_says():
    stream = data.split(marked(), 2)
    options = {"hidden": (6,)}
    found = search(stream, "vanilla", {"epochs": [1, 3]}, tasks=2, options=options, batch_size=20)
    assert found.on.endswith("the first 2 tasks alone")
    held, whole = stream.validation(6), []
    for epochs in (1, 3):
        for seed in range(3):
            learner = build("vanilla", held, seed=seed, **options)
            whole.append(protocol.run(held, learner, seed=seed, epochs=epochs, batch_size=20))
    tried = by_setting(whole, lambda r: {"epochs": r.config["protocol"]["epochs"]}, tasks=2)
    assert [each.scores for each in tried] == [pytest.approx(each.scores) for each in found.tried]
    assert [each.set for each in tried] == [{"epochs": 1}, {"epochs": 3}]
    assert found.chosen == best(tried).set
    early = first_tasks(whole[0], 2)
    assert early.R.shape == (2, 2)
    assert first_tasks(whole[0], None) is whole[0]
    with pytest.raises(InputError, match="'tasks' of a search"):
        first_tasks(whole[0], 9)


def test_the_best_mean_wins_its_spread_is_told_and_too_few_seeds_choose_nothing():
    steady, lucky = Tried({"lam": 1}, [80.0, 82.0, 81.0], []), Tried({"lam": 2}, [95.0, 60.0, 70.0], [])
    broken = Tried({"lam": 3}, [99.0, float("nan"), 99.0], [])
    assert best([lucky, steady, broken]) is steady
    assert (steady.mean, steady.spread) == (pytest.approx(81.0), pytest.approx(1.0))
    with pytest.raises(InputError, match=r"'seeds' of search must be at least 3: one seed chooses noise. Got 1"):
        best([Tried({"lam": 1}, [80.0], [])])


def test_bad_searches_are_refused():
    stream = data.split(blobs(), 2)
    for given, name in (
        ({"seeds": 2}, "seeds"),
        ({"grid": {}}, "grid"),
        ({"grid": {"lam": []}}, "grid"),
        ({"grid": {"lamb": [1.0]}}, "grid"),
        ({"method": "ewcc"}, "method"),
        ({"tasks": 4}, "tasks"),
        ({"nth": 1}, "nth"),
    ):
        fields = {"method": "ewc", "grid": {"lam": [1.0]}} | given
        with pytest.raises(InputError, match=f"'{name}' of"):
            search(stream, fields.pop("method"), fields.pop("grid"), **fields)
