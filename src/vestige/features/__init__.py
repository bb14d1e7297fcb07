"""Feature maps: samples in, the features out in which ratios and distances are taken."""

import math
from pathlib import Path
from typing import Any

import torch

from vestige.core import StoreError, checks
from vestige.core.errors import shortened
from vestige.features.base import FeatureMap, code_drift, drift_by_step
from vestige.features.cache import Cached
from vestige.features.fixed import PCA, Identity, Pretrained, RandomProjection
from vestige.features.trained import CVAE, ClassifierFeatures, VAEFeatures

# Every map by its name, one line each.
FEATURES: dict[str, type[FeatureMap]] = {
    "classifier": ClassifierFeatures,
    "cvae": CVAE,
    "identity": Identity,
    "pca": PCA,
    "pretrained": Pretrained,
    "random": RandomProjection,
    "vae": VAEFeatures,
}


def build(name: str, /, *, preset: str | None = None, **options: Any) -> FeatureMap:  # noqa: ANN401 - the map's own
    """The map called `name`; `options` are its fields, `preset` a named set of them."""
    kind = FEATURES[checks.one_of(name, FEATURES, "name", "features.build")]
    return kind(**checks.options(kind, preset, options, f"features '{name}'"))


def load(path: str | Path) -> FeatureMap:
    """The fitted map stored at `path`; one whose parts do not fit each other is refused."""
    found = FeatureMap.load(path, {kind.__name__: kind for kind in FEATURES.values()})
    if found.shape_ is not None:
        try:
            codes = found.codes(torch.zeros(1, math.prod(found.shape_)))
            if codes.shape != (1, found.width):
                raise ValueError(f"{found.width} were expected, and there are {tuple(codes.shape[1:])}.")
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            told = shortened((str(error).splitlines() or [type(error).__name__])[0])
            raise StoreError(f"{path} holds a map that has no features for its own samples: {told}") from None
    return found


__all__ = [
    "CVAE",
    "FEATURES",
    "PCA",
    "Cached",
    "ClassifierFeatures",
    "FeatureMap",
    "Pretrained",
    "RandomProjection",
    "build",
    "code_drift",
    "drift_by_step",
    "load",
]
