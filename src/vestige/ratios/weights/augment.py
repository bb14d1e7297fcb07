"""A training set of real and weighted generated rows, and its loss (LFIW Eqs. 1, 2 and 6, section 3.2).

A real row weighs one. A generated row weighs k w, where w are the self-normalised weights (Eq. 6, mean one) and

    k = ESS share * min(1, mean raw weight).

**Why the ESS share.** With n real rows a mean loss has the variance s^2 / n; by weighted rows it has s^2 / ESS, and ESS
is n_q times the ESS share e (Kish). Of two unbiased means the best mixture weighs each by the inverse of its variance:
n : ESS, and so a total mass of n for the real rows and of n_q e for the generated ones, which is e for each.

**Why the mean raw weight.** E_q[p/q] is the mass that p has where q has any: the share of the data that the generator
reaches. Self-normalised weights hide it: they sum to n_q whether all of the data is in reach or a hundredth. With the
factor a generated row weighs e times its raw weight p/q: what is in reach gets the mass that raw weights say, no more.
A classifier that tells generated rows without error gives all of them a raw weight near zero; their ESS may be
anything, their mass is about nothing, and training falls back to the real rows. An expectation of p/q above one is
impossible: there the ratio is off by a factor, which self-normalising takes out, hence min(1, .).

For a generator that draws from the data k is 1, and rows are pooled; for one that has lost half of it, 1/2; for one
that shares nothing with it, 0 (tests/ratios/weights/test_augment.py has these and the Gaussian case between). What k
does not see is the error of the ratio itself; `choose` (see `choice`) asks rows that were held out.

**The ratio** is that of rows and labels together, p(x, y) / q(x, y): with x alone a wrong label has the weight of a
right one. Without `log_weights` it is estimated here (`joint`), each generated row by a fit that has not seen it.

**`real_share`** is m of Eq. 2 instead: real data and a model mixed with the share m for the data. Up to the factor 1/m,

    mean over real rows of l  +  (1 - m) / m  *  mean over generated rows of w l,

a fixed mass whatever the weights are worth. With a classifier at accuracy 1.00 it puts half of the mass on the few rows
that happened to be called least unreal; the papers' tables use it, and show what that does.

In both forms there is **equal exposure to real data whatever is added**: a real row weighs one, alone or beside any
number of generated rows, and `batches` deals the same real rows in the same order, to the bit, so that two trainings
differ in what was added and in nothing else. Generated rows of weight zero are left out. Deviation: the paper trains on
all rows in one pool, where each real row counts the less the more is generated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, Kind, as_tensor
from vestige.ratios.weights.choice import FOLDS, REAL, UNWEIGHTED, WEIGHTED, Choice, ValidationSplit, Weigh, choose_arm
from vestige.ratios.weights.diagnosis import Diagnosis, diagnose, mean_weight
from vestige.ratios.weights.joint import FIT_ROWS, beside_labels, held_out_joint
from vestige.ratios.weights.transforms import kish, log_weight_vector, self_normalise, temper

if TYPE_CHECKING:
    from vestige.ratios.base import Ratio

# Rows and their labels.
Labelled: TypeAlias = "tuple[ArrayLike, ArrayLike]"


class Batch(NamedTuple):
    """Rows, their labels, and weights under which the loss of the batch is the weighted sum of the rows' losses."""

    x: Tensor
    y: Tensor
    weights: Float[Tensor, " n"]


