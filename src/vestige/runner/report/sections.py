"""What a page says beside the matrices: measured beside published, time and memory, how far the numbers can be trusted,
uncertainty, samples, and where the numbers come from.

Published numbers, verdict, rule and figures are the experiment's own.

An audit is stored in a Record as `audit`. A chain or an estimator leaves its verdicts in the details: `verdicts`, one a
step or by name, and `refused`, name -> why. A verdict's first words, up to a colon, say how firm a value is.

What a model says of its own uncertainty is every value of a Record of shape (t, t), t the number of tasks, read as R
is: row, after training on; column, tested on. It is shown under the name that it was stored with. Small and large are
not judged, except for a calibration error.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from jaxtyping import Float64
from torch import Tensor

from vestige import show as drawing
from vestige.continual.audit import QUESTIONS, from_record
from vestige.continual.record import Record, Tried
from vestige.metrics.uncertainty import Pairs, unseen_task_roc
from vestige.runner.experiment import Experiment, Line
from vestige.runner.report.matrices import MOST_MATRICES, better, declared, final, measured, task_names
from vestige.runner.report.reading import Arm, Group, flatten, short
from vestige.show import Heat, Part, Picture, Table, Verbatim

MEGABYTE = 1e6
# A configuration of this many letters or fewer stands in a table cell; a longer one is cut, the Record has it whole.
LONGEST = 200


def lines_table(experiment: Experiment[Any], records: Sequence[Record], *, title: str = "", note: str = "") -> Table:
    """Measured beside published and true, where there are such."""
    lines = experiment.lines(records)
    given = {"truth": any(x.truth is not None for x in lines), "paper": any(x.paper is not None for x in lines)}
    optional = [name for name, there in given.items() if there]
    rows = [(x.label, x.quantity, *(getattr(x, name) for name in optional), x.ours, x.se, x.n) for x in lines]
    return Table(title, ("", "quantity", *optional, "ours", "se", "seeds"), rows, note, alike="row")


def published(group: Group) -> list[Part]:
    """The verdict with its rule, all that was cut, and the table; nothing for bare runs."""
    experiment, records, verdict = group.experiment, group.records, group.verdict
    if experiment is None or verdict is None:
        return []
    note = "se: standard error over seeds."
    return [
        f"Verdict: {verdict.word}, by a rule that was written before the run. {experiment.rule}",
        *([f"In place of the published setting: {left}."] if (left := left_out(group)) else []),
        lines_table(experiment, records, title=experiment.item, note=note),
    ]


def figures(group: Group) -> list[Part]:
    """The experiment's own pictures."""
    experiment = group.experiment
    if experiment is None:
        return []
    told = f"for {experiment.item}: {experiment.what} The numbers stand in the table beside the paper's."
    return [Picture(figure, f"{name}, {told}") for name, figure in experiment.figures(group.records).items()]


def left_out(group: Group) -> str:
    """Everything that these runs have in place of the published setting, of which the verdict names the first."""
    return "" if group.experiment is None else "; ".join(group.experiment.cuts(group.records))


def costs(arms: Sequence[Arm]) -> list[Part]:
    """Seconds, bytes, and accuracy against seconds."""
    return [*seconds_table(arms), *bytes_table(arms), *front(arms)]


def seconds(arm: Arm, what: str) -> Line:
    """Total seconds of a kind, over the seeds."""
    totals = [sum(record.seconds[what]) if record.seconds.get(what) else None for record in arm.records]
    return arm.line(f"{what} (s)", totals)


def seconds_table(arms: Sequence[Arm]) -> list[Part]:
    """Total seconds, and how those of the last task compare with those of the first."""
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.first.seconds))
    if not kinds:
        return []
    rows: list[tuple[str | float | int | None, ...]] = []
    for arm in arms:
        totals = [seconds(arm, kind) for kind in kinds]
        train = [record.seconds["train"] for record in arm.records if record.seconds.get("train")]
        growth = arm.line("growth", [spent[-1] / spent[0] if spent[0] > 0 else math.nan for spent in train])
        rows.append((arm.label, *(x for total in totals for x in (total.ours, total.se)), growth.ours))
    words = {kind: kind.replace("_", " ") for kind in kinds}
    columns = ("method", *(word for kind in kinds for word in (f"{words[kind]} (s)", "se")), "last task / first")
    note = "Seconds of the whole run, in the mean over seeds. The last column is training time alone: above 1 it grew."
    return [Table("Time", columns, rows, note, alike="column")]


