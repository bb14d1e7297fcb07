"""CDRE Fig. 3 and 6 (measures of GANs as classes go by), 4 and 7 (their samples).

Fig. 3 and 4 are Fashion-MNIST, 6 and 7 MNIST; curves and pictures without numbers. The text (section 4.2) finds a
consensus that f-GAN-rvKL is worst throughout on Fashion-MNIST, and that WGAN and WGAN-GP visibly lose fidelity as they
learn more. Whether FID, KID and the divergences agree it leaves to the eye; `beyond-matrix-images` asks for their rank
correlation. A curve is the mean over the classes learnt so far; a class that the chain refused is left out of it, and
how many were is said.

All read the same runs (CDRE section 4.2 and App. A): WGAN, WGAN-GP and three f-GANs with task indices as conditions,
one class a task, by FID and KID in a classifier's features and by f-divergences of a chain in a CVAE's. A unit is one
generator and seed, run by `generation`. Beyond the paper: a conditional VAE as a sixth row; beside pooled FID that of
each class, the share of samples that the classifier takes for what was asked for, and how varied they are; and the
smoothed JS of each class from a vestige of its rows, which are then gone, beside an oracle that keeps them
(`KeptClasses`).

The divergences of the claims are those of the vestiges. The paper's chain, a ratio of neighbouring steps averaged by
Eq. 4 over samples of the model, is blind to samples that lie apart from the data; what the rules say by it stands
beside them. The anchored chain refuses nearly every cell of these generators: their samples cover so little of the data
that, weighted, 500 of them are worth 1 to 13 (three classes of MNIST, f-GAN-JS).

Deviations: samples, rows, widths and lengths of training as the preset says. Where KLIEP is unbounded on samples so far
from the data (below `paper`), the chain's loss is logistic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import data, ratios
from vestige.continual import generation
from vestige.continual.generation import DIVERGENCES, forgetting, intransigence
from vestige.continual.record import Record
from vestige.continual.versions import named
from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.features import CVAE, ClassifierFeatures
from vestige.generators import GENERATORS, Generator, build
from vestige.generators.pictures import grid, unpack
from vestige.ratios import Ratio
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, line, need
from vestige.vestiges import Vestige, compare, keep
from vestige_papers.beyond.oracles import components, smoothed_js

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The rows: a generator and what sets it apart.
GANS: dict[str, tuple[str, dict[str, Any]]] = {
    "WGAN": ("wgan", {}),
    "WGAN-GP": ("wgan_gp", {}),
    "f-GAN-JS": ("fgan", {"divergence": "js"}),
    "f-GAN-KL": ("fgan", {"divergence": "kl"}),
    "f-GAN-rvKL": ("fgan", {"divergence": "reverse_kl"}),
}
ROWS = GANS | {"VAE": ("vae", {})}
# What a reader calls the matrices of a Record.
KEPT, ORACLE = "js_kept", "js_oracle"
NAMES = {
    "fid": "FID",
    "kid": "KID",
    "hellinger2": "squared Hellinger",
    KEPT: "smoothed JS by a vestige",
    ORACLE: "smoothed JS with the rows",
}
SHARES = {"labels": "label accuracy (%)", "variety": "variety (% of the data's)"}
MEASURES = ("fid", "kid", KEPT, ORACLE, *DIVERGENCES)
WORST = "f-GAN-rvKL"  # as published, for Fashion-MNIST
LOSING = ("WGAN", "WGAN-GP")
EARLY = 3  # tasks after which samples still look well, against all of them

FIGURE = {"digits": "cdre-fig3", "fashion_mnist": "cdre-fig3", "mnist": "cdre-fig6"}  # which the runs are kept under


@dataclass(frozen=True)
class CDREGeneratorConfig:
    """One row on one data set; `steps` None: as many as the generator's preset says."""

    data: str = "fashion_mnist"
    row: str = ""
    preset: str = "small"
    steps: int | None = None
    tasks: int = 10
    per_class: int | None = 1000
    samples: int = 500  # of each class at each step, for both views
    judge_rows: int | None = 10_000
    judge_epochs: int = 2
    dims: int = 16  # of the CVAE's features
    widths: tuple[int, ...] = (128,)
    feature_epochs: int = 5
    noise: float = 0.02
    strategy: str = "every-step"
    estimator: str = "logistic"  # the paper's is "kliep"
    chain: str | None = None  # preset of the strategy
    chain_batch: int | None = 100  # rows, where the preset does not say
    kept: str = "fast"  # preset of the stack by which vestiges and their oracle compare


