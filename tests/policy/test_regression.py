"""The batched ensemble: the law it learns, the fold that each member leaves aside, constant columns."""

import pytest
import torch

from vestige.core.errors import InputError
from vestige.nets import BatchedMLP
from vestige.policy import dynamics
from vestige.policy.dynamics import Settings, fit_ensemble, padded, squared_error, train_members

SMALL = Settings(hidden=(16,), steps=400, check_every=50, learning_rate=1e-2)


@pytest.fixture(scope="module")
def fitted():
    """y0 = 2 x0 - x1 + noise whose deviation depends on x0; y1 is constant, y2 = x0 without noise."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 2, generator=g, dtype=torch.float64)
    deviation = torch.where(x[:, 0] > 0, 0.5, 0.1)
    y0 = 2 * x[:, 0] - x[:, 1] + deviation * torch.randn(3000, generator=g, dtype=torch.float64)
    y = torch.stack([y0, torch.full_like(y0, 7.0), x[:, 0]], 1)
    folds = torch.arange(3000) % 5
    ensemble, report = fit_ensemble(x, y, folds, 3, SMALL, 0)
    return x, y, folds, ensemble, report


def test_mean_and_deviation_are_those_of_the_law(fitted):
    x_, y_, folds, ensemble, _ = fitted
    x = torch.tensor([[1.0, 0.5], [-1.0, 0.5], [1.0, -1.0]]).expand(3, 3, 2)
    mean, deviation = ensemble(x)
    assert mean[:, :, 0].mean(0).tolist() == pytest.approx([1.5, -2.5, 3.0], abs=0.1)
    # One deviation a column: the root of the mean variance, (0.5^2 + 0.1^2) / 2.
    assert deviation.shape == (3, 1, 3)
    assert deviation[:, 0, 0].tolist() == pytest.approx([0.13**0.5] * 3, abs=0.06)
    assert deviation[:, 0, 2].tolist() == pytest.approx([0] * 3, abs=0.05)
    # By brute force: what member i gets wrong on the rows that it has not seen.
    for i in range(3):
        rows = folds == i
        off = ensemble(x_[rows].float().expand(3, -1, -1))[0][i].double() - y_[rows]
        assert deviation[i, 0].double().tolist() == pytest.approx(
            off.square().mean(0).sqrt().tolist(), rel=1e-3, abs=1e-6
        )


def test_a_constant_column_is_known_exactly(fitted):
    mean, deviation = fitted[3](torch.zeros(3, 4, 2))
    assert (mean[:, :, 1] == 7).all()
    assert (deviation[:, :, 1] == 0).all()
    assert fitted[3].varying.tolist() == [0, 2]


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
        net = BatchedMLP.initial(3, [2, 16, 1], generator=torch.Generator().manual_seed(0), skip=True)
        train_members(net, x.float(), y_.float(), folds, Settings(hidden=(16,), steps=3, check_every=9), 0)
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
    assert torch.tensor(report["unexplained"]).shape == (3, 2)
    assert torch.tensor(report["unexplained"]).max() < 0.05
    assert report["input_clipped"] == 0


def test_pieces_give_the_whole(fitted, monkeypatch):
    x = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(0))
    whole = fitted[3](x)
    monkeypatch.setattr(dynamics, "CHUNK", 7)
    for one, other in zip(whole, fitted[3](x), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_squared_error_by_hand():
    y, mean = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[0.0, 2.0], [0.0, 6.0]]])
    assert squared_error(mean, y).tolist() == [[5.0, 2.0]]


def likelihood_members(net, x, y, steps):
    """The same network with a log-variance beside each mean, by Gaussian likelihood: the loss that is not used."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    stream = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(x), (256,), generator=stream)
        mean, log_var = net(x[rows]).chunk(2, 2)
        optimizer.zero_grad()
        ((y[rows] - mean).square() * torch.exp(-log_var) + log_var).sum(2).mean(1).sum().backward()
        optimizer.step()
        schedule.step()


def test_squared_error_fits_a_mean_that_likelihood_does_not():
    """A noisy half and a quiet half: likelihood divides the error of the noisy half by its variance and leaves it."""
    g = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(2000, 1, generator=g) - 1
    wave = torch.where(x > 0, torch.sin(4 * x), 0)
    y = wave + torch.where(x > 0, 0.1, 0.001) * torch.randn(2000, 1, generator=g)
    folds = torch.arange(2000) % 5
    off = {}
    for loss, outputs in (("squared", 1), ("likelihood", 2)):
        net = BatchedMLP.initial(1, [1, 24, 24, outputs], generator=torch.Generator().manual_seed(1), activation="silu")
        if loss == "squared":
            train_members(net, x, y, folds, Settings(hidden=(24, 24), steps=300, learning_rate=1e-2), 0)
        else:
            likelihood_members(net, x, y, 300)
        with torch.no_grad():
            off[loss] = float((net(x)[0, :, :1] - wave).square().mean())
    assert off["squared"] < 0.1 * off["likelihood"], off


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
        {"weight_decay": -1.0},
        {"batch_size": 0},
    ],
)
def test_settings_that_are_refused(wrong):
    with pytest.raises(InputError, match=f"'{next(iter(wrong))}' of Settings"):
        Settings(**wrong)