@dataclass(frozen=True, eq=False, repr=False)
class Augmented:
    """Real rows first, then generated ones, and a weight for each: one for a real row, k w for a generated one.

    `x`, `y` and `weights` are of the kind that came in, for what takes a weight a sample; `batches` is for networks.
    """

    x: Any
    y: Any
    weights: Any
    n_real: int
    n_generated: int
    arm: str  # "real only", "unweighted" or "weighted"
    mass: float  # k, the mean weight of a generated row beside a real one; of weights as they came, whatever was chosen
    real_share: float | None  # m of Eq. 2, where it was given
    diagnosis: Diagnosis | None = None  # of the weights as they came; None without generated rows
    choice: Choice | None = None  # what validation said, where it was asked

    def __repr__(self) -> str:
        rows = f"{self.n_real} real and {self.n_generated} generated rows, {self.arm}"
        verdict = "" if self.diagnosis is None else f", weights {self.diagnosis.verdict}"
        return f"Augmented({rows}: k = {self.mass:.3g}{verdict})"

    def batches(self, size: int, steps: int, *, generated: int | None = None, seed: int = 0) -> Iterator[Batch]:
        """`steps` batches of `size` real rows and `generated` others; one side alone if alone.

        Unless told there are as many others as their mass is worth beside that of the real rows, at least one and at
        most `size`: so what is normalised over a batch sees them about as much as the loss does. Each side comes in
        shuffled passes: all rows before any comes again.
        """
        owner = "Augmented.batches"
        size, steps = checks.whole(size, "size", owner, low=1), checks.whole(steps, "steps", owner, low=1)
        beside = self._beside(size) if generated is None else checks.whole(generated, "generated", owner, low=1)
        seed = checks.whole(seed, "seed", owner)
        sides = ((0, self.n_real, size, "real"), (self.n_real, self.n_generated, beside, "generated"))
        return self._dealt([(start, n, each, rng.fork(seed, name)) for start, n, each, name in sides if n], steps)

    def _beside(self, size: int) -> int:
        """Generated rows of a batch of `size` real ones."""
        if not self.n_real or not self.n_generated:
            return size
        mass = float(as_tensor(self.weights, "weights", "Augmented.batches")[self.n_real :].sum())
        return min(max(round(size * mass / self.n_real), 1), size)

    def _dealt(self, sides: list[tuple[int, int, int, torch.Generator]], steps: int) -> Iterator[Batch]:
        """Hands of each side: (its first row, its rows, how many a hand, its shuffles)."""
        x, y, weights = (as_tensor(v, "rows", "Augmented.batches") for v in (self.x, self.y, self.weights))
        whole = self.n_real or self.n_generated
        # The loss of the whole set is the weighted sum over `whole`; a hand of `each` stands for its side's n rows.
        scales = [n / each / whole for _, n, each, _ in sides]
        for hands in zip(*(deal(n, each, steps, shuffle) for _, n, each, shuffle in sides), strict=True):
            rows = [first + hand for (first, *_), hand in zip(sides, hands, strict=True)]
            scaled = torch.cat([scale * weights[part] for scale, part in zip(scales, rows, strict=True)])
            index = torch.cat(rows)
            yield Batch(x[index], y[index], scaled.to(torch.get_default_dtype()))


def mass_per_row(log_weights: ArrayLike, min_ess: float | None = None) -> float:
    """k, the mass of a generated row of mean weight beside a real row: ESS share times min(1, mean raw weight).

    `log_weights` are raw; `min_ess` tempers them before their ESS is taken, and leaves their mean as it was.

    Example
    -------
    >>> round(mass_per_row([math.log(0.5)] * 8), 6)  # the model has half of the data, and all weights are 1/2
    0.5
    """
    log_w = log_weight_vector(log_weights, "weights.mass_per_row")
    used = log_w if min_ess is None else temper(log_w, min_ess).log_weights
    return kish(used) / len(used) * min(1.0, mean_weight(log_w))


def generated_weights(log_weights: ArrayLike, min_ess: float | None = None) -> Float[Tensor, " n"]:
    """k w: what each generated row weighs beside real rows of weight one. See the module.

    Example
    -------
    >>> round(float(generated_weights([0.0, 0.0]).mean()), 6)  # of a generator that draws from the data
    1.0
    """
    log_w = log_weight_vector(log_weights, "weights.generated_weights")
    used = log_w if min_ess is None else temper(log_w, min_ess).log_weights
    return mass_per_row(log_w, min_ess) * self_normalise(used).exp()


