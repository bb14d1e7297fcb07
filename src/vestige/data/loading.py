"""`load` a data set by name, `fetch` it into the cache, and the `listing` of all: the places, in the order searched.

1. `NAME.npz` in the folder `data_dir`, or in VESTIGE_DATA when none is given;
2. a copy that a package of the system has put under /usr/share/datasets;
3. the canonical files in the user's cache (VESTIGE_CACHE), downloaded there first when that is allowed.

A copy that is found but broken is refused by name, never passed over in silence for the next place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vestige.core import DataUnavailable, InputError
from vestige.core.checks import one_of, refuse
from vestige.core.machine import on_cpu
from vestige.data.dataset import DataSet
from vestige.data.download import cache_folder, cached, retrieve
from vestige.data.formats import open_npz
from vestige.data.source import DataSource
from vestige.data.sources import SOURCES

# Where Debian's dataset-* packages put their files.
SYSTEM_ROOT = Path("/usr/share/datasets")


@on_cpu()
def load(name: str, *, data_dir: str | Path | None = None, download: bool = True, progress: bool = True) -> DataSet:
    """The data set `name`, from the first place that has it; with `download`, the canonical files if none has."""
    source = SOURCES[one_of(name, SOURCES, "name", "data.load")]
    path = find_npz(source, data_dir)
    if path is not None and source.read_npz is not None:
        with open_npz(path) as npz:
            return source.build(source.read_npz(npz), str(path))
    folder = find_system(source)
    if folder is not None and source.read_files is not None:
        return source.build(source.read_files(source.files_in(folder)), str(folder))
    return _canonical(source, allowed=download, progress=progress)


@on_cpu()
def fetch(name: str, *, progress: bool = True) -> DataSet:
    """The data set `name` from its canonical files, downloaded into the cache unless they are there already."""
    return _canonical(SOURCES[one_of(name, SOURCES, "name", "data.fetch")], allowed=True, progress=progress)


def listing(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """One row a data set: where it is here, whether it can be fetched, the bytes of the download, its licence.

    `here` is "installed", "file", "system", "cached" or "not here". Nothing is opened; files count as cached by their
    sizes, and their checksums are looked at when they are loaded.
    """
    return [
        {
            "name": source.name,
            **dict(zip(("here", "path"), _where(source, data_dir), strict=True)),
            "fetchable": bool(source.remotes),
            "bytes": source.size,
            "licence": source.licence,
            "about": source.about,
        }
        for source in SOURCES.values()
    ]


def _where(source: DataSource, data_dir: str | Path | None) -> tuple[str, str | None]:
    if source.read_installed is not None:
        return "installed", None
    for here, path in (("file", find_npz(source, data_dir)), ("system", find_system(source))):
        if path is not None:
            return here, str(path)
    folder = cache_folder() / source.name
    sizes = [path.stat().st_size if path.is_file() else None for path in source.files_in(folder).values()]
    whole = bool(sizes) and sizes == [remote.size for remote in source.remotes]
    return ("cached", str(folder)) if whole else ("not here", None)


def find_npz(source: DataSource, data_dir: str | Path | None) -> Path | None:
    """`NAME.npz` of `source` in `data_dir`, or in VESTIGE_DATA when that is None; either must be a folder."""
    folder = data_dir if data_dir is not None else os.environ.get("VESTIGE_DATA")
    if not folder or source.read_npz is None:
        return None
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        refuse("data_dir", "data.load", "a folder (it comes from the call, --data or VESTIGE_DATA)", str(folder))
    paths = [folder / f"{stem}.npz" for stem in (source.name, *source.other_stems)]
    return next((path for path in paths if path.exists()), None)


def find_system(source: DataSource) -> Path | None:
    """The folder of a system package's copy; None unless all files are there."""
    folder = SYSTEM_ROOT / source.system.folder if source.system else None
    return folder if folder and all(path.is_file() for path in source.files_in(folder).values()) else None


def _canonical(source: DataSource, *, allowed: bool, progress: bool) -> DataSet:
    """As installed, or from files in the cache, downloaded if `allowed`. Files that cannot be read leave the cache."""
    if source.read_installed is not None:
        return source.build(source.read_installed(), "installed with scikit-learn")
    folder = cache_folder() / source.name
    paths: dict[str, Path] = {}
    for remote in source.remotes:
        try:
            path = retrieve(remote, folder, progress=progress) if allowed else cached(remote, folder)
        except DataUnavailable as error:
            raise DataUnavailable(f"{_ways(source)} {error}") from None
        if path is not None:
            paths[remote.file] = path
    if not source.remotes or source.read_files is None or len(paths) < len(source.remotes):
        raise DataUnavailable(_ways(source) + ("" if allowed else " The download was not allowed here."))
    try:
        return source.build(source.read_files(paths), str(folder))
    except InputError as error:
        for path in paths.values():
            path.unlink(missing_ok=True)
        raise DataUnavailable(
            f"The files of '{source.name}' were refused and removed from the cache: {error}"
        ) from None


def _ways(source: DataSource) -> str:
    keys = ", ".join(source.keys)
    packaged = source.system.install if source.system else "none is known for this one"
    if source.remotes:
        fetched = f"'vestige data fetch {source.name}', or download=True ({(source.size or 0) / 1e6:.1f} MB)"
    else:
        fetched = f"not for this one: {source.unfetchable}"
    return (
        f"The data set '{source.name}' is not here. Three ways to get it: "
        f"(1) a file {source.name}.npz with the keys {keys} in a folder named by --data or VESTIGE_DATA; "
        f"(2) a system package: {packaged}; (3) the download: {fetched}."
    )
