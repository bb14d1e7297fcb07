"""Estimate: the one type in which every number leaves this package, and the one way in which it is written.

A verdict says what the interval is worth:
- "ok": a two-sided promise, [low, high] holds the truth at `level`;
- "at least": only `low` is a promise, because the value falls short on average and by an unknown amount;
- "spread": there is no interval (`low` and `high` are NaN). `std_error` says how far resampling moves the value, and
  promises nothing: what else is wrong with the value, a bias most of all, is not in it;
- "refused": the samples cannot carry the number; it is NaN and `reason` says why in one sentence.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Verdict = Literal["ok", "at least", "spread", "refused"]
NAN = math.nan
SPREAD_DIGITS = 2  # of a spread that is shown


@dataclass(frozen=True, repr=False)
class Estimate:
    """A number, how sure it is, and what it rests on.

    Parameters
    ----------
    value, low, high, std_error
        Floats; arrays of one length where the quantity is a vector. NaN where nothing is known.
    level
        That of the interval from `low` to `high`.
    n, ess
        How many samples it rests on, and what they are worth.
    verdict, reason
        See the module; `reason` is empty where the verdict is "ok".
    name
        What was estimated, as in "kl".
    notes
        Remarks that do not change the verdict, one sentence each.
    details
        Further numbers by name, such as a tail index.

    Example
    -------
    >>> print(Estimate(0.25, 0.2, 0.3, name="js"))
    js 0.25 [0.2, 0.3]
    >>> print(Estimate(2.0, 1.5, 2.5, verdict="at least", reason="overfitted: more samples would help", name="kl"))
    kl at least 1.5 (overfitted: more samples would help)
    >>> print(Estimate.spread(12.5, 0.6, name="value"))
    value 12.5, spread 0.6
    >>> print(Estimate.refused("The rows do not overlap.", name="kl"))
    kl refused: The rows do not overlap.
    >>> Estimate(0.25, 0.2, 0.3, name="js")
    Estimate(js 0.25 [0.2, 0.3])
    """

    value: Any
    low: Any = NAN
    high: Any = NAN
    level: float = 0.95
    std_error: Any = NAN
    n: int | None = None
    ess: float | None = None
    verdict: Verdict = "ok"
    reason: str = ""
    name: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def refused(cls, reason: str, **fields: Any) -> Self:  # noqa: ANN401 - fields of Estimate
        """No number, and the sentence that says why."""
        return cls(NAN, verdict="refused", reason=reason, **fields)

    @classmethod
    def spread(cls, value: Any, std_error: Any, **fields: Any) -> Self:  # noqa: ANN401 - fields of Estimate
        """A number and how far resampling moves it, without an interval."""
        return cls(value, std_error=std_error, verdict="spread", **fields)

    @classmethod
    def normal(cls, value: Any, std_error: Any, level: float = 0.95, **fields: Any) -> Self:  # noqa: ANN401 - see above
        """With the normal interval of its standard error."""
        from scipy.special import ndtri  # imported late: a table of the shell needs no scipy

        reach = float(ndtri((1 + level) / 2)) * std_error
        return cls(value, value - reach, value + reach, level, std_error, **fields)

    def without_interval(self, reason: str) -> Self:
        """The same number as a spread; what was its interval stands in `details`, under "withdrawn"."""
        details = {**self.details, "withdrawn": (self.low, self.high)}
        return self.but(low=NAN, high=NAN, verdict="spread", reason=reason, details=details)

    def withdrawn(self, reason: str) -> Self:
        """The same, but refused after all."""
        return self.but(value=NAN, low=NAN, high=NAN, std_error=NAN, verdict="refused", reason=reason)

    @property
    def known(self) -> bool:
        """Whether there is a number at all."""
        return self.verdict != "refused"

    def but(self, **fields: Any) -> Self:  # noqa: ANN401 - fields of Estimate
        """The same with some fields replaced."""
        return dataclasses.replace(self, **fields)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, rendered(self))))

    def __repr__(self) -> str:
        return f"Estimate({self})"

    def _repr_html_(self) -> str:
        return f"<span class='estimate'>{html.escape(str(self))}</span>"


def rendered(estimate: Estimate, digits: int = 4) -> str:
    """The number, its interval and its verdict in words: for terminal, notebook and page alike."""
    e = estimate
    if e.verdict == "refused":
        return f"refused: {e.reason}"
    why = f" ({e.reason})" if e.reason else ""
    if e.verdict == "at least":
        return f"at least {figure(e.low, digits)}{why}"
    if e.verdict == "spread":
        told = "" if _unknown(e.std_error) else f", spread {figure(e.std_error, min(digits, SPREAD_DIGITS))}"
        return f"{figure(e.value, digits)}{told}{why}"
    interval = "" if _unknown(e.low) and _unknown(e.high) else f" [{figure(e.low, digits)}, {figure(e.high, digits)}]"
    return f"{figure(e.value, digits)}{interval}{why}"


def share_in_words(share: Estimate) -> str:
    """A share of something, as in "about 48 %" and "at least 12 %"."""
    at_least = share.verdict == "at least"
    return f"{'at least' if at_least else 'about'} {100 * (share.low if at_least else share.value):.0f} %"


def figure(value: Any, digits: int = 4) -> str:  # noqa: ANN401 - a number, or several
    """A number to so many significant digits; several of them in brackets."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of arrays and tensors, of no axis too
    if hasattr(value, "__len__"):
        return f"({', '.join(figure(v, digits) for v in value)})"
    return f"{float(value) + 0.0:.{digits}g}"  # + 0.0: zero has no sign


def _unknown(value: Any) -> bool:  # noqa: ANN401 - a number, or several
    value = value.tolist() if hasattr(value, "tolist") else value
    return all(map(_unknown, value)) if hasattr(value, "__len__") else math.isnan(float(value))
