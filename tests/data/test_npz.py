import zipfile

import numpy as np
import pytest

from vestige.core import machine
from vestige.core.errors import InputError
from vestige.data.formats import image_splits, open_npz


class Bomb:
    """Would run on unpickling."""

    def __reduce__(self):
        return (pytest.fail, ("the pickle was run",))


def good():
    return {
        "train_x": np.zeros((5, 4, 4), np.uint8),
        "train_y": np.arange(5, dtype=np.int32),
        "test_x": np.ones((3, 4, 4), np.uint8),
        "test_y": np.arange(3, dtype=np.uint8),
    }


def read(path, **changes):
    arrays = {key: value for key, value in (good() | changes).items() if value is not None}
    np.savez(path, **arrays)
    with open_npz(path) as npz:
        return image_splits(npz, (4, 4), 5)


def test_arrays_come_back_as_they_were_with_int64_labels(tmp_path):
    found = read(tmp_path / "a.npz")
    for array, expected in zip(found, good().values(), strict=True):
        np.testing.assert_array_equal(array, expected)
    assert found[1].dtype == found[3].dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test_y": None}, "'test_y' of .*a.npz must be a key of the file. Got only test_x, train_x, train_y"),
        ({"train_x": np.zeros((5, 4, 3), np.uint8)}, r"'train_x' of .*a.npz must be uint8 of shape \(n, 4, 4\)"),
        ({"train_x": np.zeros((5, 4, 4))}, "'train_x' of .*a.npz must be uint8 .* Got float64"),
        ({"train_x": np.zeros((0, 4, 4), np.uint8)}, "'train_x' of .*a.npz must be"),
        ({"train_y": np.arange(4)}, "'train_y' of .*a.npz must be 5 whole numbers"),
        ({"train_y": np.arange(5) + 0.5}, "'train_y' of .*a.npz must be 5 whole numbers"),
        ({"train_y": np.arange(5) + 1}, "'train_y' of .*a.npz must be in 0..4. Got 1..5"),
        ({"train_y": np.arange(5) - 1}, "'train_y' of .*a.npz must be in 0..4. Got -1..3"),
        ({"train_y": np.array([Bomb()] * 5)}, "'train_y' of .*a.npz cannot be read: Object arrays"),
        ({"train_y": np.array([b"x"] * 5)}, "'train_y' of .*a.npz must be an array of numbers or text"),
    ],
)
def test_a_malformed_array_is_refused_by_file_and_key(tmp_path, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        read(tmp_path / "a.npz", **changes)


def test_tables_and_names(tmp_path):
    path = tmp_path / "t.npz"
    x = np.array([[1, -2], [30_000, 4]], np.int16)
    np.savez(path, x=x, names=np.array(["a", "b"]), nan=np.array([[0.0, np.nan]]), huge=np.array([[0.0, 1e300]]))
    with open_npz(path) as npz:
        assert npz.table("x", 2).dtype == np.float32
        np.testing.assert_array_equal(npz.table("x", 2), x)
        assert npz.texts("names") == ("a", "b")
        for key in ("nan", "huge"):
            with pytest.raises(InputError, match=f"'{key}' of .*t.npz must be finite. Got 1 NaN"):
                npz.table(key, 2)
        for key in ("x", "names"):
            with pytest.raises(InputError, match=r"must be numbers of shape \(n, 3\)"):
                npz.table(key, 3)
        with pytest.raises(InputError, match="must be a list of names"):
            npz.texts("x")


def test_what_is_no_npz_is_refused(tmp_path):
    text, array, torn, raw = (tmp_path / name for name in ("text.npz", "array.npz", "torn.npz", "raw.npz"))
    text.write_bytes(b"hello" * 100)
    with open(array, "wb") as file:
        np.save(file, np.zeros(3))
    np.savez(torn, **good())
    torn.write_bytes(torn.read_bytes()[:-200])
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr("train_x", b"not an array")
    for path in (text, array, torn, tmp_path / "missing.npz"):
        with pytest.raises(InputError, match=f"{path.name} cannot be read as an .npz file"), open_npz(path):
            pass
    with open_npz(raw) as npz, pytest.raises(InputError, match=r"'train_x' of .*raw.npz must be an array"):
        npz.array("train_x")


def test_a_flipped_byte_is_found_by_file_and_key(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, train_x=np.full((5, 4, 4), 7, np.uint8))
    data = bytearray(path.read_bytes())
    data[data.index(bytes([7] * 8))] ^= 1
    path.write_bytes(data)
    with open_npz(path) as npz, pytest.raises(InputError, match=r"'train_x' of .*a.npz cannot be read: Bad CRC"):
        npz.images("train_x", (4, 4))


def test_an_array_that_would_not_fit_is_refused_by_its_entry_in_the_archive(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10_000))
    monkeypatch.setattr(machine, "free_memory", lambda: 20_000)
    sentence = r"a\.npz:x' must be small enough for 5e-06 GB .* Got 8\.01e-05 GB"
    with open_npz(tmp_path / "a.npz") as npz, pytest.raises(InputError, match=sentence):
        npz.array("x")


def test_an_array_that_is_no_archive_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "a.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="it is a single array"), open_npz(tmp_path / "a.npz"):
        pass
