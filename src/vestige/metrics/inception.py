"""Inception Score: exp of the mean KL(p(y|x) || p(y)) (Salimans et al. 2016, section 4), from class probabilities or
logits, with weights.

Deviations: the standard error is that of the score itself, by the delta method (the influence of a row on the log
score is w (KL_row - log score)), not the spread over ten splits; with `splits` > 1 the value is the mean over splits,
as published, which is lower than the score of the whole set, and `details` holds their spread. Rows go to splits
in turn, so that no order of the rows matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, checks
from vestige.core.checks import ArrayLike, learnt, option
from vestige.metrics.base import Accumulator, Sums, ess, jackknife, measured, merged, positive_rows, uniform
from vestige.metrics.uncertainty import entropy

# How far a row of probabilities may be from summing to one: float32 softmax over thousands of classes.
SUM_TOLERANCE = 1e-3
KINDS = ("probabilities", "logits")


def _log_probabilities(x: Float[Tensor, "n k"], kind: str, owner: str) -> Float[Tensor, "n k"]:
    """Log class probabilities; probabilities are checked and brought to sum to one."""
    if kind == "logits":
        return torch.log_softmax(x, 1)
    total = x.sum(1)
    off = (total - 1).abs().max()
    if bool((x < 0).any()) or bool(off > SUM_TOLERANCE):
        got = f"a smallest value of {float(x.min()):.4g} and sums off by up to {float(off):.4g}"
        checks.refuse("predictions", owner, "probabilities that sum to one a row (or kind='logits')", got)
    return (x / total[:, None]).log()


def _score(log_p: Float[Tensor, "n k"], w: Float[Tensor, " n"]) -> tuple[Float[Tensor, ""], Float[Tensor, " n"]]:
    """The log score under weights that sum to one, and the KL of each row to the marginal."""
    probabilities = log_p.exp()
    log_marginal = (w @ probabilities).log()
    # A class of marginal zero has probability zero in every row; its term is 0.
    cross = probabilities @ torch.where(log_marginal.isfinite(), log_marginal, 0.0)
    divergence = -entropy(log_p) - cross
    return w @ divergence, divergence


def inception_score(
    predictions: ArrayLike,
    *,
    kind: str = "probabilities",
    weights: ArrayLike | None = None,
    splits: int = 1,
) -> Estimate:
    """Inception Score of a classifier's predictions on generated samples, one row a sample."""
    owner = "inception_score"
    x = checks.samples(predictions, "predictions", owner, min_rows=2)
    checks.one_of(kind, KINDS, "kind", owner)
    x, w = positive_rows(x, checks.weights(weights, len(x), "weights", owner), "sample", owner)
    splits = checks.whole(splits, "splits", owner, low=1, high=len(x) // 2)
    log_p, w_ = _log_probabilities(x, kind, owner), uniform(x, w)
    log_score, divergence = _score(log_p, w_)
    spread = ((w_ * (divergence - log_score)).square().sum() / (1 - w_.square().sum())).sqrt()
    details = {"n": len(x), "ess": ess(len(x), w), "splits": splits, "whole": float(log_score.exp())}
    scores = log_score.exp()[None]
    if splits > 1:
        parts = [(log_p[s::splits], w_[s::splits] / w_[s::splits].sum()) for s in range(splits)]
        scores = torch.stack([_score(*part)[0].exp() for part in parts])
        details["split_std"] = float(scores.std(correction=0))
    return measured("inception_score", float(scores.mean()), float(log_score.exp() * spread), details)


def _score_of_sums(sums: Sums, _: Sums | None = None) -> float:
    """exp(H(marginal) - mean H(row))."""
    marginal, mean_entropy = sums["probabilities"] / sums["weight"], sums["entropy"] / sums["weight"]
    return float((torch.special.entr(marginal).sum() - mean_entropy).exp())


@dataclass(eq=False, kw_only=True)
class InceptionScore(Accumulator[Sums]):
    """Class sums and summed entropies of one set of predictions; `compute()` takes no other set."""

    kind: str = option("probabilities", among=KINDS)
    groups: int = option(20, low=1)
    summaries_: list[Sums | None] = learnt()

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        return _log_probabilities(x, self.kind, owner)

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Sums:
        return Sums.of(weights, probabilities=weights @ x.exp(), entropy=weights @ entropy(x))

    def compute(self) -> Estimate:
        """The score of all rows seen, with its jackknife standard error from 4 groups of 2 rows on."""
        groups = self._filled()
        whole = merged(groups)
        error = jackknife(groups, groups, _score_of_sums) if self._error_rests_on_enough() else None
        details = {"n": self.n_, "ess": whole.ess, "splits": 1}
        return measured("inception_score", _score_of_sums(whole), error, details)
