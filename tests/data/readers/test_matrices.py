"""Formats told apart by content; every way in which people write a matrix down; files that are torn, foreign or made
to hurt, and every way in which a file can lie about being a matrix."""

import csv
import io
import json
import math
import os
import random
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.data import readers
from vestige.data.readers import matrices
from vestige.data.readers import read_matrix as read
from vestige.data.readers.matrices import cells as parse
from vestige.data.readers.tables import MISSING, is_missing

R = [[0.9, math.nan], [0.7, 0.8]]


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"0.9,\n0.7,0.8\n",
        b"\xef\xbb\xbf0.9,\n0.7,0.8\n",
        "0.9\t\n0.7\t0.8\n".encode("utf-16"),
        b"[[0.9, null], [0.7, 0.8]]",
        b" [[0.9, NaN], [0.7, 0.8]]",
        b"[[0.9], [0.7, 0.8]]",
        b'{"R": [[0.9, null], [0.7, 0.8]], "seed": 3}',
        b'{"matrix": [[0.9, null], [0.7, 0.8]]}',
        npy(np.array(R)),
        npy(np.asfortranarray(R).astype(np.float64)),
        npy(np.array(R, dtype=np.longdouble)),
    ],
)
def test_the_content_and_not_the_name_says_what_a_file_is(tmp_path, data):
    path = tmp_path / "matrix.of.some.kind"
    path.write_bytes(data)
    assert np.allclose(read(path).rows, R, equal_nan=True)


def test_standard_input_is_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0.9,\n0.7,0.8\n")))
    assert np.allclose(read(matrices.Path("-")).rows, R, equal_nan=True)


