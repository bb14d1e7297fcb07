"""What is measured: cells, the plan of them, and the rows that come out of one.

A cell is a pair of distributions with known divergences, two sample sizes, and whether q is drawn from a known tilt of
it and weighted back. It gives one row; a drift, which is a chain of six steps, gives six. Samples and seeds follow from
the name of the cell alone.
"""

from __future__ import annotations

import importlib
import math
import re
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from unittest import mock

import numpy as np

from benchmarks import mi
from benchmarks.truth.results import COLUMNS, NAMES, Row, rounded
from benchmarks.zoo import ZOO
from benchmarks.zoo.drifts import DRIFTS, STEPS, Drift
from benchmarks.zoo.pair import Pair

# Divergences as Vestige and as the zoo call them.
IN_ZOO = {"kl": "kl", "reverse_kl": "reverse_kl", "js": "js", "hellinger2": "hellinger"}
# A module with PAIRS and DRIFTS, written after everything else is frozen.
# Sets that were written without a look at the estimator, each after everything before it had been run.
BLIND = {"unseen": "benchmarks.zoo.unseen", "second": "benchmarks.zoo.second"}
DRIFT_ROWS = 2000
TASK = "data"

# CPU seconds on one thread of a cell of a size that has no stored results: a bound, not a mean. It is above the 10
# seconds that 6000 rows a side and 10 columns may take, and above the median of every size of the edition "before".
SECONDS_COMPARE, SECONDS_THOUSAND, SECONDS_STEP = 1.0, 1.0, 3.0
MOST_HOURS = 4.0


class Drawn(Protocol):
    """What a cell needs of a pair."""

    def draw_p(self, n: int, rng: np.random.Generator) -> np.ndarray: ...
    def draw_q(self, n: int, rng: np.random.Generator) -> np.ndarray: ...


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    source: str
    name: str
    family: str
    n_p: int
    n_q: int
    weighted: bool = False

    @property
    def key(self) -> str:
        """What it is called among the results of its source."""
        return f"{self.name}|{self.n_p}x{self.n_q}" + ("|weighted" if self.weighted else "")

    @property
    def seed(self) -> int:
        return zlib.crc32(f"{self.source}/{self.key}".encode()) % 2**31

    @property
    def seconds(self) -> float:
        """CPU seconds that it is expected to take."""
        if drift_of(self) is not None:
            return STEPS * SECONDS_STEP
        return SECONDS_COMPARE + SECONDS_THOUSAND * (self.n_p + self.n_q) / 1000


# The plan -----------------------------------------------------------------------------------------------------


def plan(edition: str = "after") -> list[Cell]:
    """Every cell. Of the code before the change the two smaller sizes of the zoo, the drifts and benchmark-mi."""
    cells = [*_zoo(edition), *(Cell("drift", one.name, one.family, DRIFT_ROWS, DRIFT_ROWS) for one in DRIFTS.values())]
    cells += [Cell("mi", task, "benchmark-mi", mi.ROWS, mi.ROWS) for task in mi.tasks()]
    return cells if edition == "before" else [*cells, *(cell for source in BLIND for cell in _unseen(source))]


def _zoo(edition: str) -> Iterator[Cell]:
    for i, pair in enumerate(ZOO.values()):
        sizes: list[tuple[int, int, bool]] = [(2000, 2000, False), (500, 500, False)]
        if edition != "before":
            sizes += [(8000, 8000, False)] * (i % 3 == 0)
            sizes += [(20_000, 20_000, False)] * (i % 13 == 1 and i < 12 * 13)
            sizes += [(1000, 6000, False)] * (i % 6 == 2)
            sizes += [(3000, 3000, True)] * (i % 6 == 5)
        for n_p, n_q, weighted in sizes:
            yield Cell("zoo", pair.name, pair.family, n_p, n_q, weighted)


@cache
def unseen(source: str) -> tuple[dict[str, Pair], dict[str, Drift]]:
    """Pairs and drifts of a set that was written without a look at the estimator."""
    module = importlib.import_module(BLIND[source])
    return module.PAIRS, module.DRIFTS


