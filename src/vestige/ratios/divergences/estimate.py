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
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from scipy.special import ndtri

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.core.checks import ArrayLike
from vestige.ratios.divergences import family, terms
from vestige.ratios.divergences.terms import Form, Side


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
    heavy_k: float = 0.5,
    max_k: float = 0.7,
    min_ess: float = 10.0,
    n_boot: int = 1000,
    seed: int = 0,
    on_refusal: str = "raise",
) -> Estimate:
    """D(p || q) from log p/q on samples of q, of p, or both ("auto": both where both are given).

    `normalise` rescales the ratio so that E_q[r] = 1 on the samples. `form` concerns one-sided estimates: "eq4",
    "light", or "auto", which is Eq. 4 unless the ratio's tail index reaches `heavy_k` and there is a light form.
    Terms with a tail index of `max_k` or more, or worth fewer than `min_ess` samples, are refused: NotEstimable, or
    a NaN with the sentence if `on_refusal` is "nan". Two-sided forms of bounded divergences need no tail index.
    """
    owner = "divergences.estimate"
    div = family.get(name)
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
    if form == "light" and wanted != "both" and (div if wanted == "q" else family.get(div.reverse)).light is None:
        checks.refuse("form", owner, f"'eq4' or 'auto' for {div.name} on {wanted} samples", repr(form))

    chosen = terms.choose(div, wanted, form, sides, heavy_k=heavy_k, max_k=max_k)
    shift = terms.log_normaliser(sides) if normalise else 0.0
    safe = chosen.label == "two_sided" and math.isfinite(div.upper)
    size, k, refusal = _diagnose(div.name, chosen, sides, shift, None if safe else max_k, min_ess)
    used = "both" if chosen.on_p and chosen.on_q else "p" if chosen.on_p else "q"
    known: dict[str, Any] = {
        "name": div.name,
        "level": level,
        "n": sum(len(sides[s].weights) for s in ("pq" if used == "both" else used)),
        "ess": size,
        "details": {"pareto_k": k, "samples": used, "form": chosen.label},
    }
    if refusal:
        if on_refusal == "raise":
            raise NotEstimable(refusal)
        return Estimate.refused(refusal, **known)

    value = float(terms.value_of(chosen, sides, shift))
    least = floor / min(side.ess() for side in sides.values())
    z = float(ndtri((1 + level) / 2))
    if error == "bootstrap":
        draws = terms.bootstrap_values(chosen, sides, n_boot, normalise=normalise, generator=rng.fork(seed, "estimate"))
        std_error = max(float(draws.std()), least)
        low = min(float(draws.quantile((1 - level) / 2)), value - z * least)
        high = max(float(draws.quantile((1 + level) / 2)), value + z * least)
    else:
        if error == "influence":
            variance = terms.influence_variance(div, sides["p"], sides["q"], shift)
        else:
            variance = terms.delta_variance(chosen, sides, shift, normalised=normalise)
        std_error = max(math.sqrt(variance), least)
        low, high = value - z * std_error, value + z * std_error
    notes = _notes(div, chosen, sides, value, std_error, k, heavy_k, normalise)
    return Estimate(value, low, high, std_error=std_error, notes=notes, **known)


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
    for s, map_, sign in (("p", form.on_p, -1), ("q", form.on_q, 1)):
        if map_ is None:
            continue
        side = sides[s]
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
    div: family.FDivergence,
    form: Form,
    sides: dict[str, Side],
    value: float,
    std_error: float,
    k: float | None,
    heavy_k: float,
    normalise: bool,
) -> tuple[str, ...]:
    out = []
    if k is not None and k >= heavy_k:
        out.append(f"The tail index of the terms is {k:.2f}: their variance is infinite, the error bar too short.")
    if form.label == "light":
        out.append("The ratio's tail is too heavy for Eq. 4; f(r) - c (r - 1) was averaged, which rests on E_q[r] = 1.")
    if "q" in sides and not normalise and abs(terms.log_normaliser(sides)) > math.log(2):
        out.append(f"E_q[r] is {math.exp(min(terms.log_normaliser(sides), 709)):.3g} and should be 1.")
    if value < -2 * std_error or value > div.upper + 2 * std_error:
        out.append(f"The value lies outside [0, {div.upper:.4g}] by more than noise: the log-ratios are off.")
    return tuple(out)
