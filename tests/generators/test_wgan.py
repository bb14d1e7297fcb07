"""Clipped weights, and which way each network goes."""

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.generators.adversarial import WGAN, Player

ONE = {
    "shape": (1,),
    "conditions": 1,
    "hidden": (8,),
    "critic_hidden": (8,),
    "codes": 2,
    "batch_size": 32,
    "bounded": False,
}
NOBODY = torch.zeros(32, dtype=torch.int64)


def noise(seed=0):
    return torch.Generator().manual_seed(seed)


def test_no_weight_of_the_critic_leaves_the_bounds_and_the_generators_do():
    generator = WGAN(**ONE, clip=0.05, critic_learning_rate=1e-2, learning_rate=1e-2, steps=30)
    before = float(generator.critic_.last.shared.weight.detach().abs().max())
    generator.fit(3 + torch.randn(50, 1, generator=noise()), 0)
    largest = max(float(p.detach().abs().max()) for p in generator.critic_.parameters())
    assert before > 0.05 == pytest.approx(largest)
    assert max(float(p.detach().abs().max()) for p in generator.generator_.parameters()) > 0.05


def test_loss_is_the_difference_of_means():
    generator = WGAN(**ONE)
    real, fake = torch.randn(32, 1, generator=noise(1)), torch.randn(32, 1, generator=noise(2))
    value = {name: generator.critic_(x, NOBODY).detach() for name, x in (("real", real), ("fake", fake))}
    terms = {name: term.detach() for name, term in generator.critic_terms(real, fake, NOBODY, noise()).items()}
    assert list(terms) == ["critic"]
    assert float(terms["critic"]) == pytest.approx(float(value["fake"].mean() - value["real"].mean()), abs=1e-6)
    assert float(generator.generator_loss(value["fake"])) == pytest.approx(-float(value["fake"].mean()))


class Level(nn.Module):
    """A critic that likes large numbers."""

    def forward(self, x, conditions):
        return x.squeeze(1)


def test_the_critic_learns_to_value_the_real_and_the_generator_to_be_valued():
    generator = WGAN(**ONE, clip=0.5)
    real, fake = 2 + torch.randn(32, 1, generator=noise(1)), torch.randn(32, 1, generator=noise(2))
    critic = Player(generator.critic_, 1e-2, (0.5, 0.99))
    for _ in range(20):
        critic.descend(generator.critic_terms(real, fake, NOBODY, noise())["critic"], None)
        generator.constrain()
    value_real, value_fake = generator.compared(real, fake, NOBODY)
    assert value_real.mean() > value_fake.mean() + 0.1

    generator.critic_ = Level()
    player = Player(generator.generator_, 1e-2, (0.5, 0.99))
    before = float(generator._draw(NOBODY, noise(3)).detach().mean())
    for _ in range(5):
        values = generator.critic_(generator._draw(NOBODY, noise(3)), NOBODY)
        player.descend(generator.generator_loss(values), None)
    assert float(generator._draw(NOBODY, noise(3)).detach().mean()) > before + 0.01


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_bounds_that_leave_nothing_are_refused(clip):
    with pytest.raises(InputError, match="The 'clip' of WGAN must be"):
        WGAN(**ONE, clip=clip)
