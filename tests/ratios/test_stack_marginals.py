"""Tame coordinates: monotone, blind to labels, free of rows, the same for a row whatever stands beside it."""

import torch

from vestige.ratios.base import Sample
from vestige.ratios.stack.marginals import GRID, KNOTS, REACH, Columns, Marginals, weighted_quantiles
from vestige.store.codec import decode, encode


def draw(n, d=1, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def even(n):
    return torch.full((n,), 1 / n, dtype=torch.float64)


def test_quantiles_are_those_of_repeated_rows():
    x, counts = torch.tensor([3.0, 1.0, 2.0]).double(), torch.tensor([1.0, 2.0, 1.0]).double()
    levels = torch.tensor([0.1, 0.5, 0.8]).double()
    # steps of 1 (mass 1/2), 2 and 3 (1/4 each) have their middles at 1/4, 5/8 and 7/8
    torch.testing.assert_close(weighted_quantiles(x, counts, levels), torch.tensor([1.0, 5 / 3, 2.7]).double())


def test_ranks_of_a_normal_sample_are_the_sample():
    x = draw(20_000)
    got = Columns.of(x, even(len(x))).rank(x)
    inside = x.abs() < 2
    assert float((got - (x - x.mean()) / x.std())[inside].abs().max()) < 0.06


def test_ranks_do_not_feel_a_monotone_map():
    x = draw(5000)
    plain, bent = (Columns.of(y, even(len(y))).rank(y) for y in (x, x.sinh()))
    assert float((plain - bent).abs()[x.abs() < 2].max()) < 0.1


def test_order_is_kept_and_ties_stay_ties():
    x = torch.poisson(torch.full((3000, 1), 1.5, dtype=torch.float64), generator=torch.Generator().manual_seed(1))
    columns = Columns.of(x, even(len(x)))
    values = torch.arange(-3, 30, dtype=torch.float64)[:, None]
    steps = columns.rank(values)[:, 0].diff()
    assert bool((steps > 0).all())
    assert len(columns.rank(x).unique()) == len(x.unique())


def test_knots_are_on_a_grid_and_no_values_of_rows():
    x = draw(300)
    columns = Columns.of(x, even(300))
    inner = columns.knots[0, 12 : 12 + KNOTS] / GRID
    torch.testing.assert_close(inner, inner.round(), atol=1e-9, rtol=0)
    assert len(columns.heights[0, 12 : 12 + KNOTS]) == KNOTS
    assert float(columns.heights[0, 12]) == -REACH


def test_far_out_the_logarithm_goes_on_and_ends():
    columns = Columns.of(draw(1000), even(1000))
    far = columns.rank(torch.tensor([[10.0], [20.0], [40.0], [1e5], [1e30], [-1e30]], dtype=torch.float64))[:, 0]
    assert bool((far[:3].diff() > 0.2).all())
    assert float(far[3]) == float(far[4]) == -float(far[5])


def test_a_column_of_one_value_is_harmless():
    x = torch.cat([draw(100), torch.full((100, 1), 7.0).double()], 1)
    tame = Marginals.of(Sample(x, x))(x)
    assert all(bool(torch.isfinite(part).all()) for part in tame)


def test_the_distance_is_that_of_the_pooled_covariance():
    p = draw(2000, 3) @ torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 2.0]]).double()
    marginals = Marginals.of(Sample(p, p))
    centred = p - p.mean(0)
    exact = (centred @ torch.linalg.inv(centred.mT @ centred / len(p)) * centred).sum(1).sqrt()
    order = marginals(p).distance[:, 0].argsort()
    assert float((exact[order].diff() < -0.02).double().mean()) < 0.01


def test_without_a_share_of_p_nothing_of_p_is_kept():
    q = draw(400, 2, 1)
    one, other = (Marginals.of(Sample(p, q), p_share=0.0) for p in (draw(400, 2), 5 + draw(400, 2, 2)))
    for a, b in zip(encode(one)[1].values(), encode(other)[1].values(), strict=True):
        assert torch.equal(a, b)


def test_a_row_stands_alone_and_storage_keeps_all():
    x = draw(200, 3)
    marginals = Marginals.of(Sample(x, x + 0.2))
    whole, alone = marginals(x), marginals(x[7:8])
    for a, b in zip(whole, alone, strict=True):
        torch.testing.assert_close(a[7:8], b, atol=1e-13, rtol=1e-13)
    back = decode(Marginals, *encode(marginals))(x)
    assert all(torch.equal(a, b) for a, b in zip(whole, back, strict=True))
