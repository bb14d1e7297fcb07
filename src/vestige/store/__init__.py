"""Files that are written whole or not at all, checked when they are read, and free of pickle."""

from vestige.store.codec import Plain, decode, encode, from_tensors, newer, restore, restore_tensors, to_tensors
from vestige.store.locks import locked
from vestige.store.objects import (
    FORMAT,
    canonical,
    content_id,
    decode_from,
    load,
    load_into,
    load_lines,
    load_object,
    passing_over,
    regular,
    save,
    save_lines,
    save_object,
    sync,
    write_bytes,
)

__all__ = [
    "FORMAT",
    "Plain",
    "canonical",
    "content_id",
    "decode",
    "decode_from",
    "encode",
    "from_tensors",
    "load",
    "load_into",
    "load_lines",
    "load_object",
    "locked",
    "newer",
    "passing_over",
    "regular",
    "restore",
    "restore_tensors",
    "save",
    "save_lines",
    "save_object",
    "sync",
    "to_tensors",
    "write_bytes",
]
