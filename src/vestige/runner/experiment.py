"""What every experiment says about itself: the contract of this package.

An experiment is one table or figure of a paper. It is cut into units, (configuration, seed) -> Record, that know
nothing of each other, so that they can run in any order and on any machine; `lines` then sets what was measured beside
what was published, and `rule` holds the claims that are checked (see `claims`): it stands in the file before the run. A
configuration is a frozen dataclass of plain values, whole: what ran is what is stored.

`by_rule` applies the rule to whatever it is given; `verdict` is what is said of it. A run of the preset `smoke` has no
verdict, for it only shows that the code works; where all or most runs have one seed it is preliminary; and every
verdict names what was cut: seeds and runs of a seed are counted, the rest is the experiment's own `cut`. Records whose
configuration is no more the preset's are shown, and the verdict says which run they wait for. Where there are three
seeds the rule is applied without each of them in turn, and the verdict says which of them decide.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from scipy import special

from vestige.continual import versions
from vestige.continual.record import Record, run_id
from vestige.runner.claims import TOO_SMALL, NotJudged, Rule, Verdict, with_cuts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

C = TypeVar("C")
K = TypeVar("K")
# Called by a run with the share that is done, in [0, 1], and a few words on where it stands.
OnProgress = Callable[[float, str], None]
PRESETS = ("smoke", "laptop", "paper")
# Fields of a configuration that name a unit by their value alone.
NAMING = ("row", "method", "learner.method")
EARLIER = "earlier settings of the preset"  # what is told of a run in place of today's cuts
LEAST_LEFT_OUT = 3  # seeds, for one of them to be left out: of two the one that is left has no spread
LEVEL = 0.95
BEYOND = f"by more than the {LEVEL:.0%} Student interval of the paired difference over seeds"  # what `above` says


@dataclass(frozen=True)
class Line:
    """One number: mean and standard error over `n` seeds, beside the published one and the truth where there are such.

    `se` is None with one seed. `paper` carries the number as printed, in the same unit as `ours`.
    """

    label: str
    quantity: str
    ours: float
    se: float | None
    n: int
    paper: float | None = None
    truth: float | None = None


@dataclass(frozen=True)
class Gap:
    """A mean difference of two rows over `n` seeds and its standard error.

    Rows of one seed share data and first weights, so that most of the noise cancels.
    """

    mean: float
    se: float
    n: int

    @property
    def reach(self) -> float:
        """Half of the interval: with few seeds far more than two standard errors (4.3 for three of them)."""
        return float(special.stdtrit(self.n - 1, (1 + LEVEL) / 2)) * self.se

    @property
    def above(self) -> bool:
        """The whole interval lies above zero."""
        return self.mean > self.reach

    @property
    def below(self) -> bool:
        """The whole interval lies below zero."""
        return -self.mean > self.reach

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.se:.1f})"


class Experiment(ABC, Generic[C]):
    """One table or figure; its docstring's first line says what it is."""

    name: ClassVar[str]
    item: ClassVar[str]  # "CDRE Fig. 2a"
    # The claims that are checked, and when it counts as reproduced, partly, or not.
    rule: ClassVar[Rule] = Rule(note="It has no rule.")
    # What a miss rests on: the check that shows that a claim does not hold, or what is open. It is said of the Records
    # that are kept, on the pages about them.
    grounds: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Any]]  # smoke, laptop, paper -> C
    seeds: ClassVar[Mapping[str, int]]
    # What a preset has in place of the published setting: phrases that can follow "with", the gravest first, apart by
    # semicolons. Seeds are counted, and not named.
    cut: ClassVar[Mapping[str, str]] = {}
    version: ClassVar[int] = 1  # raised when its results change, in the class that has `run`: a part of the ids
    uses: ClassVar[tuple[type, ...]] = ()  # classes whose versions count, whatever is configured
    later: ClassVar[
        tuple[str, ...]
    ] = ()  # fields that came after Records were stored: ids without them are as they were
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # that units can compute on, best first

    @property
    def what(self) -> str:
        """What it is, in a line."""
        return (type(self).__doc__ or "").partition("\n")[0]

    def arms(self, config: C) -> Sequence[C]:
        """The units that one seed of `config` falls into, such as a method each; by default itself."""
        return [config]

    def cost(self, config: C) -> float | None:
        """Seconds of one core that a unit takes, about, which are announced before a run; None: nobody has measured."""
        return None

    def require(self, config: C) -> None:
        """Refuse a unit that cannot run on this machine, such as one whose package is absent, before any has begun."""

    @abstractmethod
    def run(self, config: C, seed: int, on_progress: OnProgress) -> Record:
        """One unit. Make the Record with `self.record`, or from the protocol's with `self.adopt`."""

    @abstractmethod
    def lines(self, records: Sequence[Record]) -> list[Line]:
        """What was measured, beside what was published."""

    def facts(self, records: Sequence[Record]) -> Any:  # noqa: ANN401 - what the claims of its rule are checked on
        """What the claims of `rule` read; raises `NotJudged` where Records are missing. By default the Records."""
        return records

    def remarks(self, facts: Any) -> str:  # noqa: ANN401
        """What else a reader should know beside the verdict; nothing by default."""
        return ""

    def by_rule(self, records: Sequence[Record]) -> Verdict:
        """`rule`, applied to `records`, however few and small."""
        try:
            facts = self.facts(records)
        except NotJudged as reason:
            return Verdict("not judged", str(reason))
        found = self.rule.judge(facts)
        return dataclasses.replace(found, why=f"{found.why} {self.remarks(facts)}".strip())

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """What is said of `records`: of a smoke run nothing; "preliminary" where half of them have no other seed.

        Else it is what the rule says.
        """
        if self.preset_of(records) == PRESETS[0]:
            return Verdict("no verdict", "The run shows that the code works; --preset laptop is judged.", TOO_SMALL)
        found, cut = self.by_rule(records), with_cuts(self.cuts(records))
        waits = "; ".join(self.waits(records).values())
        without = self.without_one_seed(records) if found.claims else {}
        told = filter(None, (hanging(found, without), found.why, f"Waits for a new run of {waits}." * bool(waits)))
        why = " ".join(told)
        hangs_on = tuple(seed for seed, other in without.items() if other.word != found.word) if without else None
        runs = grouped(records, lambda record: json.dumps(record.config, sort_keys=True)).values()
        if 2 * sum(len(each) == 1 for each in runs) < len(records):
            return dataclasses.replace(found, why=why, cut=cut, hangs_on=hangs_on)
        return Verdict("preliminary", why, ", ".join(filter(None, (f"{found.word} so far", found.claims))), cut)

    def without_one_seed(self, records: Sequence[Record]) -> dict[int, Verdict]:
        """seed -> what the rule says of the runs of all others; nothing where there are fewer than three seeds."""
        seeds = sorted({record.seed for record in records})
        if len(seeds) < LEAST_LEFT_OUT:
            return {}
        return {seed: self.by_rule([record for record in records if record.seed != seed]) for seed in seeds}

    def preset_of(self, records: Sequence[Record]) -> str:
        """The smallest preset that any of `records` was run with: as its command says, else as its configuration is."""
        found = {_commanded(record) or self._configured(record) for record in records}
        return next((preset for preset in PRESETS if preset in found), "")

    def cuts(self, records: Sequence[Record]) -> list[str]:
        """What `records` lack of the published setting, in phrases that can follow "with"."""
        preset = self.preset_of(records)
        asked = self._asked(preset)
        run = [record.config for record in records]
        ran = [config for config in asked if config in run]
        counts = [len({r.seed for r in records if r.config == config}) for config in ran or run]
        low, high, whole = min(counts, default=0), max(counts, default=0), self.seeds["paper"]
        cuts = []
        if low < whole:
            cuts.append(f"{low} of {whole} seeds" if low == high else f"{low} to {high} of {whole} seeds")
        elif high == 1:
            cuts.append("one seed")
        lacking = [config for config, earlier in outdated(asked, run) if earlier is None]
        if ran and lacking:
            cuts.append(f"{len(asked) - len(lacking)} of {len(asked)} runs of a seed")
        return [*cuts, *([EARLIER] if self.earlier(records) else filter(None, self.cut.get(preset, "").split("; ")))]

    def earlier(self, records: Sequence[Record]) -> bool:
        """Whether a preset made all of them, with nothing set beside it, that asks for none of them any more."""
        asked = self._asked(self.preset_of(records))
        return bool(asked) and all(by_preset(record) and record.config not in asked for record in records)

    def waits(self, records: Sequence[Record]) -> dict[str, str]:
        """The runs that the preset has changed since these were made, by name, with what differs."""
        if self.earlier(records):
            return {"all runs": "all runs: the preset has other settings now"}
        asked, run = self._asked(self.preset_of(records)), [record.config for record in records]
        if not any(config in run for config in asked):  # settings of somebody's own
            return {}
        return {
            naming(now): f"{naming(now)} (this had {_differing(before, now)}; the preset has {_differing(now, before)})"
            for now, before in outdated(asked, run)
            if before is not None
        }

    def _asked(self, preset: str) -> list[dict[str, Any]]:
        """The configurations of a preset."""
        return [self.config(arm) for arm in self.arms(self.presets[preset])] if preset in self.presets else []

    def _configured(self, record: Record) -> str:
        """The largest preset that has this configuration."""
        return next((preset for preset in reversed(PRESETS) if record.config in self._asked(preset)), "")

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Pictures by name; none by default."""
        return {}

    def config(self, config: C) -> dict[str, Any]:
        """What determines a unit, as plain JSON; of the `later` fields those that are not at their default."""
        usual = {field.name: field.default for field in dataclasses.fields(config) if field.name in self.later}  # type: ignore[arg-type]
        said = {name: v for name, v in dataclasses.asdict(config).items() if name not in usual or v != usual[name]}  # type: ignore[call-overload]
        return {"experiment": self.name, **json.loads(json.dumps(said))}

    def unit_id(self, config: C, seed: int) -> str:
        """The id that the Record of this unit will have, known before it runs."""
        return run_id(self.config(config), seed, self.versions(config))

    def versions(self, config: C) -> dict[str, int]:
        """The versions that decide a unit's results: its own, of what it `uses`, and of what its configuration names.

        That is every method, generator, ratio, chain strategy and feature map whose registered name stands in it; a
        child that names them by other words adds them (`continual.versions.named`).
        """
        used = {kind.__name__: int(getattr(kind, "version", 1)) for kind in self.uses}
        return {"experiment": self.version} | used | versions.named(self.config(config))

    def record(self, config: C, seed: int, **fields: Any) -> Record:  # noqa: ANN401 - fields of Record
        """A Record of this unit."""
        return Record(self.config(config), seed, version=self.versions(config), **fields)

    def adopt(self, found: Record, config: C, **fields: Any) -> Record:  # noqa: ANN401
        """The protocol's Record as one of this unit; what it says of stream and learner moves to the details."""
        details = fields.pop("details", {}) | {"run": found.config}
        own, version = self.config(config), self.versions(config)
        return dataclasses.replace(found, config=own, version=version, details=details, **fields)


