import datetime
import re
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vestige.core import machine
from vestige.core.errors import InputError
from vestige.core.plain import plain
from vestige.data import readers as files
from vestige.data.readers import columns, tables


def adult_like(n, seed, *, shift=0.0):
    """Numbers, text, dates, booleans and gaps, in the manner of a census table."""
    rng = np.random.default_rng(seed)
    start = np.datetime64("2019-01-01")
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 90, n).astype(float) + shift,
            "work": rng.choice(["Private", "State", "Self"], n, p=[0.7, 0.2, 0.1]),
            "joined": (start + rng.integers(0, 1000, n)).astype(str),
            "married": rng.random(n) < 0.5,
            "income": np.exp(rng.normal(10 + shift, 1, n)),
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "work"] = None
    return frame


def pair_of(tmp_path, real, fake, ending=".csv"):
    paths = [tmp_path / f"real{ending}", tmp_path / f"fake{ending}"]
    for frame, path in zip((real, fake), paths, strict=True):
        if ending == ".csv":
            path.write_text(frame) if isinstance(frame, str) else frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)
    return paths


def column(report, name):
    return next(c for c in report.columns if c.name == name)


def test_against_pandas(tmp_path):
    real, fake = adult_like(200, 0), adult_like(300, 1)
    p, q, report = files.read_pair(*pair_of(tmp_path, real, fake))
    both = pd.concat([real, fake])
    expected = pd.DataFrame(
        {
            "age": both.age.fillna(both.age.median()),
            "age is missing": both.age.isna(),
            **{f"work = {w}": both.work == w for w in ("Private", "Self", "State")},
            "work is missing": both.work.isna(),
            "joined": (pd.to_datetime(both.joined) - pd.Timestamp("1970-01-01")).dt.days,
            "married": both.married,
            "income": both.income,
        }
    ).astype(float)
    assert report.features == tuple(expected.columns)
    np.testing.assert_allclose(torch.cat([p, q]).numpy(), expected.to_numpy(), rtol=1e-15)
    assert len(p) == 200
    assert p.dtype == torch.float64


def test_csv_and_parquet_agree(tmp_path):
    real, fake = adult_like(50, 0), adult_like(60, 1)
    from_csv = files.read_pair(*pair_of(tmp_path, real, fake))
    from_parquet = files.read_pair(*pair_of(tmp_path, real, fake, ".parquet"))
    assert from_csv[2].features == from_parquet[2].features
    assert torch.equal(from_csv[0], from_parquet[0])
    assert torch.equal(from_csv[1], from_parquet[1])


def test_the_report_says_what_was_done(tmp_path):
    real, fake = adult_like(50, 0), adult_like(60, 1)
    real_path, fake_path = pair_of(tmp_path, real, fake)
    _, _, report = files.read_pair(real_path, fake_path)
    gaps = f"missing ({real.age.isna().sum()} in {real_path}, {fake.age.isna().sum()} in {fake_path})"
    assert gaps in column(report, "age").treatment
    assert "pooled median" in column(report, "age").treatment
    assert column(report, "work").treatment.startswith("one-hot, 3 categories; missing (")
    assert (column(report, "joined").kind, column(report, "joined").treatment) == ("date", "days since 1970")
    assert (column(report, "married").kind, column(report, "married").treatment) == ("boolean", "0 and 1")
    assert plain(report)["columns"][0]["name"] == "age"


def test_categories_are_the_union_in_an_order_of_their_own(tmp_path):
    p, q, report = files.read_pair(*pair_of(tmp_path, "c\nb\na\n", "c\nz\nb\n"))
    assert report.features == ("c = a", "c = b", "c = z")
    assert p.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert q.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert "'a'" in report.columns[0].notes[0]
    assert "real" in report.columns[0].notes[0]
    assert "'z'" in report.columns[0].notes[1]
    assert "fake" in report.columns[0].notes[1]


