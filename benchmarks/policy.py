"""`python -m benchmarks policy`: errors and coverage of the values of policies, from stored results.

A cell is an environment, a policy near to or far from the one that wrote the logs, and a seed. One run of PPO gives the
three policies of an environment and seed (`STEPS`): the behaviour policy logs episodes, the near and the far one are
judged from these logs by `vestige.policy.evaluate` with its own settings, and then let into the simulator for the
truth. Seeds from 0 on report. Seeds from 100 on choose: whatever has constants (the headline, rollouts, intervals) has
them from those, and no table of the others was looked at before.

    python -m benchmarks policy                    # tables of what is stored
    python -m benchmarks policy --markdown
    python -m benchmarks policy --plan             # what a run would cost
    python -m benchmarks policy --run inputs       # policies, logs and truths, into the cache
    python -m benchmarks policy --run after        # `evaluate` of today on every cell that is missing
    python -m benchmarks policy --run peer         # d3rlpy's fitted-Q evaluation on the same logs
    python -m benchmarks policy --run after --seeds choose --only Swimmer-v5 --results /elsewhere

The inputs are cached outside of the repository (VESTIGE_CACHE, or --cache), and so are the fitted dynamics, of which
one serves both policies: a new version of `evaluate` costs no more than itself. CPU seconds of a cell count its fit.
Results are kept in benchmarks/results/policy, a file an edition and environment, and a run goes on where the last one
stopped. `before` is what `evaluate` said when its dynamics were learnt by likelihood and its headline was the weighted
model; it needs that version of the code, and is kept as it was.

Errors are value less truth, in units of the return, and divided by the deviation of logged returns over episodes
(mean over the seeds of an environment) where environments stand together. The truth is the mean of `TRUTH_EPISODES`
episodes; its own error is in every error, and counts against every interval. The interval of the logged return is one
of what the policy that ran is worth, and held against that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import fitted_q
from benchmarks.environments import ONE_THREAD, ROOT
from benchmarks.truth.figures import Share

if TYPE_CHECKING:
    from vestige.policy import Dynamics, Evaluation, GaussianPolicy, Logs

FOLDER = ROOT / "benchmarks" / "results" / "policy"
EDITIONS = ("before", "after")
PEER = "peer"
REPORT, CHOOSE = (0, 1, 2, 3, 4), (100, 101, 102, 103)
SEEDS = {"report": REPORT, "choose": CHOOSE, "all": (*REPORT, *CHOOSE)}
EPISODES, TRUTH_EPISODES = 100, 300
LEVEL = 0.9  # of "ok": what covers less may not be called an interval
DIGITS = 6
FIT, MEMBERS = 1, 5  # FIT is raised when dynamics are learnt otherwise: those in the cache are then not taken
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """An environment: steps of PPO of the three policies; steps of the return; CPU seconds of the inputs."""

    steps: tuple[int, int, int]
    horizon: int = 100
    discount: float = 0.99  # of PPO; returns are not discounted
    seconds: float = 30.0


# Reacher has no known reward function, so `evaluate` learns it; the others' are known.
TASKS = {
    "Pendulum-v1": Task((20_480, 24_576, 40_960)),
    "Swimmer-v5": Task((4_096, 6_144, 20_480), discount=0.9999, seconds=25.0),
    "HalfCheetah-v5": Task((40_960, 45_056, 81_920), seconds=60.0),
    "Reacher-v5": Task((20_480, 24_576, 40_960), horizon=50),
}
WHICH = ("near", "far")
EVALUATE_SECONDS = 40.0  # of a cell, where none is stored


class Cell(NamedTuple):
    """What is judged."""

    environment: str
    which: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.which}|{self.seed}"


def cells(seeds: Iterable[int], environments: Sequence[str] | None = None) -> list[Cell]:
    """Every cell, those of one seed together."""
    names = environments or list(TASKS)
    return [Cell(name, which, seed) for seed in seeds for name in names for which in WHICH]


# ---- inputs


class Inputs(NamedTuple):
    """Of one environment and seed: the policies by name, the file of the logs, and truths as (value, error)."""

    policies: dict[str, GaussianPolicy]
    logs: Path
    truths: dict[str, tuple[float, float]]
    spread: float  # deviation of logged returns


def _place(cache: Path, name: str, seed: int) -> Path:
    return cache / "policy-benchmark" / f"{name}-{seed}"


def inputs(name: str, seed: int, cache: Path) -> Inputs:
    """From the cache; what is not there is made."""
    import torch

    from vestige.core import rng
    from vestige.policy import PPO, Logs, collect, train, truth_of
    from vestige.store.objects import write_bytes

    torch.set_num_threads(1)
    task, place = TASKS[name], _place(cache, name, seed)
    settings = PPO(batch_size=256, learning_rate=1e-3, discount=task.discount)
    trained = train(name, task.steps, settings=settings, seed=seed, folder=cache / "policies")
    policies = dict(zip(("behaviour", *WHICH), trained, strict=True))
    own = rng.child_seed(seed, "logs")
    if not (place / "logs.npz").exists():
        place.mkdir(parents=True, exist_ok=True)
        logs = collect(name, policies["behaviour"], episodes=EPISODES, horizon=task.horizon, seed=own)
        logs.write(place / "logs.npz")
    logged = truth_of(Logs.read(place / "logs.npz"), task.horizon)
    if not (place / "truths.json").exists():
        options: dict[str, Any] = {"episodes": TRUTH_EPISODES, "horizon": task.horizon}
        options["seed"] = rng.child_seed(seed, "truth")
        found = {who: truth_of(collect(name, policy, **options), task.horizon) for who, policy in policies.items()}
        told = {who: (truth.value, truth.se) for who, truth in found.items()}
        write_bytes(place / "truths.json", json.dumps(told).encode())
    truths = {who: (value, se) for who, (value, se) in json.loads((place / "truths.json").read_text()).items()}
    return Inputs(policies, place / "logs.npz", truths, float(logged.returns.std()))


# ---- runs


def said(found: Evaluation) -> Row:
    """Everything that `evaluate` told, as JSON."""
    return rounded(found.to_json() | {"curves": None})


def rounded(value: Any) -> Any:
    """The same with six digits of every number; None where one is not finite."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def fitted(cell: Cell, logs: Logs, cache: Path) -> tuple[Dynamics, float]:
    """The dynamics of a cell's logs, with the settings of `evaluate`, and the CPU seconds that they took."""
    from vestige.policy import REWARDS, Dynamics
    from vestige.store.objects import write_bytes

    reward = REWARDS.get(cell.environment)
    file = _place(cache, cell.environment, cell.seed) / f"dynamics-{FIT}.json"
    spent = file.with_suffix(".cpu")
    if not spent.exists():
        begun = time.process_time()
        Dynamics(MEMBERS, reward=reward).fit(logs, seed=cell.seed).save(file)
        write_bytes(spent, str(time.process_time() - begun).encode())
    return Dynamics.load(file, reward=reward), float(spent.read_text())


