"""Eq. 9, 10 and 12 of CDRE, against the formulas written out; growth of the network; early stopping."""

import math

import pytest
import torch

from vestige import rng
from vestige.chains.log_linear import Rows, Schedule, grown, objective, psi, train

SCHEDULE = Schedule(lr=1e-2, cosine=True, batch=200, epochs=30, held_out=0.0, patience=5)


def draw(n, seed, d=1):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_the_objective_is_eq_10_with_the_penalty_subtracted():
    on_p, on_q, before_p, before_q = (draw(50, i)[:, 0].double() for i in range(4))
    log_before, strength = 0.3, 2.0
    step = (on_q - before_q).exp().mean()  # Psi^-1_t(X_t)
    expected = (on_p - before_p - step.log()).mean() - strength * (
        step * math.exp(log_before) / on_q.exp().mean() - 1
    ) ** 2
    torch.testing.assert_close(objective(on_p, on_q, before_p, before_q, log_before, strength), expected)
    free = objective(on_p, on_q, before_p, before_q, log_before, 0.0)
    assert float(free) > float(expected)


def test_constants_in_either_network_do_not_matter():
    on_p, on_q, before_p, before_q = (draw(50, i)[:, 0].double() for i in range(4))
    plain = objective(on_p, on_q, before_p, before_q, 0.3, 1.0)
    moved = objective(on_p + 3, on_q + 3, before_p + 2, before_q + 2, 0.3 + 2, 1.0)  # log Psi_{t-1} moves along
    torch.testing.assert_close(moved, plain)


def test_growth_keeps_the_outputs_of_old_tasks_and_starts_new_ones_at_zero():
    layers = grown((), [2, 8, 8], 1, generator=rng.fork(0, "init"))
    layers[-2] += 1.0
    more = grown(layers, [2, 8, 8], 3, generator=rng.fork(1, "init"))
    x = draw(10, 0, 2)
    assert torch.equal(psi(layers, x, 0), psi(more, x, 0))
    assert torch.equal(psi(more, x, 2), torch.zeros(10))


@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_training_finds_the_ratio_of_two_gaussians(held_out):
    p, q = draw(2000, 0) + 0.5, draw(2000, 1)  # log r = x/2 - 1/8, KL = 1/8
    rows = [Rows(x, torch.zeros(len(x))) for x in (p, q)]
    schedule = Schedule(**{**vars(SCHEDULE), "held_out": held_out})
    start = grown((), [1, 16], 1, generator=rng.fork(0, "init"))
    layers = train(start, rows[:1], rows[1:], [0.0], [0.0], schedule, seed=0)
    x = torch.linspace(-1, 1.5, 6)[:, None]
    out = psi(layers, x, 0) - psi(layers, q, 0).exp().mean().log()
    torch.testing.assert_close(out, x[:, 0] / 2 - 1 / 8, atol=0.15, rtol=0)
    fresh = grown((), [1, 16], 1, generator=rng.fork(0, "init"))
    assert all(torch.equal(a, b) for a, b in zip(start, fresh, strict=True))  # arguments stay as they are
