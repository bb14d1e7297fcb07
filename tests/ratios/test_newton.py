"""Newton's method against the optimality condition, an independent solver, and the explicit dense design."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from vestige.ratios.newton import Design, arrow_solve, logistic_loss, newton_logistic


def problem(n=300, d=3, k=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, generator=g, dtype=torch.float64)
    sign = torch.where(torch.rand(n, generator=g) < torch.sigmoid(z[:, 0] - z[:, 1] ** 2), 1.0, -1.0).double()
    weights = torch.rand(n, generator=g, dtype=torch.float64)
    phi = torch.cat([torch.ones(n, 1, dtype=torch.float64), z], 1)
    group = torch.randint(k, (n,), generator=g)
    return Design(phi, group, phi.clone(), k), sign, weights


def test_dense_fit_agrees_with_scikit_learn():
    design, sign, weights = problem()
    ours = newton_logistic(design.phi, sign, weights, ridge=2.0, tolerance=1e-14)
    peer = LogisticRegression(C=1 / 2.0, tol=1e-10, max_iter=1000)
    peer.fit(design.phi[:, 1:].numpy(), sign.numpy(), sample_weight=weights.numpy())
    expected = torch.tensor([peer.intercept_[0], *peer.coef_[0]])
    torch.testing.assert_close(ours.head, expected, atol=1e-5, rtol=1e-5)
    assert ours.converged


def test_local_columns_equal_the_explicit_dense_design():
    design, sign, weights = problem()
    ours = newton_logistic(design, sign, weights, ridge=1.5, tolerance=1e-14)
    n, k, width = len(sign), design.groups, design.local.shape[1]
    spread = torch.zeros(n, k, width, dtype=torch.float64)
    spread[torch.arange(n), design.group] = design.local
    dense = newton_logistic(torch.cat([design.phi, spread.flatten(1)], 1), sign, weights, ridge=1.5, tolerance=1e-14)
    m = design.phi.shape[1]
    torch.testing.assert_close(ours.head, dense.head[:m], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.blocks.flatten(), dense.head[m:], atol=1e-6, rtol=1e-6)


def test_the_gradient_vanishes_at_the_solution():
    design, sign, weights = problem(seed=3)
    fit = newton_logistic(design, sign, weights, ridge=0.3, tolerance=1e-14)
    head, blocks = fit.head.requires_grad_(), fit.blocks.requires_grad_()
    loss = logistic_loss(design.logit(head, blocks), sign, weights)
    (loss + 0.15 * (head[1:].square().sum() + blocks.square().sum())).backward()
    assert max(float(head.grad.abs().max()), float(blocks.grad.abs().max())) < 1e-6


def test_an_empty_group_and_a_start_at_the_solution():
    design, sign, weights = problem()
    wider = Design(design.phi, design.group, design.local, design.groups + 1)
    fit = newton_logistic(wider, sign, weights, ridge=1.0)
    assert torch.equal(fit.blocks[-1], torch.zeros_like(fit.blocks[-1]))
    again = newton_logistic(wider, sign, weights, ridge=1.0, start=(fit.head, fit.blocks))
    assert again.iterations == 1
    assert again.converged


def test_separable_data_stay_finite_and_converge():
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    phi = torch.stack([torch.ones_like(x), x], 1)
    fit = newton_logistic(phi, x.sign(), torch.ones_like(x), ridge=1e-3)
    assert fit.converged
    assert 10 < float(fit.head[1]) < 1000


def test_a_search_cut_short_says_so():
    design, sign, weights = problem()
    fit = newton_logistic(design, sign, weights, ridge=0.1, max_iterations=1)
    assert not fit.converged
    assert fit.decrement > 0


@pytest.mark.parametrize("width", [0, 2])
def test_arrow_solve_equals_a_dense_solve(width):
    g = torch.Generator().manual_seed(1)
    m, k = 3, 4
    root = torch.randn(m + k * width, 40, generator=g, dtype=torch.float64)
    matrix = root @ root.mT
    for i in range(k):  # no entries between blocks of different groups
        for j in range(k):
            if i != j:
                matrix[m + i * width : m + (i + 1) * width, m + j * width : m + (j + 1) * width] = 0
    matrix += 50 * torch.eye(len(matrix), dtype=torch.float64)
    right = torch.randn(len(matrix), generator=g, dtype=torch.float64)
    inner = torch.stack(
        [matrix[m + i * width : m + (i + 1) * width, m + i * width : m + (i + 1) * width] for i in range(k)]
    )
    cross = torch.stack([matrix[:m, m + i * width : m + (i + 1) * width] for i in range(k)])
    head, blocks = arrow_solve(matrix[:m, :m], cross, inner, right[:m], right[m:].view(k, width))
    torch.testing.assert_close(torch.cat([head, blocks.flatten()]), torch.linalg.solve(matrix, right))


@pytest.mark.parametrize("width", [0, 2])
def test_a_head_that_is_singular_gets_the_answer_of_least_norm(width):
    """A constant column beside the constant."""
    cross, inner = torch.zeros(1, 2, width).double(), torch.eye(width).double()[None]
    ones = torch.ones(2).double()
    x, blocks = arrow_solve(torch.ones(2, 2).double(), cross, inner, ones, torch.ones(1, width).double())
    torch.testing.assert_close(x, ones / 2)
    torch.testing.assert_close(blocks, torch.ones(1, width).double())
