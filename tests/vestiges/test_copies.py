"""Planted copies are found, two samples of one distribution have none, and the cost is bounded."""

import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.stats import binomtest

from vestige.core import InputError
from vestige.vestiges import attack, compare, copies, keep
from vestige.vestiges.copies import copies_of_rows, dimension, in_units, nearest, pixels, too_near

FAMILIES = {
    "normal": lambda g, n: g.normal(size=(n, 4)),
    "one column": lambda g, n: g.normal(size=(n, 1)),
    "heavy tails": lambda g, n: g.standard_cauchy((n, 3)),
    "skewed": lambda g, n: np.exp(2 * g.normal(size=(n, 3))),
    "counts": lambda g, n: g.poisson(3, (n, 3)),
    "large counts": lambda g, n: g.poisson(30, (n, 5)),
    "fine counts": lambda g, n: g.poisson(300, (n, 6)),
    "bits": lambda g, n: g.random((n, 12)) < 0.3,
    "rounded": lambda g, n: g.normal(size=(n, 2)).round(1),
    "thirds": lambda g, n: g.poisson(40, (n, 2)) / 3,  # on a lattice that is not decimal
    "mostly zero": lambda g, n: np.where(g.random((n, 3)) < 0.8, 0, g.normal(size=(n, 3))),
    "ring": lambda g, n: np.stack([np.cos(a := 2 * np.pi * g.random(n)), np.sin(a)], 1),
}


def rows(name, n, seed):
    return torch.as_tensor(np.asarray(FAMILIES[name](np.random.default_rng(seed), n), dtype=float))


@pytest.mark.parametrize("name", FAMILIES)
def test_two_samples_of_one_distribution_have_no_copies(name):
    fired = 0
    for seed in range(25):
        n, m = (120, 400)[seed % 2], (300, 90)[seed % 3 == 0]
        fired += len(copies.copies(rows(name, n, seed), rows(name, m, 1000 + seed), seed=seed)) > 0
    assert binomtest(fired, 25, copies.LEVEL).pvalue > 1e-4


@pytest.mark.parametrize(("name", "noise"), [("normal", 0.0), ("normal", 0.01), ("fine counts", 0.0)])
def test_two_percent_of_the_rows_with_little_noise_are_found(name, noise):
    p, q = rows(name, 1000, 0), rows(name, 1000, 1)
    g = torch.Generator().manual_seed(2)
    q[100:120] = p[300:320] + noise * p.std(0) * torch.randn(20, p.shape[1], generator=g, dtype=torch.float64)
    found = copies.copies(p, q)
    assert len(set(found.rows) & set(range(100, 120))) >= 18
    assert len(set(found.rows) - set(range(100, 120))) <= 2
    assert {found.of[found.rows.index(i)] - i for i in set(found.rows) & set(range(100, 120))} == {200}
    assert (found.exact >= 18) == (noise == 0)