def outdated(
    asked: Sequence[dict[str, Any]], run: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each configuration that is asked for and was not run, with that which was run in its place, None if nothing was.

    In its place was run what is not asked for and has the same words in every field that holds words: other numbers of
    the same thing, the nearest if there are several.
    """
    others = [config for config in run if config not in asked]
    pairs: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for config in asked:
        if config in run:
            continue
        words = {field: value for field, value in config.items() if isinstance(value, str)}
        same = [other for other in others if {f: v for f, v in other.items() if isinstance(v, str)} == words]
        pairs.append((config, min(same, key=lambda other: len(_changed(other, config)), default=None)))
    return pairs


def hanging(found: Verdict, without: Mapping[int, Verdict]) -> str:
    """What becomes of a verdict when one seed is left out, `without` each of them in turn; of none nothing."""
    if not without:
        return ""
    every = f"Without any one of the {len(without)} seeds"
    others = {seed: other for seed, other in without.items() if other.word != found.word}
    if others:
        said: dict[str, list[int]] = {}
        for seed, other in others.items():
            said.setdefault(", ".join(filter(None, (other.word, other.claims))), []).append(seed)
        told = [f"without seed {_either(left)} it is {words}" for words, left in said.items()]
        return f"It hangs on single seeds: {'; '.join(told)}."
    moved = [seed for seed, other in without.items() if not found.same_claims(other)]
    if moved:
        return f"{every} the verdict stays; other claims or cases hold without seed {_either(moved)}."
    return f"{every} the same claims hold."


def _either(seeds: Iterable[int]) -> str:
    *first, last = map(str, seeds)
    return f"{', '.join(first)} or {last}" if first else last


def naming(config: Mapping[str, Any]) -> str:
    """What a configuration is called: its row or method, or its experiment."""
    return str(next((config[field] for field in NAMING if config.get(field)), config.get("experiment", "a run")))


def _changed(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in other or other[name] != value}


def _differing(config: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The fields of `config` that `other` has otherwise."""
    return ", ".join(f"{n}={'none' if v is None else v}" for n, v in _changed(config, other).items()) or "no more"


def _commanded(record: Record) -> str:
    """The preset in a Record's command."""
    found = re.search(r"--preset (\S+)", str(record.details.get("command", "")))
    return found[1] if found else ""


def by_preset(record: Record) -> str:
    """The preset that made a Record with nothing set beside it, or nothing."""
    return "" if re.search(r"--(?:set|grid) ", str(record.details.get("command", ""))) else _commanded(record)


def line(
    label: str,
    quantity: str,
    values: Iterable[float],
    *,
    paper: float | None = None,
    truth: float | None = None,
    scale: float = 1.0,
) -> Line:
    """Mean and standard error of `values`, one a seed, times `scale`; those that are NaN do not count."""
    known = [scale * v for v in values if not math.isnan(v)]
    mean = statistics.fmean(known) if known else math.nan
    se = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return Line(label, quantity, mean, se, len(known), paper, truth)


def gap(differences: Sequence[float]) -> Gap:
    """Of the differences of at least two seeds."""
    n = len(differences)
    return Gap(statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(n), n)


def grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    """Records by `key`, groups in the order in which they come, each by seed."""
    found: dict[K, list[Record]] = {}
    for one in records:
        found.setdefault(key(one), []).append(one)
    return {name: sorted(runs, key=lambda r: r.seed) for name, runs in found.items()}
