"""Policies: what is evaluated. A Gaussian policy is stored as plain numbers, so no code comes with a file.

`GaussianPolicy` is LFIW's (App. C.5): a network of tanh layers, 64-64 there, gives the mean; the deviation is the same
in every state. Observations may be standardised and cut at `clip` deviations first, as is done while such policies are
trained. Where the space has bounds, an action is the draw cut at them: the law of the action then has a point mass at
each bound, and `log_prob` is the density between the bounds and the logarithm of that mass at them. So ratios of two
policies are exact on actions as they were carried out.

Anything else with `act` and `log_prob` is a `Policy` too.

**Bounds of the action space**: that of logs, of a policy, of an environment, and whether they are one space.

A policy that draws beyond a space from which actions were cut has another law than the one that would run there, and
its `log_prob` is no mass at the bounds: every estimate would be of a policy that does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vestige import store
from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, as_tensor
from vestige.nets.batched import ACTIVATIONS


@runtime_checkable
class Policy(Protocol):
    """What can be evaluated: it draws actions, and says how likely an action is."""

    def act(self, observations: Float[Tensor, "*n s"], *, generator: torch.Generator) -> Float[Tensor, "*n a"]:
        """An action for each observation, within the space."""
        ...

    def log_prob(self, observations: Float[Tensor, "*n s"], actions: Float[Tensor, "*n a"]) -> Float[Tensor, "*n"]:
        """The log density of each action, as float64."""
        ...


@dataclass(frozen=True, eq=False, init=False)
class GaussianPolicy:
    """N(net(z), diag exp(2 log_std)), cut at the bounds; z the standardised observation.

    `weights[i]` is (out, in), as in `torch.nn.Linear`; a single layer is a linear policy. Arrays and lists become
    tensors, all of one type: float64 where a layer is, float32 elsewhere.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    biases: tuple[Float[Tensor, " _"], ...]
    log_std: Float[Tensor, " _"]
    activation: str
    shift: Float[Tensor, " _"] | None
    scale: Float[Tensor, " _"] | None
    clip: float | None  # bound of the standardised observation, in deviations
    low: Float[Tensor, " _"] | None
    high: Float[Tensor, " _"] | None

    def __init__(
        self,
        weights: ArrayLike,
        biases: ArrayLike,
        log_std: ArrayLike,
        activation: str = "tanh",
        shift: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        clip: float | None = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> None:
        rows = {"log_std": log_std, "shift": shift, "scale": scale, "low": low, "high": high}
        held = _tensors(weights, biases, rows, "GaussianPolicy") | {"activation": activation, "clip": clip}
        for name, value in held.items():
            object.__setattr__(self, name, value)  # frozen for everybody else
        _check(self, "GaussianPolicy")

    @classmethod
    def initial(
        cls,
        observations: int,
        actions: int,
        *,
        hidden: Sequence[int] = (64, 64),
        log_std: float = 0.0,
        low: Float[Tensor, " a"] | None = None,
        high: Float[Tensor, " a"] | None = None,
        seed: int = 0,
    ) -> GaussianPolicy:
        """An untrained policy: weights as `torch.nn.Linear` starts them, biases at zero."""
        sizes = [checks.whole(n, "sizes", "GaussianPolicy.initial", low=1) for n in (observations, *hidden, actions)]
        stream = rng.fork(seed, "policy")
        pairs = list(pairwise(sizes))
        weights = tuple((torch.rand(b, a, generator=stream) * 2 - 1) / math.sqrt(a) for a, b in pairs)
        biases = tuple(torch.zeros(b) for _, b in pairs)
        return cls(weights, biases, torch.full((actions,), float(log_std)), low=low, high=high)

    @property
    def widths(self) -> tuple[int, int]:
        """Width of an observation and of an action."""
        return self.weights[0].shape[1], self.weights[-1].shape[0]

    def mean(self, observations: Float[Tensor, "*n s"]) -> Float[Tensor, "*n a"]:
        """The mean of the draw, before it is cut at the bounds."""
        h = observations.to(self.log_std.dtype)
        if self.shift is not None and self.scale is not None:
            h = (h - self.shift) / self.scale
        if self.clip is not None:
            h = h.clamp(-self.clip, self.clip)
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = ACTIVATIONS[self.activation](functional.linear(h, w, b))
        return functional.linear(h, self.weights[-1], self.biases[-1])

    def act(self, observations: Float[Tensor, "*n s"], *, generator: torch.Generator) -> Float[Tensor, "*n a"]:
        """A draw for each observation, cut at the bounds where there are any."""
        mean = self.mean(observations)
        draw = mean + self.log_std.exp() * torch.randn(mean.shape, dtype=mean.dtype, generator=generator)
        return draw if self.low is None else draw.clamp(self.low, self.high)

    def log_prob(self, observations: Float[Tensor, "*n s"], actions: Float[Tensor, "*n a"]) -> Float[Tensor, "*n"]:
        """Log density of actions as they were carried out; at a bound, the log mass beyond it."""
        a, log_std = actions.to(torch.float64), self.log_std.to(torch.float64)
        z = (a - self.mean(observations).to(torch.float64)) / log_std.exp()
        log_p = -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)
        if self.low is not None and self.high is not None:
            # Within the rounding of a float32 an action is at its bound.
            slack = 1e-6 * (self.high - self.low).to(torch.float64)
            log_p = torch.where(a <= self.low + slack, torch.special.log_ndtr(z), log_p)
            log_p = torch.where(a >= self.high - slack, torch.special.log_ndtr(-z), log_p)
        return log_p.sum(-1)

    def save(self, path: str | Path) -> Path:
        """Write to `path` (.json) and a safetensors file beside it."""
        return store.save_object(path, "policy", self)

    @classmethod
    def load(cls, path: str | Path) -> GaussianPolicy:
        """The policy stored at `path`; one of another kind or shape is refused with the key that is wrong."""
        return store.load_object(cls, path, "policy")


