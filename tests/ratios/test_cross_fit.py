"""Held-out values against fits made by hand without the fold; the stored form; calibration."""

import torch

from vestige.core import rng
from vestige.ratios import Logistic
from vestige.ratios.base import Sample, known_ratios
from vestige.ratios.calibration import platt
from vestige.ratios.cross_fit import CrossFit, cross_fit
from vestige.ratios.stack.stack import assign_folds
from vestige.store.codec import decode, encode

BASE = Logistic(kind="quadratic")
OPTIONS = {"folds": 3, "seed": 7}


def draw(n, seed, shift=0.0):
    return shift + torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


P, Q = draw(120, 0), draw(150, 1, 0.5)
W = torch.softmax(draw(120, 2)[:, 0], 0)


def test_every_row_is_judged_by_the_fit_that_has_not_seen_it():
    found = cross_fit(BASE, Sample(P, Q, W), calibrated=False, **OPTIONS)
    even = torch.full((150,), 1 / 150, dtype=torch.float64)
    fold_p, fold_q = (assign_folds(w, 3, generator=rng.fork(7, "folds", i)) for i, w in enumerate((W, even)))
    inside = 0.0
    for k in range(3):
        fit = Logistic(kind="quadratic").fit(P[fold_p != k], Q[fold_q != k], p_weights=W[fold_p != k])
        torch.testing.assert_close(found.log_ratio_p[fold_p == k], fit.log_ratio(P[fold_p == k]))
        torch.testing.assert_close(found.log_ratio_q[fold_q == k], fit.log_ratio(Q[fold_q == k]))
        w = W[fold_p != k] / W[fold_p != k].sum()
        inside += float(w @ fit.log_ratio(P[fold_p != k])) / 3
    assert abs(found.gap - (inside - float(W @ found.log_ratio_p))) < 1e-9
    assert BASE.width_ is None  # what was handed over stays unfitted


def test_the_gap_is_scaled_as_the_values_are():
    raw, found = (cross_fit(BASE, Sample(P, Q, W), calibrated=c, **OPTIONS) for c in (False, True))
    assert abs(found.ratio.affine.slope - 1) > 0.01
    assert abs(found.gap - found.ratio.affine.slope * raw.gap) < 1e-12


def test_calibration_is_platts_on_the_held_out_values_and_is_stored():
    raw, found = (cross_fit(BASE, Sample(P, Q, W), calibrated=c, **OPTIONS) for c in (False, True))
    even = torch.full((150,), 1 / 150, dtype=torch.float64)
    affine = platt(raw.log_ratio_p, raw.log_ratio_q, W, even)
    assert abs(affine.slope - 1) > 1e-3
    torch.testing.assert_close(found.log_ratio_q, affine(raw.log_ratio_q))
    x = draw(9, 3)
    torch.testing.assert_close(found.ratio.log_ratio(x), affine(raw.ratio.log_ratio(x)))
    again = decode(CrossFit, *encode(found.ratio), classes=known_ratios())
    assert torch.equal(again.log_ratio(x), found.ratio.log_ratio(x))
