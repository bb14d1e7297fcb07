"""Feature maps: samples in, the features out in which ratios and distances are taken."""

from pathlib import Path
from typing import Any

from vestige.core import checks
from vestige.features.base import FeatureMap
from vestige.features.cache import Cached
from vestige.features.classifier import Classifier
from vestige.features.cvae import CVAE
from vestige.features.drift import code_drift, drift_by_step, relative_drift
from vestige.features.identity import Identity
from vestige.features.pca import PCA
from vestige.features.pretrained import Pretrained
from vestige.features.vae import VAE

# Every map by its name, one line each.
FEATURES: dict[str, type[FeatureMap]] = {
    "classifier": Classifier,
    "cvae": CVAE,
    "identity": Identity,
    "pca": PCA,
    "pretrained": Pretrained,
    "vae": VAE,
}


def build(name: str, *, preset: str | None = None, **options: Any) -> FeatureMap:  # noqa: ANN401 - the map's own
    """The map called `name`; `options` are its fields, `preset` a named set of them."""
    kind = FEATURES[checks.one_of(name, FEATURES, "name", "features.build")]
    return kind(**checks.options(kind, preset, options, f"features '{name}'"))


def load(path: str | Path) -> FeatureMap:
    """The fitted map stored at `path`."""
    return FeatureMap.load(path)


__all__ = [
    "CVAE",
    "FEATURES",
    "PCA",
    "VAE",
    "Cached",
    "Classifier",
    "FeatureMap",
    "Identity",
    "Pretrained",
    "build",
    "code_drift",
    "drift_by_step",
    "load",
    "relative_drift",
]
