import os
import re
import struct
import subprocess
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from vestige.core import machine
from vestige.core.errors import InputError
from vestige.data import readers as files
from vestige.data.readers import images

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)


def save_all(folder, pixels=PIXELS, ending=".png"):
    folder.mkdir(parents=True, exist_ok=True)
    for i, one in enumerate(pixels):
        Image.fromarray(one).save(folder / f"{i}{ending}")
    return folder


def test_colour_as_floats_in_the_order_of_names(tmp_path):
    samples = files.read(save_all(tmp_path / "a"))
    np.testing.assert_allclose(samples.x.numpy(), PIXELS.reshape(3, -1) / 255, rtol=1e-6)
    assert samples.shape == (4, 5, 3)
    assert "3 images of 4 x 5, RGB" in samples.report.notes[0]


def test_a_folder_equals_the_array_of_its_bytes(tmp_path):
    np.save(tmp_path / "a.npy", PIXELS)
    p, q, _ = files.read_pair(tmp_path / "a.npy", save_all(tmp_path / "a"))
    assert torch.equal(p, q)


def test_grey_has_one_channel_but_three_beside_colour(tmp_path):
    grey = save_all(tmp_path / "grey", PIXELS[..., 0])
    assert files.read(grey).x.shape == (3, 20)
    p, q, _ = files.read_pair(grey, save_all(tmp_path / "colour"))
    assert p.shape == q.shape == (3, 60)
    assert torch.equal(p.reshape(3, 20, 3)[..., 0], p.reshape(3, 20, 3)[..., 2])


def test_sixteen_bits_and_black_and_white(tmp_path):
    (tmp_path / "deep").mkdir()
    Image.fromarray(np.array([[0, 65535], [13107, 0]], dtype=np.uint16)).save(tmp_path / "deep" / "a.png")
    assert torch.allclose(files.read(tmp_path / "deep").x, torch.tensor([[0, 1, 0.2, 0]]))
    (tmp_path / "bits").mkdir()
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bits" / "a.png")
    assert files.read(tmp_path / "bits").x.tolist() == [[1, 0]]


def test_transparency_is_laid_on_black(tmp_path):
    clear = np.array([[[200, 100, 50, 0], [200, 100, 50, 255]]], dtype=np.uint8)
    samples = files.read(save_all(tmp_path / "a", [clear]))
    assert torch.allclose(samples.x * 255, torch.tensor([[0.0, 0, 0, 200, 100, 50]]))


def test_folders_below_are_read_and_other_files_left(tmp_path):
    save_all(tmp_path / "cats")
    save_all(tmp_path / "dogs", PIXELS[:1])
    (tmp_path / "labels.txt").write_text("0 1")
    assert len(files.read(tmp_path).x) == 4


def test_another_size_is_named(tmp_path):
    save_all(tmp_path, PIXELS)
    Image.new("RGB", (7, 7)).save(tmp_path / "z.png")
    with pytest.raises(InputError, match=r"z\.png' must be an image of 4 x 5 pixels, like 0\.png\. Got 7 x 7"):
        files.read(tmp_path)


def test_an_unreadable_image_is_named(tmp_path):
    save_all(tmp_path)
    (tmp_path / "1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=re.escape("1.png")):
        files.read(tmp_path)


def test_a_torn_image_is_named(tmp_path):
    save_all(tmp_path, np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8))
    data = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=re.escape("1.png")):
        files.read(tmp_path)


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    save_all(tmp_path)
    for limit in (15, 5):  # pillow warns above the limit and refuses above twice the limit
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in a program that does not look at warnings
            with pytest.raises(InputError, match=rf"0\.png' must be .* at most 4194304 pixels\. Got more than {limit}"):
                files.read(tmp_path)


def test_pixels_are_counted_before_one_is_decoded(tmp_path, monkeypatch):
    save_all(tmp_path, np.zeros((3, 40, 50), np.uint8))
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("it was decoded"))
    monkeypatch.setattr(machine, "free_memory", lambda: 600_000)  # 3 x 2000 x 4 bytes, and 2000 names
    with pytest.raises(InputError, match=r"small enough for 0\.00015 GB of memory.* Got 0\.000152 GB"):
        files.read(tmp_path)
    monkeypatch.setattr(images, "MAX_PIXELS", 1999)
    with pytest.raises(InputError, match=r"0\.png' must be an image of at most 1999 pixels\. Got 40 x 50"):
        files.read(tmp_path)


@pytest.mark.parametrize("side", [9400, 60_000])
def test_a_header_that_claims_a_huge_image_is_refused(tmp_path, side):
    save_all(tmp_path, PIXELS[:1])
    data = bytearray((tmp_path / "0.png").read_bytes())
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    (tmp_path / "0.png").write_bytes(data)
    with pytest.raises(InputError, match=r"0\.png' must be an image of at most 4194304 pixels"):
        files.read(tmp_path)


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 20
%%EndComments
newpath 0 0 moveto 20 20 lineto stroke
showpage
"""


def test_postscript_named_like_an_image_starts_no_program(tmp_path, monkeypatch):
    def started(*words, **_):
        pytest.fail(f"a program was started: {words}")

    for name in ("Popen", "run", "call", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, name, started)
    monkeypatch.setattr(os, "system", started)
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.format == "EPS"  # pillow alone would take it
    with pytest.raises(InputError, match=r"a\.png' must be an image that can be read \(PNG, .*foreign"):
        files.read(tmp_path)


def test_pipes_among_images_are_passed_over(tmp_path):
    os.mkfifo(save_all(tmp_path / "a") / "pipe.png")
    assert len(files.read(tmp_path / "a").x) == 3


@pytest.mark.parametrize("ending", images.ENDINGS)
def test_every_ending_is_read(tmp_path, ending):
    grey = np.full((1, 4, 5), 51, np.uint8)
    assert torch.allclose(files.read(save_all(tmp_path / "a", grey, ending)).x, torch.tensor(0.2), atol=0.01)


def test_no_images_at_all(tmp_path):
    with pytest.raises(InputError, match="a folder of images"):
        files.read(tmp_path)


def test_modes_that_are_no_pictures(tmp_path):
    Image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match="the mode F"):
        files.read(tmp_path)


@pytest.mark.parametrize(
    ("p", "q", "sentence"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), "equally many features.*3 in .*4 in"),
        (np.zeros((2, 4, 4, 3)), np.zeros((2, 3, 4, 4)), "laid out alike"),
        (np.ones((2, 4, 4)), np.full((2, 4, 4), 255.0), "on one scale"),
    ],
)
def test_pairs_that_do_not_fit(tmp_path, p, q, sentence):
    np.save(tmp_path / "p.npy", p)
    np.save(tmp_path / "q.npy", q)
    with pytest.raises(InputError, match=sentence):
        files.read_pair(tmp_path / "p.npy", tmp_path / "q.npy")
