"""KID against double loops, and its standard error against the spread over repeated data sets."""

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError
from vestige.metrics.mmd import CUBIC, KID, cubic_product, cubic_sum, kid


def by_loops(x, y, w=None, v=None):
    w = np.full(len(x), 1 / len(x)) if w is None else w / w.sum()
    v = np.full(len(y), 1 / len(y)) if v is None else v / v.sum()

    def kernel(a, b):
        return (a @ b / len(a) + 1) ** 3

    def within(rows, weights):
        pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
        total = sum(weights[i] * weights[j] * kernel(rows[i], rows[j]) for i, j in pairs)
        return total / sum(weights[i] * weights[j] for i, j in pairs)

    cross = sum(w[i] * v[j] * kernel(x[i], y[j]) for i in range(len(x)) for j in range(len(y)))
    return within(x, w) + within(y, v) - 2 * cross


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return rng.normal(size=(23, 5)), 1.5 * rng.normal(size=(17, 5)) + 0.2, rng.random(23), rng.random(17)


@pytest.mark.parametrize("form", ["moments", "blocks"])
def test_agrees_with_double_loops(sets, form):
    x, y, w, v = sets
    assert kid(x, y, form=form).value == pytest.approx(by_loops(x, y), rel=1e-10)
    weighted = kid(x, y, p_weights=w, q_weights=v, form=form)
    assert weighted.value == pytest.approx(by_loops(x, y, w, v), rel=1e-10)


@pytest.mark.parametrize("d", [1, 7, 8, 9, 30])
def test_the_feature_map_is_the_kernel(d):
    rows = torch.randn(1504, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = rows[4:]
    for row in rows[:4]:
        one = cubic_product(cubic_sum(row[None], torch.ones(1, dtype=torch.float64)), y)
        torch.testing.assert_close(one, CUBIC(row[None], y)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_forms_agree_across_block_borders(weighted):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2500, 3)), rng.normal(size=(1100, 3)) + 0.1
    weights = {"p_weights": rng.random(2500), "q_weights": rng.random(1100)} if weighted else {}
    moments, blocks = (kid(x, y, form=form, **weights) for form in ("moments", "blocks"))
    assert moments.value == pytest.approx(blocks.value, rel=1e-9)
    assert moments.std_error == pytest.approx(blocks.std_error, rel=0.01 if weighted else 0.1)


def test_auto_takes_moments_when_narrow_and_blocks_when_wide():
    rng = np.random.default_rng(0)
    assert kid(rng.normal(size=(500, 3)), rng.normal(size=(500, 3))).details["form"] == "moments"
    assert kid(rng.normal(size=(50, 60)), rng.normal(size=(50, 60))).details["form"] == "blocks"


def test_unbiased_under_one_law_and_under_weights():
    rng = np.random.default_rng(0)
    plain, weighted = [], []
    for _ in range(120):
        x, y = rng.normal(size=(60, 3)), rng.normal(size=(50, 3))
        plain.append(kid(x, y).value)
        shifted = x - 0.5
        weighted.append(kid(shifted, y, p_weights=np.exp(0.5 * shifted.sum(1))).value)
    assert abs(np.mean(plain)) < 4 * np.std(plain) / 120**0.5
    # Self-normalised weights are biased by order 1/n only; the form with the diagonal would be at 0.4 and more.
    assert abs(np.mean(weighted)) < 0.1


def test_a_row_given_twice_is_a_pair_of_its_own():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 2)), rng.normal(size=(10, 2))
    twice = kid(np.r_[x, x], y).value
    assert kid(x, y, p_weights=np.full(10, 2.0)).value == pytest.approx(kid(x, y).value, rel=1e-9)
    assert twice > kid(x, y).value + 0.01  # the ten new pairs of a row with itself


@pytest.mark.parametrize(("shift", "form"), [(0.0, "moments"), (0.6, "moments"), (0.0, "blocks"), (0.6, "blocks")])
def test_standard_error_is_the_spread_over_data_sets(shift, form):
    rng = np.random.default_rng(3)
    results = [kid(rng.normal(size=(150, 3)), rng.normal(size=(200, 3)) + shift, form=form) for _ in range(100)]
    spread = np.std([r.value for r in results])
    ratio = np.mean([r.std_error for r in results]) / spread
    assert 0.8 < ratio < 1.45  # cautious under one law, where it is floored at the quadratic part


def test_accumulator_has_a_standard_error_too():
    rng = np.random.default_rng(4)
    results = []
    for _ in range(40):
        real, model = (KID(groups=10).update(rng.normal(size=(200, 3)) + shift) for shift in (0, 0.6))
        results.append(real.compute(model))
    spread = np.std([r.value for r in results])
    assert np.mean([r.std_error for r in results]) == pytest.approx(spread, rel=0.35)


def test_two_samples_constant_columns_and_integers(sets):
    x, y, _, _ = sets
    assert kid(x[:2], y[:2]).value == pytest.approx(by_loops(x[:2], y[:2]), rel=1e-9)
    assert kid(np.ones((4, 2)), np.ones((5, 2))).value == pytest.approx(0, abs=1e-12)
    images = np.random.default_rng(0).integers(0, 256, (12, 2, 2), dtype=np.uint8)
    flat = images.reshape(12, 4).astype(float)
    assert kid(images[:6], images[6:]).value == pytest.approx(by_loops(flat[:6], flat[6:]), rel=1e-9)


def test_bad_input(sets):
    x, y, _, _ = sets
    with pytest.raises(InputError, match="finite"):
        kid(np.where(x > 1, np.inf, x), y)
    with pytest.raises(LookupError, match="Did you mean 'moments'"):
        kid(x, y, form="moment")
    with pytest.raises(InputError, match="at most 256 wide"):
        KID().update(np.zeros((3, 300)))


def test_agrees_with_torchmetrics():
    image = pytest.importorskip("torchmetrics.image.kid", exc_type=ImportError)
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(size=(50, 6)) + shift) for shift in (0, 0.3))
    assert kid(x, y).value == pytest.approx(float(image.poly_mmd(x, y)), rel=1e-8)
