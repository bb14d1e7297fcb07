"""CDRE Fig. 2: the KL of a drifting Gaussian from data seen once, in 2 and 100 dimensions, one task or one a step.

The paper draws curves over t and gives no numbers: its text says that estimates are close to the truth "in all cases",
and that a larger lambda_c lowers the bias and raises the variance (section 4.1). The truth is a closed form. Beside
the paper's method (Eq. 4 along an every-step chain, one arm for each lambda_c) stand our strategies, the oracle that
keeps the data, and Gaussians fitted to it.

Deviations. The values of lambda_c are in the legend of a figure that the text does not repeat ("shown in Figure 4"):
ours are 0, 0.1, 1 and 10. The penalty of Eq. 10 is subtracted. Eq. 4 averages r log r over q_t: in this drift q_t gets
narrower than p and E_q[r^2] becomes infinite, so even the exact ratio falls short of the KL at t = 10 with n = 10000;
its values are shown here as the paper shows them, and the chain's verdict on each stands in the Record.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vestige.chains import gaussians
from vestige.continual.record import Record
from vestige.runner.experiment import Experiment, Line, OnProgress, Verdict
from vestige_papers.cdre import drift as cdre_drift
from vestige_papers.cdre.drift import Follower, as_line, error, follow_all, judged, mean, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What section 4.1 states; D_mu = -D_sigma by dimension.
PAPER = {"n": 10000, "step": {2: 0.05, 100: 0.02}, "spacing": 2.0, "runs": 5}
LAMBDAS = (0.0, 0.1, 1.0, 10.0)
CLOSE = 0.10  # "close to the true value", as a share of it
OURS = "anchored"
SMALLER = "the every-step chain has a 32-32 network and 10 epochs a step, not 256-256 and thousands"


@dataclass(frozen=True)
class Config:
    """`method` and `lambda_c` are set by the arms; "" stands for all of them."""

    d: int = 2
    step: float | None = None  # D_mu = -D_sigma; the paper's by default
    multi_task: bool = False
    n_steps: int = 10
    n: int = 10000
    lambdas: tuple[float, ...] = LAMBDAS
    method: str = ""
    lambda_c: float = 0.0
    chain_preset: str | None = None  # of the every-step chain
    oracle_every: int = 1  # the oracle is asked at these steps alone


class CDREFig2(Experiment[Config]):
    """What the four panels share."""

    rule = (
        "Reproduced if Eq. 4 along the every-step chain, at the lambda_c that suits it best, lies within 10 % of the "
        "true KL in the mean over seeds at the middle and the last step, and the largest lambda_c is less biased at "
        "the last than the smallest; partly if it lies within 10 % at the middle step; not otherwise."
    )
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 5}
    asked: ClassVar[Mapping[int, float]] = {}  # what our default is asked for: step -> share of the true KL

    def arms(self, config: Config) -> Sequence[Config]:
        """The paper's method for each lambda_c, ours, the oracle, and fitted Gaussians."""
        if config.method:
            return [config]
        bare = dataclasses.replace(config, lambdas=())
        paper = [dataclasses.replace(bare, method="every-step", lambda_c=strength) for strength in config.lambdas]
        rest = [dataclasses.replace(bare, method=m, chain_preset=None) for m in (OURS, "keyframe", "oracle", "fitted")]
        return [*paper, *rest]

    def run(self, config: Config, seed: int, on_progress: OnProgress) -> Record:
        """One method along the drift."""
        bed = gaussians(config.d, n_steps=config.n_steps, multi_task=config.multi_task, mean_step=config.step)
        follower: Follower
        steps = range(1, bed.n_steps + 1)
        if config.method == "oracle":
            follower = cdre_drift.oracle(bed, config.n, seed)
            steps = range(config.oracle_every, bed.n_steps + 1, config.oracle_every)
        elif config.method == "fitted":
            follower = cdre_drift.fitted(bed, config.n, seed)
        elif config.method == "every-step":
            options = {"preset": config.chain_preset, "lambda_c": config.lambda_c}
            follower = cdre_drift.chained(bed, "every-step", config.n, seed, **options)
        else:
            follower = cdre_drift.chained(bed, config.method, config.n, seed)
        values, details = follow_all(follower, bed, steps, on_progress)
        return self.record(config, seed, values=values, details=details)

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """kl halfway and at the end for every arm, the other divergences at the end for our default."""
        out = []
        for name, group in by_label(records).items():
            out += [as_line(name, "kl", t, group) for t in judged(group[0])]
            if name == label(OURS, 0.0):
                out += [as_line(name, other, judged(group[0])[-1], group) for other in cdre_drift.NAMES[1:]]
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The rule on the paper's method; what our default does is said beside it."""
        groups = by_label(records)
        paper = [g for g in groups.values() if g[0].config["method"] == "every-step"]
        if not paper:
            return Verdict("not judged", "the paper's method is not among the runs.")
        middle, last = judged(paper[0][0])
        best = min(paper, key=lambda g: (math.isnan(error(g, last)), abs(error(g, last))))
        at_middle, at_last = error(best, middle), error(best, last)
        ends = [min(paper, key=_lambda), max(paper, key=_lambda)]
        falls = len(paper) > 1 and abs(error(ends[1], last)) < abs(error(ends[0], last))
        why = (
            f"The paper's method at its best lambda_c ({_lambda(best):g}) is off by {share(at_middle)} "
            f"at t = {middle} and {share(at_last)} at t = {last}; bias {'falls' if falls else 'does not fall'} with "
            f"lambda_c. {self.ours(groups)}"
        )
        if abs(at_middle) <= CLOSE:
            return Verdict("reproduced" if abs(at_last) <= CLOSE and falls else "partly", why)
        return Verdict("not", why)

    def ours(self, groups: Mapping[str, Sequence[Record]]) -> str:
        """Our default against what is asked of it."""
        group = groups.get(label(OURS, 0.0))
        if group is None:
            return "Our default was not run."
        steps = [t for t in self.asked if t <= len(group[0].values["kl"])] or judged(group[0])[-1:]
        told = [f"{share(error(group, t))} at t = {t}" + self._limit(t) for t in steps]
        return f"Our default is off by {' and '.join(told)}."

    def _limit(self, t: int) -> str:
        return f" (asked: {self.asked[t]:.0%})" if t in self.asked else ""

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The panel: kl over steps, one curve a method."""
        from vestige.show import curves

        groups = by_label(records)
        steps = list(range(1, len(records[0].values["kl"]) + 1))
        series = {name: [mean(group, "kl", t) for t in steps] for name, group in groups.items()}
        full = max(records, key=lambda r: int(r.values["kl_true"].isfinite().sum()))
        truth = {"truth": full.values["kl_true"]}
        title = f"{self.item}: KL by step"
        return {self.name: curves(series, steps, title=title, x_label="step", y_label="kl (nats)", reference=truth)}


def label(method: str, lambda_c: float) -> str:
    """How an arm is called in tables."""
    names = {"anchored": "anchored (default)", "oracle": "oracle with data", "fitted": "fitted Gaussians"}
    return f"Eq. 4, lambda_c {lambda_c:g}" if method == "every-step" else names.get(method, method)


def by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by arm, in order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(label(record.config["method"], record.config["lambda_c"]), []).append(record)
    return groups


def _lambda(group: Sequence[Record]) -> float:
    return float(group[0].config["lambda_c"])


class CDREFig2a(CDREFig2):
    """One Gaussian drifting in 2 dimensions."""

    name = "cdre-fig2a"
    item = "CDRE Fig. 2a"
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": Config(),
        "paper": Config(chain_preset="paper"),
    }
    cut: ClassVar[Mapping[str, str]] = {"smoke": "nearly everything.", "laptop": f"{SMALLER}."}
    asked: ClassVar[Mapping[int, float]] = {5: 0.05, 10: 0.06}


class CDREFig2b(CDREFig2):
    """One Gaussian drifting in 100 dimensions."""

    name = "cdre-fig2b"
    item = "CDRE Fig. 2b"
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(d=12, step=0.05, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": Config(d=100, oracle_every=5),
        "paper": Config(d=100, chain_preset="paper"),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "nearly everything.",
        "laptop": f"three of five seeds; the oracle is asked at t = 5 and 10; {SMALLER}.",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.08}


class CDREFig2c(CDREFig2):
    """A new Gaussian task at every step, in 2 dimensions; averaged over tasks."""

    name = "cdre-fig2c"
    item = "CDRE Fig. 2c"
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(multi_task=True, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": Config(multi_task=True, n=5000, lambdas=(0.0, 1.0), oracle_every=5),
        "paper": Config(multi_task=True, chain_preset="paper"),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "nearly everything.",
        "laptop": f"half of the samples, three of five seeds; lambda_c 0 and 1 alone; the oracle is asked at t = 5 and "
        f"10; {SMALLER}.",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.10}


class CDREFig2d(CDREFig2):
    """A new Gaussian task at every step, in 100 dimensions; averaged over tasks."""

    name = "cdre-fig2d"
    item = "CDRE Fig. 2d"
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(d=12, step=0.05, multi_task=True, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": Config(d=100, multi_task=True, n=5000, lambdas=(0.0, 1.0), oracle_every=5),
        "paper": Config(d=100, multi_task=True, chain_preset="paper"),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 1, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "nearly everything.",
        "laptop": f"half of the samples, four of five seeds; lambda_c 0 and 1 alone; the oracle is asked at t = 5 and "
        f"10; {SMALLER}.",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.10}
