"""Each bound at its optimum is the divergence; each generator goes towards the data; exponents stay within limits."""

import math

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.generators.adversarial import FGAN, activation, conjugate, limited
from vestige.ratios.divergences.gaussian import Gaussian, gaussian_divergence

# our name, the closed form's, and the critic's output at which r is the ratio (the table of `ratios.losses`)
OPTIMA = {
    "kl": ("kl", lambda log_r: log_r + 1),
    "reverse_kl": ("reverse_kl", lambda log_r: log_r),
    "js": ("js", lambda log_r: log_r),
    "hellinger": ("hellinger2", lambda log_r: log_r / 2),
    "pearson": ("pearson_chi2", lambda log_r: 2 * torch.expm1(log_r)),
}
P, Q = Gaussian.isotropic(0.6, 0.9, 1), Gaussian.isotropic(0.0, 1.0, 1)
MADE = {"shape": (1,), "conditions": 1, "hidden": (4,), "critic_hidden": (4,), "bounded": False}
LIMIT = 10.0


class Best(nn.Module):
    """The critic that knows both densities."""

    def __init__(self, divergence):
        super().__init__()
        self.read = OPTIMA[divergence][1]

    def forward(self, x, conditions):
        x = x.double()
        return self.read(P.log_prob(x) - Q.log_prob(x)).float()