def bytes_table(arms: Sequence[Arm]) -> list[Part]:
    """What is held after the last task, and the peak."""
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.first.bytes))
    if not kinds:
        return []
    rows: list[tuple[str | float, ...]] = []
    for arm in arms:
        held = [[record.bytes[kind] for record in arm.records if record.bytes.get(kind)] for kind in kinds]
        # The peak is the largest of all tasks, the rest is what is there at the end.
        ends = [[max(b) if kind == "peak" else b[-1] for b in own] for kind, own in zip(kinds, held, strict=True)]
        rows.append((arm.label, *(arm.line("MB", own).ours / MEGABYTE for own in ends)))
    note = "Held after the last task, in the mean over seeds; peak is the largest of the process during training."
    return [Table("Memory", ("method", *(f"{kind} (MB)" for kind in kinds)), rows, note, alike="column")]


def front(arms: Sequence[Arm]) -> list[Part]:
    """What each second buys, for arms whose declared matrices are accuracies."""
    points = {}
    for arm in declared(arms):
        found, spent = final(arm, arm.first.head).get("average"), seconds(arm, "train").ours
        if found is not None and better(arm.first, arm.first.head) == "up" and not math.isnan(spent):
            points[arm.label] = (spent, found.ours)
    if len(points) < 2:
        return []
    title = f"Average {measured(arms[0].first)} against training time"
    words = "; ".join(f"{label} {accuracy:.3g} in {spent:.3g} s" for label, (spent, accuracy) in points.items())
    return [Picture(drawing.scatter_front(points, title=title), f"{title}: {words}.", "Upper left is best.")]


# With more arms than this the verdicts stand in one table and the evidence of the rest stays in the Records.
MOST_EVIDENCE = 6
OK, REFUSED = "ok", "refused"
# A number that stands by itself, not the 4 of "Eq. 4" or of a name.
NUMBER = re.compile(r"(?<![\w.])(?<!Eq\. )-?\d+(\.\d+)?(?![\w])")


def audits(arms: Sequence[Arm]) -> list[Part]:
    """The verdicts arm beside arm, and the evidence of each."""
    audited = {arm.label: [r for r in arm.records if r.audit is not None] for arm in arms}
    found = {label: from_record(records[0]) for label, records in audited.items() if records}
    if not found:
        return []
    parts: list[Part] = []
    if len(found) > 1:
        rows = [(words, *(audit[q].verdict for audit in found.values())) for q, words in QUESTIONS.items()]
        parts.append(Table("Verdicts", ("what would hold", *found), rows))
    shown = list(found.items())[:MOST_EVIDENCE]
    parts += [
        Table(f"Evidence: {label}", ("kind", "what would hold", "verdict", "evidence"), a.rows()) for label, a in shown
    ]
    left = list(found)[MOST_EVIDENCE:]
    return [*parts, *([f"The evidence of these stays in their Records: {'; '.join(left)}."] if left else [])]


def ratios(arms: Sequence[Arm]) -> list[Part]:
    """How many values have the verdict "ok", why the others do not, and what was refused."""
    told = {arm.label: [word for record in arm.records for word in verdicts(record)] for arm in arms}
    counts = {label: Counter(map(kind, found)) for label, found in told.items() if found}
    parts: list[Part] = []
    if counts:
        kinds = list(dict.fromkeys([OK, *(k for count in counts.values() for k in count)]))
        firm, every = sum(c[OK] for c in counts.values()), sum(c.total() for c in counts.values())
        rows: list[list[str | int]] = [[label, *(c[k] for k in kinds), c.total()] for label, c in counts.items()]
        parts.append(f"Of {every} values, {firm} have the verdict 'ok'.")
        parts.append(Table("Verdicts on values", ("", *kinds, "all"), rows, "All seeds and steps together."))
    reasons = [(label, kind(word), word.partition(":")[2].strip()) for label, f in told.items() for word in f]
    reasons += [(arm.label, REFUSED, why) for arm in arms for record in arm.records for why in refusals(record)]
    return [*parts, *_why([reason for reason in reasons if reason[1] != OK])]


def verdicts(record: Record) -> list[str]:
    """Every verdict that a run left, those that were not given left out."""
    given = record.details.get("verdicts", [])
    return [str(word) for word in (given.values() if isinstance(given, Mapping) else given) if word]


