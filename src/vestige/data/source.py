"""A source: what is known of a data set before it is here, and how its files are read.

Each data set has one `DataSource`, in `sources/`. Readers hand over `Parts`, plain arrays; shapes and labels are
checked where the file and the key are known, and once more by `DataSet`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.dataset import DataSet, every_nth
from vestige.data.formats import Npz


class Parts(NamedTuple):
    """What a reader found in its file or files."""

    train_x: NDArray[Any]
    train_y: NDArray[Any]
    test_x: NDArray[Any]
    test_y: NDArray[Any]
    names: tuple[str, ...]
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remote:
    """A canonical file: its addresses, tried in turn, and the published checksum ("md5:..." or "sha256:...")."""

    file: str
    urls: tuple[str, ...]
    checksum: str
    size: int


@dataclass(frozen=True)
class SystemCopy:
    """Where a package of the operating system puts a copy of the canonical files, and the line that installs it."""

    folder: str
    install: str


@dataclass(frozen=True)
class DataSource:
    """One data set. Without `remotes` it is not fetched, and `unfetchable` says why."""

    name: str
    about: str
    licence: str
    keys: tuple[str, ...] = ("train_x", "train_y", "test_x", "test_y")  # of its .npz
    read_npz: Callable[[Npz], Parts] | None = None
    read_files: Callable[[Mapping[str, Path]], Parts] | None = None
    read_installed: Callable[[], Parts] | None = None
    remotes: tuple[Remote, ...] = ()
    system: SystemCopy | None = None
    other_stems: tuple[str, ...] = ()  # other names under which its .npz may lie
    unfetchable: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of the whole download; None where there is none."""
        return sum(r.size for r in self.remotes) if self.remotes else None

    def files_in(self, folder: Path) -> dict[str, Path]:
        """Where the canonical files would be in `folder`, by name."""
        return {remote.file: folder / remote.file for remote in self.remotes}

    def build(self, parts: Parts, origin: str) -> DataSet:
        """The data set that `parts` make up."""
        tensors = {key: _tensor(getattr(parts, key)) for key in ("train_x", "train_y", "test_x", "test_y")}
        about = {"names": parts.names, "groups": parts.groups, "licence": self.licence, "origin": origin}
        return DataSet(name=self.name, **about, **tensors)  # type: ignore[arg-type]


def _tensor(array: NDArray[Any]) -> Tensor:
    # torch warns of buffers it may not write to, which is what views of file contents are.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def split_every_nth(x: NDArray[Any], y: NDArray[Any], nth: int, names: tuple[str, ...]) -> Parts:
    """Parts for a data set that comes unsplit: every n-th row of each class is a test row."""
    test = every_nth(_tensor(y), nth).numpy()
    return Parts(x[~test], y[~test], x[test], y[test], names)
