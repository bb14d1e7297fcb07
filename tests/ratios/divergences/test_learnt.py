"""Learnt divergences: the movement by hand, the lower bound, the parts of the interval, each reason for a verdict."""

import math

import pytest
import torch

from vestige.ratios.divergences import FAMILY, get, learnt
from vestige.ratios.divergences.estimate import Side
from vestige.ratios.divergences.learnt import (
    FLOOR,
    FOUND,
    HIGH_END,
    OFF_REFUSED,
    IntervalParts,
    Refit,
    beyond,
    interval,
    movement,
    one_step,
)

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


def hidden(curvature=1.0, n=N):
    """The KL of normals whose means differ by FOUND + 1.96 standard errors, and what another divergence makes of it."""
    delta = (FOUND + 1.959964) * math.sqrt(2 / n)
    return curvature * delta**2 / 2


@pytest.mark.parametrize(("by", "part"), [(0.0, "hidden"), (0.07, "root"), (0.3, "times")])
def test_the_high_end_adds_independent_errors_by_their_squares(by, part):
    p, q = sides(*draws())
    still, moving = (learnt(["kl"], p, q, refit(p, q, x))["kl"] for x in (0.0, by))
    moved, value = by**2 / 2, still.value
    assert moving.details["movement"] == pytest.approx(moved)
    assert moving.value - still.value == pytest.approx(moved)
    missing = {"hidden": hidden(), "root": HIGH_END.root * math.sqrt(moved * value), "times": HIGH_END.times * moved}
    assert max(missing, key=missing.get) == part
    assert moving.high - moving.value == pytest.approx(math.hypot(1.959964 * still.std_error, missing[part]), rel=1e-6)
    assert moving.low == still.low <= min(value, still.details["one_step"]) - 1.9 * still.std_error


@pytest.mark.parametrize(
    ("name", "curvature"), [("kl", 1.0), ("js", 0.25), ("hellinger2", 0.25), ("pearson_chi2", 2.0)]
)
def test_what_no_test_would_find_is_within_the_high_end(name, curvature):
    n = 500
    equal = IntervalParts(0.0, 0.0, 0.0, 0.0, n, n)
    assert interval(name, equal).high == pytest.approx(hidden(curvature, n), rel=1e-6)
    assert interval(name, equal, hidden=False).high == 0.0
    assert interval(name, equal._replace(n_q=n / 4)).high > interval(name, equal).high


def test_the_movement_of_a_mean_is_what_its_fit_falls_short_by():
    """Two folds and five of a fit whose error is a mean over the rows it saw: the claim that value = two-sided + m."""
    generator, n, short, moved = torch.Generator().manual_seed(0), 50, 0.0, 0.0
    for _ in range(4000):
        noise = torch.randn(n, generator=generator, dtype=torch.float64)
        held = []
        for folds in (5, 2):
            fold = torch.randperm(n, generator=generator) % folds
            held.append(torch.stack([noise[fold != k].mean() for k in range(folds)])[fold])
        short += float(held[0].square().mean()) / 2
        moved += float((held[0] - held[1]).square().mean()) / 2
    assert moved == pytest.approx(short, rel=0.1)


def test_rows_beyond_an_edge_may_have_an_infinite_ratio():
    """Half of p is where q has nothing, and a learnt ratio says 4 there: JS hardly lacks anything, Hellinger does."""
    log_p = torch.cat([torch.full((500,), 4.0), torch.full((500,), -math.log(2))]).double()
    p, q = sides(log_p, torch.full((1000,), -math.log(2)).double())
    lacks = {"hellinger2": 0.5 * (0.5 - (1 - 1 / math.cosh(2)) / 2), "js": 0.5 * math.log1p(math.exp(-4)) / 2}
    for name, gained in lacks.items():
        assert beyond(get(name), p, q, 0.5, 0.0) == pytest.approx(gained)
        assert beyond(get(get(name).reverse), *sides(-q.log_ratio, -p.log_ratio), 0.0, 0.5) == pytest.approx(gained)
        plain, told = (
            learnt([name], p, q, refit(p, q, 0.0), out_of_reach=share)[name] for share in ((0.0, 0.0), (0.5, 0.0))
        )
        assert told.high - plain.high == pytest.approx(gained)
        assert (told.value, told.low) == (plain.value, plain.low)
    assert beyond(get("kl"), p, q, 0.5, 0.5) == 0.0  # it is infinite, and called "at least" for that


def test_a_bounded_divergence_has_no_interval_beyond_its_bound():
    p, q = sides(*draws(shift=4.0))
    found = learnt(["js"], p, q, refit(p, q, 2.0))["js"]
    assert found.value <= found.high <= math.log(2)


def test_the_words():
    p, q = sides(*draws())
    assert learnt(["kl"], p, q, refit(p, q, 0.0))["kl"].verdict == "ok"
    blind = learnt(["kl"], p, q, None)["kl"]
    assert (blind.verdict, "second fit" in blind.reason) == ("at least", True)
    for times, verdict in ((0.7, "ok"), (1.4, "at least")):
        most = HIGH_END.most * 0.18 + FLOOR / N
        wide = learnt(["kl"], p, q, refit(p, q, math.sqrt(2 * times * most)))["kl"]
        assert (wide.verdict, "more rows" in wide.reason) == (verdict, verdict != "ok")


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
