"""Weight transforms against the formulas of the paper, written out in plain numpy."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError, NotEstimable
from vestige.ratios import weights

LOG_W = np.random.default_rng(0).normal(-0.5, 1.0, 500)
W = np.exp(LOG_W)
F = np.random.default_rng(1).normal(size=500)


def test_self_normalised_mean_is_equation_6():
    got = np.mean(np.exp(weights.self_normalise(LOG_W)) * F)
    assert got == pytest.approx(np.sum(W / W.sum() * F), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 2.5])
def test_flattened_mean_is_equation_7(alpha):
    assert np.mean(np.exp(weights.flatten(LOG_W, alpha)) * F) == pytest.approx(np.mean(W**alpha * F), rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.001, 0.4, 3.0])
def test_clipped_mean_is_equation_8(beta):
    assert np.mean(np.exp(weights.clip(LOG_W, beta)) * F) == pytest.approx(np.mean(np.maximum(W, beta) * F), rel=1e-12)


def test_transforms_compose_in_either_order():
    flat = np.maximum(W, 0.2) ** 0.5
    got = weights.self_normalise(weights.flatten(weights.clip(LOG_W, 0.2), 0.5))
    np.testing.assert_allclose(np.exp(got), flat / flat.mean(), rtol=1e-12)
    scaled = np.maximum(W / W.mean(), 0.2)
    np.testing.assert_allclose(np.exp(weights.clip(weights.self_normalise(LOG_W), 0.2)), scaled, rtol=1e-12)


def test_alpha_zero_gives_ones_even_to_zero_weights():
    assert weights.flatten([-math.inf, 0.0, 3.0], 0.0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_log_weights_beyond_the_range_of_exp(shift):
    moved = LOG_W + shift
    np.testing.assert_allclose(weights.self_normalise(moved), weights.self_normalise(LOG_W), atol=1e-9)
    assert weights.ess(moved) == pytest.approx(W.sum() ** 2 / (W**2).sum(), rel=1e-9)
    assert weights.temper(moved, 0.9).alpha == pytest.approx(weights.temper(LOG_W, 0.9).alpha, abs=1e-9)


@pytest.mark.parametrize("min_ess", [0.5, 0.9, 0.999])
def test_tempering_meets_the_wanted_ess_and_no_more(min_ess):
    out, alpha, fraction = weights.temper(LOG_W, min_ess)

    def ess_of(a):
        w = W**a
        return w.sum() ** 2 / (w**2).sum() / len(w)

    assert 0 < alpha < 1
    assert fraction == pytest.approx(min_ess, abs=1e-9)
    assert ess_of(alpha) == pytest.approx(min_ess, abs=1e-9)
    assert ess_of(alpha + 1e-6) < min_ess
    np.testing.assert_allclose(out, alpha * LOG_W, rtol=1e-12)


def test_tempering_leaves_healthy_weights_alone():
    assert weights.temper(LOG_W, 0.05).alpha == 1.0
    assert weights.temper(np.zeros(7), 1.0).alpha == 1.0


def test_tempering_keeps_zero_weights_zero_and_refuses_what_they_forbid():
    half = np.where(np.arange(500) % 2 == 0, LOG_W, -np.inf)
    out, _, fraction = weights.temper(half, 0.45)
    assert np.all(np.isneginf(out[1::2]))
    assert fraction == pytest.approx(0.45, abs=1e-9)
    with pytest.raises(NotEstimable, match=r"only 0\.5 of the weights are positive"):
        weights.temper(half, 0.6)


def test_the_kind_that_came_in_goes_out():
    for change in (weights.from_log_ratio, weights.self_normalise, lambda x: weights.clip(x, 0.1)):
        assert isinstance(change(LOG_W), np.ndarray)
        assert change(LOG_W.astype(np.float32)).dtype == np.float32
        assert isinstance(change(LOG_W.tolist()), list)
        assert isinstance(change(torch.tensor(LOG_W)), torch.Tensor)
        series = pd.Series(LOG_W, index=np.arange(500)[::-1])
        assert change(series).index.equals(series.index)


def test_arguments_are_left_as_they_were():
    x = torch.tensor(LOG_W)
    for change in (weights.from_log_ratio, weights.self_normalise, lambda w: weights.clip(w, 0.0), weights.temper):
        out = change(x)
        (out[0] if isinstance(out, tuple) else out).zero_()
        np.testing.assert_array_equal(x.numpy(), LOG_W)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ([0.0, math.nan], "below \\+inf and not NaN"),
        ([0.0, math.inf], "below \\+inf and not NaN"),
        ([-math.inf, -math.inf], "above -inf somewhere"),
        ([], "at least 1 long"),
        ([[0.0, 1.0], [1.0, 2.0]], "one number a sample"),
    ],
)
@pytest.mark.parametrize(
    "function",
    [
        weights.from_log_ratio,
        weights.self_normalise,
        weights.temper,
        weights.pareto_smooth,
        weights.ess,
        weights.mean_weight,
        weights.max_share,
        weights.diagnose,
        lambda x: weights.flatten(x, 0.5),
        lambda x: weights.clip(x, 0.5),
        lambda x: weights.resample(3, x),
    ],
)
def test_bad_log_weights_are_refused(function, bad, sentence):
    with pytest.raises(InputError, match=sentence):
        function(bad)


def test_bad_parameters_are_refused():
    for call in (
        lambda: weights.flatten(LOG_W, -0.1),
        lambda: weights.clip(LOG_W, -1.0),
        lambda: weights.clip(LOG_W, math.inf),
        lambda: weights.temper(LOG_W, 0.0),
        lambda: weights.temper(LOG_W, 1.1),
    ):
        with pytest.raises(InputError, match="must be in"):
            call()
