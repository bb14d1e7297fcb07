"""Beyond the papers: Split MNIST in the protocol of van de Ven and Tolias, in three scenarios, beside printed numbers.

Five tasks of two digits, a 400-400 ReLU network, 2000 iterations a task in batches of 128, Adam at 1e-3 that goes on
over borders; test accuracy averaged over all tasks after the last one. One argument of `split` is the scenario: each
task has outputs of its own and is found out ("class") or told ("task"), or all tasks ask which of two ("domain").

**Printed numbers, one edition a column.** `FEEDBACK` is van de Ven and Tolias, "Generative replay with feedback
connections as a general strategy for continual learning" (arXiv 1809.10635, the same protocol), Table 3, read whole in
a public transcription of the paper; `PREPRINT` is arXiv 1904.07734 v1 (2019), Table 4, of split MNIST; `ARTICLE` is van
de Ven, Tuytelaars and Tolias (Nature Machine Intelligence 4, 2022), Table 2. Of the last two what stands below was read
in public quotations (of the article's column in one alone), and a number without one is not printed: the task- and
domain-incremental columns of the article, and those of none, SI, LwF and joint in the preprint, are missing. EWC of the
first (85.48 / 57.80 / 19.90 for task / domain / class) is not set beside ours: its strength came of a search that the
later editions replaced, and it hardly differs from none there. The article has other settings of EWC, SI and LwF than
the preprints, so that a preprint's number is no aim for them: it stands beside them, and is judged; and where their
miss was seen the rows "... 2019" have the preprint's settings, as copies of its code have them: lam 1e6 and the Fisher
at the likeliest label for EWC in the domain-incremental stream, c = 500 for SI there, and LwF's weights of its day.
They came of misses with two seeds. With five to ten EWC and LwF come to the printed numbers of the domain-incremental
stream, within their standard errors, by the article's settings too: it was the order of digits. SI does not, by either:
what is printed for it there is what it has here with a pull of c = 1 to 30, and those of both editions hold more.

**The order of digits** is that of the authors' code: seed 0 has 0/1, 2/3 and so on, every other seed an order of its
own. It moves the averages of whatever forgets, so that few seeds say little beside a mean over twenty: over five of
them A-GEM has between 45 and 86 in the class-incremental stream and none between 47 and 69 in the domain-incremental
one, and with the first two alone EWC and LwF there are 12 and 8 points above what all five have.

**Settings** are those of the code of the article, read in the authors' repository: EWC 1e5 / 1e10 / 1e9 and SI 10 /
50000 / 5000 for task / domain / class, chosen by its authors on one seed; SI takes the gradient of loss and penalty;
LwF at T = 2, its old tasks with full weight (the preprints: T^2 (1 - 1/k)); replay 1 - 1/k; 100 samples a class for ER
and A-GEM; iCaRL as in the preprint, with 2000 in all and targets at T = 2. Differences that remain:
- EWC has the true Fisher over all rows of a task, as theirs, taken exactly; where a path of SI is negative it counts as
  zero, theirs keeps it (with Adam none was negative);
- DGR has our gated, conditional VAE of the authors' widths (400-400, 100 codes) and steps, and replays as many rows as
  all earlier tasks had, where theirs replays one batch; each task has 1 / k of the weight in both;
- in the domain-incremental stream ER and A-GEM keep 1000 samples in all from the start, where theirs keep 100 of each
  digit that has come, which is the same from the last task on;
- joint trains anew at each task, for as many rounds over all rows as the current task has over its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vestige import data
from vestige.continual import learners as methods
from vestige.continual.record import Record
from vestige.continual.versions import named
from vestige.core import checks
from vestige.metrics import matrix
from vestige.runner import Claim, Finding, Line, NotJudged, OnHeldOutRows, Rule, Trained, grouped, line, those

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCENARIOS = ("class", "domain", "task")
# row -> method here
METHODS = {
    "None": "vanilla",
    "EWC": "ewc",
    "SI": "pi",
    "LwF": "lwf",
    "A-GEM": "agem",
    "ER": "er",
    "iCaRL": "icarl",
    "DGR": "dgr",
    "Joint": "joint",
}
# Rows with the settings of the preprint, and where they run.
EARLIER = {"EWC 2019": ("domain",), "SI 2019": ("domain",), "LwF 2019": ("class", "domain")}
METHODS |= {row: METHODS[row.removesuffix(" 2019")] for row in EARLIER}
# Raised where the settings of a row change, so that Records of the other rows stay.
ROW_VERSIONS = {"SI": 2, "LwF": 2, "iCaRL": 2}
EWC_LAM = {"task": 1e5, "domain": 1e10, "class": 1e9}
SI_C = {"task": 10.0, "domain": 5e4, "class": 5e3}
CLOSE = 2.0  # points
# CPU-seconds of an arm of 2000 iterations a task. 29 arms are 1.1 CPU-hours a seed, so that five seeds of all of them
# are more than four hours: generative replay and joint, which differ least between seeds, are half of that.
COST = {
    "None": 68.0,
    "EWC": 79.0,
    "SI": 82.0,
    "LwF": 100.0,
    "A-GEM": 130.0,
    "ER": 114.0,
    "iCaRL": 117.0,
    "DGR": 386.0,
    "Joint": 225.0,
}

Printed = Mapping[tuple[str, str], float]  # (row, scenario) -> accuracy (%)
FEEDBACK: Printed = {
    ("None", "task"): 85.15,
    ("None", "domain"): 57.33,
    ("None", "class"): 19.90,
    ("SI", "task"): 99.14,
    ("SI", "domain"): 63.77,
    ("SI", "class"): 20.04,
    ("LwF", "task"): 99.60,
    ("LwF", "domain"): 71.02,
    ("LwF", "class"): 24.17,
    ("DGR", "task"): 99.47,
    ("DGR", "domain"): 95.74,
    ("DGR", "class"): 91.24,
    ("Joint", "task"): 99.64,
    ("Joint", "domain"): 98.41,
    ("Joint", "class"): 97.93,
}
PREPRINT: Printed = {
    ("None", "class"): 19.90,
    ("EWC", "class"): 20.01,
    ("EWC", "domain"): 63.95,
    ("EWC", "task"): 98.64,
    ("SI", "class"): 19.99,
    ("LwF", "class"): 23.85,
    ("DGR", "class"): 90.79,
    ("DGR", "domain"): 95.72,
    ("DGR", "task"): 99.50,
    ("iCaRL", "class"): 94.57,
}
ARTICLE: Printed = {
    ("None", "class"): 19.89,
    ("EWC", "class"): 20.64,
    ("SI", "class"): 21.20,
    ("LwF", "class"): 21.89,
    ("A-GEM", "class"): 65.10,
    ("ER", "class"): 88.79,
    ("Joint", "class"): 98.17,
}
PREPRINTS: Mapping[str, Printed] = {"arXiv 1809.10635": FEEDBACK, "arXiv 1904.07734 v1": PREPRINT}
EDITIONS: Mapping[str, Printed] = {**PREPRINTS, "Nat. Mach. Intell. 2022": ARTICLE}


def in_print(row: str, scenario: str) -> dict[str, float]:
    """What each edition prints for the row; of those with the preprint's settings, what the preprints do."""
    editions, name = (PREPRINTS, row.removesuffix(" 2019")) if row in EARLIER else (EDITIONS, row)
    return {edition: numbers[name, scenario] for edition, numbers in editions.items() if (name, scenario) in numbers}


