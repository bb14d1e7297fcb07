"""Edges of a support are found along a score, and tails are none."""

import math

import pytest
import torch

from vestige.ratios.support.edges import cutoff, edges, neighbour_distances, ranked


def even(n):
    return torch.full((n,), 1 / n, dtype=torch.float64)


def draws(n, d=1, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def between(a, b):
    return edges(a, b, even(len(a)), even(len(b)))


@pytest.mark.parametrize("share", [0.5, 0.25, 0.1])
def test_a_part_that_is_missing_is_an_edge(share):
    """Of b the upper `share` is lost; the score knows it through noise."""
    x, y = torch.rand(4000, 1).double(), (1 - share) * torch.rand(4000, 1).double()
    noise = draws(8000) / 200
    found = between(x + noise[:4000], y + noise[4000:])
    assert bool(found.found)
    assert float(found.near[0].double().mean()) == pytest.approx(share, abs=0.03)
    assert float(found.near[1].double().mean()) <= 0.006
    assert (x[found.near[0]] > 1 - share - 0.05).all()


@pytest.mark.parametrize("n", [300, 1000, 5000])
@pytest.mark.parametrize("other", [lambda x: x - 1, lambda x: x - 2, lambda x: 0.6 * x, lambda x: x, lambda x: 2 * x])
def test_a_tail_is_no_edge(n, other):
    for seed in range(5):
        x, y = draws(n, 1, 2 * seed), draws(n, 1, 2 * seed + 1)
        assert not bool(between(x, other(y)).found)


def test_a_part_of_a_few_percent_is_not_called_one():
    """Some tails look like it, so less than LEAST is left alone."""
    x, y = torch.rand(20_000, 1).double(), torch.rand(20_000, 1).double()
    assert bool(between(x, 0.93 * y).found)
    assert not bool(between(x, 0.97 * y).found)


def test_counts_have_an_edge_where_one_side_ends():
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.poisson(torch.full((700, 1), rate), generator=generator).double() for rate in (5.0, 3.0))
    assert not bool(between(p, q).found)  # both cutoffs may fall on one count, beyond which there are more of q
    assert bool(between(p, q.clamp_max(6)).found)
    flags = (torch.rand(700, 1, generator=generator) < 0.1).double()
    assert bool(between(flags, torch.zeros(700, 1).double()).found)


def test_many_equal_columns_have_no_edge():
    for seed in range(3):
        x = draws(1000, 100, seed)
        assert not bool(between(x[:500], x[500:]).found.any())


def test_the_share_of_the_largest_weights_and_ties():
    score = torch.tensor([[3.0], [2.0], [2.0], [1.0]], dtype=torch.float64)
    weights = torch.tensor([0.1, 0.2, 0.2, 0.5], dtype=torch.float64)
    value, part = cutoff(score, weights, 0.2)
    assert float(value) == 2
    assert float(part) == pytest.approx(0.25)  # 0.1 of the 0.4 that is tied
    value, part = cutoff(score, weights, 0.1)
    assert float(value) == 3
    assert float(part) == pytest.approx(1)


def test_rows_of_weight_zero_do_not_reach():
    """Those of b that would fill the upper half weigh nothing."""
    x, y = torch.rand(2000, 1).double(), torch.rand(4000, 1).double()
    weights = (y[:, 0] < 0.5).double()
    assert not bool(between(x, y).found)
    assert bool(edges(x, y, even(2000), weights / weights.sum()).found)


def test_ranks_are_of_the_pool_with_ties_at_their_mean():
    p, q = torch.tensor([[1.0], [5.0]]).double(), torch.tensor([[1.0], [9.0]]).double()
    z_p, z_q = ranked(p, q)
    assert float(z_p[0]) == float(z_q[0]) < 0
    assert float(z_q[1]) == pytest.approx(1.1503, abs=1e-3)  # the normal quantile of 3.5 / 4
    again = ranked(p.exp(), q.exp())
    assert torch.equal(torch.cat(again), torch.cat((z_p, z_q)))


def test_distances_against_all_pairs():
    a, b = draws(40, 3, 0), draws(60, 3, 1)
    of_a, of_b = neighbour_distances(a, b, 4)
    every = torch.cdist(b, b)
    every.fill_diagonal_(math.inf)
    assert torch.allclose(of_a, torch.cdist(a, b).sort(1).values[:, 3])
    assert torch.allclose(of_b, every.sort(1).values[:, 3], atol=1e-6)
