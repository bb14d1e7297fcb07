"""Classifier ratios: exact families, imbalance, weights, held-out figures."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from vestige.core.errors import InputError, UnknownName
from vestige.ratios import logistic, losses, nets, training
from vestige.ratios.logistic import Logistic, form_of
from vestige.ratios.standardise import design

FAST = {"hidden": (16,), "steps": 150, "check_every": 10}


def normal(n, d=1, mean=0.0, sd=1.0, seed=0):
    return mean + sd * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def truth(x, mean_p, sd_p, mean_q, sd_q):
    """log N(x; mean_p, sd_p^2) - log N(x; mean_q, sd_q^2), coordinates independent."""
    z_p, z_q = (x - mean_p) / sd_p, (x - mean_q) / sd_q
    return ((z_q.square() - z_p.square()) / 2 + math.log(sd_q / sd_p)).sum(1)


def test_linear_is_exact_for_equal_covariances():
    p, q = normal(20000, 3, 0.0, seed=1), normal(20000, 3, 0.5, seed=2)
    ratio = Logistic("linear").fit(p, q)
    x = normal(2000, 3, 0.25, seed=3)
    assert float((ratio.log_ratio(x) - truth(x, 0.0, 1.0, 0.5, 1.0)).square().mean()) < 0.003
    # The gradient along each axis is the coefficient: -0.5 in every direction.
    slope = ratio.log_ratio(torch.eye(3)) - ratio.log_ratio(torch.zeros(3, 3))
    torch.testing.assert_close(slope, torch.full((3,), -0.5), atol=0.05, rtol=0)
    assert ratio.report_["converged"]
    assert ratio.report_["decrement"] < 1e-10


def test_quadratic_is_exact_for_any_two_gaussians_and_linear_is_not():
    mix = torch.tensor([[1.0, 0.6], [0.0, 0.8]], dtype=torch.float64)
    p, q = normal(20000, 2, seed=1) @ mix, normal(20000, 2, 0.3, 1.2, seed=2)
    law_p = torch.distributions.MultivariateNormal(torch.zeros(2).double(), mix.mT @ mix)
    law_q = torch.distributions.MultivariateNormal(torch.full((2,), 0.3).double(), 1.44 * torch.eye(2).double())
    x = normal(2000, 2, 0.15, seed=3)
    exact = law_p.log_prob(x) - law_q.log_prob(x)
    quadratic, linear = Logistic("quadratic").fit(p, q), Logistic("linear").fit(p, q)
    assert quadratic.report_["form"] == "full"
    assert float((quadratic.log_ratio(x) - exact).square().mean()) < 0.005
    assert float((linear.log_ratio(x) - exact).square().mean()) > 0.1


def test_squares_alone_where_samples_are_few_for_products():
    p, q = normal(500, 4, seed=1), normal(500, 4, 0.3, seed=2)  # 10 products would ask for 1000
    assert Logistic("quadratic").fit(p, q).report_["form"] == "diagonal"
    assert Logistic("quadratic").fit(p[:, :2], q[:, :2]).report_["form"] == "full"


@pytest.mark.parametrize("form", ["linear", "diagonal", "full"])
def test_the_number_of_coefficients_tells_the_form(form):
    phi = design(normal(5, 4), form)
    assert form_of(phi.shape[1], 4) == form
    assert torch.equal(phi[:, 0], torch.ones(5, dtype=torch.float64))


def test_linear_solves_scikit_learn_s_problem():
    p, q = normal(300, 2, seed=1), normal(200, 2, 0.8, seed=2)
    ridge = 0.01
    ratio = Logistic("linear", balance="prior", ridge=ridge, clip=None).fit(p, q)
    both = torch.cat([p, q])
    mass = torch.cat([torch.full((300,), 0.5 / 300), torch.full((200,), 0.5 / 200)]).double()
    centre = mass @ both
    z = (both - centre) / (mass @ (both - centre).square()).sqrt()
    # mean loss + ridge/2 |a|^2 is scikit-learn's sum of losses * C + |a|^2 / 2 with C = 1 / (n ridge)
    peer = LogisticRegression(C=1 / (500 * ridge), tol=1e-10, max_iter=1000)
    logit = peer.fit(z.numpy(), np.repeat([1, 0], [300, 200])).decision_function(z.numpy())
    np.testing.assert_allclose(ratio.log_ratio(both), logit + math.log(200 / 300), atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "net"])
@pytest.mark.parametrize("balance", ["weights", "prior"])
def test_unequal_sizes_do_not_shift_the_ratio(kind, balance):
    p, q = normal(2000, 1, 0.0, seed=1), normal(10000, 1, 1.0, seed=2)
    x = normal(2000, 1, 0.5, seed=3)
    ratio = Logistic(kind, balance=balance, **FAST).fit(p, q)
    # Without correction the mean error is log(10000 / 2000) = 1.61.
    assert abs(float((ratio.log_ratio(x) - truth(x, 0.0, 1.0, 1.0, 1.0)).mean())) < 0.12


def test_the_loss_is_cross_entropy_with_the_prior_in_the_logit():
    out_p, out_q = normal(1, 4), normal(1, 6, seed=1)
    weights = torch.full((1, 4), 1 / 4).double(), torch.full((1, 6), 1 / 6).double()
    logit = torch.cat([out_p, out_q], 1)[0] + math.log(4 / 6)
    label = torch.tensor([1.0] * 4 + [0.0] * 6, dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logit, label)
    torch.testing.assert_close(losses.logistic(out_p, out_q, *weights, share=0.4)[0], expected)
    out = torch.cat([out_p, out_q], 1).requires_grad_()
    loss = losses.logistic(out[:, :4], out[:, 4:], *weights, share=0.4).sum()
    (slope,) = torch.autograd.grad(loss, out)
    torch.testing.assert_close(losses.logistic_slope(*weights, share=0.4)(out.detach()), slope)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_weights_count_like_copies(kind):
    p, q = normal(60, 1, 0.0, seed=1), normal(80, 1, 0.5, seed=2)
    times = torch.randint(1, 4, (60,), generator=torch.Generator().manual_seed(0))
    weighted = Logistic(kind, clip=None).fit(p, q, p_weights=times)
    copied = Logistic(kind, clip=None).fit(p.repeat_interleave(times, 0), q)
    torch.testing.assert_close(weighted.log_ratio(p), copied.log_ratio(p), atol=1e-8, rtol=0)


def test_a_net_follows_weights():
    # q is uniform and weighted towards a normal at 0.8; p is the normal at 0.
    p, q = normal(1500, 1, seed=1), 12 * torch.rand(3000, 1, generator=torch.Generator().manual_seed(2)).double() - 6
    weights = torch.exp(-(q[:, 0] - 0.8).square() / 2)
    x = normal(1000, 1, 0.4, seed=3)
    ratio = Logistic(**FAST | {"batch_size": 400}).fit(p, q, q_weights=weights)
    assert float((ratio.log_ratio(x) - truth(x, 0.0, 1.0, 0.8, 1.0)).square().mean()) < 0.05  # variance 0.64


def test_a_net_learns_what_no_quadratic_can():
    side = torch.randint(2, (3000, 1), generator=torch.Generator().manual_seed(5)).double() * 4 - 2
    p, q = side + normal(3000, 1, 0.0, 0.6, seed=1), normal(3000, 1, 0.0, 2.2, seed=2)
    x = normal(2000, 1, 0.0, 2.0, seed=3).clamp(-4, 4)
    log_p = torch.logsumexp(torch.cat([-((x - m) / 0.6).square() / 2 for m in (-2.0, 2.0)], 1), 1) - math.log(1.2)
    exact = log_p + (x[:, 0] / 2.2).square() / 2 + math.log(2.2)
    error = {k: float((Logistic(k).fit(p, q).log_ratio(x) - exact).square().mean()) for k in ("net", "quadratic")}
    assert error["net"] < 0.25 < error["quadratic"]


def test_held_out_figures_of_a_good_classifier():
    p, q = normal(3000, 1, 0.0, seed=1), normal(3000, 1, 1.0, seed=2)
    report = Logistic("linear", calibration="platt").fit(p, q).report_
    figures = report["held_out"]
    # The Bayes classifier of N(0, 1) and N(1, 1) is right with chance Phi(1/2) = 0.6915.
    assert figures["accuracy"] == pytest.approx(0.6915, abs=0.04)
    assert figures["log_loss"] == pytest.approx(0.5862, abs=0.03)  # by numerical integration
    assert figures["ece"] < 0.06
    assert len(figures["reliability"]) <= 10
    assert set(figures["raw"]) == {"log_loss", "accuracy", "ece", "reliability"}
    assert report["calibration"]["slope"] == pytest.approx(1, abs=0.15)


def test_calibration_has_rows_that_neither_training_nor_early_stopping_sees(monkeypatch):
    seen = {}

    def spy(module, name):
        real = getattr(module, name)

        def call(*arguments, **options):
            result = real(*arguments, **options)
            seen[name] = arguments, result
            return result

        monkeypatch.setattr(module, name, call)

    spy(nets, "prepare")
    spy(training, "train")
    spy(logistic, "calibrate")
    p, q = normal(60, 1, 0.0, seed=1), normal(60, 1, 1.0, seed=2)
    monkeypatch.setattr(logistic, "two_fold", lambda method, p, q, *weights: (p, q))
    ratio = Logistic(calibration="platt", **FAST).fit(p, q)
    member = seen["prepare"][1]
    train_rows, stop_rows, aside = member.p_rows
    assert torch.equal(torch.cat(member.p_rows).sort().values, torch.arange(60))
    z = member.standardise(p).float()
    _, train_p, _, stop_p, _ = seen["train"][0][:5]
    assert torch.equal(train_p.x[0], z[train_rows])
    assert torch.equal(stop_p.x[0], z[stop_rows])
    fitted = ratio.report_["calibration"]
    calibrated = fitted["slope"] * seen["calibrate"][0][1] + fitted["offset"]
    torch.testing.assert_close(calibrated, ratio.log_ratio(p)[aside])


@pytest.mark.parametrize("kind", ["linear", "net"])
def test_without_held_out_rows_no_figure_is_called_held_out_but_calibration_has_its_own(kind):
    p, q = normal(60, 1, 0.0, seed=1), normal(60, 1, 1.0, seed=2)
    plain = Logistic(kind, held_out=0.0, **FAST).fit(p, q).report_
    assert plain["held_out"] is None
    assert plain["held_out_loss"] is None
    calibrated = Logistic(kind, held_out=0.0, calibration="platt", **FAST).fit(p, q).report_
    assert calibrated["held_out"]["log_loss"] > 0
    # The convex fit on all rows is the same whether or not a first one was held back to be judged.
    if kind == "linear":
        both = [Logistic(kind, held_out=share).fit(p, q).log_ratio(p) for share in (0.0, 0.2)]
        torch.testing.assert_close(*both, atol=1e-7, rtol=0)


def test_dead_and_constant_features_change_nothing():
    p, q = normal(400, 1, 0.0, seed=1), normal(400, 1, 0.5, seed=2)
    dead = torch.zeros(400, 1, dtype=torch.float64)
    spike = dead.clone()
    spike[0] = 1e-9
    x = normal(50, 1, seed=3)
    plain = Logistic("linear").fit(p, q).log_ratio(x)
    with_dead = Logistic("linear").fit(torch.cat([p, dead + 7, spike], 1), torch.cat([q, dead + 7, dead], 1))
    torch.testing.assert_close(
        with_dead.log_ratio(torch.cat([x, dead[:50] + 7, dead[:50]], 1)), plain, atol=1e-3, rtol=0
    )


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"kind": "nets"}, UnknownName, "Did you mean 'net'"),
        ({"balance": "none"}, UnknownName, "'balance' of Logistic"),
        ({"calibration": "isotonic"}, UnknownName, "'calibration' of Logistic"),
        ({"calibration": "plat"}, UnknownName, "Did you mean 'platt'"),
        ({"ridge": -1.0}, InputError, "'ridge' of Logistic"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(change, error, sentence):
    with pytest.raises(error, match=sentence):
        Logistic(**change).fit(normal(20), normal(20, seed=1))


def test_two_rows_a_side_are_enough_without_calibration_and_refused_with_it():
    p, q = normal(2), normal(2, 1, 3.0, seed=1)
    assert torch.isfinite(Logistic("linear").fit(p, q).log_ratio(p)).all()
    with pytest.raises(InputError, match="at least 3 samples of positive weight"):
        Logistic(calibration="platt").fit(p, q)
