"""Accuracy and cost of chains: `python -m benchmarks.chain [--bed B] [--strategy S] [--preset P] [--seeds K] ...`.

Beds: CDRE's Fig. 2a-d (drifting Gaussians: 2-d, 100-d, and both with a new task at each step) and those of
`vestige_papers.cdre.drifts`. For each divergence, halfway and at the last step, it prints mean(sd) over data sets, the
deviation from the truth, how many 95 % intervals hold the truth, how many are ok, "at least" or refused, and how
many of the ok ones hold the truth; and CPU seconds a chain in units of a 2048 x 2048 float32 matrix product on one
thread. As part of `python -m benchmarks` it is the rows of the 2-d chain.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import warnings
from functools import partial
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from benchmarks.timing import Row, race
from vestige.chains import Chain, Drift, gaussians
from vestige.core import VestigeWarning
from vestige_papers.cdre.drifts import DRIFTS

BEDS = {
    "fig2a": partial(gaussians, 2),
    "fig2b": partial(gaussians, 100),
    "fig2c": partial(gaussians, 2, multi_task=True),
    "fig2d": partial(gaussians, 100, multi_task=True),
    **DRIFTS,
}
NAMES = ("kl", "reverse_kl", "js", "hellinger2")


def shown(bed: Drift) -> tuple[int, int]:
    """The steps that are printed."""
    return bed.n_steps // 2, bed.n_steps


def run(chain: Chain, bed: Drift, n: int, seed: int) -> dict[int, list[Any]]:
    """A whole chain; the averaged rows of its table at the steps shown."""
    tables = {}
    for t in range(1, bed.n_steps + 1):
        tasks = bed.tasks(t)
        real = {task: bed.real(task, n, seed) for task in tasks if task not in chain.tasks}
        chain.step(real, {task: bed.model(t, task, n, seed) for task in tasks}, seed=seed)
        if t in shown(bed):
            table = chain.divergences(NAMES)
            tables[t] = list(table[table["task"] == "average"].itertuples())
    return tables


def product_seconds() -> float:
    """The unit of cost."""
    x = torch.rand(2048, 2048)
    return race({"product": lambda: x @ x}, repeats=5)["product"]


def rows() -> list[Row]:
    """The 2-d chain of ten steps by each preset."""
    torch.set_num_threads(1)
    x, bed = torch.rand(2048, 2048), gaussians(2)
    contenders = {
        "default": lambda: run(Chain(), bed, 10_000, 0),
        "lean": lambda: run(Chain(preset="lean"), bed, 10_000, 0),
        "fast": lambda: run(Chain(preset="fast"), bed, 10_000, 0),
        "product": lambda: x @ x,
    }
    times = race(contenders, repeats=3)
    targets = {"default": 50.0, "lean": 50.0, "fast": 15.0}
    return [
        Row(f"chain 2-d, 10 steps, {name}", times[name], "2048^2 product", times["product"], at_most=most)
        for name, most in targets.items()
    ]


def line(name: str, truth: float, lines: list[Any]) -> str:
    """One divergence at one step, over all data sets."""
    values = [row.value for row in lines if not math.isnan(row.value)]
    kinds = {kind: [row for row in lines if row.verdict == kind] for kind in ("ok", "at least", "refused")}
    if not values:
        return f"{name:10} {lines[0].verdict}: {lines[0].reason}"
    mean, sd = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    off = f"{100 * (mean / truth - 1):+.1f} %" if truth > 1e-6 else f"{mean - truth:+.1e}"
    held, held_ok = (sum(row.low <= truth <= row.high for row in some) for some in (lines, kinds["ok"]))
    counts = ", ".join(f"{kind} {len(some)}" for kind, some in kinds.items())
    covered = f"covered {held} of {len(lines)}; {counts}; covered when ok {held_ok}"
    return f"{name:10} {mean:.4f}({sd:.4f})  truth {truth:.4f}  {off}  {covered}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bed", default="fig2a", choices=BEDS)
    parser.add_argument("--strategy", default="anchored")
    parser.add_argument("--preset", default=None)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="in how many steps the drift is done (not fig2)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # scipy's BLAS too: a second thread that spins counts as CPU time
    warnings.simplefilter("ignore", VestigeWarning)
    bed = BEDS[given.bed](**({} if given.steps is None else {"n_steps": given.steps}))
    found, seconds, worth, gaps = [], [], [], []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        chain = Chain(given.strategy, preset=given.preset, names=NAMES)
        start = time.process_time()
        found.append(run(chain, bed, given.n, seed))
        seconds.append(time.process_time() - start)
        last = found[-1][bed.n_steps][0]
        print(f"seed {seed}: kl {last.value:.4f} ({last.low:.4f} to {last.high:.4f})", file=sys.stderr, flush=True)
        assert chain.report_ is not None
        worth += [r.stand_in_ess / max(r.stand_in, 1) for r in chain.report_.tasks]
        gaps += [r.gap for r in chain.report_.tasks]
    unit = product_seconds()
    print(f"{given.bed}, {given.strategy}, {given.preset or 'defaults'}, n = {given.n}, {given.seeds} seeds", end="")
    print(f" from {given.first_seed}: {statistics.mean(seconds):.1f} CPU s a chain =", end=" ")
    print(
        f"{statistics.mean(seconds) / unit:.0f} products; stand-in worth {min(worth):.0%} to {max(worth):.0%}", end=""
    )
    print(f", gap {min(gaps):.3f} to {max(gaps):.3f}")
    for t in shown(bed):
        for i, name in enumerate(NAMES):
            print(f"  t={t:2}", line(name, bed.true(name, t), [tables[t][i] for tables in found]), flush=True)


if __name__ == "__main__":
    main()
