"""The network of Farquhar and Gal C.8.1 against torch's own functions."""

import pytest
import torch
from torch.nn import functional

from vestige.core.errors import InputError
from vestige.nets import Conv, build_net
from vestige.nets.convolutional import Images


def test_it_is_two_convolutions_a_pooling_layer_and_two_linear_layers():
    net = Conv((28, 28), (128,), 10, seed=0)
    shapes = [tuple(p.shape) for p in net.parameters() if p.ndim > 1]
    assert shapes == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 64 * 12 * 12), (10, 128)]
    w1, b1, w2, b2, w3, b3, w4, b4 = net.parameters()
    x = torch.rand(2, 28, 28)
    h = functional.conv2d(functional.conv2d(x[:, None], w1, b1).relu(), w2, b2).relu()
    h = functional.max_pool2d(h, 2).flatten(1)
    torch.testing.assert_close(net(x), (h @ w3.T + b3).relu() @ w4.T + b4)


@pytest.mark.parametrize("shape", [(5, 8), (3,), (3, 5, 5)])
def test_what_is_no_image_or_too_small_is_refused(shape):
    with pytest.raises(InputError, match="'input_shape' of Conv"):
        Conv(shape, (4,), 2, seed=0)


@pytest.mark.parametrize("name", ["table4", "resnet18_reduced"])
def test_where_channels_lie_in_memory_changes_nothing_but_the_time(name):
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net, plain = (build_net(name, (3, 8, 8), 5).eval() for _ in range(2))
    images = next(module for module in plain.modules() if isinstance(module, Images))
    assert net.body[0](x).is_contiguous(memory_format=torch.channels_last)
    images.memory_format = torch.preserve_format
    torch.testing.assert_close(net(x), plain(x))
    theirs = torch.autograd.grad(plain(x).square().sum(), list(plain.parameters()))
    for mine, other in zip(torch.autograd.grad(net(x).square().sum(), list(net.parameters())), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
