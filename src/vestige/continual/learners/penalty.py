"""The quadratic penalty that EWC, EWC++, PI and RWalk share: strength * sum_i w_i (theta_i - anchor_i)^2.

Its gradient is known, so it is added to the task's gradient after the backward pass, in memory that is asked for once;
autograd never sees it. State is a dict by parameter name: what is absent from the anchor is not pulled
at. Where a head grew, its new rows get zeros in every such dict (`fitted`): no importance, so that nothing pulls at
them either, and the rows of old outputs keep theirs.

**EWC**, elastic weight consolidation (Kirkpatrick et al. 2017), with a Fisher and an anchor for every past task.

    loss + lam / 2 * sum_k sum_i F_i^k (theta_i - theta_i^k)^2

The paper stores every F^k and theta^k. Their sum is one quadratic in theta: with A = sum F^k and B = sum F^k theta^k
its gradient is lam (A theta - B), so two vectors are kept whatever the number of tasks, and the penalty is the same.
Where A is zero B is zero too, and the anchor B / A of that weight does not matter.

`EWCHuszar` keeps the latest weights as the only anchor and sums the Fishers (Huszar 2018; Farquhar and Gal A.1, B.3):
the penalty that follows from Bayes' rule, in which older tasks are not counted twice.

The Fisher is `fisher_empirical` by default: exact, per sample, at the observed labels, over the outputs that trained.
The others (`fisher="true"`, `"predicted"`, at the likeliest label, `"batch"`) are options under their own names; they
differ by orders of magnitude.
`half_penalty=False` leaves the 1/2 out, and `normalise` scales each task's Fisher to [0, 1] before it is added, as
RWalk does.

**PI**, path integral, also called synaptic intelligence (Zenke et al. 2017).

    omega_i <- omega_i - g_i * (change of theta_i)            at every step, g the gradient of the task's loss alone
    Omega_i <- Omega_i + max(0, omega_i) / (D_i^2 + xi)       at a border, D_i the change of theta_i over the task
    loss + lam * sum_i Omega_i (theta_i - theta_i^{k-1})^2

The gradient leaves the pull out, as the sum is to tell where the task's own loss fell (`gradient="total"` takes the
pull along); `damping` is xi, 0.1 in the paper, 1e-3 in the code of RWalk's authors. A negative omega (a weight along
which the loss rose) counts as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.continual.learners.base import Info, Learner, padded
from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.core import rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Inputs, Labels, Task
from vestige.nets.fisher import fisher_batch, fisher_empirical, fisher_true, ways

Named = dict[str, Tensor]


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def copied(net: nn.Module) -> Named:
    """A copy of the parameters as they are now."""
    return {name: p.detach().clone() for name, p in trained(net).items()}


def zeros(net: nn.Module) -> Named:
    """Nothing, in the shape of the parameters."""
    return {name: torch.zeros_like(p) for name, p in trained(net).items()}


def fitted(values: Named, net: nn.Module) -> Named:
    """`values` in the shape of the parameters as they are now: zeros for rows that a grown head has got since."""
    shapes = {name: p.shape for name, p in trained(net).items()}
    return {name: padded(value, shapes[name]) for name, value in values.items()}


@torch.no_grad()
def pull_value(net: nn.Module, weight: Named, anchor: Named) -> float:
    """sum_i w_i (theta_i - anchor_i)^2."""
    here = trained(net)
    return sum(float((weight[n] * (here[n] - anchor[n]).square()).sum()) for n in anchor)


@torch.no_grad()
def add_pull(
    parameters: Mapping[str, nn.Parameter],
    weight: Named,
    anchor: Named,
    strength: float,
    scratch: Scratch,
    *,
    aside: bool = False,
) -> None:
    """Add the gradient of `strength` * sum_i w_i (theta_i - anchor_i)^2 to the gradients at hand.

    `aside` leaves the tensors that held them as they are: who follows the gradient of the loss alone has kept those.
    """
    if strength == 0 or not anchor:
        return
    held = {name: p for name, p in parameters.items() if name in anchor and p.grad is not None}
    here = list(held.values())
    gaps = scratch("pull", here)
    for name, p, gap in zip(held, here, gaps, strict=True):
        torch.sub(p, anchor[name], out=gap)
    weights = [weight[name] for name in held]
    if not aside:
        torch._foreach_addcmul_(at_hand(here), weights, gaps, 2 * strength)
        return
    for p, w, gap in zip(here, weights, gaps, strict=True):
        assert p.grad is not None
        p.grad = torch.addcmul(p.grad, w, gap, value=2 * strength, out=gap)


def at_hand(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of those that have one."""
    return [p.grad for p in parameters if p.grad is not None]


