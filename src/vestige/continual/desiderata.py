"""What an audit says: eleven questions of Farquhar and Gal section 5, and four of the comparison, each with evidence.

Five desiderata "ought either to be respected or to be explicitly mentioned as absent"; six more make an evaluation
harder. `audit_of` answers them from `Facts`; who gathered those (a run, a Record, a description) does not matter. A
fact that is None was not gathered, and its question is *not measured*, which is no praise. Limits are named here: tasks
that make a sequence long, the least resemblance that counts, what a cost may grow by.

Four further questions (`COMPARISON`) are about how methods are compared: is the scenario said (van de Ven and Tolias
2019), is compute counted, were settings chosen on rows that are not tested on and with several seeds, and was accuracy
measured while training or at borders alone (De Lange et al. 2023)? Audits that were stored before they were asked do
not have them.

Does a cost grow with the number of tasks? A straight line through it, and what its slope is worth. Seconds are noisy:
what counts is a share of their mean. Bytes are exact: what counts is any growth beyond the names of the outputs that a
learner has seen, of which it may well keep a list.

An evaluation of another paper is described in a small TOML file:

    [evaluation]
    name = "Two-task transfer"
    tasks = 2
    shared_head = true
    labels_at_test = false
    same_inputs = false          # tasks are the same inputs under a fixed map, such as a permutation
    kept_samples = 0             # of past tasks, when the last one trains
    retrains = false             # on past tasks, at any time
    borders_told = true
    continuous = false
    overlapping = false
    seconds = [10.0, 10.5]       # of training, by task
    held_bytes = [100000, 100000]
    scenario = "class"           # or "task" or "domain"
    counts_compute = false       # passes, or operations, of every method
    search_seeds = 1             # by which settings were chosen, on rows that are not tested on
    tests_while_training = false

Every field but the name may be left out: its question is then not measured. What a file says is evidence by
declaration, and the answer names the line.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from scipy.special import stdtrit

from vestige import store
from vestige.continual.record import Record
from vestige.core import InputError, StoreError
from vestige.core.checks import one_of
from vestige.core.errors import shortened
from vestige.store.codec import decode

NAMES = 256  # bytes a task that memory may grow by: eight for each output that is new, in a list or two


def growth(costs: Sequence[float]) -> dict[str, float]:
    """Slope of the least-squares line through the costs of tasks 1, 2, ..., as a share of their mean, and its error.

    `margin` is half of the slope's 95 % interval (Student's t: tasks are few). NaN where there are fewer than three
    tasks, or nothing was spent. `each` is the slope in units of the cost.
    """
    y = torch.tensor(list(costs), dtype=torch.float64)
    n, mean = len(y), float(y.mean())
    if n < 3 or not math.isfinite(mean) or mean <= 0:
        return dict.fromkeys(("slope", "se", "margin", "each", "first", "last"), math.nan)
    x = torch.arange(n, dtype=torch.float64) - (n - 1) / 2
    slope = float((x * y).sum() / x.square().sum())
    left = y - y.mean() - slope * x
    se = math.sqrt(float(left.square().sum()) / (n - 2) / float(x.square().sum()))
    share = {"slope": slope / mean, "se": se / mean, "margin": float(stdtrit(n - 2, 0.975)) * se / mean}
    return share | {"each": slope, "first": float(y[0]), "last": float(y[-1])}


def grows(line: dict[str, float], *, least: float = 0.02) -> bool:
    """Whether the slope is at least `least` of the mean cost a task, and its 95 % interval lies above zero."""
    return line["slope"] >= least and line["slope"] > line["margin"]


def grows_exactly(line: dict[str, float], *, beyond: float = NAMES) -> bool:
    """Whether a cost without noise grows by more than `beyond` a task, however small a share of it that is."""
    return line["each"] > beyond and line["slope"] > line["margin"]


Verdict = Literal["holds", "fails", "not measured"]

# The paper's list, in its order. The words say what holds.
DESIDERATA = {
    "resemblance": "Inputs of later tasks sometimes look like old classes",
    "shared_head": "All tasks share one output head",
    "no_task_labels": "No task labels at test time",
    "no_retraining": "No retraining on old tasks, and no data kept of them",
    "many_tasks": "More than two tasks",
}
HARDER = {
    "unclear_borders": "The learner is not told where tasks begin",
    "continuous": "Tasks drift rather than jump",
    "overlapping": "A class comes back in several tasks",
    "long": "A long sequence of tasks",
    "time": "The time for a task does not grow with the number of tasks",
    "memory": "Memory does not grow with the number of tasks",
}
QUESTIONS = DESIDERATA | HARDER
COMPARISON = {
    "scenario": "It is said what a task brings, and whether the task is told",
    "compute": "Compute is counted, so that methods can be compared at equal compute",
    "search": "Settings were chosen with several seeds, on rows that are not tested on",
    "while_training": "Accuracy was measured while training, not at borders alone",
}
SEEDS = 3  # of a search; with fewer it chooses noise
LONG = 20  # tasks; the longest sequences of the papers' day have 10 to 20
LEAST_RESEMBLANCE = 0.02  # of the inputs, beyond what they get with their coordinates in other orders
LARGEST_P = 0.05  # how often another order may do as well


@dataclass(frozen=True)
class Answer:
    """The verdict on one question, the evidence in words and, where there are any, its numbers."""

    verdict: Verdict
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """Eleven answers about one evaluation, and four about the comparison it is for."""

    subject: str
    answers: Mapping[str, Answer]

    def __post_init__(self) -> None:
        if not QUESTIONS.keys() <= self.answers.keys() <= (QUESTIONS | COMPARISON).keys():
            wanted = ", ".join(QUESTIONS)
            raise StoreError(f"This is no audit, which answers {wanted}. Got {', '.join(self.answers) or 'none'}.")

    def __getitem__(self, question: str) -> Answer:
        return self.answers[question]

    @property
    def failed(self) -> tuple[str, ...]:
        """The desiderata, of the first five, that fail."""
        return tuple(q for q in DESIDERATA if self.answers[q].verdict == "fails")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Those, of the first five, that were not measured."""
        return tuple(q for q in DESIDERATA if self.answers[q].verdict == "not measured")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Kind, question, verdict, evidence: a table's rows."""
        kinds = dict.fromkeys(DESIDERATA, "desideratum") | dict.fromkeys(HARDER, "harder")
        kinds |= dict.fromkeys(COMPARISON, "comparison")
        words = {q: asked for q, asked in (QUESTIONS | COMPARISON).items() if q in self.answers}
        return [(kinds[q], words[q], self.answers[q].verdict, self.answers[q].evidence) for q in words]

    def paragraph(self) -> str:
        """For the appendix of a paper: what holds, what does not, what nobody measured."""
        parts = [f"We audited the evaluation '{self.subject}' against the desiderata of Farquhar and Gal."]
        heads = {"holds": "hold", "fails": "do not hold", "not measured": "were not measured"}
        for verdict, words in heads.items():
            listed = [f"{asked.lower()} ({said})" for _, asked, own, said in self.rows() if own == verdict]
            parts += [f"These {words}: {'; '.join(listed)}."] if listed else []
        return " ".join(parts)


