"""Gaussian regression by an ensemble trained as one batched network: y | x ~ N(mean_k(x), diag sd_k(x)^2).

Each member leaves a fold of the rows of its own aside and stops where the likelihood of that fold is best, so that for
every row there is a member that has not learnt from it. Members differ in their fold, their start and the order of
their rows. In units of the deviations of x and y; log-variances lie smoothly between two named bounds; a linear path
from input to output stands beside the network and starts at zero. A column of y that never changes is no matter of
learning: it has its one value and a deviation of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import softplus

from vestige.core import checks, rng
from vestige.nets.batched import BatchedMLP
from vestige.ratios.standardise import Standardiser

# Rows a member that go through the network at once where nothing is learnt: bounds the memory, not the result.
CHUNK = 4096


@dataclass(frozen=True)
class Settings:
    """Shape of the networks and how they are trained."""

    hidden: tuple[int, ...] = (200, 200, 200)
    lr: float = 1e-3  # falls along a cosine to zero
    decay: float = 1e-5  # decoupled
    batch: int = 256
    steps: int = 6000
    check_every: int = 100
    patience: int = 20  # looks at the held-out likelihood without improvement
    judged: int = 2000  # rows of the fold that a look takes at most
    min_log_var: float = -10.0  # bounds of the log-variance, y standardised
    max_log_var: float = 0.5
    input_clip: float = 10.0  # bound of standardised inputs, in deviations

    def check(self, owner: str) -> None:
        """Refuse what cannot be used."""
        for width in self.hidden:
            checks.whole(width, "hidden", owner, low=1)
        for name in ("batch", "steps", "check_every", "patience", "judged"):
            checks.whole(getattr(self, name), name, owner, low=1)
        for name in ("lr", "input_clip"):
            checks.number(getattr(self, name), name, owner, low=0, open_low=True)
        checks.number(self.decay, "decay", owner, low=0)
        checks.number(self.min_log_var, "min_log_var", owner, high=self.max_log_var, open_high=True)


def bounded(raw: Tensor, low: float, high: float) -> Tensor:
    """`raw` bent smoothly into (low, high)."""
    return low + softplus(high - softplus(high - raw) - low)


def nll(mean: Tensor, log_var: Tensor, y: Tensor) -> Float[Tensor, " m"]:
    """-log N(y; mean, exp log_var) per member: summed over the columns, averaged over the rows."""
    terms = (y - mean).square() * torch.exp(-log_var) + log_var + math.log(2 * math.pi)
    return terms.sum(2).mean(1) / 2


def padded(groups: Int64[Tensor, " n"], members: int) -> Int64[Tensor, "m r"]:
    """Rows of each group, as many columns as the largest has; -1 fills up. Groups beyond `members` are left out."""
    order = torch.argsort(groups, stable=True)
    counts = torch.bincount(groups, minlength=members)
    place = torch.arange(len(groups)) - (counts.cumsum(0) - counts)[groups[order]]
    kept = groups[order] < members
    table = torch.full((members, int(counts[:members].max())), -1)
    table[groups[order][kept], place[kept]] = order[kept]
    return table


class GaussianEnsemble:
    """The fitted ensemble: standardisations and one batched network, whose outputs are means and raw log-variances.

    `varying` are the columns of y that the network speaks of; the others are constant.
    """

    def __init__(
        self, net: BatchedMLP, x: Standardiser, y: Standardiser, varying: Int64[Tensor, " v"], settings: Settings
    ) -> None:
        self.net, self.x, self.y, self.varying, self.settings = net, x, y, varying, settings

    def _heads(self, z: Float[Tensor, "... d"]) -> tuple[Tensor, Tensor]:
        mean, raw = self.net(z).chunk(2, dim=2)
        return mean, bounded(raw, self.settings.min_log_var, self.settings.max_log_var)

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "m n d"]) -> tuple[Float[Tensor, "m n k"], Float[Tensor, "m n k"]]:
        """Mean and deviation of y for each member's own rows."""
        z = self.x(x.to(torch.float32).flatten(0, 1)).unflatten(0, x.shape[:2])
        if z.shape[1] <= CHUNK:
            mean, log_var = self._heads(z)
        else:
            pieces = [self._heads(piece) for piece in z.split(CHUNK, 1)]
            mean, log_var = (torch.cat(part, 1) for part in zip(*pieces, strict=True))
        deviation = (log_var / 2).exp()
        if len(self.varying) < len(self.y.scale):
            blank = mean.new_zeros(*mean.shape[:2], len(self.y.scale))
            mean, deviation = (blank.index_copy(2, self.varying, part) for part in (mean, deviation))
        return self.y.shift + self.y.scale * mean, self.y.scale * deviation

    def state(self, prefix: str) -> dict[str, Tensor]:
        """Everything learnt, as tensors by name."""
        fixed = {"x_shift": self.x.shift, "x_scale": self.x.scale, "y_shift": self.y.shift, "y_scale": self.y.scale}
        fixed["varying"] = self.varying
        return {f"{prefix}{name}": value for name, value in fixed.items()} | self.net.state(prefix)

    @classmethod
    def from_state(cls, state: dict[str, Tensor], prefix: str, settings: Settings) -> GaussianEnsemble:
        """The inverse of `state`."""
        x = Standardiser(state[f"{prefix}x_shift"], state[f"{prefix}x_scale"], settings.input_clip)
        y = Standardiser(state[f"{prefix}y_shift"], state[f"{prefix}y_scale"])
        net = BatchedMLP.from_state(state, prefix=prefix, activation="silu")
        return cls(net, x, y, state[f"{prefix}varying"], settings)


