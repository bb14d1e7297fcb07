"""What came out, in plain words: of one group of runs, and of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vestige.runner.experiment import Line
from vestige.runner.report.arms import Arm, arms
from vestige.runner.report.matrices import better, declared, final, measured
from vestige.runner.report.reading import Group
from vestige.show import Table, quadrant

WORDS = {"reproduced": "came out", "partly": "came out in part", "not": "did not come out"}


def conclusion(group: Group) -> str:
    """A sentence or two."""
    if (verdict := group.verdict) is not None:
        judged = f"What was published {WORDS[verdict.word]}." if verdict.word in WORDS else "This was not judged."
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