PAPER_SIZE = CDREGeneratorConfig(
    preset="paper", per_class=None, samples=1000, judge_rows=None, judge_epochs=100, dims=64, widths=(512, 256),
    feature_epochs=100, noise=0.1, estimator="kliep", chain="paper-images", chain_batch=None, kept="",
)  # fmt: skip
SMOKE = CDREGeneratorConfig(
    data="digits", steps=20, tasks=2, per_class=None, samples=100, judge_rows=400, judge_epochs=1, dims=2, widths=(8,),
    feature_epochs=1, noise=0.01,
)  # fmt: skip


@functools.lru_cache(maxsize=1)  # the units of one process share it: training it takes as long as a generator's task
def classifier_of(name: str, rows: int | None, epochs: int) -> ClassifierFeatures:
    """The classifier of all classes, the same for every seed and row."""
    real = data.load(name)
    some = torch.randperm(len(real.train_x), generator=rng.fork(0, "judge"))[:rows]
    return ClassifierFeatures(epochs=epochs).fit(real.floats(real.train_x[some]), real.train_y[some])


def generator_of(config: CDREGeneratorConfig, shape: tuple[int, ...]) -> Generator:
    """The generator of a row."""
    name, options = ROWS[checks.one_of(config.row, ROWS, "row", "cdre-fig3")]
    preset, own = config.preset, f"{config.preset}_{options.get('divergence')}"
    preset = own if own in GENERATORS[name].presets else preset  # App. A.3 trains reverse KL for fewer epochs
    steps = {} if config.steps is None else {"steps": config.steps}
    return build(name, preset=preset, shape=shape, conditions=config.tasks, **options, **steps)


@dataclass(eq=False)
class KeptClasses:
    """Vestiges of classes, in the classifier's features, and what an oracle keeps: the `watch` of a run.

    The vestige of a class is made when its rows come, and is the same for every generator of a data set and a seed.
    """

    classifier: ClassifierFeatures
    estimator: str | Ratio
    seed: int
    vestiges: dict[int, Vestige] = field(default_factory=dict)
    codes: dict[int, Float64[Tensor, "n d"]] = field(default_factory=dict)

    def __call__(self, t: int, real: Tensor, drawn: Mapping[int, Tensor]) -> dict[str, dict[int, Estimate]]:
        """The smoothed JS of every class so far, carried and with the rows."""
        if t not in self.vestiges:
            self.vestiges[t] = keep(real, features=self.classifier, seed=rng.child_seed(self.seed, "keep", t))
            self.codes[t] = self.classifier.transform(real).double()
        return {
            KEPT: {j: self._carried(j, x, t) for j, x in drawn.items()},
            ORACLE: {j: self._with_rows(j, x, t) for j, x in drawn.items()},
        }

    def _carried(self, j: int, x: Tensor, t: int) -> Estimate:
        try:
            found = compare(self.vestiges[j], x, estimator=self.estimator, seed=rng.child_seed(self.seed, "js", t, j))
        except NotEstimable as error:
            return Estimate.refused(str(error), name="js_smoothed")
        return found.divergences["js_smoothed"]

    def _with_rows(self, j: int, x: Tensor, t: int) -> Estimate:
        mean, directions = components(self.codes[j])
        p, q = ((own - mean) @ directions.mT for own in (self.codes[j], self.classifier.transform(x).double()))
        seed = rng.child_seed(self.seed, "oracle", t, j)
        return smoothed_js(p, q, p.std(0), estimator=self.estimator, seed=seed)