def test_rare_categories_share_a_column(tmp_path):
    frame = pd.DataFrame({"c": [f"w{i:02d}" for i in range(40) for _ in range(10)] + ["w00"] * 5})
    p, _, report = files.read_pair(*pair_of(tmp_path, frame, frame))
    assert p.shape[1] == 33
    assert report.features[0] == "c = w00"
    assert report.features[-1] == "c is rare"
    assert "the 8 rarest (160 rows) share one column" in column(report, "c").treatment
    assert (p.sum(1) == 1).all()
    assert p[:, -1].sum() == 80


def test_identifiers_are_dropped_and_said_so(tmp_path):
    frame = pd.DataFrame({"id": [f"user {i}" for i in range(100)], "row": range(100), "x": np.arange(100) % 7})
    p, _, report = files.read_pair(*pair_of(tmp_path, frame, frame))
    assert p.shape == (100, 2)
    assert report.features == ("row", "x")
    assert column(report, "id").treatment.startswith("dropped: 100 different texts in 100 rows of")
    assert "identifier" in column(report, "row").notes[0]
    assert column(report, "x").notes == ()


def test_columns_are_dropped_on_request(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 5]})
    paths = pair_of(tmp_path, frame, frame)
    p, _, report = files.read_pair(*paths, drop=["a"])
    assert p.tolist() == [[3], [5]]
    assert column(report, "a").treatment == "dropped on request"
    with pytest.raises(InputError, match="Got 'c' instead"):
        files.read_pair(*paths, drop=["c"])
    with pytest.raises(InputError, match="leave something"):
        files.read_pair(*paths, drop=["a", "b"])


def test_another_order_of_columns_is_matched_by_name(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 5]})
    p, q, report = files.read_pair(*pair_of(tmp_path, frame, frame[["b", "a"]]))
    assert torch.equal(p, q)
    assert "another order" in report.notes[0]


@pytest.mark.parametrize(
    ("real", "fake", "sentence"),
    [
        ("a,b\n1,2\n", "a,c\n1,2\n", "'b' only in .*real.csv; 'c' only in .*fake.csv"),
        ("a,b\n1,2\n", "a\n1\n", "'b' only in .*real.csv instead"),
        ("a\n1\n", "a\nx\n", "'a' must be of one kind.*number in .*real.csv; text in .*fake.csv .such as 'x'"),
        ("a\n1\n7\n", "a\n1\n1 kg\n", "such as '1 kg'"),
        ("a\n2020-01-01\n", "a\n7\n", "date in .*number in"),
        ("a\ntrue\n", "a\nyes\n", "boolean in .*text in"),
        ("a,a\n1,2\n", "a,a\n1,2\n", "more than one 'a'"),
        ("a,,b\n1,2,3\n", "a,,b\n1,2,3\n", "column 2 without one"),
        ("a,b\n1,2\n3\n", "a,b\n1,2\n", "2 columns in every row. Got 1 in row 3"),
        ("a,b\n1,2\n3,4,5\n", "a,b\n1,2\n", "2 columns in every row. Got 3 in row 3"),
        ("a\ninf\n", "a\n1\n", "column 'a' of .*real.csv must be finite. Got inf in data row 1"),
        ("a,b\n", "a,b\n1,2\n", "at least one row. Got none"),
        ("\n\n", "a,b\n1,2\n", "blank lines alone"),
        ("a\nNA\n", "a\n\n?\n", "leave something"),
    ],
)
def test_tables_that_cannot_be_compared(tmp_path, real, fake, sentence):
    with pytest.raises(InputError, match=sentence):
        files.read_pair(*pair_of(tmp_path, real, fake))


