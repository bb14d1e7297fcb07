"""Formats told apart by content; files that are torn, foreign or made to hurt."""

import io
import json
import math
import os
import random
import sys

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.data.readers import matrices
from vestige.data.readers import read_matrix as read

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
    (tmp_path / "R.npy").write_bytes(whole.replace(b"(20000000000, 0)", b"(20000000000, 9)"))
    with pytest.raises(InputError, match=r"whole \.npy of numbers"):
        read(tmp_path / "R.npy")


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
    with pytest.raises(InputError, match="Is a directory"):
        read(tmp_path)


def test_a_file_beyond_the_limit_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "MAX_BYTES", 2**20)
    (tmp_path / "R.csv").write_bytes(b"0," * 2**20)
    with pytest.raises(InputError, match="at most 1 MB large"):
        read(tmp_path / "R.csv")
