"""CDRE Fig. 2: the KL of a drifting Gaussian from data seen once, in 2 and 100 dimensions, one task or one a step.

The paper draws curves over t and gives no numbers: its text says that estimates are close to the truth "in all cases",
and that a larger lambda_c lowers the bias and raises the variance (section 4.1). The truth is a closed form. Beside
the paper's method (Eq. 4 along an every-step chain, one arm for each lambda_c) stand our strategies, the oracle that
keeps the data, Gaussians fitted to it, and Eq. 4 with the exact ratio: no network can be expected to do better than
that. There are two verdicts: the rule judges what the paper states, `asked` what our default is held to.

Deviations. The values of lambda_c are in the legend of a figure that the text does not repeat ("shown in Figure 4"):
ours are 0, 0.1, 1 and 10. The penalty of Eq. 10 is subtracted. Eq. 4 averages r log r over q_t: in this drift q_t gets
narrower than p and E_q[r^2] becomes infinite, so even the exact ratio falls short of the KL at t = 10 with n = 10000;
its values are shown here as the paper shows them, and the chain's verdict on each stands in the Record. A.2 has the
network (256-256), its batches, early stopping and a rate of 2e-5; `RATE`, fifteen times that, is what the laptop can
afford, and a network of 32-32 stands beside it.

Each method is a `DriftFollower`: called with t = 1, 2, ... it answers with what it finds at that step.
    chained    a `Chain`; "every-step" is the paper's, and its values are Eq. 4 whatever they are worth
    oracle     a new chain at every step, which still has the data: the same estimator with nothing lost
    exact      Eq. 4 over the model's samples with the exact ratio
    fitted     the closed form between Gaussians with the means and covariances of the data and of the model's samples
Several tasks are averaged (Eq. 13). Where a chain refuses an answer the value is NaN and the verdict says why.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from vestige.chains import Chain, Drift, gaussians
from vestige.continual.record import Record
from vestige.core import InputError
from vestige.core.checks import ArrayLike
from vestige.ratios import divergences
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, grouped, line, those
from vestige.store import newer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What section 4.1 states; D_mu = -D_sigma by dimension.
PAPER = {"n": 10000, "step": {2: 0.05, 100: 0.02}, "spacing": 2.0, "runs": 5}
LAMBDAS = (0.0, 0.1, 1.0, 10.0)
CLOSE = 0.10  # "close to the true value", as a share of it
OURS, EVERY = "anchored", "every-step"
# Seconds of one core that a chain of 10 steps, one task and 10000 samples takes, about, by method and whether there are
# more than MANY dimensions; the others take a fraction of one.
MANY = 10
SECONDS = {
    (EVERY, True): 30.0,
    (EVERY, False): 3.0,
    (OURS, True): 60.0,
    (OURS, False): 12.0,
    ("keyframe", True): 40.0,
    ("keyframe", False): 10.0,
    ("oracle", True): 100.0,
    ("oracle", False): 15.0,
}
FEW = "few steps, samples and epochs"
RATE = 3e-4  # of the paper's network on a laptop
FASTER = "a rate of 3e-4, not 2e-5"
SMALL = "32-32 network"
NAMES = ("kl", "reverse_kl", "js", "hellinger2")


@dataclass(frozen=True)
class DriftReading:
    """What one method finds at one step: value, low and high of each divergence, and the chain's verdict on kl."""

    found: Mapping[str, tuple[float, float, float]]
    verdict: str = ""


DriftFollower = Callable[[int], DriftReading]


