"""Files that are written whole or not at all, checked when they are read, and free of pickle."""

from vestige.store.codec import decode, encode, restore
from vestige.store.objects import (
    FORMAT,
    canonical,
    content_id,
    load,
    load_built,
    load_into,
    load_lines,
    save,
    save_lines,
    write_bytes,
)

__all__ = [
    "FORMAT",
    "canonical",
    "content_id",
    "decode",
    "encode",
    "load",
    "load_built",
    "load_into",
    "load_lines",
    "restore",
    "save",
    "save_lines",
    "write_bytes",
]
