"""The runs behind CDRE Fig. 3, 4, 6 and 7: generators that learn ten classes one after another, judged from two sides.

CDRE section 4.2 and App. A: WGAN, WGAN-GP and three f-GANs with task indices as conditions, one class a task, by FID
and KID in a classifier's features and by f-divergences of a chain in a CVAE's. A unit is one generator and seed, run by
`generation`. Beyond the paper: a conditional VAE as a sixth row; and beside pooled FID that of each class, the
share of samples that the classifier takes for what was asked for, and how varied they are.

Deviations: samples, rows, widths and lengths of training as the preset says. The chain is the paper's, a ratio of
neighbouring steps. This package's own default, the anchored chain, refuses nearly every cell of these generators: their
samples cover so little of the data that, weighted, 500 of them are worth 1 to 13 (three classes of MNIST, f-GAN-JS).
Where KLIEP is unbounded on samples so far from the data (below `paper`), the chain's loss is logistic.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import data
from vestige.continual import generation
from vestige.continual.generation import loop
from vestige.continual.record import Record
from vestige.continual.versions import named
from vestige.core import checks, rng
from vestige.features import CVAE, Classifier
from vestige.generators import GENERATORS, Generator, build
from vestige.runner.experiment import Experiment, OnProgress

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
NAMES = {"fid": "FID", "kid": "KID", "hellinger2": "squared Hellinger"}
SHARES = {"labels": "label accuracy (%)", "variety": "variety (% of the data's)"}
FIGURE = {"digits": "cdre-fig3", "fashion_mnist": "cdre-fig3", "mnist": "cdre-fig6"}  # which the runs are kept under


@dataclass(frozen=True)
class Config:
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


PAPER_SIZE = Config(
    preset="paper", per_class=None, samples=1000, judge_rows=None, judge_epochs=100, dims=64, widths=(512, 256),
    feature_epochs=100, noise=0.1, estimator="kliep", chain="paper-images", chain_batch=None,
)  # fmt: skip
SMOKE = Config(
    data="digits", steps=20, tasks=2, per_class=None, samples=100, judge_rows=400, judge_epochs=1, dims=2, widths=(8,),
    feature_epochs=1, noise=0.01,
)  # fmt: skip


@functools.lru_cache(maxsize=1)  # the units of one process share it: training it takes as long as a generator's task
def judge_of(name: str, rows: int | None, epochs: int) -> Classifier:
    """The classifier of all classes, the same for every seed and row."""
    real = data.load(name)
    some = torch.randperm(len(real.train_x), generator=rng.fork(0, "judge"))[:rows]
    return Classifier(epochs=epochs).fit(real.floats(real.train_x[some]), real.train_y[some])


def generator_of(config: Config, shape: tuple[int, ...]) -> Generator:
    """The generator of a row."""
    name, options = ROWS[checks.one_of(config.row, ROWS, "row", "cdre-fig3")]
    preset, own = config.preset, f"{config.preset}_{options.get('divergence')}"
    preset = own if own in GENERATORS[name].presets else preset  # App. A.3 trains reverse KL for fewer epochs
    steps = {} if config.steps is None else {"steps": config.steps}
    return build(name, preset=preset, shape=shape, conditions=config.tasks, **options, **steps)


class GeneratorRuns(Experiment[Config]):
    """What the figures share."""

    uses: ClassVar[tuple[type, ...]] = (CVAE, Classifier)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 1, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "nearly everything: 8 x 8 digits of two classes, 20 steps of training",
        "laptop": "the networks (dense, `preset=small`), their training (300 to 1200 steps a task instead of 15 "
        "epochs), 1000 images a class for 6000, 500 samples a class, 16 features for 64 of a CVAE trained for 5 "
        "epochs, a smaller chain by the logistic loss, a classifier trained for 2 epochs on 10000 images, nine seeds "
        "of ten.",
    }

    def arms(self, config: Config) -> Sequence[Config]:
        """A generator each."""
        return [config] if config.row else [replace(config, row=row) for row in ROWS]

    def config(self, config: Config) -> dict[str, Any]:
        """The same for every figure of a data set, so that the ids agree."""
        return super().config(config) | {"experiment": FIGURE.get(config.data, "cdre-fig3")}

    def versions(self, config: Config) -> dict[str, int]:
        """Those of the row's generator and of the loop too."""
        return super().versions(config) | named(ROWS[config.row][0]) | {"generation": loop.VERSION}

    def run(self, config: Config, seed: int, on_progress: OnProgress) -> Record:
        """One generator through the classes."""
        real = data.load(config.data)
        on_progress(0.0, "the classifier")
        judge = judge_of(config.data, config.judge_rows, config.judge_epochs)
        stream = data.split(real, 1, order=range(config.tasks), per_class=config.per_class, seed=seed)
        seen = CVAE(
            dims=config.dims,
            encoder=config.widths,
            decoder=config.widths[::-1],
            noise=config.noise,
            epochs=config.feature_epochs,
        )
        chain: dict[str, Any] = {"strategy": config.strategy, "preset": config.chain, "estimator": config.estimator}
        chain |= {} if config.chain_batch is None else {"batch": config.chain_batch}
        found = generation.run(
            stream,
            generator_of(config, stream.input_shape),
            judge,
            features=seen,
            chain=chain,
            samples=config.samples,
            pictures=1,
            seed=seed,
            tell=on_progress,
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


def shares(records: Sequence[Record]) -> list[str]:
    """The matrices of `SHARES` that every Record has; older ones know nothing of variety."""
    return [name for name in SHARES if all(name in r.matrices for r in records)]
