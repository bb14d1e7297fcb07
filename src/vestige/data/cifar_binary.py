"""The binary form of CIFAR: records of one or two label bytes and 3 x 32 x 32 pixel bytes. It needs no pickle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.data.archives import read_members

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
# The largest member, CIFAR-100's train.bin, has 50 000 records of 3 074 bytes.
MAX_MEMBER_BYTES = 50_000 * (PIXELS + 2)


def read_records(
    path: Path, members: tuple[str, ...], *, label_bytes: int, classes: int
) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Images and labels of each of `members`; the last label byte of a record is the class."""
    found = read_members(path, re.compile("|".join(map(re.escape, members))), max_bytes=MAX_MEMBER_BYTES)
    records = {}
    for member in members:
        data = found.get(member)
        if data is None:
            refuse("members", str(path), f"an archive with {member}", f"only {sorted(found)}")
        if not data or len(data) % (label_bytes + PIXELS):
            must = f"whole records of {label_bytes + PIXELS} bytes"
            refuse(member, str(path), must, f"{len(data)} bytes")
        rows = np.frombuffer(data, np.uint8).reshape(-1, label_bytes + PIXELS)
        y = rows[:, label_bytes - 1].astype(np.int64)
        if int(y.max()) >= classes:
            refuse(member, str(path), f"records with labels in 0..{classes - 1}", f"the label {int(y.max())}")
        records[member] = rows[:, label_bytes:].reshape(-1, *SHAPE), y
    return records
