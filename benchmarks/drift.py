"""`python -m benchmarks drift`: level and power of the drift test that keeps no rows, from stored results.

Level: references and new rows are disjoint draws of one table, so there is no difference; references are redrawn, and
each meets new samples of several sizes. Power: new rows are changed by one of six drifts of two sizes, and the test
stands against a boosting classifier that keeps the rows: it is trained on one half of both samples and its scores of
the other half are ranked (one-sided Mann-Whitney test, 5 %), which needs no permutation to have its level.

    python -m benchmarks drift                     # tables of what is stored
    python -m benchmarks drift --markdown
    python -m benchmarks drift --run level --only mixed

Results are kept in benchmarks/results/drift, one file a part and table, and a run goes on where the last one stopped.
No setting was chosen by power on these tables. Two parts of the null were added after levels of earlier runs on the
heavy-tailed table: sums drawn from a small pool are narrowed, and the smallest p is judged by tables of other draws.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import ONE_THREAD, ROOT

FOLDER = ROOT / "benchmarks" / "results" / "drift"
VERSION = 1  # of the test: results of an older one are measured again
DATA = Path(os.environ.get("VESTIGE_DATA", Path.home() / ".cache" / "vestige"))
ALPHA = 0.05
REFERENCES, TESTS = 50, 42
POWER_REFERENCES, POWER_N = 16, 5000
POWER_SIZES = (500, 2000)
HALF_HOURS_A_MONTH = 1461  # of 30.4 days
WINDOW = 6  # months of Electricity that a reference and its new rows are drawn from, for power
Cells = np.ndarray
Draw = Callable[[np.random.Generator, int], Cells]


class Table(NamedTuple):
    """Rows to draw from, or a law of rows."""

    kinds: tuple[str, ...]
    rows: Callable[[np.random.Generator, int], Cells]  # `count` rows of one distribution, exchangeable


def _of(rows: Cells, kinds: Sequence[str]) -> Table:
    return Table(tuple(kinds), lambda rng, count: rows[rng.permutation(len(rows))[:count]])


@functools.cache
def _electricity() -> Cells:
    return np.load(DATA / "electricity.npz")["x"].astype(float)


def electricity(months: int) -> Table:
    """Rows of so many neighbouring months, another window each time."""
    x = _electricity()

    def rows(rng: np.random.Generator, count: int) -> Cells:
        long = months * HALF_HOURS_A_MONTH
        start = rng.integers(len(x) - long)
        return x[start + rng.permutation(long)[:count]]

    return Table(("number",) * x.shape[1], rows)


@functools.cache
def covertype() -> Table:
    x = np.load(DATA / "covtype.npz")["x"].astype(float)
    return _of(x, ["number"] * 10 + ["category"] * 44)


@functools.cache
def mnist(width: int) -> Table:
    x = np.load(DATA / "mnist.npz")["train_x"].reshape(60000, -1).astype(np.float32) / 255
    x = x - x.mean(0)
    _, vectors = np.linalg.eigh(x.T @ x)
    return _of((x @ vectors[:, ::-1][:, :width]).astype(float), ["number"] * width)


def _mixed_rows(rng: np.random.Generator, n: int) -> Cells:
    """Orders of a shop: text and booleans as codes, dates as days, amounts, counts; missing by reason and by chance."""
    segment = rng.choice(4, n, p=[0.45, 0.3, 0.15, 0.1])
    day = np.floor(365 * rng.beta(1 + segment / 2, 1.5)) + rng.choice(7, n)
    country = np.minimum(rng.geometric(0.25 + 0.1 * (segment == 2), n) - 1, 14)
    age = np.clip(rng.normal(35 + 8 * segment, 11), 16, 95).round()
    income = np.exp(rng.normal(7.4 + 0.01 * age + 0.2 * (segment == 1), 0.5))
    items = 1 + rng.poisson(1 + segment + 1.5 * (day % 7 >= 5))
    amount = items * np.exp(rng.normal(2 + 0.3 * np.log(income / 2500), 0.7))
    channel = np.where(rng.random(n) < 1 / (1 + np.exp((age - 45) / 8)), 0, rng.choice([1, 2], n)).astype(float)
    member = (rng.random(n) < 0.2 + 0.15 * segment).astype(float)
    discount = np.where(rng.random(n) < 0.7 - 0.3 * member, 0.0, rng.choice([5.0, 10.0, 20.0, 30.0], n))
    delay = rng.gamma(1.5, 1 + 2.0 * (channel == 2))
    score = np.tanh(rng.standard_t(3, n) / 3 + 0.2 * segment)
    income = np.where(rng.random(n) < 0.1 + 0.2 * (channel == 0), np.nan, income)
    delay = np.where(channel == 1, np.nan, delay)
    country = np.where(rng.random(n) < 0.03, np.nan, country)
    return np.stack([segment, day, country, age, income, items, amount, channel, member, discount, delay, score], 1)


MIXED = Table(
    ("category", "number", "category", *["number"] * 4, "category", "category", *["number"] * 3),
    _mixed_rows,
)


def _heavy_rows(rng: np.random.Generator, n: int) -> Cells:
    """Columns without a variance, and skewed ones, that depend on each other."""
    common = rng.normal(size=n)
    t2, cauchy = rng.standard_t(2, n) + common, rng.standard_cauchy(n)
    lognormal, pareto = np.exp(2 * common + rng.normal(size=n)), rng.pareto(1.2, n)
    burst = np.where(rng.random(n) < 0.02, 1e4 * rng.random(n), rng.normal(size=n))
    return np.stack([t2, cauchy, lognormal, pareto, burst, cauchy * common], 1)


def _integer_rows(rng: np.random.Generator, n: int) -> Cells:
    """Counts: small, large, with many zeros, dice and a code of two values."""
    rate = rng.gamma(2, 1, n)
    few, many = rng.poisson(rate), rng.poisson(300 * rate)
    zeros = np.where(rng.random(n) < 0.9, 0, rng.poisson(40, n))
    dice, steps = rng.integers(1, 7, n), rng.negative_binomial(1, 0.02, n)
    return np.stack([few, many, zeros, dice, steps, (rate + rng.normal(size=n) > 2)], 1).astype(float)


TABLES: dict[str, Callable[[], Table]] = {
    "electricity": lambda: electricity(WINDOW),
    "electricity month": lambda: electricity(1),
    "covertype": covertype,
    "mixed": lambda: MIXED,
    "heavy": lambda: Table(("number",) * 6, _heavy_rows),
    "integers": lambda: Table(("number",) * 6, _integer_rows),
    "mnist 16": lambda: mnist(16),
    "mnist 64": lambda: mnist(64),
}
# Rows of the reference, and sizes of new samples, when levels are measured.
ALL_SIZES = (40, 150, 500, 40, 150, 500, 2000)
LEVEL_SIZES = {
    "electricity": (5000, ALL_SIZES),
    "electricity month": (900, (40, 100, 250)),
    "covertype": (5000, ALL_SIZES),
    "mixed": (3000, ALL_SIZES),
    "heavy": (2000, ALL_SIZES),
    "integers": (2000, ALL_SIZES),
    "mnist 16": (2000, ALL_SIZES),
    "mnist 64": (5000, ALL_SIZES),
    "small": (120, (40, 150, 500)),
    "updated": (2000, ALL_SIZES),
}
# The mixed table once more: with few rows, and with rows that are added to a reference later.
MIXED_TOO, ADDED = ("small", "updated"), 6000
AR_TABLES = {"autocorrelated, block 40": 40, "autocorrelated, no block": 1}
AR = 0.8
AR_ROWS, AR_SIZES = 6000, (600, 1500, 4000)


def _walk(rng: np.random.Generator, n: int) -> Cells:
    """Four columns of AR(1) rows in time order, stationary from the first."""
    steps = rng.normal(size=(n, 4)) @ (np.eye(4) + 0.5 * np.eye(4, k=1)) * math.sqrt(1 - AR**2)
    x = np.empty_like(steps)
    x[0] = steps[0] / math.sqrt(1 - AR**2)
    for t in range(1, n):
        x[t] = AR * x[t - 1] + steps[t]
    return x


# ---- drifts: rows of the same table in, changed rows out


class Bed(NamedTuple):
    """What a drift needs to know of its table: columns it can change, and clusters of rows."""

    numbers: list[int]
    categories: list[int]
    clusters: Callable[[Cells], np.ndarray]
    dependent: list[int]


def bed(sample: Cells, kinds: Sequence[str], rng: np.random.Generator) -> Bed:
    from sklearn.cluster import KMeans

    distinct = [len(np.unique(column[~np.isnan(column)])) for column in sample.T]
    numbers = [j for j, kind in enumerate(kinds) if kind == "number" and distinct[j] > 20]
    share = [np.nanmean(column == column) for column in sample.T]
    categories = [
        j
        for j, kind in enumerate(kinds)
        if kind == "category" and share[j] > 0.5 and 0.1 < np.mean(sample[:, j] == _mode(sample[:, j])) < 0.9
    ]
    usable = numbers + categories
    centre, scale = np.nanmedian(sample, 0), _scale(sample)

    def standard(x: Cells) -> Cells:
        return np.clip(np.nan_to_num((x - centre) / scale), -4, 4)[:, usable]

    means = KMeans(8, n_init=1, random_state=int(rng.integers(2**31))).fit(standard(sample))
    ranks = _ranks(sample[:, numbers])
    bonds = np.abs(np.corrcoef(ranks.T)) - np.eye(len(numbers))
    dependent = [numbers[i] for i in np.argsort(-bonds.max(0))[: max(3, len(numbers) // 2)]]
    return Bed(numbers, categories or numbers[:1], lambda x: means.predict(standard(x)), dependent)


def _mode(x: np.ndarray) -> float:
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    return float(values[counts.argmax()])


def _scale(x: Cells) -> np.ndarray:
    low, high = np.nanquantile(x, [0.1, 0.9], axis=0)
    spread = (high - low) / 2.56
    return np.where(spread > 0, spread, 1.0)


def _ranks(x: Cells) -> Cells:
    filled = np.where(np.isnan(x), np.nanmedian(x, 0), x)
    return (filled.argsort(0).argsort(0) + 0.5) / len(x) * 2 - 1


def shift(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """One column moves by `size` scales."""
    j = rng.choice(b.numbers)
    x = x.copy()
    x[:, j] += size * _scale(x[:, [j]])[0]
    return x


def scale(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """One column is stretched about its median."""
    j = rng.choice(b.numbers)
    x = x.copy()
    x[:, j] = np.nanmedian(x[:, j]) + (1 + size) * (x[:, j] - np.nanmedian(x[:, j]))
    return x


def broken(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """A share of the rows has one column of another row."""
    j = rng.choice(b.dependent)
    x = x.copy()
    some = np.flatnonzero(rng.random(len(x)) < size)
    x[some, j] = x[rng.permutation(some), j]
    return x


def _resampled(x: Cells, weights: np.ndarray, rng: np.random.Generator) -> Cells:
    """Rows kept with a chance proportional to their weight: no row twice."""
    return x[rng.random(len(x)) < weights / weights.max()]


def shares(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """The odds of one category (or of a quarter of a number's range) are multiplied by 1 + `size`."""
    j = rng.choice(b.categories)
    column = x[:, j]
    if len(np.unique(column[~np.isnan(column)])) > 20:
        low = rng.choice([0.0, 0.25, 0.5, 0.75])
        one = (column >= np.nanquantile(column, low)) & (column <= np.nanquantile(column, low + 0.25))
    else:
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        one = column == rng.choice(values[counts >= 0.05 * len(x)])
    return _resampled(x, 1 + size * one, rng)


def modes(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """A share of one cluster of eight is lost."""
    found = b.clusters(x)
    return _resampled(x, 1 - size * (found == rng.choice(np.unique(found))), rng)


def threeway(x: Cells, b: Bed, rng: np.random.Generator, size: float) -> Cells:
    """The parity of three columns' signs about their medians changes, and no pair of signs does."""
    chosen = rng.choice(b.numbers, 3, replace=False)
    a, c, d = (np.where(np.nan_to_num(x[:, j] - np.nanmedian(x[:, j])) > 0, 1.0, -1.0) for j in chosen)
    known = np.stack([np.ones(len(x)), a, c, d, a * c, a * d, c * d], 1)
    parity = a * c * d
    rest = parity - known @ np.linalg.lstsq(known, parity, rcond=None)[0]
    return _resampled(x, np.clip(1 + size * rest, 0, None), rng)


DRIFTS: dict[str, tuple[Callable[..., Cells], tuple[float, float]]] = {
    "shift": (shift, (0.1, 0.2)),
    "scale": (scale, (0.12, 0.25)),
    "broken correlation": (broken, (0.3, 0.7)),
    "category shares": (shares, (0.3, 0.7)),
    "lost modes": (modes, (0.3, 0.7)),
    "three-way": (threeway, (0.15, 0.3)),
}


def boosting(p: Cells, q: Cells, kinds: Sequence[str], seed: int) -> float:
    """p-value of a classifier that keeps the rows: trained on halves, ranks of the other halves."""
    from scipy.stats import mannwhitneyu
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(seed)
    p, q = p[rng.permutation(len(p))], q[rng.permutation(len(q))]
    half_p, half_q = len(p) // 2, len(q) // 2
    x = np.concatenate([p[:half_p], q[:half_q]])
    y = np.repeat([0, 1], [half_p, half_q])
    model = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.08, max_leaf_nodes=12, min_samples_leaf=15, early_stopping=False,
        categorical_features=[kind == "category" for kind in kinds], class_weight="balanced", random_state=seed,
    ).fit(x, y)  # fmt: skip
    scores = [model.decision_function(side) for side in (q[half_q:], p[half_p:])]
    return float(mannwhitneyu(*scores, alternative="greater").pvalue)


# ---- runs


def _drift_test(p: Cells, kinds: Sequence[str], seed: int, block: int = 1):
    import torch

    from vestige.vestiges.drift_test import DriftTest

    return DriftTest.of(torch.as_tensor(p), tuple(kinds), block=block, seed=seed)


def _tested(test, rows: Cells) -> dict[str, float]:
    import torch

    found = test.test(torch.as_tensor(rows))
    return {"p": found.p_value} | found.families


def level_cell(name: str, reference: int) -> list[dict[str, Any]]:
    """Tests of one reference of a table."""
    import torch

    rng = np.random.default_rng([7, reference, sum(name.encode())])
    if name in AR_TABLES:
        test = _drift_test(_walk(rng, AR_ROWS), ("number",) * 4, reference, AR_TABLES[name])
        sizes = list(itertools.islice(itertools.cycle(AR_SIZES), TESTS))
        return [{"m": m} | _tested(test, _walk(rng, m)) for m in sizes]
    table = TABLES["mixed" if name in MIXED_TOO else name]()
    n, sizes = LEVEL_SIZES[name]
    drawn = table.rows(rng, n + 12 * max(sizes))
    test = _drift_test(drawn[:n], table.kinds, reference)
    if name == "updated":
        test = test.updated(torch.as_tensor(table.rows(rng, ADDED)))
    rest = drawn[n:]
    return [
        {"m": m} | _tested(test, rest[rng.permutation(len(rest))[:m]])
        for m in itertools.islice(itertools.cycle(sizes), TESTS)
    ]


def power_cell(name: str, reference: int, *, rival: bool = True) -> list[dict[str, Any]]:
    """Every drift of both sizes at both numbers of new rows, against one reference."""
    rng = np.random.default_rng([11, reference, sum(name.encode())])
    table, rows = TABLES[name](), []
    drawn = table.rows(rng, POWER_N + 3600 if name == "electricity" else POWER_N + 9000)
    p, rest = drawn[:POWER_N], drawn[POWER_N:]
    test, b = _drift_test(p, table.kinds, reference), bed(p, table.kinds, rng)
    for m, (drift, (change, strengths)) in itertools.product(POWER_SIZES, DRIFTS.items()):
        for size in strengths:
            q = change(rest[rng.permutation(len(rest))], b, rng, size)[:m]
            row = {"m": m, "drift": drift, "size": size, "rows": len(q)} | _tested(test, q)
            rows.append(row | ({"boosting": boosting(p, q, table.kinds, reference)} if rival else {}))
    return rows


PARTS: dict[str, tuple[Callable[..., list[dict[str, Any]]], tuple[str, ...], int]] = {
    "level": (level_cell, (*LEVEL_SIZES, *AR_TABLES), REFERENCES),
    "power": (power_cell, ("electricity", "mixed", "covertype"), POWER_REFERENCES),
}


def _file(part: str, name: str) -> Path:
    return FOLDER / f"{part}-{name.replace(', ', '-').replace(' ', '-')}.json"


def stored(part: str, name: str) -> dict[str, list[dict[str, Any]]]:
    """Finished references of this version, by number."""
    file = _file(part, name)
    found = json.loads(file.read_text()) if file.exists() else {}
    return found["cells"] if found.get("version") == VERSION else {}


def run(part: str, name: str, references: int) -> None:
    """Measure what is missing."""
    from vestige.store.objects import write_bytes

    cell, _, _ = PARTS[part]
    done = stored(part, name)
    for reference in range(references):
        if str(reference) in done:
            continue
        start = time.process_time()
        found = cell(name, reference)
        done[str(reference)] = [{k: _short(v) for k, v in row.items()} for row in found]
        lines = ",\n".join(f'"{k}":{json.dumps(v, separators=(",", ":"))}' for k, v in done.items())
        write_bytes(_file(part, name), f'{{"version":{VERSION},"cells":{{\n{lines}\n}}}}\n'.encode())
        print(f"{part} {name} {reference}: {time.process_time() - start:.1f} s", file=sys.stderr, flush=True)


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---- tables


def _mean(values: Iterable[bool]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def level_rows() -> list[list[str]]:
    """A table a row: tests, references, shares of p below 5 %, 1 % and .1 %, and the standard error of the first."""
    rows = []
    for name in PARTS["level"][1]:
        cells = stored("level", name)
        if not cells:
            continue
        tests = [row for cell in cells.values() for row in cell]
        shares = [_mean(row["p"] <= alpha for row in tests) for alpha in (0.05, 0.01, 0.001)]
        each = [_mean(row["p"] <= ALPHA for row in cell) for cell in cells.values()]
        error = float(np.std(each)) / math.sqrt(len(each))
        sizes = sorted({row["m"] for row in tests})
        by_size = ", ".join(f"{_mean(r['p'] <= ALPHA for r in tests if r['m'] == m):.3f}" for m in sizes)
        rows.append(
            [name, str(len(cells)), str(len(tests)), f"{shares[0]:.3f} ± {error:.3f}", f"{shares[1]:.4f}",
             f"{shares[2]:.4f}", f"{by_size} ({', '.join(map(str, sizes))})"]
        )  # fmt: skip
    return rows


def power_rows() -> list[list[str]]:
    """A table, size and drift a row: ours and the classifier's share below 5 %, mean over both strengths."""
    rows = []
    for name, m in itertools.product(PARTS["power"][1], POWER_SIZES):
        tests = [row for cell in stored("power", name).values() for row in cell if row["m"] == m]
        if not tests:
            continue
        mean = []
        for drift in DRIFTS:
            mine = [row for row in tests if row["drift"] == drift]
            pair = [_mean(row[who] <= ALPHA for row in mine) for who in ("p", "boosting")]
            mean.append(pair)
            rows.append([name, str(m), drift, f"{pair[0]:.2f}", f"{pair[1]:.2f}", str(len(mine))])
        ours, theirs = np.mean(mean, 0)
        rows.append([name, str(m), "mean", f"{ours:.3f}", f"{theirs:.3f}", str(len(tests))])
    return rows


HEADS = {
    "level": ("table", "references", "tests", "level at 5 %", "at 1 %", "at .1 %", "at 5 % by new rows"),
    "power": ("table", "new rows", "drift", "without rows", "boosting with rows", "tests"),
}


def _print(markdown: bool) -> None:
    for part, rows in (("level", level_rows()), ("power", power_rows())):
        if markdown:
            print("| " + " | ".join(HEADS[part]) + " |\n" + "|---" * len(HEADS[part]) + "|")
            print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
            continue
        from rich.console import Console
        from rich.table import Table as Printed

        table = Printed(*HEADS[part], title=part)
        for row in rows:
            table.add_row(*row)
        Console(width=160).print(table)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks drift", description=__doc__)
    parser.add_argument("--run", choices=PARTS, help="measure what is missing of this part")
    parser.add_argument("--only", action="append", help="this table alone; may be repeated")
    parser.add_argument("--references", type=int, help="how many references a table")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments = parser.parse_args(given)
    os.environ.update(ONE_THREAD)  # for what is imported from here on
    if not arguments.run:
        _print(arguments.markdown)
        return 0
    _, names, references = PARTS[arguments.run]
    for name in arguments.only or names:
        run(arguments.run, name, arguments.references or references)
    return 0


if __name__ == "__main__":
    sys.exit(main())
