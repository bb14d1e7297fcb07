"""Path integral, also called synaptic intelligence (Zenke et al. 2017).

    omega_i <- omega_i - g_i * (change of theta_i)            at every step, g the gradient of the task's loss alone
    Omega_i <- Omega_i + max(0, omega_i) / (D_i^2 + xi)       at a border, D_i the change of theta_i over the task
    loss + lam * sum_i Omega_i (theta_i - theta_i^{k-1})^2

The gradient leaves the pull out, as the sum is to tell where the task's own loss fell (`gradient="total"` takes the
pull along); `damping` is xi, 0.1 in the paper, 1e-3 in the code of RWalk's authors. A negative omega (a weight along
which the loss rose) counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Outputs, Spec, TrainConfig
from vestige.continual.learners.pull import (
    Named,
    add_fall,
    add_pull,
    copied,
    fitted,
    gradients_of,
    prefixed,
    pull_value,
    stripped,
    zeros,
)
from vestige.continual.learners.vanilla import Vanilla
from vestige.core.checks import number, one_of
from vestige.data.task import Task

GRADIENTS = ("task", "total")


@dataclass(frozen=True)
class PIConfig(TrainConfig):
    """`lam` weighs the pull (c in the paper); `damping` keeps a weight that did not move from counting without end."""

    lam: float = 0.1
    damping: float = 0.1
    gradient: str = "task"


class PI(Vanilla):
    """Weights along which past losses fell are held."""

    config: PIConfig

    def __init__(self, spec: Spec, config: PIConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner = type(self).__name__
        number(self.config.lam, "lam", owner, low=0)
        number(self.config.damping, "damping", owner, low=0, open_low=True)
        one_of(self.config.gradient, GRADIENTS, "gradient", owner)
        self.path: Named = zeros(self.net)  # omega
        self.start: Named = copied(self.net)
        self.weight: Named = {}  # Omega, empty before the first task has ended
        self.anchor: Named = {}

    @classmethod
    def default_config(cls) -> PIConfig:
        """c = 0.1, xi = 0.1, as in the authors' experiments."""
        return PIConfig()

    def begin_task(self, task: Task) -> None:
        """A new path starts here."""
        super().begin_task(task)
        self.weight, self.anchor = fitted(self.weight, self.net), fitted(self.anchor, self.net)
        self.path, self.start = zeros(self.net), copied(self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step, and what it did to the task's loss, weight by weight."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        # Copies, since the pull is about to be added to the gradients and the step to move the weights.
        gradient, before = gradients_of(self.net), copied(self.net)
        add_pull(self.net, self.weight, self.anchor, self.config.lam)
        if self.config.gradient == "total":
            gradient = gradients_of(self.net)
        self.optimizer.step()
        add_fall(self.path, gradient, self.net, before)
        return Info(loss.detach())

    def end_task(self, task: Task) -> None:
        """Turn the path into importance."""
        here = copied(self.net)
        for name, path in self.path.items():
            far = (here[name] - self.start[name]).square() + self.config.damping
            self.weight[name] = self.weight.get(name, 0) + path.clamp_min(0) / far
        self.anchor = here

    def penalty(self) -> float:
        """The pull at this moment."""
        return self.config.lam * pull_value(self.net, self.weight, self.anchor)

    def method_state(self) -> dict[str, Tensor]:
        """The path so far, where it began, and the pull."""
        named = prefixed("weight", self.weight) | prefixed("anchor", self.anchor)
        return super().method_state() | named | prefixed("path", self.path) | prefixed("start", self.start)

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        self.outputs = Outputs(state["outputs"].tolist(), self.spec.n_outputs)
        self.weight, self.anchor = stripped("weight", state), stripped("anchor", state)
        self.path, self.start = stripped("path", state), stripped("start", state)
