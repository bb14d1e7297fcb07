"""A monitor: the long-lived judge of new data, or of a generator, whose data goes away. A chain and a history on disk.

    monitor = Monitor.create(folder, alarms=[DriftAlarm(false_alarms=0.05, steps_a_year=12)])
    monitor.step(real={"cats": x})                               # the data is here for the last time
    monitor = Monitor.open(folder)                               # weeks later, another process
    monitor.step(new={"cats": newer_rows})                       # data that came in, or samples of a model
    monitor.table(); monitor.drift(); monitor.alarms; monitor.report("report.html")

By default the chain keeps a vestige of each task's data (`chains.from_vestige`). Tables are then handed to it as they
are, and each vestige reads columns by a schema of its own. Arrays and images go through the feature map and then into
the chain; a map that must be fitted is fitted at the first step, on the data that is here then, and stays as it is from
then on; with fewer than 20 rows a feature a public one takes its place (`features.kept`), which a note of the step
says. That is a deviation from CDRE section 4.2, where the map goes on learning: codes of one map beside codes of
another would show the map's movement as a drift of the model.

What is in the folder, see `folder`, is all that is kept: see `Monitor.kept`. No row of real data is, in raw form or in
features. With `keep_moments=False`, which no vestige can do, no average over real rows is either: samples are
standardised by the model's own, the weights of the anchor samples are left as the ratio gave them, and a feature map is
fitted on generated samples. The figures of each step and the fitted ratio remain, without which there would be no
monitor.
"""

from __future__ import annotations

import copy
import datetime
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import pandas as pd
import pyarrow as pa

from vestige import features, store
from vestige.chains import Chain
from vestige.chains.chain import SHOWN
from vestige.chains.report import StepReport, Task
from vestige.core import NotFitted, StoreError, VestigeWarning, checks
from vestige.features import FeatureMap
from vestige.features.kept import fitted_to_keep
from vestige.monitor import history, samples
from vestige.monitor.alarms import DEFAULT, Alarm, Alarms, FiredAlarm, Refusal, held, sentences
from vestige.monitor.false_alarms import DriftAlarm
from vestige.monitor.folder import Folder, MonitorSettings, Parts, Writes
from vestige.monitor.history import MonitorStep
from vestige.monitor.openmetrics import openmetrics
from vestige.monitor.samples import Arrays, Given, TableCoding
from vestige.ratios.divergences import get as divergence
from vestige.show.tables import card
from vestige.vestiges.gives_away import NOTHING, gives_away

OWNER = "Monitor.create"
FEATURES_FILE = "features.json"
WAIT = 60.0  # seconds that a step waits for another process to finish its own


class SeenRows(NamedTuple):
    """What a step hands to the chain: rows of the data and new ones by task; and how they were read and seen."""

    rows: tuple[dict[Task, Any], dict[Task, Any]]
    map: FeatureMap
    fitted: bool  # the map, in this step
    coding: TableCoding | None
    copied: int  # new rows that repeat those of the data
    notes: tuple[str, ...]


