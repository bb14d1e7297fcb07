import io
import os
import re
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vestige.core import machine
from vestige.core.errors import InputError
from vestige.data import readers as files

X = np.arange(12, dtype=np.float64).reshape(6, 2) / 7


def write(folder, ending, array, key="x"):
    path = folder / f"a{ending}"
    if ending == ".npy":
        np.save(path, array)
    elif ending == ".npz":
        np.savez(path, **{key: array})
    else:
        save_file({key: torch.from_numpy(np.ascontiguousarray(array))}, path)
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int16", "int64", "bool"])
def test_numbers_come_back_as_they_were(tmp_path, ending, dtype):
    array = (X * 7).astype(dtype)
    samples = files.read(write(tmp_path, ending, array))
    assert samples.x.tolist() == array.astype(float).tolist()
    assert samples.columns == ("x0", "x1")


@pytest.mark.parametrize("ending", files.FORMATS)
def test_a_pipe_is_refused_before_it_is_opened(tmp_path, ending):
    os.mkfifo(tmp_path / f"a{ending}")
    with pytest.raises(InputError, match=r"must be a regular file\. Got a pipe"):
        files.read(tmp_path / f"a{ending}")


def test_foreign_byte_order_and_fortran_order(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(X.astype(">f8")))
    assert np.array_equal(files.read(tmp_path / "a.npy").x.numpy(), X)


def test_large_integers_keep_their_last_digit(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[2**40 + 1], [2**40 + 2]]))
    assert files.read(tmp_path / "a.npy").x.flatten().tolist() == [2**40 + 1, 2**40 + 2]


def test_bfloat16(tmp_path):
    save_file({"x": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    assert files.read(tmp_path / "a.safetensors").x.tolist() == [[1.5, -2.0]]


def test_one_axis_is_one_feature_and_more_are_flattened(tmp_path):
    np.save(tmp_path / "a.npy", X[:, 0])
    np.save(tmp_path / "b.npy", X.reshape(2, 3, 2))
    assert files.read(tmp_path / "a.npy").x.shape == (6, 1)
    b = files.read(tmp_path / "b.npy")
    assert b.x.shape == (2, 6)
    assert b.shape == (3, 2)


def test_bytes_of_images_are_scaled_and_said_so(tmp_path):
    pixels = np.array([0, 51, 255, 102], dtype=np.uint8).reshape(1, 2, 2)
    np.save(tmp_path / "a.npy", pixels)
    np.save(tmp_path / "flat.npy", pixels.reshape(1, 4))
    samples = files.read(tmp_path / "a.npy")
    assert torch.allclose(samples.x, torch.tensor([[0, 0.2, 1, 0.4]]))
    assert "255" in samples.report.notes[0]
    assert files.read(tmp_path / "flat.npy").x.max() == 255  # a table of bytes is left alone


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
class TestKeys:
    def two(self, folder, ending):
        path = folder / f"two{ending}"
        if ending == ".npz":
            np.savez(path, x=X, y=X + 1)
        else:
            save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(X + 1)}, path)
        return path

    def test_named_after_a_colon_or_apart(self, tmp_path, ending):
        path = self.two(tmp_path, ending)
        assert np.array_equal(files.read(f"{path}:y").x.numpy(), X + 1)
        assert np.array_equal(files.read(path, key="y").x.numpy(), X + 1)

    def test_several_without_a_key_are_named(self, tmp_path, ending):
        path = self.two(tmp_path, ending)
        with pytest.raises(InputError, match=re.escape(f"two{ending}:x. Got no key among x, y")):
            files.read(path)

    def test_an_unknown_key_is_told_the_known_ones(self, tmp_path, ending):
        with pytest.raises(InputError, match=r"\(x, y\)\. Got the key 'z'"):
            files.read(f"{self.two(tmp_path, ending)}:z")


def test_a_path_with_a_colon_is_a_path(tmp_path):
    np.save(tmp_path / "a:b.npy", X)
    assert len(files.read(tmp_path / "a:b.npy").x) == 6


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_every_truncation_is_one_clear_error(tmp_path, ending):
    whole = write(tmp_path, ending, np.random.default_rng(0).normal(size=(50, 3))).read_bytes()
    torn = tmp_path / f"torn{ending}"
    for share in (0.02, 0.1, 0.5, 0.9, 0.999):
        torn.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match=f"torn{ending}"):
            files.read(torn)


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors", ".parquet"])
def test_noise_is_one_clear_error(tmp_path, ending):
    path = tmp_path / f"noise{ending}"
    path.write_bytes(np.random.default_rng(1).bytes(500))
    with pytest.raises(InputError, match=f"noise{ending}"):
        files.read(path)


def test_a_flipped_byte_in_an_archive_is_found(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(100, 3)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"'x\.npy' can be read"):
        files.read(path)