@dataclass(frozen=True)
class Facts:
    """What is known about an evaluation. `where` says by field how it is known, for the evidence."""

    subject: str
    tasks: int | None = None
    shared_head: bool | None = None
    labels_at_test: bool | None = None
    resemblance: Mapping[str, float] | None = None  # as `summarised`
    same_inputs: bool | None = None  # declared: tasks differ by a fixed map of the inputs
    kept_samples: int | None = None
    kept_bytes: int | None = None
    retrains: bool | None = None
    borders_told: bool | None = None
    continuous: bool | None = None
    overlapping: bool | None = None
    seconds: Sequence[float] | None = None  # of training, by task
    held_bytes: Sequence[float] | None = None  # by task
    scenario: str | None = None
    counts_compute: bool | None = None
    search_seeds: int | None = None  # the fewest of a setting; 0: settings were chosen on rows that are tested on
    tests_while_training: bool | None = None
    where: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> str:
        """How a fact is known, to be put behind what it says."""
        return f", {self.where[name]}" if name in self.where else ""


def audit_of(facts: Facts) -> Audit:
    """All answers."""
    return Audit(
        facts.subject,
        {
            "resemblance": _resemblance(facts),
            "shared_head": _declared(facts, "shared_head", "one head", "a head for each task"),
            "no_task_labels": _labels(facts),
            "no_retraining": _kept(facts),
            "many_tasks": _count(facts, 3),
            "unclear_borders": _declared(
                facts, "borders_told", "the learner hears of each new task", "no border is told", wanted=False
            ),
            "continuous": _declared(facts, "continuous", "classes fade in and out", "tasks jump"),
            "overlapping": _declared(facts, "overlapping", "classes come back", "each class in one task"),
            "long": _count(facts, LONG),
            "time": _growth(facts.seconds, "seconds of training"),
            "memory": _growth(facts.held_bytes, "bytes held", exact=True),
            "scenario": _scenario(facts),
            "compute": _known(
                facts.counts_compute,
                "forward-backward passes are counted" + facts.source("counts_compute"),
                "what was computed is not counted" + facts.source("counts_compute"),
            ),
            "search": _search(facts),
            "while_training": _known(
                facts.tests_while_training,
                "tested between borders too" + facts.source("tests_while_training"),
                "tested at borders alone" + facts.source("tests_while_training"),
            ),
        },
    )


