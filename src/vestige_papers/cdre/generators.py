"""CDRE Fig. 3 and 6 (measures of GANs as classes go by), 4 and 7 (their samples).

Fig. 3 and 4 are Fashion-MNIST, 6 and 7 MNIST; curves and pictures without numbers. The text (section 4.2) finds a
consensus that f-GAN-rvKL is worst throughout on Fashion-MNIST, and that WGAN and WGAN-GP visibly lose fidelity as they
learn more. Whether FID, KID and the divergences agree it leaves to the eye; `beyond_matrix_images` asks for their rank
correlation. All read the same Records (`cdre_generator_runs`, with every deviation). A curve is the mean over the
classes learnt so far; a class that the chain refused is left out of it, and how many were is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

import torch

from vestige.continual.generation import DIVERGENCES, forgetting, intransigence
from vestige.continual.record import Record
from vestige.generators.pictures import grid, unpack
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.cdre.generator_runs import (
    GANS,
    PAPER_SIZE,
    SHARES,
    SMOKE,
    Config,
    GeneratorRuns,
    by_row,
    last,
    means,
    shares,
    word,
)
from vestige_papers.rwalk.runs import judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("fid", "kid", *DIVERGENCES)
WORST = "f-GAN-rvKL"  # as published, for Fashion-MNIST
LOSING = ("WGAN", "WGAN-GP")
EARLY = 3  # tasks after which samples still look well, against all of them


def refused(record: Record) -> float:
    """The share of cells that the chain refused."""
    said = list(record.details["verdicts"].values())
    return said.count("refused") / len(said) if said else math.nan


def _end(runs: Sequence[Record], name: str) -> float:
    """The mean over seeds after the last class; infinite where a training diverged, which is no better an end."""
    if any(r.details.get("diverged") for r in runs):
        return math.inf
    return fmean(last(r, name) for r in runs)


class Measured(GeneratorRuns):
    """FID, KID and f-divergences of every generator as classes go by."""

    rule = (
        f"Three claims, for the five GANs after the last class: {WORST} has the largest FID; the largest KID; the "
        "largest Jensen-Shannon divergence by the chain (means over classes). All: reproduced; two: partly; else not. "
        "With fewer than five GANs it is not judged."
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The end of every curve, pooled FID and shares beside it, F and I, and FID class by class."""
        out = []
        for row, runs in by_row(records).items():
            out += [line(row, f"{word(name)}, mean over classes", [last(r, name) for r in runs]) for name in MEASURES]
            out += [line(row, "FID, pooled", [float(r.values["fid.pooled"][-1]) for r in runs])]
            out += [line(row, word(name), [last(r, name) for r in runs], scale=100) for name in shares(runs)]
            for name in ("fid", "js", *shares(runs)):
                scale = 100 if name in SHARES else 1
                out += [line(row, f"F, {word(name)}", [forgetting(r, name) for r in runs], scale=scale)]
                out += [line(row, f"I, {word(name)}", [intransigence(r, name) for r in runs], scale=scale)]
            out += [line(row, "refused by the chain (%)", [refused(r) for r in runs], scale=100)]
            for j, task in enumerate(runs[0].task_names):
                out += [line(row, f"FID, class {task}", [float(r.matrices["fid"][-1, j]) for r in runs])]
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        found = by_row(records)
        if not set(GANS) <= set(found):
            return Verdict("not judged", f"Only {', '.join(found) or 'nothing'} has been run.")
        claims = {}
        for name in ("fid", "kid", "js"):
            ends = {row: _end(found[row], name) for row in GANS}
            refused = [row for row, end in ends.items() if math.isnan(end)]
            worst = max(GANS, key=lambda row: -math.inf if row in refused else ends[row])
            beside = f", without {', '.join(refused)}, which the chain refused" if refused else ""
            claims[f"by {word(name)} the worst is {WORST} (it is {worst}{beside})"] = worst == WORST and not refused
        return judged(claims)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A curve a generator for every measure, pooled FID and shares among them."""
        from vestige.show import curves

        drawn, found = {}, by_row(records)
        steps = [str(t + 1) for t in range(len(records[0].task_names))]
        for name in (*MEASURES, *shares(records)):
            scale = 100 if name in SHARES else 1
            series = {row: scale * torch.stack([means(r, name) for r in runs]).mean(0) for row, runs in found.items()}
            drawn[name] = curves(series, steps, title=self.item, x_label="classes learnt", y_label=word(name))
        pooled = {row: torch.stack([r.values["fid.pooled"] for r in runs]).mean(0) for row, runs in found.items()}
        drawn["fid-pooled"] = curves(pooled, steps, title=self.item, x_label="classes learnt", y_label="pooled FID")
        return drawn


class Shown(GeneratorRuns):
    """Samples of every generator after each class."""

    rule = (
        f"Two claims: the label accuracy of WGAN, and that of WGAN-GP, is lower after the last class than after "
        f"{EARLY}. Both: reproduced; one: partly; none: not. Fidelity is judged by the classifier that reads the "
        "labels, since eyes cannot be run."
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Label accuracy early and late."""
        out = []
        for row, runs in by_row(records).items():
            for t in (min(EARLY, len(runs[0].task_names)), len(runs[0].task_names)):
                values = [float(means(r, "labels")[t - 1]) for r in runs]
                out += [line(row, f"label accuracy after {t} classes (%)", values, scale=100)]
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        found = by_row(records)
        if not set(LOSING) <= set(found) or len(records[0].task_names) <= EARLY:
            return Verdict("not judged", f"Only {', '.join(found) or 'nothing'} has been run, or too few classes.")
        claims = {}
        for row in LOSING:
            early, late = (fmean(float(means(r, "labels")[t]) for r in found[row]) for t in (EARLY - 1, -1))
            claims[f"{row} falls ({100 * early:.0f} % to {100 * late:.0f} %)"] = late < early
        return judged(claims)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A grid a generator: row t has one sample of each class after t of them, as the paper shows it."""
        drawn = {}
        for row, runs in by_row(records).items():
            pictures = [unpack(packed) for packed in runs[0].details["pictures"]]
            if pictures:
                wide = max(map(len, pictures))
                blank = [x.new_ones(wide - len(x), *x.shape[1:]) for x in pictures]
                image = torch.cat([part for x, white in zip(pictures, blank, strict=True) for part in (x, white)])
                names = [str(t + 1) for t in range(len(pictures))]
                drawn[row.lower()] = grid(image, columns=wide, rows=names, title=f"{self.item}: {row}")
        return drawn


class CDREFig3(Measured):
    """CDRE Fig. 3: GANs on Fashion-MNIST by FID, KID and f-divergences."""

    name, item = "cdre-fig3", "CDRE Fig. 3"
    presets: ClassVar[Mapping[str, Config]] = {"smoke": SMOKE, "laptop": Config(), "paper": PAPER_SIZE}


class CDREFig4(Shown):
    """CDRE Fig. 4: their samples."""

    name, item = "cdre-fig4", "CDRE Fig. 4"
    presets: ClassVar[Mapping[str, Config]] = CDREFig3.presets


class CDREFig6(Measured):
    """CDRE Fig. 6: GANs on MNIST by FID, KID and f-divergences; the text makes no claim of its own."""

    name, item = "cdre-fig6", "CDRE Fig. 6"
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": SMOKE,
        "laptop": Config(data="mnist"),
        "paper": replace(PAPER_SIZE, data="mnist"),
    }


class CDREFig7(Shown):
    """CDRE Fig. 7: their samples."""

    name, item = "cdre-fig7", "CDRE Fig. 7"
    presets: ClassVar[Mapping[str, Config]] = CDREFig6.presets
