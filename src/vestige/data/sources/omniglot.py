"""Omniglot: 1 623 characters of 50 alphabets, each drawn by 20 people, 105 x 105 pixels (Lake et al.).

The 964 characters of the background set are the training rows, the 659 of the evaluation set the test rows: their
classes differ, as the data set means them to. All 1 623 are in `names`; the training labels are 0..963, the test
labels 964..1622.

Whatever the file, classes are numbered by (set, alphabet, character), alphabets by name, and the rows of a class are
in the order of the people who drew them, so row 20 c + k is person k's drawing. Ink is 255, paper 0 (the published
images have it the other way).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.data.formats import Npz, decode_png, read_members
from vestige.data.source import DataSource, Parts, Remote

SIDE = 105
PEOPLE = 20
INK = 255
FILES = ("images_background.zip", "images_evaluation.zip")
ADDRESS = "https://github.com/brendenlake/omniglot/raw/master/python/"
MEMBER = re.compile(r"images_(?:background|evaluation)/([^/]+)/character(\d+)/\d+_(\d+)\.png")
MAX_IMAGE_BYTES = 1 << 16


def class_names(alphabets: Sequence[str]) -> tuple[str, ...]:
    """`Greek/character03` and the like, for classes whose alphabets, in runs, are `alphabets`."""
    runs = (len(list(run)) for _, run in groupby(alphabets))
    return tuple(
        f"{alphabet}/character{i:02d}"
        for alphabet, i in zip(alphabets, (i for n in runs for i in range(1, n + 1)), strict=True)
    )


def read_npz(npz: Npz) -> Parts:
    """From omniglot.npz: ink is 1, and the alphabets may come in any order."""
    alphabets = np.array(npz.texts("alphabet_names"))
    of_class = npz.labels("alphabet_of_class", None, 0, len(alphabets) - 1)
    train_x, train_y = _drawings(npz, "train", len(of_class))
    test_x, test_y = _drawings(npz, "test", len(of_class))
    n_train = int(train_y.max()) + 1
    if int(test_y.min()) < n_train:
        refuse("test_y", str(npz.path), f"above every label of train_y ({n_train - 1})", int(test_y.min()))
    number = np.arange(len(of_class))
    in_order = np.lexsort((number, alphabets[of_class], number >= n_train))
    label = np.argsort(in_order)  # new label by old
    names = [str(alphabet) for alphabet in alphabets[of_class[in_order]]]
    splits = []
    for split, x, y in (("train", train_x, label[train_y]), ("test", test_x, label[test_y])):
        rows = np.lexsort((npz.labels(f"{split}_drawer", len(y), 0, PEOPLE - 1), y))
        ink = np.take(x, rows, axis=0)
        ink *= INK
        splits.append((ink, y[rows]))
    return Parts(*splits[0], *splits[1], class_names(names), tuple(names))


def _drawings(npz: Npz, split: str, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    x = npz.images(f"{split}_x", (SIDE, SIDE))
    if x.max() > 1:
        refuse(f"{split}_x", str(npz.path), "1 for ink and 0 for paper", int(x.max()))
    return x, npz.labels(f"{split}_y", len(x), 0, classes - 1)


def read_files(paths: Mapping[str, Path]) -> Parts:
    """From the two zip files of PNG images."""
    train_x, train_y, alphabets = _read_zip(paths[FILES[0]], 0)
    test_x, test_y, more = _read_zip(paths[FILES[1]], len(alphabets))
    alphabets += more
    return Parts(train_x, train_y, test_x, test_y, class_names(alphabets), tuple(alphabets))


def _read_zip(path: Path, first_label: int) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Drawings and labels in order, and the alphabet of each class."""
    members = read_members(path, MEMBER, max_bytes=MAX_IMAGE_BYTES)
    if not members:
        refuse("members", str(path), "drawings (alphabet/character/drawing.png)", "none")
    found = [match for name in members if (match := MEMBER.fullmatch(name))]
    places = sorted((match[1], int(match[2]), int(match[3]), match[0]) for match in found)
    characters = sorted({place[:2] for place in places})
    label_of = {character: first_label + i for i, character in enumerate(characters)}
    x = np.stack([decode_png(members[name], (SIDE, SIDE), f"{name} in {path}") for *_, name in places])
    y = np.array([label_of[place[:2]] for place in places], dtype=np.int64)
    return np.where(x < 128, np.uint8(INK), np.uint8(0)), y, [alphabet for alphabet, _ in characters]


OMNIGLOT = DataSource(
    name="omniglot",
    about="964 + 659 characters x 20 drawings, 105 x 105, 1 623 classes in 50 groups",
    licence="MIT",
    keys=(
        *("train_x", "train_y", "train_drawer", "test_x", "test_y", "test_drawer"),
        *("alphabet_of_class", "alphabet_names"),
    ),
    read_npz=read_npz,
    read_files=read_files,
    remotes=(
        Remote(FILES[0], (ADDRESS + FILES[0],), "md5:68d2efa1b9178cc56df9314c21c6e718", 9_464_212),
        Remote(FILES[1], (ADDRESS + FILES[1],), "md5:6b91aef0f799c5bb55b94e3f2daec811", 6_462_886),
    ),
)
