"""Sequential trees: each part against brute force, and the whole on laws whose dependence is known."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score
from sklearn.tree import DecisionTreeClassifier

from vestige import densities
from vestige.densities.margins import Codes, margin_of
from vestige.densities.trees import (
    ColumnTree,
    Growth,
    best_split,
    category_shares,
    cut_codes,
    draw_codes,
    find_leaf,
    groups_of,
    grow,
    missing_rates,
    mutual_information,
    number_shares,
    structure,
)

G = np.random.default_rng(0)
N = 6000


def table_of(n):
    x = np.arange(n + 1.0)
    return np.where(x > 0, x * np.log(np.maximum(x, 1)), 0.0)


def log_likelihood(counts):
    n = counts.sum()
    return sum(c * math.log(c / n) for c in counts if c)


def test_mutual_information_is_that_of_scikit_learn_less_its_bias():
    a = G.integers(0, 4, 500)
    b, c = (a + G.integers(0, 2, 500)) % 4, G.integers(0, 3, 500)
    found = mutual_information([a, b, c])
    for i, j in itertools.combinations(range(3), 2):
        x, y = [a, b, c][i], [a, b, c][j]
        bias = x.max() * y.max() / 1000
        assert found[i, j] == pytest.approx(mutual_info_score(x, y) - bias, abs=1e-6)


@pytest.mark.parametrize("unordered", [False, True])
def test_the_best_split_is_that_of_brute_force(unordered):
    counts = G.integers(0, 30, (2, 5, 2))
    counts[1] = counts[1] * (counts[0].sum() / counts[1].sum()) // 1  # nearly as many rows
    best = (-math.inf, 0, None)
    for candidate in range(2):
        for size in range(1, 5):
            subsets = itertools.combinations(range(5), size) if unordered else [tuple(range(size))]
            for subset in subsets:
                left = counts[candidate, list(subset)].sum(0)
                right = counts[candidate].sum(0) - left
                if min(left.sum(), right.sum()) >= 20:
                    whole = log_likelihood(counts[candidate].sum(0))
                    gain = log_likelihood(left) + log_likelihood(right) - whole
                    best = max(best, (gain, candidate, subset), key=lambda found: found[0])
    gain, candidate, goes = best_split(counts, np.array([unordered] * 2), 20, table_of(counts.sum()))
    assert gain == pytest.approx(best[0], rel=1e-9)  # with two targets the order by their mean holds the best subset
    assert candidate == best[1]
    chosen = set(np.flatnonzero(goes).tolist())
    assert chosen in (set(best[2]), set(range(5)) - set(best[2]))


def test_a_tree_is_that_of_scikit_learn():
    x = G.integers(0, 8, (2000, 3))
    y = ((x[:, 0] > 3) * 2 + (x[:, 1] > (2 + 3 * (x[:, 0] > 3))) + (G.random(2000) < 0.2)) % 4
    nodes = grow(x, np.zeros(3, dtype=bool), y, Growth(60, 6, 0.0))
    theirs = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=6, min_samples_leaf=60, random_state=0).fit(
        x, y
    )
    ours = find_leaf(structure(nodes, np.arange(3)), x)
    pairs = set(zip(ours.tolist(), theirs.apply(x).tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 6


def test_leaves_have_enough_rows_and_noise_is_not_split():
    x, y = G.integers(0, 30, (3000, 4)), G.integers(0, 10, 3000)
    assert len(grow(x, np.zeros(4, dtype=bool), y, Growth(50, 50, 1.5))) == 1
    nodes = grow(x, np.zeros(4, dtype=bool), y, Growth(130, 12, 0.0))
    leaves = [node for node in nodes if node.split is None]
    assert len(leaves) == 12
    assert min(len(node.rows) for node in leaves) >= 130
    assert sum(len(node.rows) for node in leaves) == 3000
    for node in nodes:  # counts of the larger child are a difference
        assert node.counts[0].sum() == len(node.rows)


def test_segments_have_enough_rows():
    counts = np.array([10, 10, 40, 5, 60, 0, 30, 30, 20, 20, 3])
    segment = cut_codes(counts, 50, 4)
    assert segment[0] == 0
    assert (np.diff(segment) >= 0).all()
    assert np.bincount(segment, counts).min() >= 50
    assert cut_codes(counts, 200, 4).max() == 0


def test_shares_of_numbers_have_the_segments_shares_and_means_and_little_else():
    before, centre = G.dirichlet(np.full(40, 5.0)), np.sort(G.random(40))
    counts = G.poisson(30 * np.exp(-40 * (centre - 0.4) ** 2))
    share = number_shares(counts, before, centre, 50, 6)
    segment = cut_codes(counts, 50, 6)
    assert segment.max() >= 3
    np.testing.assert_allclose(np.bincount(segment, share), np.bincount(segment, counts) / counts.sum(), atol=1e-12)
    means = [np.bincount(segment, w * centre) / np.bincount(segment, w) for w in (share, counts)]
    np.testing.assert_allclose(*means, atol=1e-3)
    for s in range(segment.max() + 1):  # an exponential tilt: linear in the logarithm
        own = segment == s
        if own.sum() > 2:
            logs = np.log(share[own] / before[own])
            np.testing.assert_allclose(logs, np.polyval(np.polyfit(centre[own], logs, 1), centre[own]), atol=1e-8)
    assert number_shares(counts // 100, before, centre, 50, 6) is before
    assert counts.max() < counts.sum() / 8  # none has a share of its own


def test_an_atom_has_its_own_share_in_a_node_even_where_it_is_alone():
    before, centre = np.array([0.2, 0.2, 0.4, 0.1, 0.1]), np.array([0.1, 0.3, 0.6, 0.85, 0.95])
    np.testing.assert_allclose(number_shares(np.array([0, 0, 200, 0, 0]), before, centre, 50, 8), [0, 0, 1, 0, 0])
    few = number_shares(np.array([2, 1, 180, 1, 0]), before, centre, 50, 8)  # 4 of 184 count as none
    np.testing.assert_allclose(few, [0, 0, 1, 0, 0])
    few = number_shares(np.array([20, 10, 170, 0, 0]), before, centre, 50, 8)  # 30 of 200 as 50, shared as above
    np.testing.assert_allclose(few, [0.25 / 3, 0.25 / 3, 0.75, 0.125 / 3, 0.125 / 3])
    some = number_shares(np.array([6, 4, 200, 30, 40]), before, centre, 50, 8)
    assert some[2] == pytest.approx(200 / 280)
    assert some[[0, 1, 3, 4]] @ centre[[0, 1, 3, 4]] == pytest.approx(
        (6 * 0.1 + 4 * 0.3 + 30 * 0.85 + 40 * 0.95) / 280, abs=1e-3
    )


def test_shares_of_categories_are_counted_only_where_rows_are_enough():
    before = np.array([0.4, 0.3, 0.2, 0.1])
    # two codes of enough rows, and what is left as it is above
    np.testing.assert_allclose(category_shares(np.array([100, 60, 45, 15]), before, 50) * 220, [100, 60, 40, 20])
    # too few are left: the smallest that is counted joins them
    found = category_shares(np.array([100, 60, 29, 1]), before, 50) * 190
    np.testing.assert_allclose(found, [100, 45, 30, 15])
    # so few that they count as none
    np.testing.assert_allclose(category_shares(np.array([100, 60, 9, 1]), before, 50) * 160, [100, 60, 0, 0])
    assert category_shares(np.array([30, 30, 30, 30]), before, 50) is before
    np.testing.assert_allclose(category_shares(np.array([100, 80, 0, 0]), before, 50), np.array([5, 4, 0, 0]) / 9)


def test_rates_of_missing_values_are_pooled_where_few_are_missing():
    leaf = np.repeat([0, 1, 2], 200)
    missing = np.zeros(600, dtype=bool)
    missing[:80] = missing[200:230] = missing[400:440] = True
    assert missing_rates(leaf, 3, missing, 0.25, 50).tolist() == [0.4, 0.175, 0.175]
    assert missing_rates(leaf, 3, missing & (leaf > 0), 0.1, 50).tolist() == [0.1] * 3
    assert missing_rates(leaf, 3, missing & False, 0.0, 50).tolist() == [0, 0, 0]


def test_codes_are_drawn_with_the_shares_of_their_leaf():
    tree = ColumnTree(
        structure([], np.arange(0)),
        torch.tensor([0.0, 0.5], dtype=torch.float64),
        torch.tensor([[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]], dtype=torch.float16),
    )
    leaf = np.repeat([0, 1], 20_000)
    found = draw_codes(tree, leaf, np.random.default_rng(0))
    assert (np.bincount(found[:20_000], minlength=4) / 20_000).tolist() == pytest.approx([0.25, 0.5, 0.25, 0], abs=0.02)
    assert (np.bincount(found[20_000:], minlength=4) / 20_000).tolist() == pytest.approx([0, 0, 0.5, 0.5], abs=0.02)


def test_missing_values_have_a_group_of_their_own():
    codes = Codes(margin_of(G.normal(size=3000), "number", 50), "number")
    groups = groups_of(codes, 32)
    assert len(groups) == len(codes) + 1
    assert groups.max() == groups[-1] <= 31
    assert (groups[:-1] < groups[-1]).all()


def test_dependence_that_no_correlation_shows_is_drawn():
    """A circle, an interaction with a category, and values that are missing where another column is high."""
    angle = 2 * np.pi * G.random(N)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * G.normal(size=(N, 2))
    code = G.integers(0, 2, N)
    either = np.where((code == 1) & (circle[:, 0] > 0), 1.0, -1.0) + 0.1 * G.normal(size=N)
    gone = np.where((circle[:, 1] > 0.5) & (G.random(N) < 0.8), np.nan, G.normal(size=N))
    cells = np.column_stack([circle, code, either, gone])
    kinds = ["number", "number", "category", "number", "number"]
    for order in ("given", "dependence"):
        drawn = densities.build("trees", order=order).fit(cells, kinds).draw(20_000, seed=1).numpy()
        radius = np.hypot(drawn[:, 0], drawn[:, 1])
        assert np.quantile(radius, [0.1, 0.9]).tolist() == pytest.approx([0.93, 1.07], abs=0.09)
        agreed = ((drawn[:, 2] == 1) & (drawn[:, 0] > 0)) == (drawn[:, 3] > 0)
        assert agreed.mean() > 0.95
        assert np.isnan(drawn[drawn[:, 1] > 0.55, 4]).mean() == pytest.approx(0.8, abs=0.06)
        assert np.isnan(drawn[drawn[:, 1] < 0.45, 4]).mean() < 0.02


def test_nothing_in_a_leaf_is_counted_over_fewer_than_fifty_rows():
    """One row that moves within its segment's mean leaves a trace no larger than a fiftieth."""
    x = G.normal(size=(600, 2))
    x[:, 1] += 2 * x[:, 0]
    density = densities.build("trees").fit(x)
    leaves = density.report_["leaves"]
    assert max(leaves) <= 600 // 50
    for tree, count in zip(density.trees_, leaves, strict=True):
        assert tree.shares.shape[0] == count
        assert torch.isfinite(tree.shares).all()


