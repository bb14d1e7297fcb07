"""Tables that drift: three tables, six drifts of known size, and a classifier that keeps the rows.

Electricity (half hours of a window of six months, another window each time), Covertype (any of its rows) and `mixed`,
orders of a made-up shop with text, dates, booleans and missing values. Rows of a table are exchangeable draws, so that
reference and new rows differ by the drift alone. The drifts, each with a small and a large size:

    shift                one column moves by a share of its scale
    scale                one column is stretched about its median
    broken correlation   a share of the rows has one column of another row
    category shares      the odds of one category, or of a quarter of a number's range, change
    lost modes           a share of one cluster of eight is lost
    three-way            the parity of three columns' signs about their medians changes, and no pair of signs does

`boosting` is what the drift test of a vestige is held against: a classifier that keeps all rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool, Float64, Int
from numpy.typing import NDArray

from vestige import data
from vestige.core import checks

HALF_HOURS_A_MONTH = 1461  # of 30.4 days
WINDOW = 6  # months
CLUSTERS = 8
MANY_VALUES = 20  # a column of more is a number whose range can be cut
Cells = Float64[np.ndarray, "_ c"]


@dataclass(frozen=True)
class DriftingTable:
    """Rows to draw from: cells, NaN where nothing was recorded, and the kind of each column."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: Callable[[np.random.Generator, int], Cells]  # so many of one distribution, exchangeable
    spare: int = 9000  # rows beyond the reference that new ones are drawn from


@functools.cache
def all_rows(name: str) -> Cells:
    """All rows of a data set, in its order."""
    found = data.load(name, progress=False)
    return torch.cat([found.train_x, found.test_x]).double().numpy()


def electricity(months: int = WINDOW) -> DriftingTable:
    """Rows of so many neighbouring months."""
    x = all_rows("electricity")

    def rows(rng: np.random.Generator, count: int) -> Cells:
        long = months * HALF_HOURS_A_MONTH
        start = rng.integers(len(x) - long)
        return x[start + rng.permutation(long)[:count]]

    names = ("period", "nsw_price", "nsw_demand", "vic_price", "vic_demand", "transfer")
    return DriftingTable(names, ("number",) * 6, rows, spare=3600)


def covertype() -> DriftingTable:
    """Ten numbers and 44 columns of 0 and 1."""
    x = all_rows("covtype")
    names = tuple(f"x{i}" for i in range(x.shape[1]))
    kinds = ("number",) * 10 + ("category",) * 44
    return DriftingTable(names, kinds, lambda rng, count: x[rng.permutation(len(x))[:count]])


MIXED = {
    "segment": "category", "day": "number", "country": "category", "age": "number", "income": "number",
    "items": "number", "amount": "number", "channel": "category", "member": "category", "discount": "number",
    "delay": "number", "score": "number",
}  # fmt: skip


def _orders(rng: np.random.Generator, n: int) -> Cells:
    """Text and booleans as codes, dates as days, amounts, counts; missing by reason and by chance."""
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


def mixed() -> DriftingTable:
    """Orders of a shop."""
    return DriftingTable(tuple(MIXED), tuple(MIXED.values()), _orders)


TABLES: dict[str, Callable[[], DriftingTable]] = {"electricity": electricity, "covertype": covertype, "mixed": mixed}


def as_table(name: str, cells: Cells) -> pa.Table:
    """Cells as a user's file has them: of `mixed` text, dates and booleans, and nulls; else numbers."""
    table = TABLES[checks.one_of(name, TABLES, "name", "as_table")]()
    columns = dict(zip(table.names, cells.T, strict=True))
    found = {key: pa.array(column, from_pandas=True) for key, column in columns.items()}
    if name == "mixed":
        for key in ("segment", "country", "channel"):
            found[key] = pa.array([None if np.isnan(code) else f"{key} {int(code)}" for code in columns[key]])
        found["day"] = pa.array(columns["day"].astype("datetime64[D]"))
        found["member"] = pa.array(columns["member"] > 0)
    if name == "covertype":
        for key, kind in zip(table.names, table.kinds, strict=True):
            if kind == "category":
                found[key] = pa.array(columns[key] > 0)
    return pa.table(found)


@dataclass(frozen=True)
class Changeable:
    """What a drift needs to know of a table: columns that it can change, and clusters of rows."""

    numbers: list[int]
    categories: list[int]
    dependent: list[int]  # the numbers that depend on another the most
    clusters: Callable[[Cells], Int[np.ndarray, " n"]]


