"""Reference draws: weighted draws of a density that stand for rows that are gone, and how far they are from them.

A density (`vestige.densities`) of the rows is near them and not equal. Its draws are therefore **tilted**: they get
weights softmax(log p/d), held out and calibrated, from a ratio between rows and draws, which are then entropy-balanced
to the rows' means of features, products and random ReLU features (`ratios.weights.balance`). Density, seed and weights
are what is kept; the draws are made anew from them.

Density and weights are learnt of rows without cells that few of them have (`rare`). Logarithms of the weights are
multiples of WEIGHT_GRID: the noise of that in a mean over the draws is about a hundredth of the standard error of a
mean over as many rows.

What the draws are worth is **measured at arrival**: a quarter of the rows, 50 at least and HELD_MOST at most, takes no
part in density and weights, and is seen as new rows are. The upper end of the interval of JS between them and the
weighted draws is the vestige's own error (of squared Hellinger, MMD^2 and KID alike), by which every later comparison
is widened (`widening`). Where rows are images it is measured once more with noise of one standard deviation on both
sides, for the smoothed JS. These figures are rounded to a hundredth of their standard errors.

Of a table the density is a sequence of trees; of components of images a Gaussian mixture; of other arrays the one of
mixture, copula and trees whose plain draws are nearest to rows that it was not fitted on, the simplest of those that
are as near.

Vestiges are merged by the union of their parts, each with its share of the rows. JS, squared Hellinger and MMD are
convex in the pair, so the error of a union is at most the mean of its parts' errors by their shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import densities
from vestige.core import Estimate, NotEstimable, rng
from vestige.core.numerics import Moments, weighted_mean
from vestige.core.rounding import ROWS_TOGETHER, rounded_number, significant
from vestige.densities import Density
from vestige.densities.mixture import MixtureDensity
from vestige.metrics.mmd import kid, mmd
from vestige.ratios import Stack
from vestige.ratios.cross_fit import held_out
from vestige.ratios.divergences import learnt
from vestige.ratios.weights.balance import balance_to
from vestige.vestiges.frame import LEAST_ROWS, Frame
from vestige.vestiges.lines import some_rows
from vestige.vestiges.rare import UsualCells
from vestige.vestiges.widening import by_root

DRAWS_LEAST, DRAWS_MOST = 1000, 6000  # twice the rows, within these
HELD_SHARE, HELD_LEAST, HELD_MOST = 0.25, ROWS_TOGETHER, 3000
WEIGHT_GRID = 1 / 64  # of logarithms of weights
TILT_ROWS, CHOICE_ROWS, PAIR_ROWS = 6000, 2000, 2000
PARTS_MOST = 16  # of a union, beyond which its draws are fitted anew
CLIP, ROWS_A_PRODUCT, RELU, RIDGE = 4.5, 20.0, 64, 1e-4  # of the balancing, as in chains
DIVERGENCES = ("js", "hellinger2")
ERRORS_BY: str | Stack = "auto"  # what learns the ratio that the own error rests on
CANDIDATES = ("mixture", "copula", "trees")  # the simplest first, which is taken where it is no worse
WORTH_LEAST = 20  # draws that the weights must be worth
CLOSE = 0.002  # nats of JS that are no difference


@dataclass(frozen=True, eq=False)
class Part:
    """A density of some of the rows, the seed of its draws and their weights, which sum to one."""

    density: Density
    rows: int
    seed: int
    weights: Float[Tensor, " m"]


@dataclass(frozen=True)
class OwnErrors:
    """How far the weighted draws are from held-out rows, by the name of a number; ends are those of its interval."""

    estimates: dict[str, Estimate]
    held: int  # rows that they were measured on

    def limit(self, name: str) -> float:
        """The upper end of the error called `name`; infinite where it could not be measured."""
        found = self.estimates.get(name)
        return math.inf if found is None or not found.known else max(found.high, found.value, 0.0)

    def sure(self, name: str) -> bool:
        """Whether that end is a promise."""
        found = self.estimates.get(name)
        return found is not None and found.verdict == "ok"

    def merge(self, other: OwnErrors, shares: tuple[float, float]) -> OwnErrors:
        """Of a union: at most the mean by shares; an MMD of two bandwidths has none."""
        both = {}
        for name in [name for name in self.estimates if name in other.estimates]:  # in one order, for one file
            a, b = self.estimates[name], other.estimates[name]
            if a.details.get("bandwidth") != b.details.get("bandwidth"):
                continue
            worst = a if a.verdict != "ok" else b
            ends = {k: shares[0] * getattr(a, k) + shares[1] * getattr(b, k) for k in ("value", "low", "high")}
            error = math.hypot(shares[0] * a.std_error, shares[1] * b.std_error)
            both[name] = worst.but(**ends, std_error=error)
        return OwnErrors(both, self.held + other.held)

    def through(self, further: Mapping[str, Estimate]) -> OwnErrors:
        """Of draws that are as far from these as `further` says: roots add up; what it does not say is not known."""
        both = {}
        for name in [name for name in self.estimates if name in further]:
            a, b = self.estimates[name], further[name]
            worst = a if a.verdict != "ok" else b
            low, high = by_root(a.low, max(a.high, a.value), max(b.high, b.value, 0.0))
            both[name] = worst.but(value=by_root(a.value, a.value, max(b.value, 0.0))[1], low=low, high=high)
        return OwnErrors(both, self.held)

    @property
    def bandwidth(self) -> float | None:
        """That of the MMD, where there is one."""
        return self.estimates["mmd2"].details.get("bandwidth") if "mmd2" in self.estimates else None


@dataclass(frozen=True, eq=False)
class Reference:
    """Parts, each of which stands for its share of the rows."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(part.rows for part in self.parts)

    def draws(self) -> tuple[Float[Tensor, "m c"], Float[Tensor, " m"]]:
        """The draws of all parts, as the densities give them, and weights that sum to one."""
        drawn = torch.cat([part.density.draw(len(part.weights), seed=part.seed) for part in self.parts])
        weights = torch.cat([part.weights.double() * (part.rows / self.rows) for part in self.parts])
        return drawn, weights / weights.sum()

    def merge(self, other: Reference, frame: Frame, seed: int) -> Reference:
        """The union; fitted anew on its own draws where it has more than PARTS_MOST parts."""
        both = Reference(self.parts + other.parts)
        if len(both.parts) <= PARTS_MOST:
            return both
        drawn, weights = both.draws()
        picked = torch.multinomial(weights, DRAWS_MOST, replacement=True, generator=rng.fork(seed, "union"))
        kind = both.parts[0].density
        kinds = frame.kinds if frame.density_of_cells else None
        density = densities.build(kind.name).fit(drawn[picked], kinds, seed=seed)
        even = torch.full((DRAWS_MOST,), 1 / DRAWS_MOST)
        return Reference((Part(density, both.rows, rng.child_seed(seed, "draws"), even),))


