"""Student t pairs with finite divergences, and heavy tails against light ones.

KL(t || normal) is infinite from two degrees of freedom down: the variance is. With three it is finite, but the
log-ratio has no variance, so no average of it over draws has a standard error.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.zoo.gaussians import ar1, equal
from benchmarks.zoo.laws import Law, normal, pair_of, radial, scipy_law, student
from benchmarks.zoo.pair import Pair, copies, product, same, swapped


def located(df: float, d: int, distance: float, scale: np.ndarray | float = 1.0) -> Pair:
    """Two t with the same scale, `distance` apart along the diagonal."""
    return pair_of(student(df, np.full(d, distance / d**0.5), scale), student(df, np.zeros(d), scale), _whole)


def _whole() -> dict[str, float]:
    return {"reach_p": 1.0, "reach_q": 1.0}


def _t(df: float, d: int) -> Law:
    return student(df, np.zeros(d))


def pairs() -> list[Pair]:
    found = {
        "t5-shift-d1": located(5, 1, 1.0),
        "t3-shift-d2": located(3, 2, 1.5),
        "t3-shift-d5": located(3, 5, 1.2),
        "t5-shift-d8": located(5, 8, 1.0),
        "t5-shift-d20": located(5, 20, 1.5, ar1(20, 0.5)),
        "t5-t30-d3": radial(_t(5, 3), _t(30, 3)),
        "t3-t10-d10": radial(_t(3, 10), _t(10, 10)),
        "t10-t4-d30": radial(_t(10, 30), _t(4, 30)),
        "t5-scale-d2": radial(student(5, np.zeros(2), 2.0), _t(5, 2)),
        "t4-corr-d5": pair_of(student(4, np.zeros(5), equal(5, 0.5)), _t(4, 5), _whole),
        "t4-columns-d8": product(copies(located(4, 1, 0.5), 4), same(copies(located(4, 1, 0.0), 4).draw_p, 4)),
    }
    cauchy, gauss = scipy_law(stats.cauchy()), normal(0.0, 1.0)
    gumbels = pair_of(scipy_law(stats.gumbel_r()), scipy_law(stats.gumbel_l()))  # E[e^x] of a Gumbel is infinite
    tails = {
        "tails-t2-normal-d1": radial(_t(2, 1), gauss),
        "tails-normal-t2-d1": swapped(radial(_t(2, 1), gauss)),
        "tails-t2-normal-d3": radial(_t(2, 3), normal(np.zeros(3), 1.0)),
        "tails-normal-t2-d3": swapped(radial(_t(2, 3), normal(np.zeros(3), 1.0))),
        "tails-cauchy-normal-d2": product(pair_of(cauchy, gauss), same(gauss.draw, 1)),
        "tails-t2-normal-columns-d5": product(radial(_t(2, 1), gauss), same(normal(np.zeros(4), 1.0).draw, 4)),
        "tails-gumbel-mirrored-d2": product(gumbels, same(gauss.draw, 1)),
        "tails-t3-normal-d1": radial(_t(3, 1), gauss),
        "tails-normal-t3-d5": swapped(radial(_t(3, 5), normal(np.zeros(5), 1.0))),
        "tails-cauchy-t5-d1": pair_of(cauchy, scipy_law(stats.t(5))),
        "tails-t3-normal-scaled-d10": radial(_t(3, 10), normal(np.zeros(10), 3.0)),
    }
    return [
        *(pair.named(name, "student") for name, pair in found.items()),
        *(pair.named(name, "tails") for name, pair in tails.items()),
    ]