def changeable(sample: Cells, kinds: Sequence[str], rng: np.random.Generator) -> Changeable:
    """Read off rows of the table."""
    from sklearn.cluster import KMeans

    distinct = [len(np.unique(column[~np.isnan(column)])) for column in sample.T]
    numbers = [j for j, kind in enumerate(kinds) if kind == "number" and distinct[j] > MANY_VALUES]
    categories = [
        j
        for j, kind in enumerate(kinds)
        if kind == "category"
        and np.mean(~np.isnan(sample[:, j])) > 0.5
        and 0.1 < np.mean(sample[:, j] == _mode(sample[:, j])) < 0.9
    ]
    usable = numbers + categories
    centre, scales = np.nanmedian(sample, 0), _scales(sample)

    def standard(x: Cells) -> Cells:
        return np.clip(np.nan_to_num((x - centre) / scales), -4, 4)[:, usable]

    means = KMeans(CLUSTERS, n_init=1, random_state=int(rng.integers(2**31))).fit(standard(sample))
    ranks = _ranks(sample[:, numbers])
    bonds = np.abs(np.corrcoef(ranks.T)) - np.eye(len(numbers))
    dependent = [numbers[i] for i in np.argsort(-bonds.max(0))[: max(3, len(numbers) // 2)]]
    return Changeable(numbers, categories or numbers[:1], dependent, lambda x: means.predict(standard(x)))


def _mode(x: NDArray[np.float64]) -> float:
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    return float(values[counts.argmax()])


def _scales(x: Cells) -> Float64[np.ndarray, " c"]:
    """Half the way from the first to the last tenth, a standard deviation of normal columns."""
    low, high = np.nanquantile(x, [0.1, 0.9], axis=0)
    spread = (high - low) / 2.56
    return np.where(spread > 0, spread, 1.0)


def _ranks(x: Cells) -> Cells:
    filled = np.where(np.isnan(x), np.nanmedian(x, 0), x)
    return (filled.argsort(0).argsort(0) + 0.5) / len(x) * 2 - 1


def shift(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """One column moves by `size` scales."""
    j = rng.choice(of.numbers)
    x = x.copy()
    x[:, j] += size * _scales(x[:, [j]])[0]
    return x


def scale(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """One column is stretched about its median by 1 + `size`."""
    j = rng.choice(of.numbers)
    x = x.copy()
    x[:, j] = np.nanmedian(x[:, j]) + (1 + size) * (x[:, j] - np.nanmedian(x[:, j]))
    return x


def broken(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """A share `size` of the rows has one column of another row."""
    j = rng.choice(of.dependent)
    x = x.copy()
    some = np.flatnonzero(rng.random(len(x)) < size)
    x[some, j] = x[rng.permutation(some), j]
    return x


def _thinned(x: Cells, weights: NDArray[np.float64], rng: np.random.Generator) -> Cells:
    """Rows stay with a chance proportional to their weight: no row twice."""
    return x[rng.random(len(x)) < weights / weights.max()]


def shares(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """The odds of one category (or of a quarter of a number's range) are multiplied by 1 + `size`."""
    j = rng.choice(of.categories)
    column = x[:, j]
    one: Bool[np.ndarray, " n"]
    if len(np.unique(column[~np.isnan(column)])) > MANY_VALUES:
        low = rng.choice([0.0, 0.25, 0.5, 0.75])
        one = (column >= np.nanquantile(column, low)) & (column <= np.nanquantile(column, low + 0.25))
    else:
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        one = column == rng.choice(values[counts >= 0.05 * len(x)])
    return _thinned(x, 1 + size * one, rng)


def modes(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """A share `size` of one cluster is lost."""
    found = of.clusters(x)
    return _thinned(x, 1 - size * (found == rng.choice(np.unique(found))), rng)


def threeway(x: Cells, of: Changeable, rng: np.random.Generator, size: float) -> Cells:
    """Odds by 1 + `size` times what is left of the parity of three signs when single signs and pairs are taken out."""
    chosen = rng.choice(of.numbers, 3, replace=False)
    a, b, c = (np.where(np.nan_to_num(x[:, j] - np.nanmedian(x[:, j])) > 0, 1.0, -1.0) for j in chosen)
    known = np.stack([np.ones(len(x)), a, b, c, a * b, a * c, b * c], 1)
    parity = a * b * c
    rest = parity - known @ np.linalg.lstsq(known, parity, rcond=None)[0]
    return _thinned(x, np.clip(1 + size * rest, 0, None), rng)


Change = Callable[[Cells, Changeable, np.random.Generator, float], Cells]
# What changes, and its two sizes.
DRIFTS: dict[str, tuple[Change, tuple[float, float]]] = {
    "shift": (shift, (0.1, 0.2)),
    "scale": (scale, (0.12, 0.25)),
    "broken correlation": (broken, (0.3, 0.7)),
    "category shares": (shares, (0.3, 0.7)),
    "lost modes": (modes, (0.3, 0.7)),
    "three-way": (threeway, (0.15, 0.3)),
}

# The column that a drift of one column will change, read off a copy of the generator that it will be given.
CHANGED: dict[str, Callable[[Changeable, np.random.Generator], int]] = {
    "shift": lambda of, rng: int(rng.choice(of.numbers)),
    "scale": lambda of, rng: int(rng.choice(of.numbers)),
    "broken correlation": lambda of, rng: int(rng.choice(of.dependent)),
    "category shares": lambda of, rng: int(rng.choice(of.categories)),
}


def boosting(p: Cells, q: Cells, kinds: Sequence[str], seed: int) -> float:
    """p-value of a classifier that keeps the rows: boosting on halves of both sides, ranks of the other halves.

    The one-sided Mann-Whitney test of rows that it has not seen has its level without any permutation.
    """
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
    new, old = (np.asarray(model.decision_function(side), dtype=np.float64) for side in (q[half_q:], p[half_p:]))
    return float(mannwhitneyu(new, old, alternative="greater").pvalue)
