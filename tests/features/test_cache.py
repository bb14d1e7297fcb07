"""Hits, misses, damage, and what must never be written."""

import os

import numpy as np
import pytest
import torch

from vestige import features
from vestige.core.errors import InputError, VestigeWarning
from vestige.features.cache import Cached, clear, default_folder, key_of

X = torch.rand(40, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def cached(tmp_path):
    return Cached(features.build("pca", dims=2).fit(X), tmp_path / "cache")


def files(cached):
    return sorted(path for path in cached.folder.rglob("*") if path.is_file())


def test_the_second_call_is_read(cached, monkeypatch):
    first = cached(X)
    assert torch.equal(first, cached.map(X))
    assert (cached.hits, cached.misses) == (0, 1)
    monkeypatch.setattr(type(cached.map), "_codes", None)  # nothing may be computed from here on
    assert torch.equal(cached(X), first)
    assert isinstance(cached(X.numpy()), np.ndarray)  # the same bytes in another kind of array
    assert torch.equal(cached(X.reshape(40, 5, 1)), first)
    assert (cached.hits, cached.misses) == (3, 1)


def test_other_samples_other_types_and_other_maps_miss(cached):
    cached(X)
    changed = X.clone()
    changed[7, 3] += 1e-6
    for other in (changed, X[:39], X.double(), X.flip(0)):
        expected = cached.map(other)
        assert torch.equal(cached(other), expected)
    assert (cached.hits, cached.misses) == (0, 5)
    for other_map in (
        features.build("pca", dims=3).fit(X),
        features.build("pca", dims=2, whiten=True).fit(X),
        features.build("pca", dims=2).fit(changed),
    ):
        assert key_of(other_map, X) != key_of(cached.map, X)
    assert key_of(features.build("pca", dims=2).fit(X), X) == key_of(cached.map, X)


def test_a_map_that_was_updated_has_other_keys(tmp_path):
    vae = features.build(
        "vae", dims=2, encoder=(8,), decoder=(8,), noise=0.001, epochs=20, batch_size=20, learning_rate=2e-2
    )
    cached = Cached(vae.fit(X), tmp_path)
    before = cached(X)
    vae.update(X)
    assert not torch.equal(cached(X), before)
    assert torch.equal(cached(X), vae(X))
    assert (cached.hits, cached.misses) == (1, 2)


@pytest.mark.parametrize("damage", ["torn json", "torn tensors", "flipped byte", "no tensors", "another entry"])
def test_a_damaged_entry_is_computed_anew_and_mended(cached, damage):
    expected = cached(X)
    text, tensors = files(cached)
    if damage == "torn json":
        text.write_bytes(text.read_bytes()[:50])
    elif damage == "torn tensors":
        tensors.write_bytes(tensors.read_bytes()[:-9])
    elif damage == "flipped byte":
        data = bytearray(tensors.read_bytes())
        data[-1] ^= 1
        tensors.write_bytes(bytes(data))
    elif damage == "no tensors":
        tensors.unlink()
    else:  # whole, but of other samples
        other = Cached(cached.map, cached.folder.with_name("other"))
        other(X[:7])
        theirs = files(other)
        text.write_bytes(theirs[0].read_bytes())
        (text.parent / theirs[1].name).write_bytes(theirs[1].read_bytes())
    assert torch.equal(cached(X), expected)
    assert (cached.hits, cached.misses) == (0, 2)
    assert torch.equal(cached(X), expected)
    assert (cached.hits, cached.misses) == (1, 2)


def test_it_can_be_turned_off_and_cleared(cached):
    off = Cached(cached.map, cached.folder, enabled=False)
    off(X)
    assert not cached.folder.exists()
    cached(X)
    assert files(cached)
    clear(cached.folder)
    assert not cached.folder.exists()


def test_the_identity_is_not_written(tmp_path):
    cached = Cached(features.build("identity").fit(X), tmp_path / "cache")
    assert torch.equal(cached(X), X)
    assert not cached.folder.exists()


def test_the_default_folder_stands_beside_the_downloads(monkeypatch, tmp_path, cached):
    monkeypatch.setenv("VESTIGE_CACHE", str(tmp_path / "elsewhere"))
    assert default_folder() == tmp_path / "elsewhere" / "features"
    assert Cached(cached.map).folder == default_folder()


def test_a_folder_that_cannot_be_written_to_costs_a_warning(cached, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(VestigeWarning, match="could not be cached"):
        codes = cached(X)
    assert torch.equal(codes, cached.map(X))


def test_bad_input_is_refused(cached):
    with pytest.raises(InputError, match="5 features wide"):
        cached(X[:, :4])
    assert not cached.folder.exists()
