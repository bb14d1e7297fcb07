"""Two sample sets in, what there is to say about their difference out: `compare(p, q)`; p may be a vestige.

Divergences come from held-out, calibrated log-ratios with the error of learnt ratios ("influence"); metrics from the
features themselves; the p-value of "no difference" from a permutation test. What the samples cannot carry stays in the
table as the sentence that refuses it. The conclusion is one plain sentence made of these, and a further one for each
side of which the other does not reach a part, and for rows of the data that the model repeats (`copies`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from vestige.core import Estimate, checks, rendered
from vestige.core.checks import ArrayLike
from vestige.data.readers import ColumnReport
from vestige.ratios import Ratio
from vestige.ratios.cross_fit import FIT_ROWS, HeldOut, held_out
from vestige.ratios.divergences import FAMILY, learnt
from vestige.ratios.importance import shares_of_gain
from vestige.ratios.support import OUT_OF_REACH, Reach, reach, reachable, verdict
from vestige.ratios.weights import Diagnosis, diagnose
from vestige.vestiges.batches import Held
from vestige.vestiges.copies import Copies
from vestige.vestiges.differences import ALPHA, ColumnDifference, in_order, told_of
from vestige.vestiges.drift_test import DriftFound
from vestige.vestiges.fid_statistics import FidStatistics, is_fid_statistics
from vestige.vestiges.given import opened
from vestige.vestiges.image_difference import ImageDifference
from vestige.vestiges.judged import pair_of
from vestige.vestiges.kept import Answers, KeptPrivately
from vestige.vestiges.lines import METRICS, PAIR_ROWS, some_rows
from vestige.vestiges.pairs import FEW_BY_WEIGHT, Pair, RowPair, Seen
from vestige.vestiges.plan import LOOKED_ROWS, SHARED_OUT, Plan, cautious, plan

# In-sample less held-out KL, from which bias is to be feared: this share of the held-out one, or so many nats.
GAP_SHARE, GAP_NATS = 0.2, 0.1
# A standard error above this is not small.
NOISE_NATS = 0.1
# The words for how often a classifier tells the two apart on rows it has not seen.
WORDS = ((0.55, "slightly"), (0.65, "moderately"), (0.8, "clearly"), (0.95, "strongly"), (math.inf, "almost entirely"))
STEPS = ("ratio", "test", "columns", *METRICS)


CURES = {
    "good": "Weights can correct it: weigh the rows before you compute with them.",
    "usable with care": "Weights can correct a part of it: weigh the rows, and read what the weights are worth.",
    "unreliable": "Weights cannot correct it: get rows that are nearer to the data, or train the model again.",
    OUT_OF_REACH: "A part of the data has no such rows, which weights cannot correct: look at the rows out of reach.",
}
SHOWN = 5  # columns on a screen
TYPICAL = 8  # rows of each kind


@dataclass(frozen=True)
class Typical:
    """Places of new rows that are most and least like the data, and of data that has fewest new rows like it."""

    most: tuple[int, ...]
    least: tuple[int, ...]
    lacking: tuple[int, ...]  # with a vestige places of reference draws

    @classmethod
    def of(cls, found: HeldOut, kept: Sequence[Tensor]) -> Typical:
        """By the log-ratio, the largest first where data is more likely."""
        of_q, of_p = found.log_ratio_q.argsort(descending=True), found.log_ratio_p.argsort(descending=True)
        places = of_q[:TYPICAL], of_q.flip(0)[:TYPICAL], of_p[:TYPICAL]
        return cls(*(tuple(kept[side][rows].tolist()) for side, rows in zip((1, 1, 0), places, strict=True)))


@dataclass(frozen=True, repr=False)
class Comparison:
    """What is known about the difference between the data `p` and the model's rows `q`."""

    n_p: int
    n_q: int
    d: int
    divergences: dict[str, Estimate]
    metrics: dict[str, Estimate]
    p_value: float  # of "no difference"; NaN where the weights are worth too few rows to test
    diagnosis: Diagnosis | None  # of the weights that would turn q into p; none under an epsilon
    ratio: dict[str, Any]
    conclusion: str
    warnings: tuple[str, ...]
    plan: Plan  # what each part saw, and the cost that was announced
    reach: Reach | None  # what of either set is out of the other's reach; not known under an epsilon
    notes: tuple[str, ...] = ()  # how rows were read, and brought into the frame of a vestige
    drift: DriftFound | None = None  # what the test of a vestige found, by family
    differences: tuple[ColumnDifference, ...] = ()  # by column, those that differ most first
    by_draws: bool = False  # whether reference draws stood for the data, so that `reach.outside_p` are some of these
    copies: Copies | None = None  # rows of the model that repeat rows of the data; None where these are gone
    columns: ColumnReport | None = None  # how columns became features
    images: ImageDifference | None = None  # where images differ
    typical: Typical | None = None  # rows by how much they are like the data
    names: tuple[str, str] = ("real", "fake")

    @property
    def status(self) -> Literal["same", "differs", "not told"]:
        """Whether a difference was found; "not told" where it could not be tested."""
        return "not told" if math.isnan(self.p_value) else "differs" if self.p_value <= ALPHA else "same"

    @property
    def answer(self) -> str:
        """The shortest true sentence."""
        real, fake = self.names
        if self.status == "not told":
            return f"Whether {fake} differs from {real} could not be tested."
        if self.status == "same":
            return f"No difference between {real} and {fake} was found."
        accuracy = None if self.diagnosis is None else self.diagnosis.accuracy
        if accuracy is None:
            return f"{fake} differs from {real}."
        word = next(word for limit, word in WORDS if accuracy < limit)
        return f"{fake} differs {word} from {real}."

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.status == "not told" and self.diagnosis is None and self.metrics["fid"].known:
            return "FID is all that 'mu' and 'sigma' tell: for a test compare with the rows, or with a vestige of them."
        if self.status == "not told":
            return "Compare more rows, or rows without weights."
        if self.status == "same":
            js = self.divergences["js"]
            bound = f" of more than {max(js.high, 0):.2g} nats of JS" if js.verdict == "ok" else ""
            return f"Nothing needs to be done. A difference{bound} would have been seen; a smaller one may be there."
        first = next(iter(self.differences), None)
        look = "" if first is None else f"Look at {first.name} first: {first.told}. "
        if first is not None and not first.differs:
            alone = "" if any(one.differs for one in self.differences) else "No column differs by itself: "
            how = f"ook at how {first.name} goes with {first.partner}"
            look = f"{alone}l{how}. " if alone else f"L{how} first. "
        where = "" if self.images is None else f"The images differ most in the {self.images.region}. "
        return (where if self.images is not None else look) + (
            "" if self.diagnosis is None else CURES[self.diagnosis.verdict]
        )

    def figures(self) -> list[tuple[str, str]]:
        """The few numbers that a screen shows."""
        rows = [
            (name, str(rendered(one, 3)).partition(" (")[0])
            for name, one in (("JS", self.divergences.get("js")), ("FID", self.metrics.get("fid")))
            if one is not None and one.known
        ]
        rows.append(("p-value", "not tested" if math.isnan(self.p_value) else f"{self.p_value:.2g}"))
        return rows

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.figures())
        lines = [f"{self.answer} {self.advice}", figures]
        lines += [f"  {one.name}: {one.told}, p = {one.p_value:.2g}" for one in self.differences if one.differs][:SHOWN]
        return "\n".join(lines)

    def __repr__(self) -> str:
        rows = f"{self.n_p} and {self.n_q} rows" if self.n_p else f"{self.n_q} rows"  # of a file of mu and sigma: none
        known = next((f"{name} {value}" for name, value in self.figures() if name == "FID"), "")
        told = known if math.isnan(self.p_value) else f"p = {self.p_value:.2g}"
        return f"Comparison({rows} of {self.d} features: {' '.join(filter(None, (self.answer, told)))})"

    def _repr_html_(self) -> str:
        from vestige.vestiges.words import brief

        return brief(self)

    def report(self, path: str | Path) -> Path:
        """Write a page (.html) that opens from disk: the answer, what differs, every number."""
        from vestige.vestiges.page import page

        return page(self).save(path)