@pytest.mark.parametrize("data", [b"[0.9, 0.8]", b"0.9,0.8", npy(np.array([0.9, 0.8])), b"0.9 0.8"])
def test_a_vector_is_one_row_where_a_vector_is_asked_for(tmp_path, data):
    (tmp_path / "b").write_bytes(data)
    assert read(tmp_path / "b", vector=True).rows == [[0.9, 0.8]]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "must hold a matrix. Got nothing"),
        (b"   \n", "must hold a matrix. Got nothing"),
        (b"0.9,0.8\n\x80\x81,1\n", "must be text, JSON or .npy. Got a byte in line 2"),
        (b"0.9\x00,0.8\n", "Got binary data"),
        (b"PK\x03\x04\x00\x00\x00\x00", "Got binary data"),
        (b"[[0.9, 0.8], [0.7", "Line 1, column 18 of .* must be JSON"),
        (b"[[0.9, 0.8], [0.7]]", r"Row 2 of .* must have 2 cells\. Got 1"),
        (b'[[0.9, "0.8"], [0.7, 1]]', "Row 1, column 2 of .* must be a finite number.*Got '0.8'"),
        (b"[[0.9, true], [0.7, 1]]", "Row 1, column 2 .*Got True"),
        (b"[[0.9, Infinity], [0.7, 1]]", "Row 1, column 2 .*Got inf"),
        (b"[[0.9, " + b"9" * 400 + b"], [0.7, 1]]", "Row 1, column 2 .*Got a whole number far too large"),
        (b"[[0.9, " + b"9" * 9000 + b"], [0.7, 1]]", "must be JSON of plain nested lists"),
        (b"[" * 100_000, "must be JSON of plain nested lists|must be JSON"),
        (b"[[[1]]]", "Row 1, column 1 .*Got a list of 1"),
        (b"[0.9, 0.8]", "Row 1 of .* must be a list of numbers. Got 0.9"),
        (b"[]", "must hold a list of rows. Got a list of 0"),
        (b'{"accuracy": [[1]]}', "must have a key 'R' or 'matrix'. Got the keys 'accuracy'"),
        (b'{"R": 3}', "must hold a list of rows. Got 3"),
        (npy(np.array(R))[:-3], "must be a whole .npy"),
        (npy(np.array([["a", "b"]])), "must be a .npy of numbers. Got <U1"),
        (npy(np.array([[1j]])), "must be a .npy of numbers. Got complex128"),
        (npy(np.zeros((2, 2, 2))), "Row 1, column 1 .*Got a list of 2"),
        (npy(np.float64(3)), "must hold a list of rows"),
        (npy(np.zeros((0, 3))), "must hold a list of rows"),
        (npy(np.array([[np.inf]])), "Row 1, column 1 .*Got inf"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_by_name_and_place(tmp_path, data, sentence):
    path = tmp_path / "R.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=sentence) as refusal:
        read(path)
    assert "R.csv" in str(refusal.value)


def test_pickles_inside_npy_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    file = io.BytesIO()
    np.save(file, np.array([Trap()], dtype=object), allow_pickle=True)
    (tmp_path / "R.npy").write_bytes(file.getvalue())
    with pytest.raises(InputError, match=r"whole \.npy of numbers"):
        read(tmp_path / "R.npy")
    assert not (tmp_path / "sprung").exists()


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    whole = npy(np.zeros((20000000000, 0)))
    (tmp_path / "R.npy").write_bytes(whole.replace(b"(20000000000, 0)", b"(          9, 9)"))
    with pytest.raises(InputError, match=r"whole \.npy of numbers"):
        read(tmp_path / "R.npy")
    (tmp_path / "R.npy").write_bytes(whole.replace(b"(20000000000, 0)", b"(20000000000, 9)"))
    with pytest.raises(InputError, match=r"at most 1000000 cells\. Got 180000000000 instead"):
        read(tmp_path / "R.npy")
    (tmp_path / "R.npy").write_bytes(whole)  # nothing in it, twenty thousand million times
    with pytest.raises(InputError, match="at most 1000000 cells"):
        read(tmp_path / "R.npy")


@pytest.mark.parametrize("text", ["0,0\n0,0\n", "0 0\n0 0\n", "\n" * 9, "[[0,0],[0,0],[0,0]]"])
def test_more_cells_than_any_matrix_has_are_refused(tmp_path, monkeypatch, text):
    monkeypatch.setattr(matrices, "MAX_CELLS", 3)
    (tmp_path / "R.csv").write_text(text)
    with pytest.raises(InputError, match=r"R\.csv must hold at most 3 cells\. Got [459] instead"):
        read(tmp_path / "R.csv")


@pytest.mark.parametrize("shape", [(), (2, 2, 2, 2, 2)])
def test_arrays_that_are_no_matrix_are_refused(tmp_path, shape):
    (tmp_path / "R.npy").write_bytes(npy(np.zeros(shape)))
    with pytest.raises(InputError, match=r"R\.npy"):
        read(tmp_path / "R.npy")


def test_whether_every_number_is_a_percentage_is_told():
    assert parse("97.5%,\n80 %,0.4%\n", "R.csv").percent
    assert not parse("97.5%,\n80 %,0.4\n", "R.csv").percent


def test_random_damage_to_any_format_is_an_answer_or_a_refusal(tmp_path):
    dice = random.Random(0)
    whole = [npy(np.array(R)), json.dumps({"R": [[0.9, None], [0.7, 0.8]]}).encode(), b"a,b\n0.9,\n0.7,0.8\n"]
    refused = 0
    for _ in range(400):
        data = bytearray(dice.choice(whole))
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        (tmp_path / "R").write_bytes(bytes(data))
        try:
            read(tmp_path / "R")
        except InputError:
            refused += 1
    assert refused > 100


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv must be one that can be read\. Got 'No such file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"must be a regular file\. Got a folder"):
        read(tmp_path)
    os.mkfifo(tmp_path / "R.csv")
    with pytest.raises(InputError, match=r"R\.csv' must be a regular file\. Got a pipe"):
        read(tmp_path / "R.csv")


def test_a_file_beyond_the_limit_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "MAX_BYTES", 2**20)
    (tmp_path / "R.csv").write_bytes(b"0," * 2**20)
    with pytest.raises(InputError, match="at most 1 MB large"):
        read(tmp_path / "R.csv")


NAN = math.nan
SQUARE = [[0.9, NAN], [0.7, 0.8]]


def equal(a, b):
    return repr(a) == repr(b)  # so that NaN equals NaN and 1 is not 1.0


