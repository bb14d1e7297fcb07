"""The stack against closed forms: Gaussians, two modes, one law; weights, imbalance, warm starts, honesty."""

import math

import pytest
import torch

from vestige import store
from vestige.core.errors import InputError, NotFitted, StoreError, VestigeWarning
from vestige.ratios import Ratio
from vestige.ratios.stack.stack import Stack


def fast(**options):
    """The preset whose models are those of the first edition: quick, and what this file is about."""
    return Stack(**{**Stack.presets["fast"], **options})


def gaussian(n, d=2, mean=0.0, scale=1.0, seed=0):
    return mean + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def log_gaussian(x, mean, scale):
    return (-0.5 * ((x - mean) / scale) ** 2 - math.log(scale)).sum(1)


def two_modes(n, seed=0, out=2.0, scale=0.72):
    side = torch.rand(n, generator=torch.Generator().manual_seed(seed + 1)) < 0.5
    x = gaussian(n, 2, 0.0, scale, seed)
    x[:, 0] += torch.where(side, out, -out)
    return x


def skewed(n, seed, shift=0.0, scale=1.0, epsilon=0.5, delta=0.8):
    """Rotated sinh-arcsinh, 5-d, and its log-density."""
    turn = torch.linalg.qr(gaussian(5, 5, seed=7))[0]
    x = (torch.sinh((torch.asinh(gaussian(n, 5, seed=seed)) + epsilon) / delta) * scale + shift) @ turn

    def log_density(at):
        y = (at @ turn.mT - shift) / scale
        a = delta * torch.asinh(y) - epsilon
        return (-0.5 * torch.sinh(a) ** 2 + torch.log(torch.cosh(a) / (1 + y**2).sqrt() / scale)).sum(1)

    return x, log_density


def test_gaussians_two_dimensions():
    p, q = gaussian(3000), gaussian(3000, mean=0.5, scale=0.5, seed=1)
    stack = fast().fit(p, q)
    true = 2 * (math.log(0.5) + 1.25 / 0.5 - 0.5)  # 2.614
    assert float(stack.held_out_p_.mean()) == pytest.approx(true, rel=0.08)
    exact = log_gaussian(q, 0.0, 1.0) - log_gaussian(q, 0.5, 0.5)
    assert float((stack.held_out_q_ - exact).abs().mean()) < 0.1
    assert abs(stack.gap_) < 0.03


def test_two_modes_against_one():
    p, q = two_modes(4000), gaussian(4000, 2, 0.0, 0.72, 5)
    stack = fast().fit(p, q)
    x = p[:, 0]
    log_ratio = torch.logaddexp(2 * x / 0.72**2, -2 * x / 0.72**2) - math.log(2) - 2 / 0.72**2
    assert float(stack.held_out_p_.mean()) == pytest.approx(float(log_ratio.mean()), rel=0.08)
    # the quadratic alone cannot: it is the networks that carry this one
    losses = stack.report_["held_out_loss_of_models"]
    assert min(losses[2:]) < losses[0] - 0.003


def test_one_law_says_nothing():
    stack = fast().fit(gaussian(3000), gaussian(3000, seed=1))
    # chance alone makes the deviation of the mean about 0.001 where the models see something, as in this set
    assert abs(float(stack.held_out_p_.mean())) < 0.004
    assert abs(float(stack.held_out_q_.mean())) < 0.004


def test_weights_of_either_side_tilt_the_law():
    x, y = gaussian(4000, 1), gaussian(4000, 1, seed=1)
    tilt = torch.exp(x[:, 0])  # N(0, 1) tilted by exp(x) is N(1, 1)
    grid = torch.linspace(-1, 2, 9, dtype=torch.float64)[:, None]
    up = fast().fit(x, y, p_weights=tilt).log_ratio(grid)
    down = fast().fit(y, x, q_weights=tilt).log_ratio(grid)
    assert float((up - (grid[:, 0] - 0.5)).abs().max()) < 0.3
    assert float((down + (grid[:, 0] - 0.5)).abs().max()) < 0.3


def test_unequal_sizes_need_no_correction():
    p, q = gaussian(600, 1, 0.5), gaussian(6000, 1, seed=1)
    grid = torch.linspace(-1, 1.5, 9, dtype=torch.float64)[:, None]
    got = fast().fit(p, q).log_ratio(grid)
    assert float((got - (0.5 * grid[:, 0] - 0.125)).abs().max()) < 0.3  # log(n_q / n_p) would be 2.3


def test_memorising_is_held_out_and_warned_of():
    p, q = gaussian(150, 30), gaussian(150, 30, seed=1)
    with pytest.warns(VestigeWarning, match="seen in training"):
        stack = fast(stack_ridge=1.0).fit(p, q)  # the ridge keeps models in that memorise
    assert abs(float(stack.held_out_p_.mean())) < 0.1  # its own deviation over 150 rows is 0.04
    assert float(stack.log_ratio(p).mean()) > float(stack.held_out_p_.mean()) + 0.05
    assert stack.gap_ > stack.gap_warning
    # log_ratio is the mean over 3 folds, of which 2 saw the row: 3/2 of its distance to the one that did not
    assert stack.gap_ == pytest.approx(1.5 * float((stack.log_ratio(p) - stack.held_out_p_).mean()))


def test_same_seed_same_bits_and_rows_alone():
    p, q = gaussian(300, 3), gaussian(300, 3, 0.3, seed=1)
    first, second = fast().fit(p, q, seed=4), fast().fit(p, q, seed=4)
    for key, value in store.to_tensors(first).items():
        assert torch.equal(value, store.to_tensors(second)[key]), key
    alone = torch.cat([first.log_ratio(row[None]) for row in p[:20]])
    torch.testing.assert_close(alone, first.log_ratio(p)[:20], atol=1e-12, rtol=1e-12)


