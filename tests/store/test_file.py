"""One object in one file: what comes back is what went in, and any damage is named."""

import json
from dataclasses import dataclass

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from vestige import store
from vestige.core import StoreError


@dataclass(frozen=True, eq=False)
class Inner:
    name: str
    numbers: Tensor


@dataclass(frozen=True, eq=False)
class Outer:
    count: int
    inner: tuple[Inner, ...]


def thing() -> Outer:
    return Outer(3, (Inner("a", torch.arange(4.0)), Inner("b", torch.zeros(2, 3, dtype=torch.float64))))


def test_what_comes_back_is_what_went_in(tmp_path):
    path = store.save_file(tmp_path / "x.vestige", "toy", thing())
    back = store.load_file(Outer, path, "toy")
    assert back.count == 3
    assert [one.name for one in back.inner] == ["a", "b"]
    assert torch.equal(back.inner[0].numbers, torch.arange(4.0))
    assert back.inner[1].numbers.dtype == torch.float64
    assert list(tmp_path.iterdir()) == [path]


def test_any_reader_of_safetensors_can_look_into_it(tmp_path):
    path = store.save_file(tmp_path / "x.vestige", "toy", thing())
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["vestige"])["format"] == "vestige/toy"
        assert set(file.keys()) == {"inner.0.numbers", "inner.1.numbers"}


def test_the_same_object_gives_the_same_bytes(tmp_path):
    one, two = (store.save_file(tmp_path / name, "toy", thing()).read_bytes() for name in ("x", "y"))
    assert one == two


def test_every_changed_byte_is_noticed(tmp_path):
    path = store.save_file(tmp_path / "x.vestige", "toy", thing())
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            store.load_file(Outer, path, "toy")


@pytest.mark.parametrize("damage", [b"", b"\x00" * 7, b"\xff" * 8, b"not a file of ours at all, but longer than that"])
def test_foreign_files_are_refused_in_a_sentence(tmp_path, damage):
    path = tmp_path / "x.vestige"
    path.write_bytes(damage)
    with pytest.raises(StoreError, match="torn, or no file that Vestige wrote"):
        store.load_file(Outer, path, "toy")


def test_another_kind_is_refused(tmp_path):
    path = store.save_file(tmp_path / "x.vestige", "toy", thing())
    with pytest.raises(StoreError, match="must be 'vestige/other'"):
        store.load_file(Outer, path, "other")


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = store.save_file(tmp_path / "x.vestige", "toy", thing())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StoreError):
        store.load_file(Outer, path, "toy")