def test_pickle_is_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    np.save(tmp_path / "a.npy", np.array([[Bomb(), Bomb()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=np.array([Bomb()], dtype=object))
    for name in ("a.npy", "b.npz"):
        with pytest.raises(InputError, match="pickle"):
            files.read(tmp_path / name)
    assert not (tmp_path / "harm").exists()


def header(shape, descr="<f8"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize("shape", ["(10**12, 10)", "(1000000000000, 10)", "(-5, 2)", "('a', 2)", "(3,", "(True, 2)"])
def test_headers_that_lie_are_refused_before_anything_is_allocated(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(header(shape) + bytes(80))
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", header(shape) + bytes(80))
    for name in ("a.npy", "b.npz"):
        with pytest.raises(InputError, match=name):
            files.read(tmp_path / name)


def test_a_member_with_more_data_than_it_says_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", header("(5, 2)") + bytes(88))
    with pytest.raises(InputError, match=r"holds 80 bytes of data\. Got 88"):
        files.read(tmp_path / "b.npz")


def test_a_zip_bomb_is_refused_by_its_size(tmp_path, monkeypatch):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((10000, 10)))
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", buffer.getvalue())
    monkeypatch.setattr(machine, "free_memory", lambda: 2 * 10**6)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(InputError, match=r"b\.npz' must be small enough for 0\.0005 GB .*25%.* Got 0\.0008 GB"):
        files.read(tmp_path / "b.npz")


def test_a_header_as_long_as_a_bomb_is_not_unpacked(tmp_path):
    head = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**29) + bytes(2**20)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", head)
    (tmp_path / "b.npy").write_bytes(head)
    for name in ("b.npz", "b.npy"):
        with pytest.raises(InputError, match="torn"):
            files.read(tmp_path / name)


def test_what_is_unpacked_counts_beside_what_it_becomes(tmp_path, monkeypatch):
    path = write(tmp_path, ".npz", np.zeros((1000, 10), np.uint8))
    monkeypatch.setattr(machine, "free_memory", lambda: 200_000)
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(InputError, match=r"5e-05 GB of memory.* Got 5\.08e-05 GB"):  # and a byte a value
        files.read(path)


@pytest.mark.parametrize("ending", [".npy", ".safetensors"])
def test_what_would_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch, ending):
    path = write(tmp_path, ending, np.zeros((1000, 10), np.uint8))
    monkeypatch.setattr(machine, "free_memory", lambda: 140_000)
    with pytest.raises(InputError, match=r"3\.5e-05 GB of memory.* Got 4\.06e-05 GB"):  # 4 bytes a value, and names
        files.read(path)
    assert sum(len(x) for x in files.chunks(path, 100)) == 1000


def test_a_sparse_file_is_refused_by_what_it_claims(tmp_path):
    (tmp_path / "a.npy").write_bytes(header("(1000000000000, 1)"))
    os.truncate(tmp_path / "a.npy", 2**43)
    with pytest.raises(InputError, match=r"Got 8e\+03 GB"):
        files.read(tmp_path / "a.npy")


@pytest.mark.parametrize("rows", ["1000000000000000", "1" + "0" * 30])
def test_a_header_that_claims_more_than_the_file_holds(tmp_path, rows):
    (tmp_path / "a.npy").write_bytes(header(f"({rows}, 1)") + bytes(800))
    with pytest.raises(InputError, match=rf"{8 * int(rows)} bytes of data\. Got 800"):
        files.read(tmp_path / "a.npy")


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_no_float_holds_are_refused(tmp_path, ending, dtype):
    path = write(tmp_path, ending, np.array([[1, 2], [3, 2**60 + 1]], dtype=dtype))
    with pytest.raises(InputError, match=r"2\^53\. Got 1152921504606846977 in row 1, column 1 \(from 0\)"):
        files.read(path)
    exact = write(tmp_path, ending, np.array([[1], [2**60]], dtype=dtype))
    assert files.read(exact).x.tolist() == [[1.0], [2.0**60]]


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_numbers_beyond_single_precision_are_refused(tmp_path, ending):
    path = write(tmp_path, ending, np.array([[1.0], [-1e39]]))
    with pytest.raises(InputError, match=r"no larger than 3\.4e\+38\. Got -1e\+39 in row 1, column 0"):
        files.read(path)


def test_odd_shapes_and_types_work_or_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(48.0).reshape(2, 2, 3, 2, 2))
    assert files.read(tmp_path / "a.npy").x.tolist() == np.arange(48.0).reshape(2, 24).tolist()
    np.save(tmp_path / "a.npy", np.array([[2**60 + 1]], dtype=">i8"))
    with pytest.raises(InputError, match="1152921504606846977"):
        files.read(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros(2, [(f"field number {i}", "f4") for i in range(99)]))
    with pytest.raises(InputError, match="an array of numbers") as refused:
        files.read(tmp_path / "a.npy")
    assert len(str(refused.value)) < 300
    (tmp_path / "a.npy").write_bytes(header("(" + "1," * 70 + ")") + bytes(8))
    with pytest.raises(InputError, match="cannot be read"):
        files.read(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.array(3.0), "one sample a row. Got a single number"),
        (np.empty((0, 4)), "the empty shape"),
        (np.empty((4, 0)), "the empty shape"),
        (np.array(["a", "b"]), "array of numbers"),
        (np.array([1 + 2j]), "array of numbers"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "1 NaN or infinite values, the first in row 1, column 1"),
        (np.array([[1.0, -np.inf], [3.0, np.nan]]), "2 NaN or infinite values, the first in row 0, column 1"),
    ],
)
def test_arrays_that_hold_no_samples(tmp_path, array, sentence):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=re.escape(sentence)):
        files.read(tmp_path / "a.npy")


def test_sums_that_overflow_are_not_taken_for_infinity(tmp_path):
    np.save(tmp_path / "a.npy", np.full((4, 1), 3e38, np.float32))
    assert files.read(tmp_path / "a.npy").x.max() == np.float32(3e38)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("missing.npy", None, "no such file or folder"),
        ("a.pkl", b"x", "the ending '.pkl'"),
        ("a", b"x", "the ending ''"),
        ("a.npy", b"", "an empty one"),
        ("a.csv", b"", "an empty one"),
        ("a.npz", b"PK\x05\x06" + bytes(18), "a file with an array in it. Got none"),
    ],
)
def test_files_that_are_no_files(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        files.read(tmp_path / name)
    assert name in str(caught.value)


def test_keys_belong_to_files_of_many_arrays(tmp_path):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match="the key 'x'"):
        files.read(f"{tmp_path / 'a.npy'}:x")
    with pytest.raises(InputError, match="the key 'x'"):
        files.read(tmp_path, key="x")
