"""Accuracy while training against a brute-force evaluation; the metrics against their definitions; resuming."""

import math

import pytest
import torch

from toys import blobs
from vestige import metrics, store
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data.stream import seen_outputs
from vestige.data.streams import blurred, split

FIELDS = {"hidden": (8,), "learning_rate": 0.02}


def brute_force(stream, learner, rows, seed, every, batch_size, epochs):
    """The same by a loop of its own: every test row is predicted alone, among the outputs that compete."""
    tests, found, at = stream.test_sets(), [], []
    chosen = [
        torch.randperm(len(t.y), generator=rng.fork(seed, "while training", j))[:rows].sort().values
        for j, t in enumerate(tests)
    ]

    def look(k, batch):
        row = [math.nan] * len(stream)
        for j in range(k + 1):
            space = seen_outputs(stream, k) if stream.declared.head == "single" else list(tests[j].outputs)
            hits = []
            for i in chosen[j].tolist():
                scores = learner.predict(tests[j].x[i : i + 1])[0]
                hits.append(max(space, key=lambda o: float(scores[o])) == int(tests[j].y[i]))
            row[j] = sum(hits) / len(hits)
        found.append(row)
        at.append([k, batch])

    told = stream.declared.boundaries_told
    for k, task in enumerate(stream):
        if told or k == 0:
            learner.begin_task(task if told else protocol._nameless(stream))
        batch = 0
        for epoch in range(epochs):
            order = torch.randperm(len(task.y), generator=rng.fork(seed, "shuffle", k, epoch))
            order = torch.arange(len(task.y)) if stream.declared.ordered else order
            for part in order.split(batch_size):
                learner.observe(task.x[part].clone(), task.y[part].clone())
                batch += 1
                if batch % every == 0:
                    look(k, batch)
        if told or k == len(stream) - 1:
            learner.end_task(task if told else protocol._nameless(stream))
        look(k, batch)
    return torch.tensor(found, dtype=torch.float64), torch.tensor(at, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["class", "task", "domain", "online"])
def test_it_is_what_a_brute_force_finds(kind):
    stream = blurred(blobs(), 2) if kind == "online" else split(blobs(), 2, scenario=kind)
    epochs = 1 if kind == "online" else 2
    how = {"seed": 3, "epochs": epochs, "batch_size": 20}
    record = protocol.run(stream, build("vanilla", stream, **FIELDS), every=3, every_rows=7, **how)
    curve, at = brute_force(stream, build("vanilla", stream, **FIELDS), 7, 3, 3, 20, epochs)
    assert torch.equal(record.values["while_training_at"], at)
    torch.testing.assert_close(record.values["while_training"], curve, equal_nan=True)
    assert record.config["protocol"]["every_rows"] == 7
    anytime = record.anytime()
    assert anytime["min-ACC"] == metrics.min_acc(curve, at[:, 0])
    assert set(anytime) == {"min-ACC", "WC-ACC", "average anytime", "stability gap"}


def test_with_all_rows_a_border_is_the_matrix_and_nothing_else_changes():
    stream = split(blobs(), 2)
    plain = protocol.run(stream, build("vanilla_s", stream, **FIELDS), batch_size=20)
    with pytest.raises(InputError, match="at borders alone"):
        plain.anytime()
    record = protocol.run(stream, build("vanilla_s", stream, **FIELDS), batch_size=20, every=1, every_rows=10**6)
    assert torch.equal(record.R, plain.R)
    tasks = record.values["while_training_at"][:, 0]
    for k in range(3):
        border = record.values["while_training"][tasks == k][-1]
        torch.testing.assert_close(border[: k + 1], record.R[k, : k + 1])
        assert border[k + 1 :].isnan().all()


def test_it_is_stored_and_goes_on_from_a_checkpoint(tmp_path):
    stream = split(blobs(), 2)
    how = {"batch_size": 20, "every": 2, "every_rows": 9, "budget": math.inf}
    whole = protocol.run(stream, build("vanilla", stream, **FIELDS), **how)

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.task == 1:
            raise StopError

    with pytest.raises(StopError):
        protocol.run(stream, build("vanilla", stream, **FIELDS), checkpoint=tmp_path, on_progress=stop, **how)
    assert len(list(tmp_path.glob("*.json"))) == 1
    resumed = protocol.run(stream, build("vanilla", stream, **FIELDS), checkpoint=tmp_path, **how)
    for name in ("while_training", "while_training_at", "passes"):
        torch.testing.assert_close(resumed.values[name], whole.values[name], equal_nan=True)
    read = Record.load(resumed.save(tmp_path / "r.json"))
    assert read.anytime() == resumed.anytime()
    assert store.load(tmp_path / "r.json", "record")[0]["config"]["protocol"]["budget"] is None


def test_tests_while_training_are_no_training_time_and_no_passes():
    stream = split(blobs(), 2)
    how = {"batch_size": 20, "budget": math.inf}
    plain = protocol.run(stream, build("vanilla", stream, **FIELDS), **how)
    tested = protocol.run(stream, build("vanilla", stream, **FIELDS), every=1, every_rows=1000, **how)
    assert torch.equal(plain.values["passes"], tested.values["passes"])
    assert sum(tested.seconds["eval"]) > sum(plain.seconds["eval"])


def test_the_default_subset_costs_a_fifteenth_in_passes():
    stream = split(blobs(), 2)
    record = protocol.run(stream, build("vanilla", stream, **FIELDS), batch_size=20, every=4)
    rows = record.config["protocol"]["every_rows"]
    assert rows == int(0.2 * 4 * 20 / 3)
    assert 3 * rows / 3 <= 4 * 20 / 15


class TestMetrics:
    """Two tasks that learn, fall and come back."""

    CURVE = ([0.5, math.nan, math.nan], [0.9, math.nan, math.nan], [0.4, 0.6, math.nan], [0.8, 0.9, math.nan],
             [0.7, 0.5, 0.3], [0.6, 0.7, 0.8])  # fmt: skip
    TASKS = (0, 0, 1, 1, 2, 2)

    def test_by_hand(self):
        found = metrics.anytime(self.CURVE, self.TASKS)
        assert found["min-ACC"] == pytest.approx((0.4 + 0.5) / 2)
        assert found["WC-ACC"] == pytest.approx(0.8 / 3 + 2 / 3 * 0.45)
        assert found["average anytime"] == pytest.approx((0.5 + 0.9 + 0.5 + 0.85 + 0.5 + 0.7) / 6)
        # task 2: .8 of task 1 came back from .4; task 3: task 1 ends at its lowest, .7 of task 2 came back from .5
        assert found["stability gap"] == pytest.approx((0.4 + 0.0 + 0.2) / 3)

    def test_one_task_has_no_old_ones(self):
        found = metrics.anytime(self.CURVE[:2], self.TASKS[:2])
        assert math.isnan(found["min-ACC"])
        assert found["WC-ACC"] == 0.9
        assert math.isnan(found["stability gap"])

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(InputError, match="in order"):
            metrics.min_acc(self.CURVE, (0, 1, 0, 1, 2, 2))
        with pytest.raises(InputError, match="a row for each moment"):
            metrics.wc_acc([0.1, 0.2], [0, 0])
