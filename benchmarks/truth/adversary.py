"""A search for pairs that break a promise: random transformations of zoo pairs whose truth is still known.

A recipe is a pair of the zoo and up to three moves, as in "gauss-shift-d10>rotated:7>copies:2". Every second try adds a
move to a recipe that broke something before, or takes its last one off and another in its place; the others start
afresh. A promise is broken where weights are called good although part of the data is out of reach, and where an "ok"
interval misses the truth by more than FAR of its own width: at a level of 95 % one in twenty misses by chance, but with
a normal error one in ten thousand misses by so much. Every try is stored, and the same seed goes on where it ended.
"""

from __future__ import annotations

import dataclasses
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.truth import cells, results
from benchmarks.truth.cells import Cell, compared, drawn
from benchmarks.truth.figures import every, good_out_of_reach
from benchmarks.truth.results import Row
from benchmarks.zoo import ZOO, truth
from benchmarks.zoo.laws import gaussians
from benchmarks.zoo.pair import Pair, copies, mapped, product, rotated, same, swapped

SOURCE = "adversary"
MOST_COLUMNS, MOST_MOVES = 60, 3
SIZES = (1000, 2000, 4000)
FAR = 0.5


def _scaled(pair: Pair, seed: int) -> Pair:
    scale = 10 ** np.random.default_rng(seed).uniform(-3, 3, pair.d)
    return mapped(pair, lambda x: x * scale, lambda x: x / scale)


def _sheared(pair: Pair, seed: int) -> Pair:
    """The last column moves with the sine of the first."""
    size, speed = np.random.default_rng(seed).uniform(0.5, 3, 2)

    def moved(x: np.ndarray, sign: float) -> np.ndarray:
        out = x.copy()
        out[:, -1] += sign * size * np.sin(speed * x[:, 0])
        return out

    return pair if pair.d < 2 else mapped(pair, lambda x: moved(x, 1.0), lambda x: moved(x, -1.0))


def _irrelevant(pair: Pair, seed: int) -> Pair:
    """One to five columns that are the same on both sides: normal, heavy-tailed or counts."""
    rng = np.random.default_rng(seed)
    draws = (
        lambda n, rng: rng.standard_normal((n, 1)),
        lambda n, rng: rng.standard_t(3, (n, 1)),
        lambda n, rng: rng.poisson(2.0, (n, 1)).astype(float),
    )
    columns = [same(draws[rng.integers(3)], 1) for _ in range(rng.integers(1, 6))]
    return product(pair, *columns)


def _near(pair: Pair, seed: int) -> Pair:
    """A column that is moved by a few hundredths of its deviation."""
    shift = np.random.default_rng(seed).uniform(0.02, 0.1)
    return product(pair, gaussians(np.zeros(1), 1.0, np.array([shift]), 1.0))


MOVES: dict[str, Callable[[Pair, int], Pair]] = {
    "rotated": rotated,
    "swapped": lambda pair, _: swapped(pair),
    "asinh": lambda pair, _: mapped(pair, np.arcsinh, np.sinh),
    "cubed": lambda pair, _: mapped(pair, lambda x: x**3, np.cbrt),
    "scaled": _scaled,
    "sheared": _sheared,
    "irrelevant": _irrelevant,
    "near": _near,
    "copies": lambda pair, _: copies(pair, 2),
}


def made(recipe: str) -> Pair:
    """The pair of a recipe, which knows its truth as the pair of the zoo does."""
    name, *moves = recipe.split(">")
    pair = dataclasses.replace(ZOO[name], exact=ZOO[name].truth)
    for move in moves:
        word, seed = move.split(":")
        pair = MOVES[word](pair, int(seed))
    return pair.named(recipe, ZOO[name].family)


def known(pair: Pair) -> dict[str, float]:
    """The truth: what its parts tell, and JS from draws where they do not."""
    return truth.of(pair)


def broken(row: Row) -> list[str]:
    """The promises that a row breaks, by name of the divergence, or "good"."""
    found = []
    for name in results.NAMES:
        for one in every([row], [name]):
            far = FAR * (one.high - one.low)
            if one.verdict == "ok" and not one.low - far <= one.truth <= one.high + far:
                found.append(name)
    return found + ["good"] * good_out_of_reach([row]).hits


def propose(i: int, seed: int, before: Sequence[Row]) -> Cell:
    """The i-th try, which depends on the rows of those before it."""
    rng = np.random.default_rng(zlib.crc32(f"{SOURCE}/{seed}/{i}".encode()))
    breaking = [row["recipe"] for row in before if broken(row)]
    if breaking and i % 2:
        recipe = breaking[rng.integers(len(breaking))]
        if recipe.count(">") >= MOST_MOVES:
            recipe = recipe.rsplit(">", 1)[0]
        recipe = _moved(recipe, rng)
    else:
        recipe = list(ZOO)[rng.integers(len(ZOO))]
        for _ in range(rng.integers(1, MOST_MOVES + 1)):
            recipe = _moved(recipe, rng)
    n = SIZES[rng.integers(len(SIZES))]
    return Cell(SOURCE, f"{recipe}#{seed}.{i}", ZOO[recipe.split(">")[0]].family, n, n)


def _moved(recipe: str, rng: np.random.Generator) -> str:
    """One more move, unless it would have too many columns."""
    move = f"{list(MOVES)[rng.integers(len(MOVES))]}:{rng.integers(1000)}"
    longer = f"{recipe}>{move}"
    return longer if made(longer).d <= MOST_COLUMNS else recipe


def measure(cell: Cell) -> Row:
    """The row of one try."""
    recipe, place = cell.name.split("#")
    pair = made(recipe)
    row = compared(cell, drawn(cell, pair, known(pair)))
    return row | {"recipe": recipe, "try": int(place.split(".")[1]), "of_seed": int(place.split(".")[0])}


def search(
    total: int,
    edition: str,
    *,
    seed: int = 0,
    folder: Path | None = None,
    measure: Callable[[Cell], Row] = measure,
    version: int | None = None,
) -> int:
    """So many tries in all, of which stored ones are not made again; how many broke a promise."""
    version = cells.version() if version is None else version
    stored = results.read(SOURCE, edition, folder)
    rows = [row for row in stored if row["version"] == version]
    others = [row for row in rows if row["of_seed"] != seed]
    own = {row["try"]: row for row in rows if row["of_seed"] == seed}
    for i in range(total):
        if i in own:
            continue
        cell = propose(i, seed, [own[j] for j in range(i)])
        own[i] = measure(cell)
        results.write([*others, *own.values()], results.path(SOURCE, edition, folder=folder))
        told = ", ".join(broken(own[i])) or "nothing"
        print(f"{i + 1}/{total} {cell.key}: breaks {told}, {own[i]['cpu']:.1f} CPU-s", file=sys.stderr, flush=True)
    return sum(bool(broken(own[i])) for i in range(total))
