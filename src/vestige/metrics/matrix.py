"""What a matrix R[trained_up_to, tested_on] says: average, forgetting, intransigence, backward and forward transfer.

Row k of `R` was measured after training on tasks 1..k, column j on the test set of task j. `k` counts tasks and starts
at 1, as in the papers; None means the last row in which anything was measured. A NaN is a cell that was not measured.
The values may be accuracies, percentages, losses or divergences: `better` says which direction is good, so that
forgetting and intransigence are positive when something was lost, and transfer is positive when something was gained.

    A_k    = 1/k     sum_{j<=k} a_{k,j}                                Chaudhry et al. 2018 (RWalk), section 3
    F_k    = 1/(k-1) sum_{j<k}  max_{l<k} a_{l,j} - a_{k,j}            the same, Eq. 3
    I_k    = a*_k - a_{k,k}                                            the same, Eq. 4
    BWT_k  = 1/(k-1) sum_{j<k}  a_{k,j} - a_{j,j}                      Lopez-Paz and Ranzato 2017
    FWT_k  = 1/(k-1) sum_{2<=j<=k} a_{j-1,j} - b_j                     the same; b: a model before any training

Choices where the papers are silent:
- The maximum of Eq. 3 runs over every row before k that was measured, rows before task j was learnt among them; it
  excludes row k, so forgetting can be negative.
- An average is NaN when one of its terms was not measured: over fewer tasks it would be another quantity.
- After one task nothing can have been forgotten or transferred: F, BWT and FWT are NaN there, not 0.
- Positive and negative parts are taken task by task and then averaged, so that a transfer is their difference.
- RWalk calls a negative forgetting "positive backward transfer" and a negative intransigence "positive forward
  transfer"; here those names are Lopez-Paz and Ranzato's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind, as_tensor
from vestige.core.estimate import Estimate

# +1 where larger is better: accuracy; -1 where smaller is: loss, divergence.
DIRECTIONS: dict[str, float] = {"up": 1.0, "down": -1.0}


# No accuracy is a larger fraction than this, whatever was rounded or smoothed; what is, is a percentage.
LARGEST_FRACTION = 1.5
SHOWN_CELLS = 3  # that a refusal names


@dataclass(frozen=True)
class MatrixSummary:
    """Every quantity after 1, 2, ... tasks, and by task after the last; NaN: undefined; None: nothing to compare to."""

    better: str
    matrix: Float[Tensor, "rows tasks"]
    average: tuple[float, ...]
    forgetting: tuple[float, ...]
    intransigence: tuple[float, ...] | None
    backward_transfer: tuple[float, ...]
    forward_transfer: tuple[float, ...] | None
    forgetting_per_task: tuple[float, ...]
    backward_transfer_per_task: tuple[float, ...]
    forward_transfer_per_task: tuple[float, ...] | None

    QUANTITIES: ClassVar[tuple[str, ...]] = (
        "average",
        "forgetting",
        "intransigence",
        "backward_transfer",
        "forward_transfer",
    )

    @property
    def trained(self) -> int:
        """How many tasks were learnt when the last measured row was measured."""
        return len(self.average)

    def last(self) -> dict[str, float | None]:
        """Each quantity after the last task."""
        values = {name: getattr(self, name) for name in self.QUANTITIES}
        return {name: value[-1] if value is not None else None for name, value in values.items()}


def over_seeds(summaries: Sequence[MatrixSummary], level: float = 0.95) -> dict[str, Estimate]:
    """Each quantity after the last task as a mean over runs of different seeds, with Student's interval.

    A run in which it is undefined does not count; with fewer than two runs there is no interval.
    """
    from scipy.special import stdtrit

    found = {}
    for name in MatrixSummary.QUANTITIES:
        values = [value for one in summaries if (value := one.last()[name]) is not None and not math.isnan(value)]
        if not values:
            continue
        mean, n = statistics.fmean(values), len(values)
        se = statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan
        reach = float(stdtrit(n - 1, (1 + level) / 2)) * se if n > 1 else math.nan
        found[name] = Estimate(mean, mean - reach, mean + reach, level, se, n, name=name)
    return found


def oriented(R: ArrayLike, k: int | None, owner: str, better: str = "up") -> tuple[Float[Tensor, "rows tasks"], int]:
    """`R` with larger values better, and the row that is asked for, counted from 1."""
    checks.one_of(better, DIRECTIONS, "better", owner)
    M = checks.matrix(R, "R", owner, finite=False)
    rows, tasks = M.shape
    if rows > tasks:
        must = f"at most as many rows as columns ({tasks}): row k is measured after task k"
        checks.refuse("R", owner, must + ", and a row from before any training is a 'baseline'", f"{rows} rows")
    measured = (~M.isnan()).any(dim=1).nonzero()
    if not len(measured):
        checks.refuse("R", owner, "measured somewhere", "NaN in every cell")
    k = int(measured[-1]) + 1 if k is None else checks.whole(k, "k", owner, low=1, high=rows)
    return M * DIRECTIONS[better], k


def require_one_scale(R: ArrayLike, owner: str, *, better: str = "up") -> None:
    """Refuse accuracies some of which are fractions and some percentages: in (0, 1), and above 1.5.

    Looked at are matrices that can be accuracies: larger is better, every cell in [0, 100]. A 0 and a 1 may be either.
    That a cell in (0, 1) is a fraction is certain on the diagonal, where a task was just learnt. Elsewhere it could be
    an accuracy below one percent; since nobody can tell, it is refused too: fractions throughout can say it.
    """
    M = checks.matrix(R, "R", owner, finite=False)
    known = M[~M.isnan()]
    if better != "up" or not known.numel() or float(known.min()) < 0 or float(known.max()) > 100:
        return
    small, large = ((M > 0) & (M < 1)).nonzero().tolist(), (M > LARGEST_FRACTION).nonzero().tolist()
    if small and large:
        named = [f"{float(M[i, j]):.4g} in row {i + 1}, column {j + 1}" for i, j in (*small[:SHOWN_CELLS], large[0])]
        more = f" and {len(small) - SHOWN_CELLS} more" if len(small) > SHOWN_CELLS else ""
        must = (
            "fractions in every cell or percentages in every cell (below 1 percent, only fractions can be told apart)"
        )
        checks.refuse("R", owner, must, f"{', '.join(named[:-1])}{more} beside {named[-1]}")


def _by_task(value: ArrayLike, tasks: int, rows: int, name: str, owner: str) -> Float[Tensor, " n"]:
    """One value a task, NaN where it was not measured; a value for each row is enough."""
    vector = checks.vector(value, name, owner, finite=False)
    if bool(vector.isinf().any()):
        checks.refuse(name, owner, "finite, or NaN where nothing was measured", "an infinite value")
    if len(vector) not in (rows, tasks):
        must = f"{tasks} long, one value a task" if rows == tasks else f"{tasks} long (tasks) or {rows} (rows of 'R')"
        checks.refuse(name, owner, must, f"{len(vector)}")
    return vector


# The terms, for every row and task at once. Each takes a checked float64 matrix in which larger is better, NaN where
# nothing was measured.


def forgetting_terms(M: Float[Tensor, "rows tasks"]) -> Float[Tensor, "rows tasks"]:
    """f[k, j]; of each row k the first k - 1 are the paper's."""
    best = M.nan_to_num(nan=-math.inf).cummax(dim=0).values  # so that a row that was not measured is passed over
    best = best.masked_fill(best.isinf(), math.nan)
    never = torch.full_like(M[:1], math.nan)
    return torch.cat([never, best[:-1]]) - M  # Eq. 3: the maximum is over rows before k


