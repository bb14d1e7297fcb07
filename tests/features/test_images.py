"""How pixels lie: every accepted layout gives the same image."""

import pytest
import torch

from vestige.core.errors import InputError
from vestige.features.rows import Layout

IMAGE = torch.rand(5, 3, 4, 6, generator=torch.Generator().manual_seed(0))


def test_channels_first_last_and_flat_are_the_same_image():
    last = IMAGE.permute(0, 2, 3, 1).contiguous()
    assert torch.equal(Layout.of((3, 4, 6), None, "t")(IMAGE.flatten(1)), IMAGE)
    assert torch.equal(Layout.of((4, 6, 3), None, "t")(last.flatten(1)), IMAGE)
    assert torch.equal(Layout.of((72,), (4, 6, 3), "t")(last.flatten(1)), IMAGE)
    assert torch.equal(Layout.of((4, 6), None, "t")(IMAGE[:, 0].flatten(1)), IMAGE[:, :1])


@pytest.mark.parametrize(
    ("shape", "image", "sentence"),
    [
        ((72,), None, "flat rows whose shape the option 'image' gives"),
        ((72,), (5, 5), r"as wide as images of \(5, 5\)"),
        ((72,), (2, 6, 6), "grey or colour"),
        ((2, 4, 6), None, "grey or colour"),
        ((1, 2, 3, 4), None, "grey or colour"),
        ((4, 6), (6, 4), r"images of shape \(6, 4\)"),
    ],
)
def test_refusals(shape, image, sentence):
    with pytest.raises(InputError, match=sentence):
        Layout.of(shape, image, "test")