@pytest.mark.parametrize(
    "text",
    [
        "0.9,\n0.7,0.8\n",
        "0.9,nan\r\n0.7,0.8",
        "\ufeff0.9;NaN\n.7;8e-1\n",  # the mark is stripped by the reader of the file; here it must not be needed
        "0.9\t\n0.7\t0.8\n",
        "0.9 -\n0.7 0.8\n",
        "0.9\n0.7,0.8\n",  # a triangle
        "# written by numpy\n9e-1 n/a\n+0.7 0.8\n\n",
        "t1,t2\n0.9,\n0.7,0.8\n",
        "a,0.9,\nb,0.7,0.8\n",
        ",t1,t2\na,0.9,\nb,0.7,0.8\n",
        ",0,1\n0,0.9,\n1,0.7,0.8\n",  # pandas, default
        ",1,2\n1,0.9,\n2,0.7,0.8\n",
        "0,1\n0.9,\n0.7,0.8\n",  # pandas without its index
        "task,1,2\n1,0.9,\n2,0.7,0.8\n",
        "trained up to,t1,t2\n1,0.9,\n2,0.7,0.8\n",
        '"t1" "t2"\n"a" 0.9 NA\n"b" 0.7 0.8\n'.replace('"', ""),  # R leaves the corner out
        "0,9;\n0,7;0,8\n",  # a decimal comma
        '"0.9",""\n"0.7","0.8"\n',
    ],
)
def test_one_matrix_in_many_hands(text):
    assert equal(parse(text.lstrip("\ufeff"), "R.csv").rows, SQUARE)


def test_percentages_stay_as_they_are():
    assert parse("97.5%,\n80 %,99\n", "R.csv").rows[1] == [80.0, 99.0]
    assert parse("97,5%;\n80%;99\n", "R.csv").rows[0][0] == 97.5


def test_labels_are_kept_as_names():
    found = parse("step, cats ,dogs\nfirst,0.9,\nsecond,0.7,0.8\n", "R.csv")
    assert found.header == ["cats", "dogs"]
    assert found.index == ["first", "second"]
    assert parse("t1 t2\na 0.9 -\nb 0.7 0.8\n", "R.csv").header == ["t1", "t2"]


def test_a_line_that_counts_is_data_where_the_matrix_needs_it():
    assert parse("1,2,3\n4,5,6\n7,8,9\n", "R.csv").rows[0] == [1.0, 2.0, 3.0]
    assert parse("t1,t2\n0,1\n1,1\n", "R.csv").rows == [[0.0, 1.0], [1.0, 1.0]]


def test_a_column_that_counts_is_labels_even_where_the_rows_are_one_too_many():
    found = parse(",0,1\n0,0.1,0.1\n1,0.9,0.1\n2,0.8,0.9\n", "R.csv")
    # To be refused as three rows of two, not read as three of three.
    assert [len(row) for row in found.rows] == [2, 2, 2]
    worded = parse("step,a,b\n0,0.1,0.1\n1,0.9,0.1\n2,0.8,0.9\n", "R.csv")
    assert worded.rows == found.rows


def test_the_user_has_the_last_word_on_labels():
    text = "1,2\n0.9,0.8\n"
    assert len(parse(text, "R.csv", labels="none").rows) == 2
    assert parse(text, "R.csv", labels="header").rows == [[0.9, 0.8]]
    assert parse(text, "R.csv", labels="index").rows == [[2.0], [0.8]]
    assert parse(text, "R.csv", labels="both").rows == [[0.8]]


