"""The batched Gaussian ensemble: the law it learns, the fold that each member leaves aside, constant columns."""

import pytest
import torch

from vestige.core.errors import InputError
from vestige.nets import BatchedMLP
from vestige.policy import dynamics
from vestige.policy.dynamics import GaussianEnsemble, Settings, bounded, fit_ensemble, nll, padded
from vestige.ratios.standardise import Standardiser

SMALL = Settings(hidden=(16,), steps=400, check_every=50, learning_rate=1e-2)


@pytest.fixture(scope="module")
def fitted():
    """y0 = 2 x0 - x1 + noise whose deviation depends on x0; y1 is constant."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 2, generator=g, dtype=torch.float64)
    deviation = torch.where(x[:, 0] > 0, 0.5, 0.1)
    y0 = 2 * x[:, 0] - x[:, 1] + deviation * torch.randn(3000, generator=g, dtype=torch.float64)
    y = torch.stack([y0, torch.full_like(y0, 7.0)], 1)
    folds = torch.arange(3000) % 5
    ensemble, report = fit_ensemble(x, y, folds, 3, SMALL, 0)
    return x, y, folds, ensemble, report


def test_mean_and_deviation_are_those_of_the_law(fitted):
    ensemble = fitted[3]
    x = torch.tensor([[1.0, 0.5], [-1.0, 0.5], [1.0, -1.0]]).expand(3, 3, 2)
    mean, deviation = ensemble(x)
    assert mean[:, :, 0].mean(0).tolist() == pytest.approx([1.5, -2.5, 3.0], abs=0.1)
    assert deviation[:, :, 0].mean(0).tolist() == pytest.approx([0.5, 0.1, 0.5], abs=0.08)


def test_a_constant_column_is_known_exactly(fitted):
    mean, deviation = fitted[3](torch.zeros(3, 4, 2))
    assert (mean[:, :, 1] == 7).all()
    assert (deviation[:, :, 1] == 0).all()
    assert fitted[3].varying.tolist() == [0]


def test_a_member_never_learns_from_its_fold(fitted):
    """Poison in fold 1 moves every member but member 1: rows there decide only where it stops."""
    x, y, folds, _, _ = fitted
    poisoned = torch.where(folds[:, None] == 1, 100 * torch.ones_like(y), y)
    one_step = Settings(hidden=(16,), steps=1, check_every=1, input_clip=50.0)
    start = [fit_ensemble(x, y_, folds, 3, one_step, 0)[0].net.weights[0] for y_ in (y, y)]
    assert torch.equal(*start)
    # In units of y's deviation the healthy rows differ too, so the poison goes in after standardising.
    taught = [[], []]
    for i, y_ in enumerate((y[:, :1], poisoned[:, :1])):
        net = BatchedMLP.initial(3, [2, 16, 2], generator=torch.Generator().manual_seed(0), skip=True)
        same = [Standardiser(torch.zeros(d), torch.ones(d)) for d in (2, 1)]
        ensemble = GaussianEnsemble(net, *same, torch.tensor([0]), Settings(hidden=(16,), steps=3, check_every=9))
        dynamics._train(ensemble, x.float(), y_.float(), folds, 0, lambda _: None)
        taught[i] = net.weights[0].detach()
    moved = (taught[0] != taught[1]).flatten(1).any(1)
    assert moved.tolist() == [True, False, True]


def test_members_differ_and_a_seed_repeats(fitted):
    x, y, folds, _, _ = fitted
    short = Settings(hidden=(16,), steps=20)
    states = [fit_ensemble(x, y, folds, 3, short, seed)[0].net.parameters() for seed in (0, 0, 1)]
    assert all(torch.equal(one, other) for one, other in zip(states[0], states[1], strict=True))
    assert not torch.equal(states[0][0], states[2][0])
    assert not torch.equal(states[0][0][0], states[0][0][1])


def test_the_report_counts(fitted):
    report = fitted[4]
    assert report["rows"] == 3000
    assert report["held_out_rows"] == [600, 600, 600]
    assert max(report["unexplained"]) < 0.05
    assert report["input_clipped"] == 0


def test_pieces_give_the_whole(fitted, monkeypatch):
    x = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(0))
    whole = fitted[3](x)
    monkeypatch.setattr(dynamics, "CHUNK", 7)
    for one, other in zip(whole, fitted[3](x), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_likelihood_and_bounds():
    g = torch.Generator().manual_seed(0)
    mean, log_var, y = (torch.randn(2, 5, 3, generator=g) for _ in range(3))
    normal = torch.distributions.Normal(mean, (log_var / 2).exp())
    assert torch.allclose(nll(mean, log_var, y), -normal.log_prob(y).sum(2).mean(1), atol=1e-5)
    raw = torch.tensor([-1e4, -3.0, 0.0, 1e4])
    bent = bounded(raw, -10.0, 2.0)
    assert bent.tolist() == pytest.approx([-10, -3.0, -0.1269, 2.0], abs=0.01)


def test_rows_of_each_group():
    table = padded(torch.tensor([1, 0, 1, 3, 1]), 2)
    assert table.tolist() == [[1, -1, -1], [0, 2, 4]]


def test_a_member_without_a_fold_of_its_own_is_refused():
    """It would stop before its first step, untrained."""
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=r"'folds' of fit_ensemble must be one with rows .* Got \[5, 0\] of 10"):
        fit_ensemble(x, x, torch.arange(10) % 2 * 2, 2, SMALL, 0)
    with pytest.raises(InputError, match="and rows outside of it"):
        fit_ensemble(x, x, torch.zeros(10, dtype=torch.int64), 1, SMALL, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": (0,)},
        {"steps": 0},
        {"learning_rate": 0.0},
        {"min_log_var": 1.0},
        {"weight_decay": -1.0},
        {"batch_size": 0},
    ],
)
def test_settings_that_are_refused(wrong):
    with pytest.raises(InputError, match=f"'{next(iter(wrong))}' of Settings"):
        Settings(**wrong)
