"""Reasons and notes: each appears where it should, and not without its cause; other ways against closed forms."""

import dataclasses

import pytest
import torch

from vestige.chains.estimates import UNJUDGED, report_of
from vestige.chains.report import ChainLimits, averaged
from vestige.chains.strategy import Points, TaskLogRatios
from vestige.ratios.divergences import Gaussian

P, Q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.3, 0.9, 2)
LIMITS = ChainLimits(gap_least=0.01, gap_most=0.02, ess=0.3, refused_ess=0.05, tail=0.7, apart=2.0)


def log_ratio(law, seed, n=5000):
    x = law.sample(n, generator=torch.Generator().manual_seed(seed))
    return P.log_prob(x) - Q.log_prob(x)


def of_eq4(shrunk=1.0):
    """A chain that has Eq. 4 alone, its ratio shrunk where the model has samples."""
    points = Points(log_ratio(P, 0), None, None)
    return TaskLogRatios(shrunk * log_ratio(Q, 1), None, None, 0.0, 3, 0.0, 0, 0.0, anchored=points, running=points)


def of_both(**changes):
    even = torch.full((5000,), 1 / 5000, dtype=torch.float64)
    return dataclasses.replace(
        TaskLogRatios(log_ratio(Q, 1), log_ratio(P, 0), even, 0.0, 2, 0.0, 5000, 5000.0), **changes
    )


def judged(found, limits=LIMITS, names=("kl", "js")):
    return report_of(found, "a", 1, names, {}, level=0.95, limits=limits)


def test_with_the_exact_ratio_there_is_nothing_against_the_value():
    report = judged(of_both())
    assert (report.reasons, report.notes) == ((), ())
    assert report.estimates["js"].verdict == "ok"


def test_eq4_alone_is_never_ok():
    """Not even with the exact ratio: nothing tells it from another."""
    report = judged(of_eq4())
    assert (report.reasons, report.notes) == ((UNJUDGED,), ())
    for estimate in report.estimates.values():
        assert (estimate.verdict, estimate.low) == ("at least", 0.0)
        assert estimate.value > 0


def test_eq4_is_at_least_where_the_anchor_samples_see_more():
    report = judged(of_eq4(shrunk=0.5), names=("js",))  # kl need not be among the names
    assert list(report.estimates) == ["js"]
    assert report.estimates["js"].verdict == "at least"
    assert "; over the anchor samples the same ratio has a KL of" in report.estimates["js"].reason
    assert judged(of_eq4(shrunk=0.5), dataclasses.replace(LIMITS, apart=1e9)).reasons == (UNJUDGED,)
    both = of_both(log_ratio_q=0.5 * log_ratio(Q, 1), anchored=of_eq4().anchored)
    assert judged(both).reasons == ()  # nothing is held against a value that rests on both sides for Eq. 4's sake


def test_bias_of_the_fit_and_poor_anchors_are_reasons_and_arrivals_are_notes():
    assert judged(of_both(gap=0.021)).estimates["kl"].reason == "overfitted by 0.021 nats: more samples would help"
    assert judged(of_both(gap=0.009)).reasons == ()
    assert judged(of_both(anchors_ess=1000.0)).reasons == ("the anchor samples are worth 1000 of 5000",)
    arrived = judged(of_both(p_weights=None, anchors_ess=1000.0))
    assert arrived.reasons == ()
    assert arrived.notes == ("from the next step on, the anchor samples are worth 1000 of 5000.",)
    assert judged(of_both(anchors_ess=200.0)).estimates["kl"].verdict == "refused"


def test_a_bridge_is_noted():
    report = judged(of_both(bridged=True))
    assert report.bridged
    assert report.reasons[0].startswith("the data and the model hardly overlap")
    assert "sum over waymarks" in report.notes[0]


@pytest.mark.parametrize("found", [of_both(), of_both(p_weights=None)], ids=["anchor samples", "the data itself"])
def test_the_error_is_that_of_a_flawless_estimator_times_the_slack(found):
    plain, slack = (judged(found, dataclasses.replace(LIMITS, slack=s)).estimates["js"] for s in (1.0, 1.5))
    assert slack.value == plain.value
    assert slack.std_error == pytest.approx(1.5 * plain.std_error)
    assert slack.high - slack.value == pytest.approx(1.5 * (plain.high - plain.value))


def test_the_error_that_the_anchors_weights_carry_is_added_by_the_variance_of_the_slope():
    flawless = dataclasses.replace(LIMITS, slack=1.0)
    plain, wider = (judged(of_both(inherited=c), flawless).estimates["js"] for c in (0.0, 0.01))
    slope = (2 * log_ratio(P, 0).sigmoid()).log() / 2  # of js: log(2 r / (1 + r)) / 2
    assert wider.value == plain.value
    assert wider.std_error**2 == pytest.approx(plain.std_error**2 + 0.01 * float(slope.var(correction=0)))


def twice_fitted(by=0.0, **changes):
    """Both sides by the exact ratio, and a second fit that is off by `by` everywhere."""
    found = of_both(**changes)
    return dataclasses.replace(found, fewer=(found.log_ratio_p + by, found.log_ratio_q + by))


def test_a_second_fit_makes_the_interval_and_the_gap_is_no_reason_any_more():
    still, moving = (judged(twice_fitted(by, gap=0.5)).estimates["kl"] for by in (0.0, 0.1))
    assert (still.verdict, moving.details["movement"]) == ("ok", pytest.approx(0.1**2 / 2))
    assert moving.high > still.high + 0.01
    assert moving.low == pytest.approx(still.low)


@pytest.mark.parametrize("name", ["kl", "js"])
def test_the_error_of_the_anchors_weights_is_on_either_side(name):
    plain, sampled, unlearnt = (
        judged(twice_fitted(**changes)).estimates[name]
        for changes in ({}, {"inherited": 1 / 5000}, {"unlearnt": 0.001})
    )
    log_r = log_ratio(P, 0)
    slope = log_r if name == "kl" else torch.nn.functional.logsigmoid(log_r) / 2
    spread = float(slope.var(correction=0))
    assert sampled.std_error == pytest.approx((plain.std_error**2 + spread / 5000) ** 0.5)
    beyond = 1.96 * (sampled.std_error - plain.std_error)
    assert sampled.high - plain.high == pytest.approx(beyond, rel=1e-3)
    assert plain.low - sampled.low == pytest.approx(beyond, rel=1e-3)
    moved = LIMITS.carried * (2 * 0.001 * spread) ** 0.5
    assert unlearnt.high - plain.high == pytest.approx(moved)
    assert plain.low - unlearnt.low == pytest.approx(moved)


def test_weights_that_are_not_sure_take_the_promise_and_worthless_ones_the_number():
    unsure = judged(twice_fitted(unlearnt=0.5)).estimates["kl"]
    assert (unsure.verdict, "not sure enough" in unsure.reason) == ("at least", True)
    worthless = judged(twice_fitted(anchors_ess=100.0)).estimates["kl"]
    assert (worthless.verdict, "anchor samples are worth 100.0" in worthless.reason) == ("refused", True)


def test_an_average_of_what_nothing_has_judged_promises_nothing():
    mean = averaged([judged(of_eq4()).estimates["kl"]] * 2)
    assert (mean.verdict, mean.low) == ("at least", pytest.approx(0.0, abs=1e-12))
