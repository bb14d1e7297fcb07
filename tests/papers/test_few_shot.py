"""The network of App. C.4: its layers as printed, its size, what it refuses."""

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige_papers.lfiw.table2 import FewShot


def test_four_blocks_of_64_filters_leave_64_features_of_28_pixels():
    net = FewShot((28, 28), 7, seed=0)
    kinds = [type(layer) for layer in net.body][1:-1]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d] * 4
    convs = [layer for layer in net.body if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convs] == [(1, 64, (3, 3))] + [(64, 64, (3, 3))] * 3
    assert net.head.in_features == 64
    assert net(torch.rand(3, 28, 28)).shape == (3, 7)


def test_it_is_the_same_function_with_and_without_the_axis_of_channels():
    net = FewShot((8, 12), 2, seed=0, filters=3, blocks=2).eval()
    x = torch.rand(4, 8, 12)
    assert net.head.in_features == 3 * 2 * 3
    assert torch.equal(net(x), net(x.unsqueeze(1)))
    by_hand = x.unsqueeze(1)
    for layer in list(net.body)[1:]:
        by_hand = layer(by_hand)
    assert torch.allclose(net(x), net.head(by_hand), atol=1e-6)


def test_images_too_small_for_the_blocks_are_refused():
    FewShot((8, 8), 2, seed=0, filters=2, blocks=3)
    with pytest.raises(InputError, match="16 x 16 pixels at least"):
        FewShot((8, 28), 2, seed=0)
