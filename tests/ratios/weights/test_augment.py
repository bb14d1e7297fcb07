"""Augmented training sets: the mixture of LFIW Eq. 2 by hand, equal exposure to the bit, sums over whole decks."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression

from vestige.core.errors import InputError
from vestige.ratios import weights


def sides(n=12, m=20, seed=0):
    """Real rows, generated rows that follow another line, and log weights of the latter."""
    rng = np.random.default_rng(seed)
    x, x_hat = rng.normal(size=(n, 2)), rng.normal(0.5, 2, (m, 2))
    y, y_hat = x @ [1.0, -2.0] + rng.normal(size=n), x_hat @ [3.0, 0.5]
    return (x, y), (x_hat, y_hat), rng.normal(0, 1.5, m)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_means_under_the_weights_are_those_of_the_mixture(share):
    real, generated, log_w = sides()
    got = weights.augment(real, generated, log_w + 700, real_share=share)
    w = np.exp(log_w) / np.exp(log_w).sum()
    by_hand = share * real[1].mean() + (1 - share) * (w @ generated[1])  # Eq. 2 with Eq. 6
    assert np.average(got.y, weights=got.weights) == pytest.approx(by_hand, rel=1e-12)
    assert np.array_equal(got.weights[: got.n_real], np.ones(12))
    assert got.weights[got.n_real :].sum() == pytest.approx(12 * (1 - share) / share)
    assert got.diagnosis.ess == pytest.approx(1 / (w @ w))


def test_weighted_least_squares_solves_the_mixed_normal_equations():
    real, generated, log_w = sides()
    got = weights.augment(real, generated, log_w, real_share=0.7)
    fit = LinearRegression(fit_intercept=False).fit(got.x, got.y, sample_weight=got.weights)
    w = 0.3 * np.exp(log_w) / np.exp(log_w).sum()
    (x, y), (x_hat, y_hat) = real, generated
    left = 0.7 * x.T @ x / len(x) + x_hat.T @ (w[:, None] * x_hat)
    right = 0.7 * x.T @ y / len(x) + x_hat.T @ (w * y_hat)
    assert np.allclose(fit.coef_, np.linalg.solve(left, right))


def test_real_rows_are_dealt_alike_whatever_is_added():
    real, _, _ = sides(n=12)
    alone = list(weights.augment(real).batches(5, 20, seed=3))
    for m, beside in ((1, 1), (7, 5), (300, 40)):
        _, generated, log_w = sides(m=m, seed=m)
        got = weights.augment(real, generated, log_w, real_share=0.4).batches(5, 20, generated=beside, seed=3)
        for a, b in zip(alone, got, strict=True):
            assert torch.equal(a.x, b.x[:5])
            assert torch.equal(a.y, b.y[:5])
            assert torch.equal(a.weights, b.weights[:5])
            assert len(b.x) == len(b.y) == len(b.weights) == 5 + beside
    assert not torch.equal(alone[0].x, next(weights.augment(real).batches(5, 1, seed=4)).x)


def test_losses_of_whole_decks_average_to_the_loss_of_the_set():
    real, generated, log_w = sides(n=12, m=20)
    got = weights.augment(real, generated, log_w, real_share=0.6)

    def loss(x, y):
        return (x.sum(1) - y).square()

    # 60 batches of 4 and 5: twenty decks of 12 real rows, fifteen of 20 generated ones.
    dealt = [weights.weighted_loss(loss(b.x, b.y), b.weights) for b in got.batches(4, 60, generated=5)]
    w = np.exp(log_w) / np.exp(log_w).sum()
    each = [loss(*map(torch.from_numpy, side)).numpy() for side in (real, generated)]
    by_hand = each[0].mean() + 0.4 / 0.6 * (w @ each[1])
    assert float(torch.stack(dealt).mean()) == pytest.approx(by_hand, rel=1e-6)
    assert float(dealt[0]) != pytest.approx(by_hand, rel=1e-3)


def test_every_deck_holds_every_row_once():
    real, generated, _ = sides(n=7, m=5)
    got = weights.augment(real, generated, "equal")
    dealt = list(got.batches(3, 7, generated=5))
    seen = torch.cat([b.y[:3] for b in dealt]).reshape(3, 7).sort(1).values
    assert torch.equal(seen, torch.from_numpy(np.sort(real[1])).expand(3, 7))
    assert all(torch.equal(b.y[3:].sort().values, torch.from_numpy(np.sort(generated[1]))) for b in dealt)
    orders = {tuple(b.y[3:].tolist()) for b in dealt}
    assert len(orders) > 1
    # Unless told as many as their mass is worth: 5 of 7 here, all of it or more there, at least one.
    assert len(next(got.batches(3, 1)).x) == 3 + 2
    assert len(next(weights.augment(real, generated, "equal", real_share=0.3).batches(3, 1)).x) == 6
    assert len(next(weights.augment(real, generated, [-20.0] * 5).batches(3, 1)).x) == 4


def test_either_side_may_stand_alone():
    real, generated, log_w = sides()
    alone = weights.augment(real)
    assert (alone.n_real, alone.n_generated, alone.diagnosis) == (12, 0, None)
    assert np.array_equal(alone.weights, np.ones(12))
    batch = next(alone.batches(4, 1))
    assert torch.equal(batch.weights, torch.full((4,), 0.25))
    model = weights.augment(None, generated, log_w)
    assert (model.n_real, model.n_generated) == (0, 20)
    w = np.exp(log_w) / np.exp(log_w).mean()
    assert np.allclose(model.weights, w)
    dealt = list(model.batches(4, 5, generated=10))
    assert all(len(b.x) == 10 for b in dealt)
    sums = torch.stack([weights.weighted_loss(b.y.float(), b.weights) for b in dealt])
    assert float(sums[:4].mean()) == pytest.approx(w @ generated[1] / 20, rel=1e-5)  # two whole decks


def test_rows_of_weight_zero_are_left_out():
    real, generated, log_w = sides()
    log_w[:3] = -math.inf
    got, without = (
        weights.augment(real, generated, log_w, real_share=0.5),
        weights.augment(real, tuple(part[3:] for part in generated), log_w[3:], real_share=0.5),
    )
    assert np.array_equal(got.x, without.x)
    assert np.array_equal(got.weights, without.weights)


def test_a_gradient_reaches_the_losses():
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    weights.weighted_loss(losses, torch.tensor([0.5, 3.0])).backward()
    assert losses.grad.tolist() == [0.5, 3.0]


def test_what_goes_in_comes_out_and_is_not_touched():
    images, labels = torch.arange(48, dtype=torch.uint8).reshape(3, 4, 4), torch.tensor([0, 1, 2])
    before = images.clone()
    got = weights.augment((images, labels), (images[:1], labels[:1]), "equal")
    assert torch.equal(got.x, torch.cat([images, images[:1]]))
    assert (got.x.dtype, got.y.dtype, got.weights.dtype) == (torch.uint8, torch.int64, torch.float64)
    assert torch.equal(images, before)
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0]})
    told = weights.augment((table, pd.Series([0, 1])), (table * 2, [1, 0]), "equal")
    assert list(told.x.columns) == ["a", "b"]
    assert told.x["a"].tolist() == [1, 2, 2, 4]
    assert told.y.tolist() == [0, 1, 1, 0]
    assert isinstance(told.weights, pd.Series)
    single = weights.augment((images.float(), labels), None)
    assert (single.x.dtype, single.weights.dtype) == (torch.float32, torch.float64)


def test_bad_input_is_refused_before_any_work():
    real, generated, log_w = sides()
    x, y = real
    table, other = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]}), pd.DataFrame({"b": x[:, 0], "a": x[:, 1]})
    for bad, told in [
        ({"real": None}, "'real' of weights.augment must be given, or 'generated'"),
        ({"real": [x, y]}, "'real' of weights.augment must be a pair"),
        ({"real": (x, y[:3])}, r"'real\[1\]' of weights.augment must be one label for each of 12 rows"),
        ({"real": (x[:0], y[:0])}, "at least one row"),
        ({"real": (np.where(x > 0, x, np.nan), y)}, r"'real\[0\]' of weights.augment must be finite"),
        ({"real": real, "log_weights": log_w}, "None where nothing is generated"),
        ({"real": real, "generated": (generated[0][:, :1], generated[1])}, "rows of shape"),
        ({"real": real, "generated": (generated[0].astype(np.uint8), generated[1])}, "bytes are another scale"),
        ({"real": real, "generated": (generated[0], generated[0])}, "labels of shape"),
        ({"real": (table, y), "generated": (other, y)}, "a table of the columns"),
        ({"real": real, "generated": generated, "log_weights": log_w[:5]}, "must be 20 long"),
        ({"real": real, "generated": generated, "log_weights": np.full(20, -np.inf)}, "above -inf somewhere"),
        ({"real": real, "generated": generated, "real_share": 0.0}, "'real_share'"),
        ({"real": real, "generated": generated, "real_share": 1.0}, "'real_share'"),
    ]:
        with pytest.raises(InputError, match=told):
            weights.augment(**bad)
    got = weights.augment(real, generated, "equal")
    for bad in ({"size": 0, "steps": 1}, {"size": 1, "steps": 0}, {"size": 1, "steps": 1, "generated": 0}):
        with pytest.raises(InputError, match=r"of Augmented\.batches must be at least 1"):
            got.batches(**bad)  # at the call, not at the first batch