def backward_terms(M: Float[Tensor, "rows tasks"]) -> Float[Tensor, "rows tasks"]:
    """a[k, j] - a[j, j]; of each row k the first k - 1 are the paper's."""
    learnt = torch.full_like(M[0], math.nan)
    learnt[: len(M)] = M.diagonal()
    return M - learnt


def intransigence_terms(M: Float[Tensor, "rows tasks"], reference: ArrayLike, better: str) -> Float[Tensor, " rows"]:
    """I_1 .. I_rows."""
    rows, tasks = M.shape
    shape = as_tensor(reference, "reference", "intransigence").shape
    if len(shape) == 2 and 1 not in shape:
        whole = checks.matrix(reference, "reference", "intransigence", finite=False)
        if min(whole.shape) < rows:
            must = f"a matrix with at least {rows} rows and columns, or one value a task"
            checks.refuse("reference", "intransigence", must, f"shape {tuple(whole.shape)}")
        best = whole.diagonal()
    else:
        best = _by_task(reference, tasks, rows, "reference", "intransigence")
    return best[:rows] * DIRECTIONS[better] - M.diagonal()


def forward_terms(M: Float[Tensor, "rows tasks"], baseline: ArrayLike, better: str) -> Float[Tensor, " n"]:
    """a_{j-1,j} - b_j for j = 2..rows."""
    rows, tasks = M.shape
    b = _by_task(baseline, tasks, rows, "baseline", "forward_transfer")[1:rows]
    return M.diagonal(offset=1)[: rows - 1] - b * DIRECTIONS[better]


