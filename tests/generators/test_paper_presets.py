"""The published networks on rows of MNIST's size, a few steps of each: sizes of print, numbers that stay finite."""

import math

import pytest
import torch

from vestige import generators

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning"),  # so little training draws much the same
]
# What is cut: nothing but the length of training.
STEPS, EPOCHS = {"steps": 2}, {"epochs": 1}
SHORT = {"fgan": STEPS, "wgan": STEPS, "wgan_gp": STEPS, "vae": STEPS, "gan_conv": EPOCHS, "gan_dense": EPOCHS}
KINDS = [
    *((name, "paper", {}) for name in SHORT),
    *(("fgan", "paper", {"divergence": divergence}) for divergence in ("kl", "hellinger", "pearson")),
    ("fgan", "paper_reverse_kl", {}),
]


def rows(seed):
    return torch.rand(64, 28, 28, generator=torch.Generator().manual_seed(seed))


def weights(net):
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize(
    ("name", "preset", "options"), KINDS, ids=lambda v: "-".join(v.values()) if isinstance(v, dict) else v
)
def test_two_conditions_are_learnt_and_everything_stays_finite(name, preset, options):
    generator = generators.build(name, preset=preset, conditions=10, **SHORT[name], **options)
    for c in (0, 1):
        generator.fit(rows(c), c, seed=c)
        curves = generator.report_["curves"].values()
        assert all(math.isfinite(value) for curve in curves for value in curve)
    assert generator.report_["steps"] >= 1
    drawn = generator.sample_each([0, 1] * 8, seed=2)
    assert drawn.shape == (16, 28, 28)
    assert 0 <= float(drawn.min()) < float(drawn.max()) <= 1
    # what it occupies is what its networks are made of: at most 64 MB of single precision
    assert 4 * sum(map(weights, generator._nets())) <= generator.bytes() < 64e6


def test_conditional_gans_have_the_layers_of_the_appendix():
    """CDRE App. A.3, ten conditions one-hot beside the noise and beside the critic's flattened convolutions."""
    made = {name: generators.build(name, preset="paper", conditions=10) for name in ("fgan", "wgan", "wgan_gp")}
    dense = (64 + 10) * 1024 + 1024 + 1024 * 6272 + 6272
    norms = 2 * (1024 + 6272)
    transposed = 4 * 4 * 128 * 64 + 64 + 4 * 4 * 64 * 1 + 1
    judge = 4 * 4 * 1 * 64 + 64 + 4 * 4 * 64 * 128 + 128 + (6272 + 10) * 1024 + 1024 + 1024 + 1
    for name, generator in made.items():
        assert weights(generator.generator_) == dense + norms + transposed
        assert weights(generator.critic_) == judge + (0 if name == "wgan_gp" else 2 * (128 + 1024))


def test_a_gan_for_each_class_has_the_layers_of_the_appendix():
    """Farquhar and Gal C.4 and C.5, a code of 100 and batch normalisation, which are not printed."""
    weights_of = {}
    for name in ("gan_dense", "gan_conv"):
        generator = generators.build(name, preset="paper", conditions=10)
        weights_of[name] = weights(generator._pair()[0])
    dense = 100 * 256 + 256 + 256 * 512 + 512 + 512 * 1024 + 1024 + 1024 * 784 + 784
    assert weights_of["gan_dense"] == dense + 2 * (256 + 512 + 1024)
    conv = 100 * 128 * 49 + 128 * 49 + 5 * 5 * 128 * 64 + 64 + 5 * 5 * 64 * 1 + 1
    assert weights_of["gan_conv"] == conv + 2 * (128 + 64)
