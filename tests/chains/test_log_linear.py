"""Eq. 8, 10 and 12 of CDRE, against the formulas written out; growth; members; early stopping."""

import dataclasses

import pytest
import torch

from vestige.chains.log_linear import LogLinearSchedule, TaskRows, fresh, grown, objective, psi, train
from vestige.chains.step_losses import ESTIMATORS, kliep, step_value

SCHEDULE = LogLinearSchedule(learning_rate=1e-2, cosine=True, batch_size=200, epochs=30, held_out=0.0, patience=5)


def draw(n, seed, d=1, members=1):
    return torch.randn(members, n, d, generator=torch.Generator().manual_seed(seed))


def four():
    return [draw(50, i, members=2)[:, :, 0].double() for i in range(4)]


def rows(x):
    return TaskRows(x, torch.zeros(x.shape[:2]))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_objective_is_eq_10_with_the_penalty_subtracted(estimator):
    on_p, on_q, psi_before_p, psi_before_q = four()
    log_psi_before, strength = torch.tensor([[0.3], [-0.2]]).double(), 2.0  # log Psi_{t-1}(X_{t-1})
    value = step_value(estimator, "kl")
    found = objective(on_p, on_q, psi_before_p - log_psi_before, psi_before_q - log_psi_before, strength, value)
    for m in range(2):
        s_p, s_q = on_p[m] - psi_before_p[m] + log_psi_before[m], on_q[m] - psi_before_q[m] + log_psi_before[m]
        inverse = (on_q[m] - psi_before_q[m]).exp().mean()  # Psi^-1_t(X_t)
        penalty = (inverse * log_psi_before[m].exp() / on_q[m].exp().mean() - 1) ** 2
        torch.testing.assert_close(found[m : m + 1], value(s_p[None], s_q[None]) - strength * penalty)
    free = objective(on_p, on_q, psi_before_p - log_psi_before, psi_before_q - log_psi_before, 0.0, value)
    assert bool((free > found).all())


def test_constants_in_psi_do_not_matter_to_kliep():
    on_p, on_q, before_p, before_q = four()
    plain = objective(on_p, on_q, before_p, before_q, 1.0, kliep)
    torch.testing.assert_close(objective(on_p + 3, on_q + 3, before_p, before_q, 1.0, kliep), plain)


def test_growth_keeps_the_outputs_of_old_tasks_and_starts_new_ones_at_zero():
    layers = grown(fresh([2, 8, 8], [0, 1]), 1)
    layers[-2] = layers[-2] + 1.0
    more = grown(layers, 3)
    x = draw(10, 0, 2, members=2)
    assert torch.equal(psi(layers, x, 0), psi(more, x, 0))
    assert torch.equal(psi(more, x, 2), torch.zeros(2, 10))
    assert not torch.equal(layers[0][0], layers[0][1])  # each member from its own seed


@pytest.mark.parametrize("held_out", [0.0, 0.3])
@pytest.mark.parametrize("estimator", ["kliep", "logistic"])
def test_training_finds_the_ratio_of_two_gaussians(held_out, estimator):
    p, q = draw(2000, 0) + 0.5, draw(2000, 1)  # log r = x/2 - 1/8, KL = 1/8
    schedule = dataclasses.replace(SCHEDULE, held_out=held_out)
    start = grown(fresh([1, 16], [0]), 1)
    layers = train(start, [rows(p)], [rows(q)], [0.0], step_value(estimator, "kl"), schedule, seeds=[0])
    x = torch.linspace(-1, 1.5, 6)[None, :, None]
    out = (psi(layers, x, 0) - psi(layers, q, 0).exp().mean().log())[0]
    torch.testing.assert_close(out, x[0, :, 0] / 2 - 1 / 8, atol=0.15, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(start, grown(fresh([1, 16], [0]), 1), strict=True))


@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_members_trained_as_one_are_those_trained_one_by_one(held_out, resample):
    schedule = LogLinearSchedule(1e-2, True, 50, 12, held_out, 2, resample)  # members stop early at epochs of their own
    seeds = [3, 4, 5]
    p, q = (  # two tasks; data of their own, and a ratio to start from; float64, as Adam magnifies rounding
        [TaskRows(draw(n, task, 2, 3).double(), draw(n, 5, 1, 3)[:, :, 0].double()) for task in range(2)]
        for n in (240, 200)
    )
    start = [x.double() for x in grown(fresh([2, 8], seeds), 2)]
    together = train(start, p, q, [0.0, 0.7], kliep, schedule, seeds=seeds)
    for k, seed in enumerate(seeds):
        own = slice(k, k + 1)
        alone = train(
            [x[own] for x in start],
            *([TaskRows(r.x[own], r.before[own]) for r in side] for side in (p, q)),
            [0.0, 0.7],
            kliep,
            schedule,
            seeds=[seed],
        )
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[own], b, atol=1e-8, rtol=1e-8)
    assert not torch.allclose(together[0][0], together[0][1])


def test_early_stopping_keeps_the_best_rows_held_out():
    p, q = draw(60, 0), draw(60, 1)  # no difference: whatever is learnt is noise
    schedule = LogLinearSchedule(3e-2, False, 20, 60, 0.5, 3)
    start = grown(fresh([1, 32, 32], [0]), 1)
    stopped = train(start, [rows(p)], [rows(q)], [0.0], kliep, schedule, seeds=[0])
    never = train(start, [rows(p)], [rows(q)], [0.0], kliep, dataclasses.replace(schedule, held_out=0.0), seeds=[0])
    sizes = [float(psi(layers, draw(500, 2), 0).std()) for layers in (stopped, never)]
    assert sizes[0] < sizes[1] / 3