class Monitor:
    """The judge of one generator; made by `Monitor.create` or `Monitor.open`."""

    def __init__(self, folder: Folder | str | Path) -> None:
        if not isinstance(folder, Folder):
            checks.refuse("folder", "Monitor", "opened by Monitor.open, or made by Monitor.create", folder)
        self._folder = folder
        self._settings: MonitorSettings
        self._parts: Parts  # the step that each part of the folder is from
        self._steps: list[MonitorStep] = []
        self._chain: Chain | None = None  # after the last step, if it is in memory
        self._map: FeatureMap | None = None
        self._catch_up()

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        features: str | Mapping[str, Any] | FeatureMap = "identity",
        chain: Chain | Mapping[str, Any] | None = None,
        alarms: Iterable[Alarm | DriftAlarm] | None = None,
        keep_moments: bool = True,
        drop: Sequence[str] = (),
    ) -> Self:
        """A new monitor in a new or empty folder.

        `features` is the name of a map, its configuration, or a map; `chain` a chain that has not begun, or its
        options, "vestige" being the strategy unless they name one or `keep_moments` is False; `alarms` default to those
        of `vestige.monitor.alarms.DEFAULT` that concern a task; `drop` names columns of tables to leave out.
        """
        keep_moments = bool(keep_moments)
        fresh, seen = _chain_of(chain, keep_moments=keep_moments), _map_of(features)
        writes: Writes = {"state": fresh.save}
        if seen.shape_ is not None:  # fitted already, by somebody else
            writes["features"] = lambda at: seen.save(at / FEATURES_FILE)
        chosen = MonitorSettings(_now(), seen.config(), _alarms_of(alarms, fresh), keep_moments, tuple(drop))
        place = Folder(Path(folder))
        place.begin(chosen, writes)
        return cls(place)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The monitor in `folder`, at its last finished step."""
        place = Folder(Path(folder))
        place.read_head()
        try:  # whoever holds the lock, or may not write here, leaves the tidying to others
            with place.locked(0):
                place.sweep(place.read_head()[1])
        except (StoreError, OSError):
            pass
        return cls(place)

    @property
    def folder(self) -> Path:
        """Where it lives."""
        return self._folder.path

    @property
    def steps(self) -> int:
        """How many steps are finished."""
        return len(self._steps)

    @property
    def history(self) -> tuple[MonitorStep, ...]:
        """Every finished step."""
        return tuple(self._steps)

    @property
    def tasks(self) -> dict[Task, int]:
        """Each task and the step in which it was learnt."""
        return history.known(self._steps)

    @property
    def thresholds(self) -> tuple[Alarm | DriftAlarm, ...]:
        """The alarms that were set, or those that stand by default."""
        return DEFAULT if self._settings.alarms is None else self._settings.alarms

    @property
    def watched(self) -> list[str]:
        """When each alarm fires, for people."""
        return sentences(self._settings.alarms)

    @property
    def alarms(self) -> tuple[FiredAlarm, ...]:
        """Those that fired at the last step; none before the first."""
        return self._steps[-1].alarms if self._steps else ()

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Alarms that cannot be told at the last step, because the number that they watch was refused."""
        return held(self._settings.alarms, [step.report for step in self._steps])[1] if self._steps else ()

    @property
    def refused(self) -> list[Refusal]:
        """The same of all steps."""
        return history.refusals(self._steps, self._settings.alarms)

    @property
    def names(self) -> tuple[str, ...]:
        """The divergences that every step has; none before the first with samples."""
        judged = next((step.report.tasks[0] for step in reversed(self._steps) if step.report.tasks), None)
        return () if judged is None else tuple(judged.estimates)

    @property
    def keep_moments(self) -> bool:
        """Whether averages over real rows may be kept."""
        return self._settings.keep_moments

    def step(
        self,
        real: Mapping[Task, Given] | None = None,
        new: Mapping[Task, Given] | None = None,
        *,
        model: Mapping[Task, Given] | None = None,
        allow_copies: bool = False,
        n: int | None = None,
        seed: int = 0,
        wait: float = WAIT,
    ) -> MonitorStep:
        """Judge what is `new` in this step, by the data of tasks that are learnt in it and what is kept of others.

        `new` are rows by task: samples of a model, for which `model` is another word, or data that came in. Rows are
        arrays, tables, names of files, DataLoaders, iterators of batches, or functions that draw them: `n` of a
        function (10 000 unless told), and at most `n` of an iterator; how many there were stands in the step. All or
        nothing: a refusal, an error or a kill leaves the folder at the step before. Another process that is stepping is
        waited for, at most `wait` seconds; what it did is taken over first. Rows that repeat those of the task's data,
        which only the step can tell that has both, are refused unless `allow_copies`.
        """
        seed = checks.whole(seed, "seed", "Monitor.step")
        wait = checks.number(wait, "wait", "Monitor.step", low=0)
        with self._folder.locked(wait), warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", VestigeWarning)
            self._catch_up()
            self._folder.sweep(self._parts)
            try:
                how: dict[str, Any] = {"n": n, "seed": seed, "step": self.steps + 1}
                given = (
                    samples.opened(real or {}, "real", **how),
                    samples.opened({**(new or {}), **(model or {})}, "new", **how),
                )
                seen = self._seen(*given, seed=seed, allow_copies=allow_copies)
                report = self.chain.step(*seen.rows, seed=seed)
                step = self._stored(seen, report, seed)
            except BaseException:
                self._chain = self._map = None  # they may be ahead of the folder
                raise
            self._steps.append(step)
        for warning in raised:  # the step stands, so a filter that makes errors of warnings must not undo it
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return step

    def _seen(self, real: Arrays, model: Arrays, *, seed: int, allow_copies: bool) -> SeenRows:
        """Samples through the coding and the feature map; a map that is fitted here is another."""
        chosen, chain, seen = self._settings, self.chain, self._features()
        coding, sides = chosen.coding, (real, model)
        if chain.strategy.keeps_vestige:
            opened = [samples.without(side, chosen.drop, real=side is real) for side in sides]
        else:
            *opened, coding = samples.read(real, model, coding, chosen.drop)
        tables = [{task: x for task, x in side.items() if isinstance(x, pa.Table)} for side in opened]
        real_, model_ = (
            {t: x for t, x in side.items() if t not in own} for side, own in zip(opened, tables, strict=True)
        )
        if any(tables) and seen.name != "identity":
            checks.refuse("features", "Monitor", "'identity' where rows are tables", f"'{seen.name}'")
        arrays = samples.admitted(real_, model_, seen.shape_, chain.min_samples)
        fitted, notes = seen.shape_ is None and bool(real_ or model_), tuple[str, ...]()
        if fitted:
            here = real_ if chosen.keep_moments and real_ else model_
            seen, note = fitted_to_keep(copy.deepcopy(seen), here, seed=seed)
            if note:
                notes = (note,)
                warnings.warn(note, VestigeWarning, stacklevel=3)
        coded = [{task: seen.codes(x).double() for task, x in side.items()} for side in arrays]
        rows = [{t: (own | code)[t] for t in side} for side, own, code in zip(sides, tables, coded, strict=True)]
        given = [own | array for own, array in zip(tables, arrays, strict=True)]
        copied = samples.repeated(*given, allowed=allow_copies, seed=seed)
        return SeenRows((rows[0], rows[1]), seen, fitted, coding, copied, notes)

    def _stored(self, seen: SeenRows, report: StepReport, seed: int) -> MonitorStep:
        """The figures of a step against the alarms, then to disk. The chain has gone on in place."""
        if seen.copied:
            kept = "" if self.chain.strategy.keeps_vestige else "; generated samples are kept"
            text = f"{seen.copied} samples of step {report.step} repeat rows of the data{kept}."
            warnings.warn(text, VestigeWarning, stacklevel=3)
        fired, _ = held(self._settings.alarms, [*(step.report for step in self._steps), report])
        counts = [tuple((task, len(x)) for task, x in side.items()) for side in seen.rows]
        step = MonitorStep(report, fired, seed, _now(), counts[0], counts[1], seen.copied, seen.notes)
        chosen = replace(self._settings, coding=seen.coding)
        writes: Writes = {"state": self.chain.save}
        if seen.fitted:
            writes["features"] = lambda at: seen.map.save(at / FEATURES_FILE)
        self._parts = self._folder.commit(chosen, self._parts, writes, step)
        self._settings, self._map = chosen, seen.map
        return step

    def _catch_up(self) -> None:
        """Take over what other processes have done to the folder."""
        self._settings, self._parts = self._folder.read_head()
        last = self._parts["state"]
        if last != len(self._steps) or (self._chain is not None and self._chain.steps != last):
            self._chain = self._map = None
        del self._steps[last:]
        self._steps += [self._folder.read_step(number) for number in range(len(self._steps) + 1, last + 1)]

    @property
    def chain(self) -> Chain:
        """The chain after the last step, for its `log_ratio` and `weights`; its steps are taken here alone."""
        while self._chain is None:
            try:
                self._chain = Chain.load(self._folder.part("state", self.steps))
            except StoreError:
                before = self.steps
                self._catch_up()
                if self.steps == before:  # it is damaged; otherwise another process has gone on, and the state with it
                    raise
        return self._chain

    def _features(self) -> FeatureMap:
        if self._map is None:
            fitted = self._parts.get("features")
            if fitted is None:
                self._map = _map_of(self._settings.features)
            else:
                self._map = features.load(self._folder.part("features", fitted) / FEATURES_FILE)
        return self._map

    def table(self, names: Iterable[str] | None = None) -> pd.DataFrame:
        """Every step's divergences, per task and averaged, with interval, ESS, depth and verdict."""
        return history.table(self._steps, self._asked("Monitor.table", names))

    def matrix(self, name: str = "js") -> pd.DataFrame:
        """D[t, task]: a row for each step, NaN before a task was learnt and where it was refused."""
        return history.matrix(self._steps, *self._asked("Monitor.matrix", [name]))

    def forgetting(self, name: str = "js") -> pd.DataFrame:
        """How far each task is behind its best earlier step, at every step, and the average: see `history`."""
        return history.forgetting(self._steps, *self._asked("Monitor.forgetting", [name]))

    def intransigence(self, name: str = "js", reference: Mapping[Task, float] | None = None) -> pd.DataFrame:
        """How far each task was from `reference` (0: the data itself) in the step in which it was learnt."""
        return history.intransigence(self._steps, self._asked("Monitor.intransigence", [name])[0], reference)

    def drift(self) -> pd.DataFrame:
        """The p-value of each drift test and the FID beside it: a row for each step and task that had one."""
        return history.drift(self._steps)

    def kept(self) -> pd.DataFrame:
        """A row for each array in the folder: where it stands, its shape, what it is, and what it gives away."""
        chain, seen, told = self.chain, self._features(), dict[str, tuple[str, str]]()
        for place, task in enumerate(chain.tasks if chain.strategy.keeps_vestige else ()):
            arrays = chain.vestige(task).kept()
            told |= {f"state.{place}.vestige.{name}": pair for name, pair in _told(arrays)}
        own = {name: shape for name, shape in chain.kept().items() if math.prod(shape)}
        rows = [
            ("chain", name, shape, *(told.get(name) or _what(name, shape, self.keep_moments)))
            for name, shape in own.items()
        ]
        state = {} if seen.shape_ is None else seen.state_dict()
        away = gives_away("frame.map") if seen.min_rows > 1 else NOTHING
        rows += [
            ("features", name, tuple(x.shape), f"the feature map: {seen.keeps}", away) for name, x in state.items()
        ]
        return pd.DataFrame(rows, columns=["part", "name", "shape", "what", "gives away"])

    def report(self, path: str | Path, names: Iterable[str] | None = None) -> Path:
        """Write the history to `path` (.html): curves, matrix, alarms, verdicts, what is kept. Opens from disk."""
        from vestige.monitor.page import page  # matplotlib is loaded for this alone

        shown, title = self._asked("Monitor.report", names), f"Monitor of {self.folder.resolve().name}"
        kept = self.kept(), self.chain.strategy.keeps_vestige
        return page(title, str(self), self._steps, shown, *kept, self._settings).save(path)

    def export(self, path: str | Path) -> Path:
        """Write the last step to `path` as OpenMetrics text, whole or not at all: see `vestige.monitor.openmetrics`."""
        told = openmetrics(self.folder.resolve().name, self._steps, self.alarms, self.refusals)
        store.write_bytes(Path(path), told.encode())
        return Path(path)

    def __str__(self) -> str:
        if not self._steps:
            return "No step has been taken yet."
        n, k, untold = len(self.tasks), len(self.alarms), len(self.refusals)
        said = f"{k} alarm{'s fire' if k > 1 else ' fires'}, for task {_whom(self.alarms)}" if k else "no alarm fires"
        said += f"; {untold} cannot be told, for task {_whom(self.refusals)}" if untold else ""
        return f"Step {self.steps}, {n} task{'s' * (n > 1)}: {said if self.thresholds else 'no alarm was set'}."

    def __repr__(self) -> str:
        return f"Monitor({str(self.folder)!r}: {self})"

    def _repr_html_(self) -> str:
        return card(str(self), self._steps[-1].report.figures() if self._steps else ())

    def _asked(self, owner: str, names: Iterable[str] | None) -> list[str]:
        """`names` among the divergences that every step has; without any, the ones that most people ask for."""
        if not self._steps:
            raise NotFitted(f"{owner} was called before the first step.")
        have = self.names
        if names is None:
            return [name for name in SHOWN if name in have] or list(have)
        return [checks.one_of(divergence(name).name, have, "names", owner) for name in names]