# The quantities.


def average_accuracy(R: ArrayLike, k: int | None = None) -> float:
    """A_k: the mean over tasks 1..k of row k, whatever it measures."""
    M, k = oriented(R, k, "average_accuracy")
    return float(M[k - 1, :k].mean())


def forgetting_per_task(R: ArrayLike, k: int | None = None, *, better: str = "up") -> Any:  # noqa: ANN401
    """f_1^k .. f_{k-1}^k (Eq. 3), in the kind of array that `R` is."""
    M, k = oriented(R, k, "forgetting", better)
    return _give(R, forgetting_terms(M)[k - 1, : k - 1], first=0)


def forgetting(R: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """F_k: the mean drop of tasks 1..k-1 from their best value in any row before k to row k."""
    M, k = oriented(R, k, "forgetting", better)
    return float(forgetting_terms(M)[k - 1, : k - 1].mean())


def intransigence_per_task(R: ArrayLike, reference: ArrayLike, k: int | None = None, *, better: str = "up") -> Any:  # noqa: ANN401
    """I_1 .. I_k (Eq. 4), in the kind of array that `R` is."""
    M, k = oriented(R, k, "intransigence", better)
    return _give(R, intransigence_terms(M, reference, better)[:k], first=0)


def intransigence(R: ArrayLike, reference: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """I_k (Eq. 4): how far task k, just learnt, stays behind a model trained on tasks 1..k together.

    `reference` holds that model's a*_k by task, or is its whole matrix, of which the diagonal is taken.
    """
    M, k = oriented(R, k, "intransigence", better)
    return float(intransigence_terms(M, reference, better)[k - 1])


def average_intransigence(R: ArrayLike, reference: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """The mean of I_1 .. I_k; the paper prints I_k, which is `intransigence`."""
    M, k = oriented(R, k, "intransigence", better)
    return float(intransigence_terms(M, reference, better)[:k].mean())


def backward_transfer_per_task(R: ArrayLike, k: int | None = None, *, better: str = "up") -> Any:  # noqa: ANN401
    """a_{k,j} - a_{j,j} for j = 1..k-1, in the kind of array that `R` is."""
    M, k = oriented(R, k, "backward_transfer", better)
    return _give(R, backward_terms(M)[k - 1, : k - 1], first=0)


def backward_transfer(R: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """BWT_k: the mean change of tasks 1..k-1 since each was learnt."""
    M, k = oriented(R, k, "backward_transfer", better)
    return float(backward_terms(M)[k - 1, : k - 1].mean())


def positive_backward_transfer(R: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """The gains in BWT_k alone: BWT_k = positive - negative."""
    M, k = oriented(R, k, "positive_backward_transfer", better)
    return float(backward_terms(M)[k - 1, : k - 1].clamp(min=0).mean())


def negative_backward_transfer(R: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """The losses in BWT_k alone, as a number that is 0 or larger."""
    M, k = oriented(R, k, "negative_backward_transfer", better)
    return float((-backward_terms(M)[k - 1, : k - 1]).clamp(min=0).mean())


def forward_transfer_per_task(R: ArrayLike, baseline: ArrayLike, k: int | None = None, *, better: str = "up") -> Any:  # noqa: ANN401
    """a_{j-1,j} - b_j for j = 2..k, in the kind of array that `R` is."""
    M, k = oriented(R, k, "forward_transfer", better)
    return _give(R, forward_terms(M, baseline, better)[: k - 1], first=1)


def forward_transfer(R: ArrayLike, baseline: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """FWT_k: how much better than `baseline` tasks 2..k were just before each was learnt.

    `baseline` holds one value a task: the model at its random initialisation.
    """
    M, k = oriented(R, k, "forward_transfer", better)
    return float(forward_terms(M, baseline, better)[: k - 1].mean())


def positive_forward_transfer(R: ArrayLike, baseline: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """The gains in FWT_k alone: FWT_k = positive - negative."""
    M, k = oriented(R, k, "positive_forward_transfer", better)
    return float(forward_terms(M, baseline, better)[: k - 1].clamp(min=0).mean())


def negative_forward_transfer(R: ArrayLike, baseline: ArrayLike, k: int | None = None, *, better: str = "up") -> float:
    """The losses in FWT_k alone, as a number that is 0 or larger."""
    M, k = oriented(R, k, "negative_forward_transfer", better)
    return float((-forward_terms(M, baseline, better)[: k - 1]).clamp(min=0).mean())


def summary(
    R: ArrayLike, reference: ArrayLike | None = None, baseline: ArrayLike | None = None, *, better: str = "up"
) -> MatrixSummary:
    """A, F and BWT at every k; I where a `reference` is given, FWT where a `baseline` is."""
    M, k = oriented(R, None, "summary", better)
    forgot, back = forgetting_terms(M), backward_terms(M)
    stubborn = None if reference is None else intransigence_terms(M, reference, better)
    ahead = None if baseline is None else forward_terms(M, baseline, better)
    counts, as_given = range(1, k + 1), M * DIRECTIONS[better]
    return MatrixSummary(
        better=better,
        matrix=as_given,
        average=tuple(float(as_given[i - 1, :i].mean()) for i in counts),
        forgetting=tuple(float(forgot[i - 1, : i - 1].mean()) for i in counts),
        intransigence=None if stubborn is None else tuple(stubborn[:k].tolist()),
        backward_transfer=tuple(float(back[i - 1, : i - 1].mean()) for i in counts),
        forward_transfer=None if ahead is None else tuple(float(ahead[: i - 1].mean()) for i in counts),
        forgetting_per_task=tuple(forgot[k - 1, : k - 1].tolist()),
        backward_transfer_per_task=tuple(back[k - 1, : k - 1].tolist()),
        forward_transfer_per_task=None if ahead is None else tuple(ahead[: k - 1].tolist()),
    )


def _give(R: ArrayLike, result: Float[Tensor, " n"], *, first: int) -> Any:  # noqa: ANN401
    """`result` as the kind of `R`; a DataFrame's columns name the tasks, from number `first`."""
    kind = Kind.of(R)
    if isinstance(R, pd.DataFrame):
        kind = replace(kind, index=R.columns[first : first + len(result)])
    return kind.give(result)
