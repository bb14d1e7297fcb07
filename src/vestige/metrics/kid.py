"""KID: squared MMD under the cubic kernel (x.y/d + 1)^3 (Binkowski et al. 2018, section 4), with weights.

Deviation: they average over random subsets of 1000; here it is the whole U-statistic, which has no subset noise, and
`std_error` is its standard error, not the spread of subsets. For small d the kernel's own feature map, the third
moments of (x / sqrt d, 1), gives the same number in O(n d^3) without any pair of rows: it streams and it merges.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.metrics.base import Estimate, sizes, two_sets
from vestige.metrics.cubic import cubic_product, cubic_sum
from vestige.metrics.embedding import Embedding
from vestige.metrics.kernels import Polynomial, mmd_squared, quadratic_variance, squared_influences, std_error, uniform

KERNEL = Polynomial(degree=3, offset=1.0)
# Third moments of wider features would fill gigabytes (about width^3 / 5 numbers a group).
MAX_MOMENT_WIDTH = 256
# Unweighted rows of each side from which the error of the moment form is taken: enough for 2 % of it. Weighted sets
# use every row, since their weight may sit on few.
ERROR_ROWS = 2000


def _by_moments(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], w: Float[Tensor, " n"], v: Float[Tensor, " m"], weighted: bool
) -> tuple[float, float]:
    """The U-statistic and its standard error from third moments, without any pair of rows for the value."""
    phi_p, phi_q = cubic_sum(x, w), cubic_sum(y, v)
    value, influences = -2 * float(phi_p @ phi_q), 0.0
    for rows, weights, phi, sign in ((x, w, phi_p, 1), (y, v, phi_q, -1)):
        own, square = KERNEL.diagonal(rows), weights.square().sum()
        within = (phi @ phi - weights.square() @ own) / (1 - square)
        value += float(within)
        step = 1 if weighted else -(-len(rows) // ERROR_ROWS)
        h = cubic_product((phi_p - phi_q) * sign, rows[::step])
        # A row is no neighbour of itself; the mean over its neighbours in this term is taken as that over all pairs.
        h += (weights * (within - own) / (1 - weights))[::step]
        influences += len(rows) / len(h) * squared_influences(h, weights[::step], square)
    return value, std_error(influences, quadratic_variance(x, y, w, v, KERNEL))


def kid(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    form: str = "auto",
) -> Estimate:
    """KID between real features `p` and the model's `q`. `form`: "moments", "blocks", or "auto", the cheaper one."""
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "kid")
    checks.one_of(form, ("auto", "moments", "blocks"), "form", "kid")
    d, n = x.shape[1], len(x) + len(y)
    if form == "auto":
        # Multiplications: about n (d+1)^3 / 2 by moments, with their making; n^2 (d + ~10 for the cube) by pairs.
        form = "moments" if d <= MAX_MOMENT_WIDTH and (d + 1) ** 3 < 2 * n * (d + 10) else "blocks"
    w, v = uniform(len(x), x_w, x), uniform(len(y), y_w, y)
    value, error = (
        _by_moments(x, y, w, v, x_w is not None or y_w is not None)
        if form == "moments"
        else mmd_squared(x, y, w, v, KERNEL)
    )
    return Estimate(value, error, {**sizes(x, y, x_w, y_w), "form": form})


class KID(Embedding):
    """Third moments of one set of features, exact for the whole U-statistic; `real.compute(fake)`.

    Each group keeps about width^3 / 5 numbers, so features wider than `MAX_MOMENT_WIDTH` are refused: use `kid`.
    """

    def __init__(self, *, groups: int = 20) -> None:
        super().__init__(groups=groups)

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        if x.shape[1] > MAX_MOMENT_WIDTH:
            checks.refuse("features", owner, f"at most {MAX_MOMENT_WIDTH} wide (kid() takes any width)", x.shape[1])
        return x

    def _phi_sum(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
        return cubic_sum(x, weights)

    def _diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return KERNEL.diagonal(x)