@functools.lru_cache(maxsize=1)
def kept_classes(
    name: str, per_class: int | None, rows: int | None, epochs: int, preset: str, seed: int
) -> KeptClasses:
    """The same for all generators of a data set and a seed: to keep ten classes takes as long as to train one."""
    estimator = ratios.build("stack", preset=preset) if preset else "auto"
    return KeptClasses(classifier_of(name, rows, epochs), estimator, seed)


class GeneratorRuns(Experiment[CDREGeneratorConfig]):
    """What the figures share."""

    uses: ClassVar[tuple[type, ...]] = (CVAE, ClassifierFeatures, Vestige)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "8 x 8 digits of two classes; 20 steps of training",
        "laptop": "6 of 10 classes; 1000 of 6000 images a class; small dense generators; 300 to 1200 steps a task, not "
        "15 epochs; 500 samples a class; 16 features, not 64, of a CVAE trained for 5 epochs; a smaller chain by the "
        "logistic loss; a classifier trained for 2 epochs on 10000 images",
    }

    def arms(self, config: CDREGeneratorConfig) -> Sequence[CDREGeneratorConfig]:
        """A generator each."""
        return [config] if config.row else [replace(config, row=row) for row in ROWS]

    def config(self, config: CDREGeneratorConfig) -> dict[str, Any]:
        """The same for every figure of a data set, so that the ids agree."""
        return super().config(config) | {"experiment": FIGURE.get(config.data, "cdre-fig3")}

    def versions(self, config: CDREGeneratorConfig) -> dict[str, int]:
        """Those of the row's generator and of the loop too."""
        own = named(ROWS[config.row][0]) | named(config.strategy) | {"generation": generation.VERSION}
        return super().versions(config) | own

    def run(self, config: CDREGeneratorConfig, seed: int, on_progress: OnProgress) -> Record:
        """One generator through the classes."""
        real = data.load(config.data)
        on_progress(0.0, "the classifier")
        classifier = classifier_of(config.data, config.judge_rows, config.judge_epochs)
        stream = data.split(real, 1, order=range(config.tasks), per_class=config.per_class, seed=seed)
        seen = CVAE(
            dims=config.dims,
            encoder=config.widths,
            decoder=config.widths[::-1],
            noise=config.noise,
            epochs=config.feature_epochs,
        )
        chain: dict[str, Any] = {"strategy": config.strategy, "preset": config.chain, "estimator": config.estimator}
        chain |= {} if config.chain_batch is None else {"batch_size": config.chain_batch}
        found = generation.run(
            stream,
            generator_of(config, stream.input_shape),
            classifier,
            features=seen,
            chain=chain,
            samples=config.samples,
            pictures=1,
            watch=kept_classes(
                config.data, config.per_class, config.judge_rows, config.judge_epochs, config.kept, seed
            ),
            seed=seed,
            on_progress=on_progress,
        )
        return self.adopt(found, config, details=found.details)


def by_row(records: Sequence[Record], name: str | None = None) -> dict[str, list[Record]]:
    """Records of each generator, of one data set where `name` is given, in the order of ROWS."""
    mine = [r for r in records if name in (None, r.config["data"])]
    return {row: found for row in ROWS if (found := [r for r in mine if r.config["row"] == row])}


def means(record: Record, name: str) -> Float64[Tensor, " t"]:
    """By step, the mean over the classes learnt so far of what was measured."""
    return record.matrices[name].nanmean(1)


def last(record: Record, name: str) -> float:
    """The mean over classes after the last; NaN if training ended before."""
    return float(means(record, name)[-1])


def word(name: str) -> str:
    """As a reader calls it."""
    return (NAMES | SHARES).get(name, name.replace("_", " "))


