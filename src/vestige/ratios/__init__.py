"""Density ratios r = p / q from samples: `p` is the numerator (real data), `q` the denominator (model)."""

from typing import Any

from vestige.checks import one_of
from vestige.ratios.base import Ratio

# Every estimator by its class name, one line each.
RATIOS: dict[str, type[Ratio]] = {}


def build(config: dict[str, Any]) -> Ratio:
    """The estimator that `Ratio.config` described."""
    fields = dict(config)
    kind = RATIOS[one_of(fields.pop("estimator", None), RATIOS, "estimator", "a stored ratio")]
    inner = {k: build(v) if isinstance(v, dict) and "estimator" in v else v for k, v in fields.items()}
    return kind(**inner)


__all__ = ["RATIOS", "Ratio", "build"]
