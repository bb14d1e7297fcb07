"""What the tables and figures of RWalk share: one run of one method on a split data set, and what is read from it.

A unit is a `RWalkSetting` with its `row` filled in. Both heads are measured in one run. What the paper leaves open:
- Methods without samples train over the outputs of the task at hand alone ("current") and are tested over all that were
  seen: over all seen outputs every one of them ends at chance for the old tasks (19.5 % on MNIST), far from print.
  Methods with samples, iCaRL and the reference train over all seen outputs.
- EWC is EWC++, as the paper says under its Table 3. iCaRL herds on features of unit length, as its authors do.
- The network begins as in the authors' code (normal of deviation 0.1 cut at two deviations, biases 0.1), and Adam anew
  with each task.
- The reference a*_k of Eq. 4 is `joint` of the same seed, trained over all seen outputs and on all training rows,
  however few the methods see (`reference_said` has how); under the multi-head test it is the same network, asked about
  the outputs of task k alone.
- How RWalk's importance is scaled and gathered is read in several ways (`READINGS`); the default is the text's.
- Epochs are not printed. `validate` = n tests on every n-th training row of a class, which then does not train, in
  place of the test set: settings are searched there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from torch import Tensor
from torch.nn.functional import avg_pool2d

from vestige import data
from vestige.continual import learners as methods
from vestige.continual.record import Record
from vestige.continual.versions import named
from vestige.core import checks
from vestige.metrics import matrix
from vestige.runner import Line, OnHeldOutRows, Trained, grouped, line
from vestige.store import newer

JOINT = "joint"
# row of the tables -> method here; "-S" is with samples
METHODS = {
    "Vanilla": "vanilla",
    "EWC": "ewc_pp",
    "PI": "pi",
    "RWalk": "rwalk",
    "iCaRL-hb1": "icarl_hb1",
    "iCaRL": "icarl",
    "GEM": "gem",
    "A-GEM": "agem",
    "Vanilla-S": "vanilla_s",
    "EWC-S": "ewc_pp_s",
    "PI-S": "pi_s",
    "RWalk-S": "rwalk_s",
    JOINT: "joint",
}
WITHOUT = ("Vanilla", "EWC", "PI", "RWalk")
WITH = ("Vanilla-S", "EWC-S", "PI-S", "RWalk-S")
OWN_MEMORY = ("icarl", "icarl_hb1", "gem", "agem")  # which keep their own ways to choose and to use samples
# Ways to read RWalk, as options of its learner.
READINGS: dict[str, dict[str, Any]] = {
    "": {},
    "authors' code": {"preset": "authors"},
    "scaled layer by layer": {"normalise": "layer"},
    "not scaled": {"normalise": "none"},
    "path of the whole loss": {"gradient": "total"},
}


@dataclass(frozen=True)
class RWalkSetting:
    """A run. `per_class` caps the training rows of a class, `classes` how many classes there are; None is all.

    `lam` and `epochs` are None where the experiment is to take what the search has found for the row. A field that the
    row's method does not have does not reach it, nor do `sampler` and `replay` reach iCaRL and GEM, which have their
    own: a Record's details say what ran. `size` is what the sides of images are averaged down to, None as they come;
    `reading` one of `READINGS`. `last_alone` lets the reference train at the last task alone, on all rows of all tasks.
    """

    row: str = ""
    data: str = "mnist"
    classes: int | None = None
    classes_per_task: int = 2
    per_class: int | None = 500
    net: str = "mlp"
    hidden: tuple[int, ...] = (256, 256)
    init: str = "truncated_normal"
    lr: float = 1e-3
    batch_size: int = 64
    epochs: int | None = None
    lam: float | None = None
    alpha: float = 0.9
    interval: int = 10
    memory_per_class: int | None = 10
    memory_total: int | None = None
    sampler: str = "mean_of_features"
    replay: str = "balanced"
    validate: int = 0
    size: int | None = newer(None)
    reading: str = newer("")
    last_alone: bool = newer(False)


class RWalkChoice(NamedTuple):
    """Lambda, epochs, whether all training rows train or as many as the setting allows, whether at the end alone."""

    lam: float | None
    epochs: int
    whole: bool = False
    last_alone: bool = False

    def __str__(self) -> str:
        what = f"{self.epochs} epoch{'s' * (self.epochs > 1)} of {'all' if self.whole else 'few'} rows"
        return what if self.lam is None else f"lambda {self.lam:g}, {what}"


def filled(config: RWalkSetting, row: str, choice: RWalkChoice) -> RWalkSetting:
    """The unit of a row: as chosen where `config` leaves lambda and epochs open.

    A row whose choice is to train on all rows does so whatever `per_class` says.
    """
    return replace(
        config,
        row=row,
        lam=choice.lam if config.lam is None or choice.lam is None else config.lam,
        epochs=choice.epochs if config.epochs is None else config.epochs,
        per_class=None if choice.whole else config.per_class,
        last_alone=choice.last_alone,
    )


def stream_of(setting: RWalkSetting, seed: int) -> data.Stream:
    """The tasks of a run; the seed also draws the training rows where their number is capped."""
    dataset = data.load(setting.data)
    if setting.validate:
        dataset = dataset.validation(setting.validate)
    if setting.size is not None:
        dataset = shrunk(dataset, setting.size)
    current = setting.row in WITHOUT
    return data.split(
        dataset,
        setting.classes_per_task,
        order=None if setting.classes is None else range(setting.classes),
        head="multi" if current else "single",
        train_logits="current" if current else "seen",
        per_class=setting.per_class,
        seed=seed,
    )


def shrunk(dataset: data.DataSet, size: int) -> data.DataSet:
    """Images whose pixels are means over squares of the original ones."""
    side = dataset.train_x.shape[-1]
    if size < 1 or side % size:
        checks.refuse("size", "RWalkSetting", f"a divisor of {side}", size)

    def pooled(x: Tensor) -> Tensor:
        means = avg_pool2d(x.float(), side // size)
        return means if x.is_floating_point() else means.round().to(x.dtype)

    return replace(dataset, train_x=pooled(dataset.train_x), test_x=pooled(dataset.test_x))


def by_row(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each row, by seed."""
    return grouped(records, lambda r: str(r.config["row"]))