def _declared(facts: Facts, name: str, yes: str, no: str, *, wanted: bool = True) -> Answer:
    """By one fact alone, which must be as it is `wanted`; `yes` and `no` are the words for it."""
    return _known(getattr(facts, name), yes + facts.source(name), no + facts.source(name), wanted=wanted)


def _known(known: bool | None, yes: str, no: str, *, wanted: bool = True) -> Answer:
    if known is None:
        return Answer("not measured", "nothing is known")
    return Answer("holds" if known == wanted else "fails", yes if known else no)


BRINGS = {
    "class": "class-incremental: a task brings new outputs, and must be found out",
    "task": "task-incremental: a task brings new outputs, and is told",
    "domain": "domain-incremental: a task brings new inputs for the same outputs",
}


def _scenario(facts: Facts) -> Answer:
    if facts.scenario is None:
        return Answer("not measured", "nothing is known")
    return Answer("holds", BRINGS[facts.scenario] + facts.source("scenario"))


def _search(facts: Facts) -> Answer:
    seeds = facts.search_seeds
    if seeds is None:
        return Answer("not measured", "nothing is known of how settings were chosen")
    words = f"{seeds} seeds a setting; {SEEDS} would do" if seeds else "settings were chosen on rows that are tested on"
    verdict: Verdict = "holds" if seeds >= SEEDS else "fails"
    return Answer(verdict, words + facts.source("search_seeds"), {"seeds": float(seeds)})


def _resemblance(facts: Facts) -> Answer:
    """What is declared of the inputs decides: a rank lets one stream of permutations in twenty pass by chance."""
    numbers = facts.resemblance
    measured = "" if numbers is None else _looked(numbers)
    if facts.same_inputs:
        declared = "tasks are the same inputs under a fixed map" + facts.source("same_inputs")
        return Answer("fails", "; ".join(filter(None, (declared, measured))), numbers or {})
    if numbers is None:
        return Answer("not measured", "no model looked at a task before it trained")
    if numbers["p"] > LARGEST_P:
        return Answer("fails", f"{measured}: no more than by chance", numbers)
    if numbers["difference"] < LEAST_RESEMBLANCE:
        few = f"{measured}: hardly by chance, but by less than {LEAST_RESEMBLANCE:.0%} of the inputs, which are too few"
        return Answer("fails", few, numbers)
    return Answer("holds", measured, numbers)


