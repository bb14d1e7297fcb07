"""Eq. 4, anchored and running from exact log-ratios of Gaussians, against their closed forms."""

import math

import pytest
import torch

from vestige.chains.estimates import other_ways, report_of
from vestige.chains.report import WAYS, ChainLimits, StepReport, averaged, disagreement
from vestige.chains.strategy import Points, TaskLogRatios
from vestige.core.estimate import Estimate
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige.store import decode, encode

N = 100_000
P, Q1, Q2, Q3 = (Gaussian.isotropic(m, s, 2) for m, s in ((0.0, 1.0), (0.1, 1.0), (0.3, 0.95), (0.5, 0.9)))
NAMES = ("kl", "reverse_kl", "js", "hellinger2", "jeffreys")


def log_ratio(q, x):
    return P.log_prob(x) - q.log_prob(x)


def sample(law, seed):
    return law.sample(N, generator=torch.Generator().manual_seed(seed))


def found(now, then=None, stands=None, moved=True, members=None):
    """What a chain with the exact ratio finds at `now`; samples of `stands` stand for p since `then`."""
    if then is None:
        points = Points(log_ratio(now, sample(P, 0)), None, None)
    else:
        x = sample(stands, 1)
        before = log_ratio(stands, x)
        points = Points(log_ratio(now, x), torch.softmax(before, 0), before)
    q = log_ratio(now, sample(now, 2))
    return TaskLogRatios(
        q, None, None, 0.0, 1, 0.0, 0, 0.0, anchored=points, running=points, moved=moved, members=members
    )


def ways_of(f, names, start):
    """Of each divergence the other ways and where the next step's `running` starts, by the report."""
    report = report_of(f, "a", 1, names, start, level=0.95, limits=ChainLimits())
    return {name: e.details for name, e in report.estimates.items()}, report.running_from


def test_with_the_exact_ratio_every_way_is_the_truth_at_every_step():
    first, start = ways_of(found(Q1), NAMES, {})
    for name in NAMES:
        truth = gaussian_divergence(name, P, Q1)
        for way in WAYS:
            assert first[name][way] == pytest.approx(truth, abs=2e-3), (name, way)
        assert start[name] == first[name]["running"]
    second, from_second = ways_of(found(Q2, Q1, Q1), NAMES, start)
    third, _ = ways_of(found(Q3, Q2, Q2), NAMES, from_second)
    for q, ways in ((Q2, second), (Q3, third)):
        for name in NAMES:
            truth = gaussian_divergence(name, P, q)
            for way in WAYS:
                assert ways[name][way] == pytest.approx(truth, rel=0.05, abs=2e-3), (name, way)


def test_running_adds_the_increment_over_the_samples_in_the_place_of_the_data():
    f = found(Q3, Q2, Q2)
    ways, after = ways_of(f, ["kl", "js"], {"kl": 5.0, "js": 1.0})
    w = f.running.weights
    step = float(w @ (f.running.log_ratio - f.running.before))  # E_S[log q_s/q_t]
    assert ways["kl"]["running"] == pytest.approx(5.0 + step)
    assert ways["kl"]["anchored"] == pytest.approx(float(w @ f.running.log_ratio))

    def js(log_r):  # f(r) / r
        r = log_r.exp()
        return (r * log_r - (1 + r) * ((1 + r) / 2).log()) / 2 / r

    assert ways["js"]["running"] == pytest.approx(1.0 + float(w @ (js(f.running.log_ratio) - js(f.running.before))))
    assert after == {"kl": ways["kl"]["running"], "js": ways["js"]["running"]}
    still = ways_of(found(Q3, Q2, Q2, moved=False), ["kl"], {"kl": 5.0})[1]
    assert still == {"kl": 5.0}  # the anchors stay, and so does the value of their step