def _unseen(source: str) -> list[Cell]:
    pairs, drifts = unseen(source)
    cells = [Cell(source, one.name, one.family, n, n) for n in (1000, 4000) for one in pairs.values()]
    return cells + [Cell(source, one.name, one.family, DRIFT_ROWS, DRIFT_ROWS) for one in drifts.values()]


def drift_of(cell: Cell) -> Drift | None:
    """The drift that the cell's chain follows; None where it is one comparison."""
    if cell.source == "drift":
        return DRIFTS[cell.name]
    return unseen(cell.source)[1].get(cell.name) if cell.source in BLIND else None


# Samples ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """Rows of both sides, weights of those of q, and what is true of the pair."""

    p: np.ndarray
    q: np.ndarray
    q_weights: np.ndarray | None
    truth: dict[str, float]


def samples(cell: Cell) -> Samples:
    """Those of a cell that is one comparison."""
    if cell.source == "mi":
        p, q, kl = mi.pair(cell.name)
        return Samples(p, q, None, {"kl": kl})
    pair = (unseen(cell.source)[0] if cell.source in BLIND else ZOO)[cell.name]
    return drawn(cell, pair, pair.truth())


def drawn(cell: Cell, pair: Drawn, truth: dict[str, float]) -> Samples:
    """As many rows of the pair as the cell says."""
    rng = np.random.default_rng(cell.seed)
    p = pair.draw_p(cell.n_p, rng)
    if not cell.weighted:
        return Samples(p, pair.draw_q(cell.n_q, rng), None, truth)
    return Samples(p, *tilted(pair, cell.n_q, rng), truth)


