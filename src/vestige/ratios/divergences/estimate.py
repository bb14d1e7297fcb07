"""Divergences from log-ratios alone, with an error, a diagnosis, and a refusal where the samples cannot carry them.

CDRE Eq. 4 averages f(r) over samples of q. Deviation: with samples of both laws the default is the bounded or
light-tailed two-sided form of `family`, because Eq. 4 breaks where q is narrower than p (E_q[r^2] is infinite from
sigma_q < sigma_p / sqrt 2 on, and its kl is then a third too low at n = 10000 even with the exact ratio).

Standard errors, by `error`:
- "delta": sampling noise of the average, the log-ratios taken as exact (up to the normaliser if `normalise`);
- "influence": the log-ratios were themselves learnt from samples of this size (evaluate them held out); needs both
  sides; for kl it is Var_p(log r)/n_p + Var_q(r)/n_q;
- "bootstrap": the spread over resamples, with a percentile interval.
None falls below `floor` / n: at zero divergence the first-order error vanishes while a learnt ratio is still off by
about 1/n. Intervals are not cut to the range of the divergence. Bias of the log-ratios is in none of them.

Details of an estimate: `pareto_k`, the tail index of the terms on the heavier side (None where there is no need or no
tail); `samples`, what was averaged over ("q", "p" or "both"); `form` ("eq4", "light" or "two_sided"; of a chain also
"one_step"). Its ESS is the effective number of terms on the weaker side that was used.

Which terms are averaged: a divergence is E_p[a] + E_q[b] for some maps a, b of log r = log p/q. `choose` picks them:
"eq4" is CDRE Eq. 4 on samples of q, E_q[f(r)], and its mirror on samples of p, the reverse divergence of -log r;
"light" and "two_sided" are explained in `family`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.core.checks import ArrayLike
from vestige.ratios.divergences.family import FDivergence, Map, get
from vestige.ratios.weights.diagnosis import tail_index
from vestige.ratios.weights.expectation import bootstrap_means, ratio_variance
from vestige.ratios.weights.transforms import kish

HEAVY_K = 0.5  # from this tail index on, the variance is infinite


@dataclass(frozen=True, eq=False)
class Side:
    """Log-ratios on the samples of one law, with weights that sum to one."""

    log_ratio: Float[Tensor, " n"]
    weights: Float[Tensor, " n"]

    @classmethod
    def of(cls, log_ratio: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> Side:
        """Equal weights where none are given."""
        return cls(log_ratio, torch.full_like(log_ratio, 1 / len(log_ratio)) if weights is None else weights)

    def variance_of_mean(self, x: Float[Tensor, " n"]) -> float:
        """Of sum w x, weights that sum to one: the reliability form, which is s^2 / n for equal weights."""
        return float(ratio_variance(x, self.weights))

    def ess(self, log_factor: Float[Tensor, " n"] | None = None) -> float:
        """Kish's effective size of the weights, multiplied by exp(log_factor) on request."""
        return kish(self.weights.log() if log_factor is None else self.weights.log() + log_factor)

    def tail_index(self, map_: Map, log_ratio: Float[Tensor, " n"]) -> float | None:
        """Pareto k of the terms towards each end at which the map is unbounded; None where it is bounded at both."""
        x, found = map_(log_ratio).abs() * self.weights * len(self.weights), []
        for end in (math.inf, -math.inf):
            if not bool(torch.isfinite(map_(torch.tensor([end], dtype=torch.float64)))):
                k = tail_index(torch.where(log_ratio * end > 0, x, 0.0).log())
                found += [] if k is None else [k]
        return max(found, default=None)


class Form(NamedTuple):
    """The two maps, None for a side that is not used; whether the terms grow like r (on q) or 1/r (on p)."""

    on_p: Map | None
    on_q: Map | None
    label: str
    heavy: bool

    def parts(self) -> list[tuple[str, Map]]:
        """The sides that are used, each with its map."""
        return [(side, map_) for side, map_ in (("p", self.on_p), ("q", self.on_q)) if map_ is not None]


