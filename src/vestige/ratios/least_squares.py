"""The algebra of least-squares ratios: normal equations, their solution, and exact leave-one-out in closed form.

The model is theta . phi(x) for g(x) = p(x) / (alpha p(x) + (1 - alpha) q(x)); alpha = 0 is the plain ratio. theta
minimises 1/2 theta'H theta - h'theta + lambda/2 |theta|^2 (Kanamori, Hido and Sugiyama 2009; Yamada et al. 2011),
hence

    theta = (H + lambda I)^-1 h,   H = alpha E_p[phi phi'] + (1 - alpha) E_q[phi phi'],   h = E_p[phi].

Leave-one-out. Row k weighs u in the numerator E_p and w in the mixture of the denominator: u its weight in p and w =
alpha u for a row of p; u = 0 and w = (1 - alpha) v for a row of q that weighs v. Leaving it out removes both and
renormalises the rest: H_k = (H - w phi phi') / (1 - w), h_k = (h - u phi) / (1 - u). With a = phi'(H + lambda (1 - w)
I)^-1 phi and c = phi'(H + lambda (1 - w) I)^-1 h, Sherman and Morrison give the held-out value

    g_k = (1 - w) / (1 - u) * (c - u a) / (1 - w a),

and the score is sum w g_k^2 / 2 - sum u g_k over all rows of both sides. In the eigenbasis of H, a and c are two
matrix products for all lambdas together: one eigendecomposition per bandwidth, and nothing of size n x n.

Deviation: Kanamori et al. leave out the i-th rows of p and q together, for i up to the smaller size, and set negative
entries of each theta_i to zero. Here rows leave one at a time and theta keeps its sign: nothing depends on the order
of rows, every row is scored when n_p != n_q, and weights have a meaning.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from vestige.core.numerics import weighted_mean


def normal_equations(
    phi_p: Float[Tensor, "n_p b"],
    phi_q: Float[Tensor, "n_q b"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    alpha: float,
) -> tuple[Float[Tensor, "b b"], Float[Tensor, " b"]]:
    """H and h; weights sum to one."""
    H = (1 - alpha) * _second_moment(phi_q, q_weights)
    if alpha:
        H = H + alpha * _second_moment(phi_p, p_weights)
    return H, weighted_mean(phi_p, p_weights)


def _second_moment(phi: Float[Tensor, "n b"], weights: Float[Tensor, " n"] | None) -> Float[Tensor, "b b"]:
    return phi.mT @ phi / len(phi) if weights is None else phi.mT @ (phi * weights[:, None])


def solve(
    H: Float[Tensor, "b b"], h: Float[Tensor, " b"], ridge: float
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"] | None]:
    """The minimiser over all theta, and the minimiser over theta >= 0, or None where its active set cycles."""
    values, basis = torch.linalg.eigh(H)
    values = values.clamp_min(0) + ridge  # H is positive semi-definite but for rounding
    target = basis.mT @ h
    # Up to a constant the objective is |root theta - image|^2 / 2.
    root, image = values.sqrt()[:, None] * basis.mT, target / values.sqrt()
    try:
        positive = torch.from_numpy(nnls(root.numpy(), image.numpy(), maxiter=30 * len(h))[0])
    except RuntimeError:
        positive = None
    return basis @ (target / values), positive


def held_out(
    z: Float[Tensor, "n b"],
    values: Float[Tensor, " b"],
    target: Float[Tensor, " b"],
    u: Float[Tensor, " _"],
    w: Float[Tensor, " _"],
    lambdas: Float[Tensor, " l"],
) -> Float[Tensor, "n l"]:
    """g_k for every row and every lambda.

    `z` are features and `target` is h, both in the eigenbasis of H, whose eigenvalues are `values`; `u` and `w` are the
    weights of each row in numerator and denominator, or one number for all rows.
    """
    if len(w) == 1:  # one ridge for all rows: two products serve every lambda
        inverse = 1 / (values[:, None] + lambdas * (1 - w))
        a, c = z.square() @ inverse, z @ (inverse * target[:, None])
    else:
        a, c = z.new_empty(len(z), len(lambdas)), z.new_empty(len(z), len(lambdas))
        for i, ridge in enumerate(lambdas):
            scaled = z / (values + ridge * (1 - w)[:, None])
            a[:, i], c[:, i] = (scaled * z).sum(1), scaled @ target
    u, w = u[:, None], w[:, None]
    return (1 - w) / (1 - u) * (c - u * a) / (1 - w * a)


def loo_scores(
    phi_p: Float[Tensor, "n_p b"],
    phi_q: Float[Tensor, "n_q b"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    lambdas: Float[Tensor, " l"],
    alpha: float = 0.0,
) -> Float[Tensor, " l"]:
    """The leave-one-out score of each lambda; the smallest is best."""
    H, h = normal_equations(phi_p, phi_q, p_weights, q_weights, alpha)
    values, basis = torch.linalg.eigh(H)
    values, target = values.clamp_min(0), basis.mT @ h
    u = phi_p.new_tensor([1 / len(phi_p)]) if p_weights is None else p_weights
    v = phi_q.new_tensor([1 / len(phi_q)]) if q_weights is None else q_weights
    g_p = held_out(phi_p @ basis, values, target, u, alpha * u, lambdas)
    g_q = held_out(phi_q @ basis, values, target, torch.zeros_like(v), (1 - alpha) * v, lambdas)
    scores = (1 - alpha) / 2 * weighted_mean(g_q.square(), q_weights) - weighted_mean(g_p, p_weights)
    return scores + alpha / 2 * weighted_mean(g_p.square(), p_weights) if alpha else scores
