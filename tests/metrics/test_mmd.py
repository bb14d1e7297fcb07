"""MMD against double loops and the closed form of Gaussians, and its standard error against simulation."""

import numpy as np
import pytest

from vestige.core.errors import InputError, NotEstimable
from vestige.metrics.mmd import MMD, mmd


def by_loops(x, y, w, v, kernel):
    def within(rows, weights):
        pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
        return sum(weights[i] * weights[j] * kernel(rows[i], rows[j]) for i, j in pairs) / (1 - (weights**2).sum())

    w, v = w / w.sum(), v / v.sum()
    cross = sum(w[i] * v[j] * kernel(x[i], y[j]) for i in range(len(x)) for j in range(len(y)))
    return within(x, w) + within(y, v) - 2 * cross


def of_gaussians(shift, scale, d, bandwidth):
    """MMD^2 between N(0, I) and N(shift, scale^2 I) under the RBF kernel."""
    b = bandwidth**2

    def mean_kernel(variance, distance):
        return (b / (b + variance)) ** (d / 2) * np.exp(-(distance**2) / (2 * (b + variance)))

    cross = mean_kernel(1 + scale**2, shift * d**0.5)
    return mean_kernel(2, 0) + mean_kernel(2 * scale**2, 0) - 2 * cross


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({"bandwidth": 1.3}, lambda a, b: np.exp(-np.square(a - b).sum() / (2 * 1.3**2))),
        ({"kernel": "polynomial", "degree": 2, "gamma": 0.7, "offset": 0.5}, lambda a, b: (0.7 * a @ b + 0.5) ** 2),
        ({"kernel": "polynomial"}, lambda a, b: (a @ b / 4 + 1) ** 3),
    ],
)
def test_agrees_with_double_loops(options, kernel):
    rng = np.random.default_rng(0)
    x, y, w, v = rng.normal(size=(14, 4)), rng.normal(size=(11, 4)) + 0.5, rng.random(14), rng.random(11)
    assert mmd(x, y, **options).value == pytest.approx(by_loops(x, y, np.ones(14), np.ones(11), kernel), rel=1e-9)
    weighted = mmd(x, y, p_weights=w, q_weights=v, **options).value
    assert weighted == pytest.approx(by_loops(x, y, w, v, kernel), rel=1e-9)


@pytest.mark.parametrize(("shift", "scale", "d"), [(0.5, 1.0, 1), (0.2, 1.3, 3), (0.0, 1.0, 2)])
def test_closed_form_of_gaussians(shift, scale, d):
    rng = np.random.default_rng(1)
    result = mmd(rng.normal(size=(3000, d)), scale * rng.normal(size=(2500, d)) + shift, bandwidth=1.5)
    assert abs(result.value - of_gaussians(shift, scale, d, 1.5)) < 3.5 * result.std_error
    assert result.std_error < 0.01


def test_importance_weights_lead_to_the_weighted_law():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(3000, 1)), rng.normal(size=(3000, 1)) + 0.5
    result = mmd(x, y, p_weights=np.exp(0.5 * x[:, 0]), bandwidth=1.0)
    assert abs(result.value) < 4 * result.std_error
    assert mmd(x, y, bandwidth=1.0).value > 20 * result.std_error


def test_the_default_bandwidth_is_the_median_distance():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=(50, 2))
    rows = np.r_[x, y]
    distances = [np.linalg.norm(rows[i] - rows[j]) for i in range(90) for j in range(i)]
    assert mmd(x, y).details["bandwidth"] == pytest.approx(np.median(distances), rel=1e-2)


def test_far_from_the_origin_nothing_is_lost():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 0.3
    assert mmd(x + 1e6, y + 1e6, bandwidth=1.0).value == pytest.approx(mmd(x, y, bandwidth=1.0).value, rel=1e-5)


@pytest.mark.parametrize(("shift", "weighted"), [(0.0, False), (0.5, False), (0.5, True)])
def test_standard_error_is_the_spread_over_data_sets(shift, weighted):
    rng = np.random.default_rng(5)
    results = []
    for _ in range(100):
        x, y = rng.normal(size=(150, 2)), rng.normal(size=(120, 2)) + shift
        weights = np.exp(0.3 * x.sum(1)) if weighted else None
        results.append(mmd(x, y, p_weights=weights, bandwidth=1.5))
    spread = np.std([r.value for r in results])
    assert 0.8 < np.mean([r.std_error for r in results]) / spread < 1.4


def test_fourier_features_approach_the_kernel():
    rng = np.random.default_rng(6)
    x, y, w = rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) + 0.7, rng.random(300)
    options = {"bandwidth": 1.5, "frequencies": 20000}
    ours = MMD(**options).update(x, w).compute(MMD(**options).update(y))
    assert ours.value == pytest.approx(mmd(x, y, p_weights=w, bandwidth=1.5).value, rel=0.05)
    assert ours.std_error == pytest.approx(mmd(x, y, p_weights=w, bandwidth=1.5).std_error, rel=0.5)
    with pytest.raises(InputError, match="an accumulator with"):
        MMD(**options).update(x).compute(MMD(bandwidth=1.0).update(y))


def test_bad_input():
    x = np.zeros((6, 2))
    with pytest.raises(NotEstimable, match="give 'bandwidth'"):
        mmd(x, x)
    assert mmd(x, x, bandwidth=1.0).value == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="bandwidth"):
        mmd(x, x, bandwidth=0)
    with pytest.raises(LookupError, match="Did you mean 'rbf'"):
        mmd(x, x, kernel="rfb")
    with pytest.raises(InputError, match="offset"):
        mmd(x, x, kernel="polynomial", offset=-1)
    with pytest.raises(InputError, match="as wide as"):
        mmd(x, np.zeros((6, 3)))
