"""Was the evaluation itself honest? Learners are watched, and the questions of `desiderata` answered with evidence.

`WatchedLearner` stands between the protocol and a learner, and notes what an audit asks. Before each task but the first
it lets the learner look at the task's inputs (`resemblance`); where no borders are told, before each stretch of the
stream. It counts how often `predict` was told a task, what is kept of past tasks when the last one is over, and which
of their samples train again (`Traces`). It changes nothing that the learner does, and the time it takes itself does not
count.

**Resemblance.** Do the inputs of a task look like old classes to the model that is about to learn it? That is measured,
not declared. Before a task trains, the model of the tasks before it looks at the task's inputs. An input counts when
the model names an old class with a probability of at least `sure`. A model may be sure of anything, so the same inputs
are shown again with their coordinates in another order, one order for all inputs as in Permuted MNIST, and that for
many orders: they keep their brightness and lose their shape. Resemblance is the share of counted inputs minus the mean
share under other orders.

Chance is excluded by rank: the p-value is how often, among its own and the other orders, the mean share over tasks is
at least that of the inputs as they are. Where a task is the same inputs in a random order its own is one of many, so
the p-value of the second task of Permuted MNIST is uniform whatever the model, and nothing is assumed of how shares are
spread. Over more tasks that is near the truth but not exact: the model that looks at a later task was trained on the
orders of those before it. Either way one stream of permutations in twenty passes; where a stream declares that its
inputs are the same, an audit goes by that (see `desiderata`).

It is a property of model and stream together: a network too small, too sure of itself or hardly trained shows no
resemblance where a better one does. Farquhar and Gal (section 5) ask that inputs "at least sometimes result in
confident predictions of old classes"; that the model must not find as many in noise is ours.

**Traces.** Rows of past tasks, wherever they turn up: among what a learner keeps, or in a network that trains. Each row
that a learner is shown gets a fingerprint, a number made of its bits; the rows themselves are not kept. A learner keeps
a row if a tensor that can be reached from it (through attributes, dicts and lists) has one with that fingerprint,
whether in its memory or elsewhere; it trains on old tasks if such a row enters any network while gradients are on. Rows
of the task under way do not count, nor rows of old ones that are in it again.

What is found is a copy, bit for bit, in 32-bit floats. A row that was rounded, cropped or drawn anew is not recognised,
nor one that hides in a closure or a file: evidence that data was kept is proof, its absence is none.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from vestige import store
from vestige.continual import protocol
from vestige.continual.desiderata import DESIDERATA, QUESTIONS, Audit, Facts, audit_of, described, facts_of, from_record
from vestige.continual.learners.base import Info, Learner
from vestige.continual.learners.own import as_learner
from vestige.continual.passes import not_counted
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.checks import refuse
from vestige.core.plain import plain
from vestige.data.stream import Inputs, Stream, Task, TaskInfo

__all__ = ["DESIDERATA", "QUESTIONS", "Audit", "Facts", "audit", "audit_of", "audited_run", "described", "from_record"]

Scores = Callable[[Tensor], Tensor]
Options = Mapping[str, Any]  # of `protocol.run`


@dataclass(frozen=True)
class Resemblance:
    """Shares on one task's inputs, before it trained, and on the same inputs under each other order."""

    task: int
    named_old: float
    other_orders: tuple[float, ...]
    n: int  # inputs that were looked at
    sure_of_any: float  # the share of them of which the model was sure, whatever it named: without that, none is named

    @property
    def difference(self) -> float:
        """What the shape of the inputs adds."""
        return self.named_old - fmean(self.other_orders)


def share_named_old(log_p: Float[Tensor, "n k"], candidates: Sequence[int], old: Sequence[int], sure: float) -> float:
    """How often the likeliest of `candidates` is an old class, and has at least the probability `sure`."""
    among = log_p[:, list(candidates)].log_softmax(1)
    best, place = among.max(1)
    is_old = torch.isin(torch.tensor(list(candidates))[place], torch.tensor(list(old)))
    return float((is_old & (best.exp() >= sure)).double().mean())


