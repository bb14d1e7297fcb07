"""CDRE Fig. 5: two kinds of noise in MNIST's 784 pixels. FID and KID call one worse, KL and reverse KL the other.

"many": half of the samples have 1 pixel set to 0.5. "strong": a tenth of the samples have 50 pixels set to 0.5. FID and
KID weigh how far mass is moved and hold the second for worse; density ratios ask how much of q lies where p has nothing
and hold the first for worse. The figure's bars have no printed numbers; the text states the disagreement.

Where noise can be told from data without error, KL(p || q) is exactly -log(share left clean): log 2 = 0.69 and
log 10/9 = 0.11, and the reverse KL is infinite; those are shown as the truth of KL.

Deviations. The pixels are drawn once a run and are the same in every corrupted sample, as the text can be read;
`per_sample=True` draws them anew for each. The two sides are different images. Number of samples: not stated there. It
matters for KLIEP, which in some seeds does not learn the noise of many samples at all: over five seeds its KL is 0.00
to 0.41 of 3000 images a side (`--set n=3000`), and 0.00 to 0.70, with four above 0.3, of the laptop's 10 000.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import metrics
from vestige.continual.record import Record
from vestige.core import rng
from vestige.ratios import KLIEPNet, Stack
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, line, some, those
from vestige_papers.cdre.static import ESTIMATORS, estimated, load, scalar, shuffled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The share of samples and the number of pixels that are corrupted, and to what value.
PAPER = {"many": (0.5, 1), "strong": (0.1, 50)}
VALUE = 0.5
NAMES = ("kl", "reverse_kl")
MEASURES = ("fid", "kid", *(f"{estimator}.{name}" for estimator in ESTIMATORS for name in NAMES))


@dataclass(frozen=True)
class CDREFig5Config:
    """`n` samples a side; `strong_pixels` for data sets with fewer pixels than MNIST."""

    data: str = "mnist"
    n: int = 3000
    strong_pixels: int = PAPER["strong"][1]
    per_sample: bool = False
    kliep: str = "fast"


def corrupted(
    x: Float[Tensor, "n d"], share: float, pixels: int, *, per_sample: bool, generator: torch.Generator
) -> Float[Tensor, "n d"]:
    """`x` with `pixels` columns of a `share` of its rows set to VALUE."""
    n, d = x.shape
    rows = torch.randperm(n, generator=generator)[: round(share * n)]
    draws = len(rows) if per_sample else 1
    columns = torch.rand(draws, d, generator=generator).argsort(1)[:, :pixels].expand(len(rows), -1)
    out = x.clone()
    out[rows[:, None], columns] = VALUE
    return out


def _says_many(name: str) -> Callable[[Mapping[str, str]], Finding]:
    return lambda worse: Finding(worse[f"kliep.{name}"] == "many")


class CDREFig5(Experiment[CDREFig5Config]):
    """A little noise in many samples, or much noise in few?"""

    name = "cdre-fig5"
    item = "CDRE Fig. 5"
    rule = Rule(
        Claim(
            "FID and KID both call the noise in few samples the worse one, in the mean over seeds",
            lambda worse: Finding(worse["fid"] == worse["kid"] == "strong"),
        ),
        Claim("KL by KLIEP, as in the paper, calls the noise in many samples the worse one", _says_many("kl")),
        Claim("reverse KL by KLIEP calls the noise in many samples the worse one", _says_many("reverse_kl")),
        partly=those("a") & some("b", "c"),
    )
    presets: ClassVar[Mapping[str, CDREFig5Config]] = {
        "smoke": CDREFig5Config("digits", n=500, strong_pixels=20),
        "laptop": CDREFig5Config(n=10000),
        "paper": CDREFig5Config(n=30000, kliep="paper"),
    }
    uses: ClassVar[tuple[type, ...]] = (KLIEPNet, Stack)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "8 x 8 digits in place of MNIST; 20 pixels, not 50",
        "laptop": "10 000 images a side; a 32-32 network for KLIEP at a larger rate",
    }

    def run(self, config: CDREFig5Config, seed: int, on_progress: OnProgress) -> Record:
        """Both kinds of noise against the same clean images."""
        x = shuffled(load(config.data), seed)[0].flatten(1)[: 2 * config.n].double()
        clean, other = x[: len(x) // 2], x[len(x) // 2 :]
        values: dict[str, Tensor] = {}
        refused: dict[str, str] = {}
        for done, (kind, (share, pixels)) in enumerate(PAPER.items()):
            count = config.strong_pixels if kind == "strong" else pixels
            generator = rng.fork(seed, "noise", kind)
            noisy = corrupted(other, share, count, per_sample=config.per_sample, generator=generator)
            values[f"{kind}.fid"] = scalar(metrics.fid(clean, noisy).value)
            values[f"{kind}.kid"] = scalar(metrics.kid(clean, noisy).value)
            for estimator in ESTIMATORS:
                found = estimated(clean, noisy, NAMES, estimator=estimator, kliep=config.kliep, seed=seed)
                values |= {f"{kind}.{estimator}.{name}": scalar(v) for name, v in found.values.items()}
                refused |= {f"{kind}.{estimator}.{name}": words for name, words in found.refused.items()}
                on_progress(
                    (done + (ESTIMATORS.index(estimator) + 1) / len(ESTIMATORS)) / len(PAPER), f"{kind}: {estimator}"
                )
        return self.record(config, seed, values=values, details={"refused": refused})

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The bars of the figure."""
        out = []
        for kind, (share, _) in PAPER.items():
            label = f"{kind}: {share:.0%} of samples"
            out += [line(label, name, _of(records, f"{kind}.{name}")) for name in ("fid", "kid")]
            for estimator in ESTIMATORS:
                for name in NAMES:
                    truth = -math.log1p(-share) if name == "kl" else None
                    values = _of(records, f"{kind}.{estimator}.{name}")
                    out += [line(label, f"{name}, {estimator}", values, truth=truth)]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, str]:
        """Which noise is the worse one, by each measure."""
        if not records:
            raise NotJudged("nothing has been run.")
        return {key: _worse(records, key) for key in MEASURES}

    def remarks(self, facts: Mapping[str, str]) -> str:
        """By every measure."""
        worse = {kind: [key for key, found in facts.items() if found == kind] for kind in PAPER}
        return ". ".join(f"Worse is '{kind}' by {', '.join(keys) or 'none'}" for kind, keys in worse.items()) + "."

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Each measure as a share of its larger bar, so that all stand on one axis."""
        from vestige.show import bars

        keys = list(MEASURES)
        means = {kind: [statistics.fmean(_of(records, f"{kind}.{key}")) for key in keys] for kind in PAPER}
        top = [max(abs(means[kind][i]) for kind in PAPER) or 1.0 for i in range(len(keys))]
        series = {kind: [v / t for v, t in zip(values, top, strict=True)] for kind, values in means.items()}
        return {self.name: bars(series, keys, title=f"{self.item}: which noise is worse", y_label="share of the worse")}


def _worse(records: Sequence[Record], key: str) -> str:
    return max(PAPER, key=lambda kind: statistics.fmean(_of(records, f"{kind}.{key}")))


def _of(records: Sequence[Record], key: str) -> list[float]:
    return [float(record.values[key]) for record in records]
