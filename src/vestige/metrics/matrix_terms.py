"""The terms behind `vestige.metrics.matrix`, for every row and task at once: no loop over k, tasks or rows.

Every function here takes a checked float64 matrix in which larger is better (`oriented`), NaN where nothing was
measured. The definitions, and the equations they come from, stand in `matrix.py`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike

# +1 where larger is better: accuracy; -1 where smaller is: loss, divergence.
DIRECTIONS: dict[str, float] = {"up": 1.0, "down": -1.0}


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


def _by_task(value: ArrayLike, tasks: int, rows: int, name: str, owner: str) -> Float[Tensor, " n"]:
    """One value a task, NaN where it was not measured; a value for each row is enough."""
    vector = checks.vector(value, name, owner, finite=False)
    if bool(vector.isinf().any()):
        checks.refuse(name, owner, "finite, or NaN where nothing was measured", "an infinite value")
    if len(vector) not in (rows, tasks):
        must = f"{tasks} long, one value a task" if rows == tasks else f"{tasks} long (tasks) or {rows} (rows of 'R')"
        checks.refuse(name, owner, must, f"{len(vector)}")
    return vector


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
    if _is_matrix(reference):
        whole = checks.matrix(reference, "reference", "intransigence", finite=False)
        if min(whole.shape) < rows:
            must = f"a matrix with at least {rows} rows and columns, or one value a task"
            checks.refuse("reference", "intransigence", must, f"shape {tuple(whole.shape)}")
        best = whole.diagonal()
    else:
        best = _by_task(reference, tasks, rows, "reference", "intransigence")
    return best[:rows] * DIRECTIONS[better] - M.diagonal()


def _is_matrix(value: ArrayLike) -> bool:
    try:
        shape = np.shape(value)
    except ValueError:  # ragged lists, which the check of a vector refuses
        return False
    return len(shape) == 2 and 1 not in shape


def forward_terms(M: Float[Tensor, "rows tasks"], baseline: ArrayLike, better: str) -> Float[Tensor, " n"]:
    """a_{j-1,j} - b_j for j = 2..rows."""
    rows, tasks = M.shape
    b = _by_task(baseline, tasks, rows, "baseline", "forward_transfer")[1:rows]
    return M.diagonal(offset=1)[: rows - 1] - b * DIRECTIONS[better]
