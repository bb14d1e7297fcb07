"""A matrix from a file of any framework: delimited text, .npy or JSON, told apart by their content.

Percentages stay as they are. A JSON null and a NaN are cells that were not measured; a triangle may leave its empty
half out. What is not a finite number is refused by file and place; nothing is skipped, evaluated or guessed.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

from vestige.core import InputError
from vestige.data.readers.delimited import Cells, cells, rectangle, refuse_cell, shorten

# Far above any matrix of tasks, far below what would fill the memory.
MAX_BYTES = 256 * 2**20


def read_matrix(path: Path, *, labels: str = "auto", vector: bool = False) -> Cells:
    """The matrix in `path` ("-": standard input), or with `vector` a single row or column of numbers as well."""
    data = _bytes(path)
    if data.startswith(b"\x93NUMPY"):
        return Cells(_from_npy(data, path, vector))
    text = _text(data, path)
    if text.lstrip().startswith(("[", "{")):
        return Cells(_from_json(text, path, vector))
    return cells(text, str(path), labels=labels, vector=vector)


def _bytes(path: Path) -> bytes:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"The file {path} must be one that can be read. Got '{error.strerror}' instead.") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"The file {path} must be at most {MAX_BYTES // 2**20} MB large. Got more instead.")
    return data


def _text(data: bytes, path: Path) -> str:
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"a byte in line {line} that is none of these"
        raise InputError(f"The file {path} must be text, JSON or .npy. Got {got} instead.") from None
    if "\0" in text:
        raise InputError(f"The file {path} must be text, JSON or .npy. Got binary data instead.")
    return text


def _from_npy(data: bytes, path: Path, vector: bool) -> list[list[float]]:
    import numpy as np

    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # a header made to hurt can raise almost anything in numpy's parser
        raise InputError(f"The file {path} must be a whole .npy of numbers. Got '{error}' instead.") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"The file {path} must be a .npy of numbers. Got {array.dtype} instead.")
    return _nested(array.astype(np.float64).tolist(), path, vector)


def _from_json(text: str, path: Path, vector: bool) -> list[list[float]]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"Line {error.lineno}, column {error.colno} of {path}"
        raise InputError(f"{place} must be JSON. Got '{error.msg}' instead.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"The file {path} must be JSON of plain nested lists. Got '{error}' instead.") from None
    if isinstance(value, dict):
        key = next((key for key in ("R", "matrix") if key in value), None)
        if key is None:
            got = ", ".join(map(repr, list(value)[:5])) or "none"
            raise InputError(f"The object in {path} must have a key 'R' or 'matrix'. Got the keys {got} instead.")
        value = value[key]
    return _nested(value, path, vector)


def _nested(value: object, path: Path, vector: bool) -> list[list[float]]:
    """Rows from nested lists; one flat list is a vector."""
    if not isinstance(value, list) or not value:
        raise InputError(f"The file {path} must hold a list of rows. Got {shorten(value)} instead.")
    if vector and not any(isinstance(row, list) for row in value):
        value = [value]
    lists: list[list[Any]] = []
    for i, row in enumerate(value, 1):
        if not isinstance(row, list):
            raise InputError(f"Row {i} of {path} must be a list of numbers. Got {shorten(row)} instead.")
        lists.append(row)
    rectangle([len(row) for row in lists], [f"Row {i} of {path}" for i in range(1, len(lists) + 1)])
    width = max(map(len, lists))
    rows = [
        [_value(v, f"Row {i}, column {j} of {path}") for j, v in enumerate(row, 1)] for i, row in enumerate(lists, 1)
    ]
    return [row + [math.nan] * (width - len(row)) for row in rows]


def _value(value: object, place: str) -> float:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse_cell(place, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else refuse_cell(place, value)