def test_a_vector_may_be_a_column_with_labels():
    assert parse("task,acc\n1,0.9\n2,0.8\n", "b.csv", vector=True).rows == [[0.9], [0.8]]
    assert parse("acc\n1\n2\n3\n", "b.csv", vector=True).rows == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.9,\n0.7,=SUM(A1:A2)\n", r"Line 2, column 2 of R\.csv must be a finite number.*Got '=SUM\(A1:A2\)' instead"),
        ("=A1,=B1\n0.7,0.8\n", r"Line 1, column 1 of R\.csv.*Got '=A1'"),  # no header
        ("@cmd,+x\n0.7,0.8\n", "Line 1, column 1"),
        ("#REF!,0.1\n0.7,0.8\n", "Line 1, column 1.*#REF!"),  # no comment
        ("0.9,#DIV/0!\n0.7,0.8\n", "Line 1, column 2"),
        ("0.9,inf\n0.7,0.8\n", "Line 1, column 2.*Got 'inf'"),
        ("inf,inf\n0.7,0.8\n", "Line 1, column 1"),
        ("0.9,1e999\n0.7,0.8\n", "Line 1, column 2.*Got '1e999'"),
        ("0.9,0.x8\n0.7,0.8\n", "Line 1, column 2.*Got '0.x8'"),  # a slip in the first line is not a header
        ("0.9,1_000\n0.7,0.8\n", "Line 1, column 2"),
        ("0.9,٣\n0.7,0.8\n", "Line 1, column 2"),  # a digit that float() would take
        ("0.9,0x1F\n0.7,0.8\n", "Line 1, column 2"),
        ("0.9,1,234.5\n0.7,0.8,\n0,0,0", None),
        ("0.9;1,234.5\n0.7;0.8\n", r"Line 1, column 2.*Got '1,234\.5'"),
        ("0.9,0.1,0.2\n0.7,0.8\n0.1,0.2,0.3\n", r"Line 2 of R\.csv must have 3 cells\. Got 2 instead"),
        ("0.9,0.1\n0.7,0.8,0.9\n", r"Line 2 of R\.csv must have 2 cells\. Got 3 instead"),
        ("a,b,c\n0.9,0.1\n0.7,0.8\n", r"Line 1 of R\.csv must have 2 cells\. Got 3"),
        ("a,b\n", "Line 1, column 2"),
        ('0.9,"0.1\n0.7,0.8\n', r"Line 2 of R\.csv must be cells delimited by ','"),
        ("0.9,'" + "9" * 200_000 + "'\n0.7,0.8\n", r"Line 1 of R\.csv must be cells.*field larger"),
        ("0.9,x" + "y" * 1000 + "\n0.7,0.8\n", r"Got 'xy{39}' \.\.\. instead"),
        ("\n\n# only a comment\n", r"R\.csv must hold a matrix"),
    ],
)
def test_what_is_not_a_number_is_named_by_line_and_column(text, sentence):
    if sentence is None:
        assert parse(text, "R.csv").rows[0] == [0.9, 1.0, 234.5]  # where the comma delimits, it delimits
        return
    with pytest.raises(InputError, match=sentence):
        parse(text, "R.csv")


def test_the_line_number_is_that_of_the_editor():
    with pytest.raises(InputError, match="Line 5, column 1"):
        parse("# a comment\n0.9,\n\n\nzero,0.8\n", "R.csv")


@example(rows=[[NAN, NAN], [NAN, NAN]], delimiter="\t", header=False, index=False)
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(2, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.one_of(st.just(NAN), st.floats(-1e6, 1e6)), min_size=n, max_size=n), min_size=n, max_size=n
        )
    ),
    delimiter=st.sampled_from(",;\t"),
    header=st.booleans(),
    index=st.booleans(),
)
def test_what_pandas_writes_is_read_back(rows, delimiter, header, index):
    n = len(rows)
    frame = pd.DataFrame(rows, columns=[f"t{j}" for j in range(n)], index=[f"r{i}" for i in range(n)])
    text = frame.to_csv(sep=delimiter, header=header, index=index)
    if not text.strip():  # nothing but tabs
        with pytest.raises(InputError, match="nothing but blanks"):
            parse(text, "R.csv")
        return
    assert equal(parse(text, "R.csv").rows, [[float(v) for v in row] for row in rows])


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("0123456789.,;\t \n\"'-+eExna=#%\r"), max_size=60))
def test_any_text_is_a_rectangle_of_numbers_or_refused(text):
    try:
        found = parse(text, "R.csv")
    except InputError:
        return
    widths = {len(row) for row in found.rows}
    assert len(widths) == 1
    assert widths != {0}
    assert not any(math.isinf(v) for row in found.rows for v in row)


def test_a_comma_in_quotes_is_part_of_a_label():
    written = io.StringIO()
    csv.writer(written).writerows([["cats, dogs", "cars"], [0.9, ""], [0.7, 0.8]])
    assert parse(written.getvalue(), "R.csv").header == ["cats, dogs", "cars"]


@pytest.mark.parametrize("word", sorted({spell(w) for w in MISSING for spell in (str, str.upper, str.title)} | {"NaN"}))
def test_missing_means_the_same_in_a_matrix_and_in_a_table(word, tmp_path):
    assert is_missing(word)
    assert is_missing(f" {word} ")
    assert equal(parse(f"0.9,{word}\n0.7,0.8\n", "R.csv").rows, SQUARE)
    (tmp_path / "table.csv").write_text(f"a,b,c\n1,{word},x\n2,3,{word}\n")
    found = readers.read(tmp_path / "table.csv")
    assert found.columns == ("a", "b", "b is missing", "c = x", "c is missing")
    assert found.x.tolist() == [[1, 3, 1, 1, 0], [2, 3, 0, 0, 1]]
