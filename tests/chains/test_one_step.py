"""The one-step form: exact where the ratio is, flat where it is nearly so, and used only where its tails allow."""

import math

import pytest
import torch

from vestige.chains.estimates import corrected, one_step
from vestige.ratios import divergences
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige.ratios.divergences.estimate import Side

P, Q = Gaussian.isotropic(0.0, 1.0, 1), Gaussian.isotropic(0.4, 0.9, 1)
GRID = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]
UNBOUNDED = ("kl", "reverse_kl", "jeffreys")


def sides(epsilon=0.0):
    """p and q as weights on a grid, so that averages are integrals, and log p/q off by epsilon sin x + epsilon / 2."""
    log_ratio = P.log_prob(GRID) - Q.log_prob(GRID) + epsilon * (GRID[:, 0].sin() + 0.5)
    return [Side(log_ratio, torch.softmax(law.log_prob(GRID), 0)) for law in (P, Q)]


def two_sided(name, p, q):
    on_p, on_q = divergences.get(name).two_sided
    terms = [side.weights @ map_(side.log_ratio) for side, map_ in ((p, on_p), (q, on_q)) if map_ is not None]
    return float(sum(terms))


@pytest.mark.parametrize("name", UNBOUNDED)
def test_it_is_the_divergence_where_the_ratio_is_exact(name):
    assert one_step(name, *sides()).value == pytest.approx(gaussian_divergence(name, P, Q), rel=1e-8)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_an_error_of_the_ratio_enters_squared_and_by_the_two_sided_form_plainly(name):
    truth = gaussian_divergence(name, P, Q)
    off = [one_step(name, *sides(e)).value - truth for e in (0.02, 0.01)]
    assert off[0] / off[1] == pytest.approx(4, abs=0.15)
    assert off[0] < 0  # a bound from below
    plain = [two_sided(name, *sides(e)) - truth for e in (0.02, 0.01)]
    if name != "jeffreys":  # E_p[log r] - E_q[log r] is that of both, and the shift cancels
        assert plain[0] / plain[1] == pytest.approx(2, abs=0.15)
    assert abs(off[0]) < abs(plain[0]) / 5


def drawn(law, n=4000):
    x = law.sample(n, generator=torch.Generator().manual_seed(0))
    return Side.of(P.log_prob(x) - Q.log_prob(x) + 0.05)


def test_the_value_moves_where_tails_are_light_and_the_distance_is_in_the_error():
    p, q = drawn(P), drawn(Q)
    e = divergences.estimate("reverse_kl", q.log_ratio, p.log_ratio, error="influence")
    other = one_step("reverse_kl", p, q)
    off = other.value - e.value
    assert off == pytest.approx(other.off)
    # reverse kl is E_q[-log r]; the other form adds 1 - E_p[1/r]
    assert other.noise == pytest.approx(float((-p.log_ratio).exp().var()) / len(p.log_ratio), rel=1e-6)
    beyond = math.sqrt(off**2 - other.noise)
    moved = corrected(e, p, q, tail=other.tail + 0.01)
    assert (moved.value, moved.details["form"]) == (other.value, "one_step")
    assert moved.std_error == pytest.approx(math.hypot(e.std_error, beyond / 2))
    stayed = corrected(e, p, q, tail=other.tail - 0.01)
    assert (stayed.value, stayed.details) == (e.value, e.details)
    assert stayed.std_error == pytest.approx(math.hypot(e.std_error, beyond))
    assert (moved.low + moved.high) / 2 == pytest.approx(moved.value)
    assert (moved.high - moved.low) / 2 == pytest.approx(1.959964 * moved.std_error, rel=1e-6)


def test_a_distance_within_its_own_noise_widens_nothing():
    p, q = sides()
    weights = {"p_weights": p.weights, "q_weights": q.weights}
    e = divergences.estimate("kl", q.log_ratio, p.log_ratio, error="influence", **weights)
    other = one_step("kl", p, q)
    assert abs(other.off) < 1e-9 < other.noise
    assert corrected(e, p, q, tail=-9.0) == e


def test_bounded_divergences_and_refusals_stay():
    p, q = drawn(P), drawn(Q)
    js = divergences.estimate("js", q.log_ratio, p.log_ratio, error="influence")
    assert corrected(js, p, q, tail=1.0) == js
    kl = divergences.estimate("kl", q.log_ratio, p.log_ratio, error="influence")
    refused = kl.withdrawn("no")
    assert corrected(refused, p, q, tail=1.0) is refused


def test_the_tail_of_kl_is_that_of_the_ratio_on_samples_of_q():
    heavy = Side.of(torch.empty(5000, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(1)))
    assert one_step("kl", drawn(P), heavy).tail == pytest.approx(1.0, abs=0.15)  # r is Pareto of index one
    assert one_step("reverse_kl", drawn(P), heavy).tail < 0.5
    assert one_step("kl", drawn(P), drawn(Q)).tail < 0.5