def tilted(pair: Drawn, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n rows of a tilt of q, and the weights that undo it.

    A row of q is kept with probability 1/4 + 3/4 sigmoid(z), where z is its first column about its median in units of
    its quartiles, both from rows of q that are drawn for nothing else; its weight is one over that probability.
    """
    first = pair.draw_q(1000, rng)[:, 0]
    low, middle, high = np.quantile(first, [0.25, 0.5, 0.75])
    scale = (high - low) / 1.35 or float(first.std()) or 1.0
    rows, weights = [], []
    while sum(map(len, rows)) < n:
        q = pair.draw_q(2 * n, rng)
        z = np.clip((q[:, 0] - middle) / scale, -30, 30)
        keep = 0.25 + 0.75 / (1 + np.exp(-2 * z))
        kept = rng.random(len(q)) < keep
        rows.append(q[kept])
        weights.append(1 / keep[kept])
    return np.concatenate(rows)[:n], np.concatenate(weights)[:n]


# Measurement --------------------------------------------------------------------------------------------------


def version() -> int:
    """Of the code whose results these are: results of another one are not finished."""
    from vestige.ratios import Stack

    return int(Stack.version)


def rule() -> int:
    """The version of what makes intervals of these results; those of another can be judged again (`judge`)."""
    from vestige.ratios.divergences.learnt import VERSION

    return int(VERSION)


def measure(cell: Cell) -> list[Row]:
    """The rows of the cell."""
    drift = drift_of(cell)
    return [compared(cell, samples(cell))] if drift is None else _chained(cell, drift)


def compared(cell: Cell, known: Samples) -> Row:
    """One comparison, its divergences and the verdict on its weights."""
    import vestige as vs

    began = time.process_time()
    with _quiet(), _overheard() as heard:
        try:
            found: Any = vs.compare(known.p, known.q, q_weights=known.q_weights, pair_rows=200, seed=cell.seed)
        except vs.errors.VestigeError as error:
            return _row(cell, known.truth, {}, began, error=str(error))
    cpu = time.process_time() - began
    row = _row(cell, known.truth, found.divergences, began, heard=heard, weights=found.diagnosis.verdict, cpu=cpu)
    beyond = {name: e.details["beyond"] for name, e in found.divergences.items() if "beyond" in e.details}
    kept = {name: rounded(beyond.get(name, 0.0)) for name in NAMES}
    return row | {"d": known.p.shape[1], "reach": _reach(found), "beyond": kept}


def _chained(cell: Cell, drift: Drift) -> list[Row]:
    """A chain that sees p at its first step alone, and each step's model."""
    import vestige as vs

    rng, chain, rows = np.random.default_rng(cell.seed), vs.Chain(), []
    real = drift.draw_p(cell.n_p, rng)
    for t in range(1, STEPS + 1):
        seen = {"real": {TASK: real}} if t == 1 else {}
        began = time.process_time()
        with _quiet():
            report = chain.step(**seen, model={TASK: drift.draw_q(t, cell.n_q, rng)}, seed=cell.seed)
        rows.append(_row(cell, drift.truth(t), report.tasks[0].estimates, began, step=t) | {"d": drift.d})
    return rows


def _row(
    cell: Cell,
    truth: dict[str, float],
    estimates: Any,
    began: float,
    *,
    heard: Sequence[Any] = (),
    step: int = 0,
    weights: str | None = None,
    error: str = "",
    cpu: float | None = None,
) -> Row:
    row: Row = {
        "cell": cell.key,
        "name": cell.name,
        "family": cell.family,
        "n_p": cell.n_p,
        "n_q": cell.n_q,
        "weighted": cell.weighted,
        "step": step,
        "seed": cell.seed,
        "version": version(),
        "rule": rule(),
        "cpu": rounded(time.process_time() - began if cpu is None else cpu),
        "weights": weights,
        "reach_p": rounded(truth.get("reach_p", math.nan)),
        "reach_q": rounded(truth.get("reach_q", math.nan)),
    }
    for name in NAMES:
        known = truth.get(IN_ZOO[name], math.nan)
        row[name] = _numbers(name, known, estimates[name], heard) if name in estimates else _none(known, error)
    return row


def _none(truth: float, error: str) -> list[Any]:
    blank = dict.fromkeys(COLUMNS) | {"truth": rounded(truth), "verdict": "refused", "reason": _short(error)}
    return [blank[column] for column in COLUMNS]


def _numbers(name: str, truth: float, found: Any, heard: Sequence[Any]) -> list[Any]:
    """What is stored of one divergence, in the order of COLUMNS."""
    details = {key: found.details.get(key, math.nan) for key in ("two_sided", "one_step", "movement")}
    if math.isnan(details["two_sided"]):
        details["two_sided"] = before_refusal(name, found, heard)
    stored = {"truth": truth, "value": found.value, "low": found.low, "high": found.high}
    stored |= {"std_error": found.std_error, **details}
    words = {"verdict": found.verdict, "reason": _short(found.reason)}
    return [rounded(stored[column]) if column in stored else words[column] for column in COLUMNS]


def before_refusal(name: str, found: Any, heard: Sequence[Any]) -> float:
    """The two-sided value, refused or not: of the estimate, else from the log-ratios that `compare` fitted."""
    if not heard:
        return float(found.value)
    from vestige.ratios.divergences import estimate

    ratio, weights = heard[-1]
    options: dict[str, Any] = {"max_k": math.inf, "min_ess": 0.0, "on_refusal": "nan"}
    return float(estimate(name, ratio.log_ratio_q, ratio.log_ratio_p, q_weights=weights, **options).value)


@contextmanager
def _overheard() -> Iterator[list[Any]]:
    """The held-out log-ratios that `compare` fits while this lasts, and the weights of q."""
    two_sets = importlib.import_module("vestige.vestiges.two_sets")
    fit, heard = two_sets.held_out, []

    def held_out(*args: Any, **kwargs: Any) -> Any:
        found = fit(*args, **kwargs)
        heard.append((found, kwargs.get("q_weights")))
        return found

    with mock.patch.object(two_sets, "held_out", held_out):
        yield heard


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reach(found: Any) -> dict[str, list[Any]] | None:
    """Shares out of reach with their intervals: of the data, and of the model."""
    reach = getattr(found, "reach", None)
    shares = {name: getattr(reach, name, None) for name in ("missed", "made")}
    kept = {name: [rounded(e.value), rounded(e.low), rounded(e.high)] for name, e in shares.items() if e is not None}
    return kept or None


def _short(reason: str) -> str:
    """The reason without its numbers, so that equal ones are equal."""
    return re.sub(r"-?\d[\d.]*(e-?\d+)?", "#", reason)[:100]
