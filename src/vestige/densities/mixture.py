"""A mixture of Gaussians with full covariances, for features of images and other columns of numbers.

    p(x) = sum_k w_k N(x; m_k, S_k)

K is one of 1, 2, 4, 8 (`components`): the one of the highest likelihood on held-out thirds of the rows, tried in order
until one is worse than the best before it, a shortcut that saves the dearest fits. Fitted by EM
from k-means++ centres, in standardised coordinates and in log space. Each covariance is drawn towards the pooled one
within components by `pseudo_rows` rows (None: as many as there are columns), and no component may have fewer than
max(50, 2 d) rows: an emptier one is left out and EM goes on. What is found is rounded to a hundredth of its standard
error. Rows beyond `most_rows` are not looked at (a random part
is).

`union` merges mixtures of shards: it keeps all components, each under its shard's share, and reduces them only above
`cap`, by Runnalls' algorithm (2007, "Kullback-Leibler approach to Gaussian mixture reduction", eqs. 16 and 21): of all
pairs the one is merged, with its mean and covariance preserved, whose merging can raise the Kullback-Leibler divergence
least,

    B(i, j) = 1/2 [(w_i + w_j) log |S_ij| - w_i log |S_i| - w_j log |S_j|].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import learnt, option
from vestige.core.rounding import ROWS_TOGETHER, rounded, rounded_covariance, semi_definite, significant
from vestige.densities.base import Density
from vestige.ratios.stack.mixture import k_means, nearest

FLOOR = 1e-6  # the smallest variance, in units of a column's own
FOLDS = 3
ITERATIONS, TOLERANCE = 100, 1e-4  # of EM, at most; it ends when the mean log-likelihood gains less


@dataclass(frozen=True, eq=False)
class Components:
    """Shares that sum to one, means and covariances."""

    shares: Float64[Tensor, " k"]
    means: Float64[Tensor, "k d"]
    covariances: Float64[Tensor, "k d d"]


def log_joint(x: Float64[Tensor, "n d"], mixture: Components) -> Float64[Tensor, "n k"]:
    """log share plus log density of every row under every component."""
    factors = torch.linalg.cholesky(mixture.covariances)
    centred = (x[None] - mixture.means[:, None]).mT  # (k, d, n)
    far = torch.linalg.solve_triangular(factors, centred, upper=False).square().sum(1)
    size = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1) + x.shape[1] * math.log(2 * math.pi)
    return mixture.shares.log() - (far + size[:, None]).mT / 2


def maximise(x: Float64[Tensor, "n d"], counted: Float64[Tensor, "n k"], pseudo_rows: float) -> Components:
    """The mixture of rows of which `counted` belong to each component; covariances shrunk to the pooled one."""
    mass = counted.sum(0)
    means = (counted.mT @ x) / mass[:, None]
    scatter = torch.stack([(c[:, None] * (x - m)).mT @ (x - m) for c, m in zip(counted.mT, means, strict=True)])
    pooled = scatter.sum(0) / mass.sum()
    covariances = (scatter + pseudo_rows * pooled) / (mass + pseudo_rows)[:, None, None]
    covariances.diagonal(dim1=1, dim2=2).add_(FLOOR)
    return Components(mass / mass.sum(), means, covariances)


def expectation_maximisation(
    x: Float64[Tensor, "n d"], k: int, *, pseudo_rows: float, least: float, generator: torch.Generator
) -> Components:
    """At most `k` components of at least `least` rows each."""
    even = torch.full((len(x),), 1 / len(x), dtype=x.dtype)
    centres = k_means(x, even, k, generator=generator)
    counted = torch.nn.functional.one_hot(nearest(x, centres), len(centres)).to(x.dtype)
    before = -math.inf
    for _ in range(ITERATIONS):
        counted = enough(counted, least)
        found = maximise(x, counted, pseudo_rows)
        joint = log_joint(x, found)
        gained = float(torch.logsumexp(joint, 1).mean())
        counted = torch.softmax(joint, 1)
        if gained - before < TOLERANCE and float(counted.sum(0).min()) >= least:
            break
        before = gained
    return found


def enough(counted: Float64[Tensor, "n k"], least: float) -> Float64[Tensor, "n fewer"]:
    """Without the emptiest component as long as it has fewer than `least` rows; its rows go to the others."""
    while counted.shape[1] > 1 and float(counted.sum(0).min()) < least:
        keep = torch.arange(counted.shape[1]) != int(counted.sum(0).argmin())
        counted = counted[:, keep] + 1e-12  # rows that were its own alone are shared by all
        counted = counted / counted.sum(1, keepdim=True)
    return counted


def rounded_components(mixture: Components, n: int) -> Components:
    """To a hundredth of the standard errors that shares, means and covariances of `n` rows have; still definite."""
    shares = rounded(mixture.shares, (mixture.shares * (1 - mixture.shares) / n).sqrt())
    rows = mixture.shares * n
    deviations = mixture.covariances.diagonal(dim1=1, dim2=2).sqrt()
    means = rounded(mixture.means, deviations / rows.sqrt()[:, None])
    covariances = [
        semi_definite(rounded_covariance(s, float(own)), FLOOR)
        for s, own in zip(mixture.covariances, rows, strict=True)
    ]
    return Components(shares / shares.sum(), means, torch.stack(covariances))


def merge_two(mixture: Components, i: int, j: int) -> tuple[Tensor, Tensor, Tensor]:
    """Share, mean and covariance of components `i` and `j` taken as one: moments are preserved."""
    pair = [i, j]
    share = mixture.shares[pair].sum()
    part = mixture.shares[pair] / share
    mean = part @ mixture.means[pair]
    apart = mixture.means[pair] - mean
    covariance = (part[:, None, None] * (mixture.covariances[pair] + apart[:, :, None] * apart[:, None, :])).sum(0)
    return share, mean, covariance


def reduce_components(mixture: Components, cap: int) -> Components:
    """At most `cap` components, by Runnalls' algorithm."""
    while len(mixture.shares) > cap:
        k = len(mixture.shares)
        sizes = torch.linalg.slogdet(mixture.covariances).logabsdet
        best, cost, merged = (0, 1), math.inf, None
        for i in range(k):
            for j in range(i + 1, k):
                one = merge_two(mixture, i, j)
                apart = float(mixture.shares[i] * sizes[i] + mixture.shares[j] * sizes[j])
                bound = (float(one[0]) * float(torch.linalg.slogdet(one[2]).logabsdet) - apart) / 2
                if bound < cost:
                    best, cost, merged = (i, j), bound, one
        assert merged is not None
        keep = [c for c in range(k) if c not in best]
        mixture = Components(
            torch.cat([mixture.shares[keep], merged[0][None]]),
            torch.cat([mixture.means[keep], merged[1][None]]),
            torch.cat([mixture.covariances[keep], merged[2][None]]),
        )
    return mixture