def _looked(numbers: Mapping[str, float]) -> str:
    at_all = f" (any class: {numbers['sure_of_any']:.1%})" if "sure_of_any" in numbers else ""
    return (
        f"before a task trains, {numbers['named_old']:.1%} of its inputs are surely named an old class{at_all}; with "
        f"their coordinates in other orders, {numbers['other_orders']:.1%} (p = {numbers['p']:.3f})"
    )


def _labels(facts: Facts) -> Answer:
    if facts.shared_head is False and not facts.labels_at_test:
        return Answer("fails", "which head answers is chosen by the task")
    yes, no = "predictions are told the task", "predictions are not told the task"
    return _declared(facts, "labels_at_test", yes, no, wanted=False)


def _kept(facts: Facts) -> Answer:
    kept, retrains = facts.kept_samples, facts.retrains
    numbers = {} if kept is None else {"samples": float(kept), "bytes": float(facts.kept_bytes or 0)}
    if retrains or kept or facts.kept_bytes:
        size = f" ({facts.kept_bytes} bytes)" if facts.kept_bytes else ""
        some = kept or ("some" if facts.kept_bytes else "")
        parts = [f"{some} samples of past tasks are kept{size}" + facts.source("kept_samples")] if some else []
        parts += ["old tasks are trained on again" + facts.source("retrains")] if retrains else []
        return Answer("fails", "; ".join(parts), numbers)
    if kept is None or retrains is None:
        return Answer("not measured", "nothing is known of what is kept or seen again", numbers)
    return Answer("holds", "no sample is kept and no task seen again", numbers)


def _count(facts: Facts, least: int) -> Answer:
    if facts.tasks is None:
        return Answer("not measured", "the number of tasks is not known")
    words = f"{facts.tasks} tasks; {least} would do"
    return Answer("holds" if facts.tasks >= least else "fails", words, {"tasks": float(facts.tasks)})


def _growth(costs: Sequence[float] | None, what: str, *, exact: bool = False) -> Answer:
    if costs is None:
        return Answer("not measured", f"{what} were not recorded")
    line = growth(costs)
    if math.isnan(line["slope"]):
        return Answer("not measured", f"{len(costs)} tasks are too few for a line through their {what}")
    evidence = (
        f"{what} change by {line['slope']:+.1%} of their mean a task (standard error {line['se']:.1%}), from "
        f"{line['first']:.4g} to {line['last']:.4g}"
    )
    evidence += f"; up to {NAMES} bytes a task do not count" if exact else ""
    return Answer("fails" if (grows_exactly if exact else grows)(line) else "holds", evidence, line)


TABLE = "evaluation"
BOOLEANS = (
    "shared_head", "labels_at_test", "same_inputs", "retrains", "borders_told", "continuous", "overlapping",
    "counts_compute", "tests_while_training",
)  # fmt: skip
COUNTS = {"tasks": 1, "kept_samples": 0, "kept_bytes": 0, "search_seeds": 0}  # and the least that makes sense
LARGEST = 2**53  # up to which a float is exact; nothing that is counted here comes near it
MOST_BYTES = 100_000  # of a description
MOST_LEVELS = 100  # of names within names (a.b.c) and lists within lists
DOTTED = re.compile(rf"(?:[^\s.,=\[\]{{}}]*[ \t]*\.[ \t]*){{{MOST_LEVELS}}}")
FIELDS = ("name", *BOOLEANS, *COUNTS, "seconds", "held_bytes", "scenario")


