"""Augmented training sets: closed forms of k, the mixture of LFIW Eq. 2, equal exposure to the bit, whole decks."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from vestige.core.errors import InputError
from vestige.ratios import Forest, weights


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


# The mass of a generated row.

WIDE = 1.5  # q = N(0, WIDE^2) beside p = N(0, 1)


def normal(n, width=1.0, seed=0):
    """Rows of two normal columns, and labels that the sign of the first decides."""
    x = np.random.default_rng(seed).normal(0, width, (n, 2))
    return x, (x[:, 0] > 0).astype(np.int64)


def test_mass_is_the_closed_form_of_a_normal_pair():
    """E_q[r^2] of N(0, 1) / N(0, s^2) is s^2 / sqrt(2 s^2 - 1), its inverse is the ESS share, and all is in reach."""
    x = WIDE * np.random.default_rng(0).normal(size=200_000)
    log_r = math.log(WIDE) - x**2 / 2 * (1 - WIDE**-2)
    exact = math.sqrt(2 * WIDE**2 - 1) / WIDE**2
    assert weights.mass_per_row(log_r) == pytest.approx(exact, rel=0.01)
    got = weights.generated_weights(log_r)
    assert float(got.mean()) == pytest.approx(weights.mass_per_row(log_r), rel=1e-12)
    w = np.exp(log_r)
    by_hand = w.sum() ** 2 / (w**2).sum() / len(w) * min(1, w.mean()) * w / w.mean()
    assert np.allclose(got, by_hand)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.003])
def test_mass_is_the_reachable_share_where_weights_are_equal(share):
    """q is p without a part of it: r is the share that is left, everywhere, and its ESS hides it."""
    log_w = torch.full((50,), math.log(share), dtype=torch.float64)
    assert weights.mass_per_row(log_w) == pytest.approx(share)
    assert torch.allclose(weights.generated_weights(log_w), torch.full((50,), share, dtype=torch.float64))


def test_a_mean_weight_above_one_is_an_error_of_the_ratio():
    log_w = np.random.default_rng(0).normal(size=40)
    low, high = (weights.mass_per_row(log_w - np.log(np.exp(log_w).mean()) + shift) for shift in (0.0, 2.0))
    assert low == pytest.approx(high)
    assert low == pytest.approx(weights.ess(log_w) / 40)


def test_tempering_changes_the_ess_and_not_the_reach():
    log_w = np.random.default_rng(0).normal(0, 2, 500) - 4
    mean = float(np.exp(log_w).mean())
    assert mean < 0.5
    assert weights.mass_per_row(log_w, 0.6) == pytest.approx(0.6 * mean, rel=1e-6)
    assert float(weights.generated_weights(log_w, 0.6).mean()) == pytest.approx(0.6 * mean, rel=1e-6)


def test_a_real_row_weighs_one_and_generated_ones_what_they_are_worth():
    real, generated, log_w = sides()
    log_w = log_w - 2
    got = weights.augment(real, generated, log_w)
    w = np.exp(log_w)
    k = w.sum() ** 2 / (w**2).sum() / 20 * min(1.0, w.mean())
    assert np.array_equal(got.weights[:12], np.ones(12))
    assert np.allclose(got.weights[12:], k * w / w.mean())
    assert got.mass == pytest.approx(k)
    assert got.weights[12:].sum() == pytest.approx(20 * k)
    assert (got.arm, got.real_share) == ("weighted", None)
    assert "12 real and 20 generated rows, weighted: k = " in repr(got)
    zero = np.where(np.arange(20) < 5, -np.inf, log_w)  # rows of weight zero are left out, and count among those drawn
    left = weights.augment(real, generated, zero)
    assert left.n_generated == 15
    assert left.weights[12:].sum() == pytest.approx(20 * weights.mass_per_row(zero))


FOREST = Forest(trees=60)


def test_a_generator_that_draws_from_the_data_is_pooled():
    got = weights.augment(normal(500), normal(1000, seed=1), estimator=FOREST)
    assert got.mass == pytest.approx(1, abs=0.1)
    assert got.diagnosis.accuracy == pytest.approx(0.5, abs=0.05)


def test_half_of_the_data_in_reach_is_half_the_mass():
    x, y = normal(2000, seed=1)
    lost = weights.augment(normal(800), (x[x[:, 1] < 0], y[x[:, 1] < 0]), estimator=FOREST)
    assert lost.mass == pytest.approx(0.5, abs=0.1)
    assert lost.diagnosis.ess_fraction > 0.8


def test_a_generator_that_shares_nothing_leaves_the_real_rows():
    real, (x, y) = normal(300), normal(900, seed=1)
    got = weights.augment(real, (x + 30, 1 - y), estimator=FOREST)
    assert got.mass < 0.01
    assert got.weights[300:].sum() < 5
    fit, alone = (DecisionTreeClassifier(max_depth=3, random_state=0).fit(*rows)
                  for rows in ((got.x, got.y, got.weights), real))  # fmt: skip
    fresh = normal(500, seed=2)[0]
    assert np.array_equal(fit.predict(fresh), alone.predict(fresh))
    half = weights.augment(real, (x + 30, 1 - y), np.zeros(900), real_share=0.5)
    assert half.weights[300:].sum() == pytest.approx(300)


def test_weights_see_labels():
    """Rows are alike on both sides; of the labels that are generated every second one is wrong."""
    real, (x, y) = normal(400), normal(800, seed=1)
    wrong = np.arange(800) % 2 == 0
    got = weights.augment(real, (x, np.where(wrong, 1 - y, y)), estimator=FOREST)
    w = got.weights[400:]
    assert w[~wrong].mean() > 4 * w[wrong].mean()
    numbers = weights.augment((real[0], real[1].astype(float)), (x, np.where(wrong, 5.0, y)), estimator=FOREST)
    assert numbers.weights[400:][~wrong].mean() > 4 * numbers.weights[400:][wrong].mean()


def test_same_seed_same_weights_and_arguments_are_untouched():
    real, made = normal(100), normal(200, seed=1)
    before = made[0].copy()
    one, two, other = (weights.augment(real, made, estimator=FOREST, seed=seed).weights for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert np.array_equal(made[0], before)


def test_other_estimators_and_few_fitted_rows():
    """Rows beyond those that were fitted on get weights too; others than forests are cross-fitted."""
    real, (x, y) = normal(60), normal(90, seed=1)
    for estimator in (Forest(trees=20), "ulsif"):
        got = weights.augment(real, (x * 1.5, y), estimator=estimator, rows=40)
        assert got.n_generated == 90
        assert (got.weights > 0).all()


def test_what_cannot_be_augmented_is_refused():
    real, generated, log_w = sides()
    for bad, told in [
        ({"real": None, "generated": generated}, "where there are no real rows to learn them from"),
        ({"real": real, "generated": generated, "log_weights": "even"}, "'log_weights' of weights.augment must be"),
        ({"real": real, "generated": tuple(part[:5] for part in generated)}, "at least 6 rows to learn weights from"),
        ({"real": real, "generated": generated, "estimator": "tree"}, "'estimator' of weights.augment must be"),
        ({"real": real, "generated": generated, "rows": 2}, "'rows'"),
        ({"real": real, "generated": generated, "min_ess": 0.0}, "'min_ess'"),
        ({"real": real, "choose": True}, "'choose' of weights.augment must be False without rows of both"),
        ({"real": real, "generated": generated, "choose": True, "real_share": 0.5}, "'choose'"),
        ({"real": real, "generated": generated, "model": LinearRegression()}, "'model'.*None unless 'choose'"),
        ({"real": real, "generated": generated, "log_weights": log_w, "validation": real}, "'validation'.*None unless"),
    ]:
        with pytest.raises(InputError, match=told):
            weights.augment(**bad)