def augment(
    real: Labelled | None,
    generated: Labelled | None = None,
    log_weights: ArrayLike | Literal["equal"] | None = None,
    *,
    choose: bool = False,
    real_share: float | None = None,
    estimator: str | Ratio = "forest",
    min_ess: float | None = None,
    model: Any = None,  # noqa: ANN401 - a scikit-learn model
    validation: Labelled | None = None,
    folds: int = FOLDS,
    rows: int = FIT_ROWS,
    seed: int = 0,
) -> Augmented:
    """Real rows (x, y) joined by generated ones, each of these weighing k times its weight.

    Parameters
    ----------
    real, generated
        Pairs (rows, labels). Whole labels are classes, others are numbers. Either side may be None: the other then
        stands alone, and its weights average one.
    log_weights
        Raw log weights of the generated rows, log p(x, y)/q(x, y), of a ratio that has not seen them; "equal" for none;
        None to estimate them here, by `estimator` (a name of RATIOS, or a ratio) on at most `rows` rows a side.
    choose
        Choose between real rows only, generated ones unweighted beside them, and weighted, by the score of `model` on
        validation rows: `folds` parts of the real rows in turn, or the rows of `validation`. See `choice`.
    model
        What is validated: a scikit-learn model whose `fit` takes `sample_weight`; boosting unless told.
    real_share
        m of Eq. 2: a fixed share of the mass for the real rows, in place of k.
    min_ess
        Temper the weights to an effective sample size of this share of the rows.

    Example
    -------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     x = rng.normal(size=(n, 2))
    ...     return x, (x[:, 0] > 0).astype(int)
    >>> x, y = draw(300)
    >>> found = augment((x, y), draw(600), seed=0)  # a generator that draws from the data
    >>> found.n_real, found.n_generated, found.mass > 0.8
    (300, 600, True)
    """
    owner = "weights.augment"
    share = None
    if real_share is not None:
        share = checks.number(real_share, "real_share", owner, low=0, high=1, open_low=True, open_high=True)
    if min_ess is not None:
        min_ess = checks.number(min_ess, "min_ess", owner, low=0, high=1, open_low=True)
    seed = checks.whole(seed, "seed", owner)
    if real is None and generated is None:
        checks.refuse("real", owner, "given, or 'generated'", "neither")
    if generated is None and log_weights is not None:
        checks.refuse("log_weights", owner, "None where nothing is generated", "weights")
    if real is None and log_weights is None:
        checks.refuse("log_weights", owner, "given, or 'equal', where there are no real rows to learn them from", None)
    if choose and (real is None or generated is None or share is not None):
        checks.refuse("choose", owner, "False without rows of both sides, or with a 'real_share'", True)
    if not choose and (validation is not None or model is not None):
        name = "validation" if validation is not None else "model"
        checks.refuse(name, owner, "None unless 'choose' is True", "one")
    sides = {"real": real, "generated": generated}
    given = {name: pair for name, pair in sides.items() if pair is not None}
    held = {name: _rows(pair, name, owner) for name, pair in given.items()}
    n_real = len(held["real"][0]) if real is not None else 0
    ones = torch.ones(n_real, dtype=torch.float64)
    if generated is None:
        return _joined(given, held, ones, arm=REAL, mass=0.0, real_share=share)
    x, y = held["generated"]
    equal = isinstance(log_weights, str)
    if real is not None:
        _alike(given, held, owner)
    figures: dict[str, Any] = {}
    if equal:
        checks.one_of(log_weights, ("equal",), "log_weights", owner)
        log_w = torch.zeros(len(x), dtype=torch.float64)
    elif log_weights is None:
        fitted = held_out_joint(*beside_labels(held["real"], (x, y)), estimator=estimator, rows=rows, seed=seed)
        log_w, figures = fitted.log_ratio_q, fitted.figures
    else:
        log_w = log_weight_vector(log_weights, owner, length=len(x))
    diagnosis = diagnose(log_w, **figures)
    k = mass_per_row(log_w, min_ess)
    choice = None
    if choose:
        split = ValidationSplit.of(
            held["real"], None if validation is None else _rows(validation, "validation", owner), folds, seed=seed
        )
        own = None if log_weights is None else log_w
        weigh = fold_weights((x, y), own, estimator=estimator, min_ess=min_ess, rows=rows)
        choice = choose_arm(split, (x, y), weigh, model=model, seed=seed, owner=owner)
    arm = choice.chosen if choice is not None else UNWEIGHTED if equal else WEIGHTED
    facts = {"arm": arm, "mass": k, "real_share": share, "diagnosis": diagnosis, "choice": choice}
    if arm == REAL:
        alone = {"real": held["real"]}
        return _joined({"real": given["real"]}, alone, ones, **facts)
    used = torch.zeros_like(log_w) if arm == UNWEIGHTED else log_w
    kept = used > -math.inf
    if n_real and share is None:
        w = generated_weights(used, min_ess)[kept]
    else:
        used = used[kept] if min_ess is None else temper(used, min_ess).log_weights[kept]
        w = self_normalise(used).exp()  # mean one: Eq. 6
        w = w * ((1 - share) / share * n_real / len(w)) if share is not None and n_real else w
    held["generated"] = x[kept], y[kept]
    return _joined(given, held, torch.cat([ones, w]), **facts)


