"""Feature maps: samples in, the features out in which ratios and distances are taken."""

from pathlib import Path
from typing import Any

from vestige.core import checks
from vestige.features.base import FeatureMap, code_drift, drift_by_step
from vestige.features.cache import Cached
from vestige.features.fixed import PCA, Identity, Pretrained
from vestige.features.trained import CVAE, ClassifierFeatures, VAEFeatures

# Every map by its name, one line each.
FEATURES: dict[str, type[FeatureMap]] = {
    "classifier": ClassifierFeatures,
    "cvae": CVAE,
    "identity": Identity,
    "pca": PCA,
    "pretrained": Pretrained,
    "vae": VAEFeatures,
}


def build(name: str, /, *, preset: str | None = None, **options: Any) -> FeatureMap:  # noqa: ANN401 - the map's own
    """The map called `name`; `options` are its fields, `preset` a named set of them."""
    kind = FEATURES[checks.one_of(name, FEATURES, "name", "features.build")]
    return kind(**checks.options(kind, preset, options, f"features '{name}'"))


def load(path: str | Path) -> FeatureMap:
    """The fitted map stored at `path`."""
    return FeatureMap.load(path, {kind.__name__: kind for kind in FEATURES.values()})


__all__ = [
    "CVAE",
    "FEATURES",
    "PCA",
    "Cached",
    "ClassifierFeatures",
    "FeatureMap",
    "Pretrained",
    "build",
    "code_drift",
    "drift_by_step",
    "load",
]
