"""Beyond the papers: what is left of the truth when rows are deleted and a vestige stands for them?

Three parts, each against an oracle that keeps what the vestige does not have.

**Images.** MNIST and Fashion-MNIST, class by class (`image_cells`): `keep` sees the images of a class through a
classifier that was taught on others, at most 16 principal components of it; `compare` then meets real, corrupted and
generated images. The number is the smoothed JS (noise of one standard deviation on both sides). Oracles are the same
estimator, frame and noise with the rows kept: those that were kept, as many fresh ones, and four times as many (the
kept ones among them). JS without smoothing is saturated for most generators, and is counted, not judged.

**Tables.** Power at 5 % of the vestige's drift test against a boosting classifier that keeps the rows
(`drifting_tables`), and its level on rows that did not drift. Tables come as files do: of the mixed one text, dates,
booleans and nulls go through the schema. References are drawn anew each time.

**Chains.** CDRE's drifting Gaussian, two modes that melt, and rotated skewed data: the chain over a vestige against
the anchored chain, halfway and at the last step.

A unit is a class, a table or a chain; images have one unit for what is carried and one for the oracles.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige.chains import Chain, Drift, gaussians
from vestige.continual import versions
from vestige.continual.record import Record
from vestige.core import VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike
from vestige.features import ClassifierFeatures
from vestige.metrics import fid
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, half, line
from vestige.vestiges import Vestige, compare, keep
from vestige.vestiges.drift_test import DriftTest
from vestige.vestiges.schema import Schema
from vestige_papers.beyond import drifting_tables
from vestige_papers.beyond.drifting_tables import DRIFTS, TABLES
from vestige_papers.beyond.image_cells import GENERATORS, PATHS, cells_of
from vestige_papers.beyond.oracles import components, smoothed_js
from vestige_papers.beyond.vestige_facts import (
    CARRIED,
    CHAIN,
    JUDGED,
    ORACLE,
    TABLE,
    VestigeFacts,
)
from vestige_papers.cdre.drifts import melting, skewed
from vestige_papers.cdre.generators import classifier_of

CHAIN_ROWS = 5000
BEDS: dict[str, Callable[..., Drift]] = {"fig2a": partial(gaussians, 2), "melting": melting, "skewed": skewed}
ANCHORED, VESTIGE = "anchored", "vestige"
ENDS = ("value", "low", "high")
# The bounds of the claims.
REFUSED, OFF, TAU_LOSS, HOLDS, HOLDS_MORE, SEVERITY_TAU, POWER_LOSS = 0.05, 0.02, 0.05, 0.9, 0.85, 0.9, 0.05
CHAIN_OFF, CHAIN_HOLDS = 0.02, 0.05


@dataclass(frozen=True)
class BeyondVestigeConfig:
    """`part`, `place`, `data`, `table`, `bed` and `strategy` are set by the arms; each part has fields of its own."""

    part: str = ""
    place: int = 0  # which of several units of a kind
    # images
    data: str = ""
    sets: tuple[str, ...] = ("mnist", "fashion_mnist")
    classes: int = 1  # of each data set, for each seed
    n: int = 1000
    times: int = 4  # rows of the largest oracle for each that was kept
    taught: int = 6000  # rows of all classes that the classifier sees
    epochs: int = 2
    paths: tuple[str, ...] = tuple(PATHS)
    severities: int = 3  # of each path
    made: tuple[str, ...] = tuple(GENERATORS)
    steps: int | None = None  # of the generators
    estimator: str = "auto"
    # tables
    table: str = ""
    tables: tuple[str, ...] = tuple(TABLES)
    reference: int = 5000
    new: tuple[int, ...] = (500, 2000)
    references: int = 2  # of a unit
    batches: int = 3  # units of a table, for each seed
    nulls: int = 10  # tests of rows that did not drift, of each size and reference
    # chains
    bed: str = ""
    strategy: str = ""
    beds: tuple[str, ...] = tuple(BEDS)
    strategies: tuple[str, ...] = (ANCHORED, VESTIGE)
    n_steps: int = 10
    chain_n: int = CHAIN_ROWS
    chains: int = 1  # units of a drift and a strategy


IMAGE_FIELDS = ("place", "data", "n", "times", "taught", "epochs", "paths", "severities", "made", "steps")
FIELDS = {
    "": tuple(f.name for f in fields(BeyondVestigeConfig)),
    CARRIED: ("part", *IMAGE_FIELDS, "estimator"),
    ORACLE: ("part", *IMAGE_FIELDS, "estimator"),
    TABLE: ("part", "place", "table", "reference", "new", "references", "nulls"),
    CHAIN: ("part", "place", "bed", "strategy", "n_steps", "chain_n"),
}
# Seconds of one core that a cell of images, a reference of a table and a chain take, about, with the laptop's sizes.
SECONDS = {CARRIED: 9.5, ORACLE: 12.5, TABLE: 20.0, CHAIN: 30.0}


# ---- images


def class_of(config: BeyondVestigeConfig, seed: int) -> int:
    """The class at a unit's place: from 0 on for the first seed, from 5 on for the second."""
    return (5 * seed + config.place) % 10


