"""Which terms are averaged for a divergence, over which samples, and how far such an average may be off.

A divergence is E_p[a] + E_q[b] for some maps a, b of log r = log p/q. `choose` picks them: "eq4" is CDRE Eq. 4 on
samples of q, E_q[f(r)], and its mirror on samples of p, the reverse divergence of -log r; "light" and "two_sided" are
explained in `family`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.ratios.divergences import family
from vestige.ratios.divergences.family import FDivergence, Map
from vestige.ratios.weights import tail_index
from vestige.ratios.weights.expectation import bootstrap_means


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
        spare = 1 - float(self.weights.square().sum())
        return float(self.weights.square() @ (x - self.weights @ x).square()) / spare if spare > 1e-12 else math.inf

    def ess(self, log_factor: Float[Tensor, " n"] | None = None) -> float:
        """Kish's effective size of the weights, multiplied by exp(log_factor) on request."""
        log_w = self.weights.log() if log_factor is None else self.weights.log() + log_factor
        return float((2 * torch.logsumexp(log_w, 0) - torch.logsumexp(2 * log_w, 0)).exp())

    def tail_index(self, map_: Map, log_ratio: Float[Tensor, " n"]) -> float | None:
        """Pareto k of the terms towards each end at which the map is unbounded; None where it is bounded at both."""
        x, found = map_(log_ratio).abs() * self.weights * len(self.weights), []
        for end in (math.inf, -math.inf):
            if not bool(torch.isfinite(map_(torch.tensor([end], dtype=torch.float64)))):
                k = tail_index(torch.where(log_ratio * end > 0, x, 0.0).log())
                found += [] if k is None else [k]
        return max(found, default=None)

    def reweighted(self, weights: Float[Tensor, " n"]) -> Side:
        """The same samples under other weights."""
        return Side(self.log_ratio, weights / weights.sum())


class Form(NamedTuple):
    """The two maps, None for a side that is not used; whether the terms grow like r (on q) or 1/r (on p)."""

    on_p: Map | None
    on_q: Map | None
    label: str
    heavy: bool


def _one_sided(div: FDivergence, label: str, on: str) -> Form:
    chosen = div if on == "q" else family.get(div.reverse)
    inner = chosen.f if label == "eq4" else chosen.light
    assert inner is not None

    def mirrored(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return inner(-log_r)

    heavy = label == "eq4" and chosen.light is not chosen.f
    return Form(None, inner, label, heavy) if on == "q" else Form(mirrored, None, label, heavy)


def choose(div: FDivergence, samples: str, form: str, sides: dict[str, Side], *, heavy_k: float, max_k: float) -> Form:
    """The form for `samples` ("p", "q" or "both").

    "auto" is Eq. 4, or the light form, if there is one, where the tail index of r (on p: of 1/r) reaches `heavy_k` or
    that of the terms `max_k`.
    """
    if samples == "both":
        return Form(*div.two_sided, "two_sided", False)
    if form != "auto":
        return _one_sided(div, form, samples)
    plain = _one_sided(div, "eq4", samples)
    if (div if samples == "q" else family.get(div.reverse)).light is None:
        return plain
    side, sign = sides[samples], 1 if samples == "q" else -1
    map_ = plain.on_q or plain.on_p
    assert map_ is not None
    of_ratio = tail_index(sign * side.log_ratio + side.weights.log())
    of_terms = side.tail_index(map_, side.log_ratio)
    heavy = (of_ratio is not None and of_ratio >= heavy_k) or (of_terms is not None and of_terms >= max_k)
    return _one_sided(div, "light", samples) if heavy and plain.heavy else plain


def log_normaliser(sides: dict[str, Side]) -> float:
    """log E_q[r], or -log E_p[1/r] without samples of q: what to take off so that the ratio integrates to one."""
    if "q" in sides:
        return float(torch.logsumexp(sides["q"].log_ratio + sides["q"].weights.log(), 0))
    return -float(torch.logsumexp(sides["p"].weights.log() - sides["p"].log_ratio, 0))


def value_of(form: Form, sides: dict[str, Side], shift: float | Float[Tensor, ""]) -> Float[Tensor, ""]:
    """E_p[a] + E_q[b] at log r - shift."""
    total = torch.zeros((), dtype=torch.float64)
    for name, map_ in (("p", form.on_p), ("q", form.on_q)):
        if map_ is not None:
            total = total + sides[name].weights @ map_(sides[name].log_ratio - shift)
    return total


def delta_variance(form: Form, sides: dict[str, Side], shift: float, *, normalised: bool) -> float:
    """Sampling variance of the value, the log-ratios being taken as exact up to the normaliser that was fitted."""
    influence = {
        name: map_(sides[name].log_ratio - shift)
        for name, map_ in (("p", form.on_p), ("q", form.on_q))
        if map_ is not None
    }
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
    dual = family.get(div.reverse).slope
    return p.variance_of_mean(div.slope(p.log_ratio - shift)) + q.variance_of_mean(dual(shift - q.log_ratio))


def bootstrap_values(
    form: Form, sides: dict[str, Side], n_boot: int, *, normalise: bool, generator: torch.Generator
) -> Float[Tensor, " b"]:
    """The value on `n_boot` resamples of each side, the normaliser refitted on each."""
    if not normalise:  # the terms do not change, only their weights
        out = torch.zeros(n_boot, dtype=torch.float64)
        for name, map_ in (("p", form.on_p), ("q", form.on_q)):
            if map_ is not None:
                x, w = map_(sides[name].log_ratio)[:, None], sides[name].weights
                out += bootstrap_means(x, w, n_boot, normalise=True, generator=generator)[:, 0]
        return out
    values = []
    for _ in range(n_boot):
        drawn = {}
        for name, side in sides.items():
            n = len(side.weights)
            counts = torch.randint(n, (n,), generator=generator).bincount(minlength=n)
            drawn[name] = side.reweighted(side.weights * counts)
        values.append(value_of(form, drawn, log_normaliser(drawn)))
    return torch.stack(values)