def refusals(record: Record) -> list[str]:
    """What a run would not estimate, and why."""
    refused = record.details.get("refused", {})
    return [f"{name}: {why}" for name, why in refused.items()] if isinstance(refused, Mapping) else []


def _why(reasons: Sequence[tuple[str, str, str]]) -> list[Table]:
    """Reasons with how often each was given; those that differ in a number alone are one, with dots for the number."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for label, word, why in reasons:
        found.setdefault((label, word, NUMBER.sub("\N{HORIZONTAL ELLIPSIS}", why)), []).append(why)
    rows = [
        (label, word, given[0] if len(set(given)) == 1 else alike, len(given))
        for (label, word, alike), given in found.items()
    ]
    return [Table("Reasons", ("", "verdict", "why", "times"), rows)] if rows else []


def kind(word: str) -> str:
    """How firm a value is, in its verdict's first words."""
    return word.partition(":")[0].strip()


# Words of a name that say which way is good; any other value is good or bad by its place.
SMALLER_IS_BETTER = {"ece", "error", "loss", "brier"}
DETECTOR = "mutual_information"
PAIRS: tuple[Pairs, ...] = get_args(Pairs)
SAMPLES = "samples"
MOST_SAMPLES = 100
MOST_GRIDS = 12
UNCERTAINTY_ROWS = (
    "Rows: after training on a task; columns: tested on a task. Above the diagonal lie tasks still to come."
)


def uncertainty(arms: Sequence[Arm]) -> list[Part]:
    """Matrices over tasks, one an arm and name."""
    found = [(arm, name) for arm in arms for name in arm.first.values if is_matrix(arm.first, name)]
    left = len(found) - MOST_MATRICES
    more = f" {left} more are left out; the Records have them all." if left > 0 else ""
    shown = [uncertainty_heat(arm, name) for arm, name in found[:MOST_MATRICES]]
    return [f"{UNCERTAINTY_ROWS}{more}", *shown, *detectors(arms)] if found else []


def detectors(arms: Sequence[Arm]) -> list[Part]:
    """How well the mutual information tells tasks that are still to come, by each reading of which pairs count."""
    rows: list[tuple[str | float, ...]] = []
    for arm in arms:
        known = [r.values[DETECTOR] for r in arm.records if DETECTOR in r.values and is_matrix(r, DETECTOR)]
        whole = [mi for mi in known if bool(mi.isfinite().all())]
        areas = [arm.line(pairs, [unseen_task_roc(mi, pairs=pairs).auc for mi in whole]).ours for pairs in PAIRS]
        rows += [(arm.label, *areas)] if whole else []
    note = "Area under the ROC of Farquhar and Gal's detector; the columns say which pairs of model and task count."
    return [Table("Telling unseen tasks", ("method", *PAIRS), rows, note)] if rows else []


def is_matrix(record: Record, name: str) -> bool:
    """Whether a value has a row and a column a task."""
    tasks = len(record.task_names) or max((len(R) for R in record.matrices.values()), default=0)
    return tasks > 1 and record.values[name].shape == (tasks, tasks)


def uncertainty_heat(arm: Arm, name: str) -> Heat:
    """The mean over seeds."""
    same = Arm(arm.label, tuple(r for r in arm.records if name in r.values and is_matrix(r, name)))
    middle, _ = same.mean(lambda record: record.values[name])
    names = task_names(arm.first, len(middle))
    small = SMALLER_IS_BETTER & set(re.split(r"[._]", name.lower()))
    note = f"Mean of {len(same.records)} seeds." if len(same.records) > 1 else "One seed."
    title = f"{arm.label}: {name.replace('_', ' ')}"
    return Heat(middle, names, names, title, "down" if small else "neither", "after", note=note)


def samples(arms: Sequence[Arm]) -> list[Part]:
    """Values whose name begins with 'samples' and that have the shape of images, of the first seed."""
    found = [(arm, name) for arm in arms for name, value in arm.first.values.items() if is_images(name, value)]
    left = len(found) - MOST_GRIDS
    more = [f"{left} more grids are left out; the Records have them all."] if left > 0 else []
    return [*(grid(arm, name) for arm, name in found[:MOST_GRIDS]), *more]


