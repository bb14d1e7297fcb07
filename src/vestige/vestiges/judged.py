"""New rows against a vestige: the same questions as with rows of both sides, answered from what was kept.

- FID from the moments of the features, equal to that with rows; its standard error from the reference draws, by whose
  spread the rows' is known. KID so from third moments where they were kept. MMD, and KID without them, from the
  reference draws, under the bandwidth of arrival.
- Divergences by a fresh ratio between reference draws and new rows, then widened by the draws' own error (`widening`);
  so are MMD and KID from draws. Where the rows were images, JS once more with normal noise of one standard deviation of
  every coordinate added to both sides (`js_smoothed`): samples of a poor generator do not overlap with images at all,
  where JS is near log 2 whatever the generator; above SATURATED its reason says so.
- "No difference" by the drift test of stored moments. A classifier between draws and new rows would find that the draws
  are draws.
- PRD and the metrics of neighbourhoods need rows, and are refused.

Rows that are out of the new ones' reach are reference draws here. At most a share t of these, the limit of the total
variation, lies where the data had nothing; where t is not below the share that is out of reach, a sentence says so.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, InputError, NotEstimable, checks
from vestige.core.checks import ArrayLike, Kind
from vestige.data.readers import ColumnReport
from vestige.metrics.base import WeightedRows
from vestige.metrics.fid import FID
from vestige.metrics.mmd import KID, kid, mmd
from vestige.ratios.cross_fit import HeldOut
from vestige.ratios.support import Reach
from vestige.vestiges.given import drawn_rows, opened, sides
from vestige.vestiges.image_difference import ImageDifference
from vestige.vestiges.kept import KeptData
from vestige.vestiges.lines import Found, fid_found, gathered, heard, some_rows
from vestige.vestiges.no_difference import by_weight
from vestige.vestiges.pairs import FEW_BY_WEIGHT, RowPair, Seen, Tested
from vestige.vestiges.plan import Plan, plan
from vestige.vestiges.reference import smoothed, smoothing_scale
from vestige.vestiges.vestige_differences import cell_names, images_of_vestige, of_vestige
from vestige.vestiges.widening import total_variation_limit, widened

SATURATED = 0.65  # nats of JS, of log 2 = 0.69: beyond it there is next to no overlap left to measure
NEEDS_ROWS = "It is a metric of the rows themselves, and a vestige keeps none."
OWN_SHARE = 0.2  # of what was found that may be an error of the draws, where shares of it are told


def pair_of(
    p: Any,  # noqa: ANN401 - a vestige, or rows as `batches` takes them
    q: Any,  # noqa: ANN401 - rows
    q_weights: ArrayLike | None,
    *,
    owner: str,
    names: tuple[str, str] = ("p", "q"),
    drop: Sequence[str] = (),
    n: int | None = None,
    seed: int = 0,
) -> RowPair | VestigePair:
    """The data, by its rows or by what is left of them, and new rows, which messages call `names`."""
    if isinstance(q, KeptData):
        checks.refuse("q", owner, "rows: a vestige stands for the data, and comes first", "a vestige")
    if not isinstance(p, KeptData):
        return RowPair.of(*sides(p, q, drop=drop, n=n, seed=seed, names=names, owner=owner), q_weights, owner)
    if drop:
        checks.refuse("drop", owner, "given when the data is kept, so with rows alone", f"'{drop[0]}' with a vestige")
    found = opened(q, "q", n=n, seed=seed, owner=owner)
    pair = VestigePair.of(p, found.rows, q_weights, owner, names[1])
    beside = {"like": found.like, "drawn": drawn_rows(q, found)}
    return replace(pair, notes=found.notes + pair.notes, warnings=found.warnings + pair.warnings, **beside)


@dataclass(frozen=True, eq=False)
class VestigePair:
    """A vestige, and new rows in its frame, weighted on request."""

    vestige: KeptData
    cells: Float[Tensor, "n_q c"]
    q_weights: Float[Tensor, " n_q"] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    by_draws: bool = True
    like: Kind = Kind("numpy")  # noqa: RUF009 - frozen
    drawn: Any = None

    @classmethod
    def of(cls, vestige: KeptData, q: Any, q_weights: ArrayLike | None, owner: str, name: str) -> VestigePair:  # noqa: ANN401
        """New rows brought into the frame; refused with the names of what does not fit."""
        aligned = vestige.cells(q, name)
        weights = checks.weights(q_weights, len(aligned.cells), "q_weights", owner)
        warnings = tuple(aligned.warnings)
        if not vestige.errors.sure("js"):
            warnings += ("How far the reference draws are from the data could not be told when it was kept.",)
        notes = (*aligned.notes, *filter(None, [vestige.frame.note]))
        return cls(vestige, aligned.cells, weights, notes, warnings)

    @property
    def n_p(self) -> int:
        """Rows there were."""
        return self.vestige.n

    @property
    def n_q(self) -> int:
        """New rows."""
        return len(self.cells)

    @property
    def d(self) -> int:
        """Features."""
        return self.features.shape[1]

    @functools.cached_property
    def features(self) -> Float[Tensor, "n_q d"]:
        """What metrics are taken of, of the new rows."""
        return self.vestige.frame.features(self.vestige.comparable(self.cells))

    @property
    def columns(self) -> ColumnReport | None:
        """Of the schema, where the data was a table."""
        schema = self.vestige.frame.schema
        return None if schema is None else schema.report()

    @functools.cached_property
    def apart(self) -> float:
        """The limit of the total variation between the data and the reference draws."""
        return total_variation_limit(self.vestige.errors)

    def plan(self, *, rows: int, pair_rows: int, memory: float | None, owner: str) -> Plan:
        """With the reference draws in the place of the data; a smoothed divergence is a second fit."""
        points, _ = self.vestige.points()
        how: dict[str, Any] = {"rows": rows, "pair_rows": pair_rows, "memory": memory, "owner": owner}
        planned = plan(len(points), self.n_q, self.d, seen=points.shape[1], **how)
        return replace(planned, seconds=planned.seconds * (2 if self.vestige.frame.of_images and pair_rows else 1))

    def seen(self, planned: Plan, estimator: object, seed: int) -> Seen:
        """Reference draws and new rows, as the vestige's own error was measured."""
        frame = self.vestige.frame
        points, weights = self.vestige.points()
        told = "" if frame.axes is None else f"The ratio saw {frame.told()}, {frame.axes.kept:.0%} of their variance."
        return Seen(points, frame.seen(self.features), weights, self.q_weights, told)

    def smoothed(self, seen: Seen, seed: int) -> Seen | None:
        """With normal noise of one standard deviation of the draws on both sides, where rows were images."""
        if not self.vestige.frame.of_images:
            return None
        assert seen.p_weights is not None
        scale = smoothing_scale(seen.p, seen.p_weights)
        p, q = (smoothed(x, scale, seed, side) for x, side in ((seen.p, "draws"), (seen.q, "new")))
        return Seen(p, q, seen.p_weights, seen.q_weights, "")

    def of_data(self, found: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """Widened by the error of the draws; a JS that has no room left says so."""
        out = widened(found, self.vestige.errors)
        js = out.get("js")
        if js is not None and js.known and js.value > SATURATED:
            told = f"saturated: there is next to no overlap, where JS is {math.log(2):.2f} whatever the distance"
            out["js"] = js.but(reason="; ".join(filter(None, (told, js.reason))))
        return out

    def tested(self, seen: Seen, *, rows: int, seed: int) -> Tested:
        """By the drift test of stored moments, on all new rows; weighted ones are first drawn by weight."""
        cells = self.cells
        if self.q_weights is not None:
            drawn = by_weight(self.q_weights, seed) if self.vestige.test.block == 1 else None
            if drawn is None:
                return Tested(math.nan, untested=FEW_BY_WEIGHT)
            cells = cells[drawn]
        try:
            found = self.vestige.test.test(cells)
        except InputError:  # the cells are those of the frame: there are too few of them
            return Tested(math.nan, untested="there are too few rows")
        return Tested(found.p_value, found, of_vestige(self.vestige, cells, found))

    def groups(self, names: Sequence[str]) -> list[Sequence[int]] | None:
        """The features of each column, where a ratio sees them and not components."""
        frame = self.vestige.frame
        if frame.axes is not None:
            return None
        widths = [1] * len(frame.kinds) if frame.schema is None else [len(one.features) for one in frame.schema.used]
        ends = list(itertools.accumulate(widths, initial=0))
        by_name = {name: range(ends[i], ends[i + 1]) for i, name in enumerate(cell_names(self.vestige))}
        return [by_name[name] for name in names]

    def shares_untold(self, found: HeldOut) -> str:
        """Where the draws differ from the data by more than a share OWN_SHARE of what was found."""
        gain = math.log(2) - float(found.report["held_out"]["log_loss"])
        own = self.vestige.errors.estimates.get("js")
        if own is None or not own.known or max(own.value, 0.0) <= OWN_SHARE * gain:
            return ""
        told = f"the reference draws differ from the data by {max(own.value, 0.0):.2g} nats of JS"
        return f"What share of the difference each column has cannot be told: {told}, and {gain:.2g} were found."

    def images(self) -> ImageDifference | None:
        """By principal components, where those are what was kept."""
        return images_of_vestige(self.vestige, self.features, self.q_weights)

    def doubts(self, reached: Reach) -> tuple[str, ...]:
        """Whether what is out of reach may be an error of the draws."""
        shares = [one.low for one in (reached.missed, reached.made) if one.value > 0]
        if not shares or min(shares) > self.apart:
            return ()
        told = f"which may be off by up to {self.apart:.0%} of the data"
        return (f"What is out of reach is judged by reference draws, {told}.",)

    def copies(self, *, most: int, seed: int) -> None:
        """Without rows of the data nobody can tell."""

    def metrics(
        self, *, level: float, pair_rows: int, seed: int, on_step: Callable[[str], None]
    ) -> tuple[dict[str, Estimate], tuple[str, ...]]:
        """FID, and KID where third moments were kept, from moments; MMD and otherwise KID from the draws, widened."""
        kept, q, v = self.vestige, self.features, self.q_weights
        draws, w = kept.feature_points()
        worth_n = math.ceil(
            len(w) * kept.n * float(w.square().sum())
        )  # draws that are worth as many rows as there were
        of_p = some_rows(len(draws), min(pair_rows, max(worth_n, 2)), seed, "p")
        of_q = some_rows(len(q), pair_rows, seed, "q")
        few_p, few_q = (draws[of_p], w[of_p]), (q[of_q], None if v is None else v[of_q])
        some: dict[str, Any] = {"p_weights": few_p[1], "q_weights": few_q[1]}

        def computed(label: str) -> Found:
            if label == "FID":
                new = FID(groups=kept.moments.groups).update(q, v)
                rows = WeightedRows(draws, w), WeightedRows(q, q.new_ones(len(q)) if v is None else v)
                with heard() as told:
                    found = kept.moments_beside(new).compute(new, extrapolate=True, std_error=True, rows=rows)
                return fid_found(found, told)
            if label == "KID":
                by_draws = kid(few_p[0], few_q[0], **some)
                if kept.third is None:
                    return {"kid": (by_draws.value, by_draws.std_error, 0.0)}
                exact = kept.third.compute(KID(groups=kept.third.groups).update(q, v))
                return {"kid": (exact.value, by_draws.std_error, 0.0)}
            if label == "MMD":
                found = mmd(few_p[0], few_q[0], bandwidth=kept.errors.bandwidth, **some)
                return {"mmd2": (found.value, found.std_error, 0.0)}
            raise NotEstimable(NEEDS_ROWS)

        found = gathered(computed, level=level, on_step=on_step)
        by_draws = ("mmd2",) if kept.third is not None else ("mmd2", "kid")
        told = tuple(filter(None, (kept.left_out(),)))
        return found | widened({name: found[name] for name in by_draws}, kept.errors), told
