"""Every kind in, the same kind out; every refusal in its one sentence, before any work."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core import checks
from vestige.core.checks import Kind
from vestige.core.errors import InputError, UnknownName

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]

KINDS = {
    "list": ROWS,
    "tuple": tuple(map(tuple, ROWS)),
    "float64": np.array(ROWS),
    "float32": np.array(ROWS, dtype=np.float32),
    "float16": np.array(ROWS, dtype=np.float16),
    "longdouble": np.array(ROWS, dtype=np.longdouble),
    "int": np.array(ROWS, dtype=int),
    "uint8": np.array(ROWS, dtype=np.uint8),
    "uint16": np.array(ROWS, dtype=np.uint16),
    "uint64": np.array(ROWS, dtype=np.uint64),
    "big-endian": np.array(ROWS, dtype=">f4"),
    "reversed": np.array(ROWS)[::-1][::-1, ::-1][:, ::-1],
    "fortran": np.asfortranarray(ROWS),
    "tensor": torch.tensor(ROWS),
    "int tensor": torch.tensor(ROWS, dtype=torch.int32),
    "grad": torch.tensor(ROWS, requires_grad=True),
    "list of tensors": [torch.tensor(row) for row in ROWS],
    "frame": pd.DataFrame(ROWS, index=["x", "y", "z"]),
    "nullable": pd.DataFrame(ROWS).astype("Float64"),
    "mixed": pd.DataFrame(ROWS).astype({0: "int8", 1: "float32"}),
}


@pytest.mark.parametrize("value", KINDS.values(), ids=KINDS)
def test_every_kind_is_read_as_the_same_samples(value):
    read = checks.samples(value, "x", "Y")
    assert read.dtype == torch.float64
    assert not read.requires_grad
    assert read.tolist() == ROWS
    assert checks.matrix(value, "x", "Y").tolist() == ROWS


def test_a_read_only_array_is_copied_and_none_is_changed():
    frozen = np.array(ROWS)
    frozen.flags.writeable = False
    checks.samples(frozen, "x", "Y")[0, 0] = 9
    assert frozen[0, 0] == 1


@pytest.mark.parametrize(
    ("value", "kind", "dtype"),
    [
        (np.zeros(3, np.float32), np.ndarray, np.float32),
        (np.zeros(3), np.ndarray, np.float64),
        (np.zeros(3, int), np.ndarray, np.float64),
        (torch.zeros(3), torch.Tensor, torch.float32),
        (torch.zeros(3, dtype=torch.float64), torch.Tensor, torch.float64),
        (torch.zeros(3, dtype=torch.int64), torch.Tensor, torch.float64),
        (pd.Series([0.0, 0, 0]), pd.Series, np.float64),
        (pd.DataFrame({"a": [0.0, 0, 0]}), pd.Series, np.float64),
    ],
)
def test_what_came_in_goes_out(value, kind, dtype):
    result = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    given_back = Kind.of(value).give(result)
    assert isinstance(given_back, kind)
    assert given_back.dtype == dtype
    assert list(given_back) == [1.0, 2.0, 3.0]


def test_lists_and_tables_go_out_as_themselves():
    result = torch.tensor([1.0, 2.0, 3.0])
    assert Kind.of([1, 2, 3]).give(result) == [1.0, 2.0, 3.0]
    indexed = Kind.of(KINDS["frame"])
    assert list(indexed.give(result).index) == ["x", "y", "z"]
    assert list(indexed.give(result[:2]).index) == [0, 1]  # of another length: no index of another's
    assert list(indexed.give(torch.ones(3, 2)).index) == ["x", "y", "z"]
    assert Kind.of(np.zeros(3, np.float32)).give(torch.tensor([1, 2])).dtype == np.int64  # counts stay counts


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(-checks.LARGEST, checks.LARGEST), min_size=2, max_size=2), min_size=1))
def test_every_finite_number_passes_unchanged(rows):
    assert checks.samples(rows, "x", "Y").tolist() == rows  # sums that overflow are no NaN among the samples


BEYOND = 2**60 + np.array([[0, 1], [5, 6]])


@pytest.mark.parametrize(
    "given",
    [
        *(BEYOND, BEYOND.tolist(), BEYOND.astype(np.uint64), BEYOND.astype(">i8"), torch.from_numpy(BEYOND)),
        *(torch.from_numpy(BEYOND.astype(np.uint64)), np.ma.masked_array(BEYOND, BEYOND == 2**60)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, None])
def test_integers_that_no_float_holds_are_refused_with_their_place(given, dtype):
    with pytest.raises(
        InputError, match=r"The 'x' of Y .*2\^53.* Got 1152921504606846977 in row 0, column 1 \(from 0\)"
    ):
        checks.samples(given, "x", "Y", dtype=dtype)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "int64[pyarrow]"])
def test_such_integers_in_a_frame_are_refused_with_their_column(dtype):
    frame = pd.DataFrame({"fine": [1, 2], "id": pd.Series(BEYOND[0], dtype=dtype)})
    with pytest.raises(InputError, match=r"The 'x\['id'\]' of Y .*2\^53.* Got 1152921504606846977 in row 1 \(from 0\)"):
        checks.samples(frame, "x", "Y")
    with pytest.raises(InputError, match="Got 1152921504606846977 in row 1"):
        checks.samples(frame["id"], "x", "Y")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from([np.int64, np.uint64]))
def test_inexact_is_what_python_says(values, dtype):
    whole = np.array([v if dtype is np.int64 else v + 2**63 for v in values], dtype=dtype)
    assert checks.inexact(whole).tolist() == [int(v) != float(int(v)) for v in whole]


def test_integers_that_single_precision_would_confuse_stay_apart():
    near = 2**30 + np.arange(4).reshape(2, 2)
    assert checks.samples(near, "x", "Y", dtype=None).tolist() == near.tolist()
    p, q = checks.pair(np.zeros((2, 2), np.float32), near, "Y", dtype=None)
    assert p.dtype == q.dtype == torch.float64
    assert q.tolist() == near.tolist()
    assert checks.samples(near % 2**20, "x", "Y", dtype=None).dtype == torch.float32


@pytest.mark.parametrize("value", [3.5e38, -1e300])
def test_numbers_beyond_single_precision_are_refused_with_their_place(value):
    with pytest.raises(InputError, match=r"no larger than 3\.4e\+38.*in row 1, column 0 \(from 0\)"):
        checks.samples([[1.0, 2.0], [value, 3.0]], "x", "Y")


def test_shapes_of_samples():
    assert checks.samples([1.0, 2.0], "x", "Y").shape == (2, 1)
    assert checks.samples(np.zeros((4, 2, 3)), "x", "Y").shape == (4, 6)
    assert checks.samples(torch.zeros(2, 2), "x", "Y", dtype=None).dtype == torch.float32
    assert checks.samples(torch.zeros(2, 2, dtype=torch.uint8), "x", "Y", dtype=None).dtype == torch.float32
    assert checks.samples(torch.zeros(2, 2).double(), "x", "Y", dtype=None).dtype == torch.float64


NAN = math.nan
NO = {
    "number": (lambda: checks.samples(3.0, "x", "Y"), "one sample a row. Got a single number"),
    "none": (lambda: checks.samples(None, "x", "Y"), "an array of numbers. Got NoneType of object"),
    "text": (lambda: checks.samples(["a"], "x", "Y"), "an array of numbers. Got list of <U1"),
    "complex": (lambda: checks.samples(np.array([1j]), "x", "Y"), "an array of numbers. Got ndarray of complex128"),
    "complex tensor": (lambda: checks.samples(torch.tensor([1j]), "x", "Y"), "dense and real"),
    "sparse": (lambda: checks.samples(torch.eye(2).to_sparse(), "x", "Y"), "dense and real. Got a torch.sparse_coo"),
    "complex frame": (
        lambda: checks.samples(pd.DataFrame({"a": [1j]}), "x", "Y"),
        "numeric in every column. Got .* a$",
    ),
    "text frame": (lambda: checks.samples(pd.DataFrame({"a": [1], "b": ["u"]}), "x", "Y"), "columns that are not: b"),
    "dates": (lambda: checks.samples(pd.Series(pd.to_datetime(["2020-01-01"])), "x", "Y"), "numeric. Got a Series of"),
    "ragged": (lambda: checks.samples([[1, 2], [3]], "x", "Y"), "rectangular array of numbers. Got rows of unequal"),
    "gradient": (lambda: checks.samples([torch.ones(2, requires_grad=True)], "x", "Y"), "list that numpy cannot read"),
    "missing": (lambda: checks.samples([[1, None]], "x", "Y"), "an array of numbers"),
    "empty": (lambda: checks.samples([], "x", "Y"), "at least 1 sample. Got 0"),
    "few": (lambda: checks.samples([[1.0]], "x", "Y", min_rows=2), "at least 2 samples. Got 1"),
    "featureless": (lambda: checks.samples(np.zeros((3, 0)), "x", "Y"), r"at least one feature. Got shape \(3, 0\)"),
    "nothing": (lambda: checks.samples(np.zeros((3, 0, 2)), "x", "Y"), "at least one feature"),
    "width": (lambda: checks.samples(ROWS, "x", "Y", width=3), "3 features wide. Got 2"),
    "nan": (lambda: checks.samples([[1.0, NAN]], "x", "Y"), "finite. Got 1 NaN or infinite values among 2"),
    "inf": (lambda: checks.samples([[math.inf, -math.inf]], "x", "Y"), "finite. Got 2 NaN or infinite"),
    "masked": (lambda: checks.samples(np.ma.masked_array([1.0, 2.0], [False, True]), "x", "Y"), "finite. Got 1 NaN"),
    "missing cell": (lambda: checks.samples(pd.Series([1, None], dtype="Int64"), "x", "Y"), "finite. Got 1 NaN"),
    "overflow": (lambda: checks.samples([1e300], "x", "Y", dtype=torch.float32), "finite"),
    "vector": (lambda: checks.vector(ROWS, "x", "Y"), r"one number a sample. Got shape \(3, 2\)"),
    "length": (lambda: checks.vector([1.0], "x", "Y", length=2), "2 long. Got 1"),
    "short": (lambda: checks.vector([], "x", "Y"), "at least 1 long. Got 0"),
    "vector nan": (lambda: checks.vector([NAN], "x", "Y"), "finite"),
    "matrix": (
        lambda: checks.matrix([1.0], "x", "Y"),
        r"a matrix with at least one row and one column. Got shape \(1,\)",
    ),
    "matrix nan": (lambda: checks.matrix([[NAN]], "x", "Y"), "finite. Got 1 NaN"),
    "matrix inf": (lambda: checks.matrix([[math.inf]], "x", "Y", finite=False), "NaN where nothing was measured"),
    "label shape": (lambda: checks.labels(ROWS, "x", "Y"), "one label a sample"),
    "label length": (lambda: checks.labels([1], "x", "Y", length=2), "2 long. Got 1"),
    "fraction": (lambda: checks.labels([0.5], "x", "Y"), "whole numbers. Got fractions or NaN"),
    "label nan": (lambda: checks.labels([NAN], "x", "Y"), "whole numbers"),
    "huge label": (lambda: checks.labels([1e300], "x", "Y"), "whole numbers"),
    "negative label": (lambda: checks.labels([0, -2], "x", "Y"), "0 or larger. Got -2"),
    "negative weight": (lambda: checks.weights([1, -0.5], 2, "x", "Y"), "0 or larger. Got -0.5"),
    "no weight": (lambda: checks.weights([0, 0], 2, "x", "Y"), "positive somewhere. Got all zeros"),
    "weights": (lambda: checks.weights([1], 2, "x", "Y"), "2 long. Got 1"),
    "not a number": (lambda: checks.number("1", "x", "Y"), "a number. Got '1'"),
    "truth": (lambda: checks.number(True, "x", "Y"), "a number. Got True"),
    "nan number": (lambda: checks.number(NAN, "x", "Y"), r"in \[-inf, inf\]. Got nan"),
    "outside": (lambda: checks.number(2, "x", "Y", low=0, high=1), r"in \[0, 1\]. Got 2"),
    "open": (lambda: checks.number(0, "x", "Y", low=0, high=1, open_low=True), r"in \(0, 1\]. Got 0"),
    "open high": (lambda: checks.number(1, "x", "Y", low=0, high=1, open_high=True), r"in \[0, 1\). Got 1"),
    "astronomical": (lambda: checks.number(10**400, "x", "Y"), "a number that a float can hold"),
    "not whole": (lambda: checks.whole(1.0, "x", "Y"), "a whole number. Got 1.0"),
    "truth as whole": (lambda: checks.whole(False, "x", "Y"), "a whole number. Got False"),
    "low": (lambda: checks.whole(0, "x", "Y", low=1), "at least 1. Got 0"),
    "high": (lambda: checks.whole(9, "x", "Y", high=8), "at most 8. Got 9"),
}


@pytest.mark.parametrize(("call", "words"), NO.values(), ids=NO)
def test_each_refusal_is_the_one_sentence(call, words):
    with pytest.raises(InputError) as refusal:
        call()
    sentence = str(refusal.value)
    assert sentence.startswith("The 'x' of Y must be ")
    assert sentence.endswith(" instead.")
    pattern = words.removesuffix("$") + (r" instead\.$" if words.endswith("$") else "")
    with pytest.raises(InputError, match=pattern):
        call()


def test_pairs_are_of_one_width():
    p, q = checks.pair(ROWS, np.zeros((2, 2), np.float32), "Y")
    assert p.dtype == q.dtype == torch.float64
    assert checks.pair(torch.zeros(2, 2), np.zeros((2, 2)), "Y", dtype=None)[1].dtype == torch.float32
    with pytest.raises(InputError, match=r"The 'q' of Y must be as wide as 'p' \(2 features\)\. Got 1 instead"):
        checks.pair(ROWS, [1.0, 2.0], "Y")
    with pytest.raises(InputError, match="The 'p' of Y must be at least 2 samples"):
        checks.pair(ROWS[:1], ROWS, "Y")


def test_what_is_allowed_is_let_through():
    assert checks.vector(np.ones((3, 1)), "x", "Y").shape == (3,)
    assert checks.vector([NAN, 1.0], "x", "Y", finite=False).isnan().tolist() == [True, False]
    assert checks.matrix([[NAN, 1.0]], "x", "Y", finite=False).isnan().tolist() == [[True, False]]
    assert checks.labels([[2.0], [0.0]], "x", "Y").tolist() == [2, 0]
    assert checks.labels(np.array([2**40], dtype=np.uint64), "x", "Y").tolist() == [2**40]
    assert checks.vector(np.array([2**63 + 2**20], dtype=np.uint64), "x", "Y").tolist() == [2.0**63 + 2**20]
    assert checks.number(np.float32(0.5), "x", "Y", low=0.5) == 0.5
    assert checks.whole(np.int64(3), "x", "Y", low=3, high=3) == 3
    assert checks.weights(None, 3, "x", "Y") is None


@given(st.lists(st.floats(0, 1e308), min_size=1, max_size=5).filter(lambda w: max(w) > 0))
@settings(max_examples=40, deadline=None)
def test_weights_sum_to_one_however_large_they_are(weights):
    scaled = checks.weights(weights, len(weights), "x", "Y")
    assert float(scaled.sum()) == pytest.approx(1)
    top = max(weights)
    shares = [w / top for w in weights]
    assert scaled.tolist() == pytest.approx([s / math.fsum(shares) for s in shares])


def test_an_unknown_name_suggests_the_nearest():
    assert checks.one_of("ewc", {"ewc": 1}, "method", "Y") == "ewc"
    with pytest.raises(UnknownName, match=r"one of ewc, rwalk\. Got 'rwlak' instead\. Did you mean 'rwalk'\?$"):
        checks.one_of("rwlak", ["rwalk", "ewc"], "method", "Y")
    with pytest.raises(UnknownName, match=r"Got 'zzz' instead\.$"):
        checks.one_of("zzz", ["rwalk", "ewc"], "method", "Y")
    with pytest.raises(UnknownName, match=r"Got \['ewc'\] instead"):
        checks.one_of(["ewc"], ["rwalk", "ewc"], "method", "Y")


@pytest.mark.parametrize("value", ["experiment-4", "x" * 10_000, "\n" * 10_000, ["a"] * 1000, 10**400])
@pytest.mark.parametrize("owner", ["Y", "y" * 10_000])
def test_a_sentence_about_an_unknown_name_stays_short(value, owner):
    names = [f"experiment-{i:04}" for i in range(500)]
    with pytest.raises(UnknownName) as refused:
        checks.one_of(value, names, "name", owner)
    assert len(str(refused.value)) <= checks.UNKNOWN
    assert "experiment-0000, " in str(refused.value) or owner != "Y"
    assert " more. Got " in str(refused.value) or owner != "Y"
    assert "Did you mean" in str(refused.value) or value != "experiment-4"
    with pytest.raises(UnknownName, match=r"must be one of 500 names\. Got"):
        checks.one_of("x", [name * 30 for name in names], "name", "Y")


def test_what_was_given_is_repeated_in_part():
    with pytest.raises(InputError) as refused:
        checks.refuse("x", "Y", "small", "a" * 1_000_000 + "z")
    assert len(str(refused.value)) < 400
    assert "aaa ... aaa" in str(refused.value)
    assert "az instead." in str(refused.value)
