"""`python -m benchmarks bandits`: how often intervals of contextual bandits hold, from stored results.

A log is drawn from a problem that is itself drawn at random: 5 to 40 contexts with probabilities of their own and four
numbers that are seen, 2 to 7 actions, a mean reward of each in each context, a policy that logs and one that is
evaluated. Contexts are finite, so the truth is a sum. `vestige.policy.evaluate_bandit` sees the numbers of the context,
not which one it is, and knows that rewards lie in [0, 1] where they do.

    python -m benchmarks bandits               # the table of what is stored
    python -m benchmarks bandits --markdown
    python -m benchmarks bandits --run         # what is missing: about two CPU-minutes in all

Families of `CHOSEN_ON` chose the form of the intervals and the least effective sample size (`vestige.policy.bandits`
says what was looked at); families of `REPORTED` did not, and their seeds are others. Results are kept in
benchmarks/results/bandits.json, a family and number of rows at a time, and a run goes on where the last one stopped.

"normal" is the mean of w r, or of w r over that of w, with 1.96 standard errors on either side and no verdict: what a
short script would print.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import ONE_THREAD, ROOT
from benchmarks.truth.figures import Share

FILE = ROOT / "benchmarks" / "results" / "bandits.json"
VERSION = 1  # of intervals and families: results of an older one are measured again
SIZES, LOGS = (100, 300, 1000, 3000), 100
ESTIMATES = ("dr", "snips", "ips")
FIRST_CHOSEN, FIRST_REPORTED = 100_000, 0


class Problem(NamedTuple):
    """m contexts, k actions: probabilities of contexts, what is seen of them, mean rewards, and both policies."""

    contexts: np.ndarray  # (m,)
    seen: np.ndarray  # (m, 4)
    rewards: np.ndarray  # (m, k)
    logging: np.ndarray  # (m, k)
    policy: np.ndarray  # (m, k)
    law: str  # of the reward around its mean: bernoulli, gauss or lognormal

    @property
    def truth(self) -> float:
        return float((self.contexts[:, None] * self.policy * self.rewards).sum())


def softmax(scores: np.ndarray) -> np.ndarray:
    risen = np.exp(scores - scores.max(1, keepdims=True))
    return risen / risen.sum(1, keepdims=True)


def plain(rng: np.random.Generator) -> tuple[Problem, np.ndarray]:
    """Logistic rewards, a mild logging policy, a better one to evaluate; and the scores of the logging policy."""
    m, k = int(rng.integers(5, 40)), int(rng.integers(2, 8))
    seen = rng.normal(size=(m, 4))
    rewards = 1 / (1 + np.exp(-(seen @ rng.normal(size=(4, k)) + rng.normal(size=k))))
    scores = seen @ rng.normal(size=(4, k))
    policy = softmax(6 * rewards + 0.3 * scores)
    return Problem(rng.dirichlet(np.ones(m)), seen, rewards, softmax(0.5 * scores), policy, "bernoulli"), scores


def _dirichlet(rng: np.random.Generator, shape: tuple[int, ...], concentration: float, floor: float) -> np.ndarray:
    m, k = shape
    return rng.dirichlet(np.full(k, concentration), size=m) * (1 - floor) + floor / k


def _greedy(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    return one._replace(policy=np.eye(one.rewards.shape[1])[one.rewards.argmax(1)])


def _heavy(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    """Propensities down to a hundredth over the number of actions."""
    return one._replace(logging=_dirichlet(rng, one.rewards.shape, 0.3, 0.01))


def _misspecified(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    """Rewards that hang on the sign of a product, of which a linear model sees nothing."""
    sign = np.sign(one.seen[:, :1] * one.seen[:, 1:2])
    rewards = 0.5 + 0.4 * sign * rng.choice([-1.0, 1.0], one.rewards.shape[1])
    return one._replace(rewards=rewards, policy=softmax(4 * rewards))


def _rare(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    """The last action is logged in .5, 1 or 2 % of the rows, and taken by the policy in half of them."""
    share = rng.choice([0.005, 0.01, 0.02])
    others = softmax(scores[:, 1:])
    ends = [np.concatenate([others * (1 - s), np.full((len(others), 1), s)], 1) for s in (share, 0.5)]
    return one._replace(logging=ends[0], policy=ends[1])


def _near_deterministic(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    """One action a context, but for 10, 3 or 1 % of the rows."""
    share, (m, k) = rng.choice([0.1, 0.03, 0.01]), one.rewards.shape
    return one._replace(logging=np.eye(k)[rng.integers(0, k, m)] * (1 - share) + share / k)


def _unsupported(one: Problem, scores: np.ndarray, rng: np.random.Generator) -> Problem:
    """In half of the contexts, or in all, an action is never logged."""
    away = rng.random(len(one.seen)) < rng.choice([0.5, 1.0])
    away[0] = True
    logging = one.logging.copy()
    logging[away, 0] = 0
    return one._replace(logging=logging / logging.sum(1, keepdims=True))


Family = Callable[[Problem, np.ndarray, np.random.Generator], Problem]
CHOSEN_ON: dict[str, Family] = {
    "softmax": lambda one, scores, rng: one,
    "lognormal rewards": lambda one, scores, rng: one._replace(law="lognormal"),
    "gaussian rewards": lambda one, scores, rng: one._replace(law="gauss"),
    "dirichlet logging": lambda one, scores, rng: one._replace(logging=_dirichlet(rng, one.rewards.shape, 0.5, 0.05)),
    "greedy policy": _greedy,
    "rare rewards": lambda one, scores, rng: one._replace(rewards=0.03 * one.rewards),
}
REPORTED: dict[str, Family] = {
    "heavy propensities": _heavy,
    "misspecified model": _misspecified,
    "rare action": _rare,
    "near-deterministic": _near_deterministic,
    "unsupported": _unsupported,
}
FAMILIES = CHOSEN_ON | REPORTED


def drawn(family: str, n: int, number: int) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """A problem and n rows of it: places of contexts, actions, rewards."""
    first = FIRST_CHOSEN if family in CHOSEN_ON else FIRST_REPORTED
    rng = np.random.default_rng([first + number, n, *family.encode()])
    problem = FAMILIES[family](*plain(rng), rng)
    x = rng.choice(len(problem.contexts), n, p=problem.contexts)
    edges = problem.logging[x].cumsum(1)
    a = (rng.random((n, 1)) * edges[:, -1:] > edges).sum(1)
    mean = problem.rewards[x, a]
    if problem.law == "bernoulli":
        return problem, x, a, (rng.random(n) < mean).astype(float)
    if problem.law == "gauss":
        return problem, x, a, mean + 0.5 * rng.normal(size=n)
    return problem, x, a, mean * np.exp(1.2 * rng.normal(size=n) - 0.72)  # of mean `mean`


def measure(family: str, n: int, logs: int) -> dict[str, Any]:
    """Counts and sums over so many logs, by estimate."""
    from vestige.policy import BanditLogs, evaluate_bandit

    begun, found = time.process_time(), {name: [] for name in (*ESTIMATES, "normal ips", "normal snips")}
    for number in range(logs):
        problem, x, a, r = drawn(family, n, number)
        k, truth, p = problem.rewards.shape[1], problem.truth, problem.logging[x, a]
        given = BanditLogs.of(a, r, p, contexts=problem.seen[x], actions_known=k)
        bounds = (0.0, 1.0) if problem.law == "bernoulli" else None
        told = evaluate_bandit(given, problem.policy[x], bounds=bounds, seed=number)
        for name in ESTIMATES:
            one = told.estimates[name]
            found[name].append((one.verdict, truth, one.value, one.low, one.high))
        w = problem.policy[x, a] / p
        ratio = (w * r).sum() / w.sum()
        for name, value, terms in (("ips", (w * r).mean(), w * r), ("snips", ratio, w * (r - ratio) / w.mean())):
            reach = 1.96 * terms.std() / math.sqrt(n)
            found[f"normal {name}"].append(("ok", truth, value, value - reach, value + reach))
    counted = {name: summed(rows) for name, rows in found.items()}
    return {"version": VERSION, "logs": logs, "cpu": round(time.process_time() - begun, 1), "estimates": counted}


def summed(rows: Sequence[tuple[str, float, float, float, float]]) -> dict[str, float]:
    """How often an interval was promised and held, how often a bound; errors and widths of what is "ok"."""
    ok = [row for row in rows if row[0] == "ok"]
    least = [row for row in rows if row[0] == "at least"]
    return {
        "logs": len(rows),
        "ok": len(ok),
        "held": sum(bool(low <= truth <= high) for _, truth, _, low, high in ok),
        "at least": len(least),
        "valid": sum(bool(low <= truth <= high) for _, truth, _, low, high in least),
        "error": round(float(sum(abs(value - truth) for _, truth, value, _, _ in ok)), 6),
        "width": round(float(sum(high - low for *_, low, high in ok)), 6),
    }


def stored() -> dict[str, Any]:
    """Finished families and sizes of this version."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {key: one for key, one in found.items() if one["version"] == VERSION}


