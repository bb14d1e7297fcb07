"""Which columns differ: with rows and with a vestige the same words and numbers, the guilty one first."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import stats

from vestige.data.readers.columns import encode
from vestige.ratios import Stack
from vestige.vestiges import compare, keep
from vestige.vestiges.by_column import windows
from vestige.vestiges.differences import RowColumn, in_order, of_rows, of_shift, row_columns, told_of
from vestige.vestiges.drift_test import ColumnShift, DriftTest
from vestige.vestiges.drift_test.test import moments
from vestige.vestiges.vestige_differences import of_vestige

FAST = Stack(**Stack.presets["fast"])


def frame(n, seed, *, age=0.0, lost=0.02, cooks=0.5):
    rng = np.random.default_rng(seed)
    job = np.where(rng.random(n) < cooks, "cook", "smith").astype(object)
    job[rng.random(n) < lost] = None
    height = rng.normal(170, 10, n)
    return pd.DataFrame(
        {
            "age": rng.normal(40 + age, 10, n),
            "height": height,
            "weight": 0.8 * height + rng.normal(0, 4, n),
            "job": job,
            "member": rng.random(n) < 0.3,
        }
    )


def with_rows(old, new):
    (p, q), report = encode([pa.Table.from_pandas(x) for x in (old, new)], ["old", "new"])
    return {one.name: one for one in of_rows(p, q, row_columns(p.shape[1], report))}


OLD, NEW = frame(900, 0), frame(700, 1, age=5, lost=0.2, cooks=0.3)


@pytest.fixture(scope="module")
def kept():
    return keep(OLD)


@pytest.fixture(scope="module")
def by_vestige(kept):
    return compare(kept, NEW, estimator=FAST, pair_rows=100)


def test_rows_are_read_back_into_columns():
    found = with_rows(OLD, NEW)
    assert {name: one.kind for name, one in found.items()} == {
        "age": "number", "height": "number", "weight": "number", "job": "category", "member": "category",
    }  # fmt: skip
    age, job = found["age"], found["job"]
    shift = (NEW.age.mean() - OLD.age.mean()) / OLD.age.std(ddof=0)
    assert age.shift == pytest.approx(shift)
    assert age.told == f"mean {OLD.age.mean():.4g} -> {NEW.age.mean():.4g} ({shift:+.2f} deviations)"
    assert age.quantiles["50%"] == pytest.approx((NEW.age.median() - OLD.age.median()) / OLD.age.std(ddof=0))
    assert job.missing == pytest.approx((OLD.job.isna().mean(), NEW.job.isna().mean()))
    assert dict(zip(job.profile.names, job.profile.after, strict=True))["cook"] == pytest.approx(
        (NEW.job == "cook").mean()
    )
    assert [one.differs for one in found.values()] == [True, False, False, True, False]


def test_a_vestige_says_the_same_without_rows(by_vestige):
    rows = with_rows(OLD, NEW)
    found = {one.name: one for one in by_vestige.differences}
    assert found.keys() == rows.keys()
    assert found["age"].told == rows["age"].told
    assert found["age"].shift == pytest.approx(rows["age"].shift, rel=1e-3)
    assert found["job"].missing == (
        0.0,
        pytest.approx(rows["job"].missing[1], abs=1e-9),
    )  # of fewer than 50 rows: not told
    assert {name for name, one in found.items() if one.differs} == {"age", "job"}
    assert {by_vestige.differences[0].name, by_vestige.differences[1].name} == {"age", "job"}


def test_missing_cells_that_few_rows_have_are_counted_exactly(kept):
    few = frame(1000, 3, lost=0.08)
    job = next(one for one in compare(kept, few, estimator=FAST, pair_rows=100).differences if one.name == "job")
    assert OLD.job.isna().sum() < 50
    assert job.told.startswith("missing ")
    assert job.differs


def rare(n, seed):
    """A number, and categories that some 36 of 2000 rows have."""
    rng = np.random.default_rng(seed)
    made = {f"rare {i}": rng.random(n) < 0.018 for i in range(3)}
    made["kind"] = rng.choice(["a", "b", "c", "d"], n, p=[0.5, 0.4, 0.082, 0.018])
    return pd.DataFrame({"size": rng.normal(size=n), **made})


def test_what_few_rows_had_is_not_counted_as_none_and_its_rows_not_as_those_of_the_commonest():
    """The level of columns: 1.8 % of rows that are hidden are 36 rows of the reference, and 0 in its moments."""
    old = rare(2000, 4)
    assert all(0 < old[name].sum() < 50 for name in ("rare 0", "rare 1", "rare 2"))
    assert 0 < (old["kind"] == "d").sum() < 50
    there = keep(old, seed=0)
    for seed in range(5, 13):
        cells = there.cells(rare(4000, seed), "new").cells
        found = of_vestige(there, cells, there.test.test(cells))
        assert min(one.p_value for one in found) > 1e-3  # Fisher's test of 0 of 2000 beside 72 of 4000: 1e-13
        assert max(one.evidence for one in found) < 12
    more = rare(4000, 13)
    more["rare 1"] = np.random.default_rng(0).random(4000) < 0.06
    cells = there.cells(more, "new").cells
    first = in_order(of_vestige(there, cells, there.test.test(cells)), 0.0)[0]
    assert (first.name, first.differs) == ("rare 1", True)


def numbers_and_categories(rng, n):
    """Three of each that have nothing to do with each other."""
    return torch.from_numpy(np.concatenate([rng.normal(size=(n, 3)), rng.random((n, 3)) < 0.4], 1))


@pytest.mark.slow
def test_numbers_come_first_by_chance_less_often():
    """A number has more kinds of evidence than a category: by the smallest p it is first in 73 % of these pairs."""
    columns = [RowColumn(f"x{i}", "number" if i < 3 else "category", i) for i in range(6)]
    first = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = of_rows(numbers_and_categories(rng, 300), numbers_and_categories(rng, 200), columns)
        first.append(in_order(found, 1.0)[0].kind == "number")
    assert 0.4 < np.mean(first) < 0.65


def test_the_drift_test_weighs_every_kind_of_evidence_of_a_column():
    """A number by itself has six kinds: its codes together, four scores, and runs of codes; a category has one."""
    rng = np.random.default_rng(0)
    old, new = numbers_and_categories(rng, 300), numbers_and_categories(rng, 200)
    test = DriftTest.of(old[:, :1], ("number",), seed=0)
    z = test._squared_z(moments(test.dictionary, new[:, :1], 1))[0][test.dictionary.spans["columns"]].sqrt().numpy()
    codes = test.dictionary.indicators.shape[1]
    coded = test.dictionary.columns[0].codes
    runs = windows(*(np.bincount(coded(x[:, 0]), minlength=codes)[:codes] for x in (old, new)), (300, 200))
    p_codes, p_runs = (min(len(x) * 2 * stats.norm.sf(np.abs(x).max()), 1.0) for x in (z[:codes], runs))
    p_scores = 2 * stats.norm.sf(z[codes:])
    expected = np.log(np.mean(1 / np.array([p_codes, *p_scores, p_runs])))
    assert len(p_scores) == 4
    assert test.test(new[:, :1]).columns[0].evidence == pytest.approx(expected, rel=1e-6)

    test = DriftTest.of(old[:, 3:4], ("category",), seed=0)
    one = test.test(1 - new[:, 3:4]).columns[0]
    codes = test.dictionary.indicators.shape[1]
    assert one.evidence == pytest.approx(-np.log(codes * 2 * stats.norm.sf(abs(one.z))))


def test_where_no_column_differs_by_itself_the_broken_one_is_first():
    rng = np.random.default_rng(5)
    new = frame(900, 6)
    new["weight"] = rng.permutation(new["weight"])
    p, q = (torch.tensor(x[["age", "height", "weight"]].to_numpy()) for x in (OLD, new))
    found = compare(p, q, estimator=FAST, pair_rows=100)
    assert not any(one.differs for one in found.differences)
    assert {found.differences[0].name, found.differences[0].partner} == {"x1", "x2"}
    assert "No column differs by itself" in found.conclusion
    assert "goes with" in found.advice


def test_shares_name_the_column_and_are_left_out_where_draws_are_poor(by_vestige):
    p, q = (torch.tensor(x[["age", "height"]].to_numpy()) for x in (OLD, NEW))
    found = compare(p, q, estimator=FAST, pair_rows=100)
    assert found.differences[0].name == "x0"
    assert found.differences[0].share > 0.9 > 0.2 > found.differences[1].share
    poor = any("cannot be told" in text and "share" in text for text in by_vestige.warnings)
    assert all(math.isnan(one.share) for one in by_vestige.differences) == poor


def test_the_answer_and_the_advice():
    p, q = (torch.tensor(x[["age", "height"]].to_numpy()) for x in (OLD, NEW))
    found = compare(p, q, estimator=FAST, pair_rows=100, names=("january", "february"))
    assert found.status == "differs"
    assert found.answer.startswith("february differs ")
    assert found.advice.startswith("Look at x0 first: mean ")
    same = compare(
        p, p[torch.randperm(len(p), generator=torch.Generator().manual_seed(0))], estimator=FAST, pair_rows=100
    )
    assert same.status == "same"
    assert all(math.isnan(one.share) for one in same.differences)  # there is nothing to share out
    assert same.answer == "No difference between real and fake was found."
    first = same.differences[0]
    assert (
        f"No column differs beyond chance; the largest difference is in {first.name}, {first.told}" in same.conclusion
    )
    assert len(str(found).splitlines()) < 10
    assert len(repr(found)) < 160
    assert "february differs" in found._repr_html_()


def test_no_column_is_named_where_no_difference_is():
    made = [of_shift(f"x{i}", "number", ColumnShift(i, "mean", z, p)) for i, (z, p) in enumerate([(1, 0.9), (4, 0.01)])]
    found = in_order(made, 0.2)
    assert [(one.name, one.p_value) for one in found] == [("x1", 0.2), ("x0", 0.9)]
    assert told_of(0.2, found) == (
        "No column differs beyond chance; the largest difference is in x1, mean (z = +4.0) (p = 0.2).",
    )
    sure = in_order(made, 0.001)
    assert [(one.name, one.p_value, one.differs) for one in sure] == [("x1", 0.01, True), ("x0", 0.9, False)]
    assert told_of(math.nan, in_order(made, math.nan)) == ()


def test_the_order_is_that_of_evidence_not_of_the_largest_z():
    """Of a column of many codes one is always far out; and a relation that broke is told before a margin."""
    made = [of_shift(f"x{i}", "number", ColumnShift(i, "mean", 3.0 - i, 0.5)) for i in range(3)]
    told = [replace(one, evidence=evidence) for one, evidence in zip(made, (3.0, 5.0, 4.0), strict=True)]
    assert [one.name for one in in_order(told, 0.5)] == ["x1", "x2", "x0"]
    broken = [replace(told[1], partner="x2"), replace(told[2], p_value=0.01), told[0]]
    sentence = told_of(0.01, broken)[0]
    assert sentence.startswith("Columns that differ by themselves: x2")
    assert sentence.endswith("More than any of these it is how x1 goes with x2 that has changed.")


def test_of_very_many_rows_the_last_are_looked_at_too(monkeypatch):
    """Every k-th row: of rows in the order of time the head alone would miss what came later."""
    monkeypatch.setattr("vestige.vestiges.differences.MOST_CELLS", 500)
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(2001, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    q[1000:] += 3
    (found,) = of_rows(p, q, [RowColumn("x", "number", 0)])
    assert found.p_value < 1e-6
