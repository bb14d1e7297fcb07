"""A .vestige file of either kind."""

from __future__ import annotations

from pathlib import Path

from vestige import store
from vestige.vestiges.private.vestige import KIND as PRIVATE
from vestige.vestiges.private.vestige import PrivateVestige
from vestige.vestiges.vestige import Vestige


def load(path: str | Path) -> Vestige | PrivateVestige:
    """The vestige stored at `path`, with an epsilon or without; nothing in the file is run."""
    return PrivateVestige.load(path) if store.kind_of_file(path) == PRIVATE else Vestige.load(path)