class Level(nn.Module):
    """A critic that gives every row the same value."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x, conditions):
        return torch.full((len(x),), self.value)


def with_best_critic(divergence, **options):
    generator = FGAN(**MADE, divergence=divergence, **options)
    generator.critic_ = Best(divergence)
    return generator


@pytest.mark.parametrize("divergence", OPTIMA)
def test_bound_at_the_best_critic_is_the_divergence(divergence):
    noise, n = torch.Generator().manual_seed(0), 200_000
    real, fake = P.sample(n, generator=noise).float(), Q.sample(n, generator=noise).float()
    terms = with_best_critic(divergence).critic_terms(real, fake, torch.zeros(n, dtype=torch.int64), noise)
    truth = gaussian_divergence(OPTIMA[divergence][0], P, Q)
    assert -float(terms["critic"]) == pytest.approx(truth, rel=0.03)
    assert float(terms["limited"]) == 0


@pytest.mark.parametrize("divergence", OPTIMA)
def test_no_other_critic_does_better(divergence):
    noise, n = torch.Generator().manual_seed(0), 100_000
    real, fake = P.sample(n, generator=noise).float(), Q.sample(n, generator=noise).float()
    nobody, best = torch.zeros(n, dtype=torch.int64), with_best_critic(divergence)
    value = float(best.critic_terms(real, fake, nobody, noise)["critic"])
    read = best.critic_.read
    for worse in (lambda log_r: read(log_r) * 0.7, lambda log_r: read(log_r) + 0.3, lambda log_r: read(1.3 * log_r)):
        best.critic_.read = worse
        assert float(best.critic_terms(real, fake, nobody, noise)["critic"]) > value + 1e-4


@pytest.mark.parametrize("term", ["auto", "conjugate", "activation"])
@pytest.mark.parametrize("divergence", OPTIMA)
def test_generator_goes_towards_the_data(divergence, term):
    """The data lies to the right of the samples: a step right lowers the loss."""
    generator = with_best_critic(divergence, generator_term=term)
    shift = torch.zeros(1, requires_grad=True)
    fake = Q.sample(20_000, generator=torch.Generator().manual_seed(0)).float() + shift
    loss = generator.generator_loss(generator.critic_(fake, torch.zeros(20_000, dtype=torch.int64)))
    (slope,) = torch.autograd.grad(loss, shift)
    assert float(slope) < -1e-2


def test_which_term_the_generator_takes():
    v = torch.tensor([-1.0, 0.5, 2.0])
    for divergence in OPTIMA:
        expected = conjugate if divergence == "reverse_kl" else activation
        auto = FGAN(**MADE, divergence=divergence).generator_loss(v)
        assert float(auto) == pytest.approx(-float(expected(divergence, v, LIMIT).mean()))
    minimax = FGAN(**MADE, divergence="js", generator_term="conjugate").generator_loss(v)
    assert float(minimax) == pytest.approx(-float(conjugate("js", v, LIMIT).mean()))


@pytest.mark.parametrize(
    ("divergence", "shares"), [("kl", 1 / 8), ("reverse_kl", 2 / 8), ("hellinger", 3 / 8), ("js", 0), ("pearson", 0)]
)
def test_exponents_are_limited_and_counted(divergence, shares):
    v_real = torch.tensor([-1000.0, -10.5, 0.0, 1000.0])
    v_fake = torch.tensor([-1000.0, -50.0, 9.5, 1000.0])
    assert float(limited(divergence, v_real, v_fake, LIMIT)) == pytest.approx(shares)
    assert bool(activation(divergence, v_real, LIMIT).isfinite().all())
    assert bool(conjugate(divergence, v_fake, LIMIT).isfinite().all())


def test_within_the_limit_nothing_is_changed_and_beyond_it_terms_go_on_straight():
    v = torch.tensor([-9.9, 0.0, 9.9])
    assert conjugate("kl", v, LIMIT).tolist() == pytest.approx([math.exp(x - 1) for x in v.tolist()], rel=1e-4)
    assert activation("reverse_kl", v, LIMIT).tolist() == pytest.approx([-math.exp(-x) for x in v.tolist()], rel=1e-4)
    for divergence in ("kl", "hellinger"):
        at, near, far = conjugate(divergence, torch.tensor([10.0, 10.001, 12.0]).double(), LIMIT).tolist()
        below = float(conjugate(divergence, torch.tensor([9.999]).double(), LIMIT))
        assert (near - at) / (at - below) == pytest.approx(1, rel=1e-2)  # no kink
        assert (far - at) / 2 == pytest.approx((near - at) / 0.001, rel=1e-3)  # straight
    for divergence in ("reverse_kl", "hellinger"):
        at, near, far = activation(divergence, torch.tensor([-10.0, -10.001, -12.0]).double(), LIMIT).tolist()
        below = float(activation(divergence, torch.tensor([-9.999]).double(), LIMIT))
        assert (near - at) / (at - below) == pytest.approx(1, rel=1e-2)
        assert (far - at) / 2 == pytest.approx((near - at) / 0.001, rel=1e-3)


@pytest.mark.parametrize("divergence", OPTIMA)
def test_a_critic_gains_nothing_by_moving_every_output_beyond_the_limit(divergence):
    generator, bounds = FGAN(**MADE, divergence=divergence, exponent_limit=2.0), []
    for level in (0.0, -100.0, 100.0):
        generator.critic_ = Level(level)
        terms = generator.critic_terms(
            torch.zeros(4, 1), torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), torch.Generator()
        )
        bounds.append(-float(terms["critic"]))
    assert bounds[0] > max(bounds[1:]) + 1


@pytest.mark.parametrize(("option", "value"), [("divergence", "jss"), ("generator_term", "x"), ("exponent_limit", 0.0)])
def test_settings_that_cannot_be_used_are_refused(option, value):
    with pytest.raises(InputError, match=f"The '{option}' of FGAN must be"):
        FGAN(**MADE | {option: value})


@pytest.mark.parametrize(("divergence", "bound"), [("kl", -math.exp(-1)), ("reverse_kl", 0.0), ("hellinger", 0.0)])
def test_where_there_are_exponentials_each_fit_begins_without_a_verdict(divergence, bound):
    """At v = 0 the bound is known, whatever the critic said before."""
    generator = FGAN(**MADE, divergence=divergence, steps=1, batch_size=8)
    with torch.no_grad():
        generator.critic_.last.shared.bias.fill_(-7.0)
    generator.known_ = (0,)  # as after an earlier fit: weights are not drawn anew
    generator.fit(torch.randn(20, 1, generator=torch.Generator().manual_seed(0)), 0)
    assert generator.report_["curves"]["critic"] == pytest.approx([-bound], abs=1e-6)
