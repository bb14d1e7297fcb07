"""Beyond the papers: do FID and KID, which hold data, and a chain's divergences, which hold none, agree on images?

CDRE section 4.2 leaves it to the eye. Here it is Kendall's tau, for each generator over steps and classes, and over
generators by their ends; forgetting stands beside it by both views. The Records are those of CDRE Fig. 3 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import ClassVar

import torch

from vestige.continual.generation import agreement, forgetting, rank_correlation
from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, NotJudged, Rule, line
from vestige_papers.cdre.generators import (
    PAPER_SIZE,
    ROWS,
    SMOKE,
    CDREGeneratorConfig,
    GeneratorRuns,
    by_row,
    last,
    word,
)

ALIKE, RANKED = 0.3, 0.5  # Kendall's tau that counts as agreement, over cells and over generators


class BeyondMatrixImages(GeneratorRuns):
    """Beyond the papers: does a chain without data rank image generators as held-out data does?"""

    name, item = "beyond-matrix-images", "Agreement of the two views on images"
    rule = Rule(
        Claim(
            f"Kendall's tau between FID and Jensen-Shannon divergence over steps and classes is at least {ALIKE:g} in "
            "the median over generators",
            lambda taus: [Finding(cells >= ALIKE, f"{cells:.2f}", name) for name, (cells, _) in taus.items()],
        ),
        Claim(
            f"the same over generators, of their means after the last class, is at least {RANKED:g}",
            lambda taus: [Finding(order >= RANKED, f"{order:.2f}", name) for name, (_, order) in taus.items()],
        ),
        note="Cases are data sets.",
    )
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = {
        "smoke": replace(SMOKE, tasks=3),
        "laptop": CDREGeneratorConfig(data=""),
        "paper": replace(PAPER_SIZE, data=""),
    }
    sets: ClassVar[tuple[str, ...]] = ("fashion_mnist", "mnist")

    def arms(self, config: CDREGeneratorConfig) -> Sequence[CDREGeneratorConfig]:
        """Both data sets where none is named."""
        named = [config] if config.data else [replace(config, data=name) for name in self.sets]
        return [arm for own in named for arm in super(BeyondMatrixImages, self).arms(own)]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Tau of every generator over steps and classes, and of all generators over their ends, seed by seed."""
        out = []
        for name in dict.fromkeys(r.config["data"] for r in records):
            for row, runs in by_row(records, name).items():
                for a, b in (("fid", "js"), ("fid", "kl"), ("kid", "js"), ("labels", "js")):
                    values = [agreement(r, a, b) for r in runs]
                    out += [line(f"{name}, {row}", f"tau of {word(a)} and {word(b)}, steps and classes", values)]
                for view in ("fid", "js"):
                    out += [line(f"{name}, {row}", f"F, {word(view)}", [forgetting(r, view) for r in runs])]
            for a in ("fid", "labels"):
                out += [line(name, f"tau of {word(a)} and js, generators", over_generators(records, name, a))]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, tuple[float, float]]:
        """By data set: tau over cells, the median over generators; and tau over generators."""
        taus = {}
        for name in dict.fromkeys(r.config["data"] for r in records):
            found = by_row(records, name)
            if set(found) != set(ROWS):
                raise NotJudged(f"On {name} only {', '.join(found)} has been run.")
            cells = [_mean([agreement(r, "fid", "js") for r in runs]) for runs in found.values()]
            middle = median([tau for tau in cells if not math.isnan(tau)] or [math.nan])
            taus[name] = middle, _mean(over_generators(records, name, "fid"))
        return taus


def _mean(taus: Sequence[float]) -> float:
    """Of those seeds that have one."""
    known = [tau for tau in taus if not math.isnan(tau)]
    return fmean(known) if known else math.nan


def over_generators(records: Sequence[Record], name: str, view: str) -> list[float]:
    """For each seed, Kendall's tau over generators between `view` and js, means over classes after the last."""
    out = []
    for seed in sorted({r.seed for r in records}):
        runs = [r for found in by_row(records, name).values() for r in found if r.seed == seed]
        ends = [torch.tensor([last(r, which) for r in runs], dtype=torch.float64) for which in (view, "js")]
        out.append((-1 if view == "labels" else 1) * rank_correlation(*ends))
    return out
