"""The demo's generator: learns what it is shown, rehearses with its own samples, and repeats itself by seed."""

import pytest
import torch

from vestige import data
from vestige.cli.demo.drift import DigitGenerator, GeneratorConfig, by_digit

SHORT = GeneratorConfig(hidden=64, steps=400)
BRIEF = GeneratorConfig(hidden=16, steps=20)


@pytest.fixture(scope="module")
def digits():
    return by_digit(data.load("digits"), 2)


@pytest.fixture(scope="module")
def trained(digits):
    generator = DigitGenerator(SHORT, n_pixels=64, n_digits=2, seed=0)
    for x in digits:
        generator.learn(x)
    return generator


@pytest.mark.slow
def test_samples_of_a_digit_are_nearer_to_its_own_mean_than_to_the_other(trained, digits):
    for own in (0, 1):
        mean = trained.sample(300, own, seed=1).mean(0)
        assert (mean - digits[own].mean(0)).norm() < 0.5 * (mean - digits[1 - own].mean(0)).norm()


def test_samples_carry_the_noise_of_the_likelihood(digits):
    generator = DigitGenerator(BRIEF, n_pixels=64, n_digits=2, seed=0)
    generator.learn(digits[0])
    noise = generator.sample(500, 0, seed=2) - generator.sample(500, 0, seed=2, noise=False)
    assert float(noise.var()) == pytest.approx(BRIEF.variance, rel=0.05)


def test_the_old_digit_is_rehearsed_from_samples_alone(digits):
    """The second digit's training may not depend on the first digit's rows: they are erased before."""
    first = digits[0].clone()
    kept, erased = (DigitGenerator(BRIEF, n_pixels=64, n_digits=2, seed=0) for _ in range(2))
    kept.learn(digits[0])
    erased.learn(first)
    first.fill_(torch.nan)
    for generator in (kept, erased):
        generator.learn(digits[1])
    assert torch.equal(kept.sample(5, 0, seed=3), erased.sample(5, 0, seed=3))
