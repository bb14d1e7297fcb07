"""The loss against torch's own distributions; codes that are known; tables whose moments come back."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn import functional

from toys import blobs
from vestige.core import rng
from vestige.core.errors import InputError, NotEstimable
from vestige.generators.base import ReplaySource
from vestige.generators.vae import VAE, Scale
from vestige.nets.vae import gaussian_nll

# so little training may leave samples that hardly differ
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
SMALL = {"shape": (4,), "conditions": 2, "codes": 2, "encoder": (8,), "decoder": (8, 8), "batch_size": 32}


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_nll_is_the_density_of_a_gaussian_with_a_variance_a_column():
    x, mean, variance = draws(6, 5), draws(6, 5, seed=1), draws(5, seed=2).exp()
    expected = -Independent(Normal(mean, variance.sqrt()), 1).log_prob(x)
    torch.testing.assert_close(gaussian_nll(x, mean, variance), expected)


def parts(vae, x, codes, noise):
    """Mean, deviation and code of each row, by the definition."""
    mean, log_var = vae.net_.encode(vae.scale_(x))
    deviation = (log_var / 2).exp()
    return mean, deviation, torch.where(codes.isnan(), mean + noise * deviation, codes)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_the_loss_is_the_negative_evidence_bound_and_where_codes_are_known_that_of_the_pair(likelihood):
    vae = VAE(**SMALL, likelihood=likelihood)
    vae.scale_.log_variance.data = draws(4, seed=8)
    x, noise, c = torch.rand(6, 4, generator=rng.fork(0, "x")), draws(6, 2, seed=3), torch.tensor([0, 1, 0, 1, 0, 1])
    codes = draws(6, 2, seed=4)
    codes[:3] = math.nan
    nll, cost = vae._terms(x, c, codes, noise)
    mean, deviation, z = parts(vae, x, codes, noise)
    decoded = vae.net_.decode(z, c)
    if likelihood == "bernoulli":
        expected = functional.binary_cross_entropy(decoded.sigmoid(), x, reduction="none").sum(1)
    else:
        variance = vae.least + vae.scale_.log_variance.exp()
        expected = -Independent(Normal(decoded, variance.sqrt()), 1).log_prob(x)
    torch.testing.assert_close(nll, expected)
    kl = [
        kl_divergence(MultivariateNormal(m, torch.diag(s**2)), MultivariateNormal(torch.zeros(2), torch.eye(2)))
        for m, s in zip(mean, deviation, strict=True)
    ]
    sleep = -Independent(Normal(mean, deviation), 1).log_prob(z)
    torch.testing.assert_close(cost, torch.cat([torch.stack(kl)[:3], sleep[3:]]))


def test_known_codes_train_the_encoder_by_the_pair_alone():
    """No gradient of the decoder's error reaches the encoder through a code that was not inferred."""
    vae = VAE(**SMALL)
    x, c, codes = torch.rand(5, 4, generator=rng.fork(0, "x")), torch.zeros(5, dtype=torch.int64), draws(5, 2)
    nll, _ = vae._terms(x, c, codes, draws(5, 2, seed=1))
    nll.sum().backward()
    assert all(p.grad is None or float(p.grad.abs().sum()) == 0 for p in vae.net_.encoder.parameters())
    assert float(vae.net_.last.weight.grad.abs().sum()) > 0


def test_own_replay_comes_with_the_codes_that_it_decodes_from():
    vae = VAE(**SMALL, steps=5).fit(torch.rand(40, 4, generator=rng.fork(0, "x")), 0)
    new = torch.rand(10, 4, generator=rng.fork(1, "x"))
    source = ReplaySource(new, torch.ones(10, dtype=torch.int64), [0], vae.copy().draw)
    rows, c = vae._paired(source).epoch(10, rng.fork(0, "test"))
    x, codes = rows[:, :4], rows[:, 4:]
    assert bool(codes[c == 1].isnan().all())
    torch.testing.assert_close(vae.net_.decode(codes[c == 0], c[c == 0]).sigmoid(), x[c == 0])
    without = replace_pairs(vae)._paired(source).epoch(10, rng.fork(0, "test"))[0]
    assert bool(without[:, 4:].isnan().all())
    given = vae._paired(ReplaySource(new, torch.ones(10, dtype=torch.int64), [0], {0: new})).epoch(
        10, rng.fork(0, "test")
    )[0]
    assert bool(given[:, 4:].isnan().all())
    assert not bool(given[:, :4].isnan().any())


def replace_pairs(vae):
    other = vae.copy()
    other.pairs = False
    return other


@pytest.mark.slow
def test_what_was_drawn_from_a_code_stays_nearly_the_same():
    """The point of pairs: after another condition was learnt, the same code gives nearly the same sample."""
    moved = {}
    for pairs in (True, False):
        vae = VAE(
            shape=(36,), conditions=2, codes=2, encoder=(32,), decoder=(32, 32), steps=300, batch_size=32, pairs=pairs
        )
        before = vae.fit(bars(0), 0).sample(200, 0)
        after = vae.fit(bars(1), 1).sample(200, 0)
        moved[pairs] = float((after - before).square().mean().sqrt())
    assert moved[True] < 0.7 * moved[False]


