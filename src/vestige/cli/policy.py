"""`vestige policy evaluate LOGS --policy FILE`: what a policy is worth, from logs of another; no simulator needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from vestige.cli import output
from vestige.cli.policy_simulated import Collect, Train, require_folder

if TYPE_CHECKING:
    from vestige.policy import Evaluation

STEPS = 100  # of the bar
NAMES = {
    "model": "model alone",
    "lfiw": "model, weighted (LFIW)",
    "lfiw_tempered": "model, weighted and tempered",
    "shuffled": "model, shuffled weights",
    "logged": "logged return",
    "per_decision": "importance sampling",
    "fitted_q": "fitted Q",
    "doubly_robust": "doubly robust",
}


@dataclass(frozen=True)
class Evaluate:
    """What a policy is worth, from logs of another one: every estimate that the logs carry, and a verdict."""

    logs: Annotated[Positional[Path], arg(metavar="LOGS")]
    """Logged transitions: .npz, .parquet or .csv (docs/evaluate_a_policy.md has the names)."""
    policy: Annotated[Path, arg(metavar="FILE")]
    """The policy to judge, as 'vestige policy train' or GaussianPolicy.save writes it."""
    horizon: int = 100
    """Steps of the return."""
    discount: float = 1.0
    """The weight of each step relative to the one before."""
    trajectories: int = 1000
    """Trajectories to simulate, over all members."""
    members: int = 5
    """Networks of the dynamics."""
    classifiers: int = 5
    """Classifiers that tell real transitions from simulated ones."""
    steps: int = 6000
    """Training steps of the dynamics at most."""
    ess: float = 0.1
    """The effective share of trajectories that tempering keeps."""
    cut: float = 0.01
    """Tempered weights take no log-ratio beyond what all but this share of the real rows have, at either end."""
    reward: Annotated[str | None, arg(metavar="ENV")] = None
    """Use the known reward function of an environment, such as HalfCheetah-v5; it is learned from the logs if not."""
    seed: int = 0
    """The same seed gives the same numbers."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Write evaluation.json and value.svg, the value against the number of weighted steps, into this folder."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Read, learn, simulate, weigh, print."""
        from vestige.core import checks
        from vestige.policy import GaussianPolicy, Logs, Settings, evaluate
        from vestige.policy.rewards import REWARDS

        owner = "vestige policy evaluate"
        known = None if self.reward is None else REWARDS[checks.one_of(self.reward, REWARDS, "reward", owner)]
        if self.out is not None:
            require_folder(self.out, owner)
        policy, logs = GaussianPolicy.load(self.policy), Logs.read(self.logs)
        with output.progress("reading", STEPS) as advance:
            reached = 0

            def heard(what: str, share: float) -> None:
                nonlocal reached
                now = int(STEPS * share)
                advance(now - reached, what)
                reached = now

            found = evaluate(
                logs,
                policy,
                horizon=self.horizon,
                discount=self.discount,
                trajectories=self.trajectories,
                members=self.members,
                classifiers=self.classifiers,
                ess=self.ess,
                cut=self.cut,
                reward=known,
                settings=Settings(steps=self.steps),
                seed=self.seed,
                tell=heard,
            )
        written = [] if self.out is None else write(self.out, found)
        if self.json:
            output.document(found.to_json() | {"written": [str(path) for path in written]})
            return
        output.table(table(found, f"{self.policy.name} judged from {self.logs.name}, {self.horizon} steps"))
        for text in found.warnings:
            output.warn(text)
        output.say(f"Verdict: {found.verdict}.")
        if written:
            output.say(f"Written to {', '.join(str(path) for path in written)}.")


@dataclass(frozen=True)
class Policy:
    """What a policy is worth, from logs of another one.

    'evaluate' needs the logs and the policy alone. 'train' and 'collect' make both in a simulated environment; they
    need pip install 'vestige[policy]'.
    """

    action: OmitArgPrefixes[
        Annotated[Evaluate, subcommand("evaluate", prefix_name=False)]
        | Annotated[Train, subcommand("train", prefix_name=False)]
        | Annotated[Collect, subcommand("collect", prefix_name=False)]
    ]

    def run(self) -> None:
        """Do it."""
        self.action.run()


def table(found: Evaluation, title: str) -> output.Table:
    """A row an estimate."""

    def number(value: float | None) -> str:
        return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"

    rows = [
        (
            NAMES.get(name, name),
            *(number(v) for v in (e.value, e.low, e.high, e.ess, e.pareto_k, e.alpha)),
            e.note,
        )
        for name, e in found.estimates.items()
    ]
    note = f"Intervals at 95 %, by resampling. {found.outside:.1%} of the simulated steps lie beyond the logs."
    return output.Table(title, ("estimate", "value", "low", "high", "ESS", "Pareto k", "alpha", ""), rows, note=note)


def write(folder: Path, found: Evaluation) -> list[Path]:
    """The numbers and the picture; the numbers last, so that who finds them finds both."""
    import json

    from vestige import show as drawing
    from vestige import store
    from vestige.policy.picture import picture

    folder.mkdir(parents=True, exist_ok=True)
    drawn, numbers = folder / "value.svg", folder / "evaluation.json"
    drawing.save(picture(found), drawn)
    store.write_bytes(numbers, (json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n").encode())
    return [numbers, drawn]