def test_eq4_breaks_down_where_the_model_is_narrow_and_is_then_not_held_against_the_value():
    narrow = Gaussian.isotropic(0.5, 0.5, 2)
    truth = gaussian_divergence("kl", P, narrow)
    ways = other_ways("kl", found(narrow), math.nan, tail=0.7)
    assert ways["heavy"] == ["eq4"]
    assert ways["eq4"] < 0.95 * truth  # with the exact ratio and 100000 samples
    assert ways["anchored"] == pytest.approx(truth, rel=0.01)
    assert disagreement(Estimate(truth, details=ways)) < 0.03 < abs(ways["eq4"] - truth)


def cell(value, eq4, running, anchored, heavy=(), spread=math.nan, **fields):
    ways = {"eq4": eq4, "running": running, "anchored": anchored, "heavy": list(heavy), "spread": spread}
    details = ways | {"depth": 2, "form": "two_sided", "samples": "both", "pareto_k": None}
    return Estimate.normal(value, 0.1, name="kl", n=10, ess=5.0, details=details, **fields)


def test_disagreement_is_the_largest_distance_that_counts():
    assert disagreement(cell(1.2, 1.0, 2.0, math.nan)) == pytest.approx(0.8)
    assert disagreement(cell(1.2, 9.0, 2.0, 1.1, heavy=("eq4",))) == pytest.approx(0.8)
    assert math.isnan(disagreement(cell(1.2, math.nan, math.nan, math.nan)))
    assert math.isnan(disagreement(cell(math.nan, 1.0, 1.0, 1.0)))
    mean = averaged([cell(0.0, 1.0, 2.0, 3.0, ("eq4",), 0.3), cell(1.0, 3.0, 4.0, 5.0, (), 0.4)])
    assert [mean.details[way] for way in WAYS] == [2.0, 3.0, 4.0]
    assert mean.details["heavy"] == ["eq4"]
    assert mean.details["spread"] == pytest.approx(0.25)
    assert (mean.value, mean.n, mean.verdict, mean.reason) == (0.5, 20, "ok", "")


def test_the_worst_verdict_stands_for_all_tasks():
    ok, least = cell(1.0, 1.0, 1.0, 1.0), cell(2.0, 1.0, 1.0, 1.0, verdict="at least", reason="overfitted")
    refused = least.withdrawn("The kl cannot be estimated.")
    two, three = averaged([ok, least]), averaged([ok, least, refused])
    assert (two.verdict, two.reason) == ("at least", "overfitted (1 of 2 tasks)")
    assert (three.verdict, three.reason) == ("refused", "The kl cannot be estimated. (2 of 3 tasks)")
    assert math.isnan(three.value)
    assert averaged([least]).reason == "overfitted"


def test_the_spread_is_that_of_the_members_and_reports_survive_json():
    x = log_ratio(Q1, sample(Q1, 2))
    f = found(Q1, members=torch.stack([x, 2 * x, 3 * x]))
    report = StepReport(3, (report_of(f, "a", 1, ("kl", "reverse_kl"), {}, level=0.9, limits=ChainLimits()),))
    ways = report.tasks[0].estimates["reverse_kl"].details
    assert ways["spread"] == pytest.approx(float(-x.mean()))  # of -mean, -2 mean, -3 mean
    assert report.tasks[0].members == 3
    assert decode(StepReport, *encode(report)) == report
    table = report.table(["kl"])
    assert list(table.columns[-5:]) == ["eq4", "running", "anchored", "disagreement", "spread"]
    assert table.disagreement[0] == pytest.approx(max(abs(table[v][0] - table.value[0]) for v in WAYS))
    assert table.iloc[1].task == "average"
    assert table.iloc[1].eq4 == table.iloc[0].eq4
    nothing = TaskLogRatios(x, None, None)  # a strategy that stands on Eq. 4 alone
    bare = StepReport(1, (report_of(nothing, "a", 1, ("kl",), {}, level=0.9, limits=ChainLimits()),))
    read = decode(StepReport, *encode(bare)).tasks[0].estimates["kl"]
    assert math.isnan(read.details["running"])
    assert math.isnan(read.details["anchored"])
    assert read.details["eq4"] == bare.tasks[0].estimates["kl"].value