@torch.no_grad()
def gradients_of(net: nn.Module) -> Named:
    """A copy of the gradients at hand; zero where a parameter has none."""
    here = trained(net)
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in here.items()}


class Scratch:
    """Tensors that each step writes over, by use: asking for memory anew costs more than the sums."""

    def __init__(self) -> None:
        self.held: dict[str, list[Tensor]] = {}

    def __call__(self, use: str, like: Sequence[Tensor]) -> list[Tensor]:
        """One in the shape of each of `like`, with whatever was in it."""
        found = self.held.get(use, [])
        fits = [a.shape for a in found] == [b.shape for b in like]
        if not fits or any(a.device != b.device for a, b in zip(found, like, strict=True)):
            found = self.held[use] = [torch.empty_like(each, requires_grad=False) for each in like]
        return found


@torch.no_grad()
def unit_range(values: Named) -> Named:
    """All layers together shifted and scaled to [0, 1]; all zeros where nothing differs."""
    low = min(float(v.min()) for v in values.values())
    high = max(float(v.max()) for v in values.values())
    if high <= low:
        return {name: torch.zeros_like(v) for name, v in values.items()}
    return {name: (v - low) / (high - low) for name, v in values.items()}


NORMALISE = ("none", "joint", "layer")


def scaled(values: Named, normalise: str) -> Named:
    """Values as they are, or in [0, 1] over all layers together, or layer by layer."""
    if normalise == "none":
        return dict(values)
    if normalise == "joint":
        return unit_range(values)
    return {name: unit_range({name: value})[name] for name, value in values.items()}


@dataclass(frozen=True)
class PenaltyConfig(VanillaConfig):
    """`lam` weighs the penalty."""

    lam: float = option(0.1, low=0)


class Penalised(Vanilla):
    """Training under a quadratic penalty; what the weights of the penalty are is a method's own."""

    config: PenaltyConfig
    weight_: Named  # of each parameter, empty before the first task has ended
    anchor_: Named

    @cached_property
    def scratch(self) -> Scratch:
        """What each step writes over."""
        return Scratch()

    @property
    def strength(self) -> float:
        """What the penalty is multiplied by: lam."""
        return self.config.lam

    def begin_task(self, task: Task) -> None:
        """Nothing pulls at outputs that are new."""
        super().begin_task(task)
        self.weight_, self.anchor_ = fitted(self.weight_, self.net), fitted(self.anchor_, self.net)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step down the loss and the penalty."""
        info = self.backward(self.loss(x, y))
        self.penalised_step()
        return info

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of all parameters, in the order of the network and of the optimiser, which a head that grows keeps."""
        return tuple(name for name, _ in self.net.named_parameters())

    @torch.no_grad()
    def penalised_step(self, path: Named | None = None, *, total: bool = False) -> None:
        """Add the gradient of the penalty, and step.

        To `path` is added how far the loss (`total`: with the penalty) fell along each weight, to first order:
        path_i <- path_i - g_i * (change of theta_i).
        """
        assert self.optimizer is not None, "begin_task makes the optimiser"
        every = zip(self.names, self.optimizer.param_groups[0]["params"], strict=True)
        here = {name: p for name, p in every if p.grad is not None}
        moving: list[Tensor] = list(here.values())
        gradients = at_hand(moving)
        add_pull(here, self.weight_, self.anchor_, self.strength, self.scratch, aside=path is not None)
        if path is None:
            self.optimizer.step()
            return
        back = self.scratch("back", moving)
        torch._foreach_copy_(back, moving)
        self.optimizer.step()
        torch._foreach_sub_(back, moving)  # the change, its sign turned
        torch._foreach_addcmul_([path[name] for name in here], at_hand(moving) if total else gradients, back)

    def penalty(self) -> float:
        """The penalty at this moment, up to a constant that does not depend on the weights."""
        return self.strength * pull_value(self.net, self.weight_, self.anchor_)


@dataclass(frozen=True)
class EWCConfig(PenaltyConfig):
    """`lam` weighs the penalty; `fisher` says which Fisher.

    `fisher_batch_size` bounds memory and changes nothing (None: what the network takes at once), except for "batch",
    which is defined by it and needs a number. `fisher_samples` of the task, drawn by the seed, stand for all (None: all
    of them).
    """

    lam: float = option(100.0, low=0)
    half_penalty: bool = option(True)
    fisher: str = option("empirical", among=("empirical", "true", "predicted", "batch"))
    fisher_batch_size: int | None = option(None, low=1)
    fisher_samples: int | None = option(None, low=1)
    normalise: str = option("none", among=NORMALISE)