def test_bytes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"n,c\n1,caf\xe9\n")
    with pytest.raises(InputError, match="UTF-8"):
        files.read(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(b"caf\xe9\n1\n")
    with pytest.raises(InputError, match="UTF-8"):
        files.read(tmp_path / "b.csv")


def test_a_table_without_a_header(tmp_path):
    np.savetxt(tmp_path / "a.csv", [[1.5, 2], [3, 4]], delimiter=",")
    samples = files.read(tmp_path / "a.csv")
    assert samples.x.tolist() == [[1.5, 2], [3, 4]]
    assert "no header line" in samples.report.notes[0]


@pytest.mark.parametrize("text", ["a;b\n1;x, y\n2;z\n", "\ufeffa\tb\n1\tx, y\n2\tz\n", '\n\na,b\n1,"x, y"\n2,z\n'])
def test_separators_marks_and_blank_lines(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    samples = files.read(tmp_path / "a.csv")
    assert samples.columns == ("a", "b = x, y", "b = z")
    assert samples.x.tolist() == [[1, 1, 0], [2, 0, 1]]


def test_quoted_line_breaks_and_padded_words(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n 1,"x\ny"\n2, ?\n3, z\n')
    samples = files.read(tmp_path / "a.csv")
    assert samples.columns == ("a", "b = x\ny", "b = z", "b is missing")
    assert samples.x.tolist() == [[1, 1, 0, 0], [2, 0, 0, 1], [3, 0, 1, 0]]


def test_quoted_line_breaks_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.data.readers.tables.BLOCK_BYTES", 512)
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"x\n2\n3"\n' * 1000)
    samples = files.read(tmp_path / "a.csv")
    assert samples.columns == ("a", "b = x\n2\n3")
    assert len(samples.x) == 1000


@pytest.mark.slow
def test_a_late_text_makes_a_whole_column_text(tmp_path):
    """Types come from the whole column, not from its first block."""
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 3_000_000 + "1,late\n")
    samples = files.read(tmp_path / "a.csv")
    assert samples.columns == ("a", "b = 2", "b = late")
    assert samples.x[-1].tolist() == [1, 0, 1]


def test_a_column_empty_on_one_side_takes_the_kind_of_the_other(tmp_path):
    p, q, report = files.read_pair(*pair_of(tmp_path, "a,b\nx,1\ny,2\n", "a,b\n,3\n,4\n"))
    assert report.features == ("a = x", "a = y", "a is missing", "b")
    assert q.tolist() == [[0, 0, 1, 3], [0, 0, 1, 4]]
    p, q, _ = files.read_pair(*pair_of(tmp_path, "a\n1\n3\n", "a\nNA\n"))
    assert p.tolist() == [[1, 0], [3, 0]]
    assert q.tolist() == [[2, 1]]


def test_booleans_beside_numbers_are_numbers(tmp_path):
    p, q, _ = files.read_pair(*pair_of(tmp_path, "a\ntrue\nfalse\n", "a\n1\n0\n"))
    assert torch.equal(p, q)


def test_constant_columns_are_kept_and_noted(tmp_path):
    p, _, report = files.read_pair(*pair_of(tmp_path, "a,b\n1,x\n1,x\n", "a,b\n1,x\n1,x\n"))
    assert p.shape == (2, 2)
    assert all("constant" in c.notes[0] for c in report.columns)


def test_every_plain_type_of_parquet(tmp_path):
    day, zoned = datetime.date(1970, 1, 11), datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "half": pa.array(np.array([1.5, 2.5], dtype=np.float16)),
            "decimal": pa.array([1, 2], pa.decimal128(10, 2)),
            "unsigned": pa.array([2**40, 1], pa.uint64()),
            "nan": pa.array([float("nan"), 4.0]),
            "day": pa.array([day, None], pa.date32()),
            "zoned": pa.array([zoned, zoned], pa.timestamp("ns", "Asia/Tokyo")),
            "clock": pa.array([datetime.time(0, 1), datetime.time(1)], pa.time32("s")),
            "span": pa.array([datetime.timedelta(seconds=3), datetime.timedelta(0)], pa.duration("ms")),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "truth": pa.array([True, None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    samples = files.read(tmp_path / "a.parquet")
    row = dict(zip(samples.columns, samples.x[0].tolist(), strict=True))
    assert row == {
        "half": 1.5,
        "decimal": 1.0,
        "unsigned": 2**40,
        "nan": 4.0,
        "nan is missing": 1.0,
        "day": 10.0,
        "day is missing": 0.0,
        "zoned": 1.0,
        "clock": 60.0,
        "span": 3.0,
        "word = a": 1.0,
        "word = b": 0.0,
        "truth": 1.0,
        "truth is missing": 0.0,
    }


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["1970-01-02", "1970-01-03T12:00:00"], [1, 2.5]),
        (["1970-01-02T00:00:00Z", "1970-01-03 12:00:00+12:00"], [1, 2]),
        (["1970-01-02", "1970-01-99"], None),
        (["01/02/1970", "02/02/1970"], None),
    ],
)
def test_text_that_is_dates(tmp_path, texts, days):
    pq.write_table(pa.table({"when": texts}), tmp_path / "a.parquet")
    samples = files.read(tmp_path / "a.parquet")
    assert samples.report.columns[0].kind == ("date" if days else "text")
    if days:
        assert samples.x.flatten().tolist() == days


@pytest.mark.parametrize("values", [[[1, 2], [3]], [{"a": 1}, {"a": 2}], [b"\xff", b"\x00"]])
def test_types_that_are_no_numbers_are_refused_by_name(tmp_path, values):
    pq.write_table(pa.table({"odd": values}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column 'odd'"):
        files.read(tmp_path / "a.parquet")


def test_torn_parquet(tmp_path):
    adult_like(500, 0).to_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    torn = tmp_path / "torn.parquet"
    for share in (0.1, 0.5, 0.99):
        torn.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match=re.escape("torn.parquet")):
            files.read(torn)
    torn.write_bytes(whole[:100] + bytes(400) + whole[500:])
    with pytest.raises(InputError, match=re.escape("torn.parquet")):
        files.read(torn)


def test_an_array_beside_a_table_of_numbers(tmp_path):
    np.save(tmp_path / "a.npy", [[1.0, 2.0]])
    (tmp_path / "b.csv").write_text("u,v\n3,4\n")
    p, q, _ = files.read_pair(tmp_path / "a.npy", tmp_path / "b.csv")
    assert (p.tolist(), q.tolist()) == ([[1, 2]], [[3, 4]])


def test_the_same_files_give_the_same_bits(tmp_path):
    paths = pair_of(tmp_path, adult_like(100, 0), adult_like(100, 1))
    first, second = files.read_pair(*paths), files.read_pair(*paths)
    assert torch.equal(first[0], second[0])
    assert first[2] == second[2]


@pytest.mark.parametrize(
    ("text", "value", "row"),
    [
        ("a\n1152921504606846976\n1152921504606846977\n", "1152921504606846977", 2),
        ("a\n0.5\n 1152921504606846977\n", "1152921504606846977", 2),  # a column of floats, by the first
        ("a\n-18446744073709551617\n1\n", "-18446744073709551617", 1),  # more than 64 bits: Arrow takes a float
    ],
)
def test_integers_that_no_float_holds_are_refused_with_column_and_row(tmp_path, text, value, row):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=rf"column 'a' of .*a\.csv .*2\^53.* Got {value} in data row {row} instead"):
        files.read(tmp_path / "a.csv")


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.decimal128(38, 2)])
def test_the_same_in_parquet(tmp_path, kind):
    pq.write_table(
        pa.table({"a": pa.array([1, None, 2**60, 2**60 + 1], pa.int64()).cast(kind)}), tmp_path / "a.parquet"
    )
    with pytest.raises(InputError, match=r"column 'a' of .*2\^53.* Got 1152921504606846977(\.00)? in data row 4"):
        files.read(tmp_path / "a.parquet")


