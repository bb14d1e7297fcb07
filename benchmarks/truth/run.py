"""Measure what is missing, cell by cell, and store each before the next begins."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.truth import cells, results
from benchmarks.truth.cells import Cell
from benchmarks.truth.results import Row

Shard = tuple[int, int]


def missing(
    wanted: Sequence[Cell], edition: str, version: int, folder: Path | None = None, rule: int | None = None
) -> list[Cell]:
    """Those of the wanted cells that this version of the code has not measured, or another rule has judged."""
    sources = {cell.source for cell in wanted}
    done = {source: results.finished(results.read(source, edition, folder), version, rule) for source in sources}
    return [cell for cell in wanted if cell.key not in done[cell.source]]


def share(wanted: Sequence[Cell], shard: Shard | None) -> list[Cell]:
    """Every N-th of the cells, from the K-th on."""
    return list(wanted) if shard is None else list(wanted)[shard[0] - 1 :: shard[1]]


def seconds(cell: Cell, rows: Sequence[Row]) -> float:
    """CPU seconds that a cell will take: the mean of stored cells of its size, else what `cells` says."""
    spent: dict[str, float] = {}
    for row in rows:
        if (row["n_p"], row["n_q"], row["weighted"]) == (cell.n_p, cell.n_q, cell.weighted):
            spent[row["cell"]] = spent.get(row["cell"], 0.0) + row["cpu"]
    return statistics.fmean(spent.values()) if spent else cell.seconds


def print_plan(wanted: Sequence[Cell], edition: str) -> float:
    """Print what is to come and what it costs; returns the CPU hours."""
    total = 0.0
    for source in dict.fromkeys(cell.source for cell in wanted):
        rows, costs = results.read(source, edition), {}
        for cell in (cell for cell in wanted if cell.source == source):
            size = f"{cell.n_p} x {cell.n_q}" + (", weighted" if cell.weighted else "")
            costs.setdefault(size, []).append(seconds(cell, rows))
        for size, each in costs.items():
            total += sum(each) / 3600
            told = f"{len(each):4d} cells of {statistics.fmean(each):5.1f} CPU-s"
            print(f"{source:9s} {size:24s} {told}, {sum(each) / 60:6.1f} CPU-minutes")
    print(f"{len(wanted)} cells, about {total:.2f} CPU-hours on one thread", flush=True)
    return total


def run(
    wanted: Sequence[Cell],
    edition: str,
    *,
    shard: Shard | None = None,
    measure: Callable[[Cell], list[Row]] = cells.measure,
    folder: Path | None = None,
    version: int | None = None,
    rule: int | None = None,
) -> int:
    """Measure the cells that are missing; how many there were."""
    version = cells.version() if version is None else version
    todo = missing(share(wanted, shard), edition, version, folder, rule)
    for i, cell in enumerate(todo, 1):
        file = results.path(cell.source, edition, shard, folder)
        rows = measure(cell)
        results.write([row for row in results.load(file) if row["cell"] != cell.key] + rows, file)
        kl = results.judged(rows[-1], "kl")
        told = f"kl {kl.verdict} {kl.value:.3g} [{kl.low:.3g}, {kl.high:.3g}] for {kl.truth:.3g}"
        cpu = sum(row["cpu"] for row in rows)
        print(f"{i}/{len(todo)} {cell.source} {cell.key}: {told}, {cpu:.1f} CPU-s", file=sys.stderr, flush=True)
    return len(todo)