def described(path: str | Path) -> Audit:
    """The audit of the evaluation that the file describes; a bad file is refused by line and field."""
    path = Path(path)
    size = store.regular(path).stat().st_size
    if size > MOST_BYTES:
        raise InputError(f"{path}: a description must have at most {MOST_BYTES} bytes. Got {size} instead.")
    try:
        text = path.read_text(encoding="utf-8")
        # The parser calls itself for a list in a list, and its time grows as the square of the levels of a name.
        document = None if DOTTED.search(text) else tomllib.loads(text)
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is not text in UTF-8.") from None
    except RecursionError:
        document = None
    except ValueError as error:  # what tomllib says of a bad file, and Python of a number with thousands of digits
        raise InputError(f"{path}: this is not TOML: {shortened(error)}.") from None
    if document is None:
        raise InputError(f"{path}: names and lists must have fewer than {MOST_LEVELS} levels. Got more instead.")
    fields = document.get(TABLE)
    if not isinstance(fields, dict) or set(document) != {TABLE}:
        tables = ", ".join(f"[{name}]" for name in document) or "none"
        raise InputError(f"{path}: there must be one table, [{TABLE}]. Got {shortened(tables)} instead.")
    if "name" not in fields:
        raise InputError(f"{path}: the field 'name' is missing.")
    lines = {name: _line(text, name) for name in fields}
    for name, value in fields.items():
        place = f"{path}, line {lines[name]}: "
        try:
            one_of(name, FIELDS, "field", "an evaluation")
        except InputError as error:
            raise InputError(place + str(error)) from None
        _check(name, value, place, fields.get("tasks"))
    where = {name: f"declared in line {line}" for name, line in lines.items()}
    known = {name: value for name, value in fields.items() if name != "name"}
    return audit_of(Facts(subject=fields["name"], where=where, **known))


def _line(text: str, name: str) -> int:
    pattern = re.compile(rf"""^\s*["']?{re.escape(name)}["']?\s*=""")
    return next((i for i, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _check(name: str, value: Any, place: str, tasks: Any) -> None:  # noqa: ANN401 - whatever the file says
    if name == "name":
        right, wanted = isinstance(value, str) and bool(value.strip()), "some words"
    elif name == "scenario":
        right, wanted = isinstance(value, str) and value in BRINGS, f"one of {', '.join(BRINGS)}"
    elif name in BOOLEANS:
        right, wanted = isinstance(value, bool), "true or false"
    elif name in COUNTS:
        right = isinstance(value, int) and _cost(value) and value >= COUNTS[name]
        wanted = f"a whole number from {COUNTS[name]} to {LARGEST}"
    else:
        right = isinstance(value, list) and bool(value) and all(_cost(v) for v in value)
        wanted = f"a list of numbers from 0 to {LARGEST}, one a task"
        if right and isinstance(tasks, int) and len(value) != tasks:
            right, wanted = False, f"{wanted}, of which there are {tasks}"
    if not right:
        raise InputError(
            f"{place}the '{name}' of an evaluation must be {wanted}. Got {shortened(repr(value))} instead."
        )


def _cost(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def from_record(record: Record) -> Audit:
    """The audit that a Record carries, or what can be said of one that carries none."""
    if record.audit is not None:
        found: Audit = decode(Audit, record.audit)
        return found
    if not record.task_names:
        raise InputError(f"The Record {record.id} is not of a stream of tasks: there is nothing to audit in it.")
    return audit_of(facts_of(record))


def facts_of(record: Record) -> Facts:
    """What a Record of a stream of tasks says by itself."""
    memory = record.bytes.get("memory")
    held = [sizes for name, sizes in record.bytes.items() if name != "peak"]
    search = record.details.get("search")
    ran = record.config if "protocol" in record.config else record.details.get("run", {})
    passes, curve = record.values.get("passes"), record.values.get("while_training")
    where = {} if passes is None else {"counts_compute": f"{float(passes[-1]):.4g} in all"}
    if curve is not None and "every" in (how := ran.get("protocol", {})):
        where["tests_while_training"] = f"every {how['every']} batches, on {how['every_rows']} rows a task"
    if search:
        where["search_seeds"] = f"on {search['on']}"
    return Facts(
        subject=f"Record {record.id}",
        tasks=len(record.task_names),
        shared_head={"single": True, "multi": False}.get(record.head),  # None for a matrix that came from elsewhere
        kept_samples=None if memory is None or memory[-1] else 0,
        kept_bytes=None if memory is None else memory[-1],
        seconds=record.seconds.get("train_cpu"),
        held_bytes=[float(sum(sizes)) for sizes in zip(*held, strict=True)] or None,
        counts_compute=passes is not None,
        search_seeds=min((len(t["scores"]) for t in search["tried"]), default=None) if search else None,
        tests_while_training=curve is not None,
        where=where,
    )