def _one_sided(div: FDivergence, label: str, on: str) -> Form:
    chosen = div if on == "q" else get(div.reverse)
    inner = chosen.f if label == "eq4" else chosen.light
    assert inner is not None

    def mirrored(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return inner(-log_r)

    heavy = label == "eq4" and chosen.light is not chosen.f
    return Form(None, inner, label, heavy) if on == "q" else Form(mirrored, None, label, heavy)


def choose(div: FDivergence, samples: str, form: str, sides: dict[str, Side], *, max_k: float) -> Form:
    """The form for `samples` ("p", "q" or "both").

    "auto" is Eq. 4, or the light form, if there is one, where the tail index of r (on p: of 1/r) reaches HEAVY_K or
    that of the terms `max_k`.
    """
    if samples == "both":
        return Form(*div.two_sided, "two_sided", False)
    if form != "auto":
        return _one_sided(div, form, samples)
    plain = _one_sided(div, "eq4", samples)
    if (div if samples == "q" else get(div.reverse)).light is None:
        return plain
    side, sign = sides[samples], 1 if samples == "q" else -1
    ((_, map_),) = plain.parts()
    of_ratio = tail_index(sign * side.log_ratio + side.weights.log())
    of_terms = side.tail_index(map_, side.log_ratio)
    heavy = (of_ratio is not None and of_ratio >= HEAVY_K) or (of_terms is not None and of_terms >= max_k)
    return _one_sided(div, "light", samples) if heavy and plain.heavy else plain


def log_normaliser(sides: dict[str, Side]) -> float:
    """log E_q[r], or -log E_p[1/r] without samples of q: what to take off so that the ratio integrates to one."""
    if "q" in sides:
        return float(torch.logsumexp(sides["q"].log_ratio + sides["q"].weights.log(), 0))
    return -float(torch.logsumexp(sides["p"].weights.log() - sides["p"].log_ratio, 0))


def value_of(form: Form, sides: dict[str, Side], shift: float | Float[Tensor, ""]) -> Float[Tensor, ""]:
    """E_p[a] + E_q[b] at log r - shift."""
    total = torch.zeros((), dtype=torch.float64)
    for name, map_ in form.parts():
        total = total + sides[name].weights @ map_(sides[name].log_ratio - shift)
    return total


def delta_variance(form: Form, sides: dict[str, Side], shift: float, *, normalised: bool) -> float:
    """Sampling variance of the value, the log-ratios being taken as exact up to the normaliser that was fitted."""
    influence = {name: map_(sides[name].log_ratio - shift) for name, map_ in form.parts()}
    if normalised:
        knob = torch.tensor(shift, dtype=torch.float64, requires_grad=True)
        # a log-ratio of -inf does not feel the shift, and its gradient would be NaN
        moving = {}
        for name, side in sides.items():
            feels = torch.isfinite(side.log_ratio)
            moving[name] = Side(side.log_ratio[feels], side.weights[feels])
        with torch.enable_grad():
            slope = float(torch.autograd.grad(value_of(form, moving, knob), knob)[0])
        name, sign = ("q", 1) if "q" in sides else ("p", -1)
        # shift = log E_q[r] moves by r - 1; shift = -log E_p[1/r] by 1 - 1/r
        moves = slope * sign * (sign * (sides[name].log_ratio - shift)).exp()
        influence[name] = influence.get(name, 0.0) + moves
    return sum(sides[name].variance_of_mean(x) for name, x in influence.items())


def influence_variance(div: FDivergence, p: Side, q: Side, shift: float) -> float:
    """Variance of the efficient estimate when the ratio itself was learnt from as many samples.

    The derivative of D_f is f'(r) in p and f(r) - r f'(r) in q; the latter is the slope of the reverse divergence at
    1/r. For kl this is Var_p(log r) / n_p + Var_q(r) / n_q.
    """
    dual = get(div.reverse).slope
    return p.variance_of_mean(div.slope(p.log_ratio - shift)) + q.variance_of_mean(dual(shift - q.log_ratio))


def bootstrap_values(
    form: Form, sides: dict[str, Side], n_boot: int, *, normalise: bool, generator: torch.Generator
) -> Float[Tensor, " b"]:
    """The value on `n_boot` resamples of each side, the normaliser refitted on each."""
    if not normalise:  # the terms do not change, only their weights
        out = torch.zeros(n_boot, dtype=torch.float64)
        for name, map_ in form.parts():
            x, w = map_(sides[name].log_ratio)[:, None], sides[name].weights
            out += bootstrap_means(x, w, n_boot, normalise=True, generator=generator)[:, 0]
        return out
    values = []
    for _ in range(n_boot):
        drawn = {}
        for name, side in sides.items():
            n = len(side.weights)
            weights = side.weights * torch.randint(n, (n,), generator=generator).bincount(minlength=n)
            drawn[name] = Side(side.log_ratio, weights / weights.sum())
        values.append(value_of(form, drawn, log_normaliser(drawn)))
    return torch.stack(values)


def estimate(
    name: str,
    log_ratio_q: ArrayLike | None = None,
    log_ratio_p: ArrayLike | None = None,
    *,
    q_weights: ArrayLike | None = None,
    p_weights: ArrayLike | None = None,
    samples: str = "auto",
    form: str = "auto",
    normalise: bool = False,
    error: str = "delta",
    level: float = 0.95,
    floor: float = 1.0,
    max_k: float = 0.7,
    min_ess: float = 10.0,
    n_boot: int = 1000,
    seed: int = 0,
    on_refusal: str = "raise",
) -> Estimate:
    """D(p || q) from log p/q on samples of q, of p, or both ("auto": both where both are given).

    `normalise` rescales the ratio so that E_q[r] = 1 on the samples. `form` concerns one-sided estimates: "eq4",
    "light", or "auto", which is Eq. 4 unless the ratio's tail index reaches HEAVY_K and there is a light form.
    Terms with a tail index of `max_k` or more, or worth fewer than `min_ess` samples, are refused: NotEstimable, or
    a NaN with the sentence if `on_refusal` is "nan". Two-sided forms of bounded divergences need no tail index.
    """
    owner = "divergences.estimate"
    div = get(name)
    sides = _sides(log_ratio_q, log_ratio_p, q_weights, p_weights, owner)
    checks.one_of(samples, ("auto", "q", "p", "both"), "samples", owner)
    checks.one_of(form, ("auto", "eq4", "light"), "form", owner)
    checks.one_of(error, ("delta", "influence", "bootstrap"), "error", owner)
    checks.one_of(on_refusal, ("raise", "nan"), "on_refusal", owner)
    level = checks.number(level, "level", owner, low=0, high=1, open_low=True, open_high=True)
    floor = checks.number(floor, "floor", owner, low=0)
    n_boot = checks.whole(n_boot, "n_boot", owner, low=2)
    wanted = ("both" if len(sides) == 2 else next(iter(sides))) if samples == "auto" else samples
    missing = [s for s, map_ in zip("pq", div.two_sided, strict=True) if map_ is not None and s not in sides]
    if (wanted == "both" and missing) or (wanted in "pq" and wanted not in sides):
        checks.refuse("samples", owner, "among those whose log-ratios are given", repr(samples))
    if error == "influence" and len(sides) < 2:
        checks.refuse("error", owner, "'delta' or 'bootstrap' without log-ratios on both sides", repr(error))
    if form == "light" and wanted != "both" and (div if wanted == "q" else get(div.reverse)).light is None:
        checks.refuse("form", owner, f"'eq4' or 'auto' for {div.name} on {wanted} samples", repr(form))

    chosen = choose(div, wanted, form, sides, max_k=max_k)
    shift = log_normaliser(sides) if normalise else 0.0
    safe = chosen.label == "two_sided" and math.isfinite(div.upper)
    size, k, refusal = _diagnose(div.name, chosen, sides, shift, None if safe else max_k, min_ess)
    used = [side for side, _ in chosen.parts()]
    known: dict[str, Any] = {
        "name": div.name,
        "level": level,
        "n": sum(len(sides[side].weights) for side in used),
        "ess": size,
        "details": {"pareto_k": k, "samples": "both" if len(used) == 2 else used[0], "form": chosen.label},
    }
    if refusal:
        if on_refusal == "raise":
            raise NotEstimable(refusal)
        return Estimate.refused(refusal, **known)

    value = float(value_of(chosen, sides, shift))
    least = floor / min(side.ess() for side in sides.values())
    if error == "bootstrap":
        draws = bootstrap_values(chosen, sides, n_boot, normalise=normalise, generator=rng.fork(seed, "estimate"))
        smallest = Estimate.normal(value, least, **known)
        low = min(float(draws.quantile((1 - level) / 2)), smallest.low)
        high = max(float(draws.quantile((1 + level) / 2)), smallest.high)
        found = smallest.but(low=low, high=high, std_error=max(float(draws.std()), least))
    else:
        if error == "influence":
            variance = influence_variance(div, sides["p"], sides["q"], shift)
        else:
            variance = delta_variance(chosen, sides, shift, normalised=normalise)
        found = Estimate.normal(value, max(math.sqrt(variance), least), **known)
    return found.but(notes=_notes(div, chosen, sides, found, None if normalise else log_normaliser(sides)))


def estimates(names: Iterable[str], *args: Any, on_refusal: str = "nan", **options: Any) -> dict[str, Estimate]:  # noqa: ANN401
    """`estimate` for each name, for tables: a refused one is NaN and says why."""
    return {name: estimate(name, *args, on_refusal=on_refusal, **options) for name in names}


def _sides(
    log_ratio_q: object, log_ratio_p: object, q_weights: object, p_weights: object, owner: str
) -> dict[str, Side]:
    sides = {}
    given = (("p", log_ratio_p, p_weights, -math.inf), ("q", log_ratio_q, q_weights, math.inf))
    for name, log_ratio, weights, impossible in given:
        label = f"log_ratio_{name}"
        if log_ratio is None:
            if weights is not None:
                checks.refuse(f"{name}_weights", owner, f"given together with '{label}'", "them alone")
            continue
        x = checks.vector(log_ratio, label, owner, min_rows=2, finite=False)
        bad = int((torch.isnan(x) | (x == impossible)).sum())
        if bad:  # a sample of p where p is zero, or of q where q is
            checks.refuse(label, owner, f"neither NaN nor {impossible}", f"{bad} such values among {len(x)}")
        w = checks.weights(weights, len(x), f"{name}_weights", owner)
        sides[name] = Side.of(x, w)
    if not sides:
        checks.refuse("log_ratio_q", owner, "given, or 'log_ratio_p', or both", "neither")
    return sides


def _diagnose(
    name: str, form: Form, sides: dict[str, Side], shift: float, max_k: float | None, min_ess: float
) -> tuple[float, float | None, str | None]:
    """Effective size, tail index, and the sentence of refusal if there is one."""
    size, worst, refusal = math.inf, None, None
    for s, map_ in form.parts():
        side, sign = sides[s], 1 if s == "q" else -1
        log_ratio = side.log_ratio - shift
        x = map_(log_ratio)
        worth = side.ess(sign * log_ratio if form.heavy else None)
        size = min(size, worth)
        head = f"The {name} cannot be estimated from these {len(x)} samples of {s}:"
        wild = ~torch.isfinite(x) & (side.weights > 0)
        if bool(wild.any()):
            extreme = float(log_ratio[wild][0])
            refusal = f"{head} it overflows or is infinite at a log-ratio of {extreme:.4g}."
            worst = math.inf
            continue
        k = None if max_k is None else side.tail_index(map_, log_ratio)
        worst = k if worst is None or (k is not None and k > worst) else worst
        if max_k is not None and k is not None and k >= max_k:
            what = "their mean is infinite" if k >= 1 else "their average does not settle"
            refusal = f"{head} the tail index of its terms is {k:.2f} (limit {max_k:g}), so {what}."
        elif worth < min_ess:
            refusal = f"{head} by their weights they are worth {worth:.1f} (limit {min_ess:g})."
    return size, worst, refusal


def _notes(
    div: FDivergence, form: Form, sides: dict[str, Side], found: Estimate, log_mean: float | None
) -> tuple[str, ...]:
    """What a reader should know; `log_mean` is log E_q[r] where the ratio was taken as it is."""
    out, k, slack = [], found.details["pareto_k"], 2 * found.std_error
    if k is not None and k >= HEAVY_K:
        out.append(f"The tail index of the terms is {k:.2f}: their variance is infinite, the error bar too short.")
    if form.label == "light":
        out.append("The ratio's tail is too heavy for Eq. 4; f(r) - c (r - 1) was averaged, which rests on E_q[r] = 1.")
    if "q" in sides and log_mean is not None and abs(log_mean) > math.log(2):
        out.append(f"E_q[r] is {math.exp(min(log_mean, 709)):.3g} and should be 1.")
    if found.value < -slack or found.value > div.upper + slack:
        out.append(f"The value lies outside [0, {div.upper:.4g}] by more than noise: the log-ratios are off.")
    return tuple(out)