@dataclass(frozen=True)
class ScenarioSetting:
    """A run: the `row`'s method in the `scenario`. `per_class` caps the training rows of a class (None: all).

    `epochs` is None: the training is counted in `iterations`.
    """

    row: str = ""
    scenario: str = ""
    data: str = "mnist"
    per_class: int | None = None
    hidden: tuple[int, ...] = (400, 400)
    learning_rate: float = 1e-3
    iterations: int = 2000
    batch_size: int = 128
    epochs: int | None = None
    memory_per_class: int = 100
    memory_total: int = 2000
    generator_steps: int = 2000
    generator_units: int = 400
    codes: int = 100
    validate: int = 0


def options_of(config: ScenarioSetting) -> dict[str, Any]:
    """What the row's method is told besides the network."""
    scenario, kept = config.scenario, config.memory_per_class
    budget: dict[str, Any] = {"per_class": kept, "total": None}
    if scenario == "domain":  # two outputs, and ten digits behind them
        budget = {"per_class": None, "total": 10 * kept}
    vae = {
        "encoder": (config.generator_units,) * 2, "decoder": (config.generator_units,) * 2, "codes": config.codes,
        "steps": config.generator_steps, "batch_size": config.batch_size, "learning_rate": config.learning_rate,
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "EWC": {"lam": EWC_LAM[scenario], "fisher": "true"},
        "SI": {"lam": SI_C[scenario], "damping": 0.1, "gradient": "total"},
        "LwF": {"form": "van_de_ven"},
        "ER": {"memory": budget | {"fill": "task_end", "sampler": "uniform", "replay": "beside"}, "share": "tasks"},
        "A-GEM": {"memory": budget | {"sampler": "uniform"}},
        "iCaRL": {"memory": {"per_class": None, "total": config.memory_total}, "temperature": 2.0},
        "DGR": {"replay": {"generator": "vae", "options": vae}},
        "EWC 2019": {"lam": 1e6, "fisher": "predicted"},
        "SI 2019": {"lam": 500.0, "damping": 0.1, "gradient": "total"},
        "LwF 2019": {"form": "van_de_ven_2019"},
    }
    return own.get(config.row, {})


