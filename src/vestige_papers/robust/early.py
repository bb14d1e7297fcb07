"""Farquhar and Gal Fig. 2, 3 and 4: how sure the model is of task B, and how hard B pulls, in the first batches.

The paper finds predictions on task B of Split MNIST far surer than on Permuted MNIST (Fig. 2, a table: entropy 0.003
and 0.453), the final layer's likelihood gradient much larger (Fig. 3) and much larger against that of the prior
(Fig. 4). Fig. 3 and 4 print curves without numbers, and "much larger" without a factor: the direction is judged. An
earlier rule asked for a factor of 2; what it says stands beside.

"Early in training" is read as the mean over the 15 batches of B.1, each before it trains; the first batch alone, other
kinds of entropy and the entropy after training stand beside it. A unit trains task A once and makes 100 runs from
there, as in B.1; another seed is another network for task A. Errors of means over batches are over networks, or over
the runs where there is only one network, as in print.

How they are run (B.1): task A learnt once, then many short runs on task B from there.
Split: A is the first half of the classes, B the second. Permuted: A is the data, B the same with its pixels in another
order, a new one each run. VCL (100-100, Adam at 1e-3, B.2) learns A in `epochs` of batches of 256; then, from that
same posterior each time, `runs` times `batches` batches of 16 rows of B, watched (see `first_batches`).

Deviations and what the paper leaves open:
- Log-variances start at -6 (`log_var`), as in the code of VCL's authors; the paper says a variance of 1e-6, which is
  `--set log_var=-13.8`. The maximum-likelihood fit that means start from is `fit_steps` batches.
- "The model always makes a prediction over the classes [0:9]" (3.2.2): all outputs train from the start (`train_logits`
  "all"). `--set head=multi --set train_logits=current` gives each task a head of its own.
- Print has one network for task A, as far as it says. A seed is a network here: `--seeds` asks for more of them.
- Log-variances have the learning rate of the means, as nothing else is printed (`variance_learning_rate=None`).
- Posterior samples a batch are not printed: 10, as VCL's authors; `samples_a` while A is learnt.
- N of the KL is the number of rows of task B, not of the few that are seen of it.
- A permutation of the run's own is applied on top of the stream's: together they are a fresh one.
- `pixels` multiplies the inputs, which are in [0, 1]: 255 is the data as it lies in its files.
- A maximum-likelihood network is `--set epochs=0` with many `fit_steps`: means at that fit, variances as they start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import data
from vestige.continual.learners import VCL, Outputs, Spec
from vestige.continual.learners.vcl import VCLConfig
from vestige.continual.record import Record
from vestige.core import checks, rng
from vestige.data import Task
from vestige.runner import Claim, Finding, Line, OnProgress, Rule, Trained, at_least, line, need, those
from vestige_papers.robust.first_batches import KINDS, Early, prediction_entropies, watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("split", "permuted")
TEST_ROWS = 2000  # of a task, that the network is asked about when A is learnt


@dataclass(frozen=True)
class EarlySetting:
    """How A is learnt and B is watched; an arm fills in `tasks`. `per_class` caps the training rows of a class."""

    tasks: str = ""
    data: str = "mnist"
    per_class: int | None = None
    pixels: float = 1.0
    head: str = "single"
    train_logits: str = "all"
    hidden: tuple[int, ...] = (100, 100)
    lr: float = 1e-3
    log_var: float = -6.0
    fit_steps: int = 200
    epochs: int = 120
    batch_size: int = 256
    samples_a: int = 10
    train_samples: int = 10
    test_samples: int = 100
    runs: int = 100
    batches: int = 15
    early_batch_size: int = 16
    of: str = "weight"


def stream_of(setting: EarlySetting, seed: int) -> data.Stream:
    """Task A and task B."""
    dataset = data.load(setting.data)
    if setting.pixels != 1:
        train, test = (setting.pixels * dataset.floats(x) for x in (dataset.train_x, dataset.test_x))
        dataset = replace(dataset, train_x=train, test_x=test)
    given: dict[str, Any] = {"head": setting.head, "train_logits": setting.train_logits, "per_class": setting.per_class}
    if setting.tasks == "permuted":
        return data.permuted(dataset, 2, seed=seed, **given)
    return data.split(dataset, (len(dataset.names) + 1) // 2, seed=seed, **given)


def learner_of(setting: EarlySetting, stream: data.Stream, samples: int, seed: int) -> VCL:
    """VCL as B.2 has it."""
    config = VCLConfig(
        hidden=setting.hidden,
        learning_rate=setting.lr,
        variance_learning_rate=None,
        log_var=setting.log_var,
        fit_steps=setting.fit_steps,
        train_samples=samples,
        test_samples=setting.test_samples,
    )
    return VCL(Spec(stream.input_shape, stream.n_outputs), config, seed=seed)


def learn(learner: VCL, task: Task, setting: EarlySetting, seed: int, on_progress: OnProgress) -> None:
    """Task A, whole: when it ends, the posterior is the prior."""
    learner.begin_task(task)
    for epoch in range(setting.epochs):
        order = torch.randperm(len(task), generator=rng.fork(seed, "order", epoch))
        for rows in order.split(setting.batch_size):
            learner.observe(task.x[rows], task.y[rows])
        on_progress(0.9 * (epoch + 1) / setting.epochs, f"{setting.tasks}, task A")
    learner.end_task(task)


def after_a(learner: VCL, stream: data.Stream, seed: int) -> dict[str, Float64[Tensor, "..."]]:
    """The network before it sees B, on test rows: accuracy on A; mean and median entropy on A's inputs and on B's."""
    tests = stream.test_sets()
    scores = learner.predict(tests[0].x[:TEST_ROWS], stream.info(0))[:, list(tests[0].outputs)]
    right = torch.tensor(tests[0].outputs)[scores.argmax(1)] == tests[0].y[:TEST_ROWS]
    values = {"accuracy_a": right.double().mean()}
    for k, name in enumerate("ab"):
        outputs = Outputs(stream.info(k).train_outputs, stream.n_outputs)
        noise, samples = rng.fork(seed, "after a", name), learner.config.test_samples
        found = prediction_entropies(learner.net, outputs, tests[k].x[:TEST_ROWS], samples=samples, generator=noise)
        values[f"entropy_on_{name}"] = torch.stack([found["predictive"].mean(), found["predictive"].median()])
    return values


def watched(setting: EarlySetting, stream: data.Stream, state: Mapping[str, Tensor], task: Task, seed: int) -> Early:
    """One run on task B from `state`, with rows, noise and permutation of its own."""
    learner = learner_of(setting, stream, setting.train_samples, seed)
    learner.load_state_dict(dict(state))
    learner.begin_task(task)
    count = setting.batches * setting.early_batch_size
    rows = torch.randperm(len(task), generator=rng.fork(seed, "rows"))[:count]
    x = task.x[rows]
    if setting.tasks == "permuted":
        order = torch.randperm(x[0].numel(), generator=rng.fork(seed, "permutation"))
        x = x.flatten(1)[:, order].reshape(x.shape)
    shape = (setting.batches, setting.early_batch_size)
    return watch(learner, x.unflatten(0, shape), task.y[rows].unflatten(0, shape), of=setting.of, seed=seed)


def gathered(runs: Sequence[Early]) -> dict[str, Float64[Tensor, "..."]]:
    """Name -> (mean, deviation) over runs for each batch; `*_runs` -> each run's mean over its batches."""
    stacked = {f"entropy_{kind}": torch.stack([r.before[kind] for r in runs]) for kind in KINDS}
    stacked |= {f"entropy_{kind}_after": torch.stack([r.after[kind] for r in runs]) for kind in KINDS}
    stacked |= {"likelihood": torch.stack([r.likelihood for r in runs]), "prior": torch.stack([r.prior for r in runs])}
    stacked |= {"ratio": torch.stack([r.ratio() for r in runs])}
    stacked |= {"ratio_batch": torch.stack([r.ratio("batch") for r in runs])}
    values = {name: torch.stack([of.mean(0), of.std(0)]) for name, of in stacked.items()}
    # The first batch has no ratio; a run's mean is over the others.
    return values | {f"{name}_runs": stacked[name].nanmean(1) for name in ("entropy_predictive", "likelihood", "ratio")}


