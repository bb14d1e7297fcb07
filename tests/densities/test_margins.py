"""A column as codes, and back: what is kept is on a grid and over enough rows, and what is drawn has the same law."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import genpareto, ks_2samp

from vestige.densities.margins import (
    Codes,
    grid_step,
    group_codes,
    margin_of,
    on_grid,
    resolution_of,
    rounded_rate,
    survival,
    tail,
    wide_enough,
)

G = np.random.default_rng(0)
LAWS = {
    "normal": G.normal(size=4000) * 7 + 1000,
    "tiny": G.normal(size=4000) * 1e-9,
    "lognormal": np.exp(1.5 * G.normal(size=4000)),
    "uniform": G.random(4000),
    "student": G.standard_t(3, 4000),
    "whole": G.poisson(200, 4000).astype(float),
    "few values": G.poisson(1.5, 4000).astype(float),
    "many zeros": np.where(G.random(4000) < 0.6, 0.0, G.exponential(3.0, 4000)),
    "two decimals": np.round(G.gamma(2.0, 30.0, 4000), 2),
}


def drawn(column, kind="number", n=20_000, seed=1):
    codes = Codes(margin_of(column, kind, 50), kind)
    g = np.random.default_rng(seed)
    return codes.values(g.choice(len(codes), n, p=codes.share), g.random(n))


@pytest.mark.parametrize("law", LAWS)
def test_draws_have_the_law_of_the_column(law):
    column = LAWS[law]
    found = drawn(column)
    assert ks_2samp(found, column).statistic < 0.02 + 1.0 / math.sqrt(4000)
    inner = np.abs(column - np.median(column)) < 4 * column.std()
    assert abs(np.median(found) - np.median(column)) < 0.05 * column[inner].std()
    for level in (0.01, 0.1, 0.9, 0.99):
        assert abs((found < np.quantile(column, level)).mean() - (column < np.quantile(column, level)).mean()) < 0.012


@pytest.mark.parametrize("law", LAWS)
def test_every_bin_has_fifty_rows_and_edges_are_on_the_grid(law):
    column = LAWS[law]
    margin = margin_of(column, "number", 50)
    codes = Codes(margin, "number")
    counts = np.bincount(codes.read(column), minlength=len(codes))
    np.testing.assert_allclose(counts / len(column), margin.share.numpy(), atol=1e-12)
    assert counts.min() >= 50
    assert len(counts) <= 128 + 200
    inner = codes.low[codes.bins][1:]
    rest = column[~np.isin(column, codes.low[codes.atoms])]
    if len(inner):
        step = max(grid_step(rest), margin.resolution)
        np.testing.assert_allclose(inner / step, np.round(inner / step), atol=1e-6)
    if margin.resolution == 0:
        assert not set(column) & set(inner)


@pytest.mark.parametrize("law", LAWS)
def test_values_go_back_to_their_codes(law):
    codes = Codes(margin_of(LAWS[law], "number", 50), "number")
    code = np.repeat(np.arange(len(codes)), 5)
    back = codes.read(codes.values(code, np.tile([0.01, 0.3, 0.5, 0.7, 0.99], len(codes))))
    assert (back == code).mean() > 0.9  # a value of a wide bin may be that of an atom inside


def test_no_extreme_is_kept():
    """One row that is far away changes nothing that is stored."""
    plain, odd = LAWS["normal"].copy(), LAWS["normal"].copy()
    odd[odd.argmax()] = 1e9
    a, b = margin_of(plain, "number", 50), margin_of(odd, "number", 50)
    for one, other in zip(vars(a).values(), vars(b).values(), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert drawn(odd).max() < 1100


def test_bounds_that_everybody_knows_are_kept():
    assert drawn(LAWS["uniform"]).min() >= 0
    assert drawn(LAWS["uniform"]).max() <= 1
    assert drawn(LAWS["lognormal"]).min() >= 0
    assert drawn(LAWS["normal"] - 1000).min() < -10


def test_whole_numbers_stay_whole_and_decimals_few():
    assert (drawn(LAWS["whole"]) % 1 == 0).all()
    cents = drawn(LAWS["two decimals"])
    np.testing.assert_allclose(cents * 100, np.round(cents * 100), atol=1e-6)
    assert resolution_of(np.array([1.0, 2.0])) == 1
    assert resolution_of(np.array([1.5, 2.25])) == 0.01
    assert resolution_of(np.array([math.pi])) == 0


def test_few_rows_beside_atoms_count_with_the_nearest():
    column = np.array([0.0] * 300 + [1.0] * 300 + [0.9] * 20)
    margin = margin_of(column, "number", 50)
    assert margin.low.tolist() == [0, 1]
    assert margin.share.tolist() == pytest.approx([300 / 620, 320 / 620])


def test_on_a_lattice_of_many_values_only_those_stand_out_that_do():
    x = np.concatenate([G.integers(0, 150, 6000), np.full(400, 17)]).astype(float)  # 40 rows each, and one of 440
    codes = Codes(margin_of(x, "number", 50), "number")
    assert codes.low[codes.atoms].tolist() == [17]
    found = drawn(x)
    assert (found == 17).mean() == pytest.approx((x == 17).mean(), abs=0.02)
    assert abs((found == 40).mean() - (x == 40).mean()) < 0.01


@pytest.mark.parametrize(("low", "step"), [(1.0, 0.02), (3.0, 0.05), (7.0, 0.1), (2600.0, 50.0), (4e-7, 5e-9)])
def test_the_step_of_the_grid_is_a_fiftieth_of_the_scale_or_less(low, step):
    column = np.linspace(0, 2 * low, 1001)  # whose quartiles are `low` apart
    assert grid_step(column) == pytest.approx(step)
    assert grid_step(np.full(9, 3.0)) == 0
    np.testing.assert_allclose(on_grid(np.array([step * 7.4]), step), [step * 7])


def test_edges_with_few_rows_between_them_are_left_out():
    values = np.arange(200.0)
    assert wide_enough(values, np.array([20.0, 60.0, 80.0, 120.0, 170.0]), 50).tolist() == [60, 120]


@pytest.mark.parametrize("shape", [-0.9, -0.5, 0.0, 0.3])
def test_a_tail_has_the_shape_of_its_law(shape):
    excess = genpareto.ppf((np.arange(20_000) + 0.5) / 20_000, shape, scale=3.0)
    scale, found, reach = tail(excess, 1e-4, math.inf)
    assert (scale, found) == pytest.approx((3.0, shape), abs=0.01)
    assert survival(1.7, scale, found) == pytest.approx(genpareto.sf(1.7, shape, scale=3.0), abs=2e-3)
    assert reach >= excess[int(0.998 * len(excess))] * 0.99
    assert tail(excess, 1e-4, 2.0)[2] == 2


def test_rates_of_few_rows_are_none_or_those_of_fifty():
    assert rounded_rate(123, 1000, 50) == 0.123
    assert rounded_rate(1, 1000, 50) == rounded_rate(24, 1000, 50) == 0
    assert rounded_rate(25, 1000, 50) == rounded_rate(49, 1000, 50) == 0.05
    assert rounded_rate(977, 1000, 50) == 1
    assert rounded_rate(960, 1000, 50) == 0.95
    assert rounded_rate(0, 1000, 50) == 0
    assert rounded_rate(1000, 1000, 50) == 1


def test_groups_are_of_equal_share_or_the_largest_alone():
    share = np.full(100, 0.01)
    groups = group_codes(share, 8, True)
    assert (np.diff(groups) >= 0).all()
    assert np.bincount(groups).tolist() == pytest.approx([12.5] * 8, abs=1)
    some = group_codes(np.array([0.1, 0.5, 0.05, 0.3, 0.05]), 3, False)
    assert some.tolist() == [2, 0, 2, 1, 2]


@pytest.mark.parametrize("rounded", [None, 0, 1])
def test_the_density_within_codes_integrates_to_their_shares_and_is_that_of_draws(rounded):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(0, 3, 3000), rng.exponential(4, 2000), np.full(600, 2.5)])
    x = x if rounded is None else np.round(x, rounded)
    codes = Codes(margin_of(x, "number", 50), "number")
    drawn_codes = rng.choice(len(codes), 200_000, p=codes.share / codes.share.sum())
    drawn = codes.values(drawn_codes, rng.random(200_000))
    free = ~codes.is_atom[drawn_codes]
    if rounded is None:
        grid = np.linspace(-80, 200, 2_000_001)[1:]
        read = codes.read(grid)
        inside = ~codes.is_atom[read]
        density = np.where(inside, codes.share[read] * np.exp(codes.log_within(read, grid)), 0.0)
        assert density.sum() * (grid[1] - grid[0]) == pytest.approx(codes.share[~codes.is_atom].sum(), rel=1e-3)
        edges = np.quantile(drawn[free], np.linspace(0.001, 0.999, 30))
        held = np.histogram(drawn[free], edges)[0] / len(drawn)
        theirs = [density[(grid > a) & (grid <= b)].sum() * (grid[1] - grid[0]) for a, b in itertools.pairwise(edges)]
        np.testing.assert_allclose(held, theirs, atol=4e-3)
    else:
        values, counts = np.unique(drawn, return_counts=True)
        read = codes.read(values)
        chance = codes.share[read] * np.exp(codes.log_within(read, values))
        assert chance.sum() == pytest.approx(1, abs=2e-3)
        many = counts > 400
        np.testing.assert_allclose(counts[many] / len(drawn), chance[many], rtol=0.2)
    low, high = codes.positions(drawn_codes, drawn)
    position = low + (high - low) * rng.random(len(drawn))  # is uniform by definition
    np.testing.assert_allclose(np.histogram(position, 20, (0, 1))[0] / len(drawn), 1 / 20, atol=3e-3)
    if rounded is None:
        back = codes.values(drawn_codes, codes.below(drawn_codes, drawn))
        np.testing.assert_allclose(back[free], drawn[free], rtol=1e-6, atol=1e-6)