def fit(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n k"],
    folds: Int64[Tensor, " n"],
    members: int,
    settings: Settings,
    seed: int,
    tell: Callable[[float], None] = lambda _: None,
) -> tuple[GaussianEnsemble, dict[str, Any]]:
    """Member i learns from the rows outside of fold i; `tell` hears how much is done."""
    held = torch.bincount(folds, minlength=members)[:members]
    if int(held.min()) == 0 or int(held.max()) == len(x):
        must = f"one with rows for each of {members} members, and rows outside of it"
        checks.refuse("folds", "regression.fit", must, f"{held.tolist()} of {len(x)} rows")
    z_x = Standardiser.of(x.to(torch.float64), clip=settings.input_clip)
    z_y = Standardiser.of(y.to(torch.float64))
    shifts = [Standardiser(z.shift.float(), z.scale.float(), z.clip) for z in (z_x, z_y)]
    x_, y_ = z_x(x.to(torch.float64)).float(), z_y(y.to(torch.float64)).float()
    # `Standardiser` gives deviation one to all columns that have any, and leaves those without at their zeros.
    varying = (y_.square().mean(0) > 0.5).nonzero().squeeze(1)
    y_ = y_[:, varying]
    sizes = [x.shape[1], *settings.hidden, 2 * len(varying)]
    net = BatchedMLP(members, sizes, generator=rng.fork(seed, "init"), activation="silu", skip=True)
    ensemble = GaussianEnsemble(net, shifts[0], shifts[1], varying, settings)
    report = _train(ensemble, x_, y_, folds, seed, tell)
    return ensemble, report


def _train(
    ensemble: GaussianEnsemble, x: Tensor, y: Tensor, folds: Tensor, seed: int, tell: Callable[[float], None]
) -> dict[str, Any]:
    net, settings = ensemble.net, ensemble.settings
    members, order = net.members, rng.fork(seed, "batches")
    held = padded(folds, members)
    judged = min(settings.judged, int((held >= 0).sum(1).min()))
    look = torch.stack([row[row >= 0][torch.randperm(int((row >= 0).sum()), generator=order)[:judged]] for row in held])
    taught = [(folds != i).nonzero().squeeze(1) for i in range(members)]
    table = torch.nn.utils.rnn.pad_sequence(taught, batch_first=True)
    counts = torch.tensor([len(rows) for rows in taught])[:, None]

    parameters = net.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=settings.decay, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    best = [p.detach().clone() for p in parameters]
    lowest, best_step = torch.full((members,), math.inf), torch.zeros(members, dtype=torch.int64)
    step = 0
    for step in range(settings.steps + 1):
        if step % settings.check_every == 0 or step == settings.steps:
            with torch.no_grad():
                latest = nll(*ensemble._heads(x[look]), y[look])
                better = latest < lowest  # never true of a NaN
                lowest, best_step = torch.where(better, latest, lowest), best_step.masked_fill(better, step)
                for kept, p in zip(best, parameters, strict=True):
                    kept[better] = p.detach()[better]
            tell(step / settings.steps)
            if step == settings.steps or step - int(best_step.max()) >= settings.patience * settings.check_every:
                break
        drawn = (torch.rand(members, settings.batch, generator=order) * counts).long().clamp_max(counts - 1)
        rows = table.gather(1, drawn)
        optimizer.zero_grad()
        nll(*ensemble._heads(x[rows]), y[rows]).sum().backward()  # members share nothing: a sum keeps them apart
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        for kept, p in zip(best, parameters, strict=True):
            p.copy_(kept)
        mean, log_var = ensemble._heads(x[look])
        unexplained = (y[look] - mean).square().mean(1)
    tell(1.0)
    width = settings.max_log_var - settings.min_log_var
    return {
        "steps": step,
        "best_step": best_step.tolist(),
        "held_out_nll": [round(float(v), 6) for v in lowest],
        "unexplained": [round(float(v), 6) for v in unexplained.mean(1)],  # of the variance, mean over the columns
        "at_least_variance": float((log_var < settings.min_log_var + 0.01 * width).double().mean()),
        "input_clipped": float((x.abs() >= settings.input_clip).any(1).double().mean()),
        "rows": len(x),
        "held_out_rows": (held >= 0).sum(1).tolist(),
    }