def there(records: Sequence[Record], names: Iterable[str]) -> list[str]:
    """The matrices that every Record has; older ones know nothing of variety or of vestiges."""
    return [name for name in names if all(name in r.matrices for r in records)]


def refused(record: Record, which: str = "verdicts") -> float:
    """The share of cells that the chain refused; of those of a vestige by their own key."""
    said = list(record.details.get(which, {}).values())
    return said.count("refused") / len(said) if said else math.nan


def _end(runs: Sequence[Record], name: str) -> float:
    """The mean over seeds after the last class; infinite where a training diverged, which is no better an end."""
    if any(r.details.get("diverged") for r in runs):
        return math.inf
    return fmean(last(r, name) for r in runs)


def _worst_by(name: str) -> Claim:
    """That the GAN which is worst in print is so by one measure."""

    def check(found: Mapping[str, Sequence[Record]]) -> Finding:
        ends = {row: _end(found[row], name) for row in GANS}
        refused = [row for row, end in ends.items() if math.isnan(end)]
        worst = max(GANS, key=lambda row: -math.inf if row in refused else ends[row])
        beside = f", without {', '.join(refused)}, which were refused" if refused else ""
        return Finding(worst == WORST and not refused, f"it is {worst}{beside}")

    return Claim(f"by {word(name)}, mean over classes after the last, the worst of the five GANs is {WORST}", check)


def _falls(row: str) -> Claim:
    """That a generator's samples are taken for their class less often at the end."""

    def check(found: Mapping[str, Sequence[Record]]) -> Finding:
        early, late = (fmean(float(means(r, "labels")[t]) for r in found[row]) for t in (EARLY - 1, -1))
        return Finding(late < early, f"{100 * early:.0f} % to {100 * late:.0f} %")

    return Claim(f"the label accuracy of {row} is lower after the last class than after {EARLY}", check)


