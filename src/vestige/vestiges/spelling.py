"""Numbers of a column in words: with digits enough to be told from their neighbours, dates as dates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Write = Callable[[float, float], str]
DIGITS, MOST_DIGITS = 4, 17
LAST_DAY = 2_932_896  # 9999-12-31, in days since 1970


def spelt(value: float, step: float) -> str:
    """`value` with four digits, or as many more as tell it from a value `step` away.

    Examples
    --------
    >>> spelt(20480.0, 1000.0), spelt(20480.0, 3.0), spelt(0.125, 0.01)
    ('2.048e+04', '20480', '0.125')
    """
    digits = DIGITS
    if math.isfinite(value) and value and step > 0:
        digits = max(digits, math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2)
    return f"{value:.{min(digits, MOST_DIGITS)}g}"


def dated(value: float, step: float) -> str:
    """Days since 1970 as a date, with the time of day where it takes that to tell it from a date `step` days away.

    Examples
    --------
    >>> dated(20484.0, 3.0), dated(20484.25, 0.1)
    ('2026-01-31', '2026-01-31T06:00')
    """
    if not 0 <= abs(value) <= LAST_DAY:
        return spelt(value, step)
    moment = np.datetime64(round(value * 86_400), "s")
    return str(np.datetime_as_string(moment, unit="D" if step >= 1 else "m"))


def least_gap(values: np.ndarray) -> float:
    """Between neighbours of these sorted numbers; 0 where there is none."""
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def between(edges: np.ndarray, i: int, write: Write) -> str:
    """The `i`-th of the bins between sorted `edges`; nothing where there is one bin alone."""
    step = least_gap(edges)
    low = f"from {write(float(edges[i - 1]), step)}" if i > 0 else ""
    high = f"below {write(float(edges[i]), step)}" if i < len(edges) else ""
    return " ".join(filter(None, (low, high)))
