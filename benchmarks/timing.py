"""CPU time of ours, of a peer and of the floor, taken in turns within one process on one thread.

    times = race({"ours": fit, "densratio": peer_fit, "floor": products})
    Row("ulsif 10000 x 2", times["ours"], "densratio", times["densratio"], floor=times["floor"], at_most=1 / 30)

Only ratios taken in one run mean anything: the machine's speed drifts, and it drifts for all contenders alike when
they take turns. `race` calls each once to warm up (imports, allocators, caches), then round after round in the given
order, and returns the median of `time.process_time`, which counts the work of every thread and no waiting.

`paired` is for ratios near one, on a machine that others use too: many short rounds, and of each contender the median
of its ratios to the reference of the same round, so that a slow spell meets both sides of a ratio.

`floor` is the time of the products that no implementation of the same definition can avoid, written out with plain
matrix calls in the benchmark; ours divided by it says how much is left to win.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One comparison. Times are CPU seconds; None says that there is nothing to time, and `note` says why."""

    name: str
    ours: float | None
    peer_name: str
    peer: float | None
    floor: float | None = None
    at_most: float | None = None  # the target for ours / peer; 1/30 is "thirty times faster"
    note: str = ""  # accuracy of both sides, what differs between them, or why a peer is missing

    @property
    def ratio(self) -> float | None:
        """ours / peer."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def over_floor(self) -> float | None:
        """ours / floor."""
        return self.ours / self.floor if self.ours is not None and self.floor else None

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without a target or without a peer."""
        return None if self.ratio is None or self.at_most is None else self.ratio <= self.at_most

    def as_json(self) -> dict[str, object]:
        """Fields and derived numbers."""
        return asdict(self) | {"ratio": self.ratio, "over_floor": self.over_floor, "met": self.met}


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call, with the garbage collector held off."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        call()
        return time.process_time() - start
    finally:
        if was_on:
            gc.enable()


def race(
    contenders: Mapping[str, Callable[[], object]], *, repeats: int = 5, seconds: float = 60.0, warm_up: bool = True
) -> dict[str, float]:
    """Median CPU seconds of each contender over at most `repeats` interleaved rounds.

    A contender that has used up its share of `seconds` sits out the later rounds, so that a slow peer is timed once or
    twice while a fast side still gets its repeats. A warm-up that alone takes longer than that share counts as the
    one timing.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    share = seconds / len(contenders)
    if warm_up:
        for name, call in contenders.items():
            first = cpu_seconds(call)
            if first > share:
                taken[name].append(first)
    for _ in range(repeats):
        for name, call in contenders.items():
            if not taken[name] or sum(taken[name]) + taken[name][-1] <= share:
                taken[name].append(cpu_seconds(call))
    return {name: statistics.median(values) for name, values in taken.items()}


def paired(contenders: Mapping[str, Callable[[], object]], reference: str, *, rounds: int) -> dict[str, float]:
    """CPU seconds of each contender: the reference's median times the median of the ratios within a round."""
    for call in contenders.values():
        call()
    taken = [{name: cpu_seconds(call) for name, call in contenders.items()} for _ in range(rounds)]
    unit = statistics.median(each[reference] for each in taken)
    return {name: unit * statistics.median(each[name] / each[reference] for each in taken) for name in contenders}
