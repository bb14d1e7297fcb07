"""What Fig. 5 to 21 of Farquhar and Gal share: one run of one method, and what is read from it.

A unit is a `RobustSetting` with its `row` filled in. What it leaves open (None) is as printed in B.2 to B.5, which
`vestige_papers.robust.published` holds with its own account of what the paper leaves out. Beyond that:
- Single-headed, every method trains over all ten outputs from the first task on: B.3 has "the single head", and
  "predictions are not constrained to be from the 'ground truth' task for either training or testing". Tested are the
  outputs of the tasks so far, which those of later tasks, never labels yet, have no part in.
- VCL fits its coreset from the posterior, as its authors do; the coreset-only variant from the first prior, "the
  initial prior each time" (`coreset_prior` of `vestige.continual.learners.vcl`).
- Multi-headed, each task trains its own two outputs, EWC as well; coresets are fitted head by head.
- VGR trains over all ten outputs, multi-headed too: a head a task is there "only a way of selecting predictions" (C.6),
  so that one run is read under both heads. A `Replayed` is a `RobustSetting` that says what is generated as well;
  the units of the other methods do not have its fields.
- B.3's epochs are full batches, one step each. The laptop preset keeps the number of steps and not the batch: 120 steps
  of 100 rows are one pass over a task; where that was too little it has more (Fig. 5 and 12: 141 of 256; VGR: 480).
- `test_every` = n tests on every n-th test row of a class; `validate` = n on every n-th training row, which then does
  not train: settings are searched there.
The paper's figures are curves; of the numbers behind them the text prints few, and its words are taken for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean
from typing import Any, ClassVar, Literal

from vestige import data
from vestige.continual import learners as methods
from vestige.continual.record import Record
from vestige.continual.versions import named
from vestige.data import DataSet, every_nth
from vestige.metrics import matrix
from vestige.runner import Line, OnHeldOutRows, Trained, grouped, line
from vestige.store import newer
from vestige_papers.robust.published import printed

VCL, HYBRID, CORESET, EWC = "VCL", "VCL + coreset", "Coreset only", "EWC"
VGR, DROPOUT = "VGR", "VGR, MC dropout"
# row of the figures -> method here
METHODS = {VCL: "vcl", HYBRID: "vcl_coreset", CORESET: "coreset_only", EWC: "ewc_huszar"}
ROWS = tuple(METHODS)
METHODS |= {VGR: "vgr", DROPOUT: "vgr_mc_dropout"}
WITH_CORESET = (HYBRID, CORESET)
WITHOUT_CORESET = (VCL, EWC)
UNSURE = (VCL, VGR)  # whose uncertainty is read
CORESET_PRIOR = {HYBRID: "posterior", CORESET: "first"}
# Fields that go to the learner, where its method has them.
OF_CORESET = ("coreset", "coreset_steps", "coreset_prior")
LEARNER = ("hidden", "lr", "variance_lr", "log_var", "train_samples", "test_samples", "fit_steps", "lam", *OF_CORESET)
OF_REPLAY = ("net", "generator", "generator_preset", "samples_per_class", "batch_cap")
# field of a setting -> option of a learner, and of its `replay`, where they are called otherwise
OPTIONS = {"lr": "learning_rate", "variance_lr": "variance_learning_rate"}
REPLAY_OPTIONS = {"generator": "generator", "generator_preset": "preset", "samples_per_class": "samples_per_class"}


@dataclass(frozen=True)
class RobustSetting:
    """A run of `row`, as `preset` of `published` has it but for the fields that are not None.

    A field that the row's method does not have is None in its unit. `ewc_epochs` are EWC's, whose training is another;
    in a unit they have become its `epochs`. `coreset_prior` is what the KL of the fit to a coreset is taken from: the
    posterior before it, or the first prior. `uncertainty` measures mutual information too, of VCL and VGR.
    `variance_lr` is a rate of the log-variances' own; None, as in print, that of the means. `init` is how the weights
    of every row begin; None as PyTorch's (`vestige_papers.robust.split` says what hangs on it).
    """

    row: str = ""
    preset: str = "split-mnist"
    data: str = "mnist"
    tasks: int = 5
    per_class: int | None = None
    test_every: int = 1
    validate: int = 0
    epochs: int | None = None
    ewc_epochs: int | None = None
    batch_size: int | None = None
    hidden: tuple[int, ...] | None = None
    lr: float | None = None
    log_var: float | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    fit_steps: int | None = None
    coreset: int | None = None
    coreset_steps: int | None = None
    coreset_prior: Literal["posterior", "first"] | None = None
    lam: float | None = None
    uncertainty: bool = False
    variance_lr: float | None = newer(None)
    init: str | None = newer(None)


@dataclass(frozen=True)
class Replayed(RobustSetting):
    """A run of VGR; `generator_epochs` are those of each class's generator, None as its preset has them.

    `solver` is VGR's own epochs and batch size, None as the other methods'; in a unit they have become its `epochs` and
    `batch_size`.
    """

    solver: tuple[int, int] | None = newer(None)
    net: str | None = None
    generator: str | None = None
    generator_preset: str | None = None
    generator_epochs: int | None = None
    samples_per_class: int | None = None
    batch_cap: int | None = None


def as_setting(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a learner under the names of a setting."""
    names = {option: name for name, option in OPTIONS.items()}
    found = {names.get(option, option): value for option, value in options.items() if option != "replay"}
    replay = options.get("replay", {})
    return found | {name: replay[option] for name, option in REPLAY_OPTIONS.items() if option in replay}


