"""The stack's networks: phi . a + MLP(z) trained jointly, every fold and every weight decay in one batched product.

The quadratic part and the network start at zero and move together (a network trained on the residual of a fitted
quadratic does worse). Adam with warm-up and cosine; the decay is decoupled (Loshchilov and Hutter) and falls on the
network's last layer alone (on every layer it kills the network while p and q are near, and a warm start never revives
it); predictions come from an exponential moving average of the parameters. Each batch holds as many rows of p as of q,
so the logit is log p/q. Sample weights become systematic draws, once an epoch: with equal weights every
row comes up once, with unequal ones no batch is spent on rows that hardly count.

The gradient is written out, for all folds and decays at once, which spares half of the time that autograd takes at this
size; batches and steps are those of `loop`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.nets import BatchedMLP
from vestige.ratios.stack.loop import FlatAdam, batches

ADAM_SECOND = 0.999
ROWS_AT_ONCE = 4096  # of a prediction


@dataclass(frozen=True)
class StackSchedule:
    """How the networks are trained; `average` is the decay of the moving average, `warm_up` a share of the steps."""

    steps: int
    batch_size: int
    learning_rate: float
    warm_up: float
    average: float
    decays: tuple[float, ...]

    def rate_at(self, step: int) -> float:
        """Linear warm-up times cosine."""
        warm = max(1, round(self.warm_up * self.steps))
        return self.learning_rate * min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass(frozen=True)
class JointNets:
    """`decays x folds` models phi . a + MLP(z), folds innermost; z are the columns of phi after the constant."""

    linear: Float[Tensor, "members m 1"]
    weights: list[Tensor]  # of the MLP's layers, each (members, in, out)
    biases: list[Tensor]  # each (members, 1, out)

    @classmethod
    def zero(cls, members: int, m: int, sizes: Sequence[int], *, generator: torch.Generator) -> JointNets:
        """Models that all say log-ratio 0."""
        mlp = BatchedMLP.initial(members, sizes, generator=generator, zero_last=True)
        layers = ([t.detach() for t in part] for part in (mlp.weights, mlp.biases))
        return cls(torch.zeros(members, m, 1), *layers)

    def tensors(self) -> list[Tensor]:
        """Every parameter, the linear part first."""
        return [self.linear, *self.weights, *self.biases]

    def pull_towards(self, other: JointNets, share: float) -> None:
        """Move every parameter by `share` of the way to that of `other`, in place."""
        with torch.no_grad():
            for own, old in zip(self.tensors(), other.tensors(), strict=True):
                own.lerp_(old, share)

    def predict(self, phi: Float[Tensor, "n m"]) -> Float[Tensor, "members n"]:
        """Logits of every member, in float64 so that a row's value does not depend on the rows beside it."""
        exact = JointNets(self.linear.double(), [w.double() for w in self.weights], [b.double() for b in self.biases])
        wide = [part.expand(len(self.linear), -1, -1) for part in phi.double().split(ROWS_AT_ONCE)]
        return torch.cat([torch.bmm(part, exact.linear) + exact.layers(part)[-1] for part in wide], 1)[:, :, 0]

    def layers(self, phi: Float[Tensor, "members n m"]) -> list[Tensor]:
        """What the MLP's layers take in, and its output last."""
        seen = [phi[:, :, 1 : 1 + self.weights[0].shape[1]]]  # z, of phi = [1, z, products]
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            seen.append(torch.baddbmm(b, seen[-1], w).relu_())
        return [*seen, torch.baddbmm(self.biases[-1], seen[-1], self.weights[-1])]


def write_gradient(
    nets: JointNets, phi: Float[Tensor, "members n m"], sign: Float[Tensor, " n"], into: list[Tensor]
) -> None:
    """The gradient of each member's mean softplus(-s f), written into tensors shaped as `nets.tensors()`."""
    weights = nets.weights
    *seen, out = nets.layers(phi)
    f = out.baddbmm_(phi, nets.linear)
    s = sign[:, None]
    back = torch.sigmoid_(f * -s).mul_(-s / len(sign))  # d softplus(-s f) / df
    depth = len(weights)
    torch.bmm(phi.mT, back, out=into[0])
    for i in range(depth - 1, -1, -1):
        torch.bmm(seen[i].mT, back, out=into[1 + i])
        torch.sum(back, 1, keepdim=True, out=into[1 + depth + i])
        if i:
            back = torch.bmm(back, weights[i].mT).mul_(seen[i] > 0)


def train(
    nets: JointNets,
    phi: Float[Tensor, "n m"],
    n_p: int,
    weights: Float[Tensor, "folds n"],
    schedule: StackSchedule,
    *,
    generator: torch.Generator,
) -> None:
    """Train in place on rows of p (the first `n_p`) and of q, each fold under its own weights."""
    with torch.no_grad():
        phi, batch = phi.float(), schedule.batch_size
        folds, copies = len(weights), len(schedule.decays)
        tensors = nets.tensors()
        decay = torch.tensor(schedule.decays).repeat_interleave(folds)
        last = (nets.weights[-1], nets.biases[-1])
        parts = [decay * float(any(t is u for u in last)) for t in tensors]
        adam = FlatAdam.under(tensors, parts, second=ADAM_SECOND)
        average = adam.flat.clone()
        sign = torch.cat([torch.ones(batch), -torch.ones(batch)])
        per_epoch = math.ceil(max(n_p, len(phi) - n_p) * (folds - 1) / folds / batch)
        drawn = batches(weights, n_p, per_epoch, batch, generator=generator)
        for step in range(schedule.steps):
            write_gradient(nets, phi[next(drawn)].repeat(copies, 1, 1), sign, adam.slots)
            adam.step(schedule.rate_at(step))
            average.lerp_(adam.flat, 1 - schedule.average)
        adam.flat.copy_(average)
