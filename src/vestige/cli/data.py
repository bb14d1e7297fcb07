"""`vestige data`: what is here, what can be fetched, sizes, licences; `vestige data fetch NAME` fetches."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError


@dataclass(frozen=True)
class DataVerb:
    """Data sets: what is here and what can be fetched; 'vestige data fetch NAME ...' fetches."""

    action: Positional[str] = "list"
    """'list', or 'fetch' with one name or several."""
    names: Positional[tuple[str, ...]] = ()
    """The data sets to fetch."""
    data: Annotated[Path | None, arg(metavar="DIR")] = None
    """A folder with NAME.npz files of your own; else the one that VESTIGE_DATA names."""
    json: bool = False
    """Print JSON instead of a table."""

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
        if self.json:
            output.document(rows)
            return
        cells = [
            (row["name"], row["path"] or row["here"], _fetch_size(row["fetchable"], row["bytes"]), row["licence"])
            for row in rows
        ]
        output.table(output.Table("data sets", ("name", "here", "to fetch", "licence"), cells))

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
        if self.json:
            keys = ("name", "train", "test", "origin")
            output.document([dict(zip(keys, row, strict=True)) for row in rows])
        else:
            output.table(output.Table("fetched", ("name", "train", "test", "where"), rows))


def _fetch_size(fetchable: bool, size: int | None) -> str:
    if not fetchable:
        return "no"
    return "yes" if size is None else f"{size / 1e6:.1f} MB"
