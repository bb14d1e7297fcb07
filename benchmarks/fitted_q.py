"""A peer for `benchmarks.policy`: fitted-Q evaluation of d3rlpy 2.8.1 on the same logs, in `.venv-fqe`, made on demand.

d3rlpy holds gymnasium at 1.0.0, with which `vestige[policy]` does not run, so it has an environment of its own with the
torch and numpy of constraints.txt, and this module starts itself again there: what goes in are the logs and a policy
as plain arrays, what comes back is one line of JSON.

Settings: the package's own (a network of 256 and 256 units, Adam at 1e-4, batches of 100, a target network that is
renewed every 100 steps), but for what makes it speak of the quantity that is asked for. The return is over a fixed
number of steps without a discount: gamma is 1, the step stands beside the observation as a share of the horizon, and
an episode ends at the horizon. The package asks its policy for the best action; here the answer is a draw of the policy
to evaluate, which is what a stochastic one would do. The package has no number of gradient steps of its own: its
documentation takes 100 000, here there are `STEPS`, a tenth, because of what they cost; that is one
renewal of the target a step of a horizon of 100. The value is the mean of Q over the first observations of the logs,
with `DRAWS` actions each.

    python -m benchmarks.fitted_q LOGS.npz POLICY.npz HORIZON SEED      # inside of .venv-fqe

References: Le, Voloshin and Yue, "Batch policy learning under constraints", ICML 2019; Seno and Imai, "d3rlpy: an
offline deep reinforcement learning library", JMLR 2022.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.environments import Environment

if TYPE_CHECKING:
    from vestige.policy import GaussianPolicy

NAME = "d3rlpy FQE"
ENVIRONMENT = Environment(name=".venv-fqe", needed=["torch==2.13.0", "numpy==2.4.6", "d3rlpy==2.8.1"])
STEPS, DRAWS = 10_000, 16
SECONDS = 70.0  # of a cell, on one thread
LAYERS = ("weights", "biases")
ROWS = ("log_std", "shift", "scale", "low", "high")


def value(logs: Path, policy: GaussianPolicy, horizon: int, seed: int) -> dict[str, float]:
    """The value that the peer finds, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        np.savez(file, allow_pickle=False, **arrays(policy))
        given = [str(logs), str(file), str(horizon), str(seed)]
        started = ENVIRONMENT.start("benchmarks.fitted_q", given, stdout=subprocess.PIPE)
        said, _ = started.communicate() if started is not None else ("", "")
    if started is None or started.returncode:
        raise RuntimeError("the peer could not be run: its own words are above")
    return json.loads(said.splitlines()[-1])


def arrays(policy: GaussianPolicy) -> dict[str, np.ndarray]:
    """The numbers of a policy of tanh layers, by name."""
    if policy.activation != "tanh":
        raise ValueError("the peer is asked with tanh policies alone")
    found = {f"{kind}_{i}": part.numpy() for kind in LAYERS for i, part in enumerate(getattr(policy, kind))}
    found |= {name: part.numpy() for name in ROWS if (part := getattr(policy, name)) is not None}
    return found | ({} if policy.clip is None else {"clip": np.array(policy.clip)})


class Drawn:
    """A policy of plain arrays that draws its actions; it drops the last number of an observation, the step."""

    def __init__(self, held: dict[str, np.ndarray], seed: int) -> None:
        import torch

        layers = sum(name.startswith("weights_") for name in held)
        self.held = {name: torch.from_numpy(np.asarray(part, dtype=np.float32)) for name, part in held.items()}
        self.layers = [(self.held[f"weights_{i}"], self.held[f"biases_{i}"]) for i in range(layers)]
        self.stream = torch.Generator().manual_seed(seed)

    def predict_best_action(self, observations: Any) -> Any:
        """An action for each observation."""
        import torch

        h = observations[:, :-1]
        if "shift" in self.held:
            h = (h - self.held["shift"]) / self.held["scale"]
        if "clip" in self.held:
            h = h.clamp(-self.held["clip"], self.held["clip"])
        for i, (weight, bias) in enumerate(self.layers):
            h = torch.nn.functional.linear(h, weight, bias)
            h = torch.tanh(h) if i + 1 < len(self.layers) else h
        draw = h + self.held["log_std"].exp() * torch.randn(h.shape, generator=self.stream)
        return draw.clamp(self.held["low"], self.held["high"]) if "low" in self.held else draw


class Algorithm:
    """What the package asks an algorithm for: its `impl`, which has the actions."""

    def __init__(self, impl: Drawn) -> None:
        self.impl = impl


def timed(logs: dict[str, np.ndarray], horizon: int) -> dict[str, np.ndarray]:
    """The first `horizon` steps of each episode as the package takes them, the step beside the observation."""
    episodes = logs["episodes"]
    first = np.flatnonzero(np.r_[True, episodes[1:] != episodes[:-1]])
    step = np.arange(len(episodes)) - first[np.cumsum(np.r_[False, episodes[1:] != episodes[:-1]])]
    kept = step < horizon
    seen = np.concatenate([logs["observations"], step[:, None] / horizon], 1)[kept].astype(np.float32)
    last = np.r_[episodes[kept][1:] != episodes[kept][:-1], True]
    return {
        "observations": seen,
        "actions": logs["actions"][kept].astype(np.float32),
        "rewards": logs["rewards"][kept].astype(np.float32),
        "terminals": last.astype(np.float32),
    }


def main(given: list[str]) -> None:
    """Fit and print; the package's own words go to stderr."""
    logs_file, policy_file, horizon, seed = given[0], given[1], int(given[2]), int(given[3])
    spoken, sys.stdout = sys.stdout, sys.stderr
    import d3rlpy
    import torch
    from d3rlpy.logging import NoopAdapterFactory

    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    with np.load(logs_file, allow_pickle=False) as file:
        data = timed({name: file[name] for name in ("observations", "actions", "rewards", "episodes")}, horizon)
    with np.load(policy_file, allow_pickle=False) as file:
        policy = Drawn({name: file[name] for name in file.files}, seed)
    begun = time.process_time()
    dataset = d3rlpy.dataset.MDPDataset(**data)
    fitted = d3rlpy.ope.FQE(algo=Algorithm(policy), config=d3rlpy.ope.FQEConfig(gamma=1.0))
    options = {"logger_adapter": NoopAdapterFactory(), "show_progress": False}
    fitted.fit(dataset, n_steps=STEPS, n_steps_per_epoch=STEPS, **options)
    starts = data["observations"][data["observations"][:, -1] == 0]
    found = []
    for _ in range(DRAWS):
        actions = policy.predict_best_action(torch.from_numpy(starts)).numpy()
        found.append(float(fitted.predict_value(starts, actions).mean()))
    print(json.dumps({"value": float(np.mean(found)), "cpu": time.process_time() - begun}), file=spoken)


if __name__ == "__main__":
    main(sys.argv[1:])
