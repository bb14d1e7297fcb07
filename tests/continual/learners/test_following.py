"""The weights of samples against data that is gone: known ratios of Gaussians, what is refused, and going on."""

import math

import pytest
import torch
from torch import nn

from vestige.continual.learners.weighted_replay import (
    FrozenEncoder,
    GeneratorFollower,
    WeightedReplayConfig,
    tempered,
)
from vestige.core.errors import NotEstimable
from vestige.generators.vae import VAE
from vestige.store import restore_tensors, to_tensors

N = 1500


class Known(VAE):
    """Two numbers that are their own code, drawn from N(`at`, 1)."""

    at = 0.0

    def sample(self, n, task, *, seed=0):
        return self.at + torch.randn(n, 2, generator=torch.Generator().manual_seed(seed % 2**31 + task))


def known(at=0.0):
    made = Known(shape=(2,), conditions=4, codes=2, encoder=(2,), decoder=(2,), likelihood="gaussian")
    made.net_.encoder = nn.Linear(2, 4)
    with torch.no_grad():
        made.net_.encoder.weight.copy_(torch.eye(4, 2))
        made.net_.encoder.bias.copy_(torch.tensor([0.0, 0.0, -40.0, -40.0]))  # codes without noise
    made.at, made.known_ = at, (0,)
    return made


def follower(**options):
    return GeneratorFollower(WeightedReplayConfig(chain_samples=N, **options), known())


def real(n=N, seed=1):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))


def log_ratio_of_gaussians(x, at):
    """log N(x; 0, I) - log N(x; at, I)."""
    return ((x - at).square().sum(1) - x.square().sum(1)).double() / 2


class TestTempered:
    def test_weights_that_are_worth_enough_are_the_ratio_itself(self):
        log_r = torch.tensor([0.0, math.log(2), math.log(3)], dtype=torch.float64) + 5.0
        found, told = tempered(log_r, 0.3)
        torch.testing.assert_close(found, torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64))
        assert told.alpha == 1
        assert told.mean_weight == pytest.approx(2 * math.exp(5))
        assert told.ess == told.raw_ess == pytest.approx(36 / 14 / 3)

    def test_others_keep_their_order_and_the_least_ess(self):
        log_r = torch.linspace(-20, 20, 200, dtype=torch.float64)
        found, told = tempered(log_r, 0.4)
        assert found.mean().item() == pytest.approx(1)
        assert (found.diff() > 0).all()
        assert found.sum().square() / found.square().sum() / 200 == pytest.approx(0.4, abs=1e-6)
        assert told.ess == pytest.approx(0.4, abs=1e-6)
        assert told.raw_ess < 0.05
        torch.testing.assert_close(found.log().diff(), told.alpha * log_r.diff())


class TestFrozenEncoder:
    def test_without_blur_it_is_the_encoder_of_then(self):
        generator = VAE(shape=(6,), codes=3, encoder=(8,), decoder=(8,), steps=4, conditions=2, collapse=0.0)
        x = torch.rand(40, 6)
        generator.fit(x, 0)
        eye, codes = FrozenEncoder(generator), generator.encode(x)
        generator.fit(torch.rand(40, 6), 1)
        torch.testing.assert_close(eye.code(x, 0.0, torch.Generator()), codes)
        assert not torch.allclose(generator.encode(x), codes)

    def test_a_drawn_code_has_the_mean_and_the_spread_of_the_encoder(self):
        eye = FrozenEncoder(known())
        with torch.no_grad():
            eye.encoder.bias[2:] = torch.tensor([0.0, math.log(4.0)])
        drawn = eye.code(torch.ones(20000, 2), 0.5, torch.Generator().manual_seed(0))
        torch.testing.assert_close(drawn.mean(0), torch.ones(2), atol=0.03, rtol=0)
        torch.testing.assert_close(drawn.std(0), torch.tensor([0.5, 1.0]), atol=0.02, rtol=0)


