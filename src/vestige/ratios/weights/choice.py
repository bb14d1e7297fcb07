"""Real rows only, with generated ones, or with weighted ones? Chosen on real rows that were held out of all three.

The real rows are cut into folds, classes alike in each. For every fold a model is trained three times on the others: on
them alone, with all generated rows at weight one, and with generated rows that weigh k w (see `augment`), where the
ratio, too, is fitted without the fold. The score of a held-out row is 1 where its class is right, else 0; for numbers
it is 1 - (error)^2 / variance, whose mean is R^2. Scores of one row by two models are paired.

The rule is one standard error in favour of less: of real only, unweighted, weighted, in this order, the first whose
mean score is not more than one standard error of the paired difference below the best one's. So a tie, and whatever is
within the noise of the rows, goes to the real rows.

What it does not know: a generator that was trained on the held-out rows may repeat them, which flatters the generated
rows. Keep real rows from the generator and give them as `validation`; they are then the one fold. The standard error is
over rows, with the models as they are: how much another training set would change them is in it only as far as folds
differ.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import Estimate, checks, rng
from vestige.core.plain import plain
from vestige.ratios.weights.joint import are_classes
from vestige.show.tables import card

REAL, UNWEIGHTED, WEIGHTED = "real only", "unweighted", "weighted"
ARMS = (REAL, UNWEIGHTED, WEIGHTED)  # the simplest first
FOLDS = 5
STANDARD_ERRORS = 1.0  # by which more must be better than less
ROUNDING = 1e-9  # one row of n is a gain of exactly one standard error, which is none
ACCURACY, R_SQUARED = "accuracy", "R^2"

LabelledRows = tuple[Tensor, Tensor]
Weigh = Callable[[LabelledRows, int], Float[Tensor, " n"]]  # weights of the generated rows beside these real ones


@dataclass(frozen=True, repr=False)
class Choice:
    """What was chosen, the scores on held-out rows that it was chosen by, and the gains over real rows only."""

    chosen: str
    scores: dict[str, Estimate]  # by arm
    gains: dict[str, Estimate]  # over real only, paired
    score: str  # "accuracy" or "R^2"
    model: str
    n: int  # held-out rows
    folds: int

    @property
    def why(self) -> str:
        """The choice in one sentence."""
        told = ", ".join(f"{arm} {one.value:.3f} (se {one.std_error:.3f})" for arm, one in self.scores.items())
        gains = ", ".join(f"{arm} {one.value:+.3f} (se {one.std_error:.3f})" for arm, one in self.gains.items())
        best = max(ARMS, key=lambda arm: self.scores[arm].value)
        reason = "best" if best == self.chosen else f"within one standard error of {best}, and simpler"
        return (
            f"{self.chosen} ({reason}): {self.score} of {self.model} on {self.n} held-out real rows: {told}; over real "
            f"only: {gains}."
        )

    def _figures(self) -> list[tuple[str, str]]:
        return [(arm, f"{one.value:.3f} (se {one.std_error:.3f})") for arm, one in self.scores.items()]

    def __repr__(self) -> str:
        told = ", ".join(f"{arm} {value}" for arm, value in self._figures())
        return f"Choice({self.chosen}: {self.score} on {self.n} held-out rows: {told})"

    def _repr_html_(self) -> str:
        return card(f"chosen: {self.chosen}; {self.score} on {self.n} held-out rows", self._figures())

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**plain(self), "why": self.why}


class ValidationSplit(NamedTuple):
    """Real rows, and which of them are held out together; or others that are held out, all at once."""

    real: LabelledRows
    held: LabelledRows
    fold: Int64[Tensor, " n"] | None  # of each real row; None where `held` are rows of their own
    folds: int
    classes: bool

    @classmethod
    def of(cls, real: LabelledRows, validation: LabelledRows | None, folds: int, *, seed: int = 0) -> Self:
        """Folds in which classes are alike, as far as they can be; refuses what cannot be validated on."""
        owner = "weights.augment"
        folds = checks.whole(folds, "folds", owner, low=2)
        x, y = real
        classes = are_classes(y)
        if y.ndim > 1:
            checks.refuse("real", owner, "one label a row to choose by", f"{y[0].numel()}")
        if classes and int((y.unique(return_counts=True)[1] > 1).sum()) < 2:
            checks.refuse("real", owner, "at least two classes of two rows to choose by", f"{len(y.unique())} classes")
        if validation is not None:
            if validation[0].shape[1:] != x.shape[1:] or validation[1].ndim != 1:
                must = f"rows of shape {tuple(x.shape[1:])} with one label each, as 'real' has"
                checks.refuse("validation", owner, must, tuple(validation[0].shape[1:]))
            return cls(real, validation, None, 1, classes)
        if len(x) < 2 * folds:
            checks.refuse("real", owner, f"at least {2 * folds} rows for {folds} folds", len(x))
        order = torch.randperm(len(y), generator=rng.fork(seed, "choice", "folds"))
        if classes:
            order = order[torch.argsort(y[order], stable=True)]
        fold = torch.empty_like(order)
        fold[order] = torch.arange(len(order)) % folds
        return cls(real, real, fold, folds, classes)

    def parts(self, k: int) -> tuple[LabelledRows, LabelledRows]:
        """The real rows that train, and those that are held out."""
        if self.fold is None:
            return self.real, self.held
        (x, y), out = self.real, self.fold == k
        return (x[~out], y[~out]), (x[out], y[out])


def choose_arm(
    split: ValidationSplit,
    generated: LabelledRows,
    weigh: Weigh,
    *,
    model: Any = None,  # noqa: ANN401 - a scikit-learn model
    seed: int = 0,
    owner: str = "weights.augment",
) -> Choice:
    """Train and score every arm on every fold, and apply the rule."""
    asked = _model(model, split.classes, seed, owner)
    classes = split.classes and not _is_regressor(asked)
    scores: dict[str, list[Tensor]] = {arm: [] for arm in ARMS}
    x_hat, y_hat = generated
    variance = float(split.held[1].double().var(correction=0)) or 1.0
    for k in range(split.folds):
        (x, y), (held_x, held_y) = split.parts(k)
        weights = {
            UNWEIGHTED: torch.ones(len(x_hat), dtype=torch.float64),
            WEIGHTED: weigh((x, y), rng.child_seed(seed, "choice", k) % 2**31),
        }
        for arm in ARMS:
            rows, labels, w = x, y, torch.ones(len(x), dtype=torch.float64)
            if arm != REAL:
                kept = weights[arm] > 0
                rows, labels = torch.cat([x, x_hat[kept]]), torch.cat([y, y_hat[kept]])
                w = torch.cat([w, weights[arm][kept]])
            told = predicted(asked, rows, labels, w, held_x)
            if classes:
                scores[arm].append((told == held_y).double())
            else:
                scores[arm].append(1 - (told.double() - held_y.double()).square() / variance)
    return decided({arm: torch.cat(each) for arm, each in scores.items()}, classes, type(asked).__name__, split.folds)


def decided(scores: dict[str, Float[Tensor, " n"]], classes: bool, model: str, folds: int) -> Choice:
    """The rule, applied to the scores of each held-out row by arm."""
    best = max(ARMS, key=lambda arm: float(scores[arm].mean()))  # of equals the first
    for arm in ARMS:
        lacks = _mean(scores[best] - scores[arm])
        if lacks.value <= STANDARD_ERRORS * lacks.std_error * (1 + ROUNDING):
            break
    means = {name: _mean(one) for name, one in scores.items()}
    gains = {name: _mean(scores[name] - scores[REAL]) for name in ARMS if name != REAL}
    return Choice(arm, means, gains, ACCURACY if classes else R_SQUARED, model, len(scores[REAL]), folds)


def _mean(values: Float[Tensor, " n"]) -> Estimate:
    """A mean and its standard error over rows."""
    n = len(values)
    error = float(values.std()) / math.sqrt(n) if n > 1 else math.inf
    return Estimate.normal(float(values.mean()), error, n=n)


def predicted(
    model: Any,  # noqa: ANN401 - a scikit-learn model
    x: Float[Tensor, "n *shape"],
    y: Tensor,
    weights: Float[Tensor, " n"],
    asked: Float[Tensor, "m *shape"],
) -> Tensor:
    """What a fresh copy of `model`, trained under these weights, says of the rows that are asked."""
    fresh = _copied(model)
    fresh.fit(x.numpy(), y.numpy(), sample_weight=weights.numpy())
    return torch.from_numpy(np.array(fresh.predict(asked.numpy())))


def _copied(model: Any) -> Any:  # noqa: ANN401 - a scikit-learn model
    from sklearn.base import clone

    return clone(model) if hasattr(model, "get_params") else copy.deepcopy(model)


def _is_regressor(model: Any) -> bool:  # noqa: ANN401 - a scikit-learn model
    from sklearn.base import is_regressor

    return hasattr(model, "__sklearn_tags__") and bool(is_regressor(model))


def _model(model: Any, classes: bool, seed: int, owner: str) -> Any:  # noqa: ANN401 - a scikit-learn model
    """The model that is validated: the user's, once it is one that takes weights; else boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.utils.validation import has_fit_parameter

    if model is None:
        kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return kind(random_state=rng.child_seed(seed, "choice", "model") % 2**31)
    if not (hasattr(model, "fit") and hasattr(model, "predict") and has_fit_parameter(model, "sample_weight")):
        must = "a model with 'predict' and a 'fit' that takes 'sample_weight'"
        checks.refuse("model", owner, must, type(model).__name__)
    return model