def test_two_pairs_of_neighbours_beyond_2_to_the_53_are_not_called_the_same(tmp_path):
    for name, more in (("real", (0, 1)), ("fake", (5, 6))):
        pd.DataFrame({"a": [2**60 + i for i in more] * 10}).to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(InputError, match="1152921504606846977"):
        files.read_pair(tmp_path / "real.csv", tmp_path / "fake.csv")


def test_large_numbers_that_floats_hold_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1e20,100000000000000000000\n3e38,9007199254740992\n")
    assert files.read(tmp_path / "a.csv").x.tolist() == [[1e20, 1e20], [3e38, 2.0**53]]


def test_numbers_beyond_single_precision_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n1e39\n")
    with pytest.raises(InputError, match=r"column 'a' of .* no larger than 3\.4e\+38\. Got 1e\+39 in data row 2"):
        files.read(tmp_path / "a.csv")


@pytest.mark.parametrize("index", [None, "id", ["id", "day"]])
def test_the_index_of_pandas_is_left_out_of_parquet(tmp_path, index):
    frame = adult_like(40, 0)[["age", "income"]].assign(id=range(40), day=1.5)
    shown = (frame if index is None else frame.set_index(index))[["age", "income"]].sample(20, random_state=0)
    shown.to_parquet(tmp_path / "a.parquet")
    samples = files.read(tmp_path / "a.parquet")
    assert samples.columns == ("age", "age is missing", "income")
    assert "was left out" in samples.report.notes[0]
    p, q, _ = files.read_pair(tmp_path / "a.parquet", tmp_path / "a.parquet")
    assert p.shape == q.shape == (20, 3)
    shown[["income"]].to_parquet(tmp_path / "b.parquet")
    assert [len(x[0]) for x in files.chunks(tmp_path / "b.parquet")] == [1]


