"""MNIST: 60 000 + 10 000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges), as four gzipped idx files."""

from __future__ import annotations

from vestige.data.idx import like_mnist

NAMES = tuple("0123456789")
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
CHECKSUMS_AND_SIZES = (
    ("md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
    ("md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881),
    ("md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877),
    ("md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542),
)

MNIST = like_mnist("mnist", NAMES, "CC BY-SA 3.0 (as usually stated)", MIRRORS, CHECKSUMS_AND_SIZES)