def by_arm(records: Iterable[Record]) -> dict[tuple[str, str], list[float]]:
    """Accuracy (%) after the last task, averaged over tasks, of each seed, by row and scenario, in their order."""
    found = grouped(records, lambda r: (str(r.config["row"]), str(r.config["scenario"])))
    arms = [(row, scenario) for scenario in SCENARIOS for row in METHODS if (row, scenario) in found]
    return {arm: [100 * matrix.average_accuracy(r.R) for r in found[arm]] for arm in arms}


Means = Mapping[tuple[str, str], float]


def _near(mean: Means, *, earlier: bool) -> list[Finding]:
    """Of rows with the article's settings, or with those of `earlier` editions."""
    return [
        Finding(
            abs(mean[arm] - printed) <= CLOSE, f"{mean[arm]:.1f}, {printed:.1f} in print", f"{' '.join(arm)}, {name}"
        )
        for arm in mean
        if (arm[0] in EARLIER) == earlier
        for name, printed in in_print(*arm).items()
    ]


def _fail(mean: Means) -> Finding:
    weak = {row: mean[row, "class"] for row in ("None", "EWC", "SI", "LwF") if (row, "class") in mean}
    strong = {row: mean[row, "class"] for row in ("ER", "DGR", "iCaRL") if (row, "class") in mean}
    if not weak or not strong:
        return Finding(None)
    words = f"{max(weak.values()):.1f} at most, {min(strong.values()):.1f} at least"
    return Finding(max(weak.values()) < 30 and min(strong.values()) > 80, words)


def _easier(mean: Means) -> list[Finding]:
    rows = [row for row in METHODS if all((row, scenario) in mean for scenario in SCENARIOS)]
    return [
        Finding(
            mean[row, "class"] <= mean[row, "domain"] + 1 and mean[row, "domain"] <= mean[row, "task"] + 1, case=row
        )
        for row in rows
    ]


