"""Tables in memory: pandas and polars frames, Arrow tables, and whatever hands itself over as an Arrow stream.

`as_table` is the one way in. Names of columns become words, an index of pandas is left behind, and names that occur
twice are refused, as in files. Text comes as `string`: of the views that polars hands over Arrow takes no rows.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from vestige.core import InputError
from vestige.core.checks import refuse
from vestige.data.formats import first_line

# What an object has that can be read as a table (the Arrow PyCapsule interface).
STREAM, BATCH = "__arrow_c_stream__", "__arrow_c_array__"


def is_frame(x: Any) -> bool:  # noqa: ANN401 - whatever a user has
    """Whether `x` is a table of named columns; arrays and single columns are none."""
    if isinstance(x, pd.DataFrame | pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return True
    return not isinstance(x, pd.Series | pa.Array | pa.ChunkedArray) and (hasattr(x, STREAM) or hasattr(x, BATCH))


def refuse_lazy(x: Any, name: str, owner: str) -> None:  # noqa: ANN401 - whatever a user has
    """Refuse a query that has not been run, as polars' LazyFrame is: nothing is known of its rows."""
    if not isinstance(x, type) and hasattr(x, "collect") and hasattr(x, "collect_schema") and not is_frame(x):
        refuse(name, owner, "rows: run the query first, with '.collect()'", f"a {type(x).__name__}")


def as_table(x: Any, owner: str) -> pa.Table:  # noqa: ANN401 - whatever `is_frame`
    """The table that `x` is, for the function `owner`."""
    try:
        if isinstance(x, pd.DataFrame):
            named = x.set_axis([str(name) for name in x.columns], axis=1)
            table = pa.Table.from_pandas(named, preserve_index=False)
        else:
            table = _without_views(pa.table(x))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"The tables of {owner} must have plain columns. Got {first_line(error)} instead.") from None
    names = table.column_names
    bad = [name for name in names if not name or names.count(name) > 1]
    if bad:
        told = f"more than one '{bad[0]}'" if bad[0] else f"column {names.index('') + 1} without one"
        raise InputError(f"The columns of the tables of {owner} must have names of their own. Got {told} instead.")
    return table


def _without_views(table: pa.Table) -> pa.Table:
    """With text that Arrow can take rows of; categories keep their codes."""
    for i, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_string()))
        elif pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            spelt = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
                for chunk in table.column(i).chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.large_string())
            table = table.set_column(i, field.name, pa.chunked_array(spelt, kind))
    return table
