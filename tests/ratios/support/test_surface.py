"""Local dimensions of rows whose dimension is known, what is no surface, and what follows for numbers and weights."""

import math

import pytest
import torch

from vestige.core import Estimate
from vestige.ratios.support import reach, reachable, verdict
from vestige.ratios.support.surface import THIN, continuous, filled, local_dimension, surface, uncorrelated
from vestige.ratios.weights import diagnose, from_log_ratio


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def share(x, seed=0):
    return filled(x, generator=torch.Generator().manual_seed(seed))


def sheet(n, thickness, seed=0):
    """A surface of two directions in three, and noise across it."""
    base, off = normal(n, 2, seed), normal(n, 1, seed + 1)
    return torch.cat([base, (2 * base).sin().sum(1, keepdim=True) + thickness * off], 1)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_cube_has_the_dimension_of_its_columns(d):
    rows = torch.rand(3000, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert local_dimension(rows) == pytest.approx(d, rel=0.06)


def test_a_line_in_space_has_one():
    t = torch.rand(2000, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert local_dimension(torch.cat([t.cos(), t.sin(), t.square()], 1)) == pytest.approx(1, rel=0.03)


def test_it_is_the_slow_formula():
    rows, k = normal(60, 2), 4
    apart = torch.stack([(rows - row).norm(dim=1).sort().values for row in rows])[:, 1 : k + 1]
    slow = [math.log(float(one[k - 1]) / float(one[j])) for one in apart for j in range(k - 1)]
    assert local_dimension(rows, k) == pytest.approx(len(slow) / sum(slow))


def test_a_row_that_is_there_twice_has_no_direction():
    rows = normal(400, 2)
    assert local_dimension(torch.cat([rows, rows[:100]])) == pytest.approx(local_dimension(rows), rel=0.1)


@pytest.mark.parametrize("d", [2, 5, 10, 30])
def test_independent_columns_are_filled_in_any_dimension(d):
    assert share(normal(1000, d)) == pytest.approx(1, abs=0.05)


def test_correlation_is_no_surface_nor_is_a_plane():
    rows = normal(1000, 4) @ normal(4, 4, 1)
    assert share(rows) == pytest.approx(1, abs=0.06)
    plane = torch.cat([rows, rows.sum(1, keepdim=True), torch.ones(1000, 1, dtype=torch.float64)], 1)
    assert uncorrelated(plane).shape[1] == 4
    assert share(plane) == pytest.approx(1, abs=0.06)


def test_a_sheet_is_thinner_the_less_noise_there_is_across_it():
    shares = [share(sheet(1000, thickness)) for thickness in (0.02, 0.15, 2.0)]
    assert shares == sorted(shares)
    assert shares[0] < 0.75
    assert shares[1] < THIN < shares[2]


def test_of_two_views_the_one_that_fills_more_counts():
    g = torch.Generator().manual_seed(0)
    thin, full = sheet(800, 0.02), normal(800, 3)
    assert surface((thin, full), generator=g) == pytest.approx(1, abs=0.05)
    assert surface((full, thin), generator=g) == pytest.approx(1, abs=0.05)
    assert surface((thin, thin), generator=g) < THIN


def test_columns_of_few_values_say_nothing():
    p, q = normal(300, 3), normal(300, 3, 1)
    p[:, 1] = p[:, 1].round()
    assert continuous(p, q) == [0, 2]
    assert share(p[:, :1]) == 1.0  # one column fills itself
    assert share(p[:20]) == 1.0  # and twenty rows have no neighbours to speak of


@pytest.fixture(scope="module")
def reached():
    """Of rows near a sheet, and of rows that fill their columns, with a ratio that sees no difference."""
    found = {}
    for name, p, q in (("sheet", sheet(600, 0.1), sheet(600, 0.2, 5)), ("full", normal(600, 3), normal(600, 3, 5))):
        found[name] = reach(p, q, torch.zeros(600).double(), torch.zeros(600).double())
    return found


@pytest.mark.parametrize("name", ["js", "kl", "hellinger2"])
def test_numbers_of_rows_near_a_surface_are_at_least(reached, name):
    found = Estimate(0.01, 0.0, 0.02, name=name)
    assert verdict(name, found, reached["full"]) == found
    word = verdict(name, found, reached["sheet"])
    assert (word.verdict, word.low) == ("at least", 0.0)
    assert "rows lie near a curved surface (they fill" in word.reason
    already = verdict(name, found.but(verdict="at least", reason="the rows are few"), reached["sheet"])
    assert already.reason.endswith("; the rows are few")


def test_weights_of_rows_near_a_surface_are_used_with_care(reached):
    good = diagnose(from_log_ratio(torch.zeros(600).double()))
    assert good.verdict == "good"
    assert reachable(good, reached["full"]).verdict == "good"
    found = reachable(good, reached["sheet"])
    assert found.verdict == "usable with care"
    assert found.warnings[0].startswith("The rows lie near a curved surface")
