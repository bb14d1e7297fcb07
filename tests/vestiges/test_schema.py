"""Every later table is read as the first was, aligned where that is safe and refused where it is not."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from vestige.core.errors import InputError
from vestige.core.numerics import on_grid, two_digits
from vestige.data.readers.frames import as_table, is_frame
from vestige.store import decode, encode
from vestige.vestiges import schema as module
from vestige.vestiges.schema import LEFT_OUT, Schema, SchemaColumn, SchemaCounts, scale_of, share_scale

NAN = float("nan")


def frame(n=400, seed=0):
    g = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": g.normal(40, 10, n),
            "work": g.choice(["private", "state", "self"], n, p=[0.5, 0.4, 0.1]),
            "joined": (np.datetime64("2020-01-01") + g.integers(0, 900, n)).astype(str),
            "member": g.random(n) < 0.3,
            "children": g.integers(0, 5, n),
            "name": [f"person {seed}-{i}" for i in range(n)],
            "nothing": None,
        }
    )


def arrow(data):
    return pa.Table.from_pandas(pd.DataFrame(data), preserve_index=False)


def column(schema, name):
    return next(one for one in schema.columns if one.name == name)


def test_kinds_codes_and_what_is_left_out():
    first = frame()
    few = (first["work"] == "self").sum()
    assert few < 50
    schema = Schema.of(arrow(first))
    assert schema.cell_names == ("age", "work", "joined", "member", "children")
    assert schema.kinds == ("number", "category", "number", "category", "number")
    assert column(schema, "work").categories == ("private", "state")  # fewer than 50 rows have no code
    assert column(schema, "member").categories == ("false", "true")
    assert "identifiers" in column(schema, "name").why
    assert "no value" in column(schema, "nothing").why
    found = schema.cells(arrow(first))
    assert found.warnings == ()
    assert len(found.notes) == 1
    assert "fewer than 50 of 400 rows of the new rows count as 'other' in 'work'" in found.notes[0]
    assert "self" not in found.notes[0]  # a monitor stores notes
    codes = {"private": 0, "state": 1, "self": 2}
    assert found.cells[:, 0].tolist() == first["age"].tolist()
    assert found.cells[:, 1].tolist() == first["work"].map(codes).tolist()
    days = (first["joined"].astype("datetime64[s]") - np.datetime64("1970-01-01")).dt.days
    assert found.cells[:, 2].tolist() == days.tolist()
    assert found.cells[:, 3].tolist() == first["member"].astype(float).tolist()


def test_at_most_32_categories_get_a_code_and_they_are_the_commonest():
    texts = [f"t{i:02d}" for i in range(40) for _ in range(60 + i)]
    schema = Schema.of(arrow({"t": texts}))
    assert column(schema, "t").categories == tuple(f"t{i:02d}" for i in range(8, 40))


def test_a_code_needs_fifty_rows_in_all_and_not_one_fewer():
    schema = Schema.of(arrow({"t": ["a"] * 50 + ["b"] * 49 + ["c"] * 100}))
    assert column(schema, "t").categories == ("a", "c")


def test_missing_is_nan_in_cells_of_either_kind_and_marked_in_features():
    schema = Schema.of(arrow({"x": [1.0, 2, NAN, 4] * 50, "t": ["a", None, "b", "?"] * 50}))
    cells = schema.cells(arrow({"x": [NAN, 3.0], "t": ["b", None]})).cells
    assert cells.isnan().tolist() == [[True, False], [False, True]]
    assert schema.feature_names == ("x", "x is missing", "t = a", "t = b", "t is other", "t is missing")
    x, t = schema.columns
    raw = schema.features(cells) * torch.tensor(x.spreads + t.spreads) + torch.tensor(x.centres + t.centres)
    want = [[x.fill, 1, 0, 1, 0, 0], [3, 0, 0, 0, 0, 1]]
    torch.testing.assert_close(raw, torch.tensor(want, dtype=torch.float64))


def test_features_of_the_data_are_on_one_scale_and_clipped():
    g = np.random.default_rng(1)
    x, t = g.normal(3e6, 2e5, 5000), g.choice(["a", "b", "c"], 5000, p=[0.6, 0.3, 0.1])
    schema = Schema.of(arrow({"x": x, "t": t}))
    features = schema.features(schema.cells(arrow({"x": x, "t": t})).cells)
    assert features.mean(0).abs().max() < 0.15
    assert features[:, :4].std(0).sub(1).abs().max() < 0.1  # x, a, b, c
    far = schema.features(schema.cells(arrow({"x": [1e12, -1e12], "t": ["a", "a"]})).cells)
    assert far[:, 0].tolist() == [20, -20]


def test_what_is_kept_of_numbers_is_coarse_and_does_not_know_one_person():
    g = np.random.default_rng(2)
    x = g.normal(52.123456, 7.654321, 1001)
    centre, spread = scale_of(x)
    assert centre == pytest.approx(52.1, abs=0.7)
    assert spread == pytest.approx(7.7, abs=0.7)
    assert on_grid(centre, spread) == centre
    assert two_digits(spread) == spread
    assert centre not in x
    alone = np.zeros(1000)
    alone[7] = 123456.0
    assert scale_of(alone) == scale_of(np.zeros(1000)) == (0.0, 1.0)
    assert scale_of(np.r_[np.zeros(1000), np.full(49, 7e5)]) == (0.0, 1.0)
    assert scale_of(np.r_[np.zeros(1000), g.normal(500, 1, 50)])[1] == 740.0  # 1.4826 * 500 to two digits
    assert scale_of(np.full(99, -0.00123456)) == (-0.0012, 0.0012)


def test_shares_of_few_rows_do_not_say_how_few():
    assert share_scale(0, 1000) == share_scale(1, 1000) == share_scale(49, 1000) != share_scale(50, 1000)
    assert share_scale(500, 1000) == (0.5, 0.5)
    assert share_scale(0, 10**6) == (0, 1)  # hidden rows must not look like a difference in FID
    assert share_scale(100, 10**6)[1] == 0.05  # 1 / 20, so that a feature of it is at most 20


def test_a_constant_column_stays_and_a_new_value_in_it_is_seen():
    schema = Schema.of(arrow({"x": [5.0] * 60, "t": ["a"] * 60, "flag": [True] * 60}))
    assert schema.kinds == ("number", "category", "category")
    same = schema.features(schema.cells(arrow({"x": [5.0], "t": ["a"], "flag": [True]})).cells)
    new = schema.features(schema.cells(arrow({"x": [6.0], "t": ["b"], "flag": [False]})).cells)
    assert ((same - new).abs() > 0.1)[0].tolist() == [True, True, True, False, True, True, False, False]


def test_columns_in_another_order_new_ones_and_names_in_capitals_are_aligned_with_notes():
    schema = Schema.of(arrow(frame()))
    new = frame(60, 1)
    want = schema.cells(arrow(new)).cells
    moved = new.rename(columns={"work": "Work ", "age": "A G E"})[["member", "joined", "children", "Work ", "A G E"]]
    found = schema.cells(arrow(moved.assign(extra=1, more=2)), "may.csv")
    assert torch.equal(found.cells, want)
    told = "\n".join(found.notes)
    assert "'Work ' of may.csv was taken for 'work'" in told
    assert "'A G E' of may.csv was taken for 'age'" in told
    assert "left out: 'extra', 'more'" in told
    assert "stand in another order" in told


def test_two_columns_that_could_be_the_one_meant_are_refused():
    schema = Schema.of(arrow({"age": np.arange(60.0)}))
    with pytest.raises(InputError, match=r"Got no 'age' \(the nearest is"):
        schema.cells(arrow({"AGE": [1.0], "Age": [2.0]}))


def test_a_column_that_is_gone_or_renamed_is_refused_with_the_nearest_name():
    schema = Schema.of(arrow(frame()))
    new = frame(60, 1).rename(columns={"children": "n_children"}).drop(columns="member")
    with pytest.raises(InputError) as caught:
        schema.cells(arrow(new), "may.csv")
    want = "The columns of may.csv must hold those of the data. Got no 'member', no 'children' (the nearest is "
    assert str(caught.value) == f"{want}'n_children') instead."


def test_what_was_left_out_need_not_be_there():
    schema = Schema.of(arrow(frame()), drop=["age"])
    assert column(schema, "age").why == "dropped on request"
    found = schema.cells(arrow(frame(60, 1).drop(columns=["age", "name", "nothing"])))
    assert found.cells.shape == (60, 4)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("age", ["old"], "must be number, as in the data. Got text, such as 'old', in may.csv"),
        ("age", [dt.date(2020, 1, 1)], "must be number, as in the data. Got date"),
        ("work", [3], "must be text, as in the data. Got number, such as '3'"),
        ("work", [True], "must be text, as in the data. Got boolean"),
        ("joined", ["1/2/2020"], "must be date, as in the data. Got text, such as '1/2/2020'"),
        ("joined", [18262], "must be date, as in the data. Got number"),
        ("member", [2], "must be boolean, as in the data. Got number, such as '2'"),
        ("member", ["yes"], "must be boolean, as in the data. Got text"),
    ],
)
def test_another_kind_is_refused(name, values, told):
    schema = Schema.of(arrow(frame()))
    new = frame(1, 1).drop(columns=name).assign(**{name: values})
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        schema.cells(arrow(new), "may.csv")


def test_numbers_that_are_known_as_texts_and_zeros_and_ones_for_booleans_are_aligned():
    schema = Schema.of(arrow({"zone": ["1", "2", "x"] * 60, "flag": [True, False, True] * 60}))
    found = schema.cells(arrow({"zone": [2, 1], "flag": [1.0, NAN]}))
    assert found.cells.isnan().tolist() == [[False, False], [False, True]]
    assert found.cells[:, 0].tolist() == [1, 0]
    assert found.cells[0, 1] == 1
    assert any("numbers of 'zone'" in note for note in found.notes)
    with pytest.raises(InputError, match="'zone' must be text"):
        schema.cells(arrow({"zone": [2, 7], "flag": [1, 0]}))


def test_booleans_for_numbers_and_a_column_without_a_value_are_taken():
    schema = Schema.of(arrow({"x": [0.0, 1] * 40, "t": ["a", None] * 40, "d": [dt.date(2020, 1, 1), None] * 40}))
    found = schema.cells(arrow({"x": [True, False], "t": [None, None], "d": [None, None]}))
    assert found.cells[:, 0].tolist() == [1, 0]
    assert found.cells[:, 1:].isnan().all()


def test_missing_where_there_was_nothing_missing_is_told_and_of_numbers_it_is_a_warning():
    schema = Schema.of(arrow(frame()))
    new = frame(60, 1)
    new.loc[:2, "age"] = NAN
    new.loc[:4, "work"] = None
    found = schema.cells(arrow(new))
    assert found.cells[:3, 0].isnan().all()
    assert len(found.warnings) == 1
    assert "'age' is missing in fewer than 50 of 60 rows" in found.warnings[0]
    assert "metrics and divergences cannot see that, the drift test does" in found.warnings[0]
    assert any("'work' is missing in fewer than 50 of 60 rows" in note for note in found.notes)
    assert schema.features(found.cells)[:3, 0].tolist() == [0, 0, 0]


def test_cells_as_a_table_of_the_first_ones_kinds():
    first = frame().assign(seen=pd.date_range("2021-01-01 07:30", periods=400, freq="61min"))
    first.loc[0, "age"] = NAN
    schema = Schema.of(arrow(first))
    table = schema.table(schema.cells(arrow(first)).cells)
    assert table.column_names == [*schema.cell_names]
    assert table.column("age").to_pylist()[1:] == first["age"].tolist()[1:]
    assert table.column("age")[0].as_py() is None
    assert set(table.column("work").to_pylist()) == {"private", "state", "(other)"}
    assert table.column("joined").type == pa.date32()
    assert list(map(str, table.column("joined").to_pylist())) == first["joined"].tolist()
    assert table.column("member").to_pylist() == first["member"].tolist()
    assert table.column("children").type == pa.int64()
    assert table.column("seen").to_pylist() == first["seen"].dt.to_pydatetime().tolist()
    again = schema.cells(table)
    assert again.cells[:, 1].tolist() == schema.cells(arrow(first)).cells[:, 1].tolist()


def test_it_is_stored_and_read_by_the_codec_as_it_was():
    schema = Schema.of(arrow(frame()))
    assert decode(Schema, *encode(schema)) == schema
    counts = SchemaCounts.of(arrow(frame()))
    assert decode(SchemaCounts, *encode(counts)) == counts


def test_a_stored_column_that_cannot_be_is_refused():
    good = SchemaColumn("x", "number", (), False, False, (0.0,), (1.0,))
    for wrong in ({"kind": "colour"}, {"spreads": (0.0,)}, {"centres": ()}, {"has_missing": True}):
        with pytest.raises(InputError):
            replace(good, **wrong)


def test_in_batches_counts_are_those_of_the_whole_and_so_is_the_schema():
    first = frame(1000)
    first.loc[::7, "age"] = NAN
    table = arrow(first)
    parts = [table.slice(i, 130) for i in range(0, 1000, 130)]
    counts = SchemaCounts.of(parts[0])
    for part in parts[1:]:
        counts = counts.merge(SchemaCounts.of(part))
    assert counts == SchemaCounts.of(table)
    assert Schema.of(table, counts=counts) == Schema.of(table)


def test_a_category_that_only_the_batches_make_common_has_a_code():
    parts = [arrow({"t": ["a"] * 30 + ["b"] * 70}) for _ in range(2)]
    counts = SchemaCounts.of(parts[0]).merge(SchemaCounts.of(parts[1]))
    assert column(Schema.of(parts[0], counts=counts), "t").categories == ("a", "b")
    assert column(Schema.of(parts[0]), "t").categories == ("b",)


def test_kinds_of_batches_are_joined_or_refused():
    def merged(*columns):
        counts = [SchemaCounts.of(arrow({"x": values})) for values in columns]
        return counts[0].merge(counts[1]).columns["x"]

    assert merged([None], [1.5]).final == "number"
    assert merged([True], [2]).final == "number"
    assert merged(["2020-01-01"], ["2020-01-02"]).final == "date"
    assert merged(["2020-01-01"], [dt.date(2020, 1, 2)]).final == "date"
    both = merged(["2020-01-01"], ["soon"])
    assert both.final == "text"
    assert both.texts == {"2020-01-01": 1, "soon": 1}
    assert not merged([1.0], [1.5]).whole
    with pytest.raises(InputError, match=r"'x' must be of one kind in all batches. Got number in 1 rows and text in 2"):
        merged([1.0, None], ["a", "b"])


def test_counts_of_many_texts_are_bounded_and_never_too_large(monkeypatch):
    monkeypatch.setattr(module, "MOST_TEXTS", 100)
    g = np.random.default_rng(3)
    texts = np.where(g.random(20_000) < 0.5, "common", g.integers(0, 5000, 20_000).astype(str))
    parts = [SchemaCounts.of(arrow({"t": part})) for part in np.split(texts, 20)]
    counts = parts[0]
    for part in parts[1:]:
        counts = counts.merge(part)
    found = counts.columns["t"].texts
    assert len(found) <= 100
    true = pd.Series(texts).value_counts()
    assert all(true[text] - len(texts) / 100 <= count <= true[text] for text, count in found.items())
    assert found["common"] > 9000


def test_too_few_rows_an_unknown_column_to_drop_and_nothing_left_are_refused():
    with pytest.raises(InputError, match=r"The rows of the table must be at least 50. Got 49 instead"):
        Schema.of(arrow(frame(49)))
    with pytest.raises(InputError, match="Did you mean 'age'"):
        Schema.of(arrow(frame()), drop=["aeg"])
    with pytest.raises(InputError, match=r"must leave something to compare. Got 'name'"):
        Schema.of(arrow(frame()[["name"]]))


def test_cells_that_are_none_are_refused():
    schema = Schema.of(arrow({"x": [1.0, 2] * 50, "t": ["a", "b"] * 50}))
    with pytest.raises(InputError, match="2 wide"):
        schema.features(torch.zeros(3, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="codes from 0 to 2"):
        schema.table(torch.tensor([[0.0, 3.0]], dtype=torch.float64))


def test_the_report_says_what_becomes_of_each_column():
    report = Schema.of(arrow(frame())).report()
    told = {one.name: one.treatment for one in report.columns}
    assert told["name"].startswith("left out: 400 different texts")
    assert told["work"] == "one of 2 categories, other or missing"
    assert told["joined"].startswith("days since 1970, minus ")
    assert report.features == Schema.of(arrow(frame())).feature_names
    assert str(Schema.of(arrow(frame()))) == "5 columns, 11 features; left out: 'name', 'nothing'"


class Capsule:
    """What polars and others have: an Arrow stream, and no type that we know."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_pandas_arrow_and_anything_that_streams_arrow_is_one_table():
    data = {"t": ["a", "b", None] * 50, "x": [1.5, 2, 3] * 50}
    table = pa.table(data)
    viewed = pa.table({"t": pa.array(data["t"], pa.string_view()), "x": data["x"]})
    categories = viewed.set_column(0, "t", viewed.column(0).cast(pa.string()).dictionary_encode())
    wants = Schema.of(table)
    for given in (pd.DataFrame(data), table, table.to_batches()[0], Capsule(table), Capsule(viewed), categories):
        assert is_frame(given)
        read = as_table(given, "keep")
        assert Schema.of(read) == wants
        torch.testing.assert_close(wants.cells(read).cells, wants.cells(table).cells, rtol=0, atol=0, equal_nan=True)
    index = pa.array([0, 1, 0] * 30, pa.uint32())
    spelt = pa.table({"t": pa.DictionaryArray.from_arrays(index, pa.array(["a", "b"], pa.string_view()))})
    assert column(Schema.of(spelt), "t").categories == ("a",)  # of 60 rows; "b" is of 30
    assert not any(map(is_frame, (np.zeros(3), torch.zeros(3), [1], pd.Series([1]), pa.array([1]))))


def test_names_of_frames_become_words_and_differ():
    assert as_table(pd.DataFrame({0: [1], 1: [2]}), "keep").column_names == ["0", "1"]
    with pytest.raises(InputError, match=r"columns of the tables of keep must have names of their own. Got more"):
        as_table(pa.table([[1], [2]], names=["a", "a"]), "keep")
    with pytest.raises(InputError, match="column 2 without one"):
        as_table(pa.table([[1], [2]], names=["a", ""]), "keep")
    with pytest.raises(InputError, match="must have plain columns"):
        as_table(pd.DataFrame({"a": [object()]}), "keep")


def test_left_out_columns_have_no_features():
    assert SchemaColumn("x", LEFT_OUT).features == ()
