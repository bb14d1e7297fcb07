"""Beyond the papers: does a vestige, which holds no data, rank image generators as FID does, which holds it?

CDRE section 4.2 leaves it to the eye. Here it is Kendall's tau *within a class*, over all generators and steps of a
seed: what is far for one class is near for another, so that cells of several classes have no order in common. The
ceiling is the oracle's: the same smoothed JS by who keeps the rows. Over generators it is tau of their ends; forgetting
stands beside it by both views. The Records are those of CDRE Fig. 3 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import ClassVar, NamedTuple

import torch

from vestige.continual.generation import agreement, forgetting, rank_correlation
from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, NotJudged, Rule, line
from vestige_papers.cdre.generators import (
    KEPT,
    ORACLE,
    PAPER_SIZE,
    ROWS,
    SMOKE,
    CDREGeneratorConfig,
    GeneratorRuns,
    by_row,
    last,
    refused,
    there,
    word,
)

ALIKE, RANKED = 0.3, 0.5  # Kendall's tau that counts as agreement, over cells and over generators
TAU_LOSS, AS_ORACLE, REFUSED = 0.05, 0.9, 0.05


class DataSetTaus(NamedTuple):
    """Of one data set, means over seeds; those within a class are means over classes, too."""

    kept: float  # of FID and the vestige's JS, within a class
    oracle: float  # of FID and the oracle's
    both: float  # of the two JS
    order: float  # of FID and the vestige's JS, over generators
    refused: float  # share of the vestige's cells
    chain: float  # of FID and the chain's JS over steps and classes, the median over generators
    chain_order: float  # the same over generators


Taus = Mapping[str, DataSetTaus]


def _each(check: Callable[[DataSetTaus], tuple[bool, str]]) -> Callable[[Taus], list[Finding]]:
    """A check of every data set."""
    return lambda taus: [Finding(*check(own), name) for name, own in taus.items()]


class BeyondMatrixImages(GeneratorRuns):
    """Beyond the papers: does a vestige rank image generators as held-out data does?"""

    name, item = "beyond-matrix-images", "Agreement of the two views on images"
    grounds = (
        "Within a class the vestige orders cells less like the oracle than was asked, and yet both agree with FID "
        "equally: what they disagree on FID does not decide."
    )
    rule = Rule(
        Claim(
            "within a class, over generators and steps, Kendall's tau between FID and the vestige's smoothed JS is at "
            f"most {TAU_LOSS:g} below that of the oracle, which keeps the rows",
            _each(lambda x: (x.kept >= x.oracle - TAU_LOSS, f"{x.kept:.2f}, oracle {x.oracle:.2f}")),
        ),
        Claim(
            f"within a class, tau between the vestige's and the oracle's is at least {AS_ORACLE:g}",
            _each(lambda x: (x.both >= AS_ORACLE, f"{x.both:.2f}")),
        ),
        Claim(
            f"over generators, tau between FID and the vestige's, means after the last class, is at least {RANKED:g}",
            _each(lambda x: (x.order >= RANKED, f"{x.order:.2f}")),
        ),
        Claim(
            f"the vestige refuses at most {REFUSED:.0%} of the cells",
            _each(lambda x: (x.refused <= REFUSED, f"{x.refused:.1%}")),
        ),
        note="Cases are data sets.",
        earlier=Rule(
            Claim(
                f"Kendall's tau between FID and Jensen-Shannon divergence over steps and classes is at least {ALIKE:g} "
                "in the median over generators",
                _each(lambda x: (x.chain >= ALIKE, f"{x.chain:.2f}")),
            ),
            Claim(
                f"the same over generators, of their means after the last class, is at least {RANKED:g}",
                _each(lambda x: (x.chain_order >= RANKED, f"{x.chain_order:.2f}")),
            ),
        ),
        because="that js was the paper's chain's, which cannot see that samples lie apart from the data, and cells of "
        "different classes have no order in common",
    )
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = {
        "smoke": replace(SMOKE, tasks=3),
        "laptop": CDREGeneratorConfig(data="", tasks=6),
        "paper": replace(PAPER_SIZE, data=""),
    }
    sets: ClassVar[tuple[str, ...]] = ("fashion_mnist", "mnist")

    def arms(self, config: CDREGeneratorConfig) -> Sequence[CDREGeneratorConfig]:
        """Both data sets where none is named."""
        named = [config] if config.data else [replace(config, data=name) for name in self.sets]
        return [arm for own in named for arm in super(BeyondMatrixImages, self).arms(own)]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Tau within classes and over generators, seed by seed; by the paper's chain, and forgetting, beside it."""
        out = []
        for name in dict.fromkeys(r.config["data"] for r in records):
            for a, b in (("fid", KEPT), ("fid", ORACLE), (KEPT, ORACLE), ("fid", "js")):
                taus = [within_classes(runs, a, b) for runs in by_seed(records, name)]
                out += [line(name, f"tau of {word(a)} and {word(b)}, within a class", taus)]
            for view in ("fid", "labels"):
                for js in (KEPT, ORACLE, "js"):
                    taus = over_generators(records, name, view, js)
                    out += [line(name, f"tau of {word(view)} and {word(js)}, generators", taus)]
            for row, runs in by_row(records, name).items():
                own = f"{name}, {row}"
                for a, b in (("fid", KEPT), ("fid", "js")):
                    values = [agreement(r, a, b) for r in runs]
                    out += [line(own, f"tau of {word(a)} and {word(b)}, steps and classes", values)]
                for view in ("fid", KEPT, "js"):
                    out += [line(own, f"F, {word(view)}", [forgetting(r, view) for r in runs])]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, DataSetTaus]:
        """By data set."""
        if not there(records, [KEPT]):
            raise NotJudged("Some runs are from before vestiges were asked.")
        taus = {}
        for name in dict.fromkeys(r.config["data"] for r in records):
            found = by_row(records, name)
            if set(found) != set(ROWS):
                raise NotJudged(f"On {name} only {', '.join(found)} has been run.")
            seeds = by_seed(records, name)
            kept, oracle, both = (
                _mean([within_classes(runs, a, b) for runs in seeds])
                for a, b in (("fid", KEPT), ("fid", ORACLE), (KEPT, ORACLE))
            )
            cells = [_mean([agreement(r, "fid", "js") for r in runs]) for runs in found.values()]
            taus[name] = DataSetTaus(
                kept,
                oracle,
                both,
                _mean(over_generators(records, name, "fid", KEPT)),
                _mean([refused(r, f"verdicts.{KEPT}") for runs in found.values() for r in runs]),
                median([tau for tau in cells if not math.isnan(tau)] or [math.nan]),
                _mean(over_generators(records, name, "fid", "js")),
            )
        return taus


