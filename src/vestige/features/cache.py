"""Features kept on disk by content: the same map and the same samples are computed once.

    cached = Cached(features.build("pretrained").fit(images))
    cached(images)      # computed, written
    cached(images)      # read

The key is a hash of the map (configuration, state, version) and of the samples (type, shape, bytes), so nothing is
ever stale: an updated map has other keys. Entries are written whole or not at all; a damaged one is computed anew and
replaced; a folder that cannot be written to costs a warning, not the result. `enabled=False` turns it off.

What lies in the folder are features of whatever was handed over, real samples too. A map by itself writes nothing:
where data must leave no trace, use the map without this. The identity map is passed through, for its features are the
samples.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vestige import store
from vestige.core import StoreError, VestigeWarning
from vestige.core.checks import ArrayLike, Kind
from vestige.data.download import cache_folder
from vestige.features.base import BATCH_SIZE, FeatureMap
from vestige.features.fixed import Identity
from vestige.features.rows import admit

KIND = "cached-features"


def default_folder() -> Path:
    """`features` in the folder where downloads are kept: VESTIGE_CACHE, or the system's cache folder of this user."""
    return cache_folder() / "features"


def clear(folder: str | Path | None = None) -> None:
    """Remove every entry; whatever else is in the folder stays."""
    place = Path(folder) if folder is not None else default_folder()
    for entry in place.glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(entry, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.rmdir()  # if nothing else is in it


def key_of(feature_map: FeatureMap, rows: Shaped[Tensor, "n d"]) -> str:
    """Hash of all that decides the features of `rows`."""
    hashed = hashlib.sha256(f"{feature_map.digest()}{rows.dtype}{tuple(rows.shape)}".encode())
    hashed.update(rows.contiguous().numpy().data.cast("B"))
    return hashed.hexdigest()[:40]


class Cached:
    """A fitted map that remembers on disk what it has computed. `hits` and `misses` count the calls."""

    def __init__(self, feature_map: FeatureMap, folder: str | Path | None = None, *, enabled: bool = True) -> None:
        self.map, self.enabled = feature_map, enabled
        self.folder = Path(folder) if folder is not None else default_folder()
        self.hits = self.misses = 0

    def transform(self, x: ArrayLike, *, batch_size: int = BATCH_SIZE) -> Any:  # noqa: ANN401 - the kind that came in
        """What the map's own `transform` gives, from the disk if it is there."""
        if not self.enabled or isinstance(self.map, Identity):
            return self.map.transform(x, batch_size=batch_size)
        rows = admit(x, "x", f"{type(self.map).__name__}.transform", self.map.shape)
        key = key_of(self.map, rows)
        path = self.folder / key[:2] / f"{key}.json"
        found = self._read(path, len(rows))
        if found is None:
            self.misses += 1
            found = self.map.codes(rows, batch_size=batch_size)
            self._write(path, found)
        else:
            self.hits += 1
        return Kind.of(x).give(found)

    __call__ = transform

    def _read(self, path: Path, n: int) -> Float[Tensor, "n f"] | None:
        if not path.is_file():
            return None
        try:
            codes = store.load(path, KIND)[1]["codes"]
        except (StoreError, KeyError):
            return None
        whole = codes.shape == (n, self.map.width) and codes.dtype == self.map.dtype
        return codes if whole and bool(torch.isfinite(codes).all()) else None

    def _write(self, path: Path, codes: Float[Tensor, "n f"]) -> None:
        try:
            store.save(path, KIND, {"map": self.map.name}, {"codes": codes})
        except OSError as error:
            warnings.warn(f"Features could not be cached in {self.folder}: {error}.", VestigeWarning, stacklevel=3)
