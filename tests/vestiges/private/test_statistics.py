"""The sensitivity of everything that is released, on neighbouring sets that hypothesis draws.

A clip, a scale or a share that is broken makes a vector longer than GRID, or a sum move by more than it may.
"""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core import InputError
from vestige.vestiges.private.public import declared_schema, public_schema
from vestige.vestiges.private.statistics import GRID, PARTS, Query, products, symmetric
from vestige.vestiges.private.units import chosen

BOUNDS = {"a": (-1.0, 3.0), "b": (0, 10), "job": ["cook", "smith"], "smoker": [False, True]}
ANY = st.one_of(
    st.floats(-4, 12),
    st.sampled_from([-1.0, 3.0, 0.0, 10.0, 1e30, -1e30, math.inf, -math.inf]),
    st.none(),
)
ROW = st.tuples(ANY, ANY, st.sampled_from(["cook", "smith", "pilot", None]), st.sampled_from([True, False, None]))


def declared() -> Query:
    return Query.of(declared_schema(BOUNDS), None, declared=True, seed=0)


def public() -> Query:
    rng = np.random.default_rng(0)
    rows = pa.table(
        {"a": rng.normal(1, 1, 400), "b": rng.gamma(3, 1, 400), "job": rng.choice(["cook", "smith", "x"], 400),
         "smoker": rng.random(400) < 0.3}
    )  # fmt: skip
    schema, sample = public_schema(rows, (), 0)
    return Query.of(schema, schema.cells(sample).cells, declared=False, seed=0)


QUERIES = {"declared": declared(), "public": public()}


def cells(query: Query, rows: list[tuple]) -> torch.Tensor:
    a, b, job, smoker = zip(*rows, strict=True)
    numbers = [torch.tensor([math.nan if x is None else x for x in column], dtype=torch.float64) for column in (a, b)]
    texts = {"job": job, "smoker": [None if x is None else str(x).lower() for x in smoker]}
    codes = []
    for column in query.schema.used[2:]:
        known = {text: i for i, text in enumerate(column.categories)}
        codes.append([math.nan if t is None else known.get(t, len(known)) for t in texts[column.name]])
    return torch.stack([*numbers, *torch.tensor(codes, dtype=torch.float64)], 1)


def squared_length(x: torch.Tensor) -> int:
    """Exact, in whole numbers of any size."""
    return sum(int(v) ** 2 for v in x.tolist())


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=8), more=ROW)
def test_one_row_more_moves_the_sums_by_at_most_the_grid(name, rows, more):
    query = QUERIES[name]
    before, after = query.sums(cells(query, rows)), query.sums(cells(query, [*rows, more]))
    assert squared_length(after - before) <= GRID**2


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=8), other=ROW)
def test_a_row_that_is_replaced_moves_them_by_at_most_twice_that(name, rows, other):
    query = QUERIES[name]
    before, after = query.sums(cells(query, rows)), query.sums(cells(query, [other, *rows[1:]]))
    assert squared_length(after - before) <= 4 * GRID**2


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=60, deadline=None)
@given(row=ROW)
def test_no_part_of_a_row_is_longer_than_its_share(name, row):
    query = QUERIES[name]
    whole = query.contributions(cells(query, [row]))[0]
    for part, share in zip(PARTS, query.shares, strict=True):
        found = squared_length(whole[query.spans[part]])
        assert found <= share * GRID**2
        if part != "moments":  # all others are as long as they may be, so no noise is wasted on them
            assert found >= 0.999 * share * GRID**2


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, max_size=8), theirs=st.lists(ROW, min_size=1, max_size=7), most=st.integers(1, 4))
def test_a_person_moves_the_sums_by_at_most_max_rows(rows, theirs, most):
    """A person's rows are chosen by numbers of their own, so those of the others are the same without the person."""
    query = QUERIES["declared"]
    everyone = np.array([*range(100, 100 + len(rows)), *[7] * len(theirs)])
    kept = chosen(everyone, most, np.random.default_rng(len(rows)))
    assert kept[: len(rows)].all()  # one row each
    assert kept[len(rows) :].sum() == min(most, len(theirs))
    mine = cells(query, theirs)[torch.from_numpy(kept[len(rows) :])]
    without = query.sums(cells(query, rows)) if rows else torch.zeros(sum(query.sizes.values()), dtype=torch.int64)
    every = cells(query, [*rows, *theirs])[torch.from_numpy(kept)]
    assert torch.equal(query.sums(every) - without, query.sums(mine))
    assert squared_length(query.sums(mine)) <= (most * GRID) ** 2


def test_two_rows_that_are_alike_reach_the_bound_of_two():
    """The bound of several rows is not slack: a person who fills the bins alike moves the sums by nearly max_rows."""
    query = QUERIES["declared"]
    row = cells(query, [(3.0, 10.0, "cook", True)])
    assert squared_length(query.sums(row.repeat(3, 1))) > (2.9 * GRID) ** 2


def test_which_rows_of_a_person_count_depends_on_chance_and_not_on_their_order():
    units = np.repeat([0, 1], [5, 5])
    times = sum(chosen(units, 2, np.random.default_rng(seed)).astype(int) for seed in range(2000))
    assert times.sum() == 2000 * 4
    assert (abs(times - 800) < 120).all()  # 2 of 5 in 2000: 800, standard deviation 22


def test_sums_do_not_depend_on_the_order_or_the_batches():
    query, rng = QUERIES["declared"], np.random.default_rng(0)
    x = torch.from_numpy(np.c_[rng.normal(1, 1, (9000, 2)), rng.integers(0, 3, (9000, 2))])
    shuffled = x[torch.randperm(9000, generator=torch.Generator().manual_seed(0))]
    assert torch.equal(query.sums(x), query.sums(shuffled))
    assert torch.equal(query.sums(x), query.sums(x[:37]) + query.sums(x[37:]))


def test_sums_are_those_of_the_functions():
    query = QUERIES["public"]
    rng = np.random.default_rng(1)
    x = torch.from_numpy(np.c_[rng.normal(1, 1, (500, 2)), rng.integers(0, 2, (500, 2))])
    got = query.sums(x).double() * query.units
    assert abs(float(got[0]) - 500) < 1e-3
    assert torch.allclose(got[1:], query.values(x).sum(0), atol=0.01)


def test_a_symmetric_matrix_as_a_vector_has_its_length():
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(products(z).norm(dim=1), z.square().sum(1))
    assert torch.allclose(symmetric(products(z), 4), z[:, :, None] * z[:, None])


def test_missing_and_unknown_values_follow_the_declared_rule():
    query = QUERIES["declared"]
    found = query.points(cells(query, [(None, None, "pilot", None)]))[0] * query.radius
    named = dict(zip(query.schema.feature_names, found.tolist(), strict=True))
    told = {name for name, value in named.items() if value}
    assert told == {"job is other", "smoker is missing"}  # numbers count as the middle of their bounds: 0


def test_too_many_features_are_refused():
    bounds = {f"c{i}": [str(k) for k in range(10)] for i in range(6)}
    with pytest.raises(InputError, match=r"at most 64\. Got 72 instead: drop columns"):
        Query.of(declared_schema(bounds), None, declared=True, seed=0)


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.5, 0.5), (1.0, 0.0, 0.0, 0.0), (0.5, 0.5)])
def test_shares_that_would_break_the_bound_are_refused(shares):
    q = QUERIES["declared"]
    with pytest.raises(InputError, match="'shares' of Query"):
        Query(q.schema, q.low, q.high, q.radius, q.bandwidth, q.frequencies, q.columns, shares)