class EarlyRuns(Trained[EarlySetting]):
    """An experiment that reads these runs. All three figures share Records, which lie under the first one's name."""

    version: ClassVar[int] = 2  # 2: log-variances have the rate of the means again, as in print
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # it looks at gradients in float64
    presets: ClassVar[Mapping[str, EarlySetting]] = {
        "smoke": EarlySetting(
            data="digits", hidden=(32,), epochs=5, batch_size=64, samples_a=2, fit_steps=50, test_samples=20, runs=4
        ),
        "laptop": EarlySetting(epochs=40, samples_a=1),
        "paper": EarlySetting(),
    }
    uses: ClassVar[tuple[type, ...]] = (VCL,)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 2, "laptop": 10, "paper": 1}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "8 x 8 digits in place of MNIST; 5 epochs; 32 units; 4 runs",
        "laptop": "40 epochs of task A; one posterior sample a batch while it is learnt",
    }

    def arms(self, config: EarlySetting) -> Sequence[EarlySetting]:
        """Split and permuted."""
        return [replace(config, tasks=tasks) for tasks in TASKS]

    def config(self, config: EarlySetting) -> dict[str, Any]:
        """The same for all three figures, so that their ids agree."""
        return super().config(config) | {"experiment": "robust-fig2"}

    def parts(self, config: EarlySetting, seed: int) -> tuple[data.Stream, VCL]:
        """Both tasks, and VCL as it learns A."""
        stream = stream_of(config, seed)
        return stream, learner_of(config, stream, config.samples_a, seed)

    def run(self, config: EarlySetting, seed: int, on_progress: OnProgress) -> Record:
        """Learn A once, then watch `runs` runs on B."""
        checks.one_of(config.tasks, TASKS, "tasks", self.name)
        checks.whole(config.runs, "runs", self.name, low=2)
        stream, learner = self.parts(config, seed)
        tasks = iter(stream)
        learn(learner, next(tasks), config, seed, on_progress)
        values, state = after_a(learner, stream, seed), learner.state_dict()
        task_b, found = next(tasks), []
        for r in range(config.runs):
            found.append(watched(config, stream, state, task_b, rng.child_seed(seed, "run", r)))
            on_progress(0.9 + 0.1 * (r + 1) / config.runs, f"{config.tasks}, run {r + 1} on task B")
        task_b.withdraw()
        return self.record(config, seed, values=gathered(found) | values)


