"""Checks of single values: numbers, whole numbers, names."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection

from vestige.core.checks.refusal import refuse
from vestige.core.errors import UnknownName


def number(
    value: object,
    name: str,
    owner: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """`value` as a float within [low, high], either end open on request."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse(name, owner, "a number", repr(value))
    try:
        x = float(value)
    except OverflowError:
        refuse(name, owner, "a number that a float can hold", "a larger one")
    inside = (x > low if open_low else x >= low) and (x < high if open_high else x <= high)
    if not inside:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        refuse(name, owner, f"in {left}{low:g}, {high:g}{right}", f"{x:g}")
    return x


def whole(value: object, name: str, owner: str, *, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        refuse(name, owner, "a whole number", repr(value))
    i = int(value)
    if low is not None and i < low:
        refuse(name, owner, f"at least {low}", i)
    if high is not None and i > high:
        refuse(name, owner, f"at most {high}", i)
    return i


def one_of(value: object, options: Collection[str], name: str, owner: str) -> str:
    """`value` if it is among `options`; else an error that suggests the nearest."""
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    must = f"one of {', '.join(sorted(options))}"
    raise UnknownName(f"The '{name}' of {owner} must be {must}. Got {value!r} instead.{hint}")