def _tensors(weights: ArrayLike, biases: ArrayLike, rows: dict[str, ArrayLike | None], owner: str) -> dict[str, object]:
    """Everything as finite tensors of one floating type, matrices and rows where they must be."""
    w = [as_tensor(value, f"w{i}", owner) for i, value in enumerate(weights)]
    b = [as_tensor(value, f"b{i}", owner) for i, value in enumerate(biases)]
    dtype = torch.float64 if any(value.dtype == torch.float64 for value in (*w, *b)) else torch.float32
    return {
        "weights": tuple(checks.matrix(value, f"w{i}", owner).to(dtype) for i, value in enumerate(w)),
        "biases": tuple(_row(value, f"b{i}", owner).to(dtype) for i, value in enumerate(b)),
        **{name: None if value is None else _row(value, name, owner).to(dtype) for name, value in rows.items()},
    }


def _row(value: object, name: str, owner: str) -> Tensor:
    tensor = as_tensor(value, name, owner)
    if tensor.ndim != 1:
        checks.refuse(name, owner, "a row of numbers", f"shape {tuple(tensor.shape)}")
    return checks.vector(tensor, name, owner)


def _check(policy: GaussianPolicy, owner: str) -> None:
    """Refuse shapes that do not fit each other."""
    layers = len(policy.weights)
    if not layers or len(policy.biases) != layers:
        must = f"one for each of {layers} layers, of which there is one or more"
        checks.refuse("biases", owner, must, len(policy.biases))
    width = policy.weights[0].shape[1]
    for i, (w, b) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        if w.shape[1] != width:
            checks.refuse(f"w{i}", owner, f"{width} wide, as what goes into it", w.shape[1])
        width = w.shape[0]
        if len(b) != width:
            checks.refuse(f"b{i}", owner, f"{width} long, as 'w{i}' has rows", len(b))
    checks.one_of(policy.activation, ACTIVATIONS, "activation", owner)
    if policy.clip is not None:
        checks.number(policy.clip, "clip", owner, low=0, open_low=True)
    observations, actions = policy.weights[0].shape[1], width
    lengths = {"log_std": actions, "shift": observations, "scale": observations, "low": actions, "high": actions}
    for name, length in lengths.items():
        value = getattr(policy, name)
        if value is not None and len(value) != length:
            checks.refuse(name, owner, f"{length} long", len(value))
    for one, other in (("shift", "scale"), ("low", "high")):
        if (getattr(policy, one) is None) != (getattr(policy, other) is None):
            checks.refuse(one, owner, f"given together with '{other}'", "one alone")
    if policy.scale is not None and not bool((policy.scale > 0).all()):
        checks.refuse("scale", owner, "above 0", f"{float(policy.scale.min()):g}")
    if policy.low is not None and policy.high is not None and not bool((policy.low < policy.high).all()):
        checks.refuse("low", owner, "below 'high'", f"{float((policy.low - policy.high).max()):+g} above it")


