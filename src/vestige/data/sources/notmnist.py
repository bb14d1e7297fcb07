"""notMNIST: the letters A to J in fonts found on the web, 28 x 28 pixels (Bulatov), the hand-cleaned small set.

The archive holds 18 726 images, two of which are empty files and are left out by name. Neither it nor the balanced
`notmnist_10k.npz` (10 000 images, all under test_x) is split; every fifth row of each class, in the order of the file,
is a test row. An .npz that has train_x too is taken as it is split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vestige.core.checks import refuse
from vestige.data.formats import Npz, decode_png, image_splits, read_members
from vestige.data.source import DataSource, Parts, Remote, split_every_nth

NAMES = tuple("ABCDEFGHIJ")
ARCHIVE = "notMNIST_small.tar.gz"
MEMBER = re.compile(r"notMNIST_small/([A-J])/[^/.][^/]*\.png")
EMPTY = {
    "notMNIST_small/A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png",
    "notMNIST_small/F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png",
}
MAX_IMAGE_BYTES = 1 << 16
TEST_EVERY = 5


def read_npz(npz: Npz) -> Parts:
    """From notmnist.npz or notmnist_10k.npz."""
    if "train_x" in npz:
        return Parts(*image_splits(npz, (28, 28), len(NAMES)), NAMES)
    x = npz.images("test_x", (28, 28))
    return split_every_nth(x, npz.labels("test_y", len(x), 0, len(NAMES) - 1), TEST_EVERY, NAMES)


def read_files(paths: Mapping[str, Path]) -> Parts:
    """From the archive of PNG images, in the order of their names."""
    path = paths[ARCHIVE]
    members = read_members(path, MEMBER, max_bytes=MAX_IMAGE_BYTES)
    names = sorted(members.keys() - EMPTY)
    if not names:
        refuse("members", str(path), "letters (A..J/font.png)", "none")
    x = np.stack([decode_png(members[name], (28, 28), f"{name} in {path}") for name in names])
    y = np.array([NAMES.index(name.split("/")[1]) for name in names], dtype=np.int64)
    return split_every_nth(x, y, TEST_EVERY, NAMES)


NOTMNIST = DataSource(
    name="notmnist",
    about="18 724 images (10 000 in notmnist_10k.npz), 28 x 28, 10 classes",
    licence="none stated",
    keys=("test_x", "test_y"),
    read_npz=read_npz,
    read_files=read_files,
    remotes=(
        Remote(
            ARCHIVE,
            (f"http://yaroslavvb.com/upload/notMNIST/{ARCHIVE}",),
            "md5:c9890a473a9769fda4bdf314aaf500dd",
            8_458_043,
        ),
    ),
    other_stems=("notmnist_10k",),
)
