"""The diagnosis: its numbers by hand; its verdict on weights known to be good, bad, and deceptively healthy."""

import math

import numpy as np
import pytest

from vestige import store
from vestige.core.errors import InputError
from vestige.core.plain import plain
from vestige.ratios import weights


def gaussian_log_weights(sigma, n=5000, seed=0):
    """Exact log weights from q = N(0, sigma^2) to p = N(0, 1)."""
    x = np.random.default_rng(seed).normal(size=n) * sigma
    return x**2 / (2 * sigma**2) - x**2 / 2 + math.log(sigma)


def test_numbers_by_hand():
    w = np.array([1.0, 2.0, 3.0, 6.0, 0.0])
    with np.errstate(divide="ignore"):
        log_w = np.log(w)
    assert weights.ess(log_w) == pytest.approx(144 / 50)
    assert weights.mean_weight(log_w) == pytest.approx(2.4)
    assert weights.max_share(log_w) == pytest.approx(0.5)
    found = weights.diagnose(log_w)
    assert (found.n, found.ess, found.ess_fraction) == (5, pytest.approx(2.88), pytest.approx(0.576))
    assert (found.mean_weight, found.max_share, found.pareto_k) == (pytest.approx(2.4), pytest.approx(0.5), None)


def test_good_weights_pass_without_a_word():
    found = weights.diagnose(gaussian_log_weights(1.3), accuracy=0.55, log_loss=0.68, ece=0.01)
    assert (found.verdict, found.warnings) == ("good", ())
    assert str(found).startswith("good: n 5000")


def test_a_narrow_q_is_unreliable_by_its_tail():
    found = weights.diagnose(gaussian_log_weights(0.35))
    assert found.verdict == "unreliable"
    assert any("Pareto k" in w for w in found.warnings)


def test_a_healthy_ess_lies_when_the_classifier_is_nearly_perfect():
    tiny = np.random.default_rng(1).normal(-9.0, 0.05, size=2000)  # all weights equally tiny
    alone = weights.diagnose(tiny)
    assert alone.ess_fraction > 0.99
    assert alone.verdict == "usable with care"
    assert "mean raw weight" in alone.warnings[0]
    told = weights.diagnose(tiny, accuracy=0.999)
    assert told.verdict == "unreliable"
    assert "accuracy 0.999" in told.warnings[0]
    assert weights.diagnose(gaussian_log_weights(1.3), accuracy=0.95).verdict == "good"
    assert weights.diagnose(gaussian_log_weights(1.3), accuracy=0.951).verdict == "unreliable"


@pytest.mark.parametrize(
    ("log_w", "options", "word"),
    [
        (gaussian_log_weights(0.6), {}, "variance of the weights is infinite"),
        (np.r_[np.zeros(200), np.full(12, 6.0)], {}, "consider tempering"),
        (np.r_[np.zeros(999), 6.0], {}, "One sample holds"),
        (np.full(100, 0.75), {}, "mean raw weight is 2.12"),
        (np.zeros(100), {"log_loss": 0.8}, "worse than a coin"),
        (np.zeros(100), {"ece": 0.2}, "calibration error is 0.200"),
        (np.zeros(6), {}, "worth 6.0 samples"),
    ],
)
def test_each_warning_has_its_cause(log_w, options, word):
    assert any(word in w for w in weights.diagnose(log_w, **options).warnings)


def test_limits_are_parameters():
    assert weights.diagnose(np.zeros(6), limits=weights.WeightLimits(ess_bad=5)).verdict == "good"


def test_overflowing_weights_are_diagnosed_and_stored():
    found = weights.diagnose(gaussian_log_weights(1.3) + 1e4)
    assert found.mean_weight == math.inf
    assert found.ess == pytest.approx(weights.ess(gaussian_log_weights(1.3)), rel=1e-9)
    assert '"mean_weight":null' in store.canonical(plain(found))


def test_impossible_classifier_figures_are_refused():
    for options in ({"accuracy": 1.2}, {"log_loss": -1.0}, {"ece": math.nan}):
        with pytest.raises(InputError, match="must be in"):
            weights.diagnose([0.0, 0.0], **options)
