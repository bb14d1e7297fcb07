"""Platt and temperature against scipy's optimiser, reliability against a loop, and what calibration mends."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from vestige.core.errors import VestigeWarning
from vestige.ratios import calibration
from vestige.ratios.logistic import Logistic


def draws(n, scale=1.0, shift=0.0, seed=0):
    """Log-ratios of N(0, 1) against N(1, 1) at n rows of each, stretched and shifted."""
    g = torch.Generator().manual_seed(seed)
    p, q = torch.randn(n, generator=g, dtype=torch.float64), 1 + torch.randn(n, generator=g, dtype=torch.float64)
    return scale * (0.5 - p) + shift, scale * (0.5 - q) + shift


def even(*sets):
    return [torch.full((len(s),), 1 / len(s), dtype=torch.float64) for s in sets]


def smoothed_loss(slope, offset, log_p, log_q, w_p, w_q):
    t_p, t_q = (1 / w_p.pow(2).sum() + 1) / (1 / w_p.pow(2).sum() + 2), 1 / (1 / w_q.pow(2).sum() + 2)
    loss = 0.0
    for log, w, t in ((log_p, w_p, t_p), (log_q, w_q, t_q)):
        chance = torch.sigmoid(slope * log + offset)
        loss = loss - (w * (t * chance.log() + (1 - t) * (1 - chance).log())).sum()
    return float(loss)


@pytest.mark.parametrize("method", ["platt", "temperature"])
def test_the_map_minimises_platt_s_smoothed_log_loss(method):
    log_p, log_q = draws(60, 3.0, 0.7)
    w_p, w_q = torch.rand(60, generator=torch.Generator().manual_seed(1)).double(), torch.ones(60).double()
    w_p, w_q = w_p / w_p.sum(), w_q / w_q.sum()
    found = calibration.calibrate(method, log_p, log_q, w_p, w_q)
    free = method == "platt"
    best = minimize(
        lambda v: smoothed_loss(v[0], v[1] if free else 0.0, log_p, log_q, w_p, w_q),
        [1.0, 0.0] if free else [1.0],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-12},
    )
    assert found.slope == pytest.approx(best.x[0], abs=1e-4)
    assert found.offset == pytest.approx(best.x[1] if free else 0.0, abs=1e-4)


def test_a_stretched_and_shifted_ratio_is_put_right():
    log_p, log_q = draws(20000, 4.0, 2.0)
    platt = calibration.platt(log_p, log_q, *even(log_p, log_q))
    assert platt.slope == pytest.approx(1 / 4, abs=0.02)
    assert platt.offset == pytest.approx(-2 / 4, abs=0.05)


def test_a_ranking_turned_round_becomes_no_opinion_and_separable_rows_stay_finite():
    log_p, log_q = draws(500)
    turned = calibration.platt(-log_p, -log_q, *even(log_p, log_q))
    assert (turned.slope, turned.offset) == (0.0, 0.0)
    apart = calibration.platt(log_p.abs() + 1, -log_q.abs() - 1, *even(log_p, log_q))
    assert 0 < apart.slope < 50
    assert math.isfinite(apart.offset)


def test_reliability_and_its_error_against_a_loop():
    log_p, log_q = draws(200, 2.0)
    w_p, w_q = torch.rand(200, generator=torch.Generator().manual_seed(1)).double(), torch.ones(200).double()
    table = calibration.reliability(log_p, log_q, w_p, w_q)
    bins = [[0.0, 0.0, 0.0] for _ in range(10)]
    for logs, weights, label in ((log_p, w_p, 1.0), (log_q, w_q, 0.0)):
        for log, w in zip(logs.tolist(), (weights / weights.sum() / 2).tolist(), strict=True):
            chance = 1 / (1 + math.exp(-log))
            row = bins[min(int(chance * 10), 9)]
            row[0] += w
            row[1] += w * chance
            row[2] += w * label
    np.testing.assert_allclose(table.mass, [b[0] for b in bins], atol=1e-12)
    error = sum(abs(b[2] - b[1]) for b in bins)
    assert calibration.expected_calibration_error(table) == pytest.approx(error, abs=1e-12)
    assert error > 0.05  # the log-ratios were stretched
    assert sum(row["mass"] for row in table.as_rows()) == pytest.approx(1)


def test_a_chance_of_one_falls_into_the_last_bin_and_of_a_half_counts_half():
    table = calibration.reliability(*[torch.tensor([40.0]).double()] * 2, *even([0], [0]))
    assert float(table.mass[9]) == 1.0
    zero = torch.zeros(3, dtype=torch.float64)
    assert calibration.held_out_figures(zero, zero, *even(zero, zero))["accuracy"] == 0.5


def test_calibration_mends_an_overfit_network():
    # 10 dimensions, 300 rows and no restraint: the raw log-ratio is many times too large.
    g = torch.Generator().manual_seed(0)
    p, q = torch.randn(300, 10, generator=g).double(), torch.randn(300, 10, generator=g).double() + 0.3
    x = torch.randn(1000, 10, generator=g).double() + 0.15
    truth = ((x - 0.3).square() - x.square()).sum(1) / 2
    overfit = {
        "hidden": (64,),
        "weight_decay": 0.0,
        "steps": 250,
        "check_every": 250,
        "skip": "none",
        "learning_rate": 2e-2,
    }
    error, reports = {}, {}
    for method in (None, "temperature", "platt"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VestigeWarning)
            estimator = Logistic(calibration=method, **overfit)
            # Early stopping is what would save it: take the last step, not the best.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("vestige.nets.training.Best.update", _always_better)
                estimator.fit(p, q)
        error[method] = float((estimator.log_ratio(x) - truth).square().mean())
        reports[method] = estimator.report_["held_out"]
    assert error[None] > 10 * error["platt"]
    assert error[None] > 10 * error["temperature"]
    assert reports["platt"]["ece"] < reports["platt"]["raw"]["ece"]
    assert reports["platt"]["log_loss"] < reports["platt"]["raw"]["log_loss"]


def _always_better(self, latest, step):
    self.loss, self.latest, self.kept = latest, latest, [p.clone() for p in self.parameters]
    return True
