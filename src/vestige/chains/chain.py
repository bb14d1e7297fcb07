"""A chain compares a generator with data that is gone: log p/q_t and divergences for every task, step after step.

    chain = Chain()
    chain.step(real={"cats": x}, model={"cats": samples})        # the data is here for the last time
    chain.step(model={"cats": newer_samples})                    # from now on generated samples alone
    chain.divergences()                                          # per task and averaged, with error and verdict
    chain.save(folder); chain = Chain.load(folder)               # goes on in another process with the same bits

CDRE section 3 asks for log p/q_t without p (Eq. 5, 11) and for the average of Eq. 13; how the ratio is carried is a
strategy: see `anchored` (the default, and "keyframe"), `from_vestige` and `every_step` (the paper). `kept` says what is
kept; it has no row of real data, nor a number for each row: divergences are computed inside `step`, for `names`. Of
real rows, if they are 50 or more, columns that fewer than 50 of them leave are taken as constant, and extremes as 20
scales from the centre (`vestiges.rare`); averages that a ratio keeps are rounded (`ratios.coarse`).

Measured with preset="lean", n = 10000, on 20 data sets that chose no setting: mean(sd), intervals of 95 % that hold the
truth. `python -m benchmarks.chain --preset lean --seeds 20 --first-seed 100` with
    --bed fig2a (2-d Gaussian)   kl t=5 0.314(.016) truth 0.313, 20 of 20; t=10 2.594(.070) 2.614, 20 of 20
    --bed melting (two modes)    kl t=5 0.987(.030) truth 0.945, 19 of 20; t=10 3.206(.094) 3.118, 19 of 20
docs/chains.md has the other drifts and divergences, what fails, and the open problem of many dimensions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from vestige import store
from vestige.chains.anchored import Anchored, Keyframe, TaskState
from vestige.chains.estimates import report_of
from vestige.chains.every_step import EveryStep, LogLinearState
from vestige.chains.from_vestige import FromVestige, TaskVestige
from vestige.chains.report import AVERAGE, ChainLimits, StepReport, Task
from vestige.chains.strategy import Strategy
from vestige.core import InputError, NotFitted, StoreError, VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike, Kind
from vestige.core.rounding import ROWS_TOGETHER
from vestige.data.readers.frames import as_table, is_frame
from vestige.densities import DENSITIES
from vestige.features import FEATURES
from vestige.ratios import divergences, weights
from vestige.ratios.base import known_ratios
from vestige.vestiges import Vestige
from vestige.vestiges.rare import without_single_rows

# Every strategy by its name, one line each.
STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "anchored": Anchored,
    "keyframe": Keyframe,
    "vestige": FromVestige,
    "every-step": EveryStep,
}
FILE = "chain.json"
# The divergences that most people ask for.
SHOWN = ("kl", "reverse_kl", "js", "hellinger2")


@dataclass(frozen=True, eq=False)
class ChainState:
    """What is stored of a chain."""

    strategy: Strategy[Any]
    names: tuple[str, ...]
    level: float
    min_samples: int
    limits: ChainLimits
    born: tuple[tuple[Task, int], ...]  # the step at which each task came, in order of arrival
    width: int | None
    report: StepReport | None
    log_ratio_q: tuple[Tensor, ...]  # by task; empty where no number of a single sample is stored
    state: dict[int, TaskState] | dict[int, TaskVestige] | LogLinearState | None


class Chain:
    """Density ratios of a sequence of models to data that was seen once.

    `names` are the divergences that each step computes; `estimator` is what learns a step's ratio, one of those that
    the strategy knows ("stack" by default, "kliep" for "every-step"); `options` are further fields of the strategy,
    `preset` a named set of them.
    """

    def __init__(
        self,
        strategy: str = "anchored",
        *,
        estimator: str | None = None,
        names: Iterable[str] = tuple(divergences.FAMILY),
        level: float = 0.95,
        min_samples: int = 100,
        limits: ChainLimits | None = None,
        preset: str | None = None,
        **options: Any,  # noqa: ANN401 - the strategy's own
    ) -> None:
        kind = STRATEGIES[checks.one_of(strategy, STRATEGIES, "strategy", "Chain")]
        options |= {} if estimator is None else {"estimator": estimator}
        self.strategy: Strategy[Any] = kind(**checks.options(kind, preset, options, f"Chain('{strategy}')"))
        self.names = tuple(divergences.get(name).name for name in names)
        if not self.names:
            checks.refuse("names", "Chain", "at least one divergence", "none")
        self.level = checks.number(level, "level", "Chain", low=0, high=1, open_low=True, open_high=True)
        self.min_samples = checks.whole(min_samples, "min_samples", "Chain", low=20)
        self.limits = limits or ChainLimits()
        self.report_: StepReport | None = None
        self._born: dict[Task, int] = {}  # in order of arrival
        self._width: int | None = None
        self._log_ratio_q: dict[int, Tensor] = {}
        self._state: Any = None

    @property
    def steps(self) -> int:
        """How many steps have been taken."""
        return 0 if self.report_ is None else self.report_.step

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks whose data has been seen, in order of arrival."""
        return tuple(self._born)

    def step(
        self,
        real: Mapping[Task, ArrayLike] | None = None,
        model: Mapping[Task, ArrayLike] | None = None,
        *,
        seed: int = 0,
    ) -> StepReport:
        """Compare this step's model samples, of every task, with the data of new tasks and with what is kept of others.

        Where vestiges are kept (`Strategy.keeps_vestige`), samples of some tasks will do, and a new task needs none. A
        refusal or an error leaves the chain as it was.
        """
        owner, t = "Chain.step", self.steps + 1
        seed = checks.whole(seed, "seed", owner)
        sides, alike = (real or {}, model or {}), (self._width, self.min_samples)
        new, samples = admit(*sides, self._born, *alike, owner, vestiges=self.strategy.keeps_vestige)
        if not self.strategy.keeps_vestige:  # a vestige sees to that itself
            # with `min_samples` below 50 averages over as few rows are kept
            new = {task: without_single_rows(x) if len(x) >= ROWS_TOGETHER else x for task, x in new.items()}
        born = self._born | dict.fromkeys(new, t)
        state, found = self.strategy.step(
            self._state,
            {i: new[task] for i, task in enumerate(born) if task in new},
            {i: samples[task] for i, task in enumerate(born) if task in samples},
            rng.child_seed(seed, "chain", t),
        )
        last = {} if self.report_ is None else {r.task: r.running_from for r in self.report_.tasks}
        reports = [
            report_of(found[i], task, born[task], self.names, last.get(task, {}), level=self.level, limits=self.limits)
            for i, task in enumerate(born)
            if i in found
        ]
        # everything has been found: only now the chain becomes another
        report = self.report_ = StepReport(t, tuple(reports))
        self._born, self._state = born, state
        self._width = next(
            (x.shape[1] for x in (*new.values(), *samples.values()) if isinstance(x, Tensor)), self._width
        )
        self._log_ratio_q = {i: f.log_ratio_q if f.all_q is None else f.all_q for i, f in found.items()}
        if report.warnings:
            warnings.warn(" ".join(report.warnings), VestigeWarning, stacklevel=2)
        return report

    def _place(self, task: Task, owner: str) -> int:
        if self.report_ is None:
            raise NotFitted(f"{owner} was called before the first step.")
        if task not in self._born or isinstance(task, bool):
            checks.refuse("task", owner, f"a known one ({listed(self.tasks)})", repr(task))
        return self.tasks.index(task)

    def log_ratio(self, x: ArrayLike, task: Task) -> Any:  # noqa: ANN401 - the kind that came in
        """log p(x|task) / q_t(x|task) for each row of `x`, t the last step."""
        owner = "Chain.log_ratio"
        place = self._place(task, owner)
        x_ = self._rows(x, "x", owner)
        return Kind.of(x).give(self.strategy.log_ratio(self._state, place, x_))

    def _rows(self, x: object, name: str, owner: str) -> Any:  # noqa: ANN401 - rows, or a table
        if self.strategy.keeps_vestige and is_frame(x):
            return as_table(x, owner)
        return checks.samples(x, name, owner, width=self._width)

    def vestige(self, task: Task) -> Vestige:
        """The vestige of the data of `task`, for `vs.compare` and `vs.weigh`."""
        owner = "Chain.vestige"
        kept = self.strategy.vestige(self._state, self._place(task, owner))
        if kept is None:
            checks.refuse("strategy", owner, "'vestige'", f"'{self.strategy.name}'")
        return kept

    def weights(self, task: Task) -> Tensor:
        """Weights, of mean one, of the last step's model samples of `task`, in their order: they correct its bias.

        They come from log-ratios that were fitted without the row in question.
        """
        place = self._place(task, "Chain.weights")
        if place not in self._log_ratio_q:
            checks.refuse("task", "Chain.weights", "one with samples in the last step", repr(task))
        log_w: Tensor = weights.self_normalise(self._log_ratio_q[place])
        return log_w.exp()

    def anchor_samples(self, task: Task) -> tuple[Tensor, Tensor]:
        """Generated samples and weights, which sum to one, under which they take the place of the data of `task`."""
        samples, weights = self.strategy.anchor_samples(self._state, self._place(task, "Chain.anchor_samples"))
        return samples.clone(), weights.clone()

    def encode_anew(self, samples: Mapping[Task, ArrayLike]) -> None:
        """Give the chain the same anchor samples of every task, in the same order, as they are encoded now.

        A ratio means something only between codes of one feature map (see `features.base`). Who lets the map change
        keeps the raw samples of each task's first step and hands them over, encoded anew, before the next step. The
        weights stay: they belong to the samples, not to their codes. Only "anchored" needs no more than that; the
        others carry ratios of older codes.
        """
        owner = "Chain.encode_anew"
        if not self.tasks or set(samples) != set(self.tasks):
            must = f"given for every known task ({listed(self.tasks) or 'there is none'})"
            checks.refuse("samples", owner, must, listed(samples) or "none")
        codes = {}
        for place, task in enumerate(self.tasks):
            name, n = f"samples[{task!r}]", len(self.anchor_samples(task)[0])
            codes[place] = checks.samples(samples[task], name, owner, width=self._width)
            if len(codes[place]) != n:
                checks.refuse(name, owner, f"the {n} samples of its first step", len(codes[place]))
        state = self.strategy.encoded_anew(self._state, codes)
        if state is None:
            checks.refuse("strategy", owner, "'anchored', which carries no ratio of older codes", self.strategy.name)
        self._state = state

    def divergences(self, names: Iterable[str] | None = None) -> pd.DataFrame:
        """The last step's table: per task and averaged (Eq. 13), with interval, ESS, depth, verdict and other ways.

        Without `names` it shows those of SHOWN that the chain computes, or all of its own if it computes none of them.
        """
        if self.report_ is None:
            raise NotFitted("Chain.divergences was called before the first step.")
        shown = [name for name in SHOWN if name in self.names] or self.names
        asked = shown if names is None else [divergences.get(name).name for name in names]
        for name in asked:
            checks.one_of(name, self.names, "names", "Chain.divergences")
        return self.report_.table(asked)

    def kept(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array that the chain holds, and that `save` writes."""
        return {key: tuple(value.shape) for key, value in self.state()[1].items()}

    def save(self, folder: str | Path) -> Path:
        """Write everything that the chain needs to go on to `folder`, whole or not at all."""
        return store.save(Path(folder) / FILE, "chain", *self.state()).parent

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that the chain needs to go on: fields of plain JSON, and tensors by name."""
        settings = self.strategy, self.names, self.level, self.min_samples, self.limits
        born, none = tuple(self._born.items()), torch.empty(0)
        stored = {} if self.strategy.keeps_vestige else self._log_ratio_q
        log_ratio_q = tuple(stored.get(place, none) for place in range(len(born)))
        fields, tensors = store.encode(ChainState(*settings, born, self._width, self.report_, log_ratio_q, self._state))
        return fields, tensors

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The chain stored in `folder`."""
        path = Path(folder) / FILE
        stored = store.load(path, "chain")
        try:
            return cls.from_state(*stored)
        except (TypeError, InputError, StoreError) as error:
            raise StoreError(f"{path} does not hold a chain that this version can read: {error}") from None

    @classmethod
    def from_state(cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """The chain whose `state` this is."""
        known: dict[str, type] = {kind.__name__: kind for kind in STRATEGIES.values()}
        parts = {kind.__name__: kind for kind in (*DENSITIES.values(), *FEATURES.values())}
        read: ChainState = store.decode(ChainState, fields, tensors, classes=known | known_ratios() | parts)
        chain = cls(names=read.names, level=read.level, min_samples=read.min_samples, limits=read.limits)
        chain.strategy, chain.report_ = read.strategy, read.report
        chain._born, chain._width, chain._state = dict(read.born), read.width, read.state
        chain._log_ratio_q = {place: x for place, x in enumerate(read.log_ratio_q) if len(x)}
        return chain


def admit(
    real: Mapping[Task, ArrayLike],
    model: Mapping[Task, ArrayLike],
    born: Mapping[Task, int],
    width: int | None,
    min_samples: int,
    owner: str,
    *,
    vestiges: bool,
) -> tuple[dict[Task, Any], dict[Task, Any]]:
    """Data of tasks that are new, and samples of these and of those in `born`, as float64; `width` None: any.

    Where `vestiges` are kept, tables stay tables, and tasks may be without samples. Everything that can be refused of a
    step is refused here, before any work.
    """
    for task in (*real, *model):
        if isinstance(task, bool) or not isinstance(task, str | int) or task == AVERAGE:
            checks.refuse("task", owner, f"a whole number, or a word other than '{AVERAGE}'", repr(task))
    for task in real:
        if task in born:
            seen = f"data of task {task!r}, which was seen at step {born[task]} and has left"
            checks.refuse("real", owner, "data of new tasks", seen)
    needed = [*born, *real]
    if not needed:
        checks.refuse("real", owner, "given at the first step", "nothing")
    for task in model:
        if task not in needed:
            checks.refuse("model", owner, f"of known or new tasks ({listed(needed)})", f"task {task!r}")
    missing = [task for task in needed if task not in model]
    if missing and not (vestiges and (real or model)):
        which = "a known task, or 'real' for a new one" if vestiges else "every known and new task"
        checks.refuse("model", owner, f"given for {which}", f"none for {listed(missing)}")
    admitted: tuple[dict[Task, Any], dict[Task, Any]] = ({}, {})
    for name, given, into in zip(("real", "model"), (real, model), admitted, strict=True):
        for task, x in given.items():
            label = f"{name}[{task!r}]"
            if vestiges and is_frame(x):
                into[task] = as_table(x, owner)
                if into[task].num_rows < min_samples:
                    checks.refuse(label, owner, f"at least {min_samples} rows", into[task].num_rows)
                continue
            into[task] = checks.samples(x, label, owner, min_rows=min_samples, width=width)
            width = into[task].shape[1]
    return admitted


def listed(tasks: Iterable[Task]) -> str:
    """Tasks in a sentence."""
    return ", ".join(repr(task) for task in tasks)
