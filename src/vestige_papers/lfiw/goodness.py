"""What Tables 1, 4 and 5 and App. C.1 of LFIW share: one model, weighed, and its Record, which all of them read.

A unit trains a classifier between real and generated features (App. C.3: one hidden layer of 1000 units, Adam 1e-3,
batches of 64, 20 epochs), then draws from the model ten times; each draw is new to the classifier. What is measured on
a draw is in `lfiw_measures`, what stands in for the paper's models in `lfiw_stand_ins`.

Deviations. The classifier is chosen by held-out log-loss, not accuracy, its features are clamped at 5 deviations, and
its weights are calibrated by Platt's two numbers on rows kept aside ("calibrated", says section 3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from vestige.continual.record import Record
from vestige.core import checks
from vestige.ratios import Logistic
from vestige.runner.experiment import Experiment, OnProgress
from vestige_papers.lfiw import stand_ins as lfiw_stand_ins
from vestige_papers.lfiw.measures import measure
from vestige_papers.lfiw.stand_ins import MODELS, OWN, Setting

RUNS = "lfiw-table1"  # whose units all of these are


class Goodness(Experiment[Setting]):
    """An experiment whose units are models, weighed; the units are Table 1's, and each Record serves them all."""

    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": Setting(
            models=("vae", "skewed"), sets=("digits",), pretrained=(), n=200, draws=3, train=500, steps=100, hidden=50
        ),
        "laptop": Setting(),
        "paper": Setting(
            pretrained=MODELS,
            pretrained_n=10_000,
            n=10_000,
            train=20_000,
            epochs=10,
            steps=10_000,
            gan_steps=20_000,
            size=224,
        ),
    }
    uses: ClassVar[tuple[type, ...]] = (Logistic,)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "CIFAR-10, PixelCNN++, SNGAN and Inception (digits of 8 x 8, a VAE and class-skewed images, our "
        "classifier's features); T = 200, 3 draws, 50 hidden units.",
        "laptop": "CIFAR-10, PixelCNN++, SNGAN and Inception (stand-ins: a VAE, an f-GAN and class-skewed images of "
        "MNIST and Fashion-MNIST, features of our classifier and, for two of them, of EfficientNet-Lite0 at 32 pixels "
        "and T = 600); T = 2500 and 1250, not 10000 and 5000; they see 4000 images for 1000 (GAN: 1500) steps.",
        "paper": "CIFAR-10, PixelCNN++, SNGAN and Inception unless 'real' and 'fake' are given (stand-ins: a VAE, "
        "an f-GAN and class-skewed images of MNIST and Fashion-MNIST).",
    }

    def arms(self, config: Setting) -> Sequence[Setting]:
        """A model on a data set through a feature map; or the reader's own files."""
        if config.model:
            return [config]
        bare = dataclasses.replace(config, models=(), sets=(), pretrained=())
        if config.real is not None or config.fake is not None:
            bare = dataclasses.replace(bare, model=OWN)
            return [dataclasses.replace(bare, digest=lfiw_stand_ins.digest(bare))]
        for name in (*config.models, *config.pretrained):
            checks.one_of(name, MODELS, "models", RUNS)
        units = [
            dataclasses.replace(bare, model=model, data=data, features="classifier")
            for data in config.sets
            for model in config.models
        ]
        seen = dataclasses.replace(bare, features="pretrained", n=config.pretrained_n)
        return units + [dataclasses.replace(seen, model=m, data=config.sets[0]) for m in config.pretrained]

    def config(self, config: Setting) -> dict[str, Any]:
        """As Table 1's, so that the ids agree."""
        return super().config(config) | {"experiment": RUNS}

    def run(self, config: Setting, seed: int, on_progress: OnProgress) -> Record:
        """Weigh one model."""
        case = lfiw_stand_ins.make(config, seed, on_progress)
        ratio = Logistic(
            hidden=(config.hidden,),
            skip="none",
            lr=1e-3,
            decay=0.0,
            batch=32,  # and as many of the other side
            steps=1,
            epochs=config.classifier_epochs,
            calibration="platt",
        ).fit(case.fit_p, case.fit_q, seed=seed)
        on_progress(0.5, f"{config.model}: classifier")
        platt = ratio.report_["calibration"]
        values, details = measure(
            case,
            ratio.log_ratio,
            platt,
            lambda share: on_progress(0.5 + 0.5 * share, f"{config.model}: draws"),
            draws=config.draws,
            min_ess=config.min_ess,
        )
        details |= {"map": case.map, "features": case.said, "calibration": platt, "clips": ratio.report_["clips"]}
        return self.record(config, seed, values=values, details=details)


def by_case(records: Sequence[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """Records of each (model, data, kind of feature map), by seed, in the order of the arms."""
    ordered = sorted(records, key=lambda r: r.seed)
    found: dict[tuple[str, str, str], list[Record]] = {}
    for r in ordered:
        found.setdefault((r.config["model"], r.config["data"], r.details["map"]), []).append(r)
    return found


def label(case: tuple[str, str, str]) -> str:
    """A case in words."""
    model, data, seen = case
    if model == OWN:
        return OWN
    words = {"pretrained": ", EfficientNet", "pca": ", principal components"}
    return f"{model}, {data}{words.get(seen, '')}"


def mean_of(runs: Sequence[Record], key: str) -> float:
    """Mean over draws, then over seeds; NaN counts as NaN."""
    return fmean(float(r.values[key].mean()) for r in runs)


def judged_cases(records: Sequence[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The cases that a rule reads: all but the under-trained model, of which the paper has none."""
    return {case: runs for case, runs in by_case(records).items() if case[0] != "under-trained"}
