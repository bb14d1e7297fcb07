import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from vestige.core import rng
from vestige.ratios.kliep import best_mixture


def problem(n=200, b=6, name="A"):
    A = torch.rand(n, b, generator=rng.fork(0, name), dtype=torch.float64).pow(4) + 1e-3
    w = torch.rand(n, generator=rng.fork(0, name, "w"), dtype=torch.float64) + 0.1
    return A, w / w.sum()


def test_maximum_against_a_general_solver():
    A, w = problem()
    a, v = A.numpy(), w.numpy()
    reference = minimize(
        lambda b: -(v @ np.log(a @ b)),
        np.full(6, 1 / 6),
        jac=lambda b: -(a.T @ (v / (a @ b))),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1},
        options={"ftol": 1e-12},
    )
    fit = best_mixture(A.mT.contiguous(), w, tolerance=1e-9)
    assert fit.objective == pytest.approx(-reference.fun, abs=1e-8)
    torch.testing.assert_close(fit.proportions, torch.from_numpy(reference.x), atol=1e-4, rtol=0)


@pytest.mark.parametrize("narrow", [1, 8])
def test_newton_and_em_reach_one_optimum_and_the_gap_certifies_it(narrow):
    A, w = problem(300, 20, "B")
    columns = A.pow(narrow).mT.contiguous()
    fit = best_mixture(columns, w, tolerance=1e-8)
    slow = best_mixture(columns, w, tolerance=1e-4, max_rounds=20000, em_rounds=20000)
    assert fit.gap <= 1e-8
    assert slow.gap <= 1e-4
    assert -1e-12 < fit.objective - slow.objective <= slow.gap  # the gap bounds what is left to gain
    assert fit.rounds < 20
    assert float(fit.proportions.sum()) == pytest.approx(1, abs=1e-12)
    assert fit.proportions.min() >= 0


@pytest.mark.parametrize("em_rounds", [0, 3, 50])
def test_every_round_rises(em_rounds):
    A, w = problem(150, 15, "C")
    columns = A.pow(6).mT.contiguous()
    reached = [best_mixture(columns, w, max_rounds=k, em_rounds=em_rounds, tolerance=1e-10) for k in range(20)]
    steps = np.diff([fit.objective for fit in reached])
    assert steps.min() > -1e-14
    # It rises strictly until what is left to gain is lost in rounding.
    assert all(steps[k] > 0 for k in range(19) if reached[k].gap > 1e-4)
    assert steps[0] > 1e-3


def test_a_start_without_a_needed_column_recovers():
    A, w = problem(200, 6, "D")
    columns = A.mT.contiguous()
    best = best_mixture(columns, w, tolerance=1e-9)
    start = torch.zeros(6, dtype=torch.float64)
    start[int(best.proportions.argmin())] = 1.0
    again = best_mixture(columns, w, start=start, em_rounds=0, tolerance=1e-9)
    assert again.objective == pytest.approx(best.objective, abs=1e-9)


def test_scaling_a_row_changes_nothing_but_a_constant():
    A, w = problem(100, 5, "E")
    scale = torch.rand(100, generator=rng.fork(0, "s"), dtype=torch.float64) + 0.5
    one, two = best_mixture(A.mT.contiguous(), w), best_mixture((A * scale[:, None]).mT.contiguous(), w)
    torch.testing.assert_close(one.proportions, two.proportions, atol=1e-6, rtol=0)
    assert two.objective - one.objective == pytest.approx(float(w @ scale.log()), abs=1e-6)


def test_equal_columns_and_a_single_one():
    A, w = problem(100, 1, "F")
    alone = best_mixture(A.mT.contiguous(), w)
    assert alone.rounds == 0
    twice = best_mixture(A.mT.repeat(2, 1).contiguous(), w)
    assert twice.objective == pytest.approx(alone.objective, abs=1e-12)
