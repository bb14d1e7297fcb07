"""FID, KID, MMD^2 and JS as `torchmetrics.Metric`: against real rows, or against a vestige of rows that are gone.

    metric = FIDMetric(kept)                 # a vestige, or an array of features
    metric.update(features_of_a_batch)       # as often as there are batches, in as many processes as there are
    metric.compute()

`compute` gives the value; its interval, and all that else there is to say, is `vestige.compare`'s.

**Processes.** The states of FID, KID and MMD are sums over the new rows, which torchmetrics adds up across processes:
two processes give what one gives, to rounding. Those of FID are about the mean of the data, so that large features lose
no digits. KID's are third moments (at most 256 features), exact; MMD's are random Fourier features of an RBF kernel.
JS needs rows: each process holds a uniform sample of at most `rows` of those that it saw, these are gathered, weighted
by how many rows each stands for, and a ratio is fitted when `compute` is called; so JS depends on how rows were shared
out, as any sample does.

With a vestige, rows are brought into its frame; MMD and JS are then to its reference draws, without the allowance for
their own error, and KID needs third moments (`keep(..., third=True)`).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import InputError, MissingPackage, checks
from vestige.core.numerics import Moments
from vestige.metrics import FID, KID, MMD
from vestige.metrics.base import Sums, merged
from vestige.metrics.mmd import bandwidth_of
from vestige.vestiges import Vestige, compare
from vestige.vestiges.batches import Reservoir, held

try:
    from torchmetrics import Metric
except ImportError as error:
    raise MissingPackage("Metrics for torchmetrics need it: pip install 'vestige[frameworks]'") from error

JS_ROWS = 5000


class SketchMetric(Metric):  # type: ignore[misc] # whatever is installed
    """A distance from the data to rows that come in batches; lower is better."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self, real: Any, **options: Any) -> None:  # noqa: ANN401 - a vestige, or rows as `compare` takes them
        super().__init__(**options)
        self.vestige = real if isinstance(real, Vestige) else None
        owner = type(self).__name__
        self.real = None if self.vestige is not None else checks.samples(held(real, owner=owner).rows, "real", owner)
        moments = None if self.vestige is None else self.vestige.moments.whole()
        self.width = len(moments.mean) if moments is not None else self._rows_of_data().shape[1]

    def _rows_of_data(self) -> Float[Tensor, "n d"]:
        assert self.real is not None
        return self.real

    def features(self, new: Any) -> Float[Tensor, "n d"]:  # noqa: ANN401 - a batch
        """A batch in the features of the data, in double precision, on the CPU."""
        if self.vestige is not None:
            return self.vestige.frame.features(self.vestige.cells(new, "the batch").cells)
        rows = new.detach().cpu() if isinstance(new, Tensor) else new
        return checks.samples(rows, "new", type(self).__name__, width=self.width)


class SummedMetric(SketchMetric):
    """One whose states are sums over the new rows."""

    def _begin(self, parts: dict[str, Tensor]) -> None:
        """States of these shapes, all zero."""
        self.parts = tuple(parts)
        for name, part in parts.items():
            self.add_state(name, torch.zeros_like(part), dist_reduce_fx="sum")

    def _add(self, parts: dict[str, Tensor]) -> None:
        for name, part in parts.items():
            setattr(self, name, getattr(self, name) + part.to(self.device))

    def _state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).detach().cpu() for name in self.parts}

    def _value(self, found: float) -> Tensor:
        return torch.tensor(found, dtype=torch.float64, device=self.device)


