"""Image grids: each pixel where it belongs, with the value it had."""

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError
from vestige.show import images
from vestige.show.grids import GAP


def canvas(figure):
    return np.asarray(figure.axes[0].images[0].get_array())


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_images_run_along_the_rows(channels):
    shape = (5, 4, 3) if channels is None else (5, 4, 3, channels)
    grid = np.random.default_rng(0).random(shape)
    drawn = canvas(images(grid, title="t", columns=2))
    assert drawn.shape == (3 * 4 + 2 * GAP, 2 * 3 + GAP, 3)
    for i, image in enumerate(grid):
        top, left = (i // 2) * (4 + GAP), (i % 2) * (3 + GAP)
        given = np.broadcast_to(image.reshape(4, 3, -1), (4, 3, 3))
        np.testing.assert_array_equal(drawn[top : top + 4, left : left + 3], given)
    assert (drawn[4] == 1).all(), "white between rows"
    assert (drawn[2 * (4 + GAP) :, 3:] == 1).all(), "white where there is no sixth image"


def test_bytes_and_other_limits_are_scaled_between_black_and_white():
    drawn = canvas(images(torch.tensor([[[0, 255, 51]]], dtype=torch.uint8), title="t"))
    np.testing.assert_allclose(drawn[0, :, 0], [0, 1, 0.2])
    drawn = canvas(images([[[-1.0, 1.0, 0.0]]], title="t", limits=(-1, 1)))
    np.testing.assert_allclose(drawn[0, :, 0], [0, 1, 0.5])


def test_rows_are_named_at_their_middle():
    axes = images(np.zeros((4, 6, 6)), title="t", columns=2, rows=["one", "two"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    np.testing.assert_allclose(axes.get_yticks(), [2.5, 2.5 + 6 + GAP])


@pytest.mark.parametrize(
    ("grid", "arguments", "sentence"),
    [
        (
            np.empty((0, 2, 2)),
            {},
            r"The 'grid' of images must be at least one image with a pixel. Got shape \(0, 2, 2, 1\)",
        ),
        (np.zeros((2, 2)), {}, r"must be images of shape \(n, h, w\), .* Got shape \(2, 2\)"),
        (np.zeros((1, 3, 2, 2)), {}, r"must be images of shape"),
        ([[[0.0, 1.5]]], {}, "must be within the limits 0 and 1. Got values from 0 to 1.5 instead."),
        ([[[0.0, np.nan]]], {}, "must be within the limits 0 and 1"),
        ([[[0.0]]], {"columns": 0}, "The 'columns' of images must be at least 1. Got 0"),
        ([[[0.0]]], {"rows": ["a", "b"]}, "The 'rows' of images must be 1 names. Got 2"),
        ([[[0.0]]], {"limits": (1, 1)}, "The 'limits' of images must be"),
    ],
)
def test_what_cannot_be_drawn_is_refused(grid, arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        images(grid, title="t", **arguments)
