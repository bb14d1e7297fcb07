"""Estimates from the true log-ratios of Gaussians: value, error bar, coverage; and refusals."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, NotEstimable, UnknownName
from vestige.ratios.divergences import FAMILY, Gaussian, estimate, estimates, gaussian_divergence

NAMES = [*FAMILY, "alpha(0.3)", "alpha(1.5)", "alpha(-0.5)"]
LAWS = {
    1: (Gaussian.isotropic(0.0, 1.0, 1), Gaussian.isotropic(0.2, 1.1, 1)),
    2: (Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.2, 1.1, 2)),
    10: (Gaussian.isotropic(0.0, 1.0, 10), Gaussian.isotropic(0.1, 1.05, 10)),
}
DRIFTED = (Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.5, 0.5, 2))  # the paper's drift at its last step


@functools.cache
def log_ratios(p, q, seed, n=10_000, n_p=None):
    """log p/q on samples of q and of p."""
    x_p = p.sample(n_p or n, generator=rng.fork(seed, "p"))
    x_q = q.sample(n, generator=rng.fork(seed, "q"))
    return p.log_prob(x_q) - q.log_prob(x_q), p.log_prob(x_p) - q.log_prob(x_p)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", LAWS)
@pytest.mark.parametrize("samples", ["q", "p", "both"])
@pytest.mark.parametrize("normalise", [False, True])
def test_true_log_ratios_give_the_truth_within_three_errors(name, d, samples, normalise):
    p, q = LAWS[d]
    truth = gaussian_divergence(name, p, q)
    found = estimate(name, *log_ratios(p, q, 11), samples=samples, normalise=normalise, floor=0.0)
    assert abs(found.value - truth) < 3 * found.std_error
    assert found.std_error < 0.4 * truth  # the error bar is not merely wide


@pytest.mark.parametrize("error", ["delta", "influence"])
@pytest.mark.parametrize("name", ["kl", "js", "hellinger2", "total_variation", "pearson_chi2"])
def test_errors_match_the_spread_of_repeated_estimates(name, error):
    p, q = LAWS[2]
    options = {"normalise": True, "error": error, "floor": 0.0}
    runs = [estimate(name, *log_ratios(p, q, s, 500, 800), **options) for s in range(100)]
    spread = np.std([r.value for r in runs])
    claimed = np.mean([r.std_error for r in runs])
    if error == "influence":  # the error of the best estimate with a learnt ratio: no smaller than with the true one
        assert claimed > 0.8 * spread
    else:
        assert claimed == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("name", ["kl", "js", "pearson_chi2"])
def test_bootstrap_agrees_with_the_delta_method(name, normalise):
    options = {"normalise": normalise, "floor": 0.0}
    log_q, log_p = log_ratios(*LAWS[1], 12, 1000, 700)
    delta, boot = (estimate(name, log_q, log_p, error=e, n_boot=300, **options) for e in ("delta", "bootstrap"))
    assert boot.value == delta.value
    assert boot.std_error == pytest.approx(delta.std_error, rel=0.2)
    assert (boot.low, boot.high) == pytest.approx((delta.low, delta.high), abs=0.5 * delta.std_error)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("side", ["log_ratio_q", "log_ratio_p"])
def test_one_sided_errors_match_the_spread_too(side, normalise):
    p, q = LAWS[2]
    runs = []
    for seed in range(80):
        log_q, log_p = log_ratios(p, q, seed, 500)
        given = {side: log_q if side == "log_ratio_q" else log_p}
        runs.append(estimate("kl", **given, normalise=normalise, floor=0.0, max_k=2.0))
    assert np.mean([r.std_error for r in runs]) == pytest.approx(np.std([r.value for r in runs]), rel=0.25)


def test_influence_error_of_kl_by_hand():
    log_q, log_p = log_ratios(*LAWS[1], 3, 1000, 700)
    found = estimate("kl", log_q, log_p, error="influence")
    by_hand = math.sqrt(float(log_p.var() / 700 + log_q.exp().var() / 1000))
    assert found.std_error == pytest.approx(by_hand, rel=1e-12)


def test_normalised_kl_is_donsker_varadhan_and_ignores_a_constant():
    log_q, log_p = log_ratios(*LAWS[1], 4)
    found = estimate("kl", log_q + 7, log_p + 7, normalise=True)
    assert found.value == pytest.approx(float(log_p.mean() - log_q.exp().mean().log()), rel=1e-9)
    for name in NAMES:
        shifted = estimate(name, log_q - 3, log_p - 3, normalise=True)
        plain = estimate(name, log_q, log_p, normalise=True)
        assert (shifted.value, shifted.std_error) == pytest.approx((plain.value, plain.std_error), rel=1e-6)


def test_equation_4_by_hand():
    log_q, _ = log_ratios(*LAWS[1], 5, 300)
    r = np.exp(log_q.numpy())
    found = estimate("kl", log_q, form="eq4")
    assert (found.details["samples"], found.details["form"]) == ("q", "eq4")
    assert found.value == pytest.approx(np.mean(r * np.log(r)))
    assert found.std_error == pytest.approx(np.std(r * np.log(r), ddof=1) / math.sqrt(300))
    assert found.ess == pytest.approx(r.sum() ** 2 / (r**2).sum())
    assert found.high - found.value == pytest.approx(1.959964 * found.std_error, rel=1e-6)


def test_bounded_hellinger_by_hand():
    log_q, log_p = log_ratios(*DRIFTED, 6, 400)
    by_hand = 1 - (np.mean(1 / np.cosh(log_p.numpy() / 2)) + np.mean(1 / np.cosh(log_q.numpy() / 2))) / 2
    assert estimate("hellinger2", log_q, log_p).value == pytest.approx(by_hand)
    broken = torch.cat([log_q, torch.tensor([60.0])])  # one outlier hardly moves it
    assert estimate("hellinger2", broken, log_p).value == pytest.approx(by_hand, abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_weights_stand_in_for_repeats_and_for_the_other_law(name):
    p, q = LAWS[2]
    log_q, log_p = log_ratios(p, q, 7, 4000)
    counts = torch.randint(1, 4, (4000,), generator=rng.fork(0, "counts"))
    repeated = estimate(name, log_q.repeat_interleave(counts), log_p)
    weighted = estimate(name, log_q, log_p, q_weights=counts)
    assert weighted.value == pytest.approx(repeated.value, rel=1e-9)
    # samples of q weighted by r are samples of p
    anchored = estimate(name, log_q, log_q, p_weights=log_q.exp(), floor=0.0)
    assert abs(anchored.value - gaussian_divergence(name, p, q)) < 4 * anchored.std_error


def test_pearson_is_refused_where_it_is_infinite_and_given_where_it_is_not():
    for seed in range(5):
        for samples in ("q", "p", "both"):
            with pytest.raises(NotEstimable, match="tail index of its terms is"):
                estimate("pearson_chi2", *log_ratios(*DRIFTED, seed), samples=samples)
    p, q = DRIFTED[0], Gaussian.isotropic(0.1, 0.92, 2)
    truth = gaussian_divergence("pearson_chi2", p, q)
    assert truth < math.inf
    for seed in range(5):
        found = estimate("pearson_chi2", *log_ratios(p, q, seed))
        assert abs(found.value - truth) < 4 * found.std_error


def test_on_the_drift_kl_by_equation_4_is_refused_and_the_rest_is_right():
    p, q = DRIFTED
    for seed in range(5):
        log_q, log_p = log_ratios(p, q, seed)
        with pytest.raises(NotEstimable, match="kl cannot be estimated from these 10000 samples of q"):
            estimate("kl", log_q)
        for name in ("kl", "reverse_kl", "js", "hellinger2", "total_variation"):
            both = estimate(name, log_q, log_p)
            assert abs(both.value - gaussian_divergence(name, p, q)) < 3.5 * both.std_error
        for name in ("js", "hellinger2", "total_variation"):  # from samples of q alone, by the light form
            alone = estimate(name, log_q)
            assert alone.details["form"] == "light"
            assert any("too heavy for Eq. 4" in w for w in alone.notes)
            assert abs(alone.value - gaussian_divergence(name, p, q)) < 4 * alone.std_error


def test_a_table_shows_the_sentence_instead_of_a_number():
    table = estimates(["js", "pearson_chi2", "alpha(0.5)"], *log_ratios(*DRIFTED, 0))
    assert list(table) == ["js", "pearson_chi2", "alpha(0.5)"]
    refused = table["pearson_chi2"]
    assert math.isnan(refused.value)
    assert str(refused) == f"pearson_chi2 refused: {refused.reason}"
    assert "tail index of its terms" in refused.reason
    assert table["js"].verdict == "ok"
    assert str(table["js"]).startswith("js 0.2")


def test_too_few_effective_samples_are_refused():
    log_q = torch.full((1000,), -2.0)
    log_q[:20] = 3.0
    assert estimate("kl", log_q, min_ess=10).ess == pytest.approx(35.3, abs=0.1)
    with pytest.raises(NotEstimable, match=r"worth 35\.3 \(limit 40\)"):
        estimate("kl", log_q, min_ess=40)
    with pytest.raises(NotEstimable, match=r"worth 5\.0"):
        estimate("js", [0.1, 0.2, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("name", NAMES)
def test_equal_laws_give_zero_with_an_error_of_order_one_over_n(name):
    for sides in ({"log_ratio_q": np.zeros(200)}, {"log_ratio_p": np.zeros(100), "log_ratio_q": np.zeros(200)}):
        found = estimate(name, **sides)
        assert found.value == pytest.approx(0.0, abs=1e-15)
        assert found.std_error == pytest.approx(1 / (100 if len(sides) == 2 else 200))
        assert found.low < 0 < found.high
        assert estimate(name, **sides, floor=0.0).std_error == 0


def test_log_ratios_that_overflow():
    wild = torch.tensor([800.0, -800.0] * 50)
    for name in ("js", "hellinger2", "total_variation", "alpha(0.3)", "reverse_kl", "kl", "jeffreys"):
        assert math.isfinite(estimate(name, wild, wild).value)
    assert estimate("js", -wild.abs(), wild.abs()).value == pytest.approx(math.log(2))
    for name in ("kl", "pearson_chi2", "jeffreys", "alpha(1.5)"):
        with pytest.raises(NotEstimable, match="overflows or is infinite at a log-ratio of 800"):
            estimate(name, wild)


def test_where_p_vanishes_on_samples_of_q():
    gone = torch.cat([torch.full((500,), -math.inf), torch.full((500,), math.log(2))]).double()  # p lives on half of q
    only_half = torch.full((400,), math.log(2), dtype=torch.float64)
    assert estimate("total_variation", gone, only_half).value == pytest.approx(0.5)
    assert estimate("kl", gone).value == pytest.approx(math.log(2))
    assert estimate("kl", gone, normalise=True).value == pytest.approx(math.log(2))
    assert estimate("js", gone, only_half).value == pytest.approx(
        0.5 * math.log(4 / 3) + 0.25 * (math.log(2 / 3) + math.log(2))
    )
    with pytest.raises(NotEstimable, match="infinite at a log-ratio of -inf"):
        estimate("reverse_kl", gone)


def test_a_ratio_that_is_off_is_told():
    log_q, log_p = log_ratios(*LAWS[1], 9)
    assert any("E_q[r] is 20" in w for w in estimate("js", log_q + 3, log_p + 3).notes)
    assert any("outside [0" in w for w in estimate("js", -30 * log_q, -30 * log_p).notes)
    assert estimate("js", log_q, log_p).notes == ()


def test_kinds_of_arrays_and_determinism():
    log_q, log_p = log_ratios(*LAWS[1], 10, 200)
    reference = estimate("js", log_q, log_p, error="bootstrap", n_boot=50)
    for kind in (torch.Tensor.numpy, torch.Tensor.tolist, lambda x: pd.Series(x.numpy())):
        assert estimate("js", kind(log_q), kind(log_p), error="bootstrap", n_boot=50) == reference
    assert estimate("js", log_q, log_p, error="bootstrap", n_boot=50, seed=1).std_error != reference.std_error


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "given, or 'log_ratio_p', or both"),
        ({"log_ratio_q": [0.0, math.nan]}, "neither NaN nor inf"),
        ({"log_ratio_q": [0.0, math.inf]}, "neither NaN nor inf"),
        ({"log_ratio_p": [0.0, -math.inf]}, "neither NaN nor -inf"),
        ({"log_ratio_q": [0.0]}, "at least 2 long"),
        ({"log_ratio_q": []}, "at least 2 long"),
        ({"log_ratio_q": [0.0, 1.0], "q_weights": [1.0, -1.0]}, "0 or larger"),
        ({"log_ratio_q": [0.0, 1.0], "q_weights": [0.0, 0.0]}, "positive somewhere"),
        ({"log_ratio_q": [0.0, 1.0], "q_weights": [1.0]}, "2 long"),
        ({"log_ratio_q": [0.0, 1.0], "p_weights": [1.0, 1.0]}, "together with 'log_ratio_p'"),
        ({"log_ratio_q": [0.0, 1.0], "samples": "p"}, "among those whose log-ratios are given"),
        ({"log_ratio_q": [0.0, 1.0], "samples": "both"}, "among those whose log-ratios are given"),
        ({"log_ratio_q": [0.0, 1.0], "error": "influence"}, "without log-ratios on both sides"),
        ({"log_ratio_q": [0.0, 1.0], "form": "light"}, "'eq4' or 'auto' for kl"),
        ({"log_ratio_q": [0.0, 1.0], "level": 1.0}, "'level'"),
        ({"log_ratio_q": [0.0, 1.0], "error": "jackknife"}, "one of bootstrap, delta, influence"),
    ],
)
def test_bad_input_is_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        estimate("kl", **options)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'pearson_chi2'"):
        estimate("pearson", [0.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kl", "reverse_kl", "js", "hellinger2", "total_variation", "jeffreys"])
@pytest.mark.parametrize("d", [1, 10])
def test_intervals_cover_the_truth_as_often_as_they_say(name, d):
    p, q = LAWS[d]
    truth, runs = gaussian_divergence(name, p, q), 400
    found = [estimate(name, *log_ratios(p, q, s, 1000), floor=0.0) for s in range(runs)]
    hits = np.mean([e.low <= truth <= e.high for e in found])
    assert abs(hits - 0.95) < 3 * math.sqrt(0.95 * 0.05 / runs) + 0.01
