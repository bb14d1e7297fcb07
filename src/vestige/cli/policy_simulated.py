"""`vestige policy train ENV` and `vestige policy collect ENV`: the verbs that need a simulator (the extra `policy`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vestige.cli import output


@dataclass(frozen=True)
class Train:
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
    seed: int = 0
    """The same seed gives the same policies."""
    no_cache: bool = False
    """Train again, and keep nothing in the cache."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("policies")
    """Where ENV-STEPS.json goes, each with a .safetensors file beside it."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Train, measure, write."""
        from vestige.core import checks
        from vestige.policy.collect import collect, truth_of
        from vestige.policy.training import train, trained_steps

        require_folder(self.out, "vestige policy train")
        checks.whole(self.episodes, "episodes", "vestige policy train", low=2)
        checks.whole(self.horizon, "horizon", "vestige policy train", low=1)
        with output.progress(self.environment, 100) as advance:
            hear = _heard(advance)
            trained = train(self.environment, self.steps, seed=self.seed, cached=not self.no_cache, tell=hear)
        rows = []
        for steps, policy in zip(self.steps, trained, strict=True):
            logs = collect(self.environment, policy, episodes=self.episodes, horizon=self.horizon, seed=self.seed)
            found = truth_of(logs, self.horizon)
            name = f"{self.environment.replace('/', '-').replace(':', '-')}-{steps}.json"
            rows.append((str(policy.save(self.out / name)), steps, trained_steps(steps), found.value, found.se))
        keys = ("file", "steps", "trained", "return", "se")
        if self.json:
            output.document([dict(zip(keys, row, strict=True)) for row in rows])
            return
        title = f"policies for {self.environment}"
        note = (
            f"Trained: steps in whole rollouts. Mean return over the first {self.horizon} steps of {self.episodes} "
            "episodes, with its standard error."
        )
        output.table(output.Table(title, keys, rows, note=note, alike="column"))


@dataclass(frozen=True)
class Collect:
    """Log episodes of a policy in a simulated environment; needs pip install 'vestige[policy]'."""

    environment: Annotated[Positional[str], arg(metavar="ENV")]
    """A continuous environment by gymnasium's name, such as HalfCheetah-v5."""
    policy: Path
    """The policy, as 'vestige policy train' writes it."""
    episodes: int = 100
    """How many episodes."""
    horizon: int = 100
    """How many steps an episode has at most."""
    seed: int = 0
    """The same seed gives the same episodes."""
    out: Annotated[Path, arg(metavar="LOGS")] = Path("logs.npz")
    """Where the logs go: .npz, .parquet or .csv."""
    json: bool = False
    """Print JSON instead of words."""

    def run(self) -> None:
        """Simulate and write."""
        from vestige.core import checks
        from vestige.policy.collect import collect, truth_of
        from vestige.policy.log_files import ENDINGS
        from vestige.policy.policies import GaussianPolicy

        if self.out.suffix not in ENDINGS:  # before the work
            checks.refuse("out", "vestige policy collect", f"a name that ends in {', '.join(ENDINGS)}", self.out.name)
        require_folder(self.out.parent, "vestige policy collect")
        policy = GaussianPolicy.load(self.policy)
        with output.progress(self.environment, 100) as advance:
            logs = collect(
                self.environment,
                policy,
                episodes=self.episodes,
                horizon=self.horizon,
                seed=self.seed,
                tell=_heard(advance),
            )
        found, written = truth_of(logs, self.horizon), logs.write(self.out)
        if self.json:
            facts = {"file": str(written), "episodes": self.episodes, "transitions": len(logs)}
            output.document(facts | {"return": found.value, "se": found.se})
            return
        output.say(
            f"{len(logs)} transitions of {self.episodes} episodes written to {written}; mean return "
            f"{found.value:.4g} ({found.se:.2g})."
        )


def require_folder(out: Path, owner: str) -> None:
    """Refuse, before the work, an `out` that cannot be a folder: a file stands in its place or above it."""
    place = next((at for at in (out, *out.parents) if at.exists()), None)
    if place is not None and not place.is_dir():
        from vestige.core import checks

        checks.refuse("out", owner, "a folder" if place == out else f"in a folder, here {out}", f"the file {place}")


def _heard(advance: Callable[..., None]) -> Callable[[float, str], None]:
    """What moves a bar of 100 by the shares that it is told."""
    at = 0

    def hear(share: float, words: str) -> None:
        nonlocal at
        now = round(100 * share)
        advance(now - at, words)
        at = now

    return hear
