"""Precision, recall, density and coverage against double loops."""

import contextlib
import io

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.metrics.precision_recall import PRDC, precision_recall_density_coverage

NAMES = ("precision", "recall", "density", "coverage")


def radii(x, k):
    return [sorted(np.linalg.norm(a - b) for j, b in enumerate(x) if j != i)[k - 1] for i, a in enumerate(x)]


def by_loops(x, y, k, w=None, v=None):
    w = np.full(len(x), 1 / len(x)) if w is None else w / w.sum()
    v = np.full(len(y), 1 / len(y)) if v is None else v / v.sum()
    r_x, r_y = radii(x, k), radii(y, k)
    distance = [[np.linalg.norm(a - b) for b in y] for a in x]
    precision = sum(v[j] for j in range(len(y)) if any(distance[i][j] < r_x[i] for i in range(len(x))))
    recall = sum(w[i] for i in range(len(x)) if any(distance[i][j] < r_y[j] for j in range(len(y))))
    coverage = sum(w[i] for i in range(len(x)) if any(distance[i][j] < r_x[i] for j in range(len(y))))
    held = [(i, j) for i in range(len(x)) for j in range(len(y)) if distance[i][j] < r_x[i]]
    return precision, recall, sum(v[j] * len(x) * w[i] for i, j in held) / k, coverage


def values(result):
    return [getattr(result, name) for name in NAMES]


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 3)), rng.normal(size=(30, 3)) + 0.8, rng.random(40), rng.random(30)


@pytest.mark.parametrize("k", [1, 3, 29])
def test_agrees_with_loops(sets, k):
    x, y, w, v = sets
    assert values(precision_recall_density_coverage(x, y, k=k)) == pytest.approx(by_loops(x, y, k))
    weighted = precision_recall_density_coverage(x, y, k=k, p_weights=w, q_weights=v)
    assert values(weighted) == pytest.approx(by_loops(x, y, k, w, v))


def test_across_block_borders():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(1500, 2)), rng.normal(size=(1100, 2)) + 1
    distance = np.linalg.norm(x[:, None] - y, axis=2)
    own = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)[:, 5]
    result = precision_recall_density_coverage(x, y, k=5)
    assert result.precision == pytest.approx((distance < own[:, None]).any(0).mean())
    assert result.density == pytest.approx((distance < own[:, None]).sum() / 5 / 1100)
    assert result.coverage == pytest.approx((distance.min(1) < own).mean())


def test_weight_zero_is_absence(sets):
    x, y, w, _ = sets
    w = np.where(np.arange(40) < 25, w, 0)
    dropped = precision_recall_density_coverage(x[:25], y, p_weights=w[:25])
    assert values(precision_recall_density_coverage(x, y, p_weights=w)) == pytest.approx(values(dropped))


def test_one_law_and_two_worlds():
    rng = np.random.default_rng(2)
    same = precision_recall_density_coverage(rng.normal(size=(800, 2)), rng.normal(size=(800, 2)))
    assert same.density == pytest.approx(1, abs=0.15)  # its expectation is 1 (Naeem et al. 2020, Eq. 5)
    # Expected coverage of one law: 1 - (n-1)...(n-k) / ((2n-1)...(2n-k)), their Eq. 9 with m = n.
    expected = 1 - np.prod([(800 - i) / (1600 - i) for i in range(1, 6)])
    assert same.coverage == pytest.approx(expected, abs=0.04)
    apart = precision_recall_density_coverage(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 100)
    assert values(apart) == [0, 0, 0, 0]


def test_standard_errors_are_near_the_spread_over_data_sets():
    rng = np.random.default_rng(3)
    results = [
        precision_recall_density_coverage(rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 0.7) for _ in range(60)
    ]
    for name in NAMES:
        spread = np.std([getattr(r, name) for r in results])
        assert 0.4 < np.mean([r.std_error[name] for r in results]) / spread < 1.5, name


def test_constant_rows_and_integers():
    constant = precision_recall_density_coverage(np.ones((6, 2)), np.ones((6, 2)), k=2)
    assert values(constant) == [0, 0, 0, 0]  # balls of radius zero hold nothing: distances are compared strictly
    images = np.random.default_rng(0).integers(0, 256, (20, 2, 2), dtype=np.uint8)
    flat = images.reshape(20, 4).astype(float)
    result = precision_recall_density_coverage(images[:10], images[10:], k=3)
    assert values(result) == pytest.approx(by_loops(flat[:10], flat[10:], 3))


def test_bad_input(sets):
    x, y, _, _ = sets
    with pytest.raises(InputError, match="'k'"):
        precision_recall_density_coverage(x, y, k=30)
    with pytest.raises(InputError, match="at least 2"):
        precision_recall_density_coverage(x[:1], y)
    with pytest.raises(InputError, match="finite"):
        precision_recall_density_coverage(x * np.nan, y)


def test_accumulator_collects(sets):
    x, y, w, _ = sets
    real = PRDC().update(x[:7], w[:7]).merge(PRDC().update(x[7:], w[7:]))
    result = real.compute(PRDC().update(y), k=4)
    assert values(result) == pytest.approx(by_loops(x, y, 4, w))


def test_agrees_with_prdc(sets):
    prdc = pytest.importorskip("prdc")
    x, y, _, _ = sets
    with contextlib.redirect_stdout(io.StringIO()):
        peer = prdc.compute_prdc(real_features=x, fake_features=y, nearest_k=5)
    result = precision_recall_density_coverage(x, y, k=5)
    assert values(result) == pytest.approx([peer[name] for name in NAMES])
