import io
import re
import stat
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from vestige.core.errors import InputError
from vestige.data.formats import climbs, decode_png, read_members

CLIMBING = ["../evil", "a/../../evil", "/etc/passwd", "C:\\evil", "..\\evil", "\\\\host\\evil", "C:evil"]
ANY = re.compile(".*")


def write_tar(path, members):
    """(name, contents) pairs; contents may be a tar type for links and devices."""
    with tarfile.open(path, "w:gz") as archive:
        for name, contents in members:
            info = tarfile.TarInfo(name)
            if isinstance(contents, bytes) and len(contents) != 1:
                info.size = len(contents)
                archive.addfile(info, io.BytesIO(contents))
            else:
                info.type, info.linkname = contents, "/etc/passwd"
                archive.addfile(info)


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, contents in members:
            info = zipfile.ZipInfo("x")
            info.filename = name  # set afterwards, for the constructor tidies it
            archive.writestr(info, contents)


WRITERS = {"a.tar.gz": write_tar, "a.zip": write_zip}


@pytest.mark.parametrize("kind", WRITERS)
def test_wanted_members_are_read_and_others_are_not(tmp_path, kind):
    path = tmp_path / kind
    WRITERS[kind](path, [("d/one.bin", b"11"), ("d/two.bin", b"222"), ("d/three.txt", b"3333")])
    assert read_members(path, re.compile(r"d/.*\.bin"), max_bytes=3) == {"d/one.bin": b"11", "d/two.bin": b"222"}
    assert list(tmp_path.iterdir()) == [path]  # nothing was unpacked


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", CLIMBING)
def test_a_member_that_climbs_out_is_refused_even_if_nobody_asked_for_it(tmp_path, kind, name):
    path = tmp_path / kind
    WRITERS[kind](path, [("fine.bin", b"11"), (name, b"22")])
    with pytest.raises(InputError, match=f"'members' of .*{kind} must be paths within the archive"):
        read_members(path, re.compile(r"fine\.bin"), max_bytes=10)


def test_ordinary_names_do_not_climb():
    assert not any(climbs(name) for name in ("a", "a/b.bin", "a..b/c", "..a/b", "a/b...png", "./a"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    path = tmp_path / "a.tar.gz"
    write_tar(path, [("fine.bin", b"11"), ("link", kind)])
    with pytest.raises(InputError, match=r"must be files and folders. Got the link or device 'link'"):
        read_members(path, ANY, max_bytes=10)


def test_links_in_a_zip_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="Got the link or device 'link'"):
        read_members(path, ANY, max_bytes=100)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_member_that_is_too_large_is_refused_before_it_is_read(tmp_path, kind):
    path = tmp_path / kind
    WRITERS[kind](path, [("big", bytes(1000))])
    with pytest.raises(InputError, match=r"no larger than 999 bytes. Got 1000 for 'big'"):
        read_members(path, ANY, max_bytes=999)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("keep", [0, 20, 0.5, 0.9])
def test_a_truncated_archive_is_refused(tmp_path, kind, keep):
    path = tmp_path / kind
    noise = np.random.default_rng(0).bytes(20_000)
    WRITERS[kind](path, [("one", noise[:10_000]), ("two", noise[10_000:])])
    data = path.read_bytes()
    path.write_bytes(data[: keep if keep in (0, 20) else int(len(data) * keep)])
    with pytest.raises(InputError, match="is a torn archive or none"):
        read_members(path, ANY, max_bytes=1 << 20)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def test_png_pixels_come_back():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4), dtype=np.uint8)
    np.testing.assert_array_equal(decode_png(png(pixels), (4, 5), "x"), pixels)
    bits = pixels > 100
    np.testing.assert_array_equal(decode_png(png(bits), (4, 5), "x"), np.where(bits, 255, 0))


def test_images_that_are_none_are_refused():
    data = png(np.zeros((5, 4), np.uint8))
    with pytest.raises(InputError, match=r"'size' of x must be 5 x 5. Got 4 x 5"):
        decode_png(data, (5, 5), "x")
    for broken in (b"", b"hello", data[:20], data[:-25]):
        with pytest.raises(InputError, match="x cannot be read as PNG"):
            decode_png(broken, (4, 5), "x")