def test_save_and_load(tmp_path):
    p, q = gaussian(200, 2), gaussian(200, 2, 0.3, seed=1)
    stack = fast(max_steps=20, decays=(0.1,)).fit(p, q)
    loaded = Ratio.load(stack.save(tmp_path / "stack.json"))
    assert torch.equal(loaded.log_ratio(p), stack.log_ratio(p))
    assert not hasattr(loaded, "held_out_p_")
    warm = fast(max_steps=20, decays=(0.1,)).fit_from(loaded, p, q)  # a chain goes on in another process
    assert warm.report_["steps"] == 20


def test_a_ratio_of_the_first_edition_is_refused_with_what_to_do(tmp_path):
    path = store.save(tmp_path / "old.json", "ratio", {"config": {"estimator": "Stack"}, "report": {}}, {})
    with pytest.raises(StoreError, match=r"written by vestige 0\.1\.0: read it with that, or fit and save"):
        Ratio.load(path)


def test_warm_start_keeps_coordinates_and_folds_and_is_shorter():
    anchor = gaussian(3000)
    before = fast(min_steps=50).fit(anchor, gaussian(3000, mean=0.45, scale=0.55, seed=1), seed=3)
    after = fast(min_steps=50).fit_from(before, anchor, gaussian(3000, mean=0.5, scale=0.5, seed=2), seed=9)
    assert after.report_["steps"] < before.report_["steps"]
    assert after.fold_seed_ == before.fold_seed_
    for key in ("features_.standardise.shift", "features_.standardise.scale", "features_.centres"):
        assert torch.equal(store.to_tensors(after)[key], store.to_tensors(before)[key]), key
    true = 2 * (math.log(0.5) + 1.25 / 0.5 - 0.5)
    assert float(after.held_out_p_.mean()) == pytest.approx(true, rel=0.1)


def test_a_warm_start_keeps_the_share_of_the_networks_that_was_asked():
    p, q, options = gaussian(300), gaussian(300, mean=0.5, seed=1), {"epochs": 2, "warm_epochs": 2, "min_steps": 10}
    states = {}
    for keep in (0.0, 1.0):
        first = fast(keep=keep, **options).fit(p, q, seed=3)
        states[keep] = store.to_tensors(fast(keep=keep, **options).fit_from(first, p, q, seed=3))
    for key in (
        key for key in store.to_tensors(first) if key.startswith("nets_.")
    ):  # coordinates and folds are the same
        assert torch.equal(states[0.0][key], store.to_tensors(first)[key]), key
        assert not torch.equal(states[1.0][key], store.to_tensors(first)[key]), key


def test_warm_start_refuses_what_does_not_fit():
    p, q = gaussian(60, 2), gaussian(60, 2, seed=1)
    fitted = fast(max_steps=5).fit(p, q)
    with pytest.raises(NotFitted):
        fast().fit_from(fast(), p, q)
    with pytest.raises(InputError, match="same configuration"):
        fast(max_steps=6).fit_from(fitted, p, q)
    with pytest.raises(InputError, match="2 features wide"):
        fast(max_steps=5).fit_from(fitted, gaussian(60, 3), gaussian(60, 3))


@pytest.mark.parametrize(
    "options", [{"folds": 1}, {"clip": 0.0}, {"ridge": -1.0}, {"decays": (-0.1,)}, {"average": 1.0}, {"keep": 1.1}]
)
def test_senseless_settings_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        fast(**options).fit(gaussian(20), gaussian(20, seed=1))


def test_weight_on_a_single_row_is_refused():
    alone = torch.zeros(20, dtype=torch.float64)
    alone[3] = 1.0
    with pytest.raises(InputError, match="at least two rows"):
        fast().fit(gaussian(20), gaussian(20, seed=1), p_weights=alone)


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 4), (40, 2)])
def test_few_rows_and_constant_columns_give_finite_ratios(n, d):
    p, q = gaussian(n, d), gaussian(n, d, seed=1)
    p[:, 0] = q[:, 0] = 5.0
    assert bool(torch.isfinite(fast(min_steps=20).fit(p, q).log_ratio(p)).all())


@pytest.mark.slow
@pytest.mark.parametrize(("d", "mean", "scale", "within"), [(2, 0.5, 0.5, 0.06), (100, 0.2, 0.8, 0.08)])
def test_gaussians_at_full_size(d, mean, scale, within):
    p, q = gaussian(10000, d), gaussian(10000, d, mean, scale, 1)
    stack = fast().fit(p, q)
    true = d * (math.log(scale) + (1 + mean**2) / (2 * scale**2) - 0.5)
    assert float(stack.held_out_p_.mean()) == pytest.approx(true, rel=within)


@pytest.mark.slow
def test_skewed_and_heavy_tailed():
    p, log_p = skewed(10000, 0)
    q, log_q = skewed(10000, 1, 0.6, 0.65)
    stack = fast().fit(p, q)
    assert float(stack.held_out_p_.mean()) == pytest.approx(float((log_p(p) - log_q(p)).mean()), rel=0.08)


@pytest.mark.parametrize(("n", "d"), [(500, 50), (300, 10)])
def test_nothing_is_found_between_few_rows_of_many_features_of_one_distribution(n, d):
    """Centres are means of all rows of q: of too few rows each, they betray the held-out ones."""
    generator = torch.Generator().manual_seed(3)
    p, q = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
    assert float(fast().fit(p, q, seed=3).held_out_p_.mean()) < 0.02
