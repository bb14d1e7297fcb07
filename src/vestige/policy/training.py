"""Policies trained with PPO (Schulman et al. 2017) by stable-baselines3, as in LFIW App. C.5, and kept by content.

    behaviour, evaluated = train("HalfCheetah-v5", (500_000, 1_000_000), seed=0)

One run gives a policy at each of several numbers of steps; nothing decays over the run, so the policy at n steps is
the one that a run of n steps would have ended with. What comes out is a `GaussianPolicy` with the observation's running
mean and deviation built in; neither stable-baselines3's files nor its pickle are used. The key of an entry is a hash of
environment, settings, seed, steps and versions: the same training is done once, and another one never found in its
place. The same seed gives the same bits on one torch thread.

The network is the paper's (two tanh layers of 64, a deviation that is the same in every state). The other settings are
those of OpenAI's baselines for MuJoCo, which the paper used. Deviations: 8 environments of 256 steps instead of one of
2048 (the same 2048 steps between updates); the rate does not fall to zero, or a policy at half of the steps would
depend on where the run ends; the paper's two policies differ in settings that it does not name, ours in steps alone.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vestige import store
from vestige.core import StoreError, VestigeWarning, checks, rng
from vestige.core.checks import declared, option
from vestige.data.download import cache_folder
from vestige.policy.environments import describe, make_one, package
from vestige.policy.policies import GaussianPolicy

# Raised when this file trains otherwise than before: entries of the cache are then no longer found.
TRAINING = 1
OWNER = "policy.train"
TAKES_PART = ("gymnasium", "mujoco", "stable-baselines3", "torch", "numpy")


@dataclass(frozen=True)
class PPO:
    """How a policy is trained."""

    hidden: tuple[int, ...] = option((64, 64), low=1)
    environments: int = option(8, low=1)
    rollout: int = option(256, low=1)  # steps of each environment between updates
    batch_size: int = option(64, low=1)
    epochs: int = option(10, low=1)
    learning_rate: float = option(3e-4, above=0)
    discount: float = option(0.99, low=0, high=1)
    smoothing: float = option(0.95, low=0, high=1)  # lambda of the advantage
    clip: float = option(0.2, above=0)  # of the ratio
    observation_clip: float = option(10.0, above=0)  # of the standardised observation, in deviations
    gradient_clip: float = option(0.5, above=0)

    def __post_init__(self) -> None:
        declared(self)
        checks.whole(self.rollout * self.environments, "rollout", "PPO", low=2)


def train(
    name: str,
    steps: Sequence[int],
    *,
    settings: PPO | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    cached: bool = True,
    on_progress: Callable[[float, str], None] | None = None,
) -> list[GaussianPolicy]:
    """The policy for environment `name` after each number of `steps`, which are rounded up to whole rollouts.

    From the cache in `folder` if all of them are there, without one `policies` in the folder where downloads are kept:
    VESTIGE_CACHE, or the system's cache folder of this user. `on_progress` hears how much is done, with a few words.
    """
    settings = settings or PPO()
    for one in steps:
        checks.whole(one, "steps", OWNER, low=1)
    if not steps or list(steps) != sorted(set(steps)):
        checks.refuse("steps", OWNER, "rising numbers, one or more", list(steps))
    checks.whole(seed, "seed", OWNER, low=0)
    name = describe(name).name  # refused before any work
    place = Path(folder) if folder is not None else cache_folder() / "policies"
    paths = [_entry(place, key_of(name, one, settings, seed)) for one in steps]
    found = [_read(path) for path in paths] if cached else [None]
    if None not in found:
        return [policy for policy in found if policy is not None]
    trained = _learn(name, steps, settings, seed, on_progress or (lambda share, words: None))
    for path, policy in zip(paths, trained, strict=True):
        if cached:
            _write(path, policy)
    return trained


def trained_steps(steps: int, settings: PPO | None = None) -> int:
    """The steps that a policy asked for at `steps` has really learnt from: whole rollouts of all environments."""
    settings = settings or PPO()
    rollout = settings.rollout * settings.environments
    return -(-steps // rollout) * rollout


def key_of(name: str, steps: int, settings: PPO, seed: int) -> str:
    """Hash of all that decides what comes out."""
    versions = {one: _version(one) for one in TAKES_PART}
    asked = {"environment": name, "steps": steps, "seed": seed, "settings": dataclasses.asdict(settings)}
    return store.content_id(asked | {"training": TRAINING, "versions": versions})


def _learn(
    name: str, steps: Sequence[int], settings: PPO, seed: int, on_progress: Callable[[float, str], None]
) -> list[GaussianPolicy]:
    """The policy each time that the next number of steps was reached."""
    algorithms, vectors = package("stable_baselines3"), package("stable_baselines3.common.vec_env")
    own = rng.child_seed(seed, "ppo", name) % 2**31  # as large as numpy's old generator takes
    with _global_randomness_lent(seed):
        plain = vectors.DummyVecEnv([lambda: make_one(name)] * settings.environments)
        environments = vectors.VecNormalize(plain, gamma=settings.discount, clip_obs=settings.observation_clip)
        try:
            model = algorithms.PPO(
                "MlpPolicy",
                environments,
                n_steps=settings.rollout,
                batch_size=settings.batch_size,
                n_epochs=settings.epochs,
                learning_rate=settings.learning_rate,
                gamma=settings.discount,
                gae_lambda=settings.smoothing,
                clip_range=settings.clip,
                max_grad_norm=settings.gradient_clip,
                policy_kwargs={"net_arch": list(settings.hidden), "activation_fn": torch.nn.Tanh},
                seed=own,
                device="cpu",
            )

            def on_step(variables: dict[str, Any], _: dict[str, Any]) -> bool:
                done = model.num_timesteps
                if done % (settings.rollout * settings.environments) == 0:
                    on_progress(min(done / steps[-1], 1.0), f"{name}: {done} steps of training")
                return True

            found = []
            for more in steps:
                left = more - model.num_timesteps
                if left > 0:
                    model.learn(left, callback=on_step, reset_num_timesteps=model.num_timesteps == 0)
                found.append(_as_policy(model, environments))
            return found
        finally:
            environments.close()


def _as_policy(model: Any, environments: Any) -> GaussianPolicy:  # noqa: ANN401 - stable-baselines3's
    """The network of `model` and the standardisation before it, as plain numbers."""
    net, seen, space = model.policy, environments.obs_rms, environments.action_space
    layers = [layer for layer in net.mlp_extractor.policy_net if isinstance(layer, torch.nn.Linear)]
    layers.append(net.action_net)
    return GaussianPolicy(
        tuple(layer.weight.detach().clone() for layer in layers),
        tuple(layer.bias.detach().clone() for layer in layers),
        net.log_std.detach().clone(),
        shift=torch.from_numpy(seen.mean).float(),
        scale=torch.from_numpy(np.sqrt(seen.var + environments.epsilon)).float(),
        clip=environments.clip_obs,
        low=torch.from_numpy(space.low).float(),
        high=torch.from_numpy(space.high).float(),
    )


@contextmanager
def _global_randomness_lent(seed: int) -> Iterator[None]:
    """stable-baselines3 draws from every global generator there is: afterwards they are as they were before."""
    python, old = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with rng.guard(seed, "ppo"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(old)  # noqa: NPY002


def _entry(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"


def _read(path: Path) -> GaussianPolicy | None:
    """The entry at `path`; a damaged one counts as absent, and is written over."""
    try:
        return GaussianPolicy.load(path) if path.is_file() else None
    except StoreError:
        return None


def _write(path: Path, policy: GaussianPolicy) -> None:
    try:
        policy.save(path)
    except OSError as error:
        warnings.warn(f"A policy could not be cached in {path.parent}: {error}.", VestigeWarning, stacklevel=3)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # mujoco, where the environment does without
        return None
