import pytest
import torch

from vestige.core import rng
from vestige.ratios.base import Sample
from vestige.ratios.least_squares import loo_scores, normal_equations, solve

LAMBDAS = torch.tensor([1e-4, 1e-2, 1.0], dtype=torch.float64)


def features(n, b, name):
    return torch.rand(n, b, generator=rng.fork(0, name), dtype=torch.float64)


def weights(n, name):
    w = torch.rand(n, generator=rng.fork(0, name), dtype=torch.float64)
    w[1] = 0.0  # a row that does not count
    return w / w.sum()


def brute_force(phi_p, phi_q, u, v, ridge, alpha):
    """Refit without each row in turn: drop it from both sums, renormalise each, solve, look at the row."""
    rows = torch.cat([phi_p, phi_q])
    above = torch.cat([u, torch.zeros_like(v)])
    below = torch.cat([alpha * u, (1 - alpha) * v])
    score = 0.0
    for k in range(len(rows)):
        kept = torch.arange(len(rows)) != k
        H = torch.einsum("n,ni,nj->ij", below[kept] / below[kept].sum(), rows[kept], rows[kept])
        h = (above[kept] / above[kept].sum()) @ rows[kept]
        g = rows[k] @ torch.linalg.solve(H + ridge * torch.eye(len(h), dtype=torch.float64), h)
        score += below[k] * g**2 / 2 - above[k] * g
    return float(score)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("sizes", [(25, 25), (40, 13), (9, 31)])
@pytest.mark.parametrize("weighted", ["", "p", "q", "pq"])
def test_leave_one_out_equals_brute_force(sizes, weighted, alpha):
    phi_p, phi_q = features(sizes[0], 12, "p"), features(sizes[1], 12, "q")
    u = weights(sizes[0], "u") if "p" in weighted else None
    v = weights(sizes[1], "v") if "q" in weighted else None
    got = loo_scores(Sample(phi_p, phi_q, u, v), LAMBDAS, alpha)
    u = torch.full((sizes[0],), 1 / sizes[0], dtype=torch.float64) if u is None else u
    v = torch.full((sizes[1],), 1 / sizes[1], dtype=torch.float64) if v is None else v
    want = [brute_force(phi_p, phi_q, u, v, float(ridge), alpha) for ridge in LAMBDAS]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_without_weights_leaving_out_is_dropping_the_row():
    """The plainest reading of leave-one-out: fewer samples, same estimator."""
    phi_p, phi_q, ridge = features(14, 5, "p"), features(20, 5, "q"), 1e-2
    score = 0.0
    for k in range(14):
        theta, _ = solve(*normal_equations(Sample(torch.cat([phi_p[:k], phi_p[k + 1 :]]), phi_q), 0.0), ridge)
        score -= float(phi_p[k] @ theta) / 14
    for k in range(20):
        theta, _ = solve(*normal_equations(Sample(phi_p, torch.cat([phi_q[:k], phi_q[k + 1 :]])), 0.0), ridge)
        score += float(phi_q[k] @ theta) ** 2 / 40
    got = loo_scores(Sample(phi_p, phi_q), torch.tensor([ridge], dtype=torch.float64))
    assert float(got) == pytest.approx(score, rel=1e-9)


def test_integer_weights_are_repeated_rows_in_the_normal_equations():
    phi_p, phi_q, counts = features(6, 4, "p"), features(5, 4, "q"), torch.tensor([1, 3, 2, 4, 1])
    repeated = normal_equations(Sample(phi_p, phi_q.repeat_interleave(counts, 0)), 0.2)
    weights = torch.full((6,), 1 / 6).double(), counts.double() / counts.sum()
    weighted = normal_equations(Sample(phi_p, phi_q, *weights), 0.2)
    torch.testing.assert_close(repeated, weighted, rtol=1e-7, atol=1e-9)


def test_solutions_satisfy_their_optimality_conditions():
    H, h = normal_equations(Sample(features(50, 8, "p") - 0.5, features(50, 8, "q") - 0.5), 0.0)
    theta, positive = solve(H, h, 1e-3)
    ridged = H + 1e-3 * torch.eye(8, dtype=torch.float64)
    torch.testing.assert_close(ridged @ theta, h)
    assert theta.min() < 0  # so that the constraint below binds
    slope = ridged @ positive - h
    assert positive.min() >= 0
    assert slope.min() > -1e-9
    assert (slope * positive).abs().max() < 1e-9
