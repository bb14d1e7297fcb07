"""FID against scipy's matrix square root, closed forms, and the spread over repeated data sets."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import torch

from vestige.core.errors import InputError, VestigeWarning
from vestige.metrics.fid import FID, fid


def by_square_root(x, y):
    s_x, s_y = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    gap = np.square(x.mean(0) - y.mean(0)).sum()
    return gap + np.trace(s_x + s_y) - 2 * np.trace(scipy.linalg.sqrtm(s_x @ s_y)).real


def two_sets(n=300, m=200, d=8, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) / d**0.5
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) @ mixing + 0.3


def test_agrees_with_the_matrix_square_root():
    x, y = two_sets()
    assert fid(x, y).value == pytest.approx(by_square_root(x, y), rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(5, 6), (5, 200), (200, 5), (2, 2)])
def test_fewer_samples_than_features(n, m):
    x, y = two_sets(n, m, d=20)
    gram = fid(x, y)
    assert gram.details["form"] == "gram"
    # scipy's root of a singular matrix is good to 1e-6 only; the moments are a second way to the same number.
    assert gram.value == pytest.approx(by_square_root(x, y), rel=1e-5)
    assert gram.value == pytest.approx(FID().update(x).compute(FID().update(y)).value, rel=1e-9)


def test_closed_form_of_scaled_and_shifted_copies():
    x, _ = two_sets(d=5)
    y = 2 * x + 1  # S_y = 4 S_x, so the root of the product is 2 S_x
    expected = np.square((2 * x + 1).mean(0) - x.mean(0)).sum() + np.trace(np.cov(x, rowvar=False))
    assert fid(x, y).value == pytest.approx(expected, rel=1e-10)
    assert fid(x, x).value == pytest.approx(0, abs=1e-9)


def test_one_feature_is_the_distance_of_two_gaussians():
    x, y = two_sets(d=1)
    expected = (x.mean() - y.mean()) ** 2 + (x.std(ddof=1) - y.std(ddof=1)) ** 2
    assert fid(x[:, 0], y[:, 0]).value == pytest.approx(expected, rel=1e-9)


def test_weights_are_those_of_the_reliability_form():
    x, y = two_sets()
    w = np.random.default_rng(1).random(len(x))
    mean, covariance = np.average(x, axis=0, weights=w), np.cov(x, rowvar=False, aweights=w)
    s_y = np.cov(y, rowvar=False)
    root = scipy.linalg.sqrtm(covariance @ s_y)
    expected = np.square(mean - y.mean(0)).sum() + np.trace(covariance + s_y) - 2 * np.trace(root).real
    assert fid(x, y, p_weights=w).value == pytest.approx(expected, rel=1e-9)
    assert fid(y, x, q_weights=w * 1e6).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("d", [8, 400])
def test_weight_zero_is_absence_and_equal_weights_are_none(d):
    x, y = two_sets(d=d)
    w = np.ones(len(x))
    assert fid(x, y, p_weights=w).value == pytest.approx(fid(x, y).value, rel=1e-9)
    w[100:] = 0
    assert fid(x, y, p_weights=w).value == pytest.approx(fid(x[:100], y).value, rel=1e-9)


def test_a_side_that_is_one_point_has_a_standard_error():
    q = np.random.default_rng(0).normal(size=(400, 2))
    found = fid(np.zeros((50, 2)), q, std_error=True)
    # |mean|^2 + trace of the covariance: what a row adds is |q|^2 about, whose variance is 4
    assert found.value == pytest.approx(q.mean(0) @ q.mean(0) + np.trace(np.cov(q.T)))
    assert found.std_error == pytest.approx(np.square(q).sum(1).std(ddof=1) / 20, rel=0.02)


def test_constant_columns_and_integer_images():
    x, y = two_sets()
    dead = np.c_[x, np.full(len(x), 7.0)], np.c_[y, np.full(len(y), 7.0)]
    assert fid(*dead).value == pytest.approx(fid(x, y).value, rel=1e-9)
    one_sided = fid(np.c_[x, np.zeros(len(x))], np.c_[y, y[:, 0]]).value
    assert one_sided == pytest.approx(fid(x, y).value + y[:, 0].mean() ** 2 + y[:, 0].var(ddof=1), rel=0.2)
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 3), dtype=np.uint8)
    flat = images.reshape(40, 9).astype(float)
    assert fid(images[:20], images[20:]).value == pytest.approx(by_square_root(flat[:20], flat[20:]), rel=1e-9)
    assert fid(np.ones((5, 3)), np.full((5, 3), 3.0)).value == pytest.approx(12)


def test_kinds_of_arrays():
    x, y = two_sets()
    expected = fid(x, y).value
    assert float(fid(torch.from_numpy(x), y.tolist())) == pytest.approx(expected)
    assert fid(pd.DataFrame(x), y).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("p", "q", "weights", "said"),
    [
        ([[1.0, math.nan]] * 3, [[1.0, 2.0]] * 3, None, "finite"),
        ([[1.0, 2.0]] * 3, [[1.0]] * 3, None, "as wide as"),
        ([[1.0, 2.0]], [[1.0, 2.0]] * 3, None, "at least 2"),
        (np.zeros((0, 2)), [[1.0, 2.0]] * 3, None, "at least 2"),
        ([[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3, [1, -1, 1], "0 or larger"),
        ([[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3, [0, 0, 0], "positive somewhere"),
        ([[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3, [0, 1, 0], "at least 2 samples"),
        ([[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3, [1, 1e-300, 0], "more than one sample"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(p, q, weights, said):
    with pytest.raises(InputError, match=said):
        fid(p, q, p_weights=weights)


def test_extrapolation_removes_the_bias():
    rng = np.random.default_rng(0)
    plain, extrapolated = [], []
    for _ in range(20):
        result = fid(rng.normal(size=(300, 16)), rng.normal(size=(300, 16)), extrapolate=True)
        extrapolated.append(result.value)
        plain.append(result.value + result.details["bias_removed"])
    assert np.mean(plain) > 0.4
    assert abs(np.mean(extrapolated)) < 4 * np.std(extrapolated) / 20**0.5 + 0.02


def test_extrapolation_with_weights_goes_by_effective_sample_size():
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(20):
        x, y = rng.normal(size=(600, 8)), rng.normal(size=(600, 8))
        x[:, 0] -= 1
        errors.append(fid(x, y, p_weights=np.exp(x[:, 0]), extrapolate=True).value)  # p becomes N(0, 1) again
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 20**0.5 + 0.02


def test_extrapolation_warns_where_it_is_poor():
    x, y = two_sets(30, 30, d=40)
    with pytest.warns(VestigeWarning, match="extrapolates poorly"):
        fid(x, y, extrapolate=True)
    with pytest.raises(InputError, match="at least 4"):
        fid(x[:3], y, extrapolate=True)
    with pytest.raises(InputError, match="8 for a standard error"):
        fid(x[:6], y, std_error=True)


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_standard_error_is_the_spread_over_data_sets(scale):
    rng = np.random.default_rng(2)
    results = [fid(rng.normal(size=(300, 4)), scale * rng.normal(size=(200, 4)), std_error=True) for _ in range(40)]
    spread = np.std([r.value for r in results])
    assert np.mean([r.std_error for r in results]) == pytest.approx(spread, rel=0.35)


@pytest.mark.parametrize(("n", "m", "d"), [(120, 90, 3), (30, 25, 40), (30, 60, 40), (60, 30, 40)])
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_error_is_the_jackknifes(n, m, d, weighted):
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(d, d)) / d**0.5
    x, y = rng.normal(size=(n, d)) @ mixing, rng.gamma(2.0, size=(m, d)) @ mixing
    w = rng.uniform(0.2, 1.0, size=m) if weighted else np.ones(m)
    variance = 0.0
    for rows, left in (
        (x, lambda i: (np.delete(x, i, 0), y, w)),
        (y, lambda i: (x, np.delete(y, i, 0), np.delete(w, i))),
    ):
        values = np.array([fid(a, b, q_weights=v).value for a, b, v in map(left, range(len(rows)))])
        variance += (len(rows) - 1) * values.var()
    found = fid(x, y, q_weights=w if weighted else None, std_error=True).std_error
    # Rows of a thin set hold up their own directions, so that leaving one out is no small step.
    assert found == pytest.approx(variance**0.5, rel=0.08 if d < min(n, m) else 0.35)


def test_accumulator_extrapolates_and_errs_as_the_function_does():
    x, y = two_sets(400, 400)
    ours = FID(groups=20).update(x).compute(FID(groups=20).update(y), extrapolate=True, std_error=True)
    theirs = fid(x, y, extrapolate=True, std_error=True)
    assert ours.value == pytest.approx(theirs.value, rel=1e-9)
    assert ours.std_error == pytest.approx(theirs.std_error, rel=0.5)  # twenty groups against every row
    with pytest.raises(InputError, match="4 groups"):
        FID().update(x).compute(FID().update(y), std_error=True)


def test_agrees_with_torchmetrics():
    image = pytest.importorskip("torchmetrics.image.fid", exc_type=ImportError)
    x, y = (torch.from_numpy(side) for side in two_sets())
    peer = image._compute_fid(x.mean(0), torch.cov(x.mT), y.mean(0), torch.cov(y.mT))
    assert fid(x, y).value == pytest.approx(float(peer), rel=1e-8)
