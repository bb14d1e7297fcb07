"""The gradient penalty against a loop over rows, finite differences and closed forms."""

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.generators.adversarial import WGANGP, Player, gradient_penalty
from vestige.nets.gan import ConditionalCritic

CONDITIONS = torch.tensor([0, 1, 2, 1, 0])


def rows(n=5, d=3, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def critic():
    return ConditionalCritic((3,), 3, (6, 5), projection=True, seed=0).double()


def test_penalty_against_a_loop_over_rows():
    net, x = critic(), rows()
    total = 0.0
    for row, c in zip(x, CONDITIONS, strict=True):
        row = row[None].clone().requires_grad_()
        net(row, c[None]).backward()
        total += (float(row.grad.square().sum()) ** 0.5 - 1) ** 2
    assert float(gradient_penalty(net, x, CONDITIONS).detach()) == pytest.approx(total / 5)
    assert not x.requires_grad


def test_gradient_of_the_penalty_against_finite_differences():
    net, x, h = critic(), rows(), 1e-6
    (gradient,) = torch.autograd.grad(gradient_penalty(net, x, CONDITIONS), [net.hidden[0].weight])
    for i, j in ((0, 0), (3, 2), (5, 1)):
        ends = []
        for move in (h, -h):
            with torch.no_grad():
                net.hidden[0].weight[i, j] += move
            ends.append(float(gradient_penalty(net, x, CONDITIONS).detach()))
            with torch.no_grad():
                net.hidden[0].weight[i, j] -= move
        assert float(gradient[i, j]) == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-5)
    assert gradient.abs().max() > 1e-3


class Plane(nn.Module):
    """A critic of slope `slope` everywhere that remembers where it was asked."""

    def __init__(self, slope, d):
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), slope / d**0.5))

    def forward(self, x, conditions):
        self.asked = x.detach()
        return x @ self.weight


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.5])
def test_penalty_of_a_plane_is_the_distance_of_its_slope_from_one(slope):
    x = rows(dtype=torch.float32)
    assert float(gradient_penalty(Plane(slope, 3), x, CONDITIONS).detach()) == pytest.approx((slope - 1) ** 2, abs=1e-6)


def test_points_lie_between_a_real_and_a_generated_row_of_one_condition():
    generator = WGANGP(shape=(3,), conditions=3, hidden=(4,), critic_hidden=(4,), bounded=False, penalty=7.0)
    generator.critic_ = Plane(2.0, 3)
    real, fake = rows(seed=1, dtype=torch.float32), rows(seed=2, dtype=torch.float32)
    terms = generator.critic_terms(real, fake, CONDITIONS, torch.Generator().manual_seed(3))
    shares = (generator.critic_.asked - fake) / (real - fake)
    assert torch.allclose(shares, shares[:, :1].expand(-1, 3), atol=1e-4)  # one share a row
    assert 0 < float(shares.min()) < float(shares.max()) < 1
    assert shares[:, 0].std() > 0.05
    distance = float((real - fake).mean(0).sum()) * 2 / 3**0.5
    assert float(terms["distance"].detach()) == pytest.approx(distance, abs=1e-5)
    assert float(terms["penalty"].detach()) == pytest.approx(1.0, abs=1e-5)
    assert float(terms["critic"].detach()) == pytest.approx(7.0 - distance, abs=1e-4)


@pytest.mark.slow
def test_critic_finds_the_wasserstein_distance_of_two_gaussians():
    """N(3, 1) and N(0, 1) are W = 3 apart; a slope s costs penalty (s - 1)^2, so the best is 1 + W / (2 penalty)."""
    made = {"shape": (1,), "conditions": 1, "hidden": (4,), "critic_hidden": (16,), "bounded": False, "penalty": 10.0}
    generator = WGANGP(**made)
    noise, nobody = torch.Generator().manual_seed(0), torch.zeros(256, dtype=torch.int64)
    critic, found = Player(generator.critic_, 1e-2, (0.5, 0.99)), []
    for _ in range(300):
        real, fake = 3 + torch.randn(256, 1, generator=noise), torch.randn(256, 1, generator=noise)
        terms = generator.critic_terms(real, fake, nobody, noise)
        critic.descend(terms["critic"], None)
        found.append(float(terms["distance"].detach()))
    assert sum(found[-100:]) / 100 == pytest.approx(3 * (1 + 3 / 20), rel=0.05)


def test_the_generator_climbs_the_critic():
    assert float(WGANGP(shape=(3,)).generator_loss(torch.tensor([1.0, 3.0]))) == -2.0


def test_a_penalty_below_nothing_is_refused():
    with pytest.raises(InputError, match="The 'penalty' of WGANGP must be"):
        WGANGP(penalty=-1.0)
