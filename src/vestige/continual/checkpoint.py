"""Where a run stands at the border of two tasks, on disk: an interrupted run goes on from there, to the same bits.

A checkpoint is the learner's `state_dict` and what was measured so far, in one atomic pair of files (see `store`). Its
name is a hash of all that decides what comes out (what the Record's id has, the source of the learner's classes, the
software and the device), so that one of another method or configuration is never found, and a torn one counts as
absent. What it holds of past data is what the learner's memory holds, exemplars included, and no more: the folder goes
when the Record is written.

An oracle has no checkpoint, because its state is the data of all tasks; nor has a learner that says `resumable =
False`, because its `state_dict` is not all that it is. Their runs begin anew.
"""

from __future__ import annotations

import functools
import inspect
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import store
from vestige.continual.learners.base import Learner
from vestige.core import StoreError, machine

_folder: ContextVar[Path | None] = ContextVar("folder of checkpoints", default=None)


@dataclass
class SoFar:
    """What was measured up to a border: everything that the Record of a run is made of, for the first `tasks` tasks."""

    tasks: int = 0
    numbers: dict[str, Float64[Tensor, "..."]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Within it every run of the protocol keeps its checkpoint in `folder`, unless it was given one of its own."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


@contextmanager
def unbroken() -> Iterator[None]:
    """An interrupt (SIGINT, SIGTERM) that comes within it waits for its end: a write that has begun is finished."""
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread alone
        yield
        return
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, _: came.append(got)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class Checkpoint:
    """The place of one run's checkpoint; without a folder, or for a learner that cannot, nothing is kept."""

    def __init__(self, folder: str | Path | None, learner: Learner, config: Mapping[str, Any], seed: int) -> None:
        folder = _folder.get() if folder is None else Path(folder)
        self.path: Path | None = None
        if folder is None or not learner.resumable or learner.oracle:
            return
        source = _source(type(learner))
        if source is not None:
            # Another device goes on to other bits.
            where = torch.get_default_device().type
            parts = {"config": config, "seed": seed, "source": source, "device": where, "software": machine.software()}
            self.path = folder / f"{store.content_id(parts | learner.identity())}.json"

    def save(self, learner: Learner, so_far: SoFar) -> None:
        """Write where the run stands, in place of the checkpoint before."""
        if self.path is None:
            return
        state = learner.state_dict()
        tensors = {f"learner/{k}": v for k, v in state.items()} | {f"run/{k}": v for k, v in so_far.numbers.items()}
        order = list(tensors)  # safetensors has an order of its own; sums must be taken in the learner's
        fields = {"tasks": so_far.tasks, "seconds": so_far.seconds, "bytes": so_far.bytes, "order": order}
        with unbroken():
            store.save(self.path, "checkpoint", fields, tensors)

    def load(self, learner: Learner) -> SoFar | None:
        """Put `learner` where the last border was; None, and the learner as it was, where there is no checkpoint."""
        if self.path is None or not self.path.exists():
            return None
        try:
            fields, tensors = store.load(self.path, "checkpoint")
        except StoreError:
            return None
        parts: dict[str, dict[str, Tensor]] = {"learner": {}, "run": {}}
        for key in fields["order"]:
            room, _, name = key.partition("/")
            parts[room][name] = tensors[key]
        learner.load_state_dict(parts["learner"])
        return SoFar(fields["tasks"], parts["run"], fields["seconds"], fields["bytes"])


@functools.cache
def _source(kind: type) -> list[str] | None:
    """The source of a learner's classes; None where Python does not have it."""
    kinds = [each for each in kind.__mro__ if each.__module__ not in ("abc", "builtins", "typing")]
    try:
        return [inspect.getsource(each) for each in kinds]
    except (OSError, TypeError):
        return None
