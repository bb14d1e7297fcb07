"""PRD against its definition in loops, and in cases where the curve is known."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise_distances_argmin

from vestige.core.errors import InputError
from vestige.metrics.precision_recall import PRD, curve, f_score, histograms, prd


def points_by_definition(p, q, angles):
    points = []
    for angle in np.linspace(1e-10, math.pi / 2 - 1e-10, angles):
        slope = math.tan(angle)
        precision = sum(min(slope * a, b) for a, b in zip(p, q, strict=True))
        points.append((precision, sum(min(a, b / slope) for a, b in zip(p, q, strict=True))))
    return points


def test_curve_and_f_scores_agree_with_the_definition():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    points = points_by_definition(p, q, 101)
    precision, recall = curve(torch.from_numpy(p), torch.from_numpy(q), 101)
    np.testing.assert_allclose(np.c_[precision, recall], points, rtol=1e-9)
    for beta in (8, 1 / 8):
        best = max((1 + beta**2) * a * b / (beta**2 * a + b) for a, b in points)
        assert float(f_score(precision, recall, beta)) == pytest.approx(best, rel=1e-9)


def test_histograms_are_nearest_centres_for_every_run():
    rng = np.random.default_rng(1)
    x, w, centres = rng.normal(size=(5000, 3)) + 1e4, rng.random(5000), rng.normal(size=(2, 7, 3)) + 1e4
    counts = histograms(torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(centres))
    for run in range(2):
        nearest = pairwise_distances_argmin(x, centres[run])
        expected = np.bincount(nearest, weights=w, minlength=7)
        # float32 may decide a tie on a border differently.
        np.testing.assert_allclose(counts[run], expected, atol=3)
    assert float(counts.sum()) == pytest.approx(2 * w.sum())


def blobs(shares, n, seed=0):
    rng = np.random.default_rng(seed)
    which = rng.choice(len(shares), n, p=shares)
    return 50.0 * np.eye(len(shares))[which] + rng.normal(size=(n, len(shares)))


def test_a_dropped_mode_costs_recall_and_an_invented_one_precision():
    real, half = blobs([0.25] * 4, 2000), blobs([0.5, 0.5, 0, 0], 2000, 1)
    dropped = prd(real, half, clusters=4, runs=2)
    assert float(dropped.precision.max()) == pytest.approx(1, abs=0.01)
    assert float(dropped.recall.max()) == pytest.approx(0.5, abs=0.03)
    assert dropped.f8 < 0.6 < 0.9 < dropped.f1_8
    invented = prd(half, real, clusters=4, runs=2)
    assert invented.f1_8 < 0.6 < 0.9 < invented.f8


def test_weights_mend_a_skewed_model():
    real, skewed = blobs([0.5, 0.5], 2000), blobs([0.9, 0.1], 4000, 1)
    weights = np.where(skewed[:, 0] > 25, 0.5 / 0.9, 0.5 / 0.1)
    plain, mended = prd(real, skewed, clusters=2, runs=2), prd(real, skewed, q_weights=weights, clusters=2, runs=2)
    assert plain.f8 < 0.95 < 0.97 < mended.f8
    assert mended.details["ess_q"] < 2000


def test_whole_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    x, y, w = rng.normal(size=(100, 2)), rng.normal(size=(80, 2)) + 0.5, rng.integers(1, 4, 100)
    centres = PRD.centres(x, y, clusters=5, runs=3)
    model = PRD(centres).update(y)
    weighted, repeated = PRD(centres).update(x, w), PRD(centres).update(np.repeat(x, w, axis=0))
    torch.testing.assert_close(weighted.compute(model).precision, repeated.compute(model).precision)


def test_the_same_law_reaches_its_baseline_not_one():
    rng = np.random.default_rng(3)
    results = [prd(rng.normal(size=(500, 4)), rng.normal(size=(500, 4)), runs=3, seed=s) for s in range(8)]
    reached, baseline = np.mean([r.f8 for r in results]), np.mean([r.same_law["f8"] for r in results])
    assert baseline < 0.99
    assert reached == pytest.approx(baseline, abs=0.004)


def test_standard_error_is_near_the_spread_over_data_sets():
    rng = np.random.default_rng(4)
    results = [
        prd(rng.normal(size=(400, 2)), rng.normal(size=(400, 2)) + 1.0, clusters=8, runs=2, angles=201)
        for _ in range(40)
    ]
    for name in ("f8", "f1_8"):
        spread = np.std([getattr(r, name) for r in results])
        assert 0.6 < np.mean([r.std_error[name] for r in results]) / spread < 1.6, name


def test_the_seed_decides_everything():
    x, y = blobs([0.5, 0.5], 300), blobs([0.3, 0.7], 300, 1)
    first, second = prd(x, y, seed=5), prd(x, y, seed=5)
    assert torch.equal(first.precision, second.precision)
    assert (first.same_law, first.std_error) == (second.same_law, second.std_error)
    assert not torch.equal(first.precision, prd(x, y, seed=6).precision)


def test_few_rows_constants_and_integers():
    constant = prd(np.ones((5, 2)), np.ones((5, 2)))
    assert constant.f8 == pytest.approx(1)
    assert prd(np.zeros((2, 2)), np.ones((2, 2)), clusters=2).f8 == pytest.approx(0, abs=1e-6)
    images = np.random.default_rng(0).integers(0, 256, (30, 2, 2), dtype=np.uint8)
    assert 0 < prd(images[:15], images[15:], clusters=3).f8 <= 1


def test_bad_input():
    x = np.zeros((5, 2))
    with pytest.raises(InputError, match="clusters"):
        prd(x, x, clusters=1)
    with pytest.raises(InputError, match="finite"):
        prd(x * np.nan, x)
    with pytest.raises(InputError, match="centres"):
        PRD(np.zeros(3))
    with pytest.raises(InputError, match="2 features wide"):
        PRD(np.zeros((4, 2))).update(np.zeros((3, 5)))
    with pytest.raises(InputError, match="an accumulator with"):
        PRD(np.zeros((4, 2))).update(x).compute(PRD(np.ones((4, 2))).update(x))
