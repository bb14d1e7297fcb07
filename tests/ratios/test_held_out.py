import dataclasses
import math

import pytest
import torch

from vestige.core.errors import InputError
from vestige.ratios import Ratio
from vestige.ratios.bootstrap import Bootstrap
from vestige.ratios.cross_fit import evaluate, fitted_rows, held_out
from vestige.ratios.logistic import Logistic
from vestige.ratios.stack.stack import Stack


def gaussians(n_p, n_q, *, shift=0.5, scale=1.3, d=2, seed=0):
    """Samples of N(0, 1) and N(shift, scale^2), and the exact log-ratio."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(n_p, d, generator=generator, dtype=torch.float64)
    q = torch.randn(n_q, d, generator=generator, dtype=torch.float64) * scale + shift

    def log_ratio(x):
        return (((x - shift) / scale).square() - x.square()).sum(1) / 2 + d * math.log(scale)

    return p, q, log_ratio


@dataclasses.dataclass(eq=False)
class Memoriser(Ratio):
    """+9 on rows of p it was fitted on, -9 on those of q, 1 on others."""

    def _fit(self, sample, seed):
        self.seen_ = (set(map(tuple, sample.p.tolist())), set(map(tuple, sample.q.tolist())))

    def _log_ratio(self, x):
        values = [9.0 if r in self.seen_[0] else -9.0 if r in self.seen_[1] else 1.0 for r in map(tuple, x.tolist())]
        return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("rows", [20_000, 60])
def test_no_row_is_judged_by_a_fit_that_saw_it(rows):
    p, q, _ = gaussians(90, 120)
    found = held_out(p, q, estimator=Memoriser(), rows=rows)
    # One value for every row of both sides: nothing was memorised, and calibration finds nothing to tell them by.
    assert len(set(found.log_ratio_p.tolist() + found.log_ratio_q.tolist())) == 1
    assert abs(found.log_ratio_p[0]) < 0.01
    assert found.report["gap"] == pytest.approx(8)
    assert found.report["rows_p"] == min(rows, 90)


@pytest.mark.parametrize("estimator", [Logistic(kind="quadratic"), Stack(wide=8)], ids=["Logistic", "Stack"])
@pytest.mark.parametrize("rows", [20_000, 1500])
def test_against_the_exact_log_ratio(estimator, rows):
    p, q, exact = gaussians(3000, 4000)
    found = held_out(p, q, estimator=estimator, rows=rows)
    for x, log_ratio in ((p, found.log_ratio_p), (q, found.log_ratio_q)):
        assert (log_ratio - exact(x)).square().mean().sqrt() < 0.25
    assert found.log_ratio_p.mean() == pytest.approx(float(exact(p).mean()), abs=0.03)
    accuracy = ((exact(p) > 0).double().mean() + (exact(q) < 0).double().mean()) / 2
    assert found.report["held_out"]["accuracy"] == pytest.approx(float(accuracy), abs=0.02)


def test_weights_of_q_change_the_law_that_is_compared():
    """Weighted by the exact ratio, q is p, and nothing is left to find."""
    p, q, exact = gaussians(3000, 3000, shift=0.3, scale=1.2)
    weights = torch.softmax(exact(q), 0)
    plain = held_out(p, q, estimator=Logistic(kind="quadratic"))
    weighted = held_out(p, q, q_weights=weights, estimator=Logistic(kind="quadratic"))
    assert plain.log_ratio_p.mean() > 0.08
    assert abs(weighted.log_ratio_p.mean()) < 0.01


def test_rows_of_weight_zero_are_not_fitted_on():
    p, q, _ = gaussians(60, 80)
    weights = torch.full((80,), 1 / 40, dtype=torch.float64)
    weights[40:] = 0
    assert sorted(fitted_rows(80, weights, 1000, 0, "q").tolist()) == list(range(40))
    found = held_out(p, q, q_weights=weights, estimator=Logistic(kind="linear"))
    assert len(found.log_ratio_q) == 80  # yet they have a log-ratio


def test_overconfident_ratios_are_calibrated():
    p, q, exact = gaussians(2000, 2000)

    @dataclasses.dataclass(eq=False)
    class Overconfident(Memoriser):
        def _log_ratio(self, x):
            return 3 * exact(x) + 0.5

    found = held_out(p, q, estimator=Overconfident())
    assert found.report["calibration"]["slope"] == pytest.approx(1 / 3, rel=0.15)
    assert (found.log_ratio_q - exact(q)).square().mean().sqrt() < 0.2


def test_a_bootstrap_brings_intervals_that_hold_the_truth():
    p, q, exact = gaussians(300, 300, scale=1.0)
    found = held_out(p, q, estimator=Logistic(kind="linear"), bootstrap=15)
    low, high = found.interval_q.unbind(1)
    assert (low <= high).all()
    assert ((low <= exact(q)) & (exact(q) <= high)).double().mean() > 0.8
    assert found.report["estimator"] == "Bootstrap"
    assert "15 fits of Logistic" in found.report["why"]
    assert held_out(p, q, estimator=Logistic(kind="linear")).interval_q is None


def test_evaluation_in_blocks_is_evaluation_at_once(monkeypatch):
    p, q, _ = gaussians(200, 200)
    fit = Bootstrap(Logistic(kind="linear"), 3).fit(p, q)
    whole = evaluate(fit, q)
    monkeypatch.setattr("vestige.ratios.cross_fit.BLOCK", 7)
    assert torch.allclose(evaluate(fit, q), whole, atol=1e-12)
    assert whole.shape == (200, 3)


def test_the_same_seed_gives_the_same_bits_and_arguments_stay():
    p, q, _ = gaussians(200, 200)
    before = p.clone(), q.clone()
    base = Logistic(kind="linear")
    first, second = (held_out(p, q, estimator=base, seed=3) for _ in range(2))
    assert torch.equal(first.log_ratio_q, second.log_ratio_q)
    assert torch.equal(p, before[0])
    assert torch.equal(q, before[1])
    assert base.width_ is None


def test_names_and_sizes_are_checked():
    p, q, _ = gaussians(50, 50)
    with pytest.raises(InputError, match="Did you mean 'logistic'"):
        held_out(p, q, estimator="logistik")
    with pytest.raises(InputError, match="at least 6 rows"):
        held_out(p[:4], q)
