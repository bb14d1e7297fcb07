"""`vestige policy`: what a policy is worth, from logs of another one.

`evaluate` needs no simulator; `train` and `collect` do (the extra `policy`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from vestige.cli import output
from vestige.cli.bandits import Bandit

if TYPE_CHECKING:
    from vestige.core import Estimate
    from vestige.policy import Evaluation


@dataclass(frozen=True)
class Evaluate(output.SeededVerb):
    """What a policy is worth, from logs of another one: is the learnt model right where it can be checked, what does it
    say, what do the logs say without it, and a verdict.
    """

    logs: Annotated[Positional[Path], arg(metavar="LOGS")]
    """Logged transitions: .npz, .parquet or .csv (docs/evaluate_a_policy.md has the names)."""
    policy: Annotated[Path, arg(metavar="FILE")]
    """The policy to evaluate, as 'vestige policy train' or GaussianPolicy.save writes it."""
    behaviour: Annotated[Path | None, arg(metavar="FILE")] = None
    """The policy that ran, if there is a file of it; the logged actions are replayed in the model if not."""
    horizon: int = 100
    """Steps of the return."""
    discount: float = 1.0
    """The weight of each step relative to the one before."""
    rollouts: Literal["auto", "mean", "noise"] = "auto"
    """Simulate the model's means, or draw each state around them; auto takes what reproduces the logs."""
    trajectories: int = 1000
    """Trajectories to simulate, over all members."""
    members: int = 5
    """Networks of the dynamics."""
    steps: int = 3000
    """Training steps of the dynamics at most."""
    diagnostics: bool = False
    """Train classifiers that tell real transitions from simulated ones, and show what weights by them do (LFIW)."""
    classifiers: int = 5
    """So many of them."""
    ess: float = 0.1
    """The effective share of trajectories that tempering keeps."""
    cut: float = 0.01
    """Tempered weights take no log-ratio beyond what all but this share of the real rows have, at either end."""
    reward: Annotated[str | None, arg(metavar="ENV")] = None
    """Use the known reward function of an environment, such as HalfCheetah-v5; it is learned from the logs if not."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Write evaluation.json and value.svg, the estimates in one picture, into this folder."""

    def run(self) -> None:
        """Read, learn, simulate, weigh, print."""
        from vestige.core import checks
        from vestige.policy import GaussianPolicy, Logs, Settings, evaluate
        from vestige.policy.environments import REWARDS

        owner = "vestige policy evaluate"
        known = None if self.reward is None else REWARDS[checks.one_of(self.reward, REWARDS, "reward", owner)]
        if self.out is not None:
            require_folder(self.out, owner)
        policy, logs = GaussianPolicy.load(self.policy), Logs.read(self.logs)
        ran = None if self.behaviour is None else GaussianPolicy.load(self.behaviour)
        names = (
            "horizon",
            "discount",
            "rollouts",
            "trajectories",
            "members",
            "diagnostics",
            "classifiers",
            "ess",
            "cut",
        )
        options: dict[str, Any] = {name: getattr(self, name) for name in (*names, "seed")} | {"behaviour": ran}
        options |= {"reward": known, "settings": Settings(steps=self.steps)}
        with output.shares("reading") as reach:
            found = evaluate(logs, policy, on_progress=reach, **options)
        written = [] if self.out is None else write(self.out, found)
        title = f"{self.policy.name} evaluated from {self.logs.name}, {self.horizon} steps"
        said = [f"Written to {', '.join(map(str, written))}."] if written else []
        said = [*map(output.Caution, found.warnings), f"Verdict: {found.verdict}.", *said]
        tables = [table(found, title), *([diagnostics(found)] if self.diagnostics else [])]
        self.answer(found.to_json() | {"written": written}, *tables, *said)


@dataclass(frozen=True)
class Train(output.SeededVerb):
    """Train policies for a simulated environment with PPO; needs pip install 'vestige[policy]'.

    A training that was done before is read from the cache (VESTIGE_CACHE).
    """

    environment: Annotated[Positional[str], arg(metavar="ENV")]
    """A continuous environment by gymnasium's name, such as HalfCheetah-v5."""
    steps: tuple[int, ...] = (500_000,)
    """Steps of training, rounded up to whole rollouts; several numbers give a policy each, of one run."""
    episodes: int = 20
    """Episodes to measure each policy with."""
    horizon: int = 100
    """Steps of such an episode."""
    no_cache: bool = False
    """Train again, and keep nothing in the cache."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("policies")
    """Where ENV-STEPS.json goes, each with a .safetensors file beside it."""

    def run(self) -> None:
        """Train, measure, write."""
        from vestige.core import checks
        from vestige.policy.environments import collect, truth_of
        from vestige.policy.training import train, trained_steps

        require_folder(self.out, "vestige policy train")
        checks.whole(self.episodes, "episodes", "vestige policy train", low=2)
        checks.whole(self.horizon, "horizon", "vestige policy train", low=1)
        with output.shares(self.environment) as reach:
            trained = train(self.environment, self.steps, seed=self.seed, cached=not self.no_cache, on_progress=reach)
        rows = []
        for steps, policy in zip(self.steps, trained, strict=True):
            logs = collect(self.environment, policy, episodes=self.episodes, horizon=self.horizon, seed=self.seed)
            found = truth_of(logs, self.horizon)
            name = f"{self.environment.replace('/', '-').replace(':', '-')}-{steps}.json"
            rows.append((str(policy.save(self.out / name)), steps, trained_steps(steps), found.value, found.se))
        keys = ("file", "steps", "trained", "return", "se")
        note = (
            f"Trained: steps in whole rollouts. Mean return over the first {self.horizon} steps of {self.episodes} "
            "episodes, with its standard error."
        )
        shown = output.Table(f"policies for {self.environment}", keys, rows, note=note, alike="column")
        self.answer([dict(zip(keys, row, strict=True)) for row in rows], shown)


@dataclass(frozen=True)
class Collect(output.SeededVerb):
    """Log episodes of a policy in a simulated environment; needs pip install 'vestige[policy]'."""

    environment: Annotated[Positional[str], arg(metavar="ENV")]
    """A continuous environment by gymnasium's name, such as HalfCheetah-v5."""
    policy: Path
    """The policy, as 'vestige policy train' writes it."""
    episodes: int = 100
    """How many episodes."""
    horizon: int = 100
    """How many steps an episode has at most."""
    out: Annotated[Path, arg(metavar="LOGS")] = Path("logs.npz")
    """Where the logs go: .npz, .parquet or .csv."""

    def run(self) -> None:
        """Simulate and write."""
        from vestige.core import checks
        from vestige.policy.environments import collect, truth_of
        from vestige.policy.logs import ENDINGS
        from vestige.policy.policies import GaussianPolicy

        if self.out.suffix not in ENDINGS:  # before the work
            checks.refuse("out", "vestige policy collect", f"a name that ends in {', '.join(ENDINGS)}", self.out.name)
        require_folder(self.out.parent, "vestige policy collect")
        policy = GaussianPolicy.load(self.policy)
        options = {"episodes": self.episodes, "horizon": self.horizon, "seed": self.seed}
        with output.shares(self.environment) as reach:
            logs = collect(self.environment, policy, on_progress=reach, **options)
        found, written = truth_of(logs, self.horizon), logs.write(self.out)
        facts = {"file": written, "episodes": self.episodes, "transitions": len(logs)}
        self.answer(
            facts | {"return": found.value, "se": found.se},
            f"{len(logs)} transitions of {self.episodes} episodes written to {written}; mean return "
            f"{found.value:.4g} ({found.se:.2g}).",
        )