@torch.no_grad()
def resemblance(
    predict: Scores,
    x: Inputs,
    *,
    task: int,
    candidates: Sequence[int],
    old: Sequence[int],
    seed: int,
    sure: float = 0.9,
    most: int = 250,
    orders: int = 39,
) -> Resemblance:
    """Look at up to `most` inputs of a task that is about to begin, as they are and in `orders` other orders."""
    rows = torch.randperm(len(x), generator=rng.fork(seed, "audit rows", task))[:most]
    x = x[rows]
    flat, generator = x.flatten(1), rng.fork(seed, "audit orders", task)

    def share(inputs: Tensor) -> float:
        return share_named_old(predict(inputs.reshape(x.shape)), candidates, old, sure)

    others = [share(flat[:, torch.randperm(flat.shape[1], generator=generator)]) for _ in range(orders)]
    own = predict(x)
    named, any_class = (share_named_old(own, candidates, among, sure) for among in (old, candidates))
    return Resemblance(task, named, tuple(others), len(x), any_class)


def summarised(found: Sequence[Resemblance]) -> dict[str, float]:
    """Means over tasks of the shares and of the difference from other orders, and the p-value of the mean share."""
    own = fmean(r.named_old for r in found)
    others = [fmean(shares) for shares in zip(*(r.other_orders for r in found), strict=True)]
    p, sure = (1 + sum(other >= own for other in others)) / (1 + len(others)), fmean(r.sure_of_any for r in found)
    difference = own - fmean(others)
    return {"named_old": own, "other_orders": fmean(others), "difference": difference, "p": p, "sure_of_any": sure}


ROWS_AT_ONCE = 4096  # bounds memory, changes nothing
NO_HOLDERS = (str, bytes, type, ModuleType, FunctionType, MethodType)


@functools.cache
def _factors(width: int) -> Int64[Tensor, " w"]:
    limit = torch.iinfo(torch.int64)
    return torch.randint(limit.min, limit.max, (width,), generator=rng.fork(0, "fingerprints", width))


def fingerprints(x: Inputs) -> set[int]:
    """A number for each row but those of zeros, which are in every optimiser; the order of the rows does not matter.

    The sum runs in integers, which wrap and never round: the same row gives the same number in any batch.
    """
    bits = x.detach().flatten(1).float().contiguous().view(torch.int32)
    found = {f for part in bits.split(ROWS_AT_ONCE) for f in (part * _factors(bits.shape[1])).sum(1).tolist()}
    return found - {0}