def chained(bed: Drift, strategy: str, n: int, seed: int, **options: Any) -> DriftFollower:  # noqa: ANN401 - the chain's own
    """A chain of its own; to be called with every t in turn. Where the paper's chain diverges, NaN and a word."""
    options = options if strategy == "every-step" else {"preset": "lean"} | options
    chain = Chain(strategy, names=NAMES, **options)

    def follow(t: int) -> DriftReading:
        try:
            return one_step(t)
        except InputError as error:  # samples of a bed are sound: it is the network that is not finite any more
            if strategy != "every-step":
                raise
            return DriftReading(dict.fromkeys(NAMES, (math.nan,) * 3), f"diverged: {error}")

    def one_step(t: int) -> DriftReading:
        new = [i for i in bed.tasks(t) if i not in chain.tasks]
        model: dict[str | int, ArrayLike] = {i: bed.model(t, i, n, seed) for i in bed.tasks(t)}
        chain.step(real={i: bed.real(i, n, seed) for i in new}, model=model, seed=seed)
        averages = _averages(chain)
        if strategy != "every-step":
            return averages
        return eq4([chain.log_ratio(x, i) for i, x in model.items()], averages.verdict)

    return follow


def eq4(log_ratios: Sequence[Tensor], verdict: str = "") -> DriftReading:
    """Eq. 4 of each task's samples of the model, averaged over tasks, whatever it is worth.

    The paper prints it without asking for its tail or its effective size; so do we, beside the verdict.
    """
    loose: dict[str, Any] = {"samples": "q", "form": "eq4", "max_k": math.inf, "min_ess": 0.0}
    each = [divergences.estimates(NAMES, x, **loose) for x in log_ratios]
    means = {name: sum(e[name].value for e in each) / len(each) for name in NAMES}
    return DriftReading({name: (v, math.nan, math.nan) for name, v in means.items()}, verdict)


def exact(bed: Drift, n: int, seed: int) -> DriftFollower:
    """Knows the ratio, and has the model's samples to average over."""
    return lambda t: eq4([bed.true_log_ratio(bed.model(t, i, n, seed), t, i) for i in bed.tasks(t)])


def oracle(bed: Drift, n: int, seed: int) -> DriftFollower:
    """Keeps the data: every step is the first of a new chain."""

    def follow(t: int) -> DriftReading:
        chain = Chain(names=NAMES, preset="lean")
        real: dict[str | int, ArrayLike] = {i: bed.real(i, n, seed) for i in bed.tasks(t)}
        chain.step(real=real, model={i: bed.model(t, i, n, seed) for i in bed.tasks(t)}, seed=seed)
        return _averages(chain)

    return follow


def fitted(bed: Drift, n: int, seed: int) -> DriftFollower:
    """Knows that the data is Gaussian, and keeps its moments."""
    real = {i: _gaussian(bed.real(i, n, seed)) for i in bed.tasks(bed.n_steps)}

    def follow(t: int) -> DriftReading:
        pairs = [(real[i], _gaussian(bed.model(t, i, n, seed))) for i in bed.tasks(t)]
        means = {name: sum(gaussian_divergence(name, *pair) for pair in pairs) / len(pairs) for name in NAMES}
        return DriftReading({name: (v, math.nan, math.nan) for name, v in means.items()})

    return follow


def follow_all(
    follower: DriftFollower,
    bed: Drift,
    steps: Iterable[int],
    on_progress: OnProgress,
    truths: Iterable[int] | None = None,
) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """`values` and `details` of a Record: by step, NaN where `follower` was not asked; the truth there, or at `truths`.

    A truth without a closed form takes seconds a step.
    """
    ends = {"": 0, "_low": 1, "_high": 2}
    values = {
        f"{name}{end}": torch.full((bed.n_steps,), math.nan, dtype=torch.float64)
        for name in NAMES
        for end in (*ends, "_true")
    }
    verdicts = [""] * bed.n_steps
    truths = None if truths is None else tuple(truths)
    for t in steps:
        reading = follower(t)
        verdicts[t - 1] = reading.verdict
        for name, found in reading.found.items():
            for end, place in ends.items():
                values[name + end][t - 1] = found[place]
        for name in NAMES if truths is None or t in truths else ():
            values[f"{name}_true"][t - 1] = bed.true(name, t)
        on_progress(t / bed.n_steps, f"step {t}")
    return values, {"verdicts": verdicts}


