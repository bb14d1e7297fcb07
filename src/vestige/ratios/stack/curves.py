"""The stack's smooth models on tame coordinates (`marginals`): a Gaussian for either side, and an additive logistic.

The Gaussians have full covariances, which are shrunk towards their mean by as many pseudo-rows as there are
coordinates: correlations of 50 columns are found by some thousand rows. The logistic is a sum of functions of single
coordinates (piecewise linear, where there are few enough of them, else quadratic) and of products. Of the products it
has only those whose means over p and over q differ by more than SCREEN standard errors in the rows that are fitted on:
a dependence of few pairs among many columns is found where all products together would drown it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean
from vestige.ratios.newton import newton_logistic

SCREEN = 3.0
ROWS_A_PRODUCT, MOST_PRODUCTS = 10, 400  # rows of the smaller side that each product asks for; products at most
JITTER = 1e-4  # of its diagonal, added to a covariance
BEND, MOST_KNOTS, FEWEST_KNOTS = 2.5, 12, 4  # piecewise linear functions: how far out their knots lie, and how many
HAT_COLUMNS = 240  # of all coordinates together, at most


@dataclass(frozen=True, eq=False)
class Quadratics:
    """u' A u + b' u + c, one a fold."""

    matrix: Float[Tensor, "folds d d"]
    linear: Float[Tensor, "folds d"]
    constant: Float[Tensor, " folds"]

    def __call__(self, u: Float[Tensor, "n d"]) -> Float[Tensor, "folds n"]:
        """The value of every fold."""
        return ((u @ self.matrix) * u).sum(2) + self.linear @ u.mT + self.constant[:, None]


def gaussian_pairs(u: Float[Tensor, "n d"], n_p: int, trained: Float[Tensor, "folds n"]) -> Quadratics:
    """log p/q of a Gaussian fitted to either side, under each fold's weights of the rows."""
    d, out = u.shape[1], []
    for weights in trained:
        fits = []
        for x, w in ((u[:n_p], weights[:n_p]), (u[n_p:], weights[n_p:])):
            share = w / w.sum()
            mean = weighted_mean(x, share)
            fits.append((mean, (x - mean).mT @ ((x - mean) * share[:, None]), float(1 / share.square().sum())))
        pooled = (fits[0][1] + fits[1][1]) / 2
        matrix, linear, constant = torch.zeros_like(pooled), torch.zeros_like(u[0]), torch.zeros_like(u[0, 0])
        for sign, (mean, covariance, rows) in zip((1, -1), fits, strict=True):
            covariance = (rows * covariance + d * pooled) / (rows + d)
            covariance = covariance + torch.diag(covariance.diagonal().clamp_min(1e-6) * JITTER)
            factor = torch.linalg.cholesky(covariance)
            precision = torch.cholesky_inverse(factor)
            matrix = matrix - sign * precision / 2
            linear = linear + sign * precision @ mean
            constant = constant - sign * (mean @ precision @ mean / 2 + factor.diagonal().log().sum())
        out.append((matrix, linear, constant))
    return Quadratics(*(torch.stack(part) for part in zip(*out, strict=True)))


@dataclass(frozen=True, eq=False)
class Additive:
    """A quadratic, and a piecewise linear function of each coordinate by its values at `BEND` knots; one a fold."""

    quadratics: Quadratics
    bends: Float[Tensor, "folds d k"]

    def __call__(self, u: Float[Tensor, "n d"]) -> Float[Tensor, "folds n"]:
        """The value of every fold."""
        value = self.quadratics(u)
        return value + self.bends.flatten(1) @ hats(u, self.bends.shape[2]).mT if self.bends.shape[2] else value


def hats(u: Float[Tensor, "n d"], knots: int) -> Float[Tensor, "n dk"]:
    """Piecewise linear functions that are one at one of `knots` knots between -BEND and BEND, zero at the others."""
    at = torch.linspace(-BEND, BEND, knots, dtype=u.dtype)
    far = (u.clamp(-BEND, BEND)[:, :, None] - at).abs() / (at[1] - at[0])
    return (1 - far).clamp_min(0).flatten(1)


def additive_logistic(
    u: Float[Tensor, "n d"], n_p: int, trained: Float[Tensor, "folds n"], *, knots: int, ridge: float
) -> Additive:
    """The logistic on functions of the coordinates and the products that pass; `ridge` in pseudo-rows for a column.

    Piecewise linear functions have at most `knots` knots, fewer where there are many coordinates; with 0 none is there.
    """
    d = u.shape[1]
    i, j = torch.triu_indices(d, d, 1)
    sign = torch.ones(len(u), dtype=u.dtype)
    sign[n_p:] = -1
    knots = min(knots, HAT_COLUMNS // d)
    knots = knots if knots >= FEWEST_KNOTS else 0
    single = torch.cat([u, u.square(), *([hats(u, knots)] if knots else [])], 1)
    out, bends = [], []
    for weights in trained:
        rows = weights.nonzero()[:, 0]
        x, w, s = u[rows], weights[rows], sign[rows]
        found = _products(x, w, s, i, j)
        phi = torch.cat([x.new_ones(len(x), 1), single[rows], x[:, i[found]] * x[:, j[found]]], 1)
        head = newton_logistic(phi, s, w, ridge=ridge * phi.shape[1]).head
        constant, linear, square, bend, product = head.split([1, d, d, d * knots, len(found)])
        matrix = torch.diag(square)
        matrix[i[found], j[found]] = product
        out.append((matrix, linear, constant[0]))
        bends.append(bend.view(d, knots))
    return Additive(Quadratics(*(torch.stack(part) for part in zip(*out, strict=True))), torch.stack(bends))


def _products(x: Tensor, w: Tensor, sign: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Which of the products x_i x_j have means that differ between the sides."""
    means, errors, sizes = [], [], []
    for side in (sign > 0, sign < 0):
        z, share = x[side], w[side] / w[side].sum()
        first = (z * share[:, None]).mT @ z
        second = (z.square() * share[:, None]).mT @ z.square()
        sizes.append(float(1 / share.square().sum()))
        means.append(first[i, j])
        errors.append((second - first.square())[i, j].clamp_min(1e-12) / sizes[-1])
    score = (means[0] - means[1]).abs() / (errors[0] + errors[1]).sqrt()
    most = min(len(score), MOST_PRODUCTS, int(min(sizes) / ROWS_A_PRODUCT))
    best = score.argsort(descending=True)[:most]
    return best[score[best] > SCREEN]