# Fig. 2, as printed, in nats.
PAPER = {"split": 0.003, "permuted": 0.453}
MUCH = 2.0  # times larger was "much larger" by the earlier rule
ORDERS = 100.0  # times larger is "2 orders of magnitude"
BEYOND = 2.0  # standard errors
ERRORS = "Errors are over networks for task A; where there is one, over its runs, and say nothing of other networks."


def by_tasks(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of each setting, by seed."""
    ordered = sorted(records, key=lambda r: r.seed)
    return {tasks: [r for r in ordered if r.config["tasks"] == tasks] for tasks in TASKS}


def early_values(records: Sequence[Record], name: str) -> list[float]:
    """A quantity early in training: one value a network for task A, or one a run where there is only one network."""
    runs = [r.values[f"{name}_runs"].tolist() for r in records]
    return [fmean(of) for of in runs] if len(runs) > 1 else runs[0]


def averaged(records: Sequence[Record]) -> str:
    """What `early_values` averages over, in words."""
    return "mean over batches" if len(records) > 1 else "mean over batches, by run"


def mean_and_se(values: Sequence[float]) -> tuple[float, float]:
    """Of two values at least."""
    return fmean(values), stdev(values) / math.sqrt(len(values))


class Apart(NamedTuple):
    """Names of two settings, and mean and error of a quantity in each."""

    larger: str
    smaller: str
    high: tuple[float, float]
    low: tuple[float, float]


def _beyond(found: Apart) -> Finding:
    (high, high_se), (low, low_se) = found.high, found.low
    apart = (high - low) / math.hypot(high_se, low_se)
    words = f"{found.larger} {high:.4g}, {found.smaller} {low:.4g}, {apart:.3g} standard errors apart"
    return Finding(apart > BEYOND, words)


def larger_by(factor: float, quantity: str) -> Rule:
    """That a quantity is larger in one setting: beyond its errors, and by a factor."""
    return Rule(
        Claim(f"{quantity}: larger by more than {BEYOND:g} standard errors of the difference", _beyond),
        Claim(
            f"it is at least {factor:g} times as large",
            lambda found: at_least(factor, {"times": found.high[0] / found.low[0]}),
        ),
        partly=those("a"),
        note=ERRORS,
    )


def direction(quantity: str) -> Rule:
    """That a quantity is larger in one setting, beyond its errors."""
    old = larger_by(MUCH, quantity)
    return Rule(old.claims[0], note=ERRORS, earlier=old, because=f"print has no factor and the {MUCH:g} was ours")


class EarlyFigure(EarlyRuns):
    """One quantity, larger in one setting than in the other."""

    quantity: ClassVar[str]
    words: ClassVar[str]
    larger: ClassVar[str]
    log: ClassVar[bool] = False

    def facts(self, records: Sequence[Record]) -> Apart:
        """The quantity in both settings."""
        of = by_tasks(records)
        need((tasks for tasks, runs in of.items() if runs), TASKS)
        smaller = next(tasks for tasks in TASKS if tasks != self.larger)
        pair = (mean_and_se(early_values(of[tasks], self.quantity)) for tasks in (self.larger, smaller))
        return Apart(self.larger, smaller, *pair)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Mean over runs and networks for each batch; the shade is one deviation over runs, as in print."""
        from vestige.show import curves

        series, bands = {}, {}
        for tasks, runs in by_tasks(records).items():
            mean, deviation = torch.stack([r.values[self.quantity] for r in runs]).mean(0)
            series[tasks] = mean.tolist()
            bands[tasks] = ((mean - deviation).tolist(), (mean + deviation).tolist())
        x = list(range(1, len(series["split"]) + 1))
        labels: dict[str, Any] = {"title": self.item, "x_label": "batch of task B", "y_label": self.words}
        return {self.quantity: curves(series, x, bands=bands, log=self.log, **labels)}


class RobustFig2(EarlyFigure):
    """Farquhar and Gal Fig. 2: entropy of predictions on task B, early in training."""

    name, item = "robust-fig2", "Farquhar and Gal Fig. 2"
    grounds = (
        "The direction is found beyond doubt, the factor by no reading: of the first batch, of all, expected, at "
        "the posterior mean or on test rows, entropies of the two settings are less than three times apart."
    )
    rule = larger_by(ORDERS, "entropy early in task B, permuted over split")
    quantity, words, larger = "entropy_predictive", "entropy (nats)", "permuted"

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Early in training, beside print; then the other readings."""
        lines: list[Line] = []
        for tasks, runs in by_tasks(records).items():

            def add(words: str, values: Sequence[float], paper: float | None = None, label: str = tasks) -> None:
                lines.append(line(label, words, values, paper=paper))

            add(f"entropy, {averaged(runs)}", early_values(runs, self.quantity), PAPER[tasks])
            add("entropy, first batch", [float(r.values[self.quantity][0, 0]) for r in runs])
            add("entropy, last batch", [float(r.values[self.quantity][0, -1]) for r in runs])
            add("entropy, last batch, after it", [float(r.values[f"{self.quantity}_after"][0, -1]) for r in runs])
            add("expected entropy, first batch", [float(r.values["entropy_expected"][0, 0]) for r in runs])
            add("entropy at the mean, first batch", [float(r.values["entropy_mean"][0, 0]) for r in runs])
            add("entropy on test rows of B", [float(r.values["entropy_on_b"][0]) for r in runs])
            add("entropy on test rows of B, median", [float(r.values["entropy_on_b"][1]) for r in runs])
            add("entropy on test rows of A", [float(r.values["entropy_on_a"][0]) for r in runs])
            add("accuracy on task A", [float(r.values["accuracy_a"]) for r in runs])
        return lines


class GradientFigure(EarlyFigure):
    """A figure of gradients: curves without printed numbers, larger for split."""

    larger, log = "split", True
    shown: ClassVar[Mapping[str, str]]  # name of values -> words

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Over the batches; then the first that has one, and the last."""
        lines: list[Line] = []
        for tasks, runs in by_tasks(records).items():
            lines.append(line(tasks, f"{self.words}, {averaged(runs)}", early_values(runs, self.quantity)))
            for name, words in self.shown.items():
                curves = [r.values[name][0] for r in runs]
                lines.append(line(tasks, f"{words}, first", [float(c[~c.isnan()][0]) for c in curves]))
                lines.append(line(tasks, f"{words}, last", [float(c[-1]) for c in curves]))
        return lines


class RobustFig3(GradientFigure):
    """Farquhar and Gal Fig. 3: final-layer gradient of the likelihood term."""

    name, item = "robust-fig3", "Farquhar and Gal Fig. 3"
    rule = direction("mean absolute final-layer gradient of the likelihood term, split over permuted")
    quantity, words = "likelihood", "mean absolute gradient"
    shown: ClassVar[Mapping[str, str]] = {"likelihood": "gradient"}


class RobustFig4(GradientFigure):
    """Farquhar and Gal Fig. 4: likelihood term over prior term of the final-layer gradient."""

    name, item = "robust-fig4", "Farquhar and Gal Fig. 4"
    rule = direction(
        "ratio of the mean absolute final-layer gradients, likelihood term over prior term, mean over the batches from "
        "the second, split over permuted",
    )
    quantity, words = "ratio", "likelihood over prior"
    shown: ClassVar[Mapping[str, str]] = {"ratio": "ratio", "ratio_batch": "ratio, sum over the batch"}
