"""GEM's projection against a generic solver, its constraints, and one step by hand."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from toys import blobs
from vestige.continual.learners import build
from vestige.continual.learners.gem import dual, projected
from vestige.core.errors import InputError
from vestige.data.streams import split


def gradients(t=4, p=30, seed=0):
    """A gradient that the first past task objects to."""
    g = torch.Generator().manual_seed(seed)
    gradient = torch.randn(p, generator=g, dtype=torch.float64)
    past = torch.randn(t, p, generator=g, dtype=torch.float64)
    past[0] = past[0] - 2 * gradient
    return gradient, past


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("ridge", [1e-3, 2.0])
def test_the_dual_is_the_one_a_generic_solver_finds(seed, margin, ridge):
    gradient, past = gradients(seed=seed)
    P = (past @ past.mT + ridge * torch.eye(len(past))).numpy()
    q = (past @ gradient).numpy()
    bounds = [(margin, None)] * len(past)
    slow = minimize(
        lambda v: v @ P @ v / 2 + q @ v, np.ones(len(q)), jac=lambda v: P @ v + q, bounds=bounds, method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    found = dual(past @ past.mT, past @ gradient, margin=margin, ridge=ridge)
    np.testing.assert_allclose(found.numpy(), slow.x, atol=2e-5)
    expected = gradient + torch.from_numpy(slow.x) @ past
    torch.testing.assert_close(projected(gradient, past, margin=margin, ridge=ridge), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_without_margin_it_is_the_nearest_direction_that_no_task_objects_to(seed):
    gradient, past = gradients(seed=seed)
    found = projected(gradient, past, margin=0.0, ridge=1e-9)
    assert (past @ gradient).min() < -1
    assert (past @ found).min() > -1e-7
    slow = minimize(
        lambda z: ((z - gradient.numpy()) ** 2).sum() / 2, np.zeros(len(gradient)), jac=lambda z: z - gradient.numpy(),
        constraints={"type": "ineq", "fun": lambda z: past.numpy() @ z, "jac": lambda z: past.numpy()}, method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    np.testing.assert_allclose(found.numpy(), slow.x, atol=1e-5)


def test_with_a_margin_the_constraints_hold_up_to_the_ridge():
    for seed in range(10):
        gradient, past = gradients(t=6, seed=seed)
        v = dual(past @ past.mT, past @ gradient, margin=0.5, ridge=1e-3)
        assert v.min() >= 0.5
        slack = past @ (gradient + v @ past) + 1e-3 * v
        assert slack.min() > -1e-8
        assert slack[v > 0.5 + 1e-9].abs().max() < 1e-8 if bool((v > 0.5 + 1e-9).any()) else True


def test_a_gradient_that_nobody_objects_to_is_left_alone():
    gradient, past = gradients()
    past = past * (past @ gradient).sign()[:, None]
    assert projected(gradient, past, margin=0.5, ridge=1e-3) is gradient


def test_past_gradients_that_say_the_same_are_no_trouble():
    gradient, past = gradients(t=1)
    found = projected(gradient.float(), past.float().repeat(5, 1), margin=0.0, ridge=1e-3)
    torch.testing.assert_close(found, projected(gradient, past, margin=0.0, ridge=1e-9).float(), atol=1e-3, rtol=1e-3)


def test_the_authors_ridge_outweighs_short_gradients_and_a_relative_one_does_not():
    gradient, past = (1e-3 * g for g in gradients())
    absolute, relative = (projected(gradient, past, margin=0.0, ridge=1e-3, relative=r) for r in (False, True))
    worst = (past @ gradient).min()
    assert (past @ absolute).min() < 0.5 * worst
    assert (past @ relative).min() > 0.01 * worst


def tasks():
    return split(blobs(n_classes=4, per_class=12), 2, train_logits="current")


def test_a_step_uses_the_gradient_of_each_past_task_over_its_own_outputs():
    learner = build("gem", tasks(), hidden=(5,), memory={"per_class": 3}, reset_optimizer=True)
    for task in tasks():
        learner.begin_task(task)
        if task.info.index == 1:
            past = learner.past_gradients()
            assert past.shape == (1, sum(p.numel() for p in learner.net.parameters()))
            rows = learner.memory.task == 0
            loss = torch.nn.functional.cross_entropy(learner.net(learner.memory.x[rows])[:, :2], learner.memory.y[rows])
            expected = torch.autograd.grad(loss, list(learner.net.parameters()))
            torch.testing.assert_close(past[0], torch.cat([g.flatten() for g in expected]))
            loss = torch.nn.functional.cross_entropy(learner.net(task.x)[:, 2:], task.y - 2)
            own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner.net.parameters()))])
            step = projected(own, past, margin=0.5, ridge=1e-3)
            learner.observe(task.x, task.y)
            torch.testing.assert_close(torch.cat([p.grad.flatten() for p in learner.net.parameters()]), step)
        else:
            for x, y in zip(task.x.split(8), task.y.split(8), strict=True):
                learner.observe(x, y)
        learner.end_task(task)


def test_bad_settings_are_refused():
    for field, value in (("margin", -0.1), ("ridge", 0.0), ("ridge_scale", "some")):
        with pytest.raises(InputError, match=f"'{field}' of GEM"):
            build("gem", tasks(), **{field: value})
