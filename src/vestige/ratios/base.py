"""The contract of every ratio estimator: r = p / q, `p` the numerator (real data), `q` the denominator (model).

An estimator is a dataclass: its fields are its configuration, each with its declared constraint; what `fit` learns are
fields that `__init__` does not take, and their names end in `_`. A subclass writes `_fit` and `_log_ratio`; checks,
kinds of arrays, saving and loading (by the one codec) are done here, once. Nothing that an estimator stores may be a
row of `p`; what it keeps of `p` in aggregate is said in `report_["kept_of_p"]`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from vestige import store
from vestige.core import InputError, NotFitted, StoreError, checks
from vestige.core.checks import ArrayLike, Kind
from vestige.store import codec


@dataclass(eq=False)
class Ratio(ABC):
    """Estimates log p(x)/q(x) from samples of both."""

    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # options by name, for `build`

    width_: int | None = field(init=False, repr=False, default=None)
    reason_: str | None = field(init=False, repr=False, default=None)  # why `auto` chose this estimator
    report_: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def fit(
        self,
        p: ArrayLike,
        q: ArrayLike,
        *,
        p_weights: ArrayLike | None = None,
        q_weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """Learn log p/q from samples of `p` and of `q`, each weighted on request. Returns self."""
        owner = f"{type(self).__name__}.fit"
        self._check()
        p_, q_ = checks.pair(p, q, owner)
        seed = checks.whole(seed, "seed", owner)
        p_w = checks.weights(p_weights, len(p_), "p_weights", owner)
        q_w = checks.weights(q_weights, len(q_), "q_weights", owner)
        self.width_ = None  # a fit that fails leaves no half-fitted estimator behind
        self.report_ = {"estimator": type(self).__name__, "n_p": len(p_), "n_q": len(q_), "d": p_.shape[1]}
        if self.reason_ is not None:
            self.report_["why"] = self.reason_
        self._fit(p_, q_, p_w, q_w, seed)
        self.width_ = p_.shape[1]
        return self

    def log_ratio(self, x: ArrayLike) -> Any:  # noqa: ANN401 - the kind that came in
        """log p(x)/q(x) for each row of `x`: the same row gives the same value whatever else is in the call."""
        owner = f"{type(self).__name__}.log_ratio"
        if self.width_ is None:
            raise NotFitted(f"{owner} was called before fit.")
        x_ = checks.samples(x, "x", owner, width=self.width_)
        return Kind.of(x).give(self._log_ratio(x_))

    def _check(self) -> None:
        """Refuse settings that cannot be used: those that are not as declared, and what a subclass adds."""
        checks.declared(self)

    @abstractmethod
    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        """Learn from checked float64 samples and weights that sum to one; fill `report_`."""

    @abstractmethod
    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The learnt log-ratio of checked float64 samples, as float64."""

    def state_dict(self) -> dict[str, Tensor]:
        """Configuration and what was learnt, as tensors alone: those of the codec, and the bytes of its JSON."""
        if self.width_ is None:
            raise NotFitted(f"{type(self).__name__}.state_dict was called before fit.")
        return codec.to_tensors(self)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Self:
        """Take over what another estimator of the same configuration has learnt."""
        read = codec.from_tensors(type(self), state, classes=known_ratios())
        vars(self).update({name: value for name, value in vars(read).items() if name.endswith("_")})
        return self

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and state to `path` (.json) and a safetensors file beside it."""
        if self.width_ is None:
            raise NotFitted(f"{type(self).__name__}.save was called before fit.")
        data, tensors = codec.encode(self)
        return store.save(path, "ratio", {"ratio": data}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The fitted estimator stored at `path`."""
        fields, tensors = store.load(path, "ratio")
        if "ratio" not in fields:
            raise StoreError(f"{path} was written by vestige 0.1.0: read it with that, or fit and save the ratio anew.")
        read = codec.decode(Ratio, fields["ratio"], tensors, classes=known_ratios())
        if not isinstance(read, cls):
            raise InputError(
                f"The 'path' of {cls.__name__}.load must be a stored {cls.__name__}. "
                f"Got a {type(read).__name__} instead."
            )
        return read


def known_ratios(kind: type[Ratio] = Ratio) -> dict[str, type[Ratio]]:
    """Every estimator by the name of its class: what a stored one may be."""
    known: dict[str, type[Ratio]] = {}
    for own in kind.__subclasses__():
        known |= {own.__name__: own} | known_ratios(own)
    return known