def judged(record: Record) -> list[int]:
    """The middle and the last step."""
    last = len(record.values["kl"])
    return [max(last // 2, 1), last]


def mean(group: Sequence[Record], name: str, t: int) -> float:
    """Over seeds; NaN where none has a value."""
    known = [v for r in group if not math.isnan(v := float(r.values[name][t - 1]))]
    return statistics.fmean(known) if known else math.nan


def error(group: Sequence[Record], t: int) -> float:
    """The mean's distance from the true kl, as a share of it; NaN where a seed has no value."""
    if any(math.isnan(float(r.values["kl"][t - 1])) for r in group):
        return math.nan
    return mean(group, "kl", t) / mean(group, "kl_true", t) - 1


def share(value: float) -> str:
    """In per cent, in words where there is none."""
    return "an amount that it refused to name" if math.isnan(value) else f"{value:+.1%}"


def as_line(name: str, divergence: str, t: int, group: Sequence[Record]) -> Line:
    """One divergence of one method at one step, beside the truth."""
    values = [float(r.values[divergence][t - 1]) for r in group]
    return line(name, f"{divergence}, t = {t}", values, truth=mean(group, f"{divergence}_true", t))


def _averages(chain: Chain) -> DriftReading:
    """Eq. 13."""
    table = chain.divergences(NAMES)
    rows = table[table["task"] == "average"].set_index("divergence")
    value, low, high = (rows[column].astype(float).to_dict() for column in ("value", "low", "high"))
    found = {name: (value[name], low[name], high[name]) for name in NAMES}
    said, why = (str(rows[column].to_dict()["kl"]) for column in ("verdict", "reason"))
    return DriftReading(found, f"{said}: {why}" if why else said)


def _gaussian(x: Tensor) -> Gaussian:
    return Gaussian(x.mean(0), torch.cov(x.mT))


@dataclass(frozen=True)
class CDREFig2Config:
    """`method` and `lambda_c` are set by the arms; "" stands for all of them."""

    d: int = 2
    step: float | None = None  # D_mu = -D_sigma; the paper's by default
    multi_task: bool = False
    n_steps: int = 10
    n: int = 10000
    lambdas: tuple[float, ...] = LAMBDAS
    method: str = ""
    lambda_c: float = 0.0
    chain_preset: str | None = None  # of the every-step chain; None: our small network
    learning_rate: float | None = newer(None)  # of that preset; None: its own
    oracle_every: int = 1  # the oracle is asked at these steps alone


class AtBest:
    """The paper's method at the lambda_c that suits it best, with the paper's network where that was run."""

    def __init__(self, paper: Sequence[Sequence[Record]], groups: Mapping[str, Sequence[Record]]) -> None:
        self.paper, self.groups = paper, groups
        self.middle, self.last = judged(paper[0][0])
        self.best = min(paper, key=lambda g: (math.isnan(error(g, self.last)), abs(error(g, self.last))))

    def near(self, t: int) -> Finding:
        """Whether it is close to the truth at step t."""
        off = error(self.best, t)
        words = f"lambda_c {_lambda(self.best):g} is off by {share(off)} at t = {t}"
        return Finding(abs(off) <= CLOSE, words)

    def bias_falls(self) -> Finding:
        """Whether a larger lambda_c helps."""
        ends = [pick(self.paper, key=_lambda) for pick in (min, max)]
        least, most = (abs(error(group, self.last)) for group in ends)
        return Finding(len(self.paper) > 1 and most < least, f"{share(least)} and {share(most)}")


OWN = (
    "Our default has a verdict of its own: its mean over seeds lies within the share asked for at the steps asked for."
)


class CDREFig2(Experiment[CDREFig2Config]):
    """What the four panels share."""

    grounds = (
        "The claim does not hold at the last step, whatever the network: with the exact ratio Eq. 4 is off by a "
        "third to three quarters, no less than with a learnt one, and from the same samples our default, which "
        "averages over weighted rows of p, is near the truth. At the middle step a network of 32-32 is near the "
        "truth in 2 dimensions, and none is in more. What lambda_c does at the last step lies within two standard "
        "errors over seeds."
    )
    rule = Rule(
        Claim(
            f"Eq. 4 along the every-step chain, at the lambda_c that suits it best, lies within {CLOSE:.0%} of the "
            "true KL in the mean over seeds at the middle step",
            lambda found: found.near(found.middle),
        ),
        Claim("it does so at the last step", lambda found: found.near(found.last)),
        Claim(
            "the largest lambda_c is less biased at the last step than the smallest", lambda found: found.bias_falls()
        ),
        partly=those("a"),
        note=OWN,
    )
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 5}
    asked: ClassVar[Mapping[int, float]] = {}  # what our default is asked for: step -> share of the true KL

    def arms(self, config: CDREFig2Config) -> Sequence[CDREFig2Config]:
        """The paper's method for each lambda_c, then with a small network, ours, and those that know more."""
        if config.method:
            return [config]
        bare = dataclasses.replace(config, lambdas=())
        paper = [dataclasses.replace(bare, method=EVERY, lambda_c=strength) for strength in config.lambdas]
        small = dataclasses.replace(bare, chain_preset=None, learning_rate=None)
        methods = ((EVERY,) if config.chain_preset else ()) + (OURS, "keyframe", "oracle", "exact", "fitted")
        return [*paper, *(dataclasses.replace(small, method=method) for method in methods)]

    def cost(self, config: CDREFig2Config) -> float:
        """By the samples that a chain sees: of one task at each step, or of one more each time."""
        tasks = (config.n_steps + 1) / 2 if config.multi_task else 1
        seconds = SECONDS[EVERY, True] if config.chain_preset else SECONDS.get((config.method, config.d > MANY), 0.1)
        asked = 1 / config.oracle_every if config.method == "oracle" else 1
        return seconds * asked * tasks * config.n_steps / 10 * config.n / 10_000

    def run(self, config: CDREFig2Config, seed: int, on_progress: OnProgress) -> Record:
        """One method along the drift."""
        bed = gaussians(config.d, n_steps=config.n_steps, multi_task=config.multi_task, mean_step=config.step)
        follower: DriftFollower
        steps = range(1, bed.n_steps + 1)
        if config.method == "oracle":
            follower = oracle(bed, config.n, seed)
            steps = range(config.oracle_every, bed.n_steps + 1, config.oracle_every)
        elif config.method in ("exact", "fitted"):
            follower = (exact if config.method == "exact" else fitted)(bed, config.n, seed)
        elif config.method == EVERY:
            options: dict[str, Any] = {"preset": config.chain_preset, "lambda_c": config.lambda_c}
            options |= {} if config.learning_rate is None else {"learning_rate": config.learning_rate}
            follower = chained(bed, EVERY, config.n, seed, **options)
        else:
            follower = chained(bed, config.method, config.n, seed)
        values, details = follow_all(follower, bed, steps, on_progress)
        return self.record(config, seed, values=values, details=details)

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """kl halfway and at the end for every arm, the other divergences at the end for our default."""
        out = []
        for name, group in by_label(records).items():
            out += [as_line(name, "kl", t, group) for t in judged(group[0])]
            if group[0].config["method"] == OURS:
                out += [as_line(name, other, judged(group[0])[-1], group) for other in NAMES[1:]]
        return out

    def facts(self, records: Sequence[Record]) -> AtBest:
        """The paper's method at its best, and all arms."""
        groups = by_label(records)
        paper = [g for g in groups.values() if g[0].config["method"] == EVERY]
        if not paper:
            raise NotJudged("the paper's method is not among the runs.")
        return AtBest([g for g in paper if g[0].config["chain_preset"]] or paper, groups)

    def remarks(self, facts: AtBest) -> str:
        """The verdict on our default; what Eq. 4 makes of the exact ratio."""
        of = {group[0].config["method"]: group for group in facts.groups.values()}
        known = of.get("exact")
        limit = f" Eq. 4 with the exact ratio is off by {share(error(known, facts.last))} there." if known else ""
        return f"Our default: {self.ours(of.get(OURS))}{limit}"

    def ours(self, group: Sequence[Record] | None) -> str:
        """Our default against what is asked of it."""
        if group is None:
            return "not run."
        off = {t: error(group, t) for t in self.asked if t <= len(group[0].values["kl"])}
        met = [abs(off[t]) <= self.asked[t] for t in off]
        word = "holds" if all(met) else "holds in part" if any(met) else "does not hold"
        told = "; ".join(f"t = {t}: off by {share(off[t])} (asked: {self.asked[t]:.0%})" for t in off)
        return f"{word}, {told}." if off else "not asked."

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


LABELS = {
    OURS: "anchored (default)",
    "oracle": "oracle with data",
    "exact": "Eq. 4, exact ratio",
    "fitted": "fitted Gaussians",
}


def label(config: Mapping[str, Any]) -> str:
    """How an arm is called in tables."""
    if config["method"] != EVERY:
        return LABELS.get(config["method"], config["method"])
    small = "" if config["chain_preset"] else f", {SMALL}"
    return f"Eq. 4, lambda_c {config['lambda_c']:g}{small}"


def by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by arm, in order."""
    return grouped(records, lambda r: label(r.config))


def _lambda(group: Sequence[Record]) -> float:
    return float(group[0].config["lambda_c"])


class CDREFig2a(CDREFig2):
    """One Gaussian drifting in 2 dimensions."""

    name = "cdre-fig2a"
    item = "CDRE Fig. 2a"
    presets: ClassVar[Mapping[str, CDREFig2Config]] = {
        "smoke": CDREFig2Config(n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": CDREFig2Config(chain_preset="paper", learning_rate=RATE),
        "paper": CDREFig2Config(chain_preset="paper"),
    }
    cut: ClassVar[Mapping[str, str]] = {"smoke": FEW, "laptop": FASTER}
    asked: ClassVar[Mapping[int, float]] = {5: 0.05, 10: 0.06}


class CDREFig2b(CDREFig2):
    """One Gaussian drifting in 100 dimensions."""

    name = "cdre-fig2b"
    item = "CDRE Fig. 2b"
    presets: ClassVar[Mapping[str, CDREFig2Config]] = {
        "smoke": CDREFig2Config(d=12, step=0.05, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": CDREFig2Config(d=100, oracle_every=5, chain_preset="paper", learning_rate=RATE),
        "paper": CDREFig2Config(d=100, chain_preset="paper"),
    }
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": FEW,
        "laptop": f"{FASTER}; the oracle asked at t = 5 and 10 alone",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.08}


CUT_TASKS: dict[str, Any] = {
    "n": 5000,
    "lambdas": (0.0, 1.0),
    "oracle_every": 5,
    "chain_preset": "paper",
    "learning_rate": RATE,
}


class CDREFig2c(CDREFig2):
    """A new Gaussian task at every step, in 2 dimensions; averaged over tasks."""

    name = "cdre-fig2c"
    item = "CDRE Fig. 2c"
    presets: ClassVar[Mapping[str, CDREFig2Config]] = {
        "smoke": CDREFig2Config(multi_task=True, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": CDREFig2Config(multi_task=True, **CUT_TASKS),
        "paper": CDREFig2Config(multi_task=True, chain_preset="paper"),
    }
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": FEW,
        "laptop": f"half of the samples; {FASTER}; lambda_c 0 and 1 alone; the oracle asked at t = 5 and 10 alone",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.10}


class CDREFig2d(CDREFig2):
    """A new Gaussian task at every step, in 100 dimensions; averaged over tasks."""

    name = "cdre-fig2d"
    item = "CDRE Fig. 2d"
    presets: ClassVar[Mapping[str, CDREFig2Config]] = {
        "smoke": CDREFig2Config(d=12, step=0.05, multi_task=True, n_steps=2, n=300, lambdas=(0.0, 1.0)),
        "laptop": CDREFig2Config(d=100, multi_task=True, **CUT_TASKS),
        "paper": CDREFig2Config(d=100, multi_task=True, chain_preset="paper"),
    }
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": FEW,
        "laptop": f"half of the samples; {FASTER}; lambda_c 0 and 1 alone; the oracle asked at t = 5 and 10 alone",
    }
    asked: ClassVar[Mapping[int, float]] = {10: 0.10}
