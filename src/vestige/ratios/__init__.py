"""Density ratios r = p / q from samples: `p` is the numerator (real data), `q` the denominator (model)."""

from __future__ import annotations

from typing import Any

from vestige.core import checks
from vestige.ratios.auto import auto
from vestige.ratios.base import Ratio
from vestige.ratios.bootstrap import Bootstrap, bootstrap
from vestige.ratios.bridge import Bridge
from vestige.ratios.calibration import Affine, expected_calibration_error, held_out_figures, platt, reliability
from vestige.ratios.forest import Forest
from vestige.ratios.kliep import KLIEP
from vestige.ratios.least_squares import RULSIF, ULSIF
from vestige.ratios.logistic import Logistic
from vestige.ratios.nets import LSIF, Bregman, FGANRatio, KLIEPNet
from vestige.ratios.permutation import PermutationTest, permutation_test
from vestige.ratios.stack.stack import Stack

# Every estimator by its name, one line each.
RATIOS: dict[str, type[Ratio]] = {
    "bootstrap": Bootstrap,
    "bregman": Bregman,
    "bridge": Bridge,
    "fgan": FGANRatio,
    "forest": Forest,
    "kliep": KLIEP,
    "kliep_net": KLIEPNet,
    "logistic": Logistic,
    "lsif": LSIF,
    "rulsif": RULSIF,
    "stack": Stack,
    "ulsif": ULSIF,
}

__all__ = [
    "KLIEP",
    "LSIF",
    "RATIOS",
    "RULSIF",
    "ULSIF",
    "Affine",
    "Bootstrap",
    "Bregman",
    "Bridge",
    "FGANRatio",
    "Forest",
    "KLIEPNet",
    "Logistic",
    "PermutationTest",
    "Ratio",
    "Stack",
    "auto",
    "bootstrap",
    "build",
    "expected_calibration_error",
    "held_out_figures",
    "permutation_test",
    "platt",
    "reliability",
]


def build(name: str, /, *, preset: str | None = None, **options: Any) -> Ratio:  # noqa: ANN401 - of the estimator
    """The unfitted estimator of that name; options stand over the preset's."""
    kind = RATIOS[checks.one_of(name, RATIOS, "name", "ratios.build")]
    return kind(**checks.options(kind, preset, options, kind.__name__))