def tensors_in(thing: object, skip: object = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from `thing`, each once; nothing of `skip`."""
    left, met = [thing], {id(skip)}
    while left:
        item = left.pop()
        if id(item) in met or isinstance(item, NO_HOLDERS):
            continue
        met.add(id(item))
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, Mapping):
            left += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            left += item
        else:
            left += vars(item).values() if hasattr(item, "__dict__") else []


class Traces:
    """What a learner was shown, and what of it came back. `aside` surrounds the looking: a clock that stops, say."""

    def __init__(self, width: int, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.width, self.aside = width, aside  # the width of a row
        self.past: set[int] = set()
        self.present: set[int] = set()
        self.again: set[int] = set()  # rows of the past that a network trained on

    def begin(self, x: Inputs) -> None:
        """These rows are the present; what was before is the past."""
        self.past |= self.present
        self.present = fingerprints(x) if len(x) else set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs, look at what enters any network with gradients on."""

        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            if torch.is_grad_enabled() and args and isinstance(args[0], Tensor) and self._has_rows(args[0]):
                with self.aside():
                    self.again |= (fingerprints(args[0]) & self.past) - self.present

        handle = register_module_forward_pre_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def copies(self, thing: object, skip: object = None) -> tuple[int, int]:
        """Samples and bytes of all tasks so far that `thing` holds outside of `skip`."""
        shown, samples, size = self.past | self.present, 0, 0
        for tensor in tensors_in(thing, skip):
            if self._has_rows(tensor):
                found = len(fingerprints(tensor) & shown)
                samples, size = samples + found, size + found * self.width * tensor.element_size()
        return samples, size

    def _has_rows(self, x: Tensor) -> bool:
        return x.is_floating_point() and x.ndim > 1 and len(x) > 0 and x[0].numel() == self.width


CLOCKS = {"train": time.perf_counter, "train_cpu": time.process_time}  # by the Record's names
UNCHANGED = ("oracle", "uses_task", "describe", "notes", "identity", "bytes")  # what it has of the learner as it is


class WatchedLearner(Learner):
    """Passes everything on to `learner`."""

    resumable = False  # what was seen so far is in no `state_dict`: a watched run that was interrupted begins anew

    def __init__(self, learner: Learner, stream: Stream, *, seed: int) -> None:
        for name in UNCHANGED:
            setattr(self, name, getattr(learner, name))
        self.learner, self.stream, self.look_seed = learner, stream, seed
        self.borders = stream.declared.boundaries_told or learner.oracle
        self.begun = 0  # tasks; stretches of the stream where no borders are told
        self.rows = 0  # observed, where no borders are told
        self.starts = [0, *accumulate(stream.info(k).n for k in range(len(stream)))]
        self.ahead = iter(stream)  # a pass of its own over a stream that tells no borders
        self.looked: list[Resemblance] = []
        self.predictions = self.told = 0
        self.own = {clock: [0.0] * len(stream) for clock in CLOCKS}  # seconds that watching takes, by task
        self.traces = Traces(math.prod(stream.input_shape), self.aside)

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["learner"], name)

    @property
    def held_back_(self) -> Tensor | None:  # type: ignore[override]
        """The learner's own."""
        return self.learner.held_back_

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done here is not the learner's time, and no pass of its."""
        before = {name: clock() for name, clock in CLOCKS.items()}
        with not_counted():
            yield
        for name, clock in CLOCKS.items():
            self.own[name][max(self.begun - 1, 0)] += clock() - before[name]

    def begin_task(self, task: Task) -> None:
        """Look at the task through the model of the tasks before it."""
        if self.borders:
            self.reach(task)
        with self.traces.watching():
            self.learner.begin_task(task)

    def reach(self, task: Task) -> None:
        """A task, or a stretch, is about to begin."""
        self.begun += 1
        with self.aside():
            if self.borders:
                self.traces.begin(task.x)
            if self.begun > 1 and self.learner.probabilities:
                self.looked.append(self.look(task))

    def look(self, task: Task) -> Resemblance:
        """How the model of now sees inputs that it has not learnt."""
        k = self.begun - 1
        old = sorted({output for past in range(k) for output in self.stream.info(past).outputs})
        candidates = sorted({*old, *task.info.outputs})
        return resemblance(self.learner.predict, task.x, task=k, candidates=candidates, old=old, seed=self.look_seed)

    def observe(self, x: Tensor, y: Tensor) -> Info:
        """Passed on; without borders each batch is a present of its own, and a stretch may end before it."""
        if not self.borders:
            if self.rows >= self.starts[self.begun]:
                self.reach(next(self.ahead))
            self.rows += len(y)
            with self.aside():
                self.traces.begin(x)
        with self.traces.watching():
            return self.learner.observe(x, y)

    def end_task(self, task: Task) -> None:
        """Passed on."""
        with self.traces.watching():
            self.learner.end_task(task)

    def predict(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Count what is told."""
        self.predictions += 1
        self.told += task is not None
        with self.traces.watching():
            return self.learner.predict(x, task)

    def cleared(self, record: Record) -> Record:
        """The Record of the run that was watched, without the time that watching took."""
        seconds = dict(record.seconds)
        for name, own in self.own.items():
            seconds[name] = [max(s - o, 0.0) for s, o in zip(seconds[name], own, strict=True)]
        return replace(record, seconds=seconds)

    def facts(self, record: Record) -> Facts:
        """What was seen until now, when the last task is over; and what the record has of time and memory."""
        declared, described, memory = self.stream.declared, self.learner.describe(), self.learner.memory
        samples, size = (0, 0) if memory is None else (len(memory), memory.bytes)
        hidden, hidden_size = self.traces.copies(self.learner, skip=memory)
        where = {"labels_at_test": f"in {self.told} of {self.predictions} calls of predict"}
        picked = declared.head == "multi"  # then the protocol lets the outputs of the task that is tested alone compete
        if picked and not self.told:
            where["labels_at_test"] = "by the protocol, which lets the task's own outputs alone compete"
        if hidden:
            where["kept_samples"] = f"{hidden} of them outside of the memory"
        if self.learner.oracle:
            where["retrains"] = "on all data so far: an oracle"
        elif described.get("coreset_fit") == "per_task":
            where["retrains"] = "on the coreset of each task that is tested, chosen by its label"
        else:
            where["retrains"] = f"{len(self.traces.again)} of their samples"
        found = facts_of(record)
        return replace(
            found,
            subject=f"{described['method']} on {self.stream.name}",
            labels_at_test=self.told > 0 or picked,
            resemblance=summarised(self.looked) if self.looked else None,
            same_inputs=declared.same_inputs or None,
            kept_samples=samples + hidden,
            kept_bytes=size + hidden_size,
            retrains=self.learner.oracle or bool(self.traces.again),
            borders_told=declared.boundaries_told,
            continuous=declared.continuous,
            overlapping=declared.overlapping,
            scenario=declared.scenario,
            where={**found.where, **where},
        )


@functools.cache
def warm_up() -> None:
    """The first step of a process's first optimiser loads a part of torch, which is not the first task's time."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight], fused=True).step()


def watched_run(stream: Stream, learner: Learner, seed: int, options: Options) -> tuple[WatchedLearner, Record]:
    """What was seen of `learner` while it ran, and the Record of the run."""
    warm_up()
    watched = WatchedLearner(learner, stream, seed=seed)
    return watched, watched.cleared(protocol.run(stream, watched, seed=seed, **options))


def audited_run(
    stream: Stream,
    learner: Any,  # noqa: ANN401 - whatever `protocol.run` takes
    *,
    seed: int = 0,
    **options: Any,  # noqa: ANN401
) -> Record:
    """`protocol.run` of a learner that is watched, with its `options`; the Record carries the audit."""
    learner = as_learner(learner, stream, seed, "audited_run")
    watched, record = watched_run(stream, learner, seed, options)
    return replace(record, audit=plain(audit_of(watched.facts(record))))


def audit(
    stream: Stream,
    learner: Any,  # noqa: ANN401 - whatever `protocol.run` takes
    record: Record | None = None,
    *,
    seed: int = 0,
    **options: Any,  # noqa: ANN401
) -> Audit:
    """The audit of `learner` on `stream`; `options` are those of `protocol.run`.

    A Record of this stream and learner that carries an audit is taken at its word. Otherwise one like the learner, as
    it was before it learnt anything, is trained here and watched; with a Record that carries none, time and memory are
    the Record's.
    """
    learner = as_learner(learner, stream, seed, "audit")
    if record is not None:
        ran = record.config if "learner" in record.config else record.details.get("run", {})
        if ran.get("stream") != stream.config:
            refuse("record", "audit", f"of the same stream, {stream.name}", f"one of {ran.get('stream')}")
        described, own = ran.get("learner"), learner.describe()
        if described is None or store.content_id(described) != store.content_id(own):
            refuse("record", "audit", f"of the same learner, {own}", f"one of {described}")
        if record.audit is not None:
            return from_record(record)
    watched, ran_here = watched_run(stream, learner.anew(), seed, options)
    return audit_of(watched.facts(record or ran_here))