def _chain_of(given: Chain | Mapping[str, Any] | None, *, keep_moments: bool) -> Chain:
    """A chain that has not begun, which keeps no more than it may."""
    default = {"strategy": "vestige" if keep_moments else "anchored"}
    chain = copy.copy(given) if isinstance(given, Chain) else Chain(**(default | dict(given or {})))
    if chain.steps:
        checks.refuse("chain", OWNER, "one that has not begun", f"one after {chain.steps} steps")
    if not keep_moments and chain.strategy.keeps_vestige:
        checks.refuse("keep_moments", OWNER, "True with the strategy 'vestige', which is made of moments", False)
    if not keep_moments:
        chain.strategy = replace(chain.strategy, moments=False)  # type: ignore[type-var]
    return chain


def _map_of(given: str | Mapping[str, Any] | FeatureMap) -> FeatureMap:
    """A feature map of our own, by its name, its configuration, or as a copy."""
    if isinstance(given, FeatureMap):
        return copy.deepcopy(given)
    options: dict[str, Any] = {"map": given} if isinstance(given, str) else dict(given)
    if "map" not in options:
        checks.refuse("features", OWNER, "a name, a feature map, or a configuration with 'map'", options)
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}  # JSON knows lists alone
    return features.build(options.pop("map"), **options)


