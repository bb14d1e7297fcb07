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

from vestige.continual.learners.base import Info, Spec
from vestige.continual.learners.penalty import Named, Penalised, copied, zeros
from vestige.continual.learners.vanilla import VanillaConfig
from vestige.core.checks import option
from vestige.data.stream import Task

GRADIENTS = ("task", "total")


@dataclass(frozen=True)
class PIConfig(VanillaConfig):
    """`lam` weighs the penalty (c in the paper); `damping` bounds the weight of what did not move. 0.1, as printed."""

    lam: float = option(0.1, low=0)
    damping: float = option(0.1, above=0)
    gradient: str = option("task", among=GRADIENTS)


class PI(Penalised):
    """Weights along which past losses fell are held."""

    config: PIConfig
    path_: Named  # omega
    start_: Named

    def __init__(self, spec: Spec, config: PIConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.path_, self.start_ = zeros(self.net), copied(self.net)

    @property
    def strength(self) -> float:
        """lam."""
        return self.config.lam

    def begin_task(self, task: Task) -> None:
        """A new path starts here."""
        super().begin_task(task)
        self.path_, self.start_ = zeros(self.net), copied(self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step, and what it did to the task's loss, weight by weight."""
        info = self.backward(x, y)
        self.penalised_step(self.path_, total=self.config.gradient == "total")
        return info

    def end_task(self, task: Task) -> None:
        """Turn the path into importance."""
        super().end_task(task)
        here = copied(self.net)
        for name, path in self.path_.items():
            far = (here[name] - self.start_[name]).square() + self.config.damping
            self.weight_[name] = self.weight_.get(name, 0) + path.clamp_min(0) / far
        self.anchor_ = here
