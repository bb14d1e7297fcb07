"""The classifier of CDRE App. A.1: shapes, parameters counted by hand, SAME padding against a direct sum."""

import pytest
import torch
from torch import nn

from vestige.nets.convolutional import SameConv, StridedConv, same_padding


def count(net):
    return sum(p.numel() for p in net.parameters())


def test_parameters_are_those_of_the_appendix():
    convolutions = (4 * 4 * 1 * 64 + 64) + (4 * 4 * 64 * 128 + 128) + 2 * 128  # the last: batch norm
    lean = convolutions + (6272 * 64 + 64) + 2 * 64 + (64 * 10 + 10)
    assert count(StridedConv((1, 28, 28), 10, seed=0)) == lean == 534_794
    with torch.device("meta"):  # 40 million weights are counted, not drawn
        literal = StridedConv((1, 28, 28), 10, dense=(6272, 64), seed=0)
    dense = (6272 * 6272 + 6272) + 2 * 6272 + (6272 * 64 + 64)
    assert count(literal) == convolutions + dense + (64 * 10 + 10) == 39_891_466


def test_batch_norm_stands_on_the_second_convolution_and_the_first_dense_layer():
    net = StridedConv((1, 28, 28), 10, dense=(32, 16), seed=0)
    kinds = [type(layer) for layer in net.body]
    assert kinds == [
        *(SameConv, nn.ReLU),
        *(SameConv, nn.BatchNorm2d, nn.ReLU, nn.Flatten),
        *(nn.Linear, nn.BatchNorm1d, nn.ReLU),
        *(nn.Linear, nn.ReLU),
    ]


@pytest.mark.parametrize("image", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (1, 5, 7)])
def test_shapes(image):
    net = StridedConv(image, 10, seed=0).eval()
    x = torch.rand(3, *image)
    features = net.body(x).detach()
    assert features.shape == (3, 64)
    assert float(features.min()) >= 0  # after ReLU
    torch.testing.assert_close(net(x), net.head(features))


@pytest.mark.parametrize("size", range(1, 10))
def test_same_padding_leaves_half_rounded_up(size):
    before, after = same_padding(size)
    assert (size + before + after - 4) // 2 + 1 == -(-size // 2)
    assert after - before in (0, 1)  # the odd zero comes last, as in TensorFlow


def test_a_convolution_is_the_sum_over_its_window():
    conv = SameConv(1, 2)
    x = torch.rand(1, 1, 5, 5)
    padded = torch.zeros(8, 8)
    padded[1:6, 1:6] = x[0, 0]  # 5 -> 3 needs (3 - 1) * 2 + 4 - 5 = 3 zeros: one before, two after
    out = conv(x)
    assert out.shape == (1, 2, 3, 3)
    for i in range(3):
        for j in range(3):
            window = padded[2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
            expected = (conv.weight[:, 0] * window).sum((1, 2)) + conv.bias
            torch.testing.assert_close(out[0, :, i, j], expected)


def test_widening_keeps_what_the_head_knew():
    net = StridedConv((1, 8, 8), 3, seed=0).eval()
    x = torch.rand(4, 1, 8, 8)
    before = net(x)
    net.widen(2, seed=0)
    assert torch.equal(net(x), before)
    net.widen(5, seed=0)
    assert net(x).shape == (4, 5)
    torch.testing.assert_close(net(x)[:, :3], before)
