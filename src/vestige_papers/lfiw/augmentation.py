"""What the augmentation experiments of LFIW section 3.2 share: their rows, how they train, their lines and their rule.

A classifier is trained on few real rows (D_cl), on generated ones (D_g), or on both; the generated ones count equally,
by their weights ("+ LFIW"), or by the same weights dealt out anew among them ("+ shuffled", a control that the paper
does not have: noise of the same size, and no bias mended). `weights.augment` deals the real rows alike, to the bit,
whatever is added; rows of one seed share them, first weights and generated rows, so that differences are paired.

Weights are calibrated class probabilities of real against generated (Proposition 1), tempered to an effective sample
size of `min_ess` and self-normalised (Eq. 6); generated rows that are weighted have not trained the ratio. The paper
has neither tempering nor a diagnosis: both are in the Record.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.continual.record import Record
from vestige.core import rng
from vestige.ratios import weights
from vestige.ratios.calibration import held_out_figures
from vestige.ratios.weights import Augmented
from vestige.runner.experiment import BEYOND, C, Experiment, Gap, Line, Verdict, gap, line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL, MADE, BOTH = "D_cl", "D_g", "D_cl + D_g"
MADE_WEIGHTED, BOTH_WEIGHTED = "D_g + LFIW", "D_cl + D_g + LFIW"
MADE_SHUFFLED, BOTH_SHUFFLED = "D_g + shuffled", "D_cl + D_g + shuffled"
ROWS = (REAL, MADE, MADE_WEIGHTED, MADE_SHUFFLED, BOTH, BOTH_WEIGHTED, BOTH_SHUFFLED)
# What each row is held against, seed by seed.
AGAINST: Mapping[str, tuple[str, ...]] = {
    MADE_WEIGHTED: (MADE, MADE_SHUFFLED),
    BOTH: (REAL,),
    BOTH_WEIGHTED: (REAL, BOTH, BOTH_SHUFFLED),
}
FACTS = {
    "told_apart": "accuracy, real or generated",
    "ess": "ESS of the weights, share of rows",
    "pareto_k": "Pareto k",
    "mean_weight": "mean weight",
    "alpha": "exponent that tempers",
    "unreliable": "share of seeds called unreliable",
    "idle": "share of seeds with equal weights",
}
ACCURACY = "accuracy (%)"
RULE = (
    "Reproduced if D_cl + D_g + LFIW is above D_cl, above D_cl + D_g and above its control of shuffled weights, each "
    f"{BEYOND}; partly if it is so above the last two, or if D_g + LFIW is above D_g and its control; not otherwise. "
    "Of several generators or classifiers: reproduced if with all, partly if with one at least. One seed is not "
    "judged, nor is a classifier of real and generated that told nothing apart in most seeds: then no "
    "weights were tried."
)


@dataclass(frozen=True)
class Weighed:
    """Log weights of generated rows, tempered; what is known of them as numbers and as the diagnosis in full."""

    log_weights: Float[Tensor, " n"]
    facts: dict[str, Tensor]
    diagnosis: dict[str, Any]


def weigh(log_ratio: Float[Tensor, " n"], log_ratio_p: Float[Tensor, " m"], min_ess: float) -> Weighed:
    """From log-ratios of the generated rows, and of real rows; neither may have trained the ratio."""
    seen = held_out_figures(log_ratio_p, log_ratio, torch.ones_like(log_ratio_p), torch.ones_like(log_ratio))
    found = weights.diagnose(log_ratio, seen["accuracy"], seen["log_loss"], seen["ece"])
    tempered = weights.temper(log_ratio, min_ess)
    facts = {
        "told_apart": seen["accuracy"],
        "ess": found.ess_fraction,
        "pareto_k": math.nan if found.pareto_k is None else found.pareto_k,
        "mean_weight": found.mean_weight,
        "alpha": tempered.alpha,
        "unreliable": float(found.verdict == "unreliable"),
        "idle": float(log_ratio.max() == log_ratio.min()),  # nothing was told apart, so that nothing was tried
    }
    numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in facts.items()}
    return Weighed(tempered.log_weights, numbers, found.to_json())


def training_sets(
    real: tuple[Tensor, Tensor], made: tuple[Tensor, Tensor], log_weights: Float[Tensor, " n"], share: float, seed: int
) -> dict[str, Augmented]:
    """The training set of each of `ROWS`; `share` is m of Eq. 2."""
    shuffled = log_weights[torch.randperm(len(log_weights), generator=rng.fork(seed, "shuffle"))]
    kinds = {REAL: (real, None, None)}
    for first, rows in ((None, (MADE, MADE_WEIGHTED, MADE_SHUFFLED)), (real, (BOTH, BOTH_WEIGHTED, BOTH_SHUFFLED))):
        for row, log_w in zip(rows, (None, log_weights, shuffled), strict=True):
            kinds[row] = (first, made, log_w)  # type: ignore[assignment]
    return {row: weights.augment(*kinds[row], real_share=share) for row in ROWS}


def train(net: nn.Module, rows: Augmented, *, batch: int, steps: int, lr: float, seed: int) -> nn.Module:
    """Adam on `steps` batches of `batch` rows a side, its rate falling along a cosine; ends in testing mode."""
    optimizer = torch.optim.Adam(net.train().parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for dealt in rows.batches(batch, steps, seed=seed):
        losses = functional.cross_entropy(net(dealt.x), dealt.y, reduction="none")
        optimizer.zero_grad()
        weights.weighted_loss(losses, dealt.weights).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def outputs(net: nn.Module, x: Float[Tensor, "n *shape"], rows: int = 512) -> Float[Tensor, "n k"]:
    """Of a network in its testing mode."""
    return torch.cat([net(part) for part in x.split(rows)])


class Augmentation(Experiment[C]):
    """An experiment whose units train every row of one seed; `values` hold accuracies by row, and `FACTS`."""

    rule = RULE

    @abstractmethod
    def group(self, record: Record) -> str:
        """What tells the unit of a Record from others of its seed, in words."""

    def printed(self, group: str) -> Mapping[str, float]:
        """What the paper has beside a group, by row, in percent."""
        return {}

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The table, the paired differences, and what the weights are worth."""
        out = []
        for where, runs in self.groups(records).items():
            printed = self.printed(where)
            out += [line(f"{where}, {row}", ACCURACY, accuracies(runs, row), paper=printed.get(row)) for row in ROWS]
            for row, others in AGAINST.items():
                for other in others:
                    paper = printed[row] - printed[other] if {row, other} <= set(printed) else None
                    out.append(line(f"{where}, {row}", f"less {other}", differences(runs, row, other), paper=paper))
            out += [line(f"{where}, weights", words, [float(r.values[k]) for r in runs]) for k, words in FACTS.items()]
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The rule."""
        groups = self.groups(records)
        if any(len(runs) < 2 for runs in groups.values()):
            return Verdict("not judged", "needs two seeds.")
        words, said = [], []
        for where, runs in groups.items():
            gaps = {(row, o): gap(differences(runs, row, o)) for row, others in AGAINST.items() for o in others}
            idle = sum(float(r.values["idle"]) for r in runs)
            words.append(judged(gaps) if 2 * idle <= len(runs) else "not judged")
            told = [f"{gaps[BOTH_WEIGHTED, other]} to {other}" for other in AGAINST[BOTH_WEIGHTED]]
            unsure = sum(float(r.values["unreliable"]) for r in runs)
            said.append(
                f"{where}: {BOTH_WEIGHTED} {', '.join(told)}; {MADE_WEIGHTED} "
                f"{gaps[MADE_WEIGHTED, MADE]} to {MADE}. The diagnosis called the weights unreliable in {unsure:g} of "
                f"{len(runs)} seeds (mean ESS {fmean(float(r.values['ess']) for r in runs):.0%}); they were all equal "
                f"in {idle:g}"
            )
        word = words[0] if len(set(words)) == 1 else "partly" if {*words} & {"reproduced", "partly"} else "not"
        return Verdict(word, f"Points of accuracy: {'. '.join(said)}.")  # type: ignore[arg-type]

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Accuracy by row."""
        from vestige.show import bars

        series = {where: [fmean(accuracies(runs, row)) for row in ROWS] for where, runs in
                  self.groups(records).items()}  # fmt: skip
        return {self.name: bars(series, list(ROWS), title=self.item, y_label=ACCURACY)}

    def groups(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each group, by seed."""
        found: dict[str, list[Record]] = {}
        for record in sorted(records, key=lambda r: r.seed):
            found.setdefault(self.group(record), []).append(record)
        return found


def judged(gaps: Mapping[tuple[str, str], Gap]) -> str:
    """The rule, for one group."""
    held = {other: gaps[BOTH_WEIGHTED, other].above for other in AGAINST[BOTH_WEIGHTED]}
    alone = all(gaps[MADE_WEIGHTED, other].above for other in AGAINST[MADE_WEIGHTED])
    if all(held.values()):
        return "reproduced"
    return "partly" if (held[BOTH] and held[BOTH_SHUFFLED]) or alone else "not"


def accuracies(runs: Sequence[Record], row: str) -> list[float]:
    """In percent, seed by seed."""
    return [100 * float(r.values[row]) for r in runs]


def differences(runs: Sequence[Record], row: str, other: str) -> list[float]:
    """Points by which `row` exceeds `other`, seed by seed."""
    return [a - b for a, b in zip(accuracies(runs, row), accuracies(runs, other), strict=True)]
