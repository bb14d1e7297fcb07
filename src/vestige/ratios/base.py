"""The contract of every ratio estimator: r = p / q, `p` the numerator (real data), `q` the denominator (model).

An estimator is a dataclass: its fields are its configuration, each with its declared constraint; what `fit` learns are
fields that `__init__` does not take, and their names end in `_`. A subclass writes `_fit` and `_log_ratio`; checks,
kinds of arrays, saving and loading (by the one codec) are done here, once. Nothing that an estimator stores may be a
row of `p`; what it keeps of `p` in aggregate is said in `report_["kept_of_p"]`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import store
from vestige.core import InputError, NotFitted, StoreError, VestigeWarning, checks, params
from vestige.core.checks import ArrayLike, Kind
from vestige.store import codec

# A number for each row of p, and for each row of q.
OnP: TypeAlias = Float[Tensor, " n_p"]
OnQ: TypeAlias = Float[Tensor, " n_q"]
# What a user hands over for p and for q.
Pair: TypeAlias = "tuple[ArrayLike | None, ArrayLike | None]"


@dataclass(frozen=True, eq=False)
class Sample:
    """What an estimator is fitted on: float64 rows of both sides, and weights that sum to one (None: equal ones)."""

    p: Float[Tensor, "n_p d"]
    q: Float[Tensor, "n_q d"]
    p_weights: OnP | None = None
    q_weights: OnQ | None = None

    @property
    def w_p(self) -> OnP:
        """The weights of p's rows, written out."""
        return _even(self.p) if self.p_weights is None else self.p_weights

    @property
    def w_q(self) -> OnQ:
        """The weights of q's rows, written out."""
        return _even(self.q) if self.q_weights is None else self.q_weights

    def rows(self, of_p: Tensor, of_q: Tensor) -> Sample:
        """Some of the rows of either side, with their weights as they are."""
        p_weights = None if self.p_weights is None else self.p_weights[of_p]
        return Sample(self.p[of_p], self.q[of_q], p_weights, None if self.q_weights is None else self.q_weights[of_q])


def _even(x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return x.new_full((len(x),), 1 / len(x), dtype=torch.float64)


@dataclass(eq=False)
class Ratio(ABC):
    """Estimates log p(x)/q(x) from samples of both."""

    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # options by name, for `build`

    width_: int | None = field(init=False, repr=False, default=None)
    reason_: str | None = field(init=False, repr=False, default=None)  # why `auto` chose this estimator
    report_: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    get_params, set_params = params.get_params, params.set_params

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's
        return params.tags(transformer=False)

    def __sklearn_is_fitted__(self) -> bool:
        return self.width_ is not None

    @property
    def n_features_in_(self) -> int:
        """Features of a row, under scikit-learn's name for it."""
        return self._fitted("n_features_in_")

    def fit(
        self,
        p: ArrayLike,
        q: ArrayLike,
        *,
        p_weights: ArrayLike | None = None,
        q_weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """Learn log p/q from samples of `p` and of `q`, each weighted on request. Returns self.

        scikit-learn has rows and labels instead: where `q` is one of two labels for each row of a `p` that has several
        features, the rows with the larger label are those of p, and the others those of q.
        """
        sample, seed = self._opened((p, q), (p_weights, q_weights), seed)
        self._fit(sample, seed)
        self.width_ = sample.p.shape[1]
        return self

    def score(self, p: ArrayLike, q: ArrayLike) -> float:
        """How well the ratio tells fresh rows of `p` from those of `q`: minus its log-loss, both sides counting alike.

        Rows and labels are taken as by `fit`, so that `GridSearchCV` chooses options by this.
        """
        owner = f"{type(self).__name__}.score"
        of_p, of_q = (self._log_ratio(self._rows(x, "score")) for x in parted((p, q), owner))
        log_p, log_q = (torch.nn.functional.logsigmoid(x).mean() for x in (of_p, -of_q))
        return float(log_p + log_q) / 2

    def _opened(self, rows: Pair, weights: Pair, seed: int) -> tuple[Sample, int]:
        """A fit begins: settings, p and q and their weights are checked, and nothing of an earlier fit counts any more.

        Whoever opens a fit calls `_fit` with what this returns, and sets `width_` when that is done: a fit that fails
        leaves no half-fitted estimator behind.
        """
        owner = f"{type(self).__name__}.fit"
        self._check()
        p, q = checks.pair(*parted(rows, owner), owner)
        seed = checks.whole(seed, "seed", owner)
        p_weights = checks.weights(weights[0], len(p), "p_weights", owner)
        q_weights = checks.weights(weights[1], len(q), "q_weights", owner)
        self.width_ = None
        self.report_ = {"estimator": type(self).__name__, "n_p": len(p), "n_q": len(q), "d": p.shape[1]}
        if self.reason_ is not None:
            self.report_["why"] = self.reason_
        return Sample(p, q, p_weights, q_weights), seed

    def log_ratio(self, x: ArrayLike) -> Any:  # noqa: ANN401 - the kind that came in
        """log p(x)/q(x) for each row of `x`: the same row gives the same value whatever else is in the call."""
        return Kind.of(x).give(self._log_ratio(self._rows(x, "log_ratio")))

    def _rows(self, x: ArrayLike, verb: str) -> Float[Tensor, "n d"]:
        """The checked rows that a `verb` of a fitted estimator is asked about."""
        return checks.samples(x, "x", f"{type(self).__name__}.{verb}", width=self._fitted(verb))

    def _fitted(self, verb: str) -> int:
        """The number of features that were fitted; refuses `verb` before a fit."""
        if self.width_ is None:
            raise NotFitted(f"{type(self).__name__}.{verb} was called before fit.")
        return self.width_

    def _check(self) -> None:
        """Refuse settings that cannot be used: those that are not as declared, and what a subclass adds."""
        checks.declared(self)

    def _caution(self, text: str) -> None:
        """Put `text` among the warnings of the report, and say it."""
        self.report_.setdefault("warnings", []).append(text)
        warnings.warn(f"{type(self).__name__}: {text}", VestigeWarning, stacklevel=4)

    @abstractmethod
    def _fit(self, sample: Sample, seed: int) -> None:
        """Learn from a checked sample; fill `report_`."""

    @abstractmethod
    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The learnt log-ratio of checked float64 samples, as float64."""

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and state to `path` (.json) and a safetensors file beside it."""
        self._fitted("save")
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


def parted(sides: tuple[Any, Any], owner: str) -> tuple[Any, Any]:
    """Rows of p and of q; where `q` is labels of the rows `p`, the rows with the larger label and the others."""
    p, q = sides
    if getattr(q, "ndim", 0) != 1 or getattr(p, "ndim", 0) != 2:
        return p, q
    rows, label = checks.as_tensor(p, "p", owner), checks.as_tensor(q, "q", owner)
    if rows.shape[1] == 1 or len(rows) != len(label):
        return p, q
    kinds = label.unique()
    if len(kinds) != 2:
        told = "one class" if len(kinds) == 1 else len(kinds)
        checks.refuse("q", owner, f"as wide as 'p' ({rows.shape[1]} features), or labels of two classes", told)
    return rows[label == kinds[1]], rows[label == kinds[0]]


def known_ratios(kind: type[Ratio] = Ratio) -> dict[str, type[Ratio]]:
    """Every estimator by the name of its class: what a stored one may be."""
    known: dict[str, type[Ratio]] = {}
    for own in kind.__subclasses__():
        known |= {own.__name__: own} | known_ratios(own)
    return known
