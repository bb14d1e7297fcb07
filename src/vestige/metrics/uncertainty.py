"""How sure a model is, from draws of its posterior: Farquhar and Gal C.8, after Gal (2016).

For one input with class probabilities p_1..p_S of S posterior samples and their mean p:
    predictive entropy   H[p]
    expected entropy     mean_s H[p_s]
    mutual information   H[p] - mean_s H[p_s], between the prediction and the posterior
The last is high where samples are sure and disagree, which is far from the training data. All are in nats.

`Uncertainty` takes samples one chunk at a time and holds (n, k) and (n,) numbers, never (S, n, k): chunks of samples
are merged, and so are accumulators that saw other samples of the same inputs; `beside` joins those of other inputs.

`unseen_task_roc` is the detector of C.8: an input set is called unseen when its mean uncertainty exceeds theta times
that of the current task, theta = 1.0, 1.1, .. 10. Which pairs (model, task) count is not said in the paper and decides
the area: the current task left out ("others"), or counted as seen, either of every model ("all") or of those that have
tasks to come ("before_last"). All three are offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from vestige.core import checks

Pairs = Literal["others", "all", "before_last"]
THETAS = tuple(round(1 + 0.1 * i, 1) for i in range(91))


def entropy(log_p: Float[Tensor, "... k"]) -> Float[Tensor, "..."]:
    """-sum p log p over the last axis; a probability of zero adds nothing."""
    return torch.special.entr(log_p.exp()).sum(-1)


class Uncertainty:
    """Accumulates posterior samples of n inputs: `update / merge / compute`."""

    def __init__(self) -> None:
        self.samples = 0
        self.sum_p = self.sum_entropy = torch.zeros((), dtype=torch.float64, device="cpu")  # until there are samples

    def update(self, log_p: Float[Tensor, "..."]) -> Self:
        """More posterior samples of the same n inputs, as log-probabilities over k classes."""
        log_p = log_p.cpu()  # sums are in float64, which not every device has
        if log_p.ndim != 3 or 0 in log_p.shape:
            checks.refuse("log_p", "Uncertainty", "(samples, n, k), none of them zero", tuple(log_p.shape))
        if self.samples and log_p.shape[1:] != self.sum_p.shape:
            wanted = f"of the same inputs and classes, (samples, {self.sum_p.shape[0]}, {self.sum_p.shape[1]})"
            checks.refuse("log_p", "Uncertainty", wanted, tuple(log_p.shape))
        off = float((log_p.logsumexp(-1)).abs().max())
        if not off < 1e-3:
            checks.refuse("log_p", "Uncertainty", "normalised over its last axis", f"sums off by {off:.3g} in log")
        return self._add(
            log_p.exp().sum(0, dtype=torch.float64), entropy(log_p).sum(0, dtype=torch.float64), len(log_p)
        )

    def merge(self, other: Uncertainty) -> Self:
        """Samples of the same inputs that another accumulator saw."""
        if self.samples and other.samples and self.sum_p.shape != other.sum_p.shape:
            checks.refuse("other", "Uncertainty.merge", f"of shape {tuple(self.sum_p.shape)}", tuple(other.sum_p.shape))
        return self._add(other.sum_p, other.sum_entropy, other.samples)

    def _add(self, p: Tensor, entropies: Tensor, samples: int) -> Self:
        self.sum_p, self.sum_entropy = self.sum_p + p, self.sum_entropy + entropies
        self.samples += samples
        return self

    @classmethod
    def beside(cls, parts: Sequence[Uncertainty]) -> Uncertainty:
        """One accumulator of other inputs side by side, which saw equally many samples."""
        samples = {part.samples for part in parts}
        if len(samples) != 1 or 0 in samples:
            checks.refuse("parts", "Uncertainty.beside", "of equally many samples, one at least", sorted(samples))
        p, entropies = torch.cat([part.sum_p for part in parts]), torch.cat([part.sum_entropy for part in parts])
        return cls()._add(p, entropies, *samples)

    def mean_p(self) -> Float64[Tensor, "n k"]:
        """The prediction: probabilities, averaged over samples."""
        if not self.samples:
            checks.refuse("log_p", "Uncertainty", "given before 'mean_p'", "nothing")
        return self.sum_p / self.samples

    def summary(self, y: Int64[Tensor, " n"], bins: int = 10) -> dict[str, Float64[Tensor, "..."]]:
        """Means over the inputs, and how well confidence agrees with accuracy; a label of -1 is always a miss."""
        each, (confidence, guess), y = self.compute(), self.mean_p().max(1), y.cpu()
        diagram = reliability(confidence, guess == y, bins)
        ece = expected_calibration_error(confidence, guess == y, bins)
        return {
            "mutual_information": each["mutual"].mean(),
            "predictive_entropy": each["predictive"].mean(),
            "expected_entropy": each["expected"].mean(),
            "ece": torch.tensor(ece, dtype=torch.float64, device="cpu"),
        } | {f"reliability_{name}": value for name, value in diagram.items()}

    def compute(self) -> dict[str, Float64[Tensor, " n"]]:
        """Predictive entropy, expected entropy and mutual information of each input."""
        if not self.samples:
            checks.refuse("log_p", "Uncertainty", "given before 'compute'", "nothing")
        predictive = torch.special.entr(self.sum_p / self.samples).sum(-1)
        expected = self.sum_entropy / self.samples
        # The entropy is concave, so the difference is not negative but for rounding.
        return {"predictive": predictive, "expected": expected, "mutual": (predictive - expected).clamp_min(0)}


@dataclass(frozen=True)
class Roc:
    """False and true positive rates for each of `THETAS`, and the area under them, closed at (0, 0) and (1, 1)."""

    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]
    auc: float


def unseen_task_roc(mi: Float[Tensor, "..."], *, pairs: Pairs = "others") -> Roc:
    """The detector's ROC from MI[model, task], the mean uncertainty on each task after training up to each.

    Positives are tasks that the model has not been trained on. The last model has none; unless `pairs` leaves it out,
    it counts for its negatives.
    """
    checks.one_of(pairs, get_args(Pairs), "pairs", "unseen_task_roc")
    if mi.ndim != 2 or mi.shape[0] != mi.shape[1] or len(mi) < 2:
        checks.refuse("mi", "unseen_task_roc", "a square matrix of two tasks at least", tuple(mi.shape))
    if not bool(torch.isfinite(mi).all()) or bool((mi < 0).any()):
        checks.refuse("mi", "unseen_task_roc", "finite and not negative", "other values")
    t = len(mi)
    model, task = torch.meshgrid(torch.arange(t), torch.arange(t), indexing="ij")
    counted = {"all": model >= 0, "others": model != task, "before_last": model < t - 1}[pairs]
    unseen = (task > model)[counted]
    score = (mi / mi.diagonal()[:, None].clamp_min(torch.finfo(mi.dtype).tiny))[counted]
    called = torch.stack([score > theta for theta in THETAS])
    true, false = (called[:, those].double().mean(1).tolist() for those in (unseen, ~unseen))
    area = np.trapezoid([0, *true[::-1], 1], [0, *false[::-1], 1])
    return Roc(tuple(false), tuple(true), float(area))


def reliability(
    confidence: Float[Tensor, " n"], right: Bool[Tensor, " n"], bins: int = 10
) -> dict[str, Float64[Tensor, " b"]]:
    """Mean confidence, accuracy and count in equal bins of confidence; NaN where a bin is empty."""
    checks.whole(bins, "bins", "reliability", low=1)
    if len(confidence) == 0 or len(confidence) != len(right):
        checks.refuse("confidence", "reliability", "as long as 'right', and not empty", len(confidence))
    confidence, right = confidence.cpu().double(), right.cpu().double()
    place, empty = (confidence * bins).long().clamp(0, bins - 1), confidence.new_zeros(bins)
    count = empty.index_add(0, place, torch.ones_like(confidence))
    total, hits = empty.index_add(0, place, confidence), empty.index_add(0, place, right)
    return {"confidence": total / count, "accuracy": hits / count, "count": count}


def expected_calibration_error(confidence: Float[Tensor, " n"], right: Bool[Tensor, " n"], bins: int = 10) -> float:
    """Mean gap between confidence and accuracy over bins, weighted by count."""
    found = reliability(confidence, right, bins)
    gap = (found["confidence"] - found["accuracy"]).abs().nan_to_num(0.0)
    return float((gap * found["count"]).sum() / found["count"].sum())
