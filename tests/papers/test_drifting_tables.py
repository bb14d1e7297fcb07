"""Tables that drift: each drift changes what it says and nothing else, and the classifier finds it."""

import numpy as np
import pytest

from vestige.vestiges.schema import Schema
from vestige_papers.beyond.drifting_tables import DRIFTS, TABLES, as_table, boosting, changeable


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(1)
    table = TABLES["mixed"]()
    rows = table.rows(rng, 12_000)
    return table, rows, changeable(rows[:3000], table.kinds, rng)


def changed(drawn, drift, size):
    _, rows, of = drawn
    return DRIFTS[drift][0](rows, of, np.random.default_rng(2), size)


def test_a_mixed_table_has_text_dates_and_missing_values_and_comes_back(drawn):
    table, rows, _ = drawn
    written = as_table("mixed", rows[:3000])
    assert [str(kind) for kind in written.schema.types[:2]] == ["string", "date32[day]"]
    assert written.column("country").null_count > 0
    schema = Schema.of(written)
    assert (schema.cell_names, schema.kinds) == (table.names, table.kinds)
    back, j = schema.cells(written).cells.numpy(), table.names.index("amount")
    assert np.allclose(back[:, j], rows[:3000, j])
    assert np.array_equal(np.isnan(back), np.isnan(rows[:3000]))


@pytest.mark.parametrize("drift", ["shift", "scale", "broken correlation"])
def test_a_drift_of_one_column_leaves_the_others(drawn, drift):
    rows, new = drawn[1], changed(drawn, drift, 0.5)
    moved = [j for j in range(rows.shape[1]) if not np.array_equal(rows[:, j], new[:, j], equal_nan=True)]
    assert len(moved) == 1
    a, b = rows[:, moved[0]], new[:, moved[0]]
    if drift == "broken correlation":
        assert np.array_equal(np.sort(a), np.sort(b), equal_nan=True)
    if drift == "scale":
        assert np.nanstd(b) == pytest.approx(1.5 * np.nanstd(a))


def test_lost_modes_lose_rows_of_one_cluster_alone(drawn):
    _, rows, of = drawn
    before, after = (np.bincount(of.clusters(x), minlength=8) for x in (rows, changed(drawn, "lost modes", 0.7)))
    share = after / before
    assert (share < 0.4).sum() == 1
    assert (share == 1).sum() == 7


def test_the_three_way_drift_changes_the_parity_of_three_signs_and_no_pair(drawn):
    _, rows, of = drawn
    chosen = np.random.default_rng(2).choice(of.numbers, 3, replace=False)
    middle = np.nanmedian(rows, 0)
    before, after = (
        [np.where(np.nan_to_num(x[:, j] - middle[j]) > 0, 1.0, -1.0) for j in chosen]
        for x in (rows, changed(drawn, "three-way", 0.9))
    )
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(after[i] * after[j]) == pytest.approx(np.mean(before[i] * before[j]), abs=0.05)
    assert abs(np.mean(np.prod(after, 0)) - np.mean(np.prod(before, 0))) > 0.3


@pytest.mark.slow
def test_the_classifier_finds_a_drift_and_nothing_where_there_is_none(drawn):
    table, rows, _ = drawn
    p, rest = rows[:2000], rows[2000:]
    new = DRIFTS["scale"][0](rest, drawn[2], np.random.default_rng(3), 1.0)
    assert boosting(p, new[:1000], table.kinds, 0) < 1e-3
    assert min(boosting(p, rest[i : i + 1000], table.kinds, 0) for i in (0, 1000, 2000)) > 0.01