class FIDMetric(SummedMetric):
    """Frechet distance of features to those of the data.

    Example
    -------
    >>> rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> metric = FIDMetric(rows)
    >>> for batch in rows.split(64):
    ...     metric.update(batch)
    >>> abs(float(metric.compute())) < 1e-9
    True
    """

    def __init__(self, real: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(real, **options)
        kept = self.vestige
        self.moments = Moments.of(self._rows_of_data()) if kept is None else kept.moments.whole()
        self._begin(self._sums(torch.zeros(1, self.width, dtype=torch.float64)))

    def _sums(self, x: Float[Tensor, "n d"]) -> dict[str, Tensor]:
        off = x - self.moments.mean
        return {"count": torch.tensor(float(len(x)), dtype=torch.float64), "total": off.sum(0), "squares": off.mT @ off}

    def update(self, new: Any) -> None:  # noqa: ANN401 - a batch
        """Take in a batch of the model's rows."""
        self._add(self._sums(self.features(new)))

    def compute(self) -> Tensor:
        """FID of all batches, of all processes."""
        found = self._state()
        n, total = float(found["count"]), found["total"]
        if n < 2:
            raise InputError(f"The samples of FIDMetric must be at least 2. Got {n:g} instead.")
        scatter = found["squares"] - torch.outer(total, total) / n
        new = Moments(int(n), n, n, self.moments.mean + total / n, scatter)
        q = _holding(FID(groups=1), new, new.n, self.width)
        whole = self.moments if self.vestige is None else self.vestige.moments_beside(q).whole()
        return self._value(_holding(FID(groups=1), whole, whole.n, self.width).compute(q).value)


class EmbeddedMetric(SummedMetric):
    """MMD^2 under a kernel whose sums merge."""

    def _reference(self, accumulator: KID | MMD) -> None:
        """Begin with the data's `accumulator`, which the new rows' is held against."""
        self.reference, self.sketch = accumulator, _fresh(accumulator)
        self._begin(self._sums(torch.zeros(1, self.width, dtype=torch.float64)))

    def _sums(self, x: Float[Tensor, "n d"]) -> dict[str, Tensor]:
        summary = _holding(self.sketch, None, 0, self.width).update(x).summaries_[0]
        return {**summary.parts, "count": torch.tensor(float(len(x)), dtype=torch.float64)}

    def update(self, new: Any) -> None:  # noqa: ANN401 - a batch
        """Take in a batch of the model's rows."""
        self._add(self._sums(self.features(new)))

    def compute(self) -> Tensor:
        """MMD^2 of all batches, of all processes."""
        found = self._state()
        n = int(found.pop("count"))
        q = _holding(_fresh(self.reference), Sums(found), n, self.width)
        return self._value(self.reference.compute(q).value)


class KIDMetric(EmbeddedMetric):
    """KID of features to those of the data, from third moments."""

    def __init__(self, real: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(real, **options)
        if self.vestige is None:
            self._reference(KID(groups=1).update(self._rows_of_data()))
            return
        if self.vestige.third is None:
            raise InputError("The 'real' of KIDMetric must be kept with third=True. Got a vestige without instead.")
        third = self.vestige.third
        self._reference(_holding(KID(groups=1), merged(third._filled()), third.n, self.width))


class MMDMetric(EmbeddedMetric):
    """MMD^2 of features to those of the data, under an RBF kernel in `frequencies` random Fourier features.

    The bandwidth is the median distance of the data's rows unless it is given; a vestige knows the one of arrival.
    """

    def __init__(
        self,
        real: Any,  # noqa: ANN401
        *,
        bandwidth: float | None = None,
        frequencies: int = 2048,
        seed: int = 0,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(real, **options)
        if self.vestige is None:
            rows, weights = self._rows_of_data(), None
            wide = bandwidth_of(bandwidth, rows, rows)
        else:
            rows, weights = self.vestige.feature_points()
            wide = bandwidth_of(bandwidth or self.vestige.errors.bandwidth, rows, rows)
        made = MMD(bandwidth=wide, frequencies=frequencies, seed=seed, groups=1)
        self._reference(made.update(rows, weights))


class JSMetric(SketchMetric):
    """Jensen-Shannon divergence of rows to the data, from a sample of at most `rows` of each process."""

    kept: list[Tensor]
    shares: list[Tensor]

    def __init__(self, real: Any, *, rows: int = JS_ROWS, seed: int = 0, **options: Any) -> None:  # noqa: ANN401
        super().__init__(real, **options)
        self.given = real if self.vestige is not None else self._rows_of_data()
        self.rows, self.seed = checks.whole(rows, "rows", "JSMetric", low=8), checks.whole(seed, "seed", "JSMetric")
        self.reservoir: Reservoir | None = None
        self.add_state("kept", [], dist_reduce_fx="cat")
        self.add_state("shares", [], dist_reduce_fx="cat")

    def update(self, new: Any) -> None:  # noqa: ANN401 - a batch
        """Take in a batch of the model's rows."""
        if self.reservoir is None or not self.kept:  # `reset` empties the states
            self.reservoir = Reservoir(self.rows, self.seed)
        rows = new.detach().cpu() if isinstance(new, Tensor) else new
        width = None if self.vestige is not None else self.width
        self.reservoir.add(checks.samples(rows, "new", "JSMetric", width=width))
        sample, places = self.reservoir.rows()
        assert isinstance(sample, Tensor)
        self.kept = [sample.to(self.device)]
        self.shares = [torch.full((len(places),), self.reservoir.seen / len(places), device=self.device)]

    def compute(self) -> Tensor:
        """JS of the sample, of all processes; NaN where it is refused."""
        rows, shares = (_joined(state).cpu() for state in (self.kept, self.shares))
        weights = None if bool((shares == shares[0]).all()) else shares
        found = compare(self.given, rows, q_weights=weights, seed=self.seed).divergences["js"]
        return torch.tensor(found.value, dtype=torch.float64, device=self.device)


def _joined(state: Tensor | list[Tensor]) -> Tensor:
    """A state of rows: a list before it was gathered, a tensor afterwards."""
    return state if isinstance(state, Tensor) else torch.cat(list(state))


def _fresh(accumulator: Any) -> Any:  # noqa: ANN401 - an accumulator, and one of its kind
    return type(accumulator)(**accumulator.settings())


def _holding(accumulator: Any, summary: Any, n: int, width: int) -> Any:  # noqa: ANN401 - an accumulator
    """It, as if it had seen the `n` rows of one summary."""
    accumulator.summaries_, accumulator.n_, accumulator.width_ = [summary], n, width
    return accumulator
