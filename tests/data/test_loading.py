import dataclasses
import gzip
import hashlib
import os
import struct
import tarfile

import numpy as np
import pytest

from vestige import data
from vestige.core.errors import DataUnavailable, InputError, UnknownName
from vestige.data import SOURCES, loading
from vestige.data.source import Remote
from vestige.data.sources.mnist import FILES


def idx_files(mark):
    """Three training and two test images, all pixels `mark`, as canonical files."""
    files = {}
    for name, n in zip(FILES, (3, 3, 2, 2), strict=True):
        shape = (n, 28, 28) if "images" in name else (n,)
        head = struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape)
        body = bytes([mark]) * (n * 784) if "images" in name else bytes(range(n))
        files[name] = gzip.compress(head + body, mtime=0)
    return files


def put_npz(folder, name, mark):
    x = np.full((3, 28, 28), mark, np.uint8)
    np.savez(folder / f"{name}.npz", train_x=x, train_y=np.arange(3), test_x=x[:2], test_y=np.arange(2))


def put_files(folder, files):
    folder.mkdir(parents=True)
    for name, contents in files.items():
        (folder / name).write_bytes(contents)


def mark(dataset):
    """Which copy it is."""
    return int(dataset.train_x[0, 0, 0])


@pytest.fixture
def remote(served, monkeypatch):
    """fashion_mnist and its files, marked 3, from the server on this machine."""
    files = idx_files(3)
    remotes = []
    for name, contents in files.items():
        (served.folder / name).write_bytes(contents)
        checksum = "md5:" + hashlib.md5(contents).hexdigest()
        remotes.append(Remote(name, (f"{served.url}/{name}",), checksum, len(contents)))
    source = dataclasses.replace(SOURCES["fashion_mnist"], remotes=tuple(remotes))
    monkeypatch.setitem(SOURCES, "fashion_mnist", source)
    return served


def row(name, **kwargs):
    return next(row for row in data.listing(**kwargs) if row["name"] == name)


def test_places_are_searched_in_order(nowhere, remote, monkeypatch):
    assert row("fashion_mnist")["here"] == "not here"
    assert mark(data.load("fashion_mnist", progress=False)) == 3
    assert row("fashion_mnist")["here"] == "cached"
    put_files(nowhere.system / "fashion-mnist", idx_files(2))
    found = data.load("fashion_mnist")
    assert mark(found) == 2
    assert found.origin == str(nowhere.system / "fashion-mnist")
    assert row("fashion_mnist")["here"] == "system"
    put_npz(nowhere.data, "fashion_mnist", 1)
    monkeypatch.setenv("VESTIGE_DATA", str(nowhere.data))
    found = data.load("fashion_mnist")
    assert mark(found) == 1
    assert found.origin == str(nowhere.data / "fashion_mnist.npz")
    assert row("fashion_mnist")["here"] == "file"
    other = nowhere.data / "other"
    other.mkdir()
    put_npz(other, "fashion_mnist", 9)
    assert mark(data.load("fashion_mnist", data_dir=other)) == 9
    assert row("fashion_mnist", data_dir=str(other))["path"] == str(other / "fashion_mnist.npz")
    assert len(remote.asked) == 4  # each canonical file once


def test_without_download_the_cache_still_counts(nowhere, remote):
    with pytest.raises(DataUnavailable, match="The download was not allowed here"):
        data.load("fashion_mnist", download=False)
    assert remote.asked == []
    data.fetch("fashion_mnist", progress=False)
    assert mark(data.load("fashion_mnist", download=False)) == 3
    assert len(remote.asked) == 4


def test_fetch_goes_to_the_canonical_files_even_when_others_are_here(nowhere, remote, monkeypatch):
    put_npz(nowhere.data, "fashion_mnist", 1)
    monkeypatch.setenv("VESTIGE_DATA", str(nowhere.data))
    assert mark(data.fetch("fashion_mnist", progress=False)) == 3


def test_one_error_names_the_three_ways(nowhere):
    for name in ("electricity", "mnist"):
        with pytest.raises(DataUnavailable) as caught:
            data.load(name, download=False)
        text = str(caught.value)
        assert f"{name}.npz" in text
        assert "VESTIGE_DATA" in text
        assert "(2) a system package" in text
        assert "(3) the download" in text
    assert "vestige data fetch mnist" in text
    with pytest.raises(DataUnavailable, match="not for this one: no copy of it is published with a checksum"):
        data.fetch("electricity")
    with pytest.raises(DataUnavailable, match="apt install dataset-fashion-mnist"):
        data.load("fashion_mnist", download=False)


