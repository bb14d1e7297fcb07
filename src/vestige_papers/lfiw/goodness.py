"""What Tables 1, 4 and 5 and App. C.1 of LFIW share: one model, weighed, and its Record, which all of them read.

A unit trains a classifier between real and generated features (App. C.3: one hidden layer of 1000 units, Adam 1e-3,
batches of 64, 20 epochs), then draws from the model ten times; each draw is new to the classifier. What is measured on
a draw is below, what takes the place of the paper's models in `models`.

Deviations. The classifier is chosen by held-out log-loss, not accuracy, its features are clamped at 5 deviations, and
its weights are calibrated by Platt's two numbers on rows kept aside ("calibrated", says section 3).

    Table 1       IS, FID and KID against test rows, with equal weights ("Default"), with self-normalised ones ("LFIW",
                  Eq. 6), and tempered to an effective sample size of a tenth; the reference score is that of real rows
    Tables 4, 5   estimates of the feature means of the test rows by every form of section 2.3, T = n and T = n/2;
                  squared bias, variance and their sum as in Eq. 16, with the plain variance over the draws
    App. C.1      reliability of the classifier in 10 bins, on test rows and the first draw, before and after Platt

KID is the unbiased cubic MMD, where the paper has a Gaussian kernel. T = n/2 takes the first half of each
draw. Tempering and, where they are known, true weights are not in the paper.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige import features, metrics
from vestige.continual.record import Record
from vestige.core import NotEstimable, checks
from vestige.ratios import Logistic, expected_calibration_error, held_out_figures, reliability, weights
from vestige.runner import Experiment, NotJudged, OnProgress, grouped
from vestige_papers.cdre.static import scalar
from vestige_papers.lfiw import models
from vestige_papers.lfiw.models import MODELS, OWN, FeatureDraw, GoodnessSetting, WeighedModel

ALPHAS, BETAS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.001, 0.01, 0.1, 1.0)
SELF_NORM, NONE, TEMPERED, TRUE = "Self-norm", "Flattening (alpha = 0)", "Tempered", "True weights"
# Rows of Tables 4 and 5, in their order: log weights -> log weights whose plain mean with f estimates E_p[f].
ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {SELF_NORM: weights.self_normalise}
ESTIMATORS |= {f"Flattening (alpha = {a:g})": partial(weights.flatten, alpha=a) for a in ALPHAS}
ESTIMATORS |= {f"Clipping (beta = {b:g})": partial(weights.clip, beta=b) for b in BETAS}
# Rows of Table 1.
DEFAULT, LFIW, REFERENCE = "Default", "LFIW", "Reference"
SCORES = ("is", "fid", "kid")
BINS = 10
ONE_ROW = 1e-9


def bias_variance(truth: Float[Tensor, " d"], estimates: Float[Tensor, "draws d"]) -> Float64[Tensor, "3 2"]:
    """|bias|, variance and MSE (Eq. 16), each averaged over the statistics, and its standard error over them."""
    bias = estimates.mean(0) - truth
    variance = estimates.var(0, correction=0)
    each = torch.stack([bias.abs(), variance, bias.square() + variance])
    error = each.std(1) / math.sqrt(each.shape[1]) if each.shape[1] > 1 else torch.full((3,), math.nan)
    return torch.stack([each.mean(1), error], 1).double()


def scores(test: Float[Tensor, "n d"], drawn: FeatureDraw, log_weights: Tensor | None) -> dict[str, float]:
    """IS, FID and KID; NaN where they cannot be had, as of weights that are worth one row."""
    found = dict.fromkeys(SCORES, math.nan)
    if log_weights is not None and weights.ess(log_weights) < 1 + ONE_ROW:
        return found
    w = None if log_weights is None else weights.self_normalise(log_weights).exp()
    try:
        found["fid"] = metrics.fid(test, drawn.x, q_weights=w).value
        found["kid"] = metrics.kid(test, drawn.x, q_weights=w).value
        if drawn.logits is not None:
            found["is"] = metrics.inception_score(drawn.logits, kind="logits", weights=w).value
    except NotEstimable:  # a covariance of weights that are hardly worth more
        pass
    return found


def measure(
    case: WeighedModel,
    log_ratio: Callable[[Tensor], Tensor],
    platt: Mapping[str, float],
    on_progress: Callable[[float], None],
    *,
    draws: int,
    min_ess: float,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that the tables read, from `draws` draws."""
    forms = ESTIMATORS | {TEMPERED: lambda w: weights.self_normalise(weights.temper(w, min_ess).log_weights)}
    estimates: dict[str, list[Tensor]] = {}
    found: dict[str, list[float]] = {}
    values: dict[str, Tensor] = {}
    details: dict[str, Any] = {}
    for i in range(draws):
        drawn = case.draw(i)
        log_w, truth = log_ratio(drawn.x), drawn.true_log_weights
        if i == 0:
            values, details = _calibration(log_ratio(case.test), log_w, platt)
        tempered = weights.temper(log_w, min_ess)
        rows: dict[str, Tensor | None] = {DEFAULT: None, LFIW: log_w, TEMPERED: tempered.log_weights}
        rows |= {} if truth is None else {TRUE: truth}
        for row, row_weights in rows.items():
            for score, value in scores(case.test, drawn, row_weights).items():
                found.setdefault(f"{row}.{score}", []).append(value)
        weighed = {name: (form, log_w) for name, form in forms.items()}
        weighed |= {} if truth is None else {TRUE: (weights.self_normalise, truth)}
        for name, (form, chosen) in weighed.items():
            for part, t in (("full", len(log_w)), ("half", len(log_w) // 2)):
                estimates.setdefault(f"{part}.{name}", []).append(form(chosen[:t]).exp() @ drawn.x[:t] / t)
        diagnosis = weights.diagnose(log_w)
        facts = {"ess": diagnosis.ess_fraction, "mean_weight": diagnosis.mean_weight, "alpha": tempered.alpha}
        facts["pareto_k"] = math.nan if diagnosis.pareto_k is None else diagnosis.pareto_k
        if truth is not None:
            gap = weights.self_normalise(log_w) - weights.self_normalise(truth)
            facts |= {
                "log_weight_error": float(gap.square().mean().sqrt()),
                "true_ess": weights.ess(truth) / len(truth),
            }
        for name, value in facts.items():
            found.setdefault(name, []).append(value)
        on_progress((i + 1) / draws)
    values |= {name: torch.tensor(each, dtype=torch.float64) for name, each in found.items()}
    values |= {f"{REFERENCE}.{k}": scalar(v) for k, v in scores(case.test, case.other, None).items()}
    mean = case.test.mean(0)
    values |= {f"{name}.bias": bias_variance(mean, torch.stack(each)) for name, each in estimates.items()}
    return values, details | {"t": len(drawn.x), "width": drawn.x.shape[1]}


def _calibration(log_p: Tensor, log_q: Tensor, platt: Mapping[str, float]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reliability before and after Platt, on rows that neither has seen."""
    values: dict[str, Tensor] = {}
    details: dict[str, Any] = {}
    w_p, w_q = torch.ones_like(log_p), torch.ones_like(log_q)
    undo = platt["slope"] > 0  # a slope of 0 has forgotten what it was applied to
    for name in ("raw", "platt"):
        p, q = (
            (side - platt["offset"]) / platt["slope"] if name == "raw" and undo else side for side in (log_p, log_q)
        )
        table = reliability(p, q, w_p, w_q, bins=BINS)
        values |= {f"{name}.mass": table.mass, f"{name}.stated": table.stated, f"{name}.found": table.found}
        values[f"{name}.ece"] = scalar(expected_calibration_error(table))
        figures = held_out_figures(p, q, w_p, w_q)
        details[name] = {key: figures[key] for key in ("accuracy", "log_loss")}
    return values, details


Cases = Mapping[tuple[str, str, str], Sequence[Record]]  # (model, data, kind of feature map) -> Records
EVERY_MODEL = "Cases are all models but the under-trained one; means are over draws and seeds."
RUNS = "lfiw-table1"  # whose units all of these are


class Goodness(Experiment[GoodnessSetting]):
    """An experiment whose units are models, weighed; the units are Table 1's, and each Record serves them all."""

    presets: ClassVar[Mapping[str, GoodnessSetting]] = {
        "smoke": GoodnessSetting(
            models=("vae", "skewed"), sets=("digits",), pretrained=(), n=200, draws=3, train=500, steps=100, hidden=50
        ),
        "laptop": GoodnessSetting(),
        "paper": GoodnessSetting(
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
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "8 x 8 digits, a VAE, class-skewed images and our classifier's features in place of CIFAR-10, "
        "PixelCNN++, SNGAN and Inception; T = 200; 3 draws; 50 hidden units",
        "laptop": "a VAE, an f-GAN and class-skewed images of MNIST and Fashion-MNIST in place of CIFAR-10, PixelCNN++ "
        "and SNGAN; features of our classifier (for two of them of EfficientNet-Lite0 at 32 pixels, with T = 600) in "
        "place of Inception; T = 2500 and 1250, not 10000 and 5000; models trained on 4000 images for 1000 (GAN: 1500) "
        "steps",
        "paper": "a VAE, an f-GAN and class-skewed images of MNIST and Fashion-MNIST in place of CIFAR-10, PixelCNN++, "
        "SNGAN and Inception, unless 'real' and 'fake' are given",
    }

    def arms(self, config: GoodnessSetting) -> Sequence[GoodnessSetting]:
        """A model on a data set through a feature map; or the reader's own files."""
        if config.model:
            return [config]
        bare = dataclasses.replace(config, models=(), sets=(), pretrained=())
        if config.real is not None or config.fake is not None:
            bare = dataclasses.replace(bare, model=OWN)
            return [dataclasses.replace(bare, digest=models.digest(bare))]
        for name in (*config.models, *config.pretrained):
            checks.one_of(name, MODELS, "models", RUNS)
        units = [
            dataclasses.replace(bare, model=model, data=data, features="classifier")
            for data in config.sets
            for model in config.models
        ]
        seen = dataclasses.replace(bare, features="pretrained", n=config.pretrained_n)
        return units + [dataclasses.replace(seen, model=m, data=config.sets[0]) for m in config.pretrained]

    def config(self, config: GoodnessSetting) -> dict[str, Any]:
        """As Table 1's, so that the ids agree."""
        return super().config(config) | {"experiment": RUNS}

    def facts(self, records: Sequence[Record]) -> Cases:
        """The cases that a rule reads: all but the under-trained model, of which the paper has none."""
        cases = {case: runs for case, runs in by_case(records).items() if case[0] != "under-trained"}
        if not cases:
            raise NotJudged("No model that the rule reads was run.")
        return cases

    def require(self, config: GoodnessSetting) -> None:
        """The extra `features`, for a unit that is seen through it."""
        if config.model != OWN and config.features == features.Pretrained.name:
            features.Pretrained.require()

    def run(self, config: GoodnessSetting, seed: int, on_progress: OnProgress) -> Record:
        """Weigh one model."""
        case = models.make(config, seed, on_progress)
        ratio = Logistic(
            hidden=(config.hidden,),
            skip="none",
            learning_rate=1e-3,
            weight_decay=0.0,
            batch_size=32,  # and as many of the other side
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
    return grouped(records, lambda r: (r.config["model"], r.config["data"], r.details["map"]))


def label(case: tuple[str, str, str]) -> str:
    """A case in words."""
    model, data, seen = case
    if model == OWN:
        return OWN
    return f"{model}, {data}{', EfficientNet' * (seen == features.Pretrained.name)}"


def mean_of(runs: Sequence[Record], key: str) -> float:
    """Mean over draws, then over seeds; NaN counts as NaN."""
    return fmean(float(r.values[key].mean()) for r in runs)