def _alarms_of(given: Iterable[Alarm | DriftAlarm] | None, chain: Chain) -> Alarms:
    """Alarms on what the chain computes; where none are given, those that stand by default."""
    if given is None:
        known = DEFAULT[:1] if DEFAULT[0].divergence in chain.names else ()
        return None if chain.strategy.keeps_vestige else known
    alarms = []
    for alarm in given:
        if isinstance(alarm, Alarm):
            name = divergence(alarm.divergence).name
            alarm = replace(alarm, divergence=checks.one_of(name, chain.names, "alarms", OWNER))
        elif not chain.strategy.keeps_vestige:
            must = "without a DriftAlarm, which needs the strategy 'vestige'"
            checks.refuse("alarms", OWNER, must, f"one beside '{chain.strategy.name}'")
        alarms.append(alarm)
    return tuple(alarms)


def _whom(told: Iterable[FiredAlarm | Refusal]) -> str:
    return ", ".join(dict.fromkeys(repr(one.task) for one in told))


def _now() -> str:
    """The hour, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _told(arrays: pd.DataFrame) -> list[tuple[str, tuple[str, str]]]:
    """Of each array of a vestige what it is and what it gives away."""
    return [(str(row["name"]), (str(row["what"]), str(row["gives away"]))) for _, row in arrays.iterrows()]


OF_SAMPLES = "what the generator learnt by heart"
OF_RATIO = "at few rows whether one you have was in"


def _what(name: str, shape: tuple[int, ...], keep_moments: bool) -> tuple[str, str]:
    """What an array of a chain is an account of, and what it gives away."""
    last = name.rpartition(".")[2]
    if shape == ():
        return "a single figure of the fit", NOTHING
    if name.startswith("log_ratio_q.") or last in ("log_ratio", "weights", "anchor_weights"):
        return "a number for each generated sample", OF_RATIO
    if last in ("samples", "anchor", "centres"):
        return "generated samples, and centres of them", OF_SAMPLES
    if last in ("shift", "scale"):
        whose = "real and generated samples together" if keep_moments else "generated samples"
        return f"mean and deviation of {whose}", gives_away("sketch.moments") if keep_moments else OF_SAMPLES
    if ".mixtures." in name:
        told = "means, variances and shares of groups of at least 50 samples, of real ones when a task is learnt"
        return told, OF_RATIO
    return "what was fitted: weights of the ratio", OF_RATIO
