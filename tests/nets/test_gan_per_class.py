"""The networks of VGR's generators: shapes, widths as printed, and upsampling that is folded into a convolution."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from vestige.core.errors import InputError
from vestige.nets.gan import (
    CODES,
    UpConv,
    conv_class_generator,
    conv_discriminator,
    dense_class_generator,
    dense_discriminator,
)


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (1, 4, 1, 1), (3, 1, 2, 7)])
def test_the_folded_convolution_is_upsampling_and_a_convolution(shape):
    torch.manual_seed(0)
    layer, x = UpConv(shape[1], 2).double(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    plain = functional.conv2d(functional.interpolate(x, scale_factor=2), layer.weight, layer.bias, padding=2)
    torch.testing.assert_close(layer(x), plain)
    grads = [torch.autograd.grad(y.square().sum(), (layer.weight, layer.bias, x)) for y in (layer(x), plain)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_the_widths_in_print():
    dense = dense_class_generator((256, 512, 1024), 784, "sigmoid")
    assert [m.out_features for m in dense.modules() if isinstance(m, nn.Linear)] == [256, 512, 1024, 784]  # C.4
    conv = conv_class_generator((28, 28), (128, 64), "sigmoid")
    assert [(m.out_channels, m.kernel_size) for m in conv.modules() if isinstance(m, UpConv)] == [
        (64, (5, 5)),
        (1, (5, 5)),
    ]  # C.5
    slopes = {m.negative_slope for net in (dense, conv) for m in net.modules() if isinstance(m, nn.LeakyReLU)}
    assert slopes == {0.2}


@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (6, 7), (3, 10, 9)])
def test_images_of_any_size_are_made_and_judged(shape):
    width = torch.Size(shape).numel()
    made = conv_class_generator(shape, (4, 3), "sigmoid")(torch.randn(5, CODES))
    assert made.shape == (5, width)
    assert 0 <= float(made.detach().min()) <= float(made.detach().max()) <= 1
    assert conv_discriminator(shape, (3, 4))(made).shape == (5,)
    made = dense_class_generator((7, 6), width, "linear")(100 * torch.randn(5, CODES))
    assert made.shape == (5, width)
    assert float(made.detach().min()) < 0
    assert dense_discriminator((6,), width)(made).shape == (5,)


def test_what_is_no_image_is_refused():
    with pytest.raises(InputError, match="'input_shape' of conv_class_generator"):
        conv_class_generator((7,), (4, 3), "sigmoid")
