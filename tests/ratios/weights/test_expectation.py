"""Weighted means: closed forms of Gaussians, plain formulas, coverage of the intervals; resampling by frequency."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError, NotEstimable
from vestige.ratios import weights


def weighted_draw(seed, n=2000):
    """x of q = N(0, 1) with log weights towards p = N(0.5, 1)."""
    x = np.random.default_rng(seed).normal(size=n)
    return x, 0.5 * x - 0.125


def test_self_normalised_mean_and_error_by_hand():
    x, log_w = weighted_draw(0)
    w = np.exp(log_w) / np.exp(log_w).sum()
    got = weights.expectation(x, log_w + 1234.5)
    assert got.value == pytest.approx(w @ x, rel=1e-9)
    by_hand = math.sqrt((w**2 @ (x - w @ x) ** 2) / (1 - w @ w))
    assert got.std_error == pytest.approx(by_hand, rel=1e-9)
    assert got.high - got.value == pytest.approx(1.959964 * by_hand, rel=1e-6)
    assert got.ess == pytest.approx(1 / (w @ w), rel=1e-9)


def test_equal_weights_give_the_textbook_error():
    x = np.random.default_rng(1).normal(size=50)
    for normalise in (True, False):
        got = weights.expectation(x, np.zeros(50), normalise=normalise)
        assert got.value == pytest.approx(x.mean())
        assert got.std_error == pytest.approx(x.std(ddof=1) / math.sqrt(50))


def test_plain_mean_is_equation_5():
    x, log_w = weighted_draw(2)
    got = weights.expectation(x, log_w, normalise=False)
    terms = np.exp(log_w) * x
    assert got.value == pytest.approx(terms.mean())
    assert got.std_error == pytest.approx(terms.std(ddof=1) / math.sqrt(len(x)))
    with pytest.raises(NotEstimable, match="overflow"):
        weights.expectation(x, log_w + 1000, normalise=False)


@pytest.mark.parametrize("normalise", [True, False])
def test_bootstrap_error_agrees_with_the_delta_method(normalise):
    x, log_w = weighted_draw(3)
    delta = weights.expectation(x, log_w, normalise=normalise)
    boot = weights.expectation(x, log_w, normalise=normalise, method="bootstrap", n_boot=800)
    assert boot.value == delta.value
    assert boot.std_error == pytest.approx(delta.std_error, rel=0.1)
    assert boot.low == pytest.approx(delta.low, abs=0.3 * delta.std_error)
    assert boot.high == pytest.approx(delta.high, abs=0.3 * delta.std_error)
    again = weights.expectation(x, log_w, normalise=normalise, method="bootstrap", n_boot=800)
    assert again == boot
    other = weights.expectation(x, log_w, normalise=normalise, method="bootstrap", n_boot=800, seed=1)
    assert other.std_error != boot.std_error


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    level, runs, hits = 0.9, 400, 0
    for seed in range(runs):
        got = weights.expectation(*weighted_draw(seed, 300), level)
        hits += got.low <= 0.5 <= got.high
    assert abs(hits / runs - level) < 3 * math.sqrt(level * (1 - level) / runs) + 0.01


def test_vector_valued_f_is_its_columns_and_keeps_the_kind():
    x, log_w = weighted_draw(4)
    both = np.stack([x, x**2], 1)
    got = weights.expectation(both, log_w)
    for j in range(2):
        alone = weights.expectation(both[:, j], log_w)
        assert (got.value[j], got.std_error[j]) == pytest.approx((alone.value, alone.std_error), rel=1e-12)
    assert isinstance(weights.expectation(torch.tensor(both), log_w).low, torch.Tensor)
    frame = weights.expectation(pd.DataFrame(both, columns=["a", "b"]), log_w)
    assert list(frame.value.index) == ["a", "b"]
    assert isinstance(weights.expectation(x.tolist(), log_w.tolist()).value, float)


def test_one_weight_that_is_all_of_them_has_no_error_bar():
    assert weights.expectation([1.0, 2.0, 3.0], [0.0, 5000.0, 0.0]).std_error == math.inf


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="3 long"):
        weights.expectation([1.0, 2.0, 3.0], [0.0, 0.0])
    with pytest.raises(InputError, match="finite"):
        weights.expectation([1.0, math.nan], [0.0, 0.0])
    with pytest.raises(InputError, match="at least 2 samples"):
        weights.expectation([1.0], [0.0])
    with pytest.raises(InputError, match="one of bootstrap, delta"):
        weights.expectation([1.0, 2.0], [0.0, 0.0], method="jackknife")
    with pytest.raises(InputError, match="'interval'"):
        weights.expectation([1.0, 2.0], [0.0, 0.0], 1.0)


def test_systematic_resampling_gives_each_its_floor_or_ceiling():
    log_w = np.random.default_rng(8).normal(size=200)
    share = np.exp(log_w) / np.exp(log_w).sum()
    counts = np.bincount(weights.resample(5000, log_w + 2000.0), minlength=200)
    assert counts.sum() == 5000
    assert np.all(np.abs(counts - 5000 * share) < 1 + 1e-9)


def test_multinomial_resampling_follows_the_weights():
    share = np.array([0.5, 0.0, 0.2, 0.3])
    with np.errstate(divide="ignore"):
        log_w = np.log(share)
    counts = np.bincount(weights.resample(40000, log_w, method="multinomial"), minlength=4)
    np.testing.assert_allclose(counts / 40000, share, atol=4 * math.sqrt(0.25 / 40000))
    assert counts[1] == 0


def test_resampling_is_seeded_never_picks_zero_and_keeps_the_kind():
    log_w = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    for method in ("systematic", "multinomial"):
        one, two = (weights.resample(999, log_w, seed=1, method=method) for _ in range(2))
        assert torch.equal(one, two)
        assert not torch.equal(one, weights.resample(999, log_w, seed=2, method=method)) or method == "systematic"
        assert set(one.tolist()) == {1, 3}
    assert isinstance(weights.resample(3, log_w.tolist()), list)
    assert list(weights.resample(3, pd.Series(log_w.numpy())).index) == [0, 1, 2]
    with pytest.raises(InputError, match="at least 1"):
        weights.resample(0, log_w)
