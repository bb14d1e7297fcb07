import gzip
import struct

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.data import formats
from vestige.data.formats import read_idx
from vestige.data.sources.mnist import FILES, read_mnist_files


def idx(array):
    """The format written independently: magic, axes, bytes."""
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def four(tmp_path):
    draw = np.random.default_rng(0)
    arrays = [
        draw.integers(0, 256, (6, 28, 28)),
        draw.integers(0, 3, 6),
        draw.integers(0, 256, (4, 28, 28)),
        draw.integers(0, 3, 4),
    ]
    paths = {name: tmp_path / name for name in FILES}
    for path, array in zip(paths.values(), arrays, strict=True):
        path.write_bytes(gzip.compress(idx(array)))
    return paths, arrays


def test_what_was_written_is_read(four):
    paths, arrays = four
    parts = read_mnist_files(paths, ("a", "b", "c"))
    for found, expected in zip(parts[:4], arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert parts.train_x.dtype == np.uint8
    assert parts.train_y.dtype == np.int64


def test_labels_and_shapes_must_fit(four):
    paths, arrays = four
    with pytest.raises(InputError, match=r"train-labels.* must be in 0..1. Got 2"):
        read_mnist_files(paths, ("a", "b"))
    paths[FILES[3]].write_bytes(gzip.compress(idx(arrays[3][:3])))
    with pytest.raises(InputError, match=r"t10k-labels.* must be as many as the 4 images"):
        read_mnist_files(paths, ("a", "b", "c"))
    paths[FILES[2]].write_bytes(gzip.compress(idx(arrays[2][:, :27])))
    with pytest.raises(InputError, match=r"t10k-images.* must be \(n, 28, 28\)"):
        read_mnist_files(paths, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(idx(np.zeros((4, 3))))[:-12], "cannot be read as a gzipped idx file"),
        (b"plain text", "cannot be read as a gzipped idx file"),
        (gzip.compress(idx(np.zeros((4, 3)))[:-1]), "must be 12 bytes after its header. Got 11"),
        (gzip.compress(idx(np.zeros((4, 3))) + b"x"), "must be 12 bytes after its header. Got 13"),
        (gzip.compress(b"\0\0\x0d\1\0\0\0\1abcd"), "'header' of .* must be that of an idx file of bytes. Got 00000d01"),
        (gzip.compress(b"\0\0\x08\3\0\0"), "'header'"),
        (gzip.compress(b""), "'header' .* Got nothing"),
    ],
    ids=["torn", "text", "short", "long", "floats", "half a header", "empty"],
)
def test_a_torn_or_foreign_file_is_refused(tmp_path, data, sentence):
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    with pytest.raises(InputError, match=sentence):
        read_idx(path)


def test_more_than_any_idx_file_unpacks_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "IDX_BYTES", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(InputError, match=r"at most 1000 bytes when it is unpacked\. Got more"):
        read_idx(tmp_path / "a.gz")