def as_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `as_setting`."""
    found = {OPTIONS.get(name, name): value for name, value in given.items() if name not in REPLAY_OPTIONS}
    replay = {option: given[name] for name, option in REPLAY_OPTIONS.items() if name in given}
    return found | ({"replay": replay} if replay else {})


def plain(setting: RobustSetting) -> RobustSetting:
    """The same without what is generated."""
    return RobustSetting(**{f.name: getattr(setting, f.name) for f in fields(RobustSetting)})


def filled(setting: RobustSetting, row: str, **changed: Any) -> RobustSetting:  # noqa: ANN401 - fields of RobustSetting
    """The unit of a row: what is left open as in print, what its method does not have None.

    EWC has batches, widths and a learning rate of its own, whatever `setting` says of the others.
    """
    chosen = printed(setting.preset, METHODS[row])
    known = {"epochs": chosen.epochs, "batch_size": chosen.batch_size, **as_setting(chosen.fields)}
    default = as_setting(asdict(methods.METHODS[METHODS[row]].default_config()))
    names = (*LEARNER, *(OF_REPLAY if isinstance(setting, Replayed) else ()))
    own = {name for name in (*names, "epochs", "batch_size") if name in known or name in default}
    given = {name: getattr(setting, name) for name in own}
    if row == EWC:
        given = {"epochs": setting.ewc_epochs, "lam": setting.lam}
    if isinstance(setting, Replayed) and setting.solver is not None:
        given["epochs"], given["batch_size"] = setting.solver
    given |= {name: value for name, value in changed.items() if name in own}
    said = {name: value for name, value in given.items() if value is not None}
    resolved = {name: said.get(name, known.get(name, default.get(name))) for name in sorted(own)}
    prior = changed.get("coreset_prior", setting.coreset_prior) or CORESET_PRIOR.get(row)
    resolved["coreset_prior"] = prior if row in WITH_CORESET else None
    turned = ("ewc_epochs", *(("solver",) if isinstance(setting, Replayed) else ()))  # into epochs and batches
    unit: dict[str, Any] = dict.fromkeys({*names, *turned} - own) | resolved
    return replace(setting, row=row, uncertainty=setting.uncertainty and row in UNSURE, **unit)


def stream_of(setting: RobustSetting, seed: int) -> data.Stream:
    """The tasks of a run; the seed also draws permutations, and training rows where their number is capped."""
    dataset = data.load(setting.data)
    if setting.validate:
        dataset = dataset.validation(setting.validate)
    if setting.test_every > 1:
        dataset = thinned(dataset, setting.test_every)
    if setting.preset.startswith("permuted"):
        return data.permuted(dataset, setting.tasks, train_logits="all", per_class=setting.per_class, seed=seed)
    multi = setting.preset.endswith("-multi")
    return data.split(
        dataset,
        len(dataset.names) // setting.tasks,
        head="multi" if multi else "single",
        train_logits="current" if multi else "all",
        per_class=setting.per_class,
        seed=seed,
    )


def thinned(dataset: DataSet, nth: int) -> DataSet:
    """The same training rows, every n-th test row of a class."""
    kept = every_nth(dataset.test_y, nth)
    return replace(dataset, test_x=dataset.test_x[kept], test_y=dataset.test_y[kept])


def learner_of(setting: RobustSetting, stream: data.Stream, seed: int) -> methods.Learner:
    """The row's method, with everything that the setting says of it."""
    names = (*LEARNER, "init", *(OF_REPLAY if isinstance(setting, Replayed) else ()))
    given: dict[str, Any] = {name: getattr(setting, name) for name in names if getattr(setting, name) is not None}
    method = METHODS[setting.row]
    options = as_options(as_setting(printed(setting.preset, method).fields) | given)
    if isinstance(setting, Replayed) and setting.generator_epochs is not None:
        options["replay"]["options"] = {"epochs": setting.generator_epochs}
    return methods.build(method, stream, seed=seed, **options)