def run(logs: int) -> None:
    """Measure what is missing."""
    from vestige.store.objects import write_bytes

    for family in FAMILIES:
        for n in SIZES:
            done, key = stored(), f"{family}|{n}"
            if key in done and done[key]["logs"] >= logs:
                continue
            done[key] = measure(family, n, logs)
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in done.items())
            write_bytes(FILE, f"{{\n{lines}\n}}\n".encode())
            print(f"{key}: {done[key]['cpu']} CPU-s", file=sys.stderr, flush=True)


HEAD = (
    "family",
    "estimate",
    "logs",
    "ok",
    "ok holds",
    "at least",
    "at least holds",
    "mean |error| of ok",
    "width of ok",
)


def _share(hits: float, of: float) -> str:
    if not of:
        return "-"
    low, high = Share(int(hits), int(of)).wilson()
    return f"{hits / of:.3f} [{low:.3f}, {high:.3f}]"


def line(title: str, name: str, parts: Sequence[dict[str, float]]) -> list[str]:
    """Sums of several cells as text."""
    total = {key: sum(part[key] for part in parts) for key in parts[0]}
    ok, least, logs = total["ok"], total["at least"], total["logs"]
    mean = [f"{total[key] / ok:.3f}" if ok else "-" for key in ("error", "width")]
    shares = [f"{ok / logs:.0%}", _share(total["held"], ok), f"{least / logs:.0%}", _share(total["valid"], least)]
    return [title, name, str(int(logs)), *shares, *mean]


