"""LFIW Fig. 1: a classifier between a mixture of two Gaussians and the one Gaussian fitted to it, with its bands.

n points are drawn from the mixture; mean and variance of the model are theirs; an MLP with one hidden layer of 100
units (App. C.2) learns to tell n points of the data from n of the model. The figure has its class probabilities for
n = 50, 100 and 1000 with 95 % intervals from 1000 bootstraps: the data resampled (empirical), the model drawn afresh
(parametric, App. A). The figure carries no numbers; its text says that the curve nears the optimum p/(p + q) and that
its intervals shrink as n grows.

Both are measured as means over x under (p + q)/2: the width of the interval, and the distance of the centre from the
optimum. The optimum is that of the fitted model at hand, so it moves a little with n.

Deviations. The mixture is not printed: here N(-2, 1) and N(2, 1) in equal parts. The centre is the mean log-ratio of
the bootstraps, not one further fit. The rate falls along a cosine and training stops early, on a fifth of the rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.checks import ArrayLike
from vestige.ratios import Logistic, bootstrap
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, grouped, line, some, those

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CENTRES, DEVIATION = (-2.0, 2.0), 1.0
REACH = 6.0  # the figure's x axis, on either side
QUANTITIES = {"width": "mean width of the 95 % interval", "gap": "mean distance from the optimum"}


@dataclass(frozen=True)
class LFIWFig1Config:
    """`n` is one of `sizes`, set by the arms."""

    sizes: tuple[int, ...] = (50, 100, 1000)
    n: int = 0
    members: int = 1000
    hidden: int = 100
    steps: int = 300
    batch: int = 100  # rows of each side
    points: int = 61


def log_normal(x: Float64[Tensor, " m"], mean: float, deviation: float) -> Float64[Tensor, " m"]:
    """log N(x; mean, deviation^2)."""
    return -0.5 * ((x - mean) / deviation).square() - math.log(deviation * math.sqrt(2 * math.pi))


def log_mixture(x: Float64[Tensor, " m"]) -> Float64[Tensor, " m"]:
    """log p(x)."""
    parts = torch.stack([log_normal(x, centre, DEVIATION) for centre in CENTRES])
    return parts.logsumexp(0) - math.log(len(CENTRES))


def draw_mixture(n: int, generator: torch.Generator) -> Float64[Tensor, "n 1"]:
    """n points of p."""
    centre = torch.tensor(CENTRES, dtype=torch.float64)[torch.randint(len(CENTRES), (n,), generator=generator)]
    return (centre + DEVIATION * torch.randn(n, dtype=torch.float64, generator=generator))[:, None]


def _falls(key: str) -> Callable[[Mapping[str, Sequence[float]]], Finding]:
    def check(means: Mapping[str, Sequence[float]]) -> Finding:
        words = ", ".join(f"{mean:.3f}" for mean in means[key])
        return Finding(all(after < before for before, after in pairwise(means[key])), words)

    return check


class LFIWFig1(Experiment[LFIWFig1Config]):
    """Class probabilities with bootstrap intervals, by the number of points."""

    name, item = "lfiw-fig1", "LFIW Fig. 1"
    rule = Rule(
        *(Claim(f"the {words} falls from each n to the next larger", _falls(key)) for key, words in QUANTITIES.items()),
        beside=(
            Claim(
                "both fall from the smallest n to the largest",
                lambda means: Finding(all(m[-1] < m[0] for m in means.values())),
            ),
        ),
        partly=some("a", "b") | those("c"),
        note="Means over seeds; the distance is that of the centre.",
    )
    grounds = (
        "Between 50 and 100 points the distance of the centre changes by no more than its standard errors; from "
        "there to 1000 it halves, as printed."
    )
    presets: ClassVar[Mapping[str, LFIWFig1Config]] = {
        "smoke": LFIWFig1Config(sizes=(50, 400), members=20, hidden=20, steps=100, points=31),
        "laptop": LFIWFig1Config(),
        "paper": LFIWFig1Config(),
    }
    uses: ClassVar[tuple[type, ...]] = (Logistic,)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "20 bootstraps, not 1000; 20 hidden units, not 100; n = 50 and 400",
    }

    def arms(self, config: LFIWFig1Config) -> Sequence[LFIWFig1Config]:
        """A number of points each."""
        return [config] if config.n else [dataclasses.replace(config, sizes=(), n=n) for n in config.sizes]

    def run(self, config: LFIWFig1Config, seed: int, on_progress: OnProgress) -> Record:
        """Fit the model, then the classifiers."""
        p = draw_mixture(config.n, rng.fork(seed, "data", config.n))
        mean, deviation = float(p.mean()), float(p.std(correction=0))

        def model(n: int, draw_seed: int) -> ArrayLike:
            return mean + deviation * torch.randn(n, 1, dtype=torch.float64, generator=rng.fork(draw_seed, "model"))

        on_progress(0.05, f"n = {config.n}: {config.members} classifiers")
        base = Logistic(hidden=(config.hidden,), skip="none", steps=config.steps, batch_size=config.batch, epochs=1)
        first = model(config.n, rng.child_seed(seed, "first"))
        fits = bootstrap(base, p, first, config.members, q_sampler=model, seed=seed)
        x = torch.linspace(-REACH, REACH, config.points, dtype=torch.float64)
        log_p, log_q = log_mixture(x), log_normal(x, mean, deviation)
        optimum, centre = torch.sigmoid(log_p - log_q), torch.sigmoid(fits.log_ratio(x[:, None]))
        low, high = (torch.sigmoid(end) for end in fits.interval(x[:, None], 0.95))
        mass = log_p.exp() + log_q.exp()
        mass = mass / mass.sum()
        values = {"x": x, "optimum": optimum, "centre": centre, "low": low, "high": high}
        values |= {"p": log_p.exp(), "q": log_q.exp()}
        values |= {"width": mass @ (high - low), "gap": mass @ (centre - optimum).abs()}
        inside = float(mass @ ((optimum >= low) & (optimum <= high)).double())
        return self.record(config, seed, values=values, details={"optimum_inside": inside})

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """What the rule reads."""
        return [
            line(f"n = {n}", words, [float(r.values[key]) for r in runs])
            for n, runs in by_size(records).items()
            for key, words in QUANTITIES.items()
        ]

    def facts(self, records: Sequence[Record]) -> dict[str, list[float]]:
        """Means of each quantity, the smallest n first."""
        found = by_size(records)
        if len(found) < 2:
            raise NotJudged("one n alone says nothing of growth.")
        return {key: [fmean(float(r.values[key]) for r in runs) for runs in found.values()] for key in QUANTITIES}

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The panels, of the first seed: densities, then a picture for each n."""
        from vestige.show import curves

        pictures: dict[str, Figure] = {}
        for n, runs in by_size(records).items():
            v, title = runs[0].values, f"{self.item}: n = {n}"
            densities = {"data": v["p"], "fitted model": v["q"]}
            pictures |= {
                f"{self.name}-densities": curves(densities, v["x"], title=title, x_label="x", y_label="density"),
                f"{self.name}-n{n}": curves(
                    {"classifier": v["centre"]},
                    v["x"],
                    title=title,
                    x_label="x",
                    y_label="chance that x is data",
                    bands={"classifier": (v["low"], v["high"])},
                    reference={"optimum": v["optimum"]},
                ),
            }
        return pictures


def by_size(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Records of each n, by seed, the smallest n first."""
    found = grouped(records, lambda r: int(r.config["n"]))
    return {n: found[n] for n in sorted(found)}