def refit_errors(frame: Frame, union: Reference, refit: Reference, seed: int) -> dict[str, Estimate]:
    """JS and squared Hellinger between the draws of a union and those of a density that was fitted to them."""
    (drawn, weights), (fresh, even) = union.draws(), refit.draws()
    picked = torch.multinomial(weights, HELD_MOST, replacement=True, generator=rng.fork(seed, "refit"))
    x, y = _seen_of(frame)(drawn[picked]), _seen_of(frame)(fresh)
    found = _divergences(x, y, even, "", seed)
    if frame.of_images:
        scale = smoothing_scale(x, torch.full((len(x),), 1 / len(x), dtype=x.dtype))
        rough, softer = smoothed(x, scale, seed, "union"), smoothed(y, scale, seed, "refit")
        found |= _divergences(rough, softer, even, "_smoothed", seed)
    return found


def fit_reference(
    frame: Frame,
    cells: Float[Tensor, "n c"],
    *,
    usual: UsualCells,
    rows: int,
    density: str = "auto",
    seed: int = 0,
) -> tuple[Reference, Float[Tensor, "m e"], Float[Tensor, "h c"]]:
    """What stands for `rows` rows, of which `cells` are a random part; its draws, and the cells that were held out.

    `usual` takes the rare cells out of those that anything is learnt of.
    """
    order = torch.randperm(len(cells), generator=rng.fork(seed, "held"))
    held = min(max(int(HELD_SHARE * len(cells)), HELD_LEAST), HELD_MOST)
    held = held if len(cells) - held >= LEAST_ROWS else 0
    own, other = usual(cells[order[held:]]), usual.told(cells[order[:held]], len(cells))
    seen_of = _seen_of(frame)
    p, h = seen_of_cells(frame, own), seen_of_cells(frame, other)
    given = own if frame.density_of_cells else p
    kinds = frame.kinds if frame.density_of_cells else None
    chosen = densities.build(density) if density != "auto" else _chosen(frame, given, kinds, h, seen_of, seed)
    fitted = chosen.fit(given, kinds, seed=rng.child_seed(seed, "density"))
    count, draw_seed = min(max(2 * len(own), DRAWS_LEAST), DRAWS_MOST), rng.child_seed(seed, "draws")
    drawn = fitted.draw(count, seed=draw_seed)
    weights = on_log_grid(_tilted(p, seen_of(drawn), seed)).float()
    return Reference((Part(fitted, rows, draw_seed, weights),)), drawn, other