def _mean(taus: Sequence[float]) -> float:
    """Of those seeds that have one."""
    known = [tau for tau in taus if not math.isnan(tau)]
    return fmean(known) if known else math.nan


def by_seed(records: Sequence[Record], name: str) -> list[list[Record]]:
    """The runs of each seed on one data set."""
    mine = [r for runs in by_row(records, name).values() for r in runs]
    return [[r for r in mine if r.seed == seed] for seed in sorted({r.seed for r in mine})]


def within_classes(runs: Sequence[Record], one: str, other: str) -> float:
    """The mean over classes of Kendall's tau over the cells of a class: every run, every step that was measured."""
    taus = []
    for j in range(len(runs[0].task_names)):
        sides = [torch.cat([r.matrices[which][:, j] for r in runs]) for which in (one, other)]
        taus.append(rank_correlation(*sides))
    return _mean(taus)


def over_generators(records: Sequence[Record], name: str, view: str, js: str) -> list[float]:
    """For each seed, Kendall's tau over generators between `view` and `js`, means over classes after the last."""
    out = []
    for runs in by_seed(records, name):
        ends = [torch.tensor([last(r, which) for r in runs], dtype=torch.float64) for which in (view, js)]
        out.append((-1 if view == "labels" else 1) * rank_correlation(*ends))
    return out