def test_a_single_row_that_is_equal_in_all_digits_is_a_copy_and_a_shared_value_is_not():
    p, q = rows("normal", 100, 0), rows("normal", 80, 1)
    q[5], q[6] = p[9], p[10] + 1e-3
    found = copies.copies(p, q)
    assert found.rows == (5,)
    assert found.of == (9,)
    assert found.exact == 1
    assert found.sentence() == "The model repeats 1 of the data's rows, exactly."
    with pytest.raises(
        InputError, match=r"model of keep must not repeat rows of the data. Got 1 that do, rows 5, instead"
    ):
        found.refuse("model", "keep")
    p[:, 0] = 0.0  # one value that all have is no sign
    p[:, 1:] = p[:, 1:].round()
    q = p[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    assert not copies._alike(p, q)


def test_rows_of_many_columns_are_held_against_each_other_whole():
    g = torch.Generator().manual_seed(0)
    p, q = torch.randn(100, 200, generator=g), torch.randn(80, 200, generator=g)
    q[5], q[6] = p[9], p[10]
    looked = torch.linspace(0, 199, copies.COLUMNS).long().tolist()
    q[6, next(j for j in range(200) if j not in looked)] += 1e-3
    found = copies.copies(p, q)
    assert (found.rows, found.of, found.exact) == ((5,), (9,), 1)


def test_a_model_that_draws_from_the_dense_part_alone_copies_nothing():
    p = rows("normal", 1000, 3)
    assert not len(copies.copies(p, rows("normal", 1000, 4) * 0.3))


def test_distances_are_those_of_brute_force_and_units_those_of_the_nearest_row():
    x, a = rows("normal", 30, 5), rows("normal", 40, 6)
    far = torch.cdist(x, a, compute_mode="donot_use_mm_for_euclid_dist")
    found, place = nearest(x, a)
    torch.testing.assert_close(found, far.min(1).values)
    assert torch.equal(place, far.argmin(1))
    own = torch.cdist(a, a, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    unit = nearest(a, a, apart=True)[0]
    torch.testing.assert_close(unit, own.min(1).values)
    rho, _ = in_units(x, a, unit)
    torch.testing.assert_close(rho, far.min(1).values / unit[far.argmin(1)])
    twice = torch.cat([a, a[:1]])
    assert in_units(a[:1], twice, nearest(twice, twice, apart=True)[0])[0].isinf().all()


def test_the_chance_of_a_small_rho_falls_with_the_dimension():
    g = torch.Generator().manual_seed(0)
    for d in (1.0, 3.0):
        rho = 0.4 * torch.rand(3000, generator=g, dtype=torch.float64) ** (1 / d)
        assert 0.9 * d <= dimension(rho, 0.4) <= max(d, 1.0)


def test_rows_below_the_limit_are_too_many_only_beyond_the_rate_of_the_halves():
    g = torch.Generator().manual_seed(1)
    half = torch.rand(400, generator=g, dtype=torch.float64)
    assert not too_near(half, torch.rand(400, generator=g, dtype=torch.float64), 0.0).any()
    near = torch.cat([torch.rand(380, generator=g, dtype=torch.float64) + 0.1, torch.full((20,), 1e-6)])
    assert torch.equal(torch.nonzero(too_near(half, near, 0.0)).flatten(), torch.arange(380, 400))
    assert not too_near(half, near, 1.0).any()  # on a lattice as coarse as the quantile zeros are nothing special


def test_pixels_are_on_one_scale():
    g = np.random.default_rng(0)
    dark = torch.as_tensor(g.random((300, 64)) * np.where(np.arange(64) < 32, 0.001, 1.0))
    assert pixels(dark)
    assert not pixels(dark - 0.5)
    assert not pixels(dark[:, :8])
    x, _, _ = copies.scaled(dark, dark)
    assert float(x.std(0).min()) < 0.01


def test_tables_are_looked_at_by_their_columns_together():
    g = np.random.default_rng(1)
    frames = [
        pd.DataFrame({"amount": g.normal(size=200), "town": g.choice(["a", "b"], 200), "id": range(200)}) for _ in "pq"
    ]
    frames[1].loc[7, ["amount", "town"]] = frames[0].loc[3, ["amount", "town"]]
    p, q = (pa.Table.from_pandas(frame) for frame in frames)
    assert copies_of_rows(p, q, drop=["id"]).rows == (7,)
    with pytest.raises(InputError, match="both be tables"):
        copies_of_rows(p, torch.zeros(5, 2))


def test_the_comparison_says_it_and_keep_refuses_it():
    p, q = rows("normal", 200, 0), rows("normal", 150, 1)
    q[11] = p[4]
    found = compare(p, q, estimator="ulsif", rows=100, pair_rows=100)
    assert found.copies.rows == (11,)
    assert found.conclusion.endswith("The model repeats 1 of the data's rows, exactly.")
    with pytest.raises(InputError, match="rows 11, instead"):
        keep(p, model=q)
    kept = keep(p, model=q, allow_copies=True)
    alone = compare(kept, q, estimator="ulsif", rows=100, pair_rows=100)
    assert alone.copies is None
    assert "repeats" not in alone.conclusion


def test_reference_draws_of_a_vestige_repeat_no_row():
    p = rows("normal", 400, 7)
    kept = keep(p)
    assert not len(copies.copies(p, kept.draws[0]))
    table = pa.table({"x": p[:, 0].numpy(), "y": p[:, 1].numpy(), "k": np.random.default_rng(0).poisson(3, 400)})
    assert not len(copies_of_rows(table, attack.picked(keep(table).draw(400), torch.arange(400))))


def test_many_rows_cost_what_few_do_and_it_is_said():
    x = torch.randn(60_000, 3, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    found = copies.copies(x, x.flip(0) + 1, most=500)
    assert time.process_time() - start < 5
    assert found.looked == (500, 500)
    assert "among 500 rows of the data and 500 of the model" in found.note
