"""Eq. 4, anchored and running from exact log-ratios of Gaussians, against their closed forms."""

import math

import pytest
import torch

from vestige.chains.judging import report_of
from vestige.chains.report import Limits, StepReport, averaged_views
from vestige.chains.strategy import Found, Points
from vestige.chains.views import VIEWS, Views, views_of
from vestige.ratios.divergences import Gaussian, gaussian_divergence

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
    return Found(q, None, None, 0.0, 1, 0.0, 0, 0.0, anchored=points, running=points, moved=moved, members=members)


def test_with_the_exact_ratio_every_view_is_the_truth_at_every_step():
    views, start = views_of(found(Q1), NAMES, {}, tail=0.7)
    for name in NAMES:
        truth = gaussian_divergence(name, P, Q1)
        for view in VIEWS:
            assert getattr(views[name], view) == pytest.approx(truth, abs=2e-3), (name, view)
        assert start[name] == views[name].running
    second, from_second = views_of(found(Q2, Q1, Q1), NAMES, start, tail=0.7)
    third, _ = views_of(found(Q3, Q2, Q2), NAMES, from_second, tail=0.7)
    for q, views in ((Q2, second), (Q3, third)):
        for name in NAMES:
            truth = gaussian_divergence(name, P, q)
            for view in VIEWS:
                assert getattr(views[name], view) == pytest.approx(truth, rel=0.05, abs=2e-3), (name, view)


def test_running_adds_the_increment_over_the_samples_that_stand_for_the_data():
    f = found(Q3, Q2, Q2)
    views, after = views_of(f, ["kl", "js"], {"kl": 5.0, "js": 1.0}, tail=0.7)
    w = f.running.weights
    step = float(w @ (f.running.log_ratio - f.running.before))  # E_S[log q_s/q_t]
    assert views["kl"].running == pytest.approx(5.0 + step)
    assert views["kl"].anchored == pytest.approx(float(w @ f.running.log_ratio))

    def js(log_r):  # f(r) / r
        r = log_r.exp()
        return (r * log_r - (1 + r) * ((1 + r) / 2).log()) / 2 / r

    assert views["js"].running == pytest.approx(1.0 + float(w @ (js(f.running.log_ratio) - js(f.running.before))))
    assert after == {"kl": views["kl"].running, "js": views["js"].running}
    still = views_of(found(Q3, Q2, Q2, moved=False), ["kl"], {"kl": 5.0}, tail=0.7)[1]
    assert still == {"kl": 5.0}  # the stand-in stays, and so does the value of its step


def test_eq4_breaks_down_where_the_model_is_narrow_and_is_then_not_held_against_the_value():
    narrow = Gaussian.isotropic(0.5, 0.5, 2)
    truth = gaussian_divergence("kl", P, narrow)
    views, _ = views_of(found(narrow), ["kl"], {}, tail=0.7)
    assert views["kl"].heavy == ("eq4",)
    assert views["kl"].eq4 < 0.95 * truth  # with the exact ratio and 100000 samples
    assert views["kl"].anchored == pytest.approx(truth, rel=0.01)
    assert views["kl"].disagreement(truth) < 0.03 < abs(views["kl"].eq4 - truth)


def test_disagreement_is_the_largest_distance_that_counts():
    assert Views(1.0, 2.0, math.nan).disagreement(1.2) == pytest.approx(0.8)
    assert Views(9.0, 2.0, 1.1, heavy=("eq4",)).disagreement(1.2) == pytest.approx(0.8)
    assert math.isnan(Views(math.nan, math.nan, math.nan).disagreement(1.2))
    assert math.isnan(Views(1.0, 1.0, 1.0).disagreement(math.nan))
    mean = averaged_views([Views(1.0, 2.0, 3.0, ("eq4",), 0.3), Views(3.0, 4.0, 5.0, (), 0.4)])
    assert (mean.eq4, mean.running, mean.anchored, mean.heavy) == (2.0, 3.0, 4.0, ("eq4",))
    assert mean.spread == pytest.approx(0.25)


def test_the_spread_is_that_of_the_members_and_reports_survive_json():
    x = log_ratio(Q1, sample(Q1, 2))
    f = found(Q1, members=torch.stack([x, 2 * x, 3 * x]))
    report = StepReport(3, (report_of(f, "a", 1, ("kl", "reverse_kl"), {}, level=0.9, limits=Limits()),))
    views = report.tasks[0].views["reverse_kl"]
    assert views.spread == pytest.approx(float(-x.mean()))  # of -mean, -2 mean, -3 mean
    assert report.tasks[0].members == 3
    again = StepReport.from_json(report.to_json())
    assert again == report
    table = report.table(["kl"])
    assert list(table.columns[-5:]) == ["eq4", "running", "anchored", "disagreement", "spread"]
    assert table.disagreement[0] == pytest.approx(max(abs(table[v][0] - table.value[0]) for v in VIEWS))
    assert table.iloc[1].task == "average"
    assert table.iloc[1].eq4 == table.iloc[0].eq4
    nothing = Found(x, None, None, 0.0, 1, 0.0, 0, 0.0)  # a strategy that stands on Eq. 4 alone
    bare = StepReport(1, (report_of(nothing, "a", 1, ("kl",), {}, level=0.9, limits=Limits()),))
    read = StepReport.from_json(bare.to_json()).tasks[0].views["kl"]
    assert math.isnan(read.running)
    assert math.isnan(read.anchored)
    assert read.eq4 == bare.tasks[0].estimates["kl"].value