class TestFollower:
    def test_ratios_are_those_of_the_gaussians_also_when_the_data_is_gone(self):
        follow, x = follower(), real(400, seed=9)
        for at, data in ((0.4, {0: real()}), (0.8, {})):
            follow.step(known(at), data, seed=3)
            found, true = follow.log_ratio(x, 0, seed=5), log_ratio_of_gaussians(x, at)
            assert not follow.refused_
            assert torch.corrcoef(torch.stack([found, true]))[0, 1] > 0.98
            assert (found - true).abs().mean() < 0.15

    def test_a_condition_is_seen_by_the_encoder_of_its_arrival_ever_after(self):
        """The next generator's encoder puts every code five further."""
        follow, x = follower(), real(400, seed=9)
        follow.step(known(0.4), {0: real()}, seed=3)
        later = known(0.8)
        with torch.no_grad():
            later.net_.encoder.bias[:2] += 5.0
        follow.step(later, {1: real(seed=4)}, seed=3)
        assert follow.arrival_ == {0: 0, 1: 1}
        assert not follow.refused_
        for condition in (0, 1):
            found, true = follow.log_ratio(x, condition, seed=5), log_ratio_of_gaussians(x, 0.8)
            assert (found - true).abs().mean() < 0.15

    def test_data_samples_and_what_is_weighed_are_all_seen_through_drawn_codes(self):
        """Codes of deviation one around N(0, I) and N(0.8, I): the ratio is that of N(0, 2 I) to N(0.8, 2 I)."""
        generator, follow, x, at = known(0.8), follower(), real(4000, seed=9), 0.8
        with torch.no_grad():
            generator.net_.encoder.bias[2:] = 0.0
        follow.step(generator, {0: real()}, seed=3)
        found = follow.log_ratio(x, 0, seed=5)
        off = found - log_ratio_of_gaussians(x, at) / 2  # of the code's mean; linear, so right on average
        assert off.mean().abs() < 0.1
        assert off.std().item() == pytest.approx(at / 2 * math.sqrt(2), rel=0.15)
        assert torch.equal(found, follow.log_ratio(x, 0, seed=5))
        assert not torch.equal(found, follow.log_ratio(x, 0, seed=6))

    def test_mass_that_a_generator_lost_is_moved_back(self, monkeypatch):
        """Two modes, half of the data each, one of which is a tenth of the samples: weights of 5/9 and 5."""

        def two_modes(n, rare, seed):
            g = torch.Generator().manual_seed(seed % 2**31)
            return torch.randn(n, 2, generator=g) * 0.5 + 2.0 - 4.0 * (torch.rand(n, 1, generator=g) > rare)

        monkeypatch.setattr(Known, "sample", lambda self, n, task, *, seed=0: two_modes(n, 0.1, seed))
        follow = follower()
        for data in ({0: two_modes(N, 0.5, 8)}, {}):
            follow.step(known(), data, seed=2)
            x = two_modes(2000, 0.1, 9)
            weights, told = tempered(follow.log_ratio(x, 0, seed=1), 0.3)
            rare = x[:, 0] > 0
            assert rare.double().mean() < 0.13
            assert 0.42 < (weights * rare).mean() < 0.58
            assert told.mean_weight == pytest.approx(1, abs=0.15)

    def test_what_is_unknown_or_has_few_rows_weighs_one(self):
        follow = follower()
        generator = known(0.4)
        generator.known_ = (0, 1)
        follow.step(generator, {0: real(), 1: real(99)}, seed=0)
        assert follow.refused_ == {1: "fewer than 100 rows of data"}
        assert (follow.log_ratio(real(5), 1, seed=0) == 0).all()
        assert (follow.log_ratio(real(5), 3, seed=0) == 0).all()
        assert (follow.log_ratio(real(5), 0, seed=0) != 0).all()

    def test_a_condition_with_data_twice_weighs_one_ever_after(self):
        follow = follower()
        follow.step(known(0.4), {0: real()}, seed=0)
        follow.step(known(0.4), {0: real(seed=4)}, seed=1)
        follow.step(known(0.4), {}, seed=2)
        assert follow.refused_ == {0: "came with data twice"}
        assert (follow.log_ratio(real(5), 0, seed=0) == 0).all()

    def test_what_the_chain_refuses_weighs_one(self):
        follow = follower()
        follow.step(known(6.0), {0: real()}, seed=0)
        follow.step(known(6.0), {}, seed=1)
        assert "cannot be estimated" in follow.refused_[0]
        assert (follow.log_ratio(real(5), 0, seed=0) == 0).all()

    def test_a_step_that_fails_leaves_the_chain_and_weighs_one_until_the_next(self, monkeypatch):
        follow = follower()
        follow.step(known(0.4), {0: real()}, seed=0)

        def fails(*_, **__):
            raise NotEstimable("No.")

        with monkeypatch.context() as patch:
            patch.setattr(follow.chain, "step", fails)
            follow.step(known(0.4), {}, seed=1)
        assert follow.refused_ == {0: "No."}
        follow.step(known(0.4), {}, seed=1)
        assert not follow.refused_
        assert follow.chain.steps == 2

    def test_conditions_that_came_in_a_step_that_failed_weigh_one_for_good(self, monkeypatch):
        follow = follower()
        follow.step(known(0.4), {0: real()}, seed=0)

        def fails(*_, **__):
            raise NotEstimable("No.")

        with monkeypatch.context() as patch:
            patch.setattr(follow.chain, "step", fails)
            follow.step(known(0.4), {1: real(seed=4)}, seed=1)
        assert follow.refused_ == {0: "No.", 1: "No."}
        follow.step(known(0.4), {}, seed=2)
        assert follow.refused_ == {1: "No."}
        assert follow.arrival_ == {0: 0}
        assert (follow.log_ratio(real(5), 1, seed=0) == 0).all()

    def test_what_is_barred_stays_so_when_it_goes_on_from_its_state(self):
        one, other = follower(), follower()
        one.step(known(0.4), {0: real(), 1: real(99)}, seed=0)
        restore_tensors(other, to_tensors(one))
        assert other.refused_ == other.barred_ == {1: "fewer than 100 rows of data"}
        other.step(known(0.4), {1: real(seed=4)}, seed=1)
        assert other.refused_ == {1: "came with data twice"}

    def test_it_goes_on_from_its_state_to_the_same_bits(self):
        one, other = follower(), follower()
        one.step(known(0.4), {0: real()}, seed=0)
        restore_tensors(other, {key: value.clone() for key, value in to_tensors(one).items()})
        for each in (one, other):
            each.step(known(0.6), {}, seed=1)
        assert torch.equal(one.log_ratio(real(9), 0, seed=2), other.log_ratio(real(9), 0, seed=2))
        a, b = to_tensors(one), to_tensors(other)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)

    def test_no_code_of_the_data_is_kept(self):
        follow, data = follower(), real()
        follow.step(known(0.4), {0: data}, seed=0)
        codes = FrozenEncoder(known()).code(data, 1.0, torch.Generator())
        for key, held in to_tensors(follow).items():
            if held.ndim == 2 and held.shape[1] == 2:
                assert torch.cdist(held.float(), codes).min() > 0, key
