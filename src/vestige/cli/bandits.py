"""`vestige policy bandit`: what a policy with discrete actions is worth, from logs with propensities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from vestige.cli import output

if TYPE_CHECKING:
    from vestige.policy import BanditEvaluation

NAMES = {
    "dr": "doubly robust (DR)",
    "snips": "self-normalised (SNIPS)",
    "ips": "importance sampling (IPS)",
    "logged": "logged reward",
}


@dataclass(frozen=True)
class Bandit(output.SeededVerb):
    """What a policy with discrete actions is worth, from logs of another one with propensities.

    Columns of the table: 'action', 'reward', 'propensity' (the probability with which the logged action was taken),
    'policy_A' for every action A (its probability under the policy to evaluate) and, for the model of the reward,
    'context_...'.
    """

    logs: Annotated[Positional[Path], arg(metavar="LOGS")]
    """A row a decision: .csv, .parquet or Arrow (docs/evaluate_a_policy.md has an example)."""
    low: float | None = None
    """The least reward that there can be; with --high the value is bounded where it cannot be estimated."""
    high: float | None = None
    """The largest reward that there can be."""
    level: float = 0.95
    """Of the intervals."""
    folds: int = 5
    """Folds in which the model of the reward is cross-fitted."""

    def run(self) -> None:
        """Read, weigh, print."""
        from vestige.core import checks
        from vestige.policy import BanditLogs, evaluate_bandit

        if (self.low is None) != (self.high is None):
            missing, other = ("low", "high") if self.low is None else ("high", "low")
            checks.refuse(missing, "vestige policy bandit", f"given together with '{other}'", "none")
        bounds = None if self.low is None or self.high is None else (self.low, self.high)
        logs, policy = BanditLogs.read(self.logs)
        found = evaluate_bandit(logs, policy, bounds=bounds, level=self.level, folds=self.folds, seed=self.seed)
        said = map(output.Caution, found.warnings)
        self.answer(found.to_json(), table(found, f"The policy in {self.logs.name}, {len(logs)} rows"), *said)


def table(found: BanditEvaluation, title: str) -> output.Table:
    """A row an estimate."""

    def number(value: float) -> str:
        return f"{value:.4g}" if math.isfinite(value) else "-"

    rows = []
    for name, e in found.estimates.items():
        value = e.value if e.verdict == "ok" else math.nan  # of the others the ends are all that is promised
        rows.append((NAMES[name], *(number(x) for x in (value, e.low, e.high, e.ess or math.nan)), e.verdict))
    note = (
        f"Intervals at {found.report['level']:.0%}. The weights average {found.mean_weight.value:.4g} (1 if the "
        f"propensities are right and the logs have all that the policy does); the largest holds "
        f"{found.largest_share:.1%} of all."
    )
    return output.Table(title, ("estimate", "value", "low", "high", "ESS", "verdict"), rows, note=note)
