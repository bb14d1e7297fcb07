"""Metrics of accuracy while training: what a learner can do between the borders of tasks, not at them alone.

A curve has a row for each moment at which the learner was tested and a column for each task, NaN for tasks to come.
`training[n]` is the task that was training at moment n. The last moment of a task is its border.

`min_acc` and `wc_acc` are those of De Lange, van de Ven and Tuytelaars (2023, "Continual evaluation for lifelong
learning: identifying the stability gap", section 3), as their published code computes them: with A(E_i, n) the accuracy
on task i at moment n, k the last task, and T_i the moments at which task i trains,

    min-ACC_k = 1/(k-1) sum_{i<k} min_{n after T_i} A(E_i, n)
    WC-ACC_k  = 1/k A(E_k, last n) + (1 - 1/k) min-ACC_k

`average_anytime` is the average anytime accuracy of Caccia et al. (2022): the mean over moments of the mean accuracy on
the tasks seen so far. `stability_gap` is ours, for De Lange et al. draw the gap and give it no number: of what an old
task loses while the next one trains, the part that has come back when that one ends.

    gap_ik = min(A(E_i) before task k, A(E_i) at its border) - min_{n in T_k} A(E_i, n),   at least 0,

averaged over old tasks i < k and tasks k. All four are of the moments that were tested: a minimum between two of them
is not seen, so that rarer tests give a higher min-ACC and a smaller gap.
"""

from __future__ import annotations

import math
from statistics import fmean

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vestige.core.checks import ArrayLike, as_tensor, refuse


def checked(curve: ArrayLike, training: ArrayLike, owner: str) -> tuple[Float64[Tensor, "m t"], Int64[Tensor, " m"]]:
    """The curve and the task of each of its moments, in order."""
    found = as_tensor(curve, "curve", owner).to(torch.float64)
    tasks = as_tensor(training, "training", owner).long()
    if found.ndim != 2 or len(found) == 0:
        refuse("curve", owner, "a row for each moment and a column for each task", f"shape {tuple(found.shape)}")
    if tasks.shape != (len(found),) or bool((tasks.diff() < 0).any()) or int(tasks.max()) >= found.shape[1]:
        refuse("training", owner, f"a task for each of {len(found)} moments, in order", tasks.tolist())
    return found, tasks


def min_acc(curve: ArrayLike, training: ArrayLike) -> float:
    """min-ACC after the last moment; NaN where no task is old.

    Example
    -------
    >>> round(min_acc([[0.9, float("nan")], [0.5, 0.6], [0.8, 0.7]], [0, 1, 1]), 3)
    0.5
    """
    found, tasks = checked(curve, training, "min_acc")
    lows = [found[tasks > i, i] for i in range(int(tasks[-1]))]
    known = [float(low[~low.isnan()].min()) for low in lows if bool((~low.isnan()).any())]
    return fmean(known) if known else math.nan


def wc_acc(curve: ArrayLike, training: ArrayLike) -> float:
    """WC-ACC after the last moment; the accuracy itself where there is one task."""
    found, tasks = checked(curve, training, "wc_acc")
    k = int(tasks[-1])
    now = float(found[-1, k])
    return now if k == 0 else now / (k + 1) + (1 - 1 / (k + 1)) * min_acc(found, tasks)


def average_anytime(curve: ArrayLike, training: ArrayLike) -> float:
    """Mean over moments of the mean accuracy on the tasks that were seen."""
    found, tasks = checked(curve, training, "average_anytime")
    return fmean(float(row[: int(k) + 1].nanmean()) for row, k in zip(found, tasks, strict=True))


def stability_gap(curve: ArrayLike, training: ArrayLike) -> float:
    """Mean over old tasks and tasks of the loss that has come back at the border; NaN where no task is old."""
    found, tasks = checked(curve, training, "stability_gap")
    gaps = []
    for k in range(1, int(tasks[-1]) + 1):
        before, during = found[tasks < k], found[tasks == k]
        if len(before) and len(during):
            gap = torch.minimum(before[-1, :k], during[-1, :k]) - during[:, :k].amin(0)
            gaps += [max(float(g), 0.0) for g in gap if not g.isnan()]
    return fmean(gaps) if gaps else math.nan


def anytime(curve: ArrayLike, training: ArrayLike) -> dict[str, float]:
    """All four, by name."""
    return {
        "min-ACC": min_acc(curve, training),
        "WC-ACC": wc_acc(curve, training),
        "average anytime": average_anytime(curve, training),
        "stability gap": stability_gap(curve, training),
    }
