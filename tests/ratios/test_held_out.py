import dataclasses
import math

import pytest
import torch

from vestige.core.errors import InputError
from vestige.ratios import Ratio
from vestige.ratios.auto import look
from vestige.ratios.bootstrap import Bootstrap
from vestige.ratios.cross_fit import evaluate, fitted_rows, held_out
from vestige.ratios.divergences import learnt
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
@pytest.mark.parametrize("rows", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_against_the_exact_log_ratio(estimator, rows):
    p, q, exact = gaussians(2000, 2500)
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


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [Logistic(kind="quadratic"), Stack(wide=8)], ids=["Logistic", "Stack"])
def test_weighted_rows_stand_for_the_data(estimator):
    """Draws of another density, weighted by the exact ratio to N(0, 1), in the place of rows of N(0, 1)."""
    p, q, exact = gaussians(2000, 2000)
    p, draws, tilt = gaussians(2000, 2000, shift=-0.4, scale=1.2, seed=1)
    weights = torch.softmax(tilt(draws), 0)
    found, untilted = (held_out(draws, q, p_weights=w, estimator=estimator) for w in (weights, None))
    assert (found.log_ratio_q - exact(q)).square().mean().sqrt() < 0.25
    value, off = (
        learnt(["js"], *one.sides(None, w), one.refit(None, w))["js"] for one, w in ((found, weights), (untilted, None))
    )
    kept = held_out(p, q, estimator=estimator)
    with_rows = learnt(["js"], *kept.sides(), kept.refit())["js"]
    assert value.value == pytest.approx(with_rows.value, abs=2 * with_rows.std_error)
    assert off.value > with_rows.value + 5 * with_rows.std_error


def test_weights_of_p_are_worth_their_effective_rows():
    p, q, exact = gaussians(600, 700)
    weights = torch.softmax(exact(p) * 2, 0)
    found = held_out(p, q, p_weights=weights, estimator=Logistic(kind="quadratic"), rows=300)
    side, of_q = found.sides(None, weights)
    assert side.ess() == pytest.approx(float(1 / weights.square().sum()))
    assert of_q.ess() == pytest.approx(700)
    part = found.refit(None, weights).p
    assert len(part.weights) == 300
    assert float(part.weights.sum()) == pytest.approx(1)
    torch.testing.assert_close(part.weights[0] / part.weights[1], torch.div(*weights[found.fewer.rows_p[:2]]))


def test_equal_weights_of_p_are_none():
    p, q, _ = gaussians(300, 400)
    even = torch.full((300,), 1 / 300, dtype=torch.float64)
    plain, weighted = (held_out(p, q, p_weights=w, estimator=Logistic(kind="quadratic")) for w in (None, even))
    torch.testing.assert_close(plain.log_ratio_p, weighted.log_ratio_p, atol=1e-6, rtol=0)
    assert plain.report["simple_log_loss"] == pytest.approx(weighted.report["simple_log_loss"])


def test_the_quick_look_knows_the_weights_of_p():
    p, q, exact = gaussians(2000, 2000, shift=1.0, scale=1.0)
    weights = torch.softmax(-exact(p), 0)  # which turn p into q
    assert look(p, q, seed=0) < 0.55
    assert look(p, q, p_weights=weights, seed=0) > 0.65


def test_rows_of_weight_zero_are_not_fitted_on():
    p, q, _ = gaussians(60, 80)
    weights = torch.full((80,), 1 / 40, dtype=torch.float64)
    weights[40:] = 0
    assert sorted(fitted_rows(80, weights, 1000, 0, "q").tolist()) == list(range(40))
    found = held_out(p, q, q_weights=weights, estimator=Logistic(kind="linear"))
    assert len(found.log_ratio_q) == 80  # yet they have a log-ratio


@pytest.mark.parametrize(
    "estimator", [Logistic(hidden=(4,), epochs=2), Stack(**Stack.presets["fast"])], ids=["net", "stack"]
)
def test_the_second_fit_has_seen_fewer_rows(estimator, monkeypatch):
    """Of 60 rows a side a fit of three folds sees 40, and the second one 30."""
    seen = []
    kind, fit = type(estimator), type(estimator)._fit

    def counted(self, sample, seed, **beside):
        seen.append(len(sample.p) * (1 - 1 / self.folds) if isinstance(self, Stack) else len(sample.p))
        fit(self, sample, seed, **beside)

    monkeypatch.setattr(kind, "_fit", counted)
    p, q = gaussians(60, 60)[:2]
    found = held_out(p, q, estimator=estimator, seed=0)
    assert {round(n) for n in seen} == {30, 40}
    assert round(seen[-1]) == 30
    assert not torch.equal(found.fewer.log_ratio_p, found.log_ratio_p[found.fewer.rows_p])


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