def test_a_failed_download_names_the_ways_and_the_reason_and_leaves_whole_files_only(nowhere, remote):
    (remote.folder / FILES[2]).write_bytes(b"something else")
    with pytest.raises(DataUnavailable, match=r"Three ways.*t10k-images.*wrong checksum, refused"):
        data.load("fashion_mnist", progress=False)
    assert sorted(p.name for p in (nowhere.cache / "fashion_mnist").iterdir()) == sorted(FILES[:2])


def test_an_archive_that_climbs_is_refused_and_leaves_the_cache(nowhere, served, monkeypatch):
    archive = served.folder / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.addfile(tarfile.TarInfo("../../evil"))
    contents = archive.read_bytes()
    remote = Remote(archive.name, (f"{served.url}/{archive.name}",), "md5:" + hashlib.md5(contents).hexdigest(), 1)
    monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(SOURCES["cifar10"], remotes=(remote,)))
    with pytest.raises(DataUnavailable, match=r"removed from the cache: .* Got '\.\./\.\./evil' instead"):
        data.load("cifar10", progress=False)
    assert [path for path in nowhere.cache.rglob("*") if path.is_file()] == []


def test_a_broken_copy_is_refused_not_passed_over(nowhere, remote):
    (nowhere.data / "fashion_mnist.npz").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"fashion_mnist.npz cannot be read"):
        data.load("fashion_mnist", data_dir=nowhere.data)
    (nowhere.data / "fashion_mnist.npz").unlink()
    files = idx_files(2)
    put_files(nowhere.system / "fashion-mnist", files | {FILES[0]: files[FILES[0]][:-9]})
    with pytest.raises(InputError, match=FILES[0]):
        data.load("fashion_mnist")
    assert remote.asked == []


def test_a_pipe_in_the_place_of_a_copy_is_refused(tmp_path):
    os.mkfifo(tmp_path / "mnist.npz")
    with pytest.raises(InputError, match=r"mnist\.npz' must be a regular file\. Got a pipe"):
        data.load("mnist", data_dir=tmp_path, download=False)


def test_half_a_system_copy_is_none(nowhere, remote):
    files = idx_files(2)
    del files[FILES[3]]
    put_files(nowhere.system / "fashion-mnist", files)
    assert mark(data.load("fashion_mnist", progress=False)) == 3


def test_notmnist_goes_by_two_names(nowhere):
    x, y = np.zeros((10, 28, 28), np.uint8), np.zeros(10, np.int64)
    np.savez(nowhere.data / "notmnist_10k.npz", test_x=x, test_y=y)
    assert data.load("notmnist", data_dir=nowhere.data).origin.endswith("notmnist_10k.npz")
    np.savez(nowhere.data / "notmnist.npz", test_x=x, test_y=y)
    assert data.load("notmnist", data_dir=nowhere.data).origin.endswith("notmnist.npz")


def test_digits_are_always_here(nowhere, monkeypatch):
    monkeypatch.setenv("VESTIGE_DATA", str(nowhere.data / "missing"))
    assert len(data.load("digits", download=False).train_x) == 1442
    assert len(data.fetch("digits").test_x) == 355


def test_unknown_names_suggest_the_nearest_and_a_missing_folder_is_refused(nowhere):
    for verb in (data.load, data.fetch):
        with pytest.raises(UnknownName, match="Did you mean 'fashion_mnist'"):
            verb("fashion-mnist")
    with pytest.raises(InputError, match=r"'data_dir' of data.load must be a folder"):
        data.load("mnist", data_dir=nowhere.data / "missing")


def test_the_listing_has_a_row_for_each(nowhere):
    rows = data.listing()
    assert [row["name"] for row in rows] == list(SOURCES)
    assert [row["here"] for row in rows] == ["installed"] + ["not here"] * (len(SOURCES) - 1)
    assert {row["name"] for row in rows if not row["fetchable"]} == {"digits", "electricity"}
    assert row("mnist")["bytes"] == 11_594_722
    assert row("electricity")["bytes"] is None
    assert not nowhere.cache.exists()  # looking writes nothing


def test_the_system_root_is_debians():
    assert str(loading.SYSTEM_ROOT) == "/usr/share/datasets"
