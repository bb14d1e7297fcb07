"""The task loop against a loop written out by hand, and what it lets a learner see."""

import math

import pytest
import torch
from torch.nn import functional

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import Spec, Vanilla, build
from vestige.continual.learners.base import Info
from vestige.continual.learners.vanilla import VanillaConfig
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.errors import InputError, VestigeError
from vestige.data.streams import blurred, continuous, permuted, split


def by_hand(stream, *, seed, epochs, batch, hidden):
    """The same run with plain torch: Adam, cross-entropy over the task's outputs, accuracy by argmax."""
    learner = build("vanilla", stream, seed=seed, hidden=hidden)
    net = learner.net
    tests = stream.test_sets()
    single, multi = (torch.full((len(stream),) * 2, math.nan, dtype=torch.float64) for _ in range(2))
    for k, task in enumerate(stream):
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        allowed = torch.full((stream.n_outputs,), -math.inf)
        allowed[list(task.info.train_outputs)] = 0
        for epoch in range(epochs):
            order = torch.randperm(len(task), generator=rng.fork(seed, "shuffle", k, epoch))
            for rows in order.split(batch):
                optimizer.zero_grad()
                functional.cross_entropy(net(task.x[rows]) + allowed, task.y[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            for j, test in enumerate(tests):
                for matrix, outputs in (
                    (single, {o for i in range(max(j, k) + 1) for o in stream.info(i).outputs}),
                    (multi, set(test.outputs)),
                ):
                    scores = net(test.x)
                    banned = [o for o in range(stream.n_outputs) if o not in outputs]
                    scores[:, banned] = -math.inf
                    matrix[k, j] = float((scores.argmax(1) == test.y).double().mean())
    return {"single": single, "multi": multi}, net


@pytest.mark.parametrize("logits", ["current", "seen", "all"])
def test_vanilla_equals_a_loop_written_by_hand(logits):
    stream = split(blobs(), 2, order=[4, 1, 3, 0, 5, 2], train_logits=logits)
    learner = build("vanilla", stream, seed=5, hidden=(16,))
    record = protocol.run(stream, learner, seed=5, epochs=2, batch_size=16)
    expected, net = by_hand(stream, seed=5, epochs=2, batch=16, hidden=(16,))
    for a, b in zip(learner.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)  # fused Adam rounds differently
    for head in ("single", "multi"):
        assert torch.equal(record.matrices[head], expected[head])
    assert record.head == "single"
    assert torch.equal(record.R, expected["single"])


@pytest.mark.parametrize("iterations", [None, 2])
def test_batches_that_a_learner_keeps_are_erased_when_their_round_is_over(iterations):
    stream = split(blobs(), 2)
    learner, kept = build("vanilla", stream, hidden=(4,)), []

    class Keeping(type(learner)):
        def observe(self, x, y):
            kept.append((x, y))
            assert not x.isnan().any()
            return super().observe(x, y)

    learner.__class__ = Keeping
    protocol.run(stream, learner, iterations=iterations, batch_size=16)
    assert len(kept) >= 6
    assert all(bool(x.isnan().all()) and bool((y == -1).all()) for x, y in kept)


def test_joint_knows_more_than_vanilla():
    stream = split(blobs(), 2)
    learners = {m: build(m, stream, hidden=(32,), learning_rate=5e-3) for m in ("joint", "vanilla")}
    runs = {m: protocol.run(stream, learner, epochs=8, batch_size=16) for m, learner in learners.items()}
    assert runs["joint"].R[-1].mean() > runs["vanilla"].R[-1].mean() + 0.3
    assert runs["vanilla"].R.diagonal().mean() > 0.9  # vanilla learns each task, then forgets it
    assert runs["vanilla"].R[-1, 0] < 0.2


def test_one_epoch_of_joint_is_one_epoch_of_the_union():
    stream = split(blobs(per_class=13), 2)
    learner = build("joint", stream, hidden=(4,))
    seen: list[int] = []
    plain = learner.net.__class__.forward

    def counting(self, x):
        if self.training and torch.is_grad_enabled():
            seen.append(len(x))
        return plain(self, x)

    learner.net.__class__.forward = counting
    try:
        protocol.run(stream, learner, batch_size=10)
    finally:
        learner.net.__class__.forward = plain
    assert sum(seen) == 26 + 52 + 78
    assert max(seen) <= 15


class Spy(Vanilla):
    """Writes down what the protocol lets it see."""

    uses_task = True

    def __init__(self, spec, config=None, *, seed=0):
        super().__init__(spec, config, seed=seed)
        self.log = []

    def begin_task(self, task):
        self.log.append(("begin", task.info, len(task.x)))
        super().begin_task(task)

    def observe(self, x, y):
        self.log.append(("observe", x.clone(), y.clone()))
        return super().observe(x, y)

    def end_task(self, task):
        self.log.append(("end", task.info, len(task.x)))

    def predict(self, x, task=None):
        self.log.append(("predict", task, len(x)))
        return super().predict(x, task)


def spied(stream, **options):
    spy = Spy(Spec(stream.input_shape, stream.n_outputs), VanillaConfig(hidden=(4,)))
    protocol.run(stream, spy, **options)
    return spy.log


def test_the_task_reaches_predict_only_where_the_stream_says_so():
    data = blobs()
    assert all(e[1] is None for e in spied(split(data, 2)) if e[0] == "predict")
    told = [e[1] for e in spied(split(data, 2, head="multi")) if e[0] == "predict"]
    assert {t.index for t in told if t is not None} == {0, 1, 2}
    assert None in told  # the single-head matrix of the same run is measured without it


@pytest.mark.parametrize("make", [lambda d: blurred(d, 2), lambda d: continuous(d, 3)])
def test_no_border_is_told_where_none_is_declared(make):
    stream = make(blobs())
    log = spied(stream)
    begins, ends = [e for e in log if e[0] == "begin"], [e for e in log if e[0] == "end"]
    assert len(begins) == len(ends) == 1
    assert begins[0][1].outputs == tuple(range(6))
    assert begins[0][2] == 0  # no data to look ahead in
    inputs = torch.cat([e[1] for e in log if e[0] == "observe"])
    assert torch.equal(inputs, torch.cat([task.x.clone() for task in stream]))  # in order, each once
    with pytest.raises(InputError, match="is seen once, in order"):
        protocol.run(stream, build("vanilla", stream), epochs=2)


def test_an_oracle_hears_of_the_borders_all_the_same():
    stream = blurred(blobs(), 2)
    learner = build("joint", stream, hidden=(8,))
    protocol.run(stream, learner)
    assert learner.memory.task.unique().tolist() == [0, 1, 2]


def test_batches_are_shuffled_by_seed_and_cover_the_task():
    stream = split(blobs(), 6)
    batches = [e for e in spied(stream, batch_size=50, seed=1) if e[0] == "observe"]
    assert [len(e[2]) for e in batches] == [50, 50, 50, 50, 40]
    rows = torch.cat([e[1] for e in batches]).flatten(1)
    task = next(iter(stream))
    assert not torch.equal(rows, task.x.flatten(1))
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, task.x.flatten(1).tolist()))