def compare(
    p: Any,  # noqa: ANN401 - a vestige, or rows: arrays, tables, files, batches, functions
    q: Any,  # noqa: ANN401 - rows
    *,
    q_weights: ArrayLike | None = None,
    estimator: str | Ratio = "auto",
    standardise: bool | None = None,
    level: float = 0.95,
    rows: int = FIT_ROWS,
    pair_rows: int = PAIR_ROWS,
    memory: float | None = None,
    drop: Sequence[str] = (),
    n: int | None = None,
    seed: int = 0,
    names: tuple[str, str] = ("real", "fake"),
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Every divergence and metric of the model's rows `q` (weighted on request) against the data `p`.

    Either side may be an array, a table, the name of a file, a DataLoader, an iterator of batches, or a function that
    draws rows (`vestiges.batches`); two tables are coded together, without the columns of `drop`. `n` are the rows to
    draw of a function (10 000 unless told), and the most to read of an iterator; what was drawn is among the `notes`.

    Of data that is gone `p` is the vestige: the same numbers from what it keeps (`judged`); the p-value is that of its
    drift test, and what was done to bring `q` into the frame of the data is among the `notes`.

    `standardise` scales the features of the metrics by the mean and deviation of `p`; ratios do so by themselves. None
    does so for tables, whose columns have units of their own. A ratio is fitted on at most `rows` rows a side, and
    divergences are averages over at most LOOKED_ROWS of them, drawn at random; metrics that cost pairs of rows see at
    most `pair_rows`. `rows` and `pair_rows` are lowered where `memory` bytes (None: half of what is free) would not do.
    `on_plan` is told the cost before the work begins, `on_step` the name of each part. Of more than 256 features a
    ratio that is not named sees 64 principal components, and divergences are "at least".
    """
    level = checks.number(level, "level", "compare", low=0, high=1, open_low=True, open_high=True)
    pair_rows = checks.whole(pair_rows, "pair_rows", "compare", low=2)
    how: dict[str, Any] = {"drop": drop, "n": n, "seed": seed}
    if is_fid_statistics(p):
        p = FidStatistics.load(p)
    if isinstance(p, KeptPrivately | FidStatistics):
        if q_weights is not None or standardise or drop:
            must = "None, and 'standardise' and 'drop' left out, with a vestige that has means alone"
            checks.refuse("q_weights", "compare", must, "another")
        rows_of_q = opened(q, "q", n=n, seed=seed, owner="compare")
        options: dict[str, Any] = {"estimator": estimator, "level": level, "seed": seed, "names": names}
        answers = p.answers(rows_of_q.rows, rows=rows, on_step=on_step, **options)
        found_of = _of_answers(p.n or 0, answers, rows_of_q, rows, memory, names)
        schema = getattr(p, "schema", None)
        return found_of if schema is None else replace(found_of, columns=schema.report())
    pair: Pair = pair_of(p, q, q_weights, owner="compare", names=names, **how)
    if isinstance(pair, RowPair):
        by_itself = pair.columns is not None and pair.columns.of_table
        pair = replace(pair.without_constants(), standardise=by_itself if standardise is None else standardise)
    elif standardise:
        checks.refuse("standardise", "compare", "False with a vestige, whose features have a scale of their own", True)
    planned = pair.plan(rows=rows, pair_rows=pair_rows, memory=memory, owner="compare")
    on_plan(planned)
    on_step("ratio")
    whole = pair.seen(planned, estimator, seed)
    kept = [some_rows(len(x), LOOKED_ROWS, seed, f"looked at {side}") for x, side in ((whole.p, "p"), (whole.q, "q"))]
    seen = whole.some(*kept)
    how = {"estimator": estimator, "rows": planned.rows, "seed": seed}
    weights: dict[str, Any] = {"p_weights": seen.p_weights, "q_weights": seen.q_weights}
    found = held_out(seen.p, seen.q, **weights, **how)
    reached = reach(seen.p, seen.q, found.log_ratio_p, found.log_ratio_q, **weights, level=level, seed=seed)
    reached = replace(reached, outside_p=kept[0][reached.outside_p], outside_q=kept[1][reached.outside_q])
    divergences = _divergences(found, seen, level, reached)
    warnings = pair.warnings
    if seen.told:
        divergences = {name: _at_least(estimate, seen.told) for name, estimate in divergences.items()}
        warnings += (seen.told,)
    divergences = pair.of_data(divergences)
    noisy = pair.smoothed(seen, seed)
    if noisy is not None:
        again = held_out(noisy.p, noisy.q, **weights, **how)
        blurred = _divergences(again, noisy, level)["js"].but(name="js_smoothed")
        divergences |= pair.of_data({"js_smoothed": blurred})
    figures = {key: found.report["held_out"][key] for key in ("accuracy", "log_loss", "ece")}
    w = seen.q_weights
    log_weights = found.log_ratio_q if w is None else found.log_ratio_q + (w * len(w)).log()
    diagnosis = reachable(cautious(diagnose(log_weights, **figures), seen.told), reached)
    on_step("test")
    tested = pair.tested(seen, rows=planned.rows, seed=seed)
    on_step("columns")
    differences = in_order(tested.columns, tested.p_value)
    untold = pair.shares_untold(found)
    if tested.p_value <= ALPHA and untold:
        warnings += (untold,)
    elif tested.p_value <= ALPHA:
        differences = _with_shares(differences, pair, found, seen, seed)
    metrics, told = pair.metrics(level=level, pair_rows=planned.pair_rows, seed=seed, on_step=on_step)
    warnings += told + found.warnings + _gap_warning(found, divergences["kl"]) + diagnosis.warnings
    images = pair.images()
    words: dict[str, Any] = {"blind": found.blind, "untested": tested.untested, "by_draws": pair.by_draws}
    sentence = conclude(tested.p_value, divergences["js"], diagnosis, *names, **words)
    copied = pair.copies(most=planned.pair_rows, seed=seed)
    repeated = () if copied is None or not copied.rows else (copied.sentence(),)
    named = told_of(tested.p_value, differences, None if images is None else images.region)
    sentence = " ".join([sentence, *named, *reached.sentences(*names), *pair.doubts(reached), *repeated])
    known = divergences, metrics, tested.p_value, diagnosis, found.report, sentence, warnings
    notes = pair.notes if copied is None or not copied.note else (*pair.notes, copied.note)
    beside: dict[str, Any] = {
        **{"notes": notes, "drift": tested.drift, "differences": differences, "by_draws": pair.by_draws},
        **{
            "copies": copied,
            "images": images,
            "typical": Typical.of(found, kept),
            "names": names,
            "columns": pair.columns,
        },
    }
    return Comparison(pair.n_p, pair.n_q, pair.d, *known, planned, reached, **beside)


def _of_answers(
    n_p: int, found: Answers, given: Held, rows: int, memory: float | None, names: tuple[str, str]
) -> Comparison:
    """The comparison that noisy means allow: no diagnosis of weights, and no reach."""
    planned = plan(n_p, found.n_q, found.d, rows=rows, pair_rows=0, memory=memory, owner="compare")
    tested = found.tested
    told = found.conclusion, given.warnings + found.warnings
    known = found.divergences, found.metrics, tested.p_value, None, found.ratio, *told
    beside = given.notes + found.notes, tested.drift, in_order(tested.columns, tested.p_value)
    return Comparison(n_p, found.n_q, found.d, *known, planned, None, *beside, names=names)


def _with_shares(
    columns: tuple[ColumnDifference, ...], pair: Pair, found: HeldOut, seen: Seen, seed: int
) -> tuple[ColumnDifference, ...]:
    """The first columns, at most SHARED_OUT, with their shares of what the ratio found."""
    first = columns[:SHARED_OUT]
    groups = pair.groups([one.name for one in first]) if len(columns) > 1 else None
    if groups is None:
        return columns
    weights: dict[str, Any] = {"p_weights": seen.p_weights, "q_weights": seen.q_weights}
    shares = shares_of_gain(found, seen.p, seen.q, groups, **weights, seed=seed)
    return (*(replace(one, share=share) for one, share in zip(first, shares, strict=True)), *columns[SHARED_OUT:])


def _at_least(estimate: Estimate, told: str) -> Estimate:
    """A divergence of a projection is at most that of the rows."""
    if not estimate.known:
        return estimate
    return estimate.but(verdict="at least", reason="; ".join(filter(None, (told, estimate.reason))))


def _divergences(found: HeldOut, seen: Seen, level: float, reached: Reach | None = None) -> dict[str, Estimate]:
    """The whole family from held-out log-ratios; what they, or what they reach, cannot carry is refused."""
    weights = seen.q_weights, seen.p_weights
    beyond = (0.0, 0.0) if reached is None else reached.shares
    every = learnt(FAMILY, *found.sides(*weights), found.refit(*weights), level=level, out_of_reach=beyond)
    checked = {name: _checked(estimate, found.blind) for name, estimate in every.items()}
    return checked if reached is None else {name: verdict(name, one, reached) for name, one in checked.items()}


def _checked(estimate: Estimate, blind: str | None) -> Estimate:
    """Refuse a value that is smaller than its own error, where that is not small, and one of a ratio that is blind."""
    told = blind or ""
    if not told and estimate.std_error > NOISE_NATS and estimate.std_error > abs(estimate.value):
        told = f"its standard error of {estimate.std_error:.2g} is larger than its value"
    if not (estimate.known and told):
        return estimate
    return estimate.withdrawn(f"The {estimate.name} cannot be estimated from these samples: {told}.")


def _gap_warning(found: HeldOut, kl: Estimate) -> tuple[str, ...]:
    gap = float(found.report["gap"])
    if gap < max(GAP_NATS, GAP_SHARE * (kl.value if kl.known else 0.0)):
        return ()
    return (
        f"The ratio looks {gap:.2g} nats better on rows it was fitted on than on others: the divergences are likely "
        "too small, and their intervals do not know it.",
    )


def conclude(
    p_value: float,
    js: Estimate,
    diagnosis: Diagnosis,
    real: str,
    fake: str,
    *,
    blind: str | None = None,
    untested: str = FEW_BY_WEIGHT,
    by_draws: bool = False,
) -> str:
    """One plain sentence: is there a difference, how large is it, and would weights correct it."""
    accuracy = diagnosis.accuracy if diagnosis.accuracy is not None else 0.5
    if math.isnan(p_value):
        return f"Whether {fake} differs from {real} was not tested: {untested}."
    told_apart = "a classifier tells its rows from reference draws" if by_draws else "a classifier tells {} apart"
    if p_value > ALPHA:
        bound = "" if js.verdict != "ok" else f", and their JS divergence is at most {max(js.high, 0):.2g} nats"
        return (
            f"No difference between {real} and {fake} was found (p = {p_value:.2g}): "
            f"{told_apart.format('their rows')} {accuracy:.1%} of the time{bound}."
        )
    if blind:
        return f"The rows of {fake} differ from those of {real} (p = {p_value:.2g}); how much is not known: {blind}."
    word = next(word for limit, word in WORDS if accuracy < limit)
    size = f", JS {js.value:.2g} [{max(js.low, 0):.2g}, {js.high:.2g}] nats" if js.verdict == "ok" else ""
    size = f", JS at least {max(js.low, 0):.2g} nats" if js.verdict == "at least" else size
    cure = {
        "good": f"weights can correct it, and leave {diagnosis.ess_fraction:.0%} of the rows",
        "usable with care": f"weights can correct it in part (effective share of rows {diagnosis.ess_fraction:.1%})",
        "unreliable": "weights cannot correct it",
        OUT_OF_REACH: "weights correct it on the part of the data that has such rows, and nowhere else",
    }[diagnosis.verdict]
    return (
        f"The rows of {fake} differ {word} from those of {real} (p = {p_value:.2g}): {told_apart.format('them')} "
        f"{accuracy:.1%} of the time{size}; {cure}."
    )
