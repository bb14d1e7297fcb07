"""What there is here.

`vestige list`: what this installation knows, read from the registry of each package.
`vestige data`: data sets that are here or can be fetched, their sizes and licences; `vestige data fetch NAME` fetches.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError

# Section -> (module, the dict in it). A package that is not there has nothing to list.
REGISTRIES = {
    "experiments": ("vestige.runner.registry", "EXPERIMENTS"),
    "methods": ("vestige.continual.learners", "METHODS"),
    "streams": ("vestige.data", "STREAMS"),
    "generators": ("vestige.generators", "GENERATORS"),
    "estimators": ("vestige.ratios", "RATIOS"),
    "features": ("vestige.features", "FEATURES"),
    "data": ("vestige.data", "SOURCES"),
}


@dataclass(frozen=True)
class ListVerb(output.Verb):
    """Experiments, methods, streams, generators, estimators, feature maps and data sets that are known here."""

    what: Positional[str | None] = None
    """One of them: experiments, methods, streams, generators, estimators, features, data. All of them if left out."""

    def run(self) -> None:
        """Print one table a section."""
        from vestige.core.checks import one_of

        sections = list(REGISTRIES) if self.what is None else [one_of(self.what, REGISTRIES, "what", "vestige list")]
        found = {section: entries(section) for section in sections}
        tables = [
            output.Table(section, ("name", "what it is"), list(known.items())) if known else f"{section}: none yet"
            for section, known in found.items()
        ]
        self.answer(found, *tables)


def entries(section: str) -> dict[str, str]:
    """Name -> one line about it, in the order of the registry."""
    module, attribute = REGISTRIES[section]
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # it is there, and broken
            raise
        return {}
    return {name: _about(entry) for name, entry in getattr(found, attribute, {}).items()}


def _about(entry: object) -> str:
    """The `about` of an entry, or the first line of its docstring."""
    about = getattr(entry, "about", None)
    if isinstance(about, str):
        return about
    text = (inspect.getdoc(entry) or "").partition("\n")[0]
    # A dataclass without a docstring is given its signature for one, which says nothing here.
    automatic = dataclasses.is_dataclass(entry) and text.startswith(f"{getattr(entry, '__name__', '')}(")
    return "" if automatic else text


@dataclass(frozen=True)
class DataVerb(output.Verb):
    """Data sets: what is here and what can be fetched; 'vestige data fetch NAME ...' fetches."""

    action: Positional[str] = "list"
    """'list', or 'fetch' with one name or several."""
    names: Positional[tuple[str, ...]] = ()
    """The data sets to fetch."""
    data: Annotated[Path | None, arg(metavar="DIR")] = None
    """A folder with NAME.npz files of your own; else the one that VESTIGE_DATA names."""

    def run(self) -> None:
        """List or fetch."""
        from vestige.core.checks import one_of

        if one_of(self.action, ("list", "fetch"), "action", "vestige data") == "fetch":
            self._fetch()
        elif self.names:
            raise InputError(f"The names of vestige data list must be none. Got {' '.join(self.names)} instead.")
        else:
            self._list()

    def _list(self) -> None:
        from vestige.data import listing

        rows = listing(self.data)
        cells = [
            (row["name"], row["path"] or row["here"], _fetch_size(row["fetchable"], row["bytes"]), row["licence"])
            for row in rows
        ]
        self.answer(rows, output.Table("data sets", ("name", "here", "to fetch", "licence"), cells))

    def _fetch(self) -> None:
        from vestige.core.checks import one_of, refuse
        from vestige.data import SOURCES, fetch

        if self.data is not None:
            refuse("--data", "vestige data fetch", "left out: files go to the cache (VESTIGE_CACHE)", self.data)
        if not self.names:
            raise InputError(f"vestige data fetch needs a name: one or several of {', '.join(sorted(SOURCES))}.")
        for name in self.names:  # every name is checked before the first byte is fetched
            one_of(name, SOURCES, "name", "vestige data fetch")
        rows = []
        for name in self.names:
            found = fetch(name, progress=sys.stderr.isatty())
            rows.append((name, len(found.train_x), len(found.test_x), found.origin))
        told = [dict(zip(("name", "train", "test", "origin"), row, strict=True)) for row in rows]
        self.answer(told, output.Table("fetched", ("name", "train", "test", "where"), rows))


def _fetch_size(fetchable: bool, size: int | None) -> str:
    known = "yes" if size is None else f"{size / 1e6:.1f} MB"
    return known if fetchable else "no"
