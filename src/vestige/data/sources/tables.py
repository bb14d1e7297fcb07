"""Tables: Covertype and Electricity.

Covertype: 581 012 patches of forest, 54 cartographic columns, 7 kinds of cover (Blackard and Dean). The split is the
publisher's: the first 15 120 rows, 2 160 of each class, to train (their training and validation rows) and the remaining
565 892 to test. Labels 1..7 become 0..6. Columns keep their units: ten quantities, 44 of 0/1.

Electricity (Elec2): 45 312 half hours of the New South Wales market, 1996-1998 (Harries); price up (1) or down (0). Six
columns, each scaled to [0, 1] by the publisher: period of the day, price and demand in New South Wales, price and
demand in Victoria, transfer between them. The date and the weekday are left out. The rows are in time order and the
split keeps it: the first 80 % are training rows, the rest test rows. The data set is mirrored in several places, none
of which publishes a checksum, so it is read from a local file only.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vestige.core import InputError
from vestige.core.checks import refuse
from vestige.data.formats import Npz
from vestige.data.source import DataSource, Parts, Remote

KINDS = ("Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow", "Aspen", "Douglas-fir", "Krummholz")
COLUMNS = 54
TRAIN_ROWS = 15_120
FILE = "covtype.data.gz"


def _split(x: NDArray[Any], y: NDArray[Any], where: str) -> Parts:
    """The publisher's split of rows in their original order, labels from 0."""
    if len(x) <= TRAIN_ROWS:
        refuse("x", where, f"more than {TRAIN_ROWS} rows", len(x))
    return Parts(x[:TRAIN_ROWS], y[:TRAIN_ROWS] - 1, x[TRAIN_ROWS:], y[TRAIN_ROWS:] - 1, KINDS)


def _covtype_npz(npz: Npz) -> Parts:
    """From covtype.npz."""
    x = npz.table("x", COLUMNS)
    return _split(x, npz.labels("y", len(x), 1, len(KINDS)), str(npz.path))


def _covtype_files(paths: Mapping[str, Path]) -> Parts:
    """From the gzipped table, whose last column is the class."""
    path = paths[FILE]
    try:
        table = pd.read_csv(path, header=None, dtype=np.int16, compression="gzip").to_numpy()
    except (ValueError, OSError, EOFError, zlib.error, OverflowError) as error:
        raise InputError(f"{path} cannot be read as a gzipped table of whole numbers: {error}.") from None
    if table.shape[1] != COLUMNS + 1 or table[:, -1].min() < 1 or table[:, -1].max() > len(KINDS):
        refuse("columns", str(path), f"{COLUMNS} and a class in 1..{len(KINDS)}", f"shape {table.shape}")
    return _split(table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64), str(path))


COVTYPE = DataSource(
    name="covtype",
    about="15 120 + 565 892 rows, 54 columns, 7 classes",
    licence="CC BY 4.0",
    keys=("x", "y"),
    read_npz=_covtype_npz,
    read_files=_covtype_files,
    remotes=(
        Remote(
            FILE,
            (
                "https://ndownloader.figshare.com/files/5976039",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
            ),
            "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            11_240_707,
        ),
    ),
)


def _electricity_npz(npz: Npz) -> Parts:
    """From electricity.npz."""
    x = npz.table("x", 6)
    y = npz.labels("y", len(x), 0, 1)
    n = int(len(x) * 0.8)
    return Parts(x[:n], y[:n], x[n:], y[n:], ("down", "up"))


ELECTRICITY = DataSource(
    name="electricity",
    about="45 312 rows in time order, 6 columns, 2 classes",
    licence="not stated",
    keys=("x", "y"),
    read_npz=_electricity_npz,
    unfetchable="no copy of it is published with a checksum",
)