def judged(cell: Cell, cache: Path) -> Row:
    """What `evaluate` of today says of a cell, with its own settings."""
    from vestige.policy import Logs, evaluate

    given, horizon = inputs(cell.environment, cell.seed, cache), TASKS[cell.environment].horizon
    logs = Logs.read(given.logs)
    dynamics, spent = fitted(cell, logs, cache)
    begun, behaviour = time.process_time(), given.policies["behaviour"]
    found = evaluate(
        logs, given.policies[cell.which], behaviour=behaviour, horizon=horizon, dynamics=dynamics, seed=cell.seed
    )
    return _facts(cell, given) | {"cpu": rounded(spent + time.process_time() - begun)} | said(found)


def asked_peer(cell: Cell, cache: Path) -> Row:
    """What d3rlpy's fitted-Q evaluation says of a cell."""
    given = inputs(cell.environment, cell.seed, cache)
    found = fitted_q.value(given.logs, given.policies[cell.which], TASKS[cell.environment].horizon, cell.seed)
    estimate = {"value": found["value"], "low": None, "high": None, "verdict": "spread"}  # it has no interval
    return _facts(cell, given) | rounded({"cpu": found["cpu"], "estimates": {fitted_q.NAME: estimate}})


def _facts(cell: Cell, given: Inputs) -> Row:
    truth, error = given.truths[cell.which]
    facts = {"cell": cell.key, "which": cell.which, "seed": cell.seed, "truth": truth, "truth_se": error}
    return rounded(facts | {"spread": given.spread, "behaviour": given.truths.get("behaviour")})


