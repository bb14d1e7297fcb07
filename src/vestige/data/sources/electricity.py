"""Electricity (Elec2): 45 312 half hours of the New South Wales market, 1996-1998 (Harries); price up (1) or down (0).

Six columns, each scaled to [0, 1] by the publisher: period of the day, price and demand in New South Wales, price and
demand in Victoria, transfer between them. The date and the weekday are left out. The rows are in time order and the
split keeps it: the first 80 % are training rows, the rest test rows.

The data set is mirrored in several places, none of which publishes a checksum, so it is read from a local file only.
"""

from __future__ import annotations

from vestige.data.formats import Npz
from vestige.data.source import DataSource, Parts

NAMES = ("down", "up")
COLUMNS = 6
TRAIN_FRACTION = 0.8


def read_npz(npz: Npz) -> Parts:
    """From electricity.npz."""
    x = npz.table("x", COLUMNS)
    y = npz.labels("y", len(x), 0, 1)
    n = int(len(x) * TRAIN_FRACTION)
    return Parts(x[:n], y[:n], x[n:], y[n:], NAMES)


ELECTRICITY = DataSource(
    name="electricity",
    about="45 312 rows in time order, 6 columns, 2 classes",
    licence="not stated",
    keys=("x", "y"),
    read_npz=read_npz,
    unfetchable="no copy of it is published with a checksum",
)
