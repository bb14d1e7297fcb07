"""Digits: 1 797 handwritten digits of 8 x 8 pixels that ship with scikit-learn, so that everything runs offline.

Their 17 grey levels 0..16 are spread over the bytes 0..255. They come unsplit; every fifth row of each class, in the
order of the file, is a test row.
"""

from __future__ import annotations

import functools

import numpy as np

from vestige.data.source import DataSource, Parts, split_every_nth

NAMES = tuple("0123456789")


def read_installed() -> Parts:
    """The copy inside scikit-learn."""
    images, labels = _rows()
    x = np.rint(images.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return split_every_nth(x, labels.astype(np.int64), 5, NAMES)


@functools.cache
def _rows() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as scikit-learn has them, which reads a text file each time it is asked."""
    from sklearn.datasets import load_digits  # imported late: it takes a second

    images, labels = load_digits(return_X_y=True)
    return images, labels


DIGITS = DataSource(
    name="digits",
    about="1 797 images, 8 x 8, 10 classes",
    licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)",
    read_installed=read_installed,
)