class Measured(GeneratorRuns):
    """FID, KID and f-divergences of every generator as classes go by."""

    grounds = (
        "The claim does not hold here: by FID and KID WGAN is the worst, and by the smoothed JS of a vestige WGAN-GP "
        "is (Fig. 3), or WGAN level with f-GAN-rvKL (Fig. 6). Whether the paper's wider networks and longer training "
        "would turn that is open."
    )
    rule = Rule(
        *(_worst_by(name) for name in ("fid", "kid", KEPT)),
        note="With fewer than five GANs it is not judged.",
        earlier=Rule(*(_worst_by(name) for name in ("fid", "kid", "js"))),
        because="the js of the paper's chain is an average over samples of the model alone, which cannot see that they "
        "lie apart from the data",
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The end of every curve, pooled FID and shares beside it, F and I, and FID class by class."""
        out = []
        for row, runs in by_row(records).items():
            out += [
                line(row, f"{word(name)}, mean over classes", [last(r, name) for r in runs])
                for name in there(runs, MEASURES)
            ]
            out += [line(row, "FID, pooled", [float(r.values["fid.pooled"][-1]) for r in runs])]
            out += [line(row, word(name), [last(r, name) for r in runs], scale=100) for name in there(runs, SHARES)]
            for name in there(runs, ("fid", KEPT, "js", *SHARES)):
                scale = 100 if name in SHARES else 1
                out += [line(row, f"F, {word(name)}", [forgetting(r, name) for r in runs], scale=scale)]
                out += [line(row, f"I, {word(name)}", [intransigence(r, name) for r in runs], scale=scale)]
            out += [line(row, "refused by the chain (%)", [refused(r) for r in runs], scale=100)]
            by_vestige = [refused(r, f"verdicts.{KEPT}") for r in runs]
            out += [line(row, "refused by the vestige (%)", by_vestige, scale=100)]
            for j, task in enumerate(runs[0].task_names):
                out += [line(row, f"FID, class {task}", [float(r.matrices["fid"][-1, j]) for r in runs])]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each generator."""
        found = by_row(records)
        need(found, GANS)
        if not there(records, [KEPT]):
            raise NotJudged("Some runs are from before vestiges were asked.")
        return found

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A curve a generator for every measure, pooled FID and shares among them."""
        from vestige.show import curves

        drawn, found = {}, by_row(records)
        steps = [str(t + 1) for t in range(len(records[0].task_names))]
        for name in there(records, (*MEASURES, *SHARES)):
            scale = 100 if name in SHARES else 1
            series = {row: scale * torch.stack([means(r, name) for r in runs]).mean(0) for row, runs in found.items()}
            drawn[name] = curves(series, steps, title=self.item, x_label="classes learnt", y_label=word(name))
        pooled = {row: torch.stack([r.values["fid.pooled"] for r in runs]).mean(0) for row, runs in found.items()}
        drawn["fid-pooled"] = curves(pooled, steps, title=self.item, x_label="classes learnt", y_label="pooled FID")
        return drawn


class Shown(GeneratorRuns):
    """Samples of every generator after each class."""

    grounds = (
        "WGAN loses the labels of what it draws on both data sets, WGAN-GP on Fashion-MNIST alone (Fig. 4): on "
        "MNIST its last generators are no worse than its early ones in the mean, by one seed of three."
    )
    rule = Rule(
        *(_falls(row) for row in LOSING),
        note="Fidelity is judged by the classifier that reads the labels, since eyes cannot be run.",
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Label accuracy early and late."""
        out = []
        for row, runs in by_row(records).items():
            for t in (min(EARLY, len(runs[0].task_names)), len(runs[0].task_names)):
                values = [float(means(r, "labels")[t - 1]) for r in runs]
                out += [line(row, f"label accuracy after {t} classes (%)", values, scale=100)]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each generator, where there are classes enough."""
        found = by_row(records)
        need(found, LOSING)
        if len(records[0].task_names) <= EARLY:
            raise NotJudged(f"{len(records[0].task_names)} classes are too few.")
        return found

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A grid a generator: row t has one sample of each class after t of them, as the paper shows it."""
        drawn = {}
        for row, runs in by_row(records).items():
            pictures = [unpack(packed) for packed in runs[0].details["pictures"]]
            if pictures:
                wide = max(map(len, pictures))
                blank = [x.new_ones(wide - len(x), *x.shape[1:]) for x in pictures]
                image = torch.cat([part for x, white in zip(pictures, blank, strict=True) for part in (x, white)])
                names = [str(t + 1) for t in range(len(pictures))]
                drawn[row.lower()] = grid(image, columns=wide, rows=names, title=f"{self.item}: {row}")
        return drawn


class CDREFig3(Measured):
    """CDRE Fig. 3: GANs on Fashion-MNIST by FID, KID and f-divergences."""

    name, item = "cdre-fig3", "CDRE Fig. 3"
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = {
        "smoke": SMOKE,
        "laptop": CDREGeneratorConfig(tasks=6),
        "paper": PAPER_SIZE,
    }


class CDREFig4(Shown):
    """CDRE Fig. 4: their samples."""

    name, item = "cdre-fig4", "CDRE Fig. 4"
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = CDREFig3.presets


class CDREFig6(Measured):
    """CDRE Fig. 6: GANs on MNIST by FID, KID and f-divergences; the text makes no claim of its own."""

    name, item = "cdre-fig6", "CDRE Fig. 6"
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = {
        "smoke": SMOKE,
        "laptop": CDREGeneratorConfig(data="mnist", tasks=6),
        "paper": replace(PAPER_SIZE, data="mnist"),
    }


class CDREFig7(Shown):
    """CDRE Fig. 7: their samples."""

    name, item = "cdre-fig7", "CDRE Fig. 7"
    presets: ClassVar[Mapping[str, CDREGeneratorConfig]] = CDREFig6.presets
