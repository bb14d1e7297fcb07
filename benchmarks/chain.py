"""Accuracy and cost of chains: `python -m benchmarks.chain [--strategy S] [--d D] [--n N] [--seeds K] [--tasks]`.

Prints mean(sd) over data sets of each divergence at t = 5 and t = 10 of the drifting Gaussians (CDRE Fig. 2a-d), its
deviation from the truth, how many 95 % intervals hold the truth, and CPU seconds a chain in units of a 2048 x 2048
float32 matrix product on one thread. As part of `python -m benchmarks` it is the row of the 2-d chain.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings

import torch

from benchmarks.timing import Row, race
from vestige.chains import Chain
from vestige.data import gaussians
from vestige.data.gaussians import DriftingGaussians
from vestige.errors import VestigeWarning

SHOWN = (5, 10)
NAMES = ("kl", "reverse_kl", "js", "hellinger2")


def run(chain: Chain, bed: DriftingGaussians, n: int, seed: int, steps: int = 10) -> dict[int, list]:
    """A whole chain; the averaged rows of its table at the steps shown."""
    tables = {}
    for t in range(1, steps + 1):
        tasks = bed.tasks(t)
        new = [task for task in tasks if task not in chain.tasks]
        real = {task: bed.real(task, n, seed) for task in new}
        chain.step(real, {task: bed.model(t, task, n, seed) for task in tasks}, seed=seed)
        if t in SHOWN:
            table = chain.divergences(NAMES)
            tables[t] = list(table[table["task"] == "average"].itertuples())
    return tables


def product_seconds() -> float:
    """The unit of cost."""
    x = torch.rand(2048, 2048)
    return race({"product": lambda: x @ x}, repeats=5)["product"]


def rows() -> list[Row]:
    """The 2-d chain of ten steps, for each strategy that is meant to be quick."""
    torch.set_num_threads(1)
    x, bed = torch.rand(2048, 2048), gaussians(2)
    times = race({"ours": lambda: run(Chain(), bed, 10_000, 0), "product": lambda: x @ x}, repeats=2)
    return [Row("chain 2-d, 10 steps", times["ours"], "2048^2 product", times["product"], at_most=50.0)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="anchored")
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", action="store_true", help="a new task at each step (Fig. 2c, d)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", VestigeWarning)
    bed = gaussians(given.d, multi_task=given.tasks)
    found, seconds = [], []
    for seed in range(given.seeds):
        start = time.process_time()
        found.append(run(Chain(given.strategy), bed, given.n, seed))
        seconds.append(time.process_time() - start)
    unit = product_seconds()
    print(f"{given.strategy}, {given.d}-d, n = {given.n}, {given.seeds} seeds, ", end="")
    print(f"{statistics.mean(seconds):.1f} CPU s a chain = {statistics.mean(seconds) / unit:.0f} products")
    for t in SHOWN:
        for i, name in enumerate(NAMES):
            truth, lines = bed.true(name, t), [tables[t][i] for tables in found]
            values = [line.value for line in lines if not math.isnan(line.value)]
            if not values:
                print(f"  t={t:2} {name:10} {lines[0].verdict}")
                continue
            mean, sd = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
            held = sum(line.low <= truth <= line.high for line in lines)
            ok = sum(line.verdict == "ok" for line in lines)
            off = 100 * (mean / truth - 1)
            print(f"  t={t:2} {name:10} {mean:.4f}({sd:.4f})  truth {truth:.4f}  {off:+.1f} %", end="  ")
            print(f"covered {held} of {len(lines)}, ok {ok}", flush=True)


if __name__ == "__main__":
    main()
