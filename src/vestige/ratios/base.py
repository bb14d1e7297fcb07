"""The contract of every ratio estimator: r = p / q, `p` the numerator (real data), `q` the denominator (model).

An estimator is a dataclass: its fields are its configuration, `fit` learns, and what was learnt ends in `_`. A
subclass writes `_fit`, `_log_ratio`, `_state` and `_load_state`; checks, kinds of arrays, saving and loading are done
here, once. Nothing that an estimator stores may be a row of `p`; what it keeps of `p` in aggregate is said in
`report_["kept_of_p"]`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import store
from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind
from vestige.core.errors import NotFitted, StoreError


@dataclass(eq=False)
class Ratio(ABC):
    """Estimates log p(x)/q(x) from samples of both."""

    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records

    # Set by `fit`; declared without a value so that they are no configuration fields.
    def __post_init__(self) -> None:
        self.width_: int | None = None
        self.reason_: str | None = None  # why `auto` chose this estimator
        self.report_: dict[str, Any] = {}

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

    @abstractmethod
    def _state(self) -> dict[str, Tensor]:
        """What was learnt, as tensors by name (scalars as 0-d tensors)."""

    @abstractmethod
    def _load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of `_state`."""

    def config(self) -> dict[str, Any]:
        """The configuration as plain JSON, estimators inside it included."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {k: v.config() if isinstance(v, Ratio) else v for k, v in fields.items()}
        return {"estimator": type(self).__name__, **plain}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything learnt that `log_ratio` needs."""
        if self.width_ is None:
            raise NotFitted(f"{type(self).__name__}.state_dict was called before fit.")
        return {"width": torch.tensor(self.width_), **self._state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> Self:
        """Take over what another estimator of the same configuration has learnt."""
        state = dict(state)
        try:
            width = int(state.pop("width"))
            self._load_state(state)
        except KeyError as error:
            raise StoreError(f"The stored {type(self).__name__} lacks the key {error}.") from None
        self.width_ = width
        return self

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and state to `path` (.json) and a safetensors file beside it."""
        fields = {"config": self.config(), "report": self.report_}
        return store.save(path, "ratio", fields, self.state_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The fitted estimator stored at `path`."""
        from vestige.ratios import build  # the registry imports this file

        return store.load_built(cls, path, "ratio", build)