def by_row(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each row, by seed, rows in their order."""
    found = grouped(records, lambda r: str(r.config["row"]))
    return {row: found[row] for row in METHODS if row in found}


def accuracy(record: Record, k: int | None = None) -> float:
    """A_k in percent, under the head of the figure."""
    return 100 * matrix.average_accuracy(record.R, k)


def old_tasks(record: Record) -> float:
    """Accuracy in percent on the tasks before the last, after the last."""
    return 100 * float(record.R[-1, :-1].mean())


def new_task(record: Record) -> float:
    """Accuracy in percent on each task just after its training: below that there was nothing to forget."""
    return 100 * float(record.R.diagonal().mean())


def mean_of(runs: Sequence[Record], k: int | None = None) -> float:
    """A_k in percent, over seeds."""
    return fmean(accuracy(r, k) for r in runs)


def run_lines(label: str, runs: Sequence[Record], *, old: float | None = None) -> list[Line]:
    """What every run is read for; `old` is what print says of the old tasks."""
    k = len(runs[0].R)
    return [
        line(label, f"A{k} (%)", [accuracy(r) for r in runs]),
        line(label, "old tasks (%)", [old_tasks(r) for r in runs], paper=old),
        line(label, "each task when new (%)", [new_task(r) for r in runs]),
    ]


class RobustRuns(OnHeldOutRows, Trained[RobustSetting]):
    """An experiment whose units are runs of one method on a stream."""

    rows: ClassVar[tuple[str, ...]] = ROWS
    later: ClassVar[tuple[str, ...]] = ("variance_lr", "init", "solver")
    presets: ClassVar[Mapping[str, RobustSetting]]

    def arms(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """A unit for each row."""
        return [filled(config, row) for row in self.rows]

    def parts(self, config: RobustSetting, seed: int) -> tuple[data.Stream, methods.Learner]:
        """The row's method on its tasks."""
        stream = stream_of(config, seed)
        return stream, learner_of(config, stream, seed)

    def versions(self, config: RobustSetting) -> dict[str, int]:
        """That of the row's method too."""
        return super().versions(config) | named(METHODS[config.row])

    def options(self, config: RobustSetting) -> dict[str, Any]:
        """Whether mutual information is measured too."""
        return {"uncertainty": config.uncertainty}