def path(edition: str, name: str, folder: Path) -> Path:
    return folder / f"{edition}-{name}.json"


def stored(edition: str, name: str, folder: Path = FOLDER) -> list[Row]:
    """Finished cells of an edition and environment."""
    file = path(edition, name, folder)
    return json.loads(file.read_text())["cells"] if file.exists() else []


def store(edition: str, name: str, row: Row, folder: Path) -> None:
    """Add a cell, or put it in the place of its former self; the file is whole at every moment."""
    from vestige.store.objects import write_bytes

    rows = [one for one in stored(edition, name, folder) if one["cell"] != row["cell"]] + [row]
    rows.sort(key=lambda one: (one["seed"], WHICH.index(one["which"])))
    lines = ",\n".join(json.dumps(one, allow_nan=False, separators=(",", ":")) for one in rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(path(edition, name, folder), f'{{"cells":[\n{lines}\n]}}\n'.encode())


def missing(edition: str, wanted: Sequence[Cell], folder: Path) -> list[Cell]:
    """Those of the wanted cells that are not stored."""
    names = dict.fromkeys(cell.environment for cell in wanted)
    done = {name: {row["cell"] for row in stored(edition, name, folder)} for name in names}
    return [cell for cell in wanted if cell.key not in done[cell.environment]]


def print_plan(edition: str, todo: Sequence[Cell], cache: Path, folder: Path) -> None:
    """CPU minutes of what is to come, on one thread."""
    pairs = dict.fromkeys((cell.environment, cell.seed) for cell in todo)
    absent = [name for name, seed in pairs if not (_place(cache, name, seed) / "truths.json").exists()]
    made = sum(TASKS[name].seconds for name in absent)
    each = []
    for cell in todo if edition != "inputs" else ():
        spent = [row["cpu"] for row in stored(edition, cell.environment, folder)]
        usual = fitted_q.SECONDS if edition == PEER else EVALUATE_SECONDS
        each.append(statistics.fmean(spent) if spent else usual)
    print(
        f"{len(absent)} inputs of about {made / 60:.1f} CPU-minutes; {len(each)} cells of about "
        f"{sum(each) / 60:.1f} CPU-minutes ({edition}).",
        flush=True,
    )


def run(
    edition: str,
    wanted: Sequence[Cell],
    cache: Path,
    folder: Path,
    measure: Callable[[Cell, Path], Row] | None = None,
) -> int:
    """Measure the cells that are missing, and store each before the next begins; how many there were."""
    todo = wanted if edition == "inputs" else missing(edition, wanted, folder)
    print_plan(edition, todo, cache, folder)
    if edition == "inputs":
        for name, seed in dict.fromkeys((cell.environment, cell.seed) for cell in todo):
            told = {who: round(value, 2) for who, (value, _) in inputs(name, seed, cache).truths.items()}
            print(f"{name} {seed}: {told}", file=sys.stderr, flush=True)
        return len(todo)
    measure = measure or (asked_peer if edition == PEER else judged)
    for i, cell in enumerate(todo, 1):
        row = measure(cell, cache)
        store(edition, cell.environment, row, folder)
        values = {name: one["value"] for name, one in row["estimates"].items()}
        told = f"truth {row['truth']}, {values}, {row['cpu']:.0f} CPU-s"
        print(f"{i}/{len(todo)} {cell.environment} {cell.key}: {told}", file=sys.stderr, flush=True)
    return len(todo)


# ---- tables


class Judged(NamedTuple):
    """An estimate of one cell; NaN where a number is not known."""

    environment: str
    which: str
    cell: str
    truth: float
    spread: float
    value: float
    low: float
    high: float
    verdict: str
    withdrawn: tuple[float, float] | None = None  # ends that were not given after all
    ran: float | None = None  # what the policy that ran is worth, where the interval is of that

    @property
    def error(self) -> float:
        return self.value - self.truth

    @property
    def given(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def interval(self) -> bool:
        """Whether it is promised that the truth lies between two ends."""
        return self.verdict == "ok" and math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def ends(self) -> tuple[float, float] | None:
        """Those of the interval that is given, or of the one that was withdrawn."""
        return (self.low, self.high) if self.interval else self.withdrawn


def spreads(folder: Path = FOLDER) -> dict[str, float]:
    """The deviation of logged returns of each environment, mean over all seeds of all editions."""
    found = {}
    for name in TASKS:
        rows = [row for edition in (*EDITIONS, PEER) for row in stored(edition, name, folder)]
        by_seed = {row["seed"]: row["spread"] for row in rows}
        found[name] = statistics.fmean(by_seed.values()) if by_seed else math.nan
    return found


def every(edition: str, seeds: Iterable[int], folder: Path = FOLDER) -> dict[str, list[Judged]]:
    """All that an edition says of the cells of some seeds, by estimate."""
    scale, wanted, found = spreads(folder), set(seeds), {}
    for name in TASKS:
        for row in stored(edition, name, folder):
            if row["seed"] not in wanted:
                continue
            for estimate, one in _estimates(row).items():
                numbers = (math.nan if one.get(key) is None else one[key] for key in ("value", "low", "high"))
                cell = f"{name}|{row['cell']}"
                facts = Judged(name, row["which"], cell, row["truth"], scale[name], *numbers, one["verdict"])
                ends = (one.get("details") or {}).get("withdrawn")
                ran = row["behaviour"][0] if estimate == "logged" and row.get("behaviour") else None
                facts = facts._replace(withdrawn=tuple(ends) if ends else None, ran=ran)
                found.setdefault(estimate, []).append(facts)
    return found


def _estimates(row: Row) -> Row:
    """Those of a cell, and the diagnostics after them."""
    diagnostics = row.get("diagnostics") or {}
    return row["estimates"] | {f"{name} (diagnostic)": one for name, one in diagnostics.items()}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else math.nan


def mean_error(found: Iterable[Judged]) -> float:
    """Mean |value - truth| over deviations of logged returns, where there is a value."""
    return _mean(abs(one.error) / one.spread for one in found if one.given)


def bias(found: Iterable[Judged]) -> float:
    """Mean of value less truth, likewise."""
    return _mean(one.error / one.spread for one in found if one.given)


def coverage(found: Iterable[Judged], *, withdrawn: bool = False) -> Share:
    """Of the intervals that are given, or of these and those that were withdrawn, the ones that hold the truth."""
    told = [one for one in found if one.ends is not None and (withdrawn or one.interval)]
    truths = [one.truth if one.ran is None else one.ran for one in told]
    return Share(sum(one.ends[0] <= truth <= one.ends[1] for one, truth in zip(told, truths, strict=True)), len(told))


def _share(found: Share) -> str:
    if not found.of:
        return "-"
    low, high = found.wilson()
    return f"{found.value:.2f} [{low:.2f}, {high:.2f}] ({found.of})"


def _number(value: float, form: str = ".3f") -> str:
    return "-" if math.isnan(value) else format(value, form)


def _verdicts(found: Sequence[Judged]) -> str:
    words = ("ok", "spread", "at least", "refused")
    return " / ".join(f"{sum(one.verdict == word for one in found) / len(found):.0%}" for word in words)


HEADS = {
    "estimates": (
        "edition", "estimate", "cells", "with a value", "mean |error|", "near", "far", "bias", "intervals hold",
        "with withdrawn ones", "ok / spread / at least / refused", "width of intervals",
    ),
    "environments": ("edition", "estimate", *(f"{name}, {which}" for name in TASKS for which in WHICH)),
    "cost": ("edition", *TASKS),
}  # fmt: skip


def estimate_rows(seeds: Sequence[int], folder: Path = FOLDER, only: set[str] | None = None) -> list[list[str]]:
    """A row an edition and estimate; errors, bias and width in deviations of logged returns."""
    rows = []
    for edition in (*EDITIONS, PEER):
        for name, all_of_them in every(edition, seeds, folder).items():
            found = [one for one in all_of_them if only is None or one.cell in only]
            if not found:
                continue
            ends = [one for one in found if one.interval]
            by_which = [[one for one in found if one.which == which] for which in WHICH]
            rows.append(
                [
                    edition,
                    name,
                    str(len(found)),
                    str(sum(one.given for one in found)),
                    *(_number(mean_error(part)) for part in (found, *by_which)),
                    _number(bias(found), "+.3f"),
                    _share(coverage(found)),
                    _share(coverage(found, withdrawn=True)),
                    _verdicts(found),
                    _number(_mean((one.high - one.low) / one.spread for one in ends)),
                ]
            )
    return rows


def environment_rows(seeds: Sequence[int], folder: Path = FOLDER) -> list[list[str]]:
    """Mean |error| in units of the return, an environment and distance a column."""
    rows = []
    for edition in (*EDITIONS, PEER):
        for estimate, found in every(edition, seeds, folder).items():
            line = [edition, estimate]
            for name in TASKS:
                for which in WHICH:
                    mine = [one for one in found if (one.environment, one.which) == (name, which) and one.given]
                    line.append(_number(_mean(abs(one.error) for one in mine), ".3g"))
            rows.append(line)
    return rows


def cost_rows(folder: Path = FOLDER) -> list[list[str]]:
    """CPU seconds of a cell, mean."""
    rows = []
    for edition in (*EDITIONS, PEER):
        spent = [_mean(row["cpu"] for row in stored(edition, name, folder)) for name in TASKS]
        if not all(math.isnan(one) for one in spent):
            rows.append([edition, *(_number(one, ".0f") for one in spent)])
    return rows


def tables(folder: Path = FOLDER) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Title, head and rows of everything that is stored."""
    known = {e: {one.cell for found in every(e, REPORT, folder).values() for one in found} for e in (*EDITIONS, PEER)}
    scale = "deviations of logged returns"
    found = [(f"Seeds that report, errors in {scale}", HEADS["estimates"], estimate_rows(REPORT, folder))]
    for other in ("before", PEER):
        same = known[other] & known["after"]
        if same and same != known["after"]:
            rows = [row for row in estimate_rows(REPORT, folder, same) if row[0] in (other, "after")]
            found.append((f"The cells of '{other}' alone, errors in {scale}", HEADS["estimates"], rows))
    by_name = environment_rows(REPORT, folder)
    found.append(("Mean |error| in units of the return", HEADS["environments"], by_name))
    found.append((f"Seeds that choose, errors in {scale}", HEADS["estimates"], estimate_rows(CHOOSE, folder)))
    found.append(("CPU seconds of a cell", HEADS["cost"], cost_rows(folder)))
    return [one for one in found if one[2]]


def _print(folder: Path, markdown: bool) -> None:
    for title, head, rows in tables(folder):
        if markdown:
            print(f"{title}:\n\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
            print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
            continue
        from rich.console import Console
        from rich.table import Table

        table = Table(*head, title=title)
        for row in rows:
            table.add_row(*row)
        Console(width=200).print(table)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks policy", description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=("inputs", *EDITIONS, PEER), help="measure what is missing of this part")
    parser.add_argument("--seeds", choices=SEEDS, default="report", help="those that report (by default) or choose")
    parser.add_argument("--only", action="append", choices=list(TASKS), help="this environment alone; may be repeated")
    parser.add_argument("--seed", type=int, action="append", help="this seed alone; may be repeated")
    parser.add_argument("--cache", type=Path, help="where policies, logs and truths are: VESTIGE_CACHE by default")
    parser.add_argument("--results", type=Path, default=FOLDER, help="where results are: benchmarks/results/policy")
    parser.add_argument("--plan", action="store_true", help="print what a run would cost, and stop")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments = parser.parse_args(given)
    os.environ.update(ONE_THREAD)  # for what is imported from here on
    if not arguments.run and not arguments.plan:
        _print(arguments.results, arguments.markdown)
        return 0
    from vestige.data.download import cache_folder

    cache = arguments.cache or cache_folder()
    wanted = cells(arguments.seed or SEEDS[arguments.seeds], arguments.only)
    if arguments.plan:
        for edition in [arguments.run] if arguments.run else ("inputs", *EDITIONS, PEER):
            todo = wanted if edition == "inputs" else missing(edition, wanted, arguments.results)
            print_plan(edition, todo, cache, arguments.results)
        return 0
    run(arguments.run, wanted, cache, arguments.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