def rows() -> list[list[str]]:
    """Families that report, one by one and together; sizes; and families that chose, together."""
    found, lines = stored(), []
    names = (*ESTIMATES, "normal snips", "normal ips")

    def add(title: str, keys: Sequence[str]) -> None:
        cells = [found[key]["estimates"] for key in keys if key in found]
        lines.extend(line(title, name, [cell[name] for cell in cells]) for name in names if cells)

    for family in REPORTED:
        add(family, [f"{family}|{n}" for n in SIZES])
    add("all of these", [f"{family}|{n}" for family in REPORTED for n in SIZES])
    for n in SIZES:
        add(f"all of these, {n} rows", [f"{family}|{n}" for family in REPORTED])
    add("families that chose", [f"{family}|{n}" for family in CHOSEN_ON for n in SIZES])
    return lines


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks bandits", description=__doc__.split("\n")[0])
    parser.add_argument("--run", action="store_true", help="measure what is missing")
    parser.add_argument("--logs", type=int, default=LOGS, help="logs of a family and size")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    arguments = parser.parse_args(given)
    os.environ.update(ONE_THREAD)  # for what is imported from here on
    if arguments.run:
        run(arguments.logs)
        return 0
    if arguments.markdown:
        print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
        print("\n".join("| " + " | ".join(row) + " |" for row in rows()))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEAD, title="Contextual bandits: verdicts and coverage at 95 %")
    for row in rows():
        table.add_row(*row)
    Console(width=180).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