def fold_weights(
    generated: tuple[Tensor, Tensor],
    log_weights: Float[Tensor, " n"] | None = None,
    *,
    estimator: str | Ratio = "forest",
    min_ess: float | None = None,
    rows: int = FIT_ROWS,
) -> Weigh:
    """What weighs the generated rows beside some of the real ones, by a ratio that knows no others (see `choice`).

    Where `log_weights` are given they are taken as they are, whatever rows they were learnt from.
    """

    def weigh(real: tuple[Tensor, Tensor], seed: int) -> Float[Tensor, " n"]:
        log_w = log_weights
        if log_w is None:
            pair = beside_labels(real, generated)
            log_w = held_out_joint(*pair, estimator=estimator, rows=rows, seed=seed).log_ratio_q
        return generated_weights(log_w, min_ess)

    return weigh


def _joined(
    given: Mapping[str, Labelled],
    held: Mapping[str, tuple[Tensor, Tensor]],
    weights: Float[Tensor, " n"],
    **facts: Any,  # noqa: ANN401 - fields of Augmented
) -> Augmented:
    """The parts, as the kind that the first of them is."""
    first_x, first_y = next(iter(given.values()))
    xs, ys = zip(*held.values(), strict=True)
    plain = dataclasses.replace(Kind.of(first_x), dtype=None)  # weights keep their precision
    n_real = len(held["real"][0]) if "real" in held else 0
    counts = n_real, len(weights) - n_real
    return Augmented(_like(first_x, xs), _like(first_y, ys), plain.give(weights), *counts, **facts)


def weighted_loss(losses: Float[Tensor, " n"], weights: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The loss of a batch: its rows' losses, summed under the weights that came with it."""
    return (weights * losses).sum()


def deal(n: int, each: int, times: int, generator: torch.Generator) -> Iterator[Int64[Tensor, " e"]]:
    """`times` hands of `each` from decks of n cards, each shuffled anew; a hand may end one deck and begin the next."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(times):
        while len(left) < each:
            left = torch.cat([left, torch.randperm(n, generator=generator)])
        yield left[:each]
        left = left[each:]


def _rows(pair: Labelled, name: str, owner: str) -> tuple[Tensor, Tensor]:
    """Rows and labels as tensors: as many of one as of the other, and finite."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        checks.refuse(name, owner, "a pair (rows, labels)", f"a {type(pair).__name__}")
    x, y = as_tensor(pair[0], f"{name}[0]", owner), as_tensor(pair[1], f"{name}[1]", owner)
    if x.ndim < 1 or not len(x) or x.numel() == 0:
        checks.refuse(f"{name}[0]", owner, "at least one row with at least one feature", f"shape {tuple(x.shape)}")
    if y.ndim < 1 or len(y) != len(x):
        checks.refuse(f"{name}[1]", owner, f"one label for each of {len(x)} rows", f"shape {tuple(y.shape)}")
    for part, value in ((f"{name}[0]", x), (f"{name}[1]", y)):
        bad = 0 if not value.is_floating_point() else int((~torch.isfinite(value)).sum())
        if bad:
            checks.refuse(part, owner, "finite", f"{bad} NaN or infinite values among {value.numel()}")
    return x, y


def _alike(given: Mapping[str, Labelled], rows: Mapping[str, tuple[Tensor, Tensor]], owner: str) -> None:
    """Both sides must have one layout, one scale (bytes beside other numbers are two) and one set of columns."""
    for a, b, what in zip(rows["real"], rows["generated"], ("rows", "labels"), strict=True):
        if a.shape[1:] != b.shape[1:]:
            must = f"{what} of shape {tuple(a.shape[1:])}, as 'real' has"
            checks.refuse("generated", owner, must, tuple(b.shape[1:]))
    kinds = [rows[name][0].dtype for name in ("real", "generated")]
    if (kinds[0] == torch.uint8) != (kinds[1] == torch.uint8):
        checks.refuse("generated", owner, f"rows of {kinds[0]}, as 'real' has: bytes are another scale", kinds[1])
    tables = [pair[0] for pair in given.values() if isinstance(pair[0], pd.DataFrame)]
    if len(tables) == 2 and list(tables[0].columns) != list(tables[1].columns):
        checks.refuse("generated", owner, f"a table of the columns {list(tables[0].columns)}", list(tables[1].columns))


def _like(first: ArrayLike, parts: Sequence[Tensor]) -> Any:  # noqa: ANN401 - the kind that came in
    """Parts one after the other, as the kind that `first` is."""
    out = Kind.of(first).give(torch.cat(list(parts)))
    return out.set_axis(first.columns, axis=1) if isinstance(first, pd.DataFrame) else out