def accuracy(record: Record, head: str, k: int | None = None) -> float:
    """A_k in percent."""
    return 100 * matrix.average_accuracy(record.matrices[head], k)


def forgetting(record: Record, head: str) -> float:
    """F of the last task (Eq. 3)."""
    return matrix.forgetting(record.matrices[head])


def intransigence(record: Record, head: str, joint: Mapping[int, Record]) -> float:
    """I of the last task (Eq. 4) against the joint run of the same seed; NaN where there is none."""
    if record.seed not in joint:
        return float("nan")
    return matrix.intransigence(record.matrices[head], joint[record.seed].matrices[head])


def reference_said(joint: Iterable[Record]) -> str:
    """How the reference was trained, from its Records."""
    said = {
        f"{r.config['epochs']} epoch{'s' * (r.config['epochs'] > 1)} of "
        + ("all" if r.config["per_class"] is None else f"{r.config['per_class']}")
        + f" training rows a class, batches of {r.config['batch_size']}, Adam {r.config['lr']:g}, "
        + ("at the last task alone" if r.config.get("last_alone") else "anew at each task")
        for r in joint
    }
    ends = fmean(float(r.matrices["single"][-1, -1]) for r in joint)
    return f"The reference of I is joint training: {'; '.join(sorted(said))} (a* of the last task {ends:.3f})."


def table_lines(
    runs: Sequence[Record], label: str, head: str, joint: Mapping[int, Record], paper: Sequence[float | None] | None
) -> list[Line]:
    """A, F and I of one row under one head, beside (A, F, I) as printed."""
    k = len(runs[0].matrices[head])
    a, f, i = paper or (None, None, None)
    return [
        line(label, f"A{k} (%)", [accuracy(r, head) for r in runs], paper=a),
        line(label, f"F{k}", [forgetting(r, head) for r in runs], paper=f),
        line(label, f"I{k}", [intransigence(r, head, joint) for r in runs], paper=i),
    ]


def score(record: Record) -> float:
    """What is searched for: single-head A in percent; without samples the mean of both heads."""
    single = accuracy(record, "single")
    return fmean((single, accuracy(record, "multi"))) if record.config["row"] in WITHOUT else single


class Incremental(OnHeldOutRows, Trained[RWalkSetting]):
    """An experiment whose units are runs of one method on a split data set."""

    presets: ClassVar[Mapping[str, RWalkSetting]]
    later: ClassVar[tuple[str, ...]] = ("size", "reading", "last_alone")

    def parts(self, config: RWalkSetting, seed: int) -> tuple[data.Stream, methods.Learner]:
        """The row's method on its tasks, with those fields of the setting that it has.

        iCaRL and GEM keep their own ways to remember.
        """
        stream, name = stream_of(config, seed), METHODS[config.row]
        own = set(methods.METHODS[name].default_config().__dataclass_fields__)
        own -= {"lam"} if config.lam is None else set()
        given: dict[str, Any] = {f.name: getattr(config, f.name) for f in fields(config) if f.name in own}
        if name.endswith("_s") or name in OWN_MEMORY:
            given["memory"] = {"per_class": config.memory_per_class, "total": config.memory_total}
        if name.endswith("_s"):
            given["memory"] |= {"sampler": config.sampler, "replay": config.replay}
        given |= READINGS[config.reading] | ({"since": len(stream) - 1} if config.last_alone else {})
        return stream, methods.build(name, stream, seed=seed, learning_rate=config.lr, **given)

    def versions(self, config: RWalkSetting) -> dict[str, int]:
        """That of the row's method too."""
        return super().versions(config) | named(METHODS[config.row])

    def score(self, record: Record) -> float:
        """Of both heads where both are compared."""
        return score(record)
