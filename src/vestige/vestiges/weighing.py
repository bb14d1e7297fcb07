"""Weights that turn samples of a model into samples of the data (LFIW section 2), ready to be written.

Held-out, calibrated log-ratios of the model's rows; on request tempered to an effective sample size; self-normalised
to mean one (Eq. 6). The diagnosis before tempering says what the ratio is worth, the one after it what the weights are.

A part of the data where the model has no rows is looked for before anything else (`ratios.support`): such weights are
never called good, and averages by them are refused, or bounded where f is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vestige.core import Estimate, NotEstimable, checks
from vestige.core.checks import ArrayLike
from vestige.core.plain import plain
from vestige.data.readers import ColumnReport
from vestige.ratios import Ratio
from vestige.ratios.cross_fit import FIT_ROWS, held_out
from vestige.ratios.support import OUT_OF_REACH, Reach, reach, reachable
from vestige.ratios.weights import Diagnosis, diagnose, expectation, self_normalise, temper
from vestige.show.tables import card
from vestige.vestiges.fid_statistics import ALONE, FidStatistics, is_fid_statistics
from vestige.vestiges.judged import pair_of
from vestige.vestiges.kept import KeptPrivately
from vestige.vestiges.pairs import Pair
from vestige.vestiges.plan import Plan, cautious


@dataclass(frozen=True, repr=False)
class Weighing:
    """Weights of mean one for the rows of `q`, their intervals if there was a bootstrap, and what they are worth."""

    weights: Any  # (n_q,), of the kind that the rows of q came in
    interval: Any  # (n_q, 2) or None
    diagnosis: Diagnosis  # of the raw weights
    final: Diagnosis  # of the weights as they are
    alpha: float  # the exponent of the tempering; 1 without
    report: dict[str, Any]
    warnings: tuple[str, ...]
    blind: str | None = None  # why the ratio behind the weights missed what there is to see
    reach: Reach | None = None  # what of the data the model does not reach
    notes: tuple[str, ...] = ()  # how rows were read, and brought into the frame of a vestige
    apart: float = 0.0  # a limit of the total variation between the data and the draws that stood for it
    columns: ColumnReport | None = None  # how columns became features
    drawn: Any = field(default=None, repr=False)  # the rows that the weights are of, where they were drawn or read here

    def _figures(self) -> list[tuple[str, str]]:
        """What the weights are worth, in few numbers."""
        k = self.final.pareto_k
        found = [("verdict", self.final.verdict), ("effective rows", f"{self.final.ess:.0f} of {len(self.weights)}")]
        return [*found, ("Pareto k", "none" if k is None else f"{k:.2f}")]

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self._figures()[1:])
        return f"Weighing({len(self.weights)} weights, {self.final.verdict}: {told})"

    def _repr_html_(self) -> str:
        return card(f"{len(self.weights)} weights of mean one", self._figures())

    @property
    def trustworthy(self) -> bool:
        """Whether the weights are fit to compute with: for all of the data, not for a part of it."""
        return self.final.verdict not in ("unreliable", OUT_OF_REACH) and not self.blind

    def expectation(
        self, f_values: ArrayLike, interval: float = 0.95, *, bounds: tuple[float, float] | None = None
    ) -> Estimate:
        """E_p[f] from f on the rows of `q`, by these weights: `weights.expectation` that knows the reach.

        Refused where the model does not reach part of the data, unless `bounds` say how small and how large f can be.
        Weights of a vestige were fitted to draws: with `bounds` the interval holds their error too, at most `apart`
        times the range of f; without, a note says that it does not.
        """
        missed = None if self.reach is None else self.reach.missed
        log_weights = checks.vector(self.weights, "weights", "Weighing").log()
        found = expectation(f_values, log_weights, interval, missed=missed, bounds=bounds)
        if self.apart == 0 or not found.known:
            return found
        if bounds is None:
            told = "Its interval does not hold the error of the reference draws that stood for the data: give 'bounds'."
            return found.but(notes=(*found.notes, told))
        off = self.apart * (bounds[1] - bounds[0])
        return found.but(low=_cut(found.low - off, bounds), high=_cut(found.high + off, bounds))

    def to_json(self) -> dict[str, Any]:
        """Everything but the weights themselves, as plain JSON."""
        return {
            "rows": len(self.weights),
            "raw": plain(self.diagnosis),
            "final": plain(self.final),
            "alpha": self.alpha,
            "ratio": self.report,
            "warnings": list(self.warnings),
            "blind": self.blind,
            "reach": plain(self.reach),
            "notes": list(self.notes),
            "apart": self.apart,
            "columns": plain(self.columns),
        }


def _cut(end: Any, bounds: tuple[float, float]) -> Any:  # noqa: ANN401 - a number, or an array of them
    return end.clip(*bounds) if hasattr(end, "clip") else min(max(end, bounds[0]), bounds[1])


def weigh(
    p: Any,  # noqa: ANN401 - a vestige, or rows as `compare` takes them
    q: Any,  # noqa: ANN401 - rows
    *,
    estimator: str | Ratio = "auto",
    min_ess: float | None = None,
    bootstrap: int = 0,
    rows: int = FIT_ROWS,
    memory: float | None = None,
    drop: Sequence[str] = (),
    n: int | None = None,
    seed: int = 0,
    names: tuple[str, str] = ("real", "new"),
    on_plan: Callable[[Plan], None] = lambda _: None,
) -> Weighing:
    """Weights for the rows of `q` (the model) so that they stand for `p` (the data, or the vestige of it).

    Rows are what `compare` takes, with `drop` and `n`; weights are of the kind that the rows of `q` came in, and rows
    that were drawn or read here are `drawn`, in the order of their weights. `min_ess` tempers to that share of the
    rows; `bootstrap` fits give an interval for each weight; at most `rows` rows of each side are fitted on, fewer where
    `memory` bytes (None: half of what is free) would not do. `on_plan` is told the cost before the work begins. Of more
    than 256 features a ratio that is not named sees 64 principal components, so the weights correct what is to be seen
    in these.
    """
    bootstrap = checks.whole(bootstrap, "bootstrap", "weigh", low=0)
    if isinstance(p, KeptPrivately):
        raise NotEstimable("Weights need draws of the data, and a vestige with an epsilon keeps noisy means alone.")
    if isinstance(p, FidStatistics) or is_fid_statistics(p):
        raise NotEstimable(ALONE)
    pair: Pair = pair_of(p, q, None, owner="weigh", names=names, drop=drop, n=n, seed=seed)
    planned = pair.plan(rows=rows, pair_rows=0, memory=memory, owner="weigh")
    planned = planned if bootstrap == 0 else replace(planned, seconds=planned.seconds * bootstrap)
    on_plan(planned)
    x, y, w, _, told = pair.seen(planned, estimator, seed)
    found = held_out(x, y, p_weights=w, estimator=estimator, rows=planned.rows, bootstrap=bootstrap, seed=seed)
    figures = {key: found.report["held_out"][key] for key in ("accuracy", "log_loss", "ece")}
    raw = found.log_ratio_q
    tempered, alpha, _ = (raw, 1.0, None) if min_ess is None else temper(raw, min_ess)
    log_weights = self_normalise(tempered)
    interval = None
    if found.interval_q is not None:
        shift = log_weights - alpha * raw  # of the self-normalisation: the same for every row
        interval = (alpha * found.interval_q + shift[:, None]).exp()
    reached = reach(x, y, found.log_ratio_p, raw, p_weights=w, seed=seed)
    before, final = (reachable(cautious(diagnose(logs, **figures), told), reached) for logs in (raw, log_weights))
    said = pair.warnings + found.warnings + ((told,) if told else ())
    said += () if reached.complete else pair.doubts(reached)
    worth = before, final, alpha, found.report, said, found.blind, reached
    given = pair.like.give(log_weights.exp())
    return Weighing(
        given,
        None if interval is None else pair.like.give(interval),
        *worth,
        pair.notes,
        pair.apart,
        pair.columns,
        pair.drawn,
    )