def require_folder(out: Path, owner: str) -> None:
    """Refuse, before the work, an `out` that cannot be a folder: a file stands in its place or above it."""
    place = next((at for at in (out, *out.parents) if at.exists()), None)
    if place is not None and not place.is_dir():
        from vestige.core import checks

        checks.refuse("out", owner, "a folder" if place == out else f"in a folder, here {out}", f"the file {place}")


@dataclass(frozen=True)
class PolicyVerb:
    """What a policy is worth, from logs of another one.

    'evaluate' needs the logs and the policy alone; 'bandit' is for single decisions with discrete actions and logged
    propensities. 'train' and 'collect' make both in a simulated environment; they need pip install 'vestige[policy]'.
    """

    action: OmitArgPrefixes[
        Annotated[Evaluate, subcommand("evaluate", prefix_name=False)]
        | Annotated[Bandit, subcommand("bandit", prefix_name=False)]
        | Annotated[Train, subcommand("train", prefix_name=False)]
        | Annotated[Collect, subcommand("collect", prefix_name=False)]
    ]

    def run(self) -> None:
        """Do it."""
        self.action.run()


def number(value: float | None) -> str:
    """A number as it stands in a cell, a dash where there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def table(found: Evaluation, title: str) -> output.Table:
    """The calibration first, then a row an estimate; an interval and a spread are never in one column."""
    from vestige.policy.evaluation import WORDS

    checked = found.calibration
    ran = "logged actions, replayed" if checked.replayed else "policy that ran, simulated"
    fits = "the gap is within its error" if checked.holds else "the model does not reproduce the logs"
    told = f"{fits}: {number(checked.gap.value)} ({number(checked.gap.std_error)})" if checked.gap.known else ""
    shown = {ran: checked.simulated.but(notes=(told or checked.gap.reason,))}
    shown |= {WORDS["logged"]: found.estimates["logged"]}
    shown |= {WORDS[name]: e for name, e in found.estimates.items() if name != "logged"}
    note = (
        f"Intervals at 95 %; a spread says how far resampling moves a value and promises nothing. Rollouts: "
        f"{found.report['rollouts']}. {found.outside:.1%} of the simulated steps lie beyond the logs."
    )
    columns = ("", "value", "interval", "spread", "ESS", "")
    return output.Table(title, columns, [_row(words, e) for words, e in shown.items()], note=note)


def _row(words: str, e: Estimate) -> tuple[str, ...]:
    """Value, interval or spread, effective sample size, and what it rests on."""
    ends, spread = (f"{number(e.low)} to {number(e.high)}", "-") if e.verdict == "ok" else ("-", number(e.std_error))
    said = "; ".join(filter(None, (e.reason, *e.notes)))
    return (words, number(e.value), ends, spread, number(e.ess), said)


def diagnostics(found: Evaluation) -> output.Table:
    """What LFIW's weights do."""
    from vestige.policy.evaluation import WORDS

    rows = [
        (WORDS[name], *map(number, (e.value, e.std_error, e.ess, e.details.get("pareto_k"), e.details.get("alpha"))))
        for name, e in found.diagnostics.items()
    ]
    note = "No estimates to go by. Where shuffled weights move the value as far, the weights know nothing."
    return output.Table(
        "diagnostics: weighted trajectories", ("", "value", "spread", "ESS", "Pareto k", "alpha"), rows, note=note
    )


def write(folder: Path, found: Evaluation) -> list[Path]:
    """The numbers and the picture; the numbers last, so that who finds them finds both."""
    import json

    from vestige import show as drawing
    from vestige import store
    from vestige.policy import picture

    drawn, numbers = folder / "value.svg", folder / "evaluation.json"
    drawing.save(picture(found), drawn)
    store.write_bytes(numbers, (json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n").encode())
    return [numbers, drawn]