def test_permuted_has_one_evaluation_and_no_second_matrix():
    stream = permuted(blobs(), 2)
    record = protocol.run(stream, build("vanilla", stream, hidden=(8,)))
    assert set(record.matrices) == {"single"}
    assert not record.R.isnan().any()


def test_time_and_bytes_are_counted_for_every_task():
    stream = split(blobs(), 2)
    learner = build("joint", stream, hidden=(8,))
    record = protocol.run(stream, learner)
    assert all(len(v) == 3 and min(v) >= 0 for v in record.seconds.values())
    weights = sum(p.numel() for p in learner.net.parameters())
    assert record.bytes["model"] == [4 * weights] * 3
    per_sample = 36 * 4 + 8 + 8
    assert record.bytes["memory"] == [80 * per_sample, 160 * per_sample, 240 * per_sample]
    assert record.bytes["optimizer"][0] >= 2 * 4 * weights
    assert record.bytes["peak"][0] > 10**7


def test_the_reference_is_the_joint_diagonal_of_the_same_stream():
    stream = split(blobs(), 2)
    joint = protocol.run(stream, build("joint", stream, hidden=(8,)))
    record = protocol.run(stream, build("vanilla", stream, hidden=(8,)), reference=joint)
    assert torch.equal(record.reference, joint.R.diagonal())
    given = protocol.run(stream, build("vanilla", stream, hidden=(8,)), reference=[0.9, 0.8, 0.7])
    assert given.reference.tolist() == [0.9, 0.8, 0.7]
    with pytest.raises(InputError, match="a Record of the same stream"):
        protocol.run(split(blobs(), 3), build("vanilla", stream), reference=joint)
    with pytest.raises(InputError, match=r"'reference' of protocol\.run must be 3 long"):
        protocol.run(stream, build("vanilla", stream), reference=[0.9])


def test_the_baseline_is_the_untrained_network():
    stream = split(blobs(), 2)
    untrained = build("vanilla", stream, hidden=(8,), seed=6)
    record = protocol.run(stream, build("vanilla", stream, hidden=(8,), seed=6))
    for j, test in enumerate(stream.test_sets()):
        scores = untrained.predict(test.x)
        seen = scores[:, : 2 * (j + 1)].argmax(1)
        assert record.baseline["single"][j] == (seen == test.y).double().mean()
        own = torch.tensor(test.outputs)
        assert record.baseline["multi"][j] == (own[scores[:, own].argmax(1)] == test.y).double().mean()


def test_a_diverged_run_says_so():
    stream = split(blobs(), 2)

    class Diverges(Vanilla):
        def observe(self, x, y):
            return Info(super().observe(x, y).loss * float("nan"))

    learner = Diverges(Spec(stream.input_shape, stream.n_outputs), VanillaConfig(hidden=(4,)))
    with pytest.raises(VestigeError, match="diverged on task 0"):
        protocol.run(stream, learner)


def test_progress_counts_every_sample():
    stream = split(blobs(), 2)
    calls = []
    protocol.run(stream, build("vanilla", stream, hidden=(4,)), epochs=2, on_progress=calls.append)
    assert [c.done for c in calls] == [80, 160, 240, 320, 400, 480]
    assert {c.total for c in calls} == {480}
    assert all(math.isfinite(c.loss) for c in calls)


@pytest.mark.parametrize("options", [{"epochs": 0}, {"batch_size": 0}, {"eval_batch_size": 0}])
def test_misuse_gets_one_sentence(options):
    stream = split(blobs(), 2)
    with pytest.raises(InputError, match=f"'{next(iter(options))}' of protocol.run"):
        protocol.run(stream, build("vanilla", stream), **options)


def test_same_seed_same_record_whatever_the_batch_of_the_evaluation(tmp_path):
    stream = split(blobs(), 2)
    records = [
        protocol.run(stream, build("vanilla", stream, hidden=(8,), seed=3), seed=3, eval_batch_size=size)
        for size in (7, 2048)
    ]
    assert torch.equal(records[0].R, records[1].R)
    assert records[0].id == records[1].id
    assert isinstance(Record.load(records[0].save(tmp_path)), Record)
