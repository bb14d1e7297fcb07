"""A GAN for each condition: its losses, what it learns, and that nothing that was learnt is touched again."""

import math

import pytest
import torch

from vestige import generators
from vestige.core.errors import InputError, NotEstimable, StoreError
from vestige.generators.per_class import ConvGAN, DenseGAN, discriminator_loss, generator_loss

SMALL = {"widths": (32, 32), "critic_widths": (64, 32), "output": "linear", "batch_size": 64, "learning_rate": 4e-3}


def gaussian(mean, scale, n=640, seed=0):
    return mean + scale * torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))


def test_losses_against_probabilities():
    """Goodfellow et al. (2014): -log D(x) - log(1 - D(G(z))), and -log D(G(z)) for the generator."""
    real, drawn = torch.tensor([0.3, -2.0, 1.0]).double(), torch.tensor([-0.5, 4.0]).double()
    p, q = (1 / (1 + (-t).exp()) for t in (real, drawn))
    assert float(discriminator_loss(real, drawn)) == pytest.approx(float(-p.log().mean() - (1 - q).log().mean()))
    assert float(generator_loss(drawn)) == pytest.approx(float(-q.log().mean()))
    far = torch.tensor([-200.0])
    assert float(generator_loss(far)) == pytest.approx(200.0), "it does not saturate where the judge is sure"
    assert float(discriminator_loss(-far, far)) == pytest.approx(0.0)
    assert float(discriminator_loss(torch.zeros(3), torch.zeros(3))) == pytest.approx(2 * math.log(2))


@pytest.fixture(scope="module")
def two_means():
    generator = DenseGAN(shape=(2,), conditions=3, epochs=25, average=0.9, **SMALL)
    x = torch.cat([gaussian(3.0, 0.5), gaussian(-1.0, 1.0, seed=1)])
    return generator.fit(x, torch.tensor([0, 2]).repeat_interleave(640), seed=3)


@pytest.mark.slow
def test_each_condition_is_learnt_by_itself(two_means):
    for c, mean, scale in ((0, 3.0, 0.5), (2, -1.0, 1.0)):
        drawn = two_means.sample(4000, c, seed=1)
        torch.testing.assert_close(drawn.mean(0), torch.full((2,), mean), atol=0.4, rtol=0)
        assert all(0.4 * scale < float(s) < 1.8 * scale for s in drawn.std(0))


def test_what_was_learnt_stays_to_the_bit_and_nothing_is_replayed(two_means):
    before = two_means.copy()
    after = two_means.copy().fit(gaussian(0.0, 0.1, n=70), 1, seed=8)
    assert after.known_ == (0, 1, 2)
    for c in (0, 2):
        assert torch.equal(after.sample(5, c, seed=2), before.sample(5, c, seed=2))
    alone = DenseGAN(shape=(2,), conditions=3, epochs=25, average=0.9, **SMALL).fit(gaussian(0.0, 0.1, n=70), 1, seed=8)
    assert torch.equal(after.sample(5, 1, seed=2), alone.sample(5, 1, seed=2)), "what came before has no part in it"
    assert after.report_["steps"] == 25 * (70 // 64)


def test_a_condition_does_not_depend_on_those_it_comes_with():
    x, y = torch.cat([gaussian(0.0, 1.0, 40), gaussian(5.0, 1.0, 40)]), torch.arange(2).repeat_interleave(40)
    options = {"shape": (2,), "conditions": 2, "epochs": 3, **SMALL}
    both = DenseGAN(**options).fit(x, y, seed=1)
    one = DenseGAN(**options).fit(x[y == 1], 1, seed=1)
    assert torch.equal(both.sample(4, 1), one.sample(4, 1))
    again = DenseGAN(**options).fit(x, y, seed=1).fit(x[y == 1], 1, seed=1)
    assert torch.equal(again.sample(4, 1), one.sample(4, 1)), "a condition that returns is learnt anew"


def test_the_mean_of_the_weights_is_kept_if_it_is_asked_for():
    x = gaussian(0.0, 1.0, 20)
    options = {"shape": (2,), "conditions": 1, "collapse": 0.0, **SMALL, "batch_size": 20}
    first, second = (DenseGAN(epochs=n, **options).fit(x, 0, seed=1).state_dict() for n in (1, 2))
    for average, held in ((0.25, 0.25), (0.9, 0.5)):  # never more of the first weights than of any other step's
        averaged = DenseGAN(epochs=2, average=average, **options).fit(x, 0, seed=1).state_dict()
        kept = [k for k, v in averaged.items() if k.startswith("generators_.0.") and v.is_floating_point()]
        assert kept
        for k in kept:
            torch.testing.assert_close(averaged[k], held * first[k] + (1 - held) * second[k], atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_only_generators_of_what_was_learnt_are_held_and_stored(two_means, tmp_path):
    state = two_means.state_dict()
    assert {".".join(key.split(".")[:2]) for key in state} == {"json", "spread_", "generators_.0", "generators_.2"}
    loaded = generators.load(two_means.save(tmp_path / "gan.json"))
    assert torch.equal(loaded.sample(3, 2), two_means.sample(3, 2))
    assert loaded.bytes() == two_means.bytes() > DenseGAN(shape=(2,), conditions=3, **SMALL).bytes()
    other = DenseGAN(shape=(2,), conditions=3, **SMALL).fit(gaussian(0.0, 1.0, 64), 1)
    before = other.sample(3, 1)
    del state["generators_.2.0.bias"]
    with pytest.raises(StoreError, match=r"generators_\.2\.0\.bias"):
        other.load_state_dict(state)
    assert torch.equal(other.sample(3, 1), before)


def test_divergence_is_said_and_changes_nothing():
    generator = DenseGAN(shape=(2,), conditions=1, epochs=3, **(SMALL | {"learning_rate": 1e38}))
    with pytest.raises(NotEstimable, match="gan_dense diverged on condition 0"):
        generator.fit(gaussian(0.0, 1.0, 64), 0)
    assert generator.known_ == ()
    assert generator.state_dict().keys() == {"json", "spread_"}


def test_presets_are_as_printed_and_small():
    dense, conv = (generators.build(name, preset="paper") for name in ("gan_dense", "gan_conv"))
    assert (dense.epochs, conv.epochs) == (200, 50)
    assert {(g.learning_rate, g.beta1, g.average) for g in (dense, conv)} == {(2e-4, 0.5, 0.0)}
    assert (dense.widths, conv.filters) == ((256, 512, 1024), (128, 64))
    for kind in (DenseGAN, ConvGAN):
        assert generators.build(kind.name, preset="small").config() != kind().config()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gan_dense", {"widths": ()}),
        ("gan_dense", {"critic_widths": (0,)}),
        ("gan_dense", {"batch_size": 1}),
        ("gan_dense", {"average": 1.0}),
        ("gan_dense", {"beta1": 1.0}),
        ("gan_dense", {"learning_rate": 0.0}),
        ("gan_dense", {"epochs": 0}),
        ("gan_dense", {"output": "relu"}),
        ("gan_conv", {"filters": (3,)}),
        ("gan_conv", {"critic_filters": (3, 0)}),
        ("gan_conv", {"shape": (5,)}),
    ],
)
def test_settings_that_cannot_be_used_are_refused(kind, options):
    with pytest.raises(InputError, match=f"'{'input_shape' if 'shape' in options else next(iter(options))}' of"):
        generators.build(kind, **options)