def fisher_notes(learner: Learner, fisher: str) -> dict[str, Any]:
    """Which layers of a user's own network have a Fisher in closed form, and which one of per-sample gradients."""
    if learner.brought is None or fisher == "batch":
        return {}
    return {"fisher": ways(learner.net, torch.zeros(2, *learner.spec.input_shape))}


class EWC(Penalised):
    """Every past task pulls the weights back to where it left them, each weight by its Fisher."""

    config: EWCConfig

    def set_up(self) -> None:
        """The Fisher that is defined by a batch needs its size."""
        if self.config.fisher == "batch" and self.config.fisher_batch_size is None:
            refuse("fisher_batch_size", type(self).__name__, "a whole number where 'fisher' is 'batch'", None)

    @property
    def strength(self) -> float:
        """lam / 2, or lam."""
        return self.config.lam / 2 if self.config.half_penalty else self.config.lam

    def fisher_of(self, task: Task) -> Named:
        """That of the task that is ending, at the weights of now, over the outputs that it trains, scaled."""
        c, net, outputs, x, y = self.config, self.net, self.outputs_, task.x, task.y
        rows = c.fisher_batch_size or net.rows_at_once
        if c.fisher_samples is not None and c.fisher_samples < len(y):
            generator = rng.fork(self.seed, "fisher", task.info.index)
            drawn = torch.randperm(len(y), generator=generator)[: c.fisher_samples]
            x, y = x[drawn], y[drawn]

        def summed(logits: Float[Tensor, "n k"], y: Labels) -> Float[Tensor, ""]:
            return outputs.loss(logits, y) * len(y)

        def likeliest(logits: Float[Tensor, "n k"], _: Labels) -> Float[Tensor, ""]:
            return -logits[:, list(outputs.outputs)].log_softmax(1).max(1).values.sum()

        if c.fisher == "empirical":
            found = fisher_empirical(net, x, y, loss=summed, rows=rows)
        elif c.fisher == "true":
            found = fisher_true(net, x, outputs=list(outputs.outputs), rows=rows)
        elif c.fisher == "predicted":
            found = fisher_empirical(net, x, y, loss=likeliest, rows=rows)
        else:
            found = zeros(net)
            for part_x, part_y in zip(x.split(rows), y.split(rows), strict=True):
                for name, value in fisher_batch(net, part_x, part_y, loss=summed).items():
                    found[name] += value * (len(part_y) / len(y))
        return scaled(found, c.normalise)

    def notes(self) -> dict[str, Any]:
        """And how the Fisher of a user's own network is had."""
        return super().notes() | fisher_notes(self, self.config.fisher)

    def end_task(self, task: Task) -> None:
        """Add this task's quadratic to those before it."""
        super().end_task(task)
        self.consolidate(task)

    def consolidate(self, task: Task) -> None:
        """The sum of all quadratics: its weight is A, its anchor B / A."""
        fisher, here = self.fisher_of(task), copied(self.net)
        if not self.weight_:
            self.weight_, self.anchor_ = fisher, here
            return
        for name, new in fisher.items():
            total = self.weight_[name] + new
            pulled = self.weight_[name] * self.anchor_[name] + new * here[name]
            self.anchor_[name] = torch.where(total > 0, pulled / total, here[name])
            self.weight_[name] = total


class EWCHuszar(EWC):
    """One anchor, the latest weights, under the sum of all Fishers."""

    def consolidate(self, task: Task) -> None:
        """Add the Fisher, move the anchor."""
        self.weight_ = {name: value + self.weight_.get(name, 0) for name, value in self.fisher_of(task).items()}
        self.anchor_ = copied(self.net)


GRADIENTS = ("task", "total")


@dataclass(frozen=True)
class PIConfig(PenaltyConfig):
    """`lam` weighs the penalty (c in the paper); `damping` bounds the weight of what did not move. 0.1, as printed."""

    damping: float = option(0.1, above=0)
    gradient: str = option("task", among=GRADIENTS)


class PI(Penalised):
    """Weights along which past losses fell are held."""

    config: PIConfig
    path_: Named  # omega
    start_: Named

    def begin_task(self, task: Task) -> None:
        """A new path starts here."""
        super().begin_task(task)
        self.path_, self.start_ = zeros(self.net), copied(self.net)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step, and what it did to the task's loss, weight by weight."""
        info = self.backward(self.loss(x, y))
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
