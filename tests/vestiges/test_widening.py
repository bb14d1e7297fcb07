"""Widened intervals against the exact divergences of random distributions on six points."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr

from vestige.core import Estimate
from vestige.vestiges import widening
from vestige.vestiges.widening import by_root, total_variation_at_most, widened

POINTS, SLACK = 6, 1e-9
# Small whole numbers have points of no mass, and distributions that are equal or far apart.
masses = st.lists(st.integers(0, 30), min_size=POINTS, max_size=POINTS).filter(any)
laws = masses.map(lambda counts: np.array(counts) / sum(counts))


def kl(p, q):
    return float(rel_entr(p, q).sum())


def js(p, q):
    m = (p + q) / 2
    return (kl(p, m) + kl(q, m)) / 2


def hellinger2(p, q):
    return max(1 - float(np.sqrt(p * q).sum()), 0.0)


def total_variation(p, q):
    return float(np.abs(p - q).sum()) / 2


def chi2(p, q):
    """Pearson's, E_q[(p/q - 1)^2]."""
    if (p > 0)[q == 0].any():
        return math.inf
    return float((np.square(p - q)[q > 0] / q[q > 0]).sum())


KERNEL = np.exp(-np.square(np.arange(POINTS)[:, None] - np.arange(POINTS)) / 2)


def mmd2(p, q):
    return float((p - q) @ KERNEL @ (p - q))


EXACT = {
    "kl": kl,
    "reverse_kl": lambda p, q: kl(q, p),
    "js": js,
    "hellinger2": hellinger2,
    "pearson_chi2": chi2,
    "neyman_chi2": lambda p, q: chi2(q, p),
    "total_variation": total_variation,
    "jeffreys": lambda p, q: kl(p, q) + kl(q, p),
    "mmd2": mmd2,
}


@dataclass
class Measured:
    """What was measured at arrival, exactly."""

    p: np.ndarray
    d: np.ndarray
    promised: bool = True

    def limit(self, name):
        return EXACT[name](self.p, self.d)

    def sure(self, name):
        return self.promised


def of_draws(d, q):
    """The exact values of the draws against the new rows, as estimates without an error."""
    return {name: Estimate(v, v, v, name=name) for name, f in EXACT.items() for v in (f(d, q),)}


@settings(max_examples=400, deadline=None)
@given(laws, laws, laws)
def test_the_widened_interval_holds_what_the_data_would_give(p, d, q):
    found = widened(of_draws(d, q), Measured(p, d))
    assert list(found) == list(EXACT)
    for name, estimate in found.items():
        truth = EXACT[name](p, q)
        assert estimate.low <= truth + SLACK, name
        if name in widening.LEAST_BY_HELLINGER:
            assert estimate.verdict == "at least"
        else:
            assert estimate.verdict == "ok"
            assert truth <= estimate.high + SLACK, name
        assert estimate.value == EXACT[name](d, q)


@pytest.mark.parametrize("name", ["js", "hellinger2", "mmd2"])
@settings(max_examples=50, deadline=None)
@given(laws, laws)
def test_no_interval_is_wider_than_it_must_be(name, p, q):
    """Draws that are equal to the new rows leave e, and draws that are equal to the data leave what was measured."""
    assert by_root(0, 0, EXACT[name](p, q))[1] == pytest.approx(EXACT[name](p, q), abs=1e-12)
    value = EXACT[name](p, q)
    assert by_root(value, value, 0) == pytest.approx((value, value))


def test_the_ends_by_hand():
    assert by_root(0.09, 0.16, 0.01) == pytest.approx((0.04, 0.25))
    assert by_root(0.01, 0.16, 0.04) == pytest.approx((0.0, 0.36))  # the root of the low end would be negative
    assert by_root(-0.02, -0.01, 0.04) == pytest.approx((0.0, 0.04))
    assert by_root(0.5, 0.6, 0.1, math.log(2))[1] == math.log(2)
    assert by_root(0.5, 0.6, math.inf, 1.0) == (0.0, 1.0)


@settings(max_examples=400, deadline=None)
@given(laws, laws)
def test_either_limit_bounds_the_total_variation(p, q):
    truth = total_variation(p, q)
    assert truth <= total_variation_at_most(js(p, q), math.inf) + SLACK
    assert truth <= total_variation_at_most(math.inf, hellinger2(p, q)) + SLACK


@pytest.mark.parametrize("t", [0.001, 0.1, 0.5, 0.99, 1.0])
def test_the_limits_of_the_total_variation_are_reached(t):
    p = np.array([(1 + t) / 2, (1 - t) / 2])
    q = p[::-1]
    assert total_variation_at_most(js(p, q), math.inf) == pytest.approx(t, rel=1e-4)
    assert total_variation_at_most(math.inf, hellinger2(p, q)) == pytest.approx(t, rel=1e-4)


def test_the_low_ends_without_a_distance_are_reached():
    """Data on half of the points on which the new rows are even: all Renyi divergences are log 2."""
    p, q = np.repeat([1 / 3, 0.0], 3), np.full(6, 1 / 6)
    found = widened(of_draws(p, q), Measured(p, p))
    assert found["kl"].low == pytest.approx(math.log(2))
    assert found["pearson_chi2"].low == pytest.approx(1.0)
    mirrored = widened(of_draws(q, p), Measured(q, q))
    assert mirrored["reverse_kl"].low == pytest.approx(math.log(2))
    assert mirrored["neyman_chi2"].low == pytest.approx(1.0)
    a = np.array([0.3, 0.3, 0.3, 0.1 / 3, 0.1 / 3, 0.1 / 3])
    turned = widened(of_draws(a, a[::-1]), Measured(a, a))
    assert turned["jeffreys"].low == pytest.approx(2 * 0.8 * math.log(9))


def test_what_is_not_promised_at_arrival_is_at_least_nothing():
    p, q = np.repeat([1 / 3, 0.0], 3), np.full(6, 1 / 6)
    found = widened(of_draws(p, q), Measured(p, p, promised=False))
    for name, estimate in found.items():
        assert (estimate.low, estimate.verdict) == (0.0, "at least"), name
    assert found["js"].reason == widening.UNSURE
    assert found["js"].value == js(p, q)


def test_refusals_stay():
    refused = {name: Estimate.refused("Too few rows.", name=name) for name in ("js", "kl", "total_variation")}
    assert widened(refused, Measured(np.ones(1), np.ones(1))) == refused


def test_reasons_and_the_ends_of_the_draws_are_kept():
    p, d = np.full(6, 1 / 6), np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    found = {"js": Estimate(0.02, 0.01, 0.03, verdict="at least", reason="few rows")}
    wide = widened(found, Measured(p, d))["js"]
    assert wide.details["from_draws"] == (0.01, 0.03)
    assert wide.details["own_error"] == js(p, d)
    assert (wide.verdict, wide.reason, wide.value) == ("at least", "few rows", 0.02)
    assert wide.low < 0.01 < 0.03 < wide.high
