"""Networks of a DAGAN: sizes of any side, a start near a copy, moves against a hand-made shift, pairs row by row."""

import pytest
import torch

from vestige_papers.lfiw.dagan import COPY, REACH, PairCritic, PixelGenerator, PixelMover, halves

IMAGE = (1, 9, 6)
KINDS = [PixelMover, PixelGenerator]


def inputs(n=5, image=IMAGE, codes=4):
    g = torch.Generator().manual_seed(0)
    c, h, w = image
    return torch.randn(n, codes, generator=g), torch.rand(n, c * h * w, generator=g)


def made(kind, image=IMAGE, layers=1):
    return kind(4, image, (3, 5), layers, seed=0)


def test_halves_are_rounded_up():
    assert halves((1, 9, 6), 3) == [(9, 6), (5, 3), (3, 2), (2, 1)]


@pytest.mark.parametrize("image", [(1, 8, 8), (1, 9, 6), (3, 7, 10)])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_images_of_any_size_come_out_as_they_went_in(kind, layers, image):
    z, examples = inputs(image=image)
    net = made(kind, image, layers)
    out = net(z, examples)
    assert out.shape == examples.shape
    assert bool(((out >= 0) & (out <= 1)).all())
    out.sum().backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in net.noise.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_both_noise_and_example_decide(kind):
    z, examples = inputs()
    net = made(kind).eval()
    out = net(z, examples)
    assert torch.equal(out, net(z, examples))
    assert not torch.allclose(out, net(z + 1, examples), atol=1e-5)
    assert not torch.allclose(out, net(z, examples.flip(0)), atol=1e-2)


def test_residual_convolutions_add_to_what_they_read():
    net = made(PixelMover, layers=2)
    level = net.down[0]
    x = torch.rand(2, 1, 9, 6)
    with torch.no_grad():
        for p in level.norms[1].parameters():
            p.zero_()  # the second convolution says nothing
        alone = level.eval()(x)
        first = torch.nn.functional.leaky_relu(level.norms[0](level.convs[0](x)), 0.2)
    assert torch.allclose(alone, first)


def test_a_mover_that_shifts_by_one_pixel_shifts_by_one_pixel():
    image = (1, 8, 16)
    net = made(PixelMover, image).eval()
    z, examples = inputs(image=image)
    right, down = 2 / 16, 2 / 8  # one pixel, where the whole side is 2
    with torch.no_grad():
        net.shift.weight.zero_()
        net.shift.bias.copy_(torch.atanh(torch.tensor([right, 0.0]) / (2 * REACH)))
        moved = net(z, examples).unflatten(1, (8, 16))
    pixels = examples.unflatten(1, (8, 16))
    assert torch.allclose(moved[..., :-1], pixels[..., 1:], atol=1e-5)
    assert torch.allclose(moved[..., -1], pixels[..., -1] * 0, atol=1e-5)  # beyond the border there is paper
    with torch.no_grad():
        net.shift.bias.copy_(torch.atanh(torch.tensor([0.0, 0.5 * down]) / (2 * REACH)))
        half = net(z, examples).unflatten(1, (8, 16))
    assert torch.allclose(half[:, :-1], (pixels[:, :-1] + pixels[:, 1:]) / 2, atol=1e-5)


def test_no_part_moves_further_than_the_reach():
    net = made(PixelMover)
    z, examples = inputs()
    with torch.no_grad():
        net.shift.bias.fill_(50.0)
        field = net.field(z, examples)
    assert torch.allclose(field, torch.full_like(field, 2 * REACH))


def test_a_maker_of_pixels_begins_near_a_copy():
    net = made(PixelGenerator).eval()
    z, examples = inputs()
    black_and_white = (examples > 0.5).float()
    with torch.no_grad():
        net.last.weight.zero_()
        net.last.bias.zero_()
        out = net(z, black_and_white)
    assert torch.allclose(out, torch.sigmoid(COPY * (black_and_white - 0.5)))


def test_the_critic_judges_each_pair_by_itself_and_both_of_its_members():
    critic = PairCritic(IMAGE, (3, 4), seed=0)
    _, a = inputs(6)
    _, b = inputs(6)
    b = b.flip(0)
    together = critic(b, a)
    assert together.shape == (6,)
    assert torch.allclose(together, torch.cat([critic(b[i : i + 1], a[i : i + 1]) for i in range(6)]), atol=1e-6)
    assert not torch.allclose(together, critic(a, b), atol=1e-4)
    assert not torch.allclose(together, critic(b, a.flip(1)), atol=1e-4)


def test_the_seed_alone_decides_first_weights():
    state = torch.random.get_rng_state()
    for kind in KINDS:
        one, two, other = (kind(4, IMAGE, (3, 5), 1, seed=s).state_dict() for s in (0, 0, 1))
        assert all(torch.equal(one[k], two[k]) for k in one)
        assert not torch.equal(one["noise.weight"], other["noise.weight"])
    assert torch.equal(state, torch.random.get_rng_state())