# How far beyond its bounds an action may lie, as a share of their distance: the rounding of float32.
ACTION_TOLERANCE = 1e-5


def bounds_of(a: Tensor, low: ArrayLike | None, high: ArrayLike | None, owner: str) -> dict[str, Any]:
    """Both bounds of the space of actions `a` or none, and every action between them."""
    if low is None and high is None:
        return {}
    if low is None or high is None:
        missing = "action_low" if low is None else "action_high"
        checks.refuse(missing, owner, "given together with its opposite", "none")
    bottom = checks.vector(low, "action_low", owner, length=a.shape[1])
    top = checks.vector(high, "action_high", owner, length=a.shape[1])
    if bool((bottom >= top).any()):
        checks.refuse("action_low", owner, "below 'action_high'", f"{float((bottom - top).max()):+.4g} above it")
    require_inside(a, bottom, top, owner)
    return {"action_low": bottom, "action_high": top}


def require_inside(
    actions: Float[Tensor, "m a"], low: Float[Tensor, " a"], high: Float[Tensor, " a"], owner: str
) -> None:
    """Refuse an action outside of the space, with its row and dimension."""
    slack = ACTION_TOLERANCE * (high - low)
    outside = ((actions < low - slack) | (actions > high + slack)).nonzero()
    if len(outside):
        row, i = (int(v) for v in outside[0])
        told = f"{float(actions[row, i]):.6g} in row {row}, dimension {i} (from 0)"
        checks.refuse("actions", owner, f"within the space, here [{float(low[i]):g}, {float(high[i]):g}]", told)


def require_widths(given: object, widths: tuple[int, int], whose: str, name: str, owner: str) -> None:
    """Refuse a policy or a reward function, where it tells its `widths`, for other observations or actions."""
    have = getattr(given, "widths", None)
    if have is not None and tuple(have) != widths:
        must = f"one for observations {widths[0]} wide and actions {widths[1]} wide, as {whose}"
        checks.refuse(name, owner, must, f"one for {have[0]} and {have[1]}")


def require_bounds(
    policy: Policy,
    low: Float[Tensor, " a"],
    high: Float[Tensor, " a"],
    observations: Float[Tensor, "n s"],
    *,
    space: str,
    owner: str,
    narrower: bool = False,
) -> None:
    """Refuse a policy whose bounds are missing or not those of `space`; with `narrower` they may lie within it.

    A policy that names no bounds is asked for an action at each of `observations` instead, and none may lie outside.
    """
    if not hasattr(policy, "low") or not hasattr(policy, "high"):
        drawn = policy.act(observations, generator=rng.fork(0, "bounds"))
        require_inside(drawn, low, high, "the policy")
        return
    must = f"bounded as {space} (give it low= and high=)"
    if policy.low is None or policy.high is None:
        checks.refuse("policy", owner, must, "one without bounds")
    slack = ACTION_TOLERANCE * (high - low)
    below, above = low - policy.low, policy.high - high  # how much wider it is on either side
    off = (below > slack) | (above > slack) if narrower else (below.abs() > slack) | (above.abs() > slack)
    if bool(off.any()):
        i = int(off.nonzero()[0])
        have, want = (f"[{float(a[i]):g}, {float(b[i]):g}]" for a, b in ((policy.low, policy.high), (low, high)))
        checks.refuse("policy", owner, must, f"{have} for {want} in dimension {i} (from 0)")
