"""A linear system with Gaussian noise, linear policies and quadratic rewards: every value is known in closed form."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vestige.nets.batched import BatchedMLP
from vestige.policy import Dynamics, GaussianPolicy, Logs, Settings
from vestige.policy.dynamics import GaussianEnsemble
from vestige.ratios.standardise import Standardiser

F64 = torch.float64


def linear_policy(gain: list, offset: list, deviation: float) -> GaussianPolicy:
    """a = gain s + offset + deviation * noise."""
    k = torch.tensor(gain, dtype=F64)
    return GaussianPolicy((k,), (torch.tensor(offset, dtype=F64),), torch.full((len(k),), deviation, dtype=F64).log())


@dataclass(frozen=True)
class System:
    """s' = a s + b u + shift + noise * N(0, I); r = -(s' diag(q) s + cost u'u)."""

    a: Tensor
    b: Tensor
    noise: float
    shift: Tensor
    q: Tensor
    cost: float
    start: Tensor
    spread: float

    @classmethod
    def default(cls) -> "System":
        """A damped rotation that is pushed along one axis."""
        a = torch.tensor([[0.9, 0.2], [-0.2, 0.9]], dtype=F64)
        b = torch.tensor([[0.0], [0.5]], dtype=F64)
        q, start = torch.tensor([1.0, 0.3], dtype=F64), torch.tensor([1.0, 0.0], dtype=F64)
        return cls(a, b, 0.1, torch.zeros(2, dtype=F64), q, 0.1, start, 0.3)

    def biased(self, shift: list, noise: float) -> "System":
        """A model of it that is wrong in a known way."""
        return replace(self, shift=torch.tensor(shift, dtype=F64), noise=noise)

    def reward(self, s: Tensor, u: Tensor, after: Tensor) -> Tensor:
        return -((s.square() * self.q.to(s.dtype)).sum(-1) + self.cost * u.square().sum(-1))

    def mean(self, s: Tensor, u: Tensor) -> Tensor:
        return s @ self.a.mT + u @ self.b.mT + self.shift

    def value(self, policy: GaussianPolicy, horizon: int, discount: float = 1.0) -> float:
        """Mean and covariance of the state, step by step."""
        k, c = policy.weights[0], policy.biases[0]
        sd2 = torch.diag((2 * policy.log_std).exp())
        m, p = self.start, self.spread**2 * torch.eye(len(self.start), dtype=F64)
        total = 0.0
        for t in range(horizon):
            u, pu = k @ m + c, k @ p @ k.mT + sd2
            earned = (self.q * (m.square() + p.diagonal())).sum() + self.cost * (u.square().sum() + pu.trace())
            total -= discount**t * float(earned)
            f = self.a + self.b @ k
            m, p = self.a @ m + self.b @ u + self.shift, f @ p @ f.mT + self.b @ sd2 @ self.b.mT
            p = p + self.noise**2 * torch.eye(len(m), dtype=F64)
        return total

    def starts(self, n: int, generator: torch.Generator) -> Tensor:
        return self.start + self.spread * torch.randn(n, len(self.start), dtype=F64, generator=generator)

    def trajectories(self, policy: GaussianPolicy, n: int, horizon: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """States (n, h + 1, s), actions (n, h, a) and rewards (n, h)."""
        g = torch.Generator().manual_seed(seed)
        s = self.starts(n, g)
        states, actions, rewards = [s], [], []
        for _ in range(horizon):
            u = policy.act(s, generator=g)
            after = self.mean(s, u) + self.noise * torch.randn(s.shape, dtype=F64, generator=g)
            rewards.append(self.reward(s, u, after))
            actions.append(u)
            states.append(after)
            s = after
        return torch.stack(states, 1), torch.stack(actions, 1), torch.stack(rewards, 1)

    def logs(self, policy: GaussianPolicy, episodes: int, steps: int, seed: int) -> Logs:
        """Logged episodes, with the densities of their actions."""
        s, u, r = self.trajectories(policy, episodes, steps, seed)
        before, after, actions = s[:, :-1].flatten(0, 1), s[:, 1:].flatten(0, 1), u.flatten(0, 1)
        number = torch.arange(episodes).repeat_interleave(steps)
        return Logs.of(before, actions, r.flatten(), after, number, log_probs=policy.log_prob(before, actions))

    def log_density(self, s: Tensor, u: Tensor, after: Tensor) -> Tensor:
        """log P(s' | s, u)."""
        normal = torch.distributions.Normal(self.mean(s, u), self.noise)
        return normal.log_prob(after).sum(-1)

    def dynamics(self, members: int) -> Dynamics:
        """This very system as fitted dynamics, every member alike."""
        s, u = len(self.start), self.b.shape[1]
        net = BatchedMLP.initial(members, [s + u, s], generator=torch.Generator(), activation="silu", skip=True)
        change = torch.cat([self.a.mT - torch.eye(s, dtype=F64), self.b.mT]).float()
        with torch.no_grad():
            net.weights[0].copy_(change)
            net.biases[0].copy_(self.shift.float())
        same = [Standardiser(torch.zeros(d), torch.ones(d)) for d in (s + u, s)]
        made = Dynamics(members, Settings(hidden=()), reward=self.reward)
        made.change_ = GaussianEnsemble(net, *same, torch.arange(s), torch.full((members, s), self.noise))
        made.limits_ = torch.tensor([[-1e6], [1e6]]).expand(2, s)
        return made