@dataclass(eq=False)
class MixtureDensity(Density):
    """Gaussians with full covariances, as many as held-out rows ask for."""

    name: ClassVar[str] = "mixture"
    takes: ClassVar[tuple[str, ...]] = ("number",)
    takes_missing: ClassVar[bool] = False
    keeps: ClassVar[str] = "share, mean and covariance of at most a few components, each over at least 50 rows"

    components: tuple[int, ...] = option((1, 2, 4, 8), low=1, least=1)
    rows_a_component: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)  # at least, and twice the columns
    pseudo_rows: float | None = option(None, low=0, below=math.inf)
    most_rows: int = option(20_000, low=ROWS_TOGETHER)

    shares_: Float64[Tensor, " k"] = learnt()
    means_: Float64[Tensor, "k d"] = learnt()
    covariances_: Float64[Tensor, "k d d"] = learnt()

    def _fit(self, cells: Float64[Tensor, "n c"], kinds: tuple[str, ...], seed: int) -> dict[str, Any]:
        n, d = cells.shape
        if n > self.most_rows:
            cells = cells[torch.randperm(n, generator=rng.fork(seed, "rows", device="cpu"))[: self.most_rows]]
        deviation, centre = torch.std_mean(cells, 0, correction=0)
        scale = torch.where(deviation > 0, deviation, 1.0)
        x = (cells - centre) / scale
        least = float(max(self.rows_a_component, 2 * d))
        pseudo = float(d) if self.pseudo_rows is None else self.pseudo_rows
        allowed = sorted({k for k in self.components if k * least <= len(x)} or {1})
        held_out: dict[int, float] = {}
        for k in allowed if len(allowed) > 1 else ():
            held_out[k] = self._held_out(x, k, pseudo, least, seed)
            if held_out[k] < max(held_out.values()):  # more components would be worse still
                break
        chosen = max(held_out or allowed[:1], key=lambda k: held_out.get(k, 0.0))
        generator = rng.fork(seed, "start", chosen, device="cpu")
        found = expectation_maximisation(x, chosen, pseudo_rows=pseudo, least=least, generator=generator)
        kept = rounded_components(found, len(x))
        centre, scale = rounded(centre, deviation / len(x) ** 0.5), rounded(scale, scale / (2 * len(x)) ** 0.5)
        self.shares_, self.means_ = kept.shares, centre + kept.means * scale
        self.covariances_ = kept.covariances * scale[:, None] * scale
        return {
            "components": len(found.shares),
            "held_out": {str(k): significant(value, 4) for k, value in held_out.items()},
            "rows_used": len(x),
        }

    def _held_out(self, x: Float64[Tensor, "n d"], k: int, pseudo: float, least: float, seed: int) -> float:
        """Mean log-likelihood of rows that were not fitted, in standardised coordinates."""
        fold = torch.randperm(len(x), generator=rng.fork(seed, "folds", device="cpu")) % FOLDS
        total = 0.0
        for f in range(FOLDS):
            generator = rng.fork(seed, "start", k, f, device="cpu")
            # a fold has two thirds of the rows, and its components may have two thirds of the fewest
            few = least * (FOLDS - 1) / FOLDS
            found = expectation_maximisation(x[fold != f], k, pseudo_rows=pseudo, least=few, generator=generator)
            total += float(torch.logsumexp(log_joint(x[fold == f], found), 1).sum())
        return total / len(x)

    def _sound(self, columns: int) -> bool:
        k = len(self.shares_)
        shapes = self.means_.shape == (k, columns) and self.covariances_.shape == (k, columns, columns)
        finite = all(bool(part.isfinite().all()) for part in (self.shares_, self.means_, self.covariances_))
        scale = self.covariances_.diagonal(dim1=1, dim2=2).mean(0).sqrt()
        factors = torch.linalg.cholesky_ex(self.covariances_ / scale[:, None] / scale)
        return k > 0 and shapes and finite and bool((self.shares_ > 0).all()) and not bool(factors.info.any())

    def _log_density(self, cells: Float64[Tensor, "n c"]) -> Float64[Tensor, " n"]:
        scale = self.covariances_.diagonal(dim1=1, dim2=2).mean(0).sqrt()  # for a factor that is well conditioned
        scaled = Components(self.shares_, self.means_ / scale, self.covariances_ / scale[:, None] / scale)
        return torch.logsumexp(log_joint(cells / scale, scaled), 1) - scale.log().sum()

    def _draw(self, n: int, seed: int) -> Float64[Tensor, "n c"]:
        which = torch.multinomial(self.shares_, n, replacement=True, generator=rng.fork(seed, "which", device="cpu"))
        noise = torch.randn(
            n, self.means_.shape[1], dtype=torch.float64, generator=rng.fork(seed, "noise", device="cpu")
        )
        scale = self.covariances_.diagonal(dim1=1, dim2=2).mean(0).sqrt()
        factors = torch.linalg.cholesky(self.covariances_ / scale[:, None] / scale)
        drawn = torch.empty_like(noise)
        for c in range(len(self.shares_)):
            drawn[which == c] = self.means_[c] + (noise[which == c] @ factors[c].mT) * scale
        return drawn

    @classmethod
    def union(cls, parts: Sequence[Self], shares: Sequence[float], *, cap: int = 16) -> Self:
        """One mixture of all components of `parts`, each part with its share; reduced where they exceed `cap`.

        `shares` are in proportion to the parts' rows. Components are reduced with mean and covariance of the whole
        preserved; the configuration is that of the first part.
        """
        owner = "MixtureDensity.union"
        cap = checks.whole(cap, "cap", owner, low=16)
        if not parts:
            checks.refuse("parts", owner, "at least one mixture", "none")
        weights = checks.weights(list(shares), len(parts), "shares", owner)
        assert weights is not None
        kinds = {part._fitted(owner) for part in parts}
        if len(kinds) > 1:
            checks.refuse("parts", owner, "of one width", f"widths {sorted(map(len, kinds))}")
        held = [(part, w) for part, w in zip(parts, weights, strict=True) if float(w) > 0]
        whole = Components(
            torch.cat([w * part.shares_ for part, w in held]),
            torch.cat([part.means_ for part, _ in held]),
            torch.cat([part.covariances_ for part, _ in held]),
        )
        scale = whole.covariances.diagonal(dim1=1, dim2=2).mean(0).sqrt()
        scaled = Components(whole.shares, whole.means / scale, whole.covariances / scale[:, None] / scale)
        kept = reduce_components(scaled, cap)
        made = parts[0].copy()
        made.shares_, made.means_ = kept.shares, kept.means * scale
        made.covariances_ = kept.covariances * scale[:, None] * scale
        n = sum(int(part.report_.get("n", 0)) for part in parts)
        made.report_ = {"density": cls.name, "n": n, "columns": len(scale), "components": len(kept.shares)}
        return made
