"""What the augmentation experiments of LFIW section 3.2 share: their rows, how they train, their lines and their rule.

A classifier is trained on few real rows (D_cl), on generated ones (D_g), or on both; the generated ones count equally,
by their weights ("+ LFIW"), or by the same weights in another order ("+ shuffled", a control that the paper
does not have: noise of the same size, and no bias corrected). `weights.augment` batches the real rows alike, to the
bit, whatever is added; rows of one seed share them, first weights and generated rows, so that differences are paired.

Weights are calibrated class probabilities of real against generated (Proposition 1), tempered to an effective sample
size of `min_ess` and self-normalised (Eq. 6); generated rows that are weighted have not trained the ratio. The paper
has neither tempering nor a diagnosis: both are in the Record.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.plain import plain
from vestige.nets import training
from vestige.ratios import held_out_figures, weights
from vestige.ratios.weights import Augmented
from vestige.runner import (
    BEYOND,
    Claim,
    Experiment,
    Finding,
    Line,
    NotJudged,
    Rule,
    gap,
    grouped,
    in_one_case,
    line,
    those,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

C = TypeVar("C")
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
BEATEN = {REAL: REAL, BOTH: BOTH, BOTH_SHUFFLED: "its control of shuffled weights"}
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
    return Weighed(tempered.log_weights, numbers, plain(found))


def training_sets(
    real: tuple[Tensor, Tensor], made: tuple[Tensor, Tensor], log_weights: Float[Tensor, " n"], share: float, seed: int
) -> dict[str, Augmented]:
    """The training set of each of `ROWS`; `share` is m of Eq. 2."""
    shuffled = log_weights[torch.randperm(len(log_weights), generator=rng.fork(seed, "shuffle"))]
    kinds = {REAL: (real, None, None)}
    for first, rows in ((None, (MADE, MADE_WEIGHTED, MADE_SHUFFLED)), (real, (BOTH, BOTH_WEIGHTED, BOTH_SHUFFLED))):
        for row, log_w in zip(rows, ("equal", log_weights, shuffled), strict=True):
            kinds[row] = (first, made, log_w)  # type: ignore[assignment]
    return {row: weights.augment(*kinds[row], real_share=share) for row in ROWS}


def train(net: nn.Module, rows: Augmented, *, batch: int, steps: int, lr: float, seed: int) -> nn.Module:
    """Adam on `steps` batches of `batch` rows a side, its rate falling along a cosine; ends in testing mode."""
    batches = iter(rows.batches(batch, steps, seed=seed))

    def loss(_: int) -> Tensor:
        batched = next(batches)
        losses = functional.cross_entropy(net(batched.x), batched.y, reduction="none")
        return weights.weighted_loss(losses, batched.weights)

    training.train(training.adam(net.train().parameters(), loss, lr, cosine=steps), steps)
    return net.eval()


@torch.no_grad()
def outputs(net: nn.Module, x: Float[Tensor, "n *shape"], rows: int = 512) -> Float[Tensor, "n k"]:
    """Of a network in its testing mode."""
    return torch.cat([net(part) for part in x.split(rows)])


def idle(runs: Sequence[Record]) -> bool:
    """Whether weights were all equal in most seeds."""
    return 2 * sum(float(r.values["idle"]) for r in runs) > len(runs)


def _tried(groups: Mapping[str, Sequence[Record]]) -> list[Finding]:
    return [Finding(not idle(runs), case=where) for where, runs in groups.items()]


def _above(row: str, *others: str) -> Callable[[Mapping[str, Sequence[Record]]], list[Finding]]:
    """That a row is above each of the others, in points of accuracy, where weights were tried."""

    def check(groups: Mapping[str, Sequence[Record]]) -> list[Finding]:
        found = []
        for where, runs in groups.items():
            gaps = [gap(differences(runs, row, other)) for other in others]
            holds = None if idle(runs) else all(each.above for each in gaps)
            found.append(Finding(holds, ", ".join(map(str, gaps)), where))
        return found

    return check


class Augmentation(Experiment[C]):
    """An experiment whose units train every row of one seed; `values` hold accuracies by row, and `FACTS`."""

    rule = Rule(
        Claim(
            "the classifier of real and generated told something apart in at least half of the seeds",
            lambda g: _tried(g),
        ),
        *(
            Claim(f"{BOTH_WEIGHTED} is above {words}, {BEYOND}", _above(BOTH_WEIGHTED, other))
            for other, words in BEATEN.items()
        ),
        beside=(
            Claim(
                f"{MADE_WEIGHTED} is above {MADE} and its control, {BEYOND}",
                _above(MADE_WEIGHTED, *AGAINST[MADE_WEIGHTED]),
            ),
        ),
        partly=in_one_case(those("c", "d") | those("e")),
        note="Cases are generators or classifiers; where nothing was told apart, no weights were tried. One seed is "
        "not judged.",
    )

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

    def facts(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each group."""
        groups = self.groups(records)
        if any(len(runs) < 2 for runs in groups.values()):
            raise NotJudged("needs two seeds.")
        if groups and all(map(idle, groups.values())):
            raise NotJudged(f"no weights were tried. {self.remarks(groups)}")
        return groups

    def remarks(self, facts: Mapping[str, Sequence[Record]]) -> str:
        """What the weights were worth."""
        sentences = []
        for where, runs in facts.items():
            unsure, equal = (sum(float(r.values[name]) for r in runs) for name in ("unreliable", "idle"))
            size = fmean(float(r.values["ess"]) for r in runs)
            sentences.append(
                f"{where}: the diagnosis called the weights unreliable in {unsure:g} of {len(runs)} seeds (mean ESS "
                f"{size:.0%}); they were all equal in {equal:g}"
            )
        return f"{'. '.join(sentences)}."

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Accuracy by row."""
        from vestige.show import bars

        series = {where: [fmean(accuracies(runs, row)) for row in ROWS] for where, runs in
                  self.groups(records).items()}  # fmt: skip
        return {self.name: bars(series, list(ROWS), title=self.item, y_label=ACCURACY)}

    def groups(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each group, by seed."""
        return grouped(records, self.group)


def accuracies(runs: Sequence[Record], row: str) -> list[float]:
    """In percent, seed by seed."""
    return [100 * float(r.values[row]) for r in runs]


def differences(runs: Sequence[Record], row: str, other: str) -> list[float]:
    """Points by which `row` exceeds `other`, seed by seed."""
    return [a - b for a, b in zip(accuracies(runs, row), accuracies(runs, other), strict=True)]
