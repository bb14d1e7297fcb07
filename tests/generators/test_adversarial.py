"""The loop that all GANs share: it learns Gaussians, tells collapse and divergence, counts what it did."""

import math

import pytest
import torch

from vestige import generators
from vestige.core.errors import InputError, NotEstimable, VestigeWarning
from vestige.generators.adversarial import WGAN

TINY = {
    "shape": (4, 4),
    "conditions": 3,
    "hidden": (8,),
    "critic_hidden": (8,),
    "codes": 3,
    "batch_size": 8,
    "steps": 20,
}
KINDS = [
    *(("fgan", {"divergence": name}) for name in ("js", "kl", "reverse_kl", "hellinger", "pearson")),
    ("wgan", {"clip": 0.2, "critic_steps": 3}),
    ("wgan_gp", {"critic_steps": 3, "critic_learning_rate": 1e-2, "penalty": 1.0, "betas": (0.0, 0.9)}),
]


def pixels(n=40, seed=0):
    return torch.rand(n, 4, 4, generator=torch.Generator().manual_seed(seed))


def gaussian(mean, deviation, seed):
    noise = torch.randn(600, 2, generator=torch.Generator().manual_seed(seed))
    return torch.tensor(mean) + deviation * noise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), KINDS, ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else v
)
def test_each_learns_the_gaussians_of_two_conditions(name, options):
    settings = {"hidden": (32, 32), "critic_hidden": (32, 32), "codes": 4, "bounded": False, "steps": 120}
    rates = {"learning_rate": 5e-3, "critic_learning_rate": 5e-3, "average": 0.95}
    generator = generators.build(name, shape=(2,), conditions=2, **settings | rates | options)
    truth = {0: ([-2.0, 0.0], 0.5), 1: ([1.0, 1.0], 1.0)}
    x = torch.cat([gaussian(mean, deviation, c) for c, (mean, deviation) in truth.items()])
    generator.fit(x, torch.arange(2).repeat_interleave(600), seed=1)
    for c, (mean, deviation) in truth.items():
        drawn = generator.sample(2000, c, seed=5)
        assert drawn.mean(0).tolist() == pytest.approx(mean, abs=0.5)
        assert 0.45 * deviation < float(drawn.std(0).mean()) < 1.55 * deviation


class Broken(WGAN):
    """Its critic's loss is no number from the 8th step on."""

    name = "broken"

    def critic_terms(self, real, fake, conditions, noise):
        self.calls = getattr(self, "calls", 0) + 1
        terms = super().critic_terms(real, fake, conditions, noise)
        return {"critic": terms["critic"] * (math.nan if self.calls >= 8 else 1)}


def test_divergence_is_told_with_its_step_and_changes_nothing():
    generator = Broken(**TINY)
    before = generator.state_dict()
    with pytest.raises(NotEstimable, match="The training of broken diverged at step 8"):
        generator.fit(pixels(), 0)
    after = generator.state_dict()
    assert generator.known_ == ()
    assert all(torch.equal(before[key], after[key]) for key in before)


class Constant(WGAN):
    """Its generator loses all weights that lead from the noise."""

    name = "constant"

    def constrain(self):
        super().constrain()
        with torch.no_grad():
            self.generator_.last.weight.zero_()


def test_a_collapse_is_told_by_condition():
    generator = Constant(**TINY, average=0.0, learning_rate=1e-6)
    with pytest.warns(VestigeWarning, match="constant has collapsed: its samples of condition 0 hardly differ"):
        generator.fit(pixels(), 0)
    assert generator.report_["collapsed"] == [0]


class Counting(WGAN):
    """Counts the rows and the steps of the critic."""

    name = "counting"

    def critic_terms(self, real, fake, conditions, noise):
        assert len(real) == len(fake) == len(conditions) == self.batch_size
        self.judged = getattr(self, "judged", 0) + 1
        return super().critic_terms(real, fake, conditions, noise)


@pytest.mark.parametrize(("steps", "epochs", "judged", "made"), [(20, 99, 60, 20), (None, 6, 30, 10)])
def test_steps_are_the_generators_and_epochs_the_critics(steps, epochs, judged, made):
    generator = Counting(**TINY | {"steps": steps, "epochs": epochs, "critic_steps": 3})
    generator.fit(pixels(40), 0)  # 5 batches of 8
    assert generator.judged == judged
    assert generator.report_["steps"] == made
    assert {len(curve) for curve in generator.report_["curves"].values()} == {min(made, 50)}


class Watched(WGAN):
    """Notes the generator's last weights before each of its steps."""

    name = "watched"

    def constrain(self):
        super().constrain()
        self.noted = [*getattr(self, "noted", []), self.generator_.last.weight.detach().clone()]


