"""What somebody who reads a stored number learns about a person, in plain words, and what attacks found on public data.

The figures are those of `python -m benchmarks privacy`, which writes them into `measured_attacks.json` (`--write`); a
test holds that file against the stored results.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from vestige.vestiges.frame import Frame

NOTICE = "Rows deleted is not anonymous. Below 1000 rows membership can often be guessed."
MEASURED = Path(__file__).with_name("measured_attacks.json")
COLUMNS = ("n", "attack", "auc", "low", "high", "data")
OF_AVERAGES = "whether a row you have was in, below about a thousand rows; the last row to whoever knows all others"
# Of every stored array, by the beginning of its name; the first that fits.
GIVES_AWAY = {
    "sketch.third": "most of all: whether a row you have was in, up to some thousand rows",
    "sketch.moments": OF_AVERAGES,
    "sketch.test.dictionary": "where columns are cut and how common values are, over 50 rows at least: nothing of one",
    "sketch.test.moments": OF_AVERAGES,
    "sketch.test.null": "how much averages vary by chance: nothing of one row",
    "frame.map": "whether an image you have was in, where there are few rows for each direction",
    "frame.axes": "whether a row you have was in, where there are few rows for each direction",
    "frame.schema": "names of columns, categories that at least 50 rows share, rounded scales: nothing of one row",
}
OF_DENSITY = "how common rows like one you have were; whether it was in, below about a thousand rows"
OF_WEIGHTS = "what made-up draws weigh: little more than the averages above"
NOTHING = "nothing of one row"


def gives_away(name: str) -> str:
    """What the array of a vestige called `name` gives away."""
    if name.startswith("reference"):
        return OF_WEIGHTS if name.endswith("weights") else OF_DENSITY
    return next((told for start, told in GIVES_AWAY.items() if name.startswith(start)), NOTHING)


def kind_of(frame: Frame) -> str:
    """Of which of the measured kinds the rows of a frame are: table, numbers, images or array."""
    if frame.schema is not None:
        return "table" if "category" in frame.kinds else "numbers"
    return "images" if frame.of_images else "array"


@functools.cache
def figures() -> dict[str, Any]:
    """By kind of data, number of rows and attack: the AUC, the ends of its interval, and the data set."""
    found: dict[str, Any] = json.loads(MEASURED.read_text())["kinds"]
    return found


def measured(frame: Frame, n: int) -> pd.DataFrame:
    """The AUC of each attack on public data of the same kind, at the nearest number of rows that was measured."""
    sizes = figures().get(kind_of(frame), {})
    if not sizes:
        return pd.DataFrame([], columns=list(COLUMNS))
    near = min(sizes, key=lambda size: abs(math.log(int(size) / n)))
    rows = [(int(near), attack, *found) for attack, found in sizes[near].items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))
