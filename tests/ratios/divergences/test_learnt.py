"""Learnt divergences: the movement by hand, the lower bound, the parts of the interval, each reason for a verdict."""

import math

import pytest
import torch

from vestige.ratios.divergences import FAMILY, get, learnt
from vestige.ratios.divergences.estimate import Side
from vestige.ratios.divergences.learnt import ADDED, FLOOR, OFF_REFUSED, ROOT, TIMES, WIDEST, Refit, movement, one_step

N = 4000
SMOOTH = [name for name in FAMILY if name != "total_variation"]


def draws(seed=0, shift=0.6, n=N):
    """log p/q of N(shift, 1) against N(0, 1) on rows of both."""
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(2))
    return shift * (p + shift) - shift**2 / 2, shift * q - shift**2 / 2


def sides(*logs):
    return [Side.of(x) for x in logs]


def refit(p, q, by):
    return Refit(p, q, p.log_ratio + by, q.log_ratio + by)


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "js", "hellinger2"])
def test_exact_ratios_hold_the_truth(name):
    truth = {"kl": 0.18, "reverse_kl": 0.18, "js": 0.0433616, "hellinger2": 1 - math.exp(-0.045)}[name]
    held = 0
    for seed in range(60):
        p, q = sides(*draws(seed, n=1000))
        found = learnt([name], p, q, refit(p, q, 0.0))[name]
        held += found.low <= truth <= found.high
    assert held >= 53


@pytest.mark.parametrize("name", FAMILY)
def test_the_one_step_form_is_a_lower_bound_that_is_flat_at_the_truth(name):
    p, q = draws(n=200_000)
    best = one_step(name, *sides(p, q)).value
    bent = [one_step(name, *sides(scale * p, scale * q)).value for scale in (0.6, 0.95, 1.05, 1.3)]
    assert all(value < best + 0.02 * abs(best) for value in bent)
    if name in SMOOTH:
        assert abs(bent[1] - best) < 0.2 * abs(bent[0] - best)


def test_the_movement_of_kl_is_half_the_mean_square():
    (p, q), by = draws(), torch.linspace(-1, 1, N, dtype=torch.float64)
    found = Refit(*sides(p, q), p + by, q + 7 * by)
    assert movement(get("kl"), found) == pytest.approx(float(by.square().mean()) / 2)
    assert movement(get("reverse_kl"), found) == pytest.approx(49 * float(by.square().mean()) / 2)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_movement_is_what_a_critic_that_is_a_little_off_loses(name):
    p, q = draws(n=400_000, shift=0.4)
    off = 0.05
    above, below = (one_step(name, *sides(p + by * p, q + by * q)).value for by in (off, -off))
    lost = one_step(name, *sides(p, q)).value - (above + below) / 2  # what noise there is of first order cancels
    moved = movement(get(name), Refit(*sides(p, q), p + off * p, q + off * q))
    assert moved == pytest.approx(lost, rel=0.1)


def test_the_movement_of_total_variation_counts_rows_that_change_sides():
    p, q = (torch.tensor(x, dtype=torch.float64) for x in ([1.0, -2.0], [0.5, -0.5]))
    found = Refit(*sides(p, q), torch.tensor([-1.0, -2.0]).double(), torch.tensor([0.5, 0.1]).double())
    exact = (2 * math.tanh(0.5) / 2 + 2 * math.tanh(0.25) / 2) / 2
    assert movement(get("total_variation"), found) == pytest.approx(exact)


@pytest.mark.parametrize("name", FAMILY)
def test_exchanging_the_sides_exchanges_the_movements(name):
    p, q = draws()
    fewer_p, fewer_q = 0.9 * p, 1.1 * q
    there = movement(get(name), Refit(*sides(p, q), fewer_p, fewer_q))
    back = movement(get(get(name).reverse), Refit(*sides(-q, -p), -fewer_q, -fewer_p))
    assert there == pytest.approx(back)


@pytest.mark.parametrize(("by", "grows"), [(0.02, "root"), (0.3, "times")])
def test_the_high_end_and_the_value_grow_with_the_movement(by, grows):
    p, q = sides(*draws())
    still, moving = (learnt(["kl"], p, q, refit(p, q, x))["kl"] for x in (0.0, by))
    moved, value = by**2 / 2, still.value
    assert moving.details["movement"] == pytest.approx(moved)
    assert moving.value - still.value == pytest.approx(ADDED * moved)
    missing = {"root": ROOT * math.sqrt(moved * value), "times": TIMES * moved}[grows]
    assert moving.high - still.high == pytest.approx(missing)
    assert moving.low == still.low <= min(value, still.details["one_step"]) - 1.9 * still.std_error


def test_a_bounded_divergence_has_no_interval_beyond_its_bound():
    p, q = sides(*draws(shift=4.0))
    found = learnt(["js"], p, q, refit(p, q, 2.0))["js"]
    assert found.value <= found.high <= math.log(2)


def test_the_words():
    p, q = sides(*draws())
    assert learnt(["kl"], p, q, refit(p, q, 0.0))["kl"].verdict == "ok"
    blind = learnt(["kl"], p, q, None)["kl"]
    assert (blind.verdict, "second fit" in blind.reason) == ("at least", True)
    wide = learnt(["kl"], p, q, refit(p, q, math.sqrt(2 * (1.3 * WIDEST * 0.18 + FLOOR / N) / TIMES)))["kl"]
    assert (wide.verdict, "more rows" in wide.reason) == ("at least", True)


@pytest.mark.parametrize(("name", "ruled_by"), [("kl", "q"), ("reverse_kl", "p"), ("js", None)])
def test_a_mean_ratio_away_from_one_takes_the_promise_of_an_unbounded_divergence(name, ruled_by):
    log_p, log_q = draws()
    for off, verdict in ((math.log(1.2), "at least"), (math.log(1 + 1.2 * OFF_REFUSED), "refused")):
        for side in "pq":
            p, q = sides(log_p - (off if side == "p" else 0), log_q + (off if side == "q" else 0))
            found = learnt([name], p, q, refit(p, q, 0.0))[name]
            assert (found.verdict == verdict) == (side == ruled_by), (off, side)


def test_near_equal_sets_have_a_floor_of_one_over_n():
    p, q = sides(torch.zeros(500, dtype=torch.float64), torch.zeros(500, dtype=torch.float64))
    for found in learnt(["kl", "js"], p, q, refit(p, q, 0.0)).values():
        assert found.verdict == "ok"
        assert found.high >= 1 / 500


def test_the_low_end_of_a_ratio_that_says_too_much_lies_below_the_bound():
    log_p, log_q = draws()
    p, q = sides(1.4 * log_p, 1.4 * log_q)
    found = learnt(["kl"], p, q, refit(p, q, 0.0))["kl"]
    assert found.details["one_step"] < found.details["two_sided"] - 0.01
    assert found.low == pytest.approx(found.details["one_step"] - 1.96 * found.std_error, rel=1e-3)