class BeyondScenarios(OnHeldOutRows, Trained[ScenarioSetting]):
    """Split MNIST, class-, domain- and task-incremental: nine methods beside the numbers of van de Ven and Tolias."""

    name = "beyond-scenarios"
    item = "van de Ven and Tolias 2019, van de Ven et al. 2022"
    grounds = (
        "Of all printed numbers one is missed by the settings of the article, SI in the domain-incremental "
        "stream, and by those of the preprints, too. LwF comes to the preprint's number in the class-incremental "
        "stream by the article's settings, and not by the preprint's as we read them; in the domain-incremental "
        "one two seeds do not tell."
    )
    rule = Rule(
        Claim(
            f"every mean over seeds is within {CLOSE:g} points of the number that an edition prints for it",
            lambda mean: _near(mean, earlier=False),
        ),
        Claim(
            "class-incremental, none, EWC, SI and LwF stay below 30 % and ER, DGR and iCaRL are above 80 %",
            lambda mean: _fail(mean),
        ),
        Claim(
            "no method is better by a point where the task must be found out than where inputs change, or there than "
            "where the task is told",
            lambda mean: _easier(mean),
        ),
        Claim(
            f"with the settings of the preprint EWC, SI and LwF are within {CLOSE:g} points of what preprints print, "
            "where the article's settings were seen to miss it (this claim came after the others had been judged)",
            lambda mean: _near(mean, earlier=True),
        ),
        partly=those("b"),
        note="Only numbers that could be read count; where one is missed the docstring's differences are the suspects.",
    )
    presets: ClassVar[Mapping[str, ScenarioSetting]] = {
        "smoke": ScenarioSetting(
            data="digits", per_class=20, hidden=(16,), iterations=4, batch_size=16, memory_per_class=3, memory_total=20,
            generator_steps=5, generator_units=8, codes=3,
        ),
        "laptop": ScenarioSetting(),
        "paper": ScenarioSetting(),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 20}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of MNIST; few rows, units and iterations",
    }

    def arms(self, config: ScenarioSetting) -> Sequence[ScenarioSetting]:
        """Every method in every scenario, class-incremental first; iCaRL is for classes alone, and see `EARLIER`."""
        owner = f"vestige run {self.name}"
        rows = [checks.one_of(config.row, METHODS, "row", owner)] if config.row else list(METHODS)
        scenarios = [checks.one_of(config.scenario, SCENARIOS, "scenario", owner)] if config.scenario else SCENARIOS
        only = {"iCaRL": ("class",), **EARLIER}
        pairs = [(row, s) for s in scenarios for row in rows if s in only.get(row, SCENARIOS)]
        return [replace(config, row=row, scenario=scenario) for row, scenario in pairs]

    def cost(self, config: ScenarioSetting) -> float | None:
        """Seconds of a core, as far as they were measured for the preset `laptop`."""
        known = COST.get(config.row.removesuffix(" 2019")) if config.data == "mnist" else None
        return None if known is None else known * config.iterations / 2000

    def parts(self, config: ScenarioSetting, seed: int) -> tuple[data.Stream, methods.Learner]:
        """The row's method on Split MNIST in the scenario."""
        loaded = data.load(config.data)
        if config.validate:
            loaded = loaded.validation(config.validate)
        order: Literal["random"] | None = None if seed == 0 else "random"
        stream = data.split(loaded, 2, scenario=config.scenario, order=order, per_class=config.per_class, seed=seed)
        own = options_of(config)
        reset = {} if config.row == "Joint" else {"reset_optimizer": False}
        common: dict[str, Any] = {"hidden": config.hidden, "learning_rate": config.learning_rate, **reset}
        return stream, methods.build(METHODS[config.row], stream, seed=seed, **common, **own)

    def options(self, config: ScenarioSetting) -> dict[str, Any]:
        """Iterations in place of epochs."""
        return {"iterations": config.iterations}

    def versions(self, config: ScenarioSetting) -> dict[str, int]:
        """Those of the row's method and settings too."""
        own = {f"scenarios/{config.row}": ROW_VERSIONS[config.row]} if config.row in ROW_VERSIONS else {}
        return super().versions(config) | named(METHODS[config.row]) | own

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A line for each edition that prints a number; one without where none does."""
        out = []
        for (row, scenario), values in by_arm(records).items():
            label, known = f"{row}, {scenario}-incremental", in_print(row, scenario)
            out += [line(label, f"accuracy (%), {name}", values, paper=number) for name, number in known.items()]
            out += [] if known else [line(label, "accuracy (%)", values)]
        return out

    def facts(self, records: Sequence[Record]) -> dict[tuple[str, str], float]:
        """Means over seeds, by row and scenario."""
        found = by_arm(records)
        absent = [
            " ".join(arm)
            for arm in dict.fromkeys(arm for edition in EDITIONS.values() for arm in edition)
            if arm not in found
        ]
        if absent:
            raise NotJudged(f"printed numbers wait for runs of {', '.join(absent)}.")
        return {arm: fmean(values) for arm, values in found.items()}

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Accuracy of each method, a bar for each scenario."""
        from vestige.show import bars

        found = by_arm(records)
        rows = [row for row in METHODS if any((row, s) in found for s in SCENARIOS)]
        series = {
            f"{s}-incremental": [fmean(found[row, s]) if (row, s) in found else float("nan") for row in rows]
            for s in SCENARIOS
            if any((row, s) in found for row in rows)
        }
        return {self.name: bars(series, rows, title="Split MNIST in three scenarios", y_label="accuracy (%)")}