def test_a_table_of_an_index_alone_and_notes_of_another_kind(tmp_path):
    pd.DataFrame(index=[3, 1, 4]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="beside the index of pandas"):
        files.read(tmp_path / "a.parquet")
    for notes in (b"no JSON", b"[]", b'{"index_columns": 3}', b'{"index_columns": [{}, 7]}', b"\xff"):
        table = pa.table({"a": [1.0, 2.0]}).replace_schema_metadata({b"pandas": notes})
        pq.write_table(table, tmp_path / "a.parquet")
        assert files.read(tmp_path / "a.parquet").columns == ("a",)


def test_tables_that_would_not_fit_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": np.zeros(10_000), "b": np.zeros(10_000)}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("a,b\n" + "0,0\n" * 10_000)
    monkeypatch.setattr(machine, "free_memory", lambda: 600_000)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("it was decoded"))
    monkeypatch.setattr("pyarrow.csv.read_csv", lambda *_: pytest.fail("it was decoded"))
    for name in ("a.csv", "a.parquet"):  # 20 000 numbers of 8 bytes
        with pytest.raises(InputError, match=rf"{name}' must be small enough for 0\.00015 GB .* Got 0\.00016 GB"):
            files.read(tmp_path / name)


def test_text_that_unfolds_to_more_than_fits_is_refused(tmp_path, monkeypatch):
    text = ["x" * 10_000, "y"] * 1000
    pq.write_table(pa.table({"a": text}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    monkeypatch.setattr(machine, "free_memory", lambda: 2 * 10**7)
    with pytest.raises(InputError, match=r"column 'a'' must be small enough for 0\.005 GB .* Got 0\.01 GB"):
        files.read(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("a\n" + "\n".join("abcdefghijklmnopqrstuvwxyz" * 1000) + "\n")
    with pytest.raises(InputError, match=r"Got 0\.0141 GB"):  # two times 34 columns of 26 000 floats
        files.read(tmp_path / "a.csv")


def test_a_header_of_more_columns_than_can_be_worked_on(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_COLUMNS", 3)
    (tmp_path / "a.csv").write_text("a,b,c,d\n1,2,3,4\n")
    with pytest.raises(InputError, match=r"at most 3 columns\. Got 4"):
        files.read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("\n" * 5000)
    with pytest.raises(InputError, match="blank lines alone"):
        files.read(tmp_path / "a.csv")


def test_columns_are_matched_in_linear_time():
    def seconds(width):
        table = pa.table({f"c{i}": [0.0] for i in range(width)})
        turned = table.select(table.column_names[::-1])
        begun = time.process_time()
        columns._aligned([table, turned], ["one", "other"])
        return time.process_time() - begun

    assert min(seconds(20_000) for _ in range(3)) < 0.5  # and not minutes