def bars(kind, n=300):
    """Images of 6 x 6 with a bar somewhere, upright or lying: one number decides each."""
    where = torch.rand(n, 1, 1, generator=rng.fork(0, "bars")) * 5
    lit = torch.exp(-(torch.arange(6.0)[None, :, None] - where).square()).expand(n, 6, 6)
    return (lit if kind else lit.transpose(1, 2)).flatten(1).contiguous()


def test_a_table_keeps_its_means_scales_and_correlation():
    """Columns of very different scale, one of them constant, correlated at 0.8; two conditions apart."""
    z = draws(3000, 4)
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    x = z * torch.tensor([1.0, 100.0, 0.01, 0.0]) + torch.tensor([0.0, 5e4, 3.0, 7.0])
    vae = VAE(**{**SMALL, "batch_size": 128}, likelihood="gaussian", steps=400, learning_rate=1e-2)
    vae.fit(x, 0).fit(x + torch.tensor([4.0, 0.0, 0.0, 0.0]), 1)
    for c, shift in ((0, 0.0), (1, 4.0)):
        drawn = vae.sample(3000, c)
        far = (drawn.mean(0) - x.mean(0))[:3] / x.std(0)[:3] - torch.tensor([shift, 0.0, 0.0])
        assert float(far.abs().max()) < 0.5
        assert float((drawn.std(0)[:3] / x.std(0)[:3] - 1).abs().max()) < 0.3
        assert float(torch.corrcoef(drawn.T)[0, 1]) > 0.5
        assert float(drawn[:, 3].mean()) == pytest.approx(7, abs=0.2)


def test_scale_is_there_and_back():
    scale, x = Scale(3, 0.1), draws(50, 3) * torch.tensor([1.0, 1000.0, 0.0]) + 5
    scale.learn(x)
    standard = scale(x)
    torch.testing.assert_close(standard.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scale.back(standard), x)


@pytest.mark.slow
def test_the_noise_never_falls_below_its_floor():
    """A constant column has no noise of its own: its samples vary by the floor alone."""
    x = draws(500, 4)
    x[:, 3] = 2.0
    vae = VAE(**SMALL, likelihood="gaussian", steps=300, learning_rate=2e-2, least=0.04).fit(x, 0)
    assert float(vae.sample(4000, 0)[:, 3].std()) > 0.19


@pytest.mark.slow
def test_codes_tell_samples_apart_and_need_no_condition():
    data = blobs(n_classes=2, per_class=200)
    x, y = data.floats(data.train_x), data.train_y
    vae = VAE(
        shape=(6, 6),
        conditions=2,
        codes=2,
        encoder=(32,),
        decoder=(32, 32),
        steps=300,
        batch_size=32,
        learning_rate=5e-3,
    )
    vae.fit(x, y)
    codes = vae.encode(data.train_x)  # bytes like floats
    assert codes.shape == (400, 2)
    assert torch.equal(codes, vae.encode(x))
    assert not codes.requires_grad
    torch.testing.assert_close(codes, vae.net_.encode(x.flatten(1))[0])
    with pytest.raises(InputError, match=r"'x' of VAE.encode"):
        vae.encode(x[:, :5])


def test_pixels_beyond_black_and_white_are_refused_and_settings_too():
    vae = VAE(**SMALL)
    for x in (torch.full((3, 4), 1.5), torch.full((3, 4), -0.1)):
        with pytest.raises(InputError, match=r"'x' of VAE.fit must be in \[0, 1\]"):
            vae.fit(x, 0)
    with pytest.raises(InputError, match=r"in \[0, 1\]"):
        vae.fit(torch.rand(3, 4, generator=rng.fork(0, "x")), 0, {1: torch.full((3, 4), 2.0)})
    for options in (
        {"likelihood": "poisson"},
        {"codes": 0},
        {"encoder": ()},
        {"decoder": (0,)},
        {"keep": 0.0},
        {"keep": 1.1},
        {"learning_rate": -1.0},
        {"least": 0.0},
        {"noise": 0.0},
        {"fresh": 1.0},
        {"steps": 0},
        {"batch_size": 0},
    ):
        (name,) = options
        with pytest.raises(InputError, match=f"'{name}' of VAE"):
            VAE(**{**SMALL, **options})


def test_divergence_is_said_and_changes_nothing():
    vae = VAE(**SMALL, likelihood="gaussian", steps=60, learning_rate=1e12)
    with pytest.raises(NotEstimable, match="diverged at step"):
        vae.fit(draws(50, 4), 0)
    assert vae.known_ == ()
    assert replace(vae, learning_rate=1e-3).learning_rate == 1e-3