def test_trees_grow_on_so_many_rows_and_count_all():
    x = G.normal(size=(4000, 2))
    x[:, 1] += 2 * x[:, 0]
    density = densities.build("trees", most_rows=1000).fit(x)
    assert max(density.report_["leaves"]) <= 20
    drawn = density.draw(20_000).numpy()
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(np.corrcoef(x.T)[0, 1], abs=0.05)


def test_the_log_density_is_the_chance_of_a_draw_with_missing_values_and_joined_columns():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 3, 8000), rng.integers(0, 2, 8000)
    code = np.where(rng.random(8000) < 0.7, a, rng.integers(0, 4, 8000))  # one-hot: four columns, or none
    cells = np.concatenate([np.stack([a, b], 1), np.eye(4)[code]], 1)
    cells[:, 1] = np.where((a == 2) & (rng.random(8000) < 0.5), np.nan, cells[:, 1])
    kinds = ("category", "category", *("number",) * 4)
    density = densities.build("trees").fit(cells, kinds)
    assert density.exclusive_ is not None
    every = [[a, b, *np.eye(4)[c]] for a in range(3) for b in (0, 1, math.nan) for c in range(4)]
    rows = torch.tensor(np.array(every, dtype=float))
    chance = density.log_density(rows).exp()
    assert float(chance.sum()) == pytest.approx(1, abs=2e-3)
    drawn = density.draw(60_000, seed=2)
    for row, expected in zip(rows, chance, strict=True):
        held = ((drawn == row) | (drawn.isnan() & row.isnan())).all(1).double().mean()
        assert float(held) == pytest.approx(float(expected), abs=0.006)


def test_the_log_density_of_dependent_numbers_is_near_that_of_the_law():
    rng = np.random.default_rng(2)
    x = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 20_000)
    fresh = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 4000)
    density = densities.build("trees").fit(x)
    found = density.log_density(fresh).numpy()
    truth = -np.log(2 * np.pi * 0.6) - (fresh[:, 0] ** 2 + fresh[:, 1] ** 2 - 1.6 * fresh.prod(1)) / 0.72
    finite = np.isfinite(found)
    assert finite.mean() > 0.995
    assert 0 < (truth - found)[finite].mean() < 0.1  # its Kullback-Leibler divergence
