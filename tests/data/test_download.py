import hashlib
import logging

import numpy as np
import pooch
import pytest

from vestige.core.errors import DataUnavailable
from vestige.data.download import cache_folder, cached, retrieve
from vestige.data.source import Remote

DATA = np.random.default_rng(0).bytes(300_000)
MD5 = "md5:" + hashlib.md5(DATA).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def remote(served):
    """A file that the server has, by any address."""
    (served.folder / "x.bin").write_bytes(DATA)
    return lambda *paths, checksum=MD5: Remote("x.bin", tuple(served.url + p for p in paths), checksum, len(DATA))


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_file_is_fetched_once(remote, served, tmp_path, checksum):
    for _ in range(2):
        path = retrieve(remote("/x.bin", checksum=checksum), tmp_path / "cache", progress=False)
        assert path == tmp_path / "cache" / "x.bin"
        assert path.read_bytes() == DATA
    assert served.asked == ["/x.bin"]


@pytest.mark.parametrize(
    ("path", "checksum", "reason"),
    [
        ("/x.bin", "md5:" + "0" * 32, "wrong checksum, refused"),
        ("/torn/x.bin", MD5, "could not be downloaded"),
        ("/missing.bin", MD5, "HTTP 404"),
    ],
)
def test_a_failed_download_leaves_nothing(remote, tmp_path, path, checksum, reason):
    with pytest.raises(DataUnavailable, match=reason):
        retrieve(remote(path, checksum=checksum), tmp_path / "cache", progress=False)
    assert not (tmp_path / "cache").exists()


def test_a_server_that_is_not_there_is_one_error(tmp_path, served):
    gone = Remote("x.bin", ("http://127.0.0.1:1/x.bin",), MD5, 1)
    with pytest.raises(DataUnavailable, match=r"127.0.0.1:1/x.bin: ConnectionError\)"):
        retrieve(gone, tmp_path / "cache", progress=False)


def test_the_next_address_is_tried(remote, served, tmp_path):
    path = retrieve(remote("/missing.bin", "/torn/x.bin", "/x.bin"), tmp_path, progress=False)
    assert path.read_bytes() == DATA
    assert served.asked == ["/missing.bin", "/torn/x.bin", "/x.bin"]


def test_a_failed_download_keeps_what_else_is_in_the_cache(remote, tmp_path):
    (tmp_path / "other.bin").write_bytes(b"other")
    with pytest.raises(DataUnavailable):
        retrieve(remote("/torn/x.bin"), tmp_path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["other.bin"]


def test_a_file_damaged_in_the_cache_is_removed_and_fetched_again(remote, tmp_path):
    folder = tmp_path / "cache"
    path = retrieve(remote("/x.bin"), folder, progress=False)
    assert cached(remote("/x.bin"), folder) == path
    path.write_bytes(DATA[:-1])
    assert cached(remote("/x.bin"), folder) is None
    assert not path.exists()
    path.write_bytes(DATA[:-1])
    assert retrieve(remote("/x.bin"), folder, progress=False).read_bytes() == DATA


def test_the_bar_is_drawn_on_stderr_and_pooch_keeps_quiet(remote, tmp_path, capsys):
    before = pooch.get_logger().level
    pooch.get_logger().setLevel(logging.INFO)
    try:
        retrieve(remote("/x.bin"), tmp_path / "a", progress=True)
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "x.bin" in shown.err
        assert "300.0/300.0 kB" in shown.err
        assert "Downloading" not in shown.err
        assert pooch.get_logger().level == logging.INFO
        retrieve(remote("/x.bin"), tmp_path / "b", progress=False)
        assert capsys.readouterr().err == ""
    finally:
        pooch.get_logger().setLevel(before)


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("VESTIGE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("VESTIGE_CACHE")
    assert cache_folder() == pooch.os_cache("vestige")