def is_images(name: str, value: Float64[Tensor, "..."]) -> bool:
    """(n, h, w), or (n, h, w, c) with one or three colours."""
    shaped = value.ndim == 3 or (value.ndim == 4 and value.shape[-1] in (1, 3))
    return name.startswith(SAMPLES) and shaped and value.numel() > 0 and bool(value.isfinite().all())


def grid(arm: Arm, name: str) -> Picture:
    """The first samples; black and white are 0 and 1, or the extremes where the values lie beyond."""
    value = arm.first.values[name][:MOST_SAMPLES]
    low, high = float(value.min()), float(value.max())
    limits = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    title = f"{arm.label}: {name.replace('_', ' ').replace('.', ' ')}"
    figure = drawing.images(value, title=title, limits=limits)
    return Picture(figure, f"{len(value)} images, {title}, seed {arm.first.seed}.", f"Seed {arm.first.seed}.")


def scalars(arms: Sequence[Arm]) -> list[Part]:
    """Values that are one number a run."""
    names = list(dict.fromkeys(n for arm in arms for n, v in arm.first.values.items() if v.ndim == 0))
    lines = [
        arm.line(name, [float(r.values[name]) for r in arm.records if name in r.values])
        for arm in arms
        for name in names
    ]
    rows = [(x.label, x.quantity, x.ours, x.se, x.n) for x in lines if x.n]
    return [Table("Numbers", ("", "quantity", "mean", "se", "seeds"), rows, alike="row")] if rows else []


def origin(arms: Sequence[Arm]) -> list[Part]:
    """Enough to make the same numbers again."""
    records = [record for arm in arms for record in arm.records]
    ran = commands(records)
    runs = [
        (arm.label, ", ".join(str(r.seed) for r in arm.records), ", ".join(r.id for r in arm.records)) for arm in arms
    ]
    python = "These runs were made from Python; the settings below give them again."
    return [
        Verbatim("\n".join(ran)) if ran else python,
        Table("Runs", ("method", "seeds", "Records"), runs),
        *searched(arms),
        *settings(arms),
        Table("Made by and on", ("what", "value"), made(records)),
    ]


def commands(records: Iterable[Record]) -> list[str]:
    """The lines for a shell, each once."""
    return sorted({f"vestige {r.details['command']}" for r in records if "command" in r.details})


def searched(arms: Sequence[Arm]) -> list[Part]:
    """Settings that were chosen on validation data, with everything that was tried."""
    rows: list[tuple[str, str, float, float | None, int, str]] = []
    for arm in arms:
        note = arm.first.details.get("search") or {"tried": [], "chosen": None}
        for tried in note["tried"]:
            won = "yes" if tried["set"] == note["chosen"] else "no"
            told = ", ".join(f"{field}={short(value)}" for field, value in tried["set"].items())
            scores = Tried(**tried)
            spread = None if math.isnan(scores.spread) else scores.spread
            rows.append((arm.label, told, scores.mean, spread, len(scores.scores), won))
    columns = ("method", "tried", "mean score", "spread", "seeds", "chosen")
    return [Table("Searched on validation data", columns, rows)] if rows else []


def made(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Software and machine, with every value that occurs; the versions of the results first."""
    facts: dict[str, list[str]] = {"version of the results": [record.edition for record in records]}
    for record in records:
        for name, value in [*record.versions.items(), *record.machine.items()]:
            facts.setdefault(name, []).append(short(value))
    return [(name, ", ".join(dict.fromkeys(values))) for name, values in facts.items()]


def settings(arms: Sequence[Arm]) -> list[Part]:
    """What all arms share, and what each has of its own; of runs of the protocol, what the run itself says."""
    own = [flatten(arm.first.config) for arm in arms]
    fields = list(dict.fromkeys(field for config in own for field in config))
    shared = [f for f in fields if all(f in config and config[f] == own[0].get(f) for config in own)]
    apart = [field for field in fields if field not in shared]
    own_rows = [(arm.label, *(_cut(c[f]) if f in c else None for f in apart)) for arm, c in zip(arms, own, strict=True)]
    tables = [
        Table("Settings that all share", ("field", "value"), [(f, _cut(own[0][f])) for f in shared]),
        Table("Settings of each", ("method", *apart), own_rows if apart else []),
    ]
    return [table for table in tables if table.rows]


def _cut(value: object) -> str:
    text = short(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
