"""Ratios by small networks: the part that every loss shares.

`NetRatio` standardises, holds rows out, trains (see `training`) and stores; a subclass names its loss and how an output
is read as log r. Everything is done for many members at once, each with its own sample, split, initialisation and
minibatches; a single fit is the case of one, and `bootstrap` hands over many, so that member i of an ensemble is the
single fit on the same sample with the same seed.

Deviations from CDRE's networks. Features are standardised by q and clamped where a normal sample of its
size has about 5 rows left outside (`clip="auto"`): one row of p beyond all rows of q would otherwise send psi to
infinity there, on training and held-out rows alike, in this loss and in every other that has no lower bound without
samples of one side (`_unbounded`). For the same reason early stopping looks at the log-loss of the ratio in all of
these, not at their own held-out loss: with 300 and 200 rows of two Gaussians one unit apart in each of 2 coordinates,
the mean squared error of log r on p (each error capped at 8) fell from 6.6 to 0.56 (KLIEP), 36 to 1.4 (LSIF), 3.0 to
0.8 (Pearson), 5.2 to 1.5 (KL); with 3000 it stayed, but for LSIF (0.4 to 0.8). Networks are 32-32, 1e-2 on a cosine
instead of 256-256 with 2e-5, which costs a hundredth and is no worse; each member's gradient norm is clipped. From 10
features on, squares of the features join the network (`skip`), through a direct linear path too: without them plain
networks lose half of the divergence between 100-dimensional Gaussians.

The estimators. KLIEPNet: r = exp(psi) / mean_q exp(psi) (CDRE Eq. 2 and 3). Deviation: the normaliser of Eq. 3 is
taken once, over all of q at fit, and stored; the authors' code normalises by whatever batch is passed.

LSIF. Least-squares importance fitting by a network: minimise E_q[r^2] / 2 - E_p[r].

(Kanamori, Hido and Sugiyama 2009, with a network in place of kernels.) The ratio is r = softplus(v + log(e - 1)),
positive, and one at v = 0 where training starts. Softplus rather than exp: it grows linearly, so that a large ratio
costs its square and not the exponential of it, and the gradient stays bounded where exp's grows with r^2. Towards
r = 0 both agree: log r -> v + log(e - 1). For the closed-form kernel estimators see `least_squares`.

Bregman. Ratio matching: the network whose exponential is nearest to p/q under q in a Bregman divergence.

(Sugiyama, Suzuki and Kanamori 2012.) The generator f decides what counts: "squared" is LSIF, "kl" is KLIEP with
its normalisation left free, "logistic" is the classifier, "power" is Basu's family between "kl" (a -> 0) and twice
"squared" (a = 1), robust to outliers of p as a grows, and "exponential" is the loss of boosting. `losses.GENERATORS`
holds them. Here r = exp(psi) for all; the estimators named after the special cases differ in link or normalisation
(`LSIF`: softplus; `KLIEPNet`: normalised; `Logistic`: calibration).

FGANRatio: see the table of `losses`.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from vestige.core import VestigeWarning, rng
from vestige.core.checks import option
from vestige.core.numerics import log_mean_exp
from vestige.nets.batched import ACTIVATIONS, BatchedMLP
from vestige.ratios import losses, training
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.training import Loss, LossSlope, Prepared, evaluate, prepare, sides

# The share of p in the mixture that standardises, and what is kept of p, by the side that bounds the loss.
P_SHARE = {None: 0.5, "p": 1.0, "q": 0.0}
KEPT = {
    None: "mean and deviation of its even mixture with q, and the weights of the network",
    "p": "mean and deviation, and the weights of the network",
    "q": "the weights of the network",
}


@dataclass(eq=False, kw_only=True)
class NetRatio(Ratio):
    """A ratio whose logarithm is read off a network's output; `hidden` are the widths of its hidden layers."""

    hidden: tuple[int, ...] = option((32, 32), low=1)
    activation: str = option("relu", among=ACTIVATIONS)
    skip: str = option("auto", among=("auto", "none", "quadratic"))  # "auto" is quadratic from 10 features on
    learning_rate: float = option(1e-2, above=0)
    weight_decay: float = option(0.1, low=0)  # decoupled: of the weights, not of biases, not of the skip
    batch_size: int = option(500, low=1)  # rows of each side
    steps: int = option(600, low=1)
    epochs: int = option(10, low=1)
    check_every: int = option(10, low=1)  # steps between looks at the held-out loss
    patience: int = option(15, low=1)  # looks without improvement
    tolerance: float = option(0.1, low=0)  # converged: the second half of the budget brought less of the held-out gain
    gradient_clip: float | None = option(5.0, above=0)
    held_out: float = option(0.2, low=0, high=0.5)  # rows for early stopping; with 0 the training loss decides
    floor: float = option(1e-6, low=0)  # see `Standardiser`
    clip: float | str | None = option("auto", above=0, among=("auto",))  # of standardised features, in deviations

    # Everything learnt, with a leading member axis.
    members_: dict[str, Tensor] = field(init=False, repr=False, default_factory=dict)
    net_: BatchedMLP | None = field(init=False, repr=False, default=None)

    @abstractmethod
    def _loss(self, n_p: int, n_q: int) -> Loss:
        """The loss of outputs on p and q, for samples of these sizes."""

    def _loss_slope(self, n_p: int, n_q: int) -> LossSlope | None:
        """The derivative of the loss where it is known in closed form."""
        return None

    def _read(self, out: Tensor) -> Tensor:
        """log r of a network's output."""
        return out

    def _unbounded(self) -> str | None:
        """The side, "p" or "q", without samples of which the loss has no lower bound."""
        return None

    def _judge(self) -> Loss | None:
        """What early stopping looks at: the loss itself, or log-loss where the loss has no lower bound.

        A few rows of p among none of q send such a loss to minus infinity on held-out rows as well as on training
        rows; the log-loss of the same ratio is bounded and proper.
        """
        if self._unbounded() is None:
            return None
        return lambda v_p, v_q, w_p, w_q: losses.logistic(*self._centred(v_p, v_q, w_q), w_p, w_q)

    def _centred(self, v_p: Tensor, v_q: Tensor, w_q: Tensor) -> tuple[Tensor, Tensor]:
        """log r of outputs on p and q; a loss that leaves its constant open fixes it here."""
        return self._read(v_p), self._read(v_q)

    def _clip(self, n_p: int, n_q: int) -> float | None:
        if self.clip != "auto":
            assert not isinstance(self.clip, str)
            return self.clip
        side = self._unbounded()
        return 5.0 if side is None else training.reach(n_p if side == "p" else n_q)

    def _kept_aside(self) -> float:
        """The share of rows that neither training nor early stopping may see."""
        return 0.0

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        """(slope, offset, report) of one member: its log r is slope * read + offset."""
        return 1.0, 0.0, {}

    def _fit(self, sample: Sample, seed: int) -> None:
        self.report_ |= self.fit_members(lambda _: sample, [seed])[0]

    def fit_members(self, draw: Callable[[int], Sample], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Train member i on `draw(i)` with `seeds[i]`, all as one network; returns what to report of each."""
        self._check()
        shares = [share for share in (self.held_out, self._kept_aside()) if share]
        p_share = P_SHARE[self._unbounded()]
        owner = f"{type(self).__name__}.fit"

        def member(i: int) -> Prepared:
            sample = draw(i)
            clip = self._clip(len(sample.p), len(sample.q))
            return prepare(sample, seeds[i], p_share=p_share, shares=shares, floor=self.floor, clip=clip, owner=owner)

        nets: list[BatchedMLP] = []
        blocks: list[dict[str, Tensor]] = []
        reports: list[dict[str, Any]] = []
        while len(reports) < len(seeds):
            start = len(reports)
            first = member(start)
            rows = sum(min(self.batch_size, len(r[0])) for r in (first.p_rows, first.q_rows))
            end = min(len(seeds), start + max(1, training.BLOCK_CELLS // (rows * max([1, *self.hidden]))))
            net, state, found = self._fit_block([first, *(member(i) for i in range(start + 1, end))], seeds[start:end])
            nets.append(net)
            blocks.append(state)
            reports += found
        self.net_ = BatchedMLP.stack(nets)
        self.members_ = {key: torch.cat([block[key] for block in blocks]) for key in blocks[0]}
        astray = [report for report in reports if not report["converged"]]
        if astray:
            text = (
                f"{len(astray)} of {len(reports)} networks of {type(self).__name__} did not converge: the held-out "
                "loss was still falling, or it overflowed. Raise 'steps', or lower 'learning_rate'."
            )
            warnings.warn(text, VestigeWarning, stacklevel=4)
            for report in astray:
                report["warnings"].append(text)
        return reports

    def _fit_block(
        self, members: list[Prepared], seeds: Sequence[int]
    ) -> tuple[BatchedMLP, dict[str, Tensor], list[dict[str, Any]]]:
        n_p, d = members[0].sample.p.shape
        quadratic = self.skip == "quadratic" or (self.skip == "auto" and d >= 10)
        sizes = [d * (1 + quadratic), *self.hidden, 1]
        streams = [rng.fork(seed, "init") for seed in seeds]
        # The last layer starts at zero: training starts from one ratio everywhere.
        one = partial(BatchedMLP.initial, 1, sizes, activation=self.activation, zero_last=True, skip=quadratic)
        net = BatchedMLP.stack([one(generator=stream) for stream in streams])
        budget = training.Budget(**{f.name: getattr(self, f.name) for f in dataclasses.fields(training.Budget)})
        sizes_pq = n_p, len(members[0].sample.q)
        parts = (*sides(members, 0, quadratic), *sides(members, 1 if self.held_out else 0, quadratic))
        loss, slopes, judge = self._loss(*sizes_pq), self._loss_slope(*sizes_pq), self._judge()
        outcome = training.train(net, *parts, loss, budget, seeds, slopes, judge)
        state = {
            "shift": torch.stack([m.standardise.shift for m in members]),
            "scale": torch.stack([m.standardise.scale for m in members]),
            "clip": torch.tensor([m.standardise.clip or math.inf for m in members], dtype=torch.float64),
        }
        log_p = self._read(evaluate(net, state, torch.stack([m.sample.p for m in members])))
        log_q = self._read(evaluate(net, state, torch.stack([m.sample.q for m in members])))
        reports = []
        affine = torch.empty(2, len(members), dtype=torch.float64)
        for i, m in enumerate(members):
            slope, offset, extra = self._finish(m, log_p[i], log_q[i])
            if judge is not None and self.held_out:
                extra = {"held_out_log_loss": float(outcome.judged[i])} | extra
            affine[0, i], affine[1, i] = slope, offset
            reports.append(
                {
                    "converged": bool(outcome.converged[i]),
                    "iterations": outcome.steps,
                    "best_step": int(outcome.best_step[i]),
                    "held_out_loss": float(outcome.held_out_loss[i]) if self.held_out else None,
                    "log_mean_ratio_q": float(log_mean_exp(slope * log_q[i] + offset, m.sample.w_q)),
                    "skip": "quadratic" if quadratic else "none",
                    "clips": {"at": m.standardise.clip, "features": m.clipped, "gradient": float(outcome.clipped[i])},
                    "kept_of_p": KEPT[self._unbounded()],
                    "warnings": [],
                }
                | extra
            )
        return net, state | {"slope": affine[0], "offset": affine[1]}, reports

    def member_log_ratios(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "m n"]:
        """log r of every member at checked float64 samples."""
        assert self.net_ is not None
        state = self.members_
        return state["slope"][:, None] * self._read(evaluate(self.net_, state, x)) + state["offset"][:, None]

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return self.member_log_ratios(x)[0]


@dataclass(eq=False, kw_only=True)
class KLIEPNet(NetRatio):
    """KLIEP with a network for psi (CDRE Eq. 2, 3)."""

    def _unbounded(self) -> str | None:
        return "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        return losses.kliep

    def _centred(self, v_p: Tensor, v_q: Tensor, w_q: Tensor) -> tuple[Tensor, Tensor]:
        level = torch.logsumexp(v_q + w_q.log(), 1, keepdim=True)
        return v_p - level, v_q - level

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        log_normaliser = float(log_mean_exp(log_q, member.sample.w_q))  # Eq. 3's denominator
        return 1.0, -log_normaliser, {"log_normaliser": log_normaliser}


_ONE = math.log(math.e - 1)  # softplus of it is one


def log_softplus(v: Tensor) -> Tensor:
    """log softplus(v), which for very negative v is v itself."""
    # Below -20, softplus(v) = exp(v) to nine digits; log(exp(v)) must not underflow on the way.
    return softplus(v.clamp_min(-20.0)).log() + (v + 20.0).clamp_max(0.0)


@dataclass(eq=False, kw_only=True)
class LSIF(NetRatio):
    """Least-squares fit of the ratio by a network."""

    def _unbounded(self) -> str | None:
        return "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        return lambda v_p, v_q, w_p, w_q: losses.least_squares(softplus(v_p + _ONE), softplus(v_q + _ONE), w_p, w_q)

    def _read(self, out: Tensor) -> Tensor:
        return log_softplus(out + _ONE)


@dataclass(eq=False)
class Bregman(NetRatio):
    """Ratio matching by a network. `power` is the a of the generator "power" and is not used by the others."""

    generator: str = option("logistic", among=(*losses.GENERATORS, "power"))
    power: float = option(0.5, above=0)

    def _unbounded(self) -> str | None:
        return None if self.generator in ("logistic", "exponential") else "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        power = self.generator == "power"
        generator = losses.power_generator(self.power) if power else losses.GENERATORS[self.generator]
        return partial(losses.bregman, generator=generator)


@dataclass(eq=False)
class FGANRatio(NetRatio):
    """The ratio read off an f-GAN critic. `ratio_floor` bounds r below for "pearson" alone."""

    divergence: str = option("js", among=losses.VARIATIONAL)
    ratio_floor: float = option(1e-3, above=0)

    def _unbounded(self) -> str | None:
        return {"kl": "q", "pearson": "q", "reverse_kl": "p"}.get(self.divergence)

    def _loss(self, n_p: int, n_q: int) -> Loss:
        row = losses.VARIATIONAL[self.divergence]
        return lambda v_p, v_q, w_p, w_q: (w_q * row.conjugate(v_q)).sum(1) - (w_p * row.activation(v_p)).sum(1)

    def _read(self, out: Tensor) -> Tensor:
        if self.divergence == "pearson":  # floored in v, where log r need not exist
            out = out.clamp_min(2 * (self.ratio_floor - 1))
        return losses.VARIATIONAL[self.divergence].ratio(out)

    def fit_members(self, draw: Callable[[int], Sample], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """As `NetRatio.fit_members`; the held-out loss is minus the lower bound."""
        reports = super().fit_members(draw, seeds)
        return [report | {"bound": -report["held_out_loss"] if self.held_out else None} for report in reports]

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        if self.divergence != "pearson":
            return 1.0, 0.0, {}
        at_floor = torch.cat([log_p, log_q]) <= math.log(self.ratio_floor) + 1e-9
        return 1.0, 0.0, {"ratio_floor_share": float(at_floor.double().mean())}