def test_a_fit_leaves_the_mean_of_the_generators_weights():
    last, mean = (Watched(**TINY | {"steps": 3}, average=keep).fit(pixels(), 0, seed=3) for keep in (0.0, 0.9))
    one, two, three = (*last.noted[1:], last.generator_.last.weight)
    assert torch.allclose(mean.generator_.last.weight, (one + two + three) / 3, atol=1e-7)
    # once a plain mean of so many would keep more than `average`, it keeps that
    half = Watched(**TINY | {"steps": 3}, average=0.5).fit(pixels(), 0, seed=3)
    assert torch.allclose(half.generator_.last.weight, (one + two) / 4 + three / 2, atol=1e-7)
    assert not torch.allclose(one, two, atol=1e-5)


def test_a_sample_does_not_depend_on_what_is_drawn_beside_it():
    generator = WGAN(**TINY)
    for c in range(3):
        generator.fit(pixels(seed=c), c, seed=c)
    mixed = generator.sample_each([0, 1, 2, 1], seed=4)
    alone = generator.sample_each([0, 0, 0, 0], seed=4)
    assert torch.allclose(mixed[0], alone[0], atol=1e-6)
    assert not torch.allclose(mixed[1], alone[1], atol=1e-3)


def test_the_share_of_clipped_gradients_is_reported():
    reports = [WGAN(**TINY, gradient_clip=clip).fit(pixels(), 0).report_ for clip in (1e-9, 1e9, None)]
    assert reports[0]["gradient_clipped"] == {"generator": 1.0, "critic": 1.0}
    assert reports[1]["gradient_clipped"] == {"generator": 0.0, "critic": 0.0}
    assert "gradient_clipped" not in reports[2]


def test_values_outside_the_bounds_are_refused_where_samples_are_bounded():
    with pytest.raises(InputError, match=r"The 'x' of WGAN.fit must be in \[0, 1\]"):
        WGAN(**TINY).fit(2 * pixels(), 0)
    with pytest.raises(InputError, match=r"The 'x' of WGAN.fit must be in \[0, 1\]"):
        WGAN(**TINY).fit(pixels(), 0, {1: pixels() - 1})
    WGAN(**TINY, bounded=False).fit(2 * pixels(), 0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("net", "resnet"), ("hidden", ()), ("hidden", (0,)), ("critic_hidden", ()), ("codes", 0), ("epochs", 0)),
        *(
            ("critic_steps", 0),
            ("batch_size", 1),
            ("steps", 0),
            ("betas", (0.5,)),
            ("betas", (0.5, 1.0)),
            ("average", 1.0),
        ),
        *(
            ("keep", 0.0),
            ("learning_rate", 0.0),
            ("critic_learning_rate", -1.0),
            ("gradient_clip", 0.0),
            ("gradient_clip", math.nan),
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(option, value):
    with pytest.raises(InputError, match=f"The '{option}' of WGAN must be"):
        WGAN(**TINY | {option: value})


@pytest.mark.parametrize("name", ["fgan", "wgan", "wgan_gp"])
def test_convolutions_learn_too(name):
    """The preset of the paper, cut down to a size that a test can train."""
    small = {"shape": (8, 8), "conditions": 2, "codes": 3, "hidden": (8,), "critic_hidden": (8,), "batch_size": 8}
    generator = generators.build(name, preset="paper", **small, steps=2)
    generator.fit(torch.rand(20, 8, 8), 0, seed=0).fit(torch.rand(20, 8, 8), 1, seed=1)
    assert generator.sample(3, 1).shape == (3, 8, 8)
    normalised = any(isinstance(m, torch.nn.BatchNorm2d) for m in generator.critic_.modules())
    assert normalised == (name != "wgan_gp")


def test_preset_of_the_paper_is_that_of_the_appendix():
    for name in ("fgan", "wgan", "wgan_gp"):
        kind = generators.GENERATORS[name]
        paper = kind.presets["paper"]
        assert (paper["net"], paper["hidden"], paper["critic_hidden"], paper["epochs"]) == (
            "conv",
            (1024,),
            (1024,),
            15,
        )
        made = {
            "batch_size": kind.batch_size,
            "learning_rate": kind.learning_rate,
            "critic_learning_rate": kind.critic_learning_rate,
            "codes": kind.codes,
        } | paper
        assert (made["batch_size"], made["learning_rate"], made["critic_learning_rate"], made["codes"]) == (
            64,
            1e-3,
            2e-4,
            64,
        )
        assert (paper["keep"], paper["projection"]) == (1.0, False)
    assert generators.GENERATORS["fgan"].presets["paper_reverse_kl"]["epochs"] == 6
