"""The report: one page from Records of experiments, of bare runs, or of both. It computes nothing they do not hold.

One group of runs makes a page whose sections are the questions people ask, under a conclusion in plain words; several
make a page with a section each, under a summary. A section with nothing to show is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from vestige.continual.record import Record
from vestige.core import InputError
from vestige.runner.experiment import PRESETS, Line
from vestige.runner.report.arms import Arm, arms
from vestige.runner.report.matrices import better, curves, declared, final, heats, measured, plane, summary_table
from vestige.runner.report.origin import origin
from vestige.runner.report.published import figures, published
from vestige.runner.report.reading import Group, groups
from vestige.runner.report.sections import audits, costs, ratios, samples, scalars, uncertainty
from vestige.show import Heading, Page, Part, Table, quadrant

WORDS = {"reproduced": "came out", "partly": "came out in part", "not": "did not come out"}


def conclusion(group: Group) -> str:
    """A sentence or two."""
    if (verdict := group.verdict) is not None:
        judged = (
            f"What was published {WORDS[verdict.word]}." if verdict.word in WORDS else "There was no rule to check."
        )
        return f"{judged} {verdict.why}"
    found = [(arm, final(arm, arm.first.head)) for arm in declared(arms(group.records))]
    known = [(arm, lines) for arm, lines in found if "average" in lines]
    if not known:
        return f"{_count(len(group.records), 'run')} without a matrix over tasks."
    return _alone(*known[0]) if len(known) == 1 else _ranked(known)


def overall(found: Sequence[Group]) -> str:
    """How many experiments came out."""
    verdicts = Counter[str](group.verdict.word for group in found if group.verdict is not None)
    parts = [f"{_count(verdicts.total(), 'experiment')}: " + _listed(verdicts) + "."] if verdicts else []
    bare = sum(group.experiment is None for group in found)
    return " ".join([*parts, *([f"{_count(bare, 'group')} of runs without a published counterpart."] if bare else [])])


def summary(found: Sequence[Group]) -> Table:
    """One line a group."""
    rows = [(group.name, item(group), word(group), len(group.records)) for group in found]
    return Table("What came out", ("runs", "item", "verdict", "Records"), rows)


def item(group: Group) -> str:
    """The table or figure that a group is about."""
    return "" if group.experiment is None else group.experiment.item


def word(group: Group) -> str:
    """The verdict, a dash where nothing was published."""
    return "-" if group.verdict is None else group.verdict.word


def _alone(arm: Arm, lines: dict[str, Line]) -> str:
    what, n = measured(arm.first), len(arm.first.R)
    said = f"After {_count(n, 'task')}, {arm.label} has an average {what} of {_value(arm, lines['average'])}."
    lost, lacks = lines.get("forgetting"), lines.get("intransigence")
    if lost is not None:
        verb = "lost" if lost.ours > 0 else "gained"
        said += f" On earlier tasks it {verb} {_value(arm, lost, lost=True)} since their best."
    if lost is not None and lacks is not None:
        said += f" It {quadrant(lost.ours, lacks.ours).replace(', ', ' and ')}."
    return said


def _ranked(known: Sequence[tuple[Arm, dict[str, Line]]]) -> str:
    arm = known[0][0]
    up = better(arm.first, arm.first.head) == "up"
    by_average = sorted(known, key=lambda pair: pair[1]["average"].ours, reverse=up)
    (best, first), (worst, last) = by_average[0], by_average[-1]
    said = (
        f"After {_count(len(best.first.R), 'task')}, {best.label} is the best of {len(known)} with an average "
        f"{measured(best.first)} of {_value(best, first['average'])}; {worst.label} is the last with "
        f"{_value(worst, last['average'])}."
    )
    lost = [(arm, lines["forgetting"]) for arm, lines in known if "forgetting" in lines]
    if len(lost) > 1:
        most, least = max(lost, key=lambda pair: pair[1].ours), min(lost, key=lambda pair: pair[1].ours)
        said += (
            f" {most[0].label} forgot the most of earlier tasks, {_value(*most, lost=True)} on average; "
            f"{least[0].label} the least, {_value(*least, lost=True)}."
        )
    return said


def _value(arm: Arm, line: Line, *, lost: bool = False) -> str:
    """A number for prose, with its standard error if it has one: accuracies in percent, what was lost in points."""
    percent = better(arm.first, arm.first.head) == "up" and float(arm.first.R.nan_to_num(0).max()) <= 1
    value, numbers = abs(line.ours) if lost else line.ours, [] if line.se is None else [line.se]
    texts = [f"{100 * v:.1f}" if percent else f"{v:.3g}" for v in (value, *numbers)]
    return " \N{PLUS-MINUS SIGN} ".join(texts) + ((" points" if lost else " %") if percent else "")


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _listed(verdicts: Counter[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in verdicts.most_common())


# Questions that need nothing but the arms, in the order of the page.
SECTIONS: dict[str, Callable[[Sequence[Arm]], list[Part]]] = {
    "Every task after every task": lambda found: [*_some(summary_table(found)), *heats(found)],
    "As tasks go by": curves,
    "Forgetting, or refusing to learn?": plane,
    "Time and memory": costs,
    "Uncertainty": uncertainty,
    "Samples": samples,
    "Was the evaluation honest?": audits,
    "Can the ratios be trusted?": ratios,
}


def report(records: Sequence[Record], *, title: str = "") -> Page:
    """Everything that `records` hold, for reading."""
    found = groups(records)
    if not found:
        raise InputError("The 'records' of report must be at least one. Got none instead.")
    return page_of(found, title=title)


def page_of(found: Sequence[Group], *, title: str = "") -> Page:
    """One group, or several with a section each."""
    if len(found) == 1:
        page = Page(title or found[0].title, conclusion(found[0]))
        for heading, parts in chapters(found[0]):
            page.section(heading, *parts)
        return page
    page = Page(title or "Runs", overall(found))
    page.section("Summary", summary(found))
    for group in found:
        inside = [part for heading, parts in chapters(group) for part in (Heading(heading), *parts)]
        page.section(group.title, conclusion(group), *inside)
    return page


def chapters(group: Group) -> list[tuple[str, list[Part]]]:
    """Headings and what stands under them, where there is something."""
    experiment = group.experiment
    presets = [experiment.presets[preset] for preset in PRESETS] if experiment else []
    order = [experiment.config(arm) for preset in presets for arm in experiment.arms(preset)] if experiment else []
    found = arms(group.records, order)
    chapters: dict[str, list[Part]] = {
        "Paper beside measurement": published(group),
        "Figures": figures(group),
    }
    if not group.borrowed:
        chapters |= {heading: section(found) for heading, section in SECTIONS.items()}
    if experiment is None:
        chapters["Other numbers"] = _some(scalars(found))
    chapters["How to get the same numbers"] = origin(found)
    return [(heading, parts) for heading, parts in chapters.items() if parts]


def _some(table: Table | None) -> list[Part]:
    return [] if table is None else [table]
