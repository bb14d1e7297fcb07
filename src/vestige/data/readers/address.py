"""Where samples live: a file, one array of a file (`FILE:key`), or a folder of images; and the sentences that refuse.

A format is known by its ending alone; nothing in a file is ever executed, so pickle has no entry here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from vestige import store
from vestige.core import InputError

# Every ending that is read, and the shape of what it holds.
FORMATS: dict[str, Literal["array", "table"]] = {
    ".npy": "array",
    ".npz": "array",
    ".safetensors": "array",
    ".csv": "table",
    ".parquet": "table",
    ".arrow": "table",
    ".feather": "table",
}


@dataclass(frozen=True)
class Address:
    """One place that holds samples."""

    path: Path
    key: str | None
    kind: Literal["array", "table", "images"]

    @property
    def suffix(self) -> str:
        """The ending, in small letters."""
        return self.path.suffix.lower()

    def __str__(self) -> str:
        return f"{self.path}:{self.key}" if self.key else str(self.path)


def refuse_file(where: object, must: str, got: object) -> NoReturn:
    """Raise the one error sentence about a file."""
    raise InputError(f"The file '{where}' must be {must}. Got {got} instead.")


def refuse_number(where: object, name: str, value: object, row: int) -> NoReturn:
    """Raise the one error sentence about a number in a table that floats would confuse; `row` counts from 0."""
    must = "numbers that float64 holds apart, which are whole ones up to 2^53; drop it if it is an identifier"
    raise InputError(f"The column '{name}' of {where} must be {must}. Got {value} in data row {row + 1} instead.")


def locate(where: str | os.PathLike[str], key: str | None = None) -> Address:
    """Take `FILE`, `FILE:key` or a folder apart; a missing, empty or unknown one is refused by name.

    A name that exists as it stands wins over `FILE:key`, so colons in paths are safe.
    """
    text = os.fspath(where)
    path = Path(text)
    if not os.path.exists(path) and key is None and ":" in text:
        head, _, tail = text.rpartition(":")
        if tail and os.path.exists(head):
            path, key = Path(head), tail
    if not os.path.exists(path):
        refuse_file(path, "there", "no such file or folder")
    if path.is_dir():
        if key is not None:
            refuse_file(path, "an .npz or .safetensors file to hold the key", f"a folder and the key '{key}'")
        return Address(path, None, "images")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        refuse_file(path, f"a folder of images or end in {', '.join(FORMATS)}", f"the ending '{suffix}'")
    if key is not None and suffix not in (".npz", ".safetensors"):
        refuse_file(path, "an .npz or .safetensors file to hold the key", f"the key '{key}'")
    if store.regular(path).stat().st_size == 0:
        refuse_file(path, f"a whole {suffix} file", "an empty one")
    return Address(path, key, FORMATS[suffix])
