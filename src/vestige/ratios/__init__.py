"""Density ratios r = p / q from samples: `p` is the numerator (real data), `q` the denominator (model)."""

from typing import Any

from vestige.core.checks import one_of
from vestige.ratios.auto import auto
from vestige.ratios.base import Ratio
from vestige.ratios.bootstrap import Bootstrap, bootstrap
from vestige.ratios.bregman import Bregman
from vestige.ratios.bridge import Bridge
from vestige.ratios.fgan import FGAN
from vestige.ratios.forest import Forest
from vestige.ratios.kliep import KLIEP
from vestige.ratios.kliep_net import KLIEPNet
from vestige.ratios.logistic import Logistic
from vestige.ratios.lsif import LSIF
from vestige.ratios.permutation import PermutationTest, permutation_test
from vestige.ratios.stack.stack import Stack
from vestige.ratios.ulsif import RULSIF, ULSIF

# Every estimator by its class name, one line each.
RATIOS: dict[str, type[Ratio]] = {
    "Bootstrap": Bootstrap,
    "Bregman": Bregman,
    "Bridge": Bridge,
    "FGAN": FGAN,
    "Forest": Forest,
    "KLIEP": KLIEP,
    "KLIEPNet": KLIEPNet,
    "LSIF": LSIF,
    "Logistic": Logistic,
    "RULSIF": RULSIF,
    "Stack": Stack,
    "ULSIF": ULSIF,
}


def build(config: dict[str, Any]) -> Ratio:
    """The estimator that `Ratio.config` described."""
    fields = dict(config)
    kind = RATIOS[one_of(fields.pop("estimator", None), RATIOS, "estimator", "a stored ratio")]
    return kind(**{name: _restored(value) for name, value in fields.items()})


def _restored(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    """An estimator inside a configuration is built, a list becomes the tuple that JSON could not write."""
    if isinstance(value, dict) and "estimator" in value:
        return build(value)
    return tuple(value) if isinstance(value, list) else value


__all__ = [
    "FGAN",
    "KLIEP",
    "LSIF",
    "RATIOS",
    "RULSIF",
    "ULSIF",
    "Bootstrap",
    "Bregman",
    "Bridge",
    "Forest",
    "KLIEPNet",
    "Logistic",
    "PermutationTest",
    "Ratio",
    "Stack",
    "auto",
    "bootstrap",
    "build",
    "permutation_test",
]
