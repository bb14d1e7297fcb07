"""The networks of CDRE App. A.3: parameters counted by hand, sizes, and which rows hear of which."""

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.nets.gan import ConditionalCritic, ConditionalGenerator

IMAGE = (1, 28, 28)
SMALL, PAPER = {"filters": (3, 4)}, {"filters": (64, 128)}
CONDITIONS = torch.tensor([0, 1, 2, 1])


def count(net):
    return sum(p.numel() for p in net.parameters())


def test_generator_has_the_parameters_of_the_appendix():
    net = ConditionalGenerator(64, 10, (1024,), IMAGE, **PAPER, keep=1.0, bounded=True, seed=0)
    dense = (74 * 1024 + 1024) + 2 * 1024 + (1024 * 6272 + 6272) + 2 * 6272  # each with batch norm
    assert count(net) == dense + (4 * 4 * 64 * 128 + 64) + (4 * 4 * 1 * 64 + 1)
    assert bool((net.get_buffer("gates_0") == 1).all())
    assert bool((net.get_buffer("gates_1") == 1).all())


@pytest.mark.parametrize("norm", [True, False])
def test_critic_has_the_parameters_of_the_appendix(norm):
    net = ConditionalCritic(IMAGE, 10, (1024,), **PAPER, projection=False, norm=norm, seed=0)
    convolutions = (4 * 4 * 1 * 64 + 64) + (4 * 4 * 64 * 128 + 128)
    dense = (6272 + 10) * 1024 + 1024 + (1024 + 1)
    assert count(net) == convolutions + dense + norm * (2 * 128 + 2 * 1024)


@pytest.mark.parametrize("image", [(1, 28, 28), (3, 8, 12)])
def test_images_come_out_in_the_size_they_go_in(image):
    generator = ConditionalGenerator(5, 3, (6,), image, **SMALL, keep=0.5, bounded=True, seed=0).eval()
    made = generator(torch.randn(4, 5), CONDITIONS).detach()
    assert made.shape == (4, image[0] * image[1] * image[2])
    assert 0 < float(made.min()) < float(made.max()) < 1
    assert ConditionalCritic(image, 3, (6,), **SMALL, projection=True, norm=True, seed=0)(made, CONDITIONS).shape == (
        4,
    )


def test_without_normalisation_a_row_is_judged_alone_and_with_it_is_not():
    x = torch.rand(4, 64, generator=torch.Generator().manual_seed(0))
    for norm in (False, True):
        critic = ConditionalCritic((1, 8, 8), 3, (6,), **SMALL, projection=False, norm=norm, seed=0)
        apart = torch.cat([critic(x[i : i + 2], CONDITIONS[i : i + 2]) for i in (0, 2)])
        assert torch.allclose(critic(x, CONDITIONS), apart, atol=1e-5) != norm


def test_batch_norm_stands_on_the_second_convolution_and_the_first_dense_layer():
    critic = ConditionalCritic((1, 8, 8), 3, (6, 5), **SMALL, projection=False, norm=True, seed=0)
    assert [type(layer) for layer in critic.shrink].index(nn.BatchNorm2d) == 4
    assert [isinstance(layer, nn.BatchNorm1d) for layer in critic.hidden] == [False, True, False, False, False]


def test_the_condition_reaches_both():
    generator = ConditionalGenerator(5, 3, (6,), (1, 8, 8), **SMALL, keep=1.0, bounded=True, seed=0).eval()
    critic = ConditionalCritic((1, 8, 8), 3, (6,), **SMALL, projection=False, norm=False, seed=0)
    z = torch.randn(1, 5).expand(3, 5)
    made = generator(z, torch.arange(3))
    assert len(made.unique(dim=0)) == 3
    assert len(critic(made[:1].expand(3, 64), torch.arange(3)).unique()) == 3


@pytest.mark.parametrize("image", [(1, 30, 28), (1, 28, 27)])
def test_sides_that_do_not_halve_twice_are_refused(image):
    with pytest.raises(InputError, match="sides are multiples of 4"):
        ConditionalGenerator(5, 3, (6,), image, **PAPER, keep=1.0, bounded=True, seed=0)
    with pytest.raises(InputError, match="sides are multiples of 4"):
        ConditionalCritic(image, 3, (6,), **PAPER, projection=False, norm=True, seed=0)