def image_unit(config: BeyondVestigeConfig, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Every cell of a class, carried or by the oracles: `values` and `details` of a Record."""
    on_progress(0.0, "the classifier")
    classifier = classifier_of(config.data, config.taught, config.epochs)
    c = class_of(config, seed)
    paths = {
        path: PATHS[checks.one_of(path, PATHS, "paths", "beyond-vestige")][-config.severities :]
        for path in config.paths
    }
    sizes: dict[str, Any] = {name: getattr(config, name) for name in ("n", "times", "taught", "steps")}
    rows, makers = cells_of(config.data, c, paths=paths, made=config.made, **sizes, seed=seed)
    measure = Carried.of if config.part == CARRIED else Oracles.of
    judge = measure(config, classifier, rows.kept, rows.more, seed)
    found: dict[str, list[float]] = {}
    names, verdicts = [], []
    for i, make in enumerate(makers):
        cell = make()
        values, verdict = judge.measured(cell.images)
        for name, value in ({"severity": cell.severity, "rows": float(len(cell.images))} | values).items():
            found.setdefault(name, []).append(value)
        names.append(cell.path)
        verdicts.append(verdict)
        on_progress((i + 1) / len(makers), f"class {c}, {cell.path}")
    tensors = {name: torch.tensor(each, dtype=torch.float64) for name, each in found.items()}
    return {"values": tensors, "details": {"class": c, "paths": names, "verdicts": verdicts} | judge.told()}


@dataclass(frozen=True, eq=False)
class Carried:
    """What a vestige answers."""

    vestige: Vestige
    estimator: str
    seed: int

    @classmethod
    def of(
        cls,
        config: BeyondVestigeConfig,
        classifier: ClassifierFeatures,
        kept: Float[Tensor, "n h w"],
        more: Float[Tensor, "m h w"],
        seed: int,
    ) -> Carried:
        """The rows in `kept` are looked at here for the last time; `more` is for oracles."""
        return cls(keep(kept, features=classifier, seed=seed), config.estimator, seed)

    def measured(self, images: Float[Tensor, "n h w"]) -> tuple[dict[str, float], str]:
        """Numbers by name, and the word for the smoothed JS."""
        found = compare(self.vestige, images, estimator=self.estimator, seed=self.seed)
        js, raw = found.divergences["js_smoothed"], found.divergences["js"]
        values = {"js": js.value, "js_low": js.low, "js_high": js.high, "js_raw": raw.value}
        distance = found.metrics["fid"]
        return values | {"fid": distance.value, "fid_low": distance.low, "fid_high": distance.high}, js.verdict

    def told(self) -> dict[str, Any]:
        """The vestige's own error."""
        own = self.vestige.errors.estimates.get("js_smoothed")  # not there where too few rows were held out
        return {} if own is None else {"own_error": [own.value, own.low, own.high], "own_verdict": own.verdict}


@dataclass(frozen=True, eq=False)
class Oracles:
    """What those answer who keep rows: as many, as many others, and more."""

    classifier: ClassifierFeatures
    kept: Float64[Tensor, "n d"]
    more: Float64[Tensor, "m d"]
    estimator: str
    seed: int

    @classmethod
    def of(
        cls,
        config: BeyondVestigeConfig,
        classifier: ClassifierFeatures,
        kept: Float[Tensor, "n h w"],
        more: Float[Tensor, "m h w"],
        seed: int,
    ) -> Oracles:
        """Features of both."""
        own, other = (classifier.transform(x).double() for x in (kept, more))
        return cls(classifier, own, other, config.estimator, seed)

    def measured(self, images: Float[Tensor, "n h w"]) -> tuple[dict[str, float], str]:
        """Numbers by name, and the word for the smoothed JS."""
        new = self.classifier.transform(images).double()
        mean, directions = components(self.kept)
        kept, more, q = ((x - mean) @ directions.mT for x in (self.kept, self.more, new))
        scale = kept.std(0)
        own, second, most = (
            smoothed_js(p, q, scale, estimator=self.estimator, seed=self.seed)
            for p in (kept, more[: len(kept)], torch.cat([kept, more]))
        )
        values = {"js": own.value, "js_low": own.low, "js_high": own.high, "js_second": second.value}
        return values | {"js_more": most.value, "fid": fid(self.kept, new).value}, own.verdict

    def told(self) -> dict[str, Any]:
        """Nothing."""
        return {}


# ---- tables


def table_unit(config: BeyondVestigeConfig, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """p-values of the drift test and of the classifier: (reference, new rows, drift, size), and of no drift."""
    table = TABLES[checks.one_of(config.table, TABLES, "table", "beyond-vestige")]()
    shape = (config.references, len(config.new), len(DRIFTS), 2)
    ours, theirs = (torch.full(shape, math.nan, dtype=torch.float64) for _ in range(2))
    none = torch.full((config.references, len(config.new), config.nulls), math.nan, dtype=torch.float64)
    for r in range(config.references):
        draw = np.random.default_rng(rng.child_seed(seed, "table", config.table, config.place, r))
        drawn = table.rows(draw, config.reference + table.spare)
        p, rest = drawn[: config.reference], drawn[config.reference :]
        columns = drifting_tables.changeable(p, table.kinds, draw)
        first = drifting_tables.as_table(config.table, p)
        schema = Schema.of(first)
        test = DriftTest.of(schema.cells(first).cells, schema.kinds, seed=rng.child_seed(seed, "test", r))

        def tested(new: drifting_tables.Cells, schema: Schema = schema, test: DriftTest = test) -> float:
            return test.test(schema.cells(drifting_tables.as_table(config.table, new)).cells).p_value

        for i, m in enumerate(config.new):
            for k in range(config.nulls):
                none[r, i, k] = tested(rest[draw.permutation(len(rest))[:m]])
            for j, (change, sizes) in enumerate(DRIFTS.values()):
                for k, size in enumerate(sizes):
                    q = change(rest[draw.permutation(len(rest))], columns, draw, size)[:m]
                    ours[r, i, j, k] = tested(q)
                    theirs[r, i, j, k] = drifting_tables.boosting(p, q, table.kinds, r)
        on_progress((r + 1) / config.references, f"{config.table}, reference {r + 1}")
    return {"values": {"vestige": ours, "boosting": theirs, "no drift": none}, "details": {"drifts": list(DRIFTS)}}


# ---- chains


def chain_unit(config: BeyondVestigeConfig, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """A strategy along a drift: value, ends and truth (step, divergence), and the verdicts in that order."""
    bed = BEDS[checks.one_of(config.bed, BEDS, "bed", "beyond-vestige")](n_steps=config.n_steps)
    steps = sorted({1, max(bed.n_steps // 2, 1), bed.n_steps})
    values = {name: torch.full((len(steps), len(JUDGED)), math.nan).double() for name in (*ENDS, "truth")}
    own = rng.child_seed(seed, "chain", config.bed, config.place)
    chain, verdicts = Chain(config.strategy, names=JUDGED), []
    for i, t in enumerate(steps):
        real: dict[str | int, ArrayLike] = {1: bed.real(1, config.chain_n, own)} if i == 0 else {}
        chain.step(real=real, model={1: bed.model(t, 1, config.chain_n, own)}, seed=own)
        table = chain.divergences(JUDGED)
        rows = table[table["task"] == "average"].set_index("divergence").to_dict("index")
        for j, name in enumerate(JUDGED):
            for key in ENDS:
                values[key][i, j] = float(rows[name][key])
            values["truth"][i, j] = bed.true(name, t)
            verdicts.append(str(rows[name]["verdict"]))
        on_progress((i + 1) / len(steps), f"{config.bed}, {config.strategy}, step {t}")
    return {"values": values, "details": {"steps": steps, "verdicts": verdicts}}


def _by_data(check: Any) -> Any:  # noqa: ANN401
    """A claim that is checked on each data set of images."""
    return lambda facts: [check(facts, data) for data in facts.images]


def _power(facts: VestigeFacts) -> list[Finding]:
    out = []
    for table in facts.tables:
        for m in facts.new_rows(table):
            ours, theirs = (facts.power(table, who, m) for who in ("vestige", "boosting"))
            out.append(Finding(ours >= theirs - POWER_LOSS, f"{ours:.2f} against {theirs:.2f}", f"{table}, {m} rows"))
    return out


def _chains(facts: VestigeFacts, better: str) -> list[Finding]:
    if not {ANCHORED, VESTIGE} <= set(facts.chains):
        return []
    out = []
    for bed in facts.chains[VESTIGE].keys() & facts.chains[ANCHORED].keys():
        for name in JUDGED:
            measure = facts.chain_off if better == "off" else facts.chain_holds
            ours, theirs = (measure(strategy, bed, name) for strategy in (VESTIGE, ANCHORED))
            holds = ours <= theirs + CHAIN_OFF if better == "off" else ours >= theirs - CHAIN_HOLDS
            out.append(Finding(holds, f"{ours:.3f} against {theirs:.3f}", f"{bed}, {name}"))
    return sorted(out, key=lambda finding: finding.case)


class BeyondVestige(Experiment[BeyondVestigeConfig]):
    """What a vestige answers about deleted rows, beside oracles that keep them: images, tables, chains."""

    name = "beyond-vestige"
    item = "a vestige against data that is kept"
    rule = Rule(
        Claim(
            f"on images at most {REFUSED:.0%} of the carried cells are refused",
            _by_data(lambda facts, d: Finding((x := facts.refused(d)) <= REFUSED, f"{x:.1%}", d)),
        ),
        Claim(
            f"the mean distance of the carried smoothed JS from the oracle's is at most {OFF:g}",
            _by_data(lambda facts, d: Finding((x := facts.off(d)) <= OFF, f"{x:.4f}", d)),
        ),
        Claim(
            f"its Kendall's tau to the oracle is no lower than that of a second oracle on fresh rows less {TAU_LOSS:g}",
            _by_data(
                lambda facts, d: Finding(
                    (x := facts.tau(d, "carried", "js")) >= (y := facts.tau(d, "oracle", "js_second")) - TAU_LOSS,
                    f"{x:.3f} against {y:.3f}",
                    d,
                )
            ),
        ),
        Claim(
            f"its interval holds the oracle of the same rows in at least {HOLDS:.0%} of the cells",
            _by_data(lambda facts, d: Finding((x := facts.holds(d, "js")) >= HOLDS, f"{x:.1%}", d)),
        ),
        Claim(
            f"it holds the oracle of four times the rows in at least {HOLDS_MORE:.0%}",
            _by_data(lambda facts, d: Finding((x := facts.holds(d, "js_more")) >= HOLDS_MORE, f"{x:.1%}", d)),
        ),
        Claim(
            f"its tau to FID within a class is no lower than the oracle's less {TAU_LOSS:g}",
            _by_data(
                lambda facts, d: Finding(
                    (x := facts.fid_tau(d, "carried")) >= (y := facts.fid_tau(d, "oracle")) - TAU_LOSS,
                    f"{x:.3f} against {y:.3f}",
                    d,
                )
            ),
        ),
        Claim(
            f"its tau to the severity along a path of corruption is at least {SEVERITY_TAU:g} in the mean",
            _by_data(lambda facts, d: Finding((x := facts.severity_tau(d)) >= SEVERITY_TAU, f"{x:.3f}", d)),
        ),
        Claim(
            f"on tables the power of the drift test, mean over drifts, is within {100 * POWER_LOSS:.0f} points of a "
            "boosting classifier that keeps the rows",
            _power,
        ),
        Claim(
            f"along the chains' drifts the mean of |value / truth - 1| is at most that of the anchored chain plus "
            f"{CHAIN_OFF:g}",
            lambda facts: _chains(facts, "off"),
        ),
        Claim(
            f"its intervals hold the truth as often, less {CHAIN_HOLDS:g}",
            lambda facts: _chains(facts, "holds"),
        ),
        partly=half(),
        note="Cases are data sets, tables with so many new rows, and drifts with a divergence.",
    )
    presets: ClassVar[Mapping[str, BeyondVestigeConfig]] = {
        "smoke": BeyondVestigeConfig(
            sets=("digits",), classes=1, n=50, times=2, taught=200, epochs=1, paths=("noise",), severities=2,
            made=("vae",), steps=5, estimator="logistic", tables=("mixed",), reference=400, new=(100,), references=1,
            batches=1, nulls=2, beds=("fig2a",), n_steps=2, chain_n=200,
        ),
        "laptop": BeyondVestigeConfig(chains=3),
        "paper": BeyondVestigeConfig(classes=6, batches=8, chain_n=10_000, chains=3),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 2}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "a class of 8 x 8 digits; a quick ratio; one small table; two steps of one chain",
        "laptop": "one of six classes of each data set a seed; 6 of 16 references of a table a seed; chains of 5000 "
        "samples, not 10000",
    }

    def arms(self, config: BeyondVestigeConfig) -> Sequence[BeyondVestigeConfig]:
        """A chain, a table, or a class of images each."""
        if config.part:
            return [config]
        chains = [
            replace(config, part=CHAIN, bed=bed, strategy=strategy, place=place)
            for bed in config.beds
            for strategy in config.strategies
            for place in range(config.chains)
        ]
        tables = [
            replace(config, part=TABLE, table=table, place=place)
            for table in config.tables
            for place in range(config.batches)
        ]
        images = [
            replace(config, part=part, data=data, place=place)
            for data in config.sets
            for place in range(config.classes)
            for part in (CARRIED, ORACLE)
        ]
        return [*images, *tables, *chains]

    def config(self, config: BeyondVestigeConfig) -> dict[str, Any]:
        """What determines a unit: the fields of its part; those of others are as they come."""
        own = {name: getattr(config, name) for name in FIELDS[config.part]}
        return super().config(replace(BeyondVestigeConfig(), **own))

    def versions(self, config: BeyondVestigeConfig) -> dict[str, int]:
        """Of what the fields of its part name, and of the classifier, vestige and drift test where it uses them."""
        used: dict[str, tuple[type, ...]] = {
            CARRIED: (ClassifierFeatures, Vestige),
            ORACLE: (ClassifierFeatures,),
            TABLE: (DriftTest,),
        }
        own = {kind.__name__: int(getattr(kind, "version", 1)) for kind in used.get(config.part, ())}
        fields_of_part = {name: getattr(config, name) for name in FIELDS[config.part]}
        return {"experiment": self.version} | versions.named(fields_of_part) | own

    def cost(self, config: BeyondVestigeConfig) -> float:
        """Seconds of one core, about."""
        cells = 1 + len(config.paths) * config.severities + len(config.made)
        each = {CARRIED: cells, ORACLE: cells, TABLE: config.references, CHAIN: config.chain_n / CHAIN_ROWS}
        return SECONDS[config.part] * each[config.part]

    def run(self, config: BeyondVestigeConfig, seed: int, on_progress: OnProgress) -> Record:
        """One unit."""
        parts = {CARRIED: image_unit, ORACLE: image_unit, TABLE: table_unit, CHAIN: chain_unit}
        part = parts[checks.one_of(config.part, parts, "part", self.name)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VestigeWarning)
            return self.record(config, seed, **part(config, seed, on_progress))

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Every number that the claims read, and the oracle's beside it."""
        facts, out = VestigeFacts(records), []
        for data in facts.images:
            numbers = {
                "refused (%)": 100 * facts.refused(data),
                "mean distance of smoothed JS from the oracle": facts.off(data),
                "that of a second oracle": facts.off(data, "js_second", "oracle"),
                "that of an oracle of more rows": facts.off(data, "js_more", "oracle"),
                "tau to the oracle": facts.tau(data, "carried", "js"),
                "tau of a second oracle": facts.tau(data, "oracle", "js_second"),
                "interval holds the oracle (%)": 100 * facts.holds(data, "js"),
                "interval holds the second oracle (%)": 100 * facts.holds(data, "js_second"),
                "interval holds the oracle of more rows (%)": 100 * facts.holds(data, "js_more"),
                "width of the interval": facts.width(data, "carried"),
                "width of the oracle's interval": facts.width(data, "oracle"),
                "called ok (%)": 100 * facts.sure(data),
                "tau to FID within a class": facts.fid_tau(data, "carried"),
                "tau to FID, oracle": facts.fid_tau(data, "oracle"),
                "tau to severity": facts.severity_tau(data),
                "JS without smoothing is saturated (%)": 100 * facts.saturated(data),
                "median relative difference of FID": facts.fid_gap(data),
                "interval of FID holds that with rows (%)": 100 * facts.fid_holds(data),
            }
            numbers |= {f"tau to severity, {path}": facts.severity_tau(data, path) for path in PATHS}
            out += [line(data, quantity, [value]) for quantity, value in numbers.items() if not math.isnan(value)]
        for table in facts.tables:
            for m in facts.new_rows(table):
                for drift in (None, *DRIFTS):
                    ours, theirs = (facts.power(table, who, m, drift) for who in ("vestige", "boosting"))
                    told = f"power, {drift or 'mean'}, {m} new rows"
                    out += [line(table, told, [ours]), line(table, f"{told}, boosting", [theirs])]
            out += [line(table, "level at 5 %", [facts.level(table)])]
        for strategy, beds in facts.chains.items():
            for bed in beds:
                for name in JUDGED:
                    label = f"{bed}, {strategy}"
                    out += [line(label, f"{name}: mean |value / truth - 1|", [facts.chain_off(strategy, bed, name)])]
                    held = 100 * facts.chain_holds(strategy, bed, name)
                    out += [line(label, f"{name}: interval holds the truth (%)", [held])]
        return out

    def facts(self, records: Sequence[Record]) -> VestigeFacts:
        """Cells by class, tables and chains."""
        found = VestigeFacts(records)
        if not (found.images or found.tables or found.chains):
            raise NotJudged("Nothing whole has been run.")
        return found
