"""One column of an Arrow table: its kind, and its values in a plain form.

The kinds are number, boolean, date, text, and empty (no value at all). Text that is all ISO 8601 dates counts as dates;
local forms such as 01/02/2020 do not, because they can be read in two ways.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vestige.core import InputError
from vestige.data.readers.delimited import DIGITS, MISSING

DATE = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"
MICROSECONDS_A_DAY = 86_400e6


def plain(column: pa.ChunkedArray, name: str, origin: str) -> pa.Array:
    """One array of a plain type: bool, number, timestamp or trimmed text; words for nothing become nulls."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # more than one array can hold
        raise InputError(f"The column '{name}' of {origin} must be smaller. Got {array.nbytes} bytes instead.")
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
        return pc.if_else(pc.is_in(pc.utf8_lower(text), value_set=pa.array(MISSING, pa.large_string())), None, text)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us"), safe=False)  # instants in UTC; a date without a zone counts as UTC
    if pa.types.is_time(kind):
        array = array.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
        return pc.divide(array, 1e6)
    if pa.types.is_duration(kind):
        return pc.divide(array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        number = array.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(number), None, number)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise InputError(f"The column '{name}' of {origin} must be text in UTF-8. Got bytes that are not instead.")
    raise InputError(f"The column '{name}' of {origin} must be numbers, text, dates or booleans. Got {kind} instead.")


def kind_of(array: pa.Array) -> str:
    """number, boolean, date, text or empty."""
    if array.null_count == len(array):
        return "empty"
    if pa.types.is_boolean(array.type):
        return "boolean"
    if pa.types.is_timestamp(array.type):
        return "date"
    return "text" if pa.types.is_large_string(array.type) else "number"


def joint_kind(name: str, parts: list[pa.Array], origins: Sequence[str]) -> str:
    """The one kind of a column in every table; `parts` that are text but all dates become dates in place."""
    for i, part in enumerate(parts):
        if kind_of(part) == "text" and pc.all(pc.match_substring_regex(part, DATE)).as_py():
            parts[i] = _parsed_dates(part)
    kinds = [kind_of(part) for part in parts]
    present = set(kinds) - {"empty"}
    if not present:
        return "number"
    if present == {"boolean", "number"}:
        return "number"
    if len(present) > 1:
        told = "; ".join(
            f"{kind} in {where}{_example(part)}" for kind, part, where in zip(kinds, parts, origins, strict=True)
        )
        raise InputError(f"The column '{name}' must be of one kind in both tables. Got {told} instead.")
    return present.pop()


def _parsed_dates(text: pa.Array) -> pa.Array:
    for zone in (None, "UTC"):
        try:
            return text.cast(pa.timestamp("us", zone)).cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
    return text  # it looked like dates, but some are none


def _example(part: pa.Array) -> str:
    """A text that is no number, for the error that a stray one causes."""
    if kind_of(part) != "text":
        return ""
    is_number = pc.match_substring_regex(part, f"^{DIGITS}$")
    strays = part.filter(pc.invert(is_number)).drop_null()
    return f" (such as '{str(strays[0])[:40]}')" if len(strays) else ""


def floats(part: pa.Array) -> NDArray[np.float64]:
    """Float64 with NaN for null."""
    if pa.types.is_timestamp(part.type):
        days = part.cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(days.to_numpy(zero_copy_only=False)) / MICROSECONDS_A_DAY
    if pa.types.is_boolean(part.type):
        part = part.cast(pa.uint8())
    # A column without a single value has whatever type; it is all null.
    as_float = pa.nulls(len(part), pa.float64()) if kind_of(part) == "empty" else part.cast(pa.float64(), safe=False)
    return np.array(as_float.to_numpy(zero_copy_only=False), dtype=np.float64)