def seen_of_cells(frame: Frame, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n k"]:
    """What a ratio sees of these rows."""
    return frame.seen(frame.features(cells))


def _seen_of(frame: Frame) -> Callable[[Tensor], Tensor]:
    """What a ratio sees of draws."""
    return (lambda drawn: seen_of_cells(frame, drawn)) if frame.density_of_cells else (lambda drawn: drawn)


def _chosen(
    frame: Frame,
    own: Float[Tensor, "n c"],
    kinds: tuple[str, ...] | None,
    held: Float[Tensor, "m k"],
    seen_of: Callable[[Tensor], Tensor],
    seed: int,
) -> Density:
    """The density for these rows: by kind, and among several by the JS of their draws to rows not fitted on.

    From the simplest on; where one cannot be told from the rows, no other is tried.
    """
    if frame.schema is not None:
        return densities.build("trees")
    if not frame.density_of_cells or len(held) < HELD_LEAST:
        return densities.build("mixture")
    held = held[:CHOICE_ROWS]
    some = own[some_rows(len(own), 2 * CHOICE_ROWS, seed, "choice")]
    found: list[tuple[Estimate, Density]] = []
    for name in CANDIDATES:
        tried = densities.build(name).fit(some, kinds, seed=seed)
        drawn = tried.draw(max(len(held), 500), seed=seed)
        js = learnt(["js"], *held_out(held, seen_of(drawn), estimator=fast(), seed=seed).sides(), None)["js"]
        found.append((js, tried))
        if js.value <= max(2 * js.std_error, CLOSE):
            break
    best = min((js for js, _ in found), key=lambda js: js.value)
    enough = best.value + max(2 * best.std_error, CLOSE)
    nearest = next(tried for js, tried in found if js.value <= enough)
    if isinstance(nearest, MixtureDensity):  # as many components as were found; to look for them again costs most
        return replace(nearest, components=(len(nearest.shares_),))
    return densities.build(nearest.name)


def fast() -> Stack:
    """The quick estimator, for fits that no number rests on alone."""
    return Stack(**Stack.presets["fast"])


def _tilted(p: Float[Tensor, "n k"], draws: Float[Tensor, "m k"], seed: int) -> Float[Tensor, " m"]:
    """Weights of the draws, which sum to one, under which they stand for `p`."""
    p = p[some_rows(len(p), TILT_ROWS, seed, "tilt")]
    found = held_out(p, draws, estimator=fast(), seed=rng.child_seed(seed, "tilt"))
    weights = balance_to(
        *(p, None, draws, found.log_ratio_q),
        clip=CLIP,
        rows_a_product=ROWS_A_PRODUCT,
        relu=RELU,
        ridge=RIDGE,
        seed=seed,
    ).exp()
    if float(1 / weights.square().sum()) < WORTH_LEAST:  # the balancing has ended on a few draws: better none
        return torch.full_like(weights, 1 / len(weights))
    return weights


def on_log_grid(weights: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """Weights that sum to one, their ratios to equal weights powers of exp(WEIGHT_GRID)."""
    steps = ((weights * len(weights)).log() / WEIGHT_GRID).round()
    return torch.softmax(steps * WEIGHT_GRID, 0)


def own_errors(
    frame: Frame,
    held: Float[Tensor, "h c"],
    drawn: Float[Tensor, "m e"],
    weights: Float[Tensor, " m"],
    *,
    bandwidth: float | None = None,
    seed: int = 0,
) -> OwnErrors:
    """JS, squared Hellinger, MMD^2 and KID between held-out rows and weighted draws, and JS of both smoothed.

    `bandwidth` is that of the MMD, where it is to be that of other rows.
    """
    if len(held) < HELD_LEAST:
        return OwnErrors({}, len(held))
    seen, weights = seen_of_cells(frame, held), weights.double()
    some = some_rows(len(drawn), HELD_MOST, seed, "draws")
    drawn, weights = drawn[some], weights[some] / weights[some].sum()
    draws = _seen_of(frame)(drawn)
    found = _divergences(seen, draws, weights, "", seed)
    if frame.of_images:
        scale = smoothing_scale(draws, weights)
        rough, softer = smoothed(seen, scale, seed, "held"), smoothed(draws, scale, seed, "draws")
        found |= _divergences(rough, softer, weights, "_smoothed", seed)
    x = frame.features(held)
    y = features_of_draws(frame, drawn, Moments.of(x).covariance(), seed)
    rows_x, rows_y = (some_rows(len(z), PAIR_ROWS, seed, side) for z, side in ((x, "held"), (y, "draws")))
    w = weights[rows_y] / weights[rows_y].sum()
    found["mmd2"] = mmd(x[rows_x], y[rows_y], q_weights=w, bandwidth=bandwidth)
    found["kid"] = kid(x[rows_x], y[rows_y], q_weights=w)
    return OwnErrors({name: _rounded(one) for name, one in found.items()}, len(held))


def _rounded(found: Estimate) -> Estimate:
    """To a hundredth of its standard error; details to three digits."""
    ends = {key: rounded_number(getattr(found, key), found.std_error) for key in ("value", "low", "high")}
    details = {key: significant(x) if isinstance(x, float) else x for key, x in found.details.items()}
    worth = found.ess if found.ess is None else significant(found.ess)
    return found.but(**ends, std_error=significant(found.std_error), ess=worth, details=details)


def features_of_draws(
    frame: Frame, drawn: Float[Tensor, "m e"], covariance: Float[Tensor, "d d"], seed: int
) -> Float[Tensor, "m d"]:
    """What metrics are taken of, of draws: of draws of components what they leave out is normal (`Axes.lifted`)."""
    if frame.density_of_cells:
        return frame.features(drawn)
    return drawn if frame.axes is None else frame.axes.lifted(drawn, covariance, rng.fork(seed, "lifted"))


def _divergences(
    rows: Float[Tensor, "h k"], draws: Float[Tensor, "m k"], weights: Float[Tensor, " m"], ending: str, seed: int
) -> dict[str, Estimate]:
    """JS and squared Hellinger, which are symmetric, so that the draws may stand on the weighted side."""
    try:
        own = rng.child_seed(seed, f"error{ending}")
        ratio = held_out(rows, draws, q_weights=weights, estimator=ERRORS_BY, seed=own)
    except NotEstimable as error:
        return {f"{name}{ending}": Estimate.refused(str(error), name=name) for name in DIVERGENCES}
    # What no test would find is in the interval that these limits widen.
    found = learnt(DIVERGENCES, *ratio.sides(weights), ratio.refit(weights), hidden=False)
    return {f"{name}{ending}": one.but(name=f"{name}{ending}") for name, one in found.items()}


def smoothing_scale(draws: Float[Tensor, "m k"], weights: Float[Tensor, " m"]) -> Float[Tensor, " k"]:
    """The deviation of the noise by which both sides are smoothed: that of the reference draws."""
    mean = weighted_mean(draws, weights)
    return weighted_mean((draws - mean).square(), weights).sqrt()


def smoothed(x: Float[Tensor, "n k"], scale: Float[Tensor, " k"], seed: int, side: str) -> Float[Tensor, "n k"]:
    """`x` with normal noise of these deviations."""
    noise = torch.randn(x.shape, generator=rng.fork(seed, "smoothing", side), dtype=x.dtype)
    return x + noise * scale
