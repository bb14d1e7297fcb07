"""Alarms: what is held against every step of a monitor. A limit on a divergence, or on its rise, or the drift test.

An alarm on the drift test (`false_alarms.DriftAlarm`) fires where its p-value is within the share that the task has of
a year's false alarms. Where no alarm is asked for, a task that came with samples of a model is watched by the rise of
js: a model is never the data itself, and the question is whether it gets worse. A task that came without, whose
incoming data is watched, is so by its drift test.

By default an alarm on a divergence asks for evidence: it fires when the lower end of the interval lies beyond the
limit, so that noise about the limit is silent; with `by="value"` it goes by the estimate itself. The error of a rise is
that of both ends, added as if they were independent; they share what stands for the data, so the lower end is a little
too low rather than too high. Where draws of a vestige stand for the data, their error is no sampling error, and the
lower end of a rise is the low end of today's interval less the high end of the earlier one.

Of a value whose verdict is "at least" the lower end alone is a promise, and it goes by that whatever `by` says. All
limits are upper ones: a limit from below could never be told from such a value. A rise has one end of that kind: where
the earlier value is "at least", the rise may be smaller than it looks. Both values of a chain fall short for the same
reasons, so the alarm still goes by the lower end of their difference, and its sentence says what it rests on.

A divergence that was refused cannot be held against a limit: the alarm does not fire, and a `Refusal` says that it
cannot be told. Ten refusals are no evidence of a drift: where the model equals the data the terms of kl are noise about
zero, whose tail index is often beyond the limit of the estimator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scipy.special import ndtri

from vestige.chains import StepReport
from vestige.chains.report import Task, TaskReport
from vestige.core import Estimate, checks
from vestige.core.checks import option
from vestige.monitor.false_alarms import DriftAlarm


@dataclass(frozen=True)
class Alarm:
    """Fires when `divergence` of `task` (None: of any) is `above` a limit, or has made a `rise` beyond one.

    A rise is counted since the "last" step or since the step in which the task was "learnt"; of a task that had no
    samples then, since the first that it had, or the last.
    """

    divergence: str
    above: float | None = None
    rise: float | None = None
    task: Task | None = None
    since: str = option("learnt", among=("last", "learnt"))
    by: str = option("low", among=("low", "value"))

    def __post_init__(self) -> None:
        if (self.above is None) == (self.rise is None):
            given = "both" if self.above is not None else "neither"
            checks.refuse("above", "Alarm", "given, or 'rise', and not both", given)
        checks.number(self.limit, "above" if self.rise is None else "rise", "Alarm", high=math.inf, open_high=True)
        checks.declared(self)

    @property
    def limit(self) -> float:
        """What must be exceeded."""
        return next(limit for limit in (self.above, self.rise) if limit is not None)

    def __str__(self) -> str:
        whose = "any task" if self.task is None else f"task {self.task!r}"
        since = "at the last step" if self.since == "last" else "when it was learnt"
        what = f"above {self.limit:g}" if self.rise is None else f"more than {self.limit:g} higher than {since}"
        return f"{self.divergence} of {whose} is {what}" + (", by its value alone" if self.by == "value" else "")


# None: those of DEFAULT, the first for tasks that came with samples of a model, the second for those that came without.
Alarms: TypeAlias = tuple[Alarm | DriftAlarm, ...] | None
# js stays estimable longest, and 0.05 is 7 % of its range.
DEFAULT: tuple[Alarm, DriftAlarm] = (Alarm("js", rise=0.05), DriftAlarm())


@dataclass(frozen=True)
class FiredAlarm:
    """An alarm that fired: for whom, at which step, and why.

    `amount` is the divergence or its rise and `low` the lower end of that; of a drift test they are its p-value and the
    share that it had to stay within.
    """

    alarm: Alarm | DriftAlarm
    task: Task
    step: int
    amount: float
    low: float
    why: str

    def __str__(self) -> str:
        return f"Step {self.step}, task {self.task!r}: {self.why}"


@dataclass(frozen=True)
class Refusal:
    """A watched number that was refused, so that its alarm cannot be told: for whom, at which step, and why."""

    alarm: Alarm
    task: Task
    step: int
    why: str

    def __str__(self) -> str:
        return f"Step {self.step}, task {self.task!r}: {self.why}"


def sentences(alarms: Alarms) -> list[str]:
    """When each alarm fires, for people."""
    if alarms is not None:
        return [str(alarm) for alarm in alarms]
    whom = ("tasks that came with samples of a model", "tasks that came without such samples")
    return [f"{alarm}; this watches {tasks}" for alarm, tasks in zip(DEFAULT, whom, strict=True)]


def held(
    alarms: Sequence[Alarm | DriftAlarm] | None, reports: Sequence[StepReport]
) -> tuple[tuple[FiredAlarm, ...], tuple[Refusal, ...]]:
    """What fires at the last of `reports`, which are all steps from the first, and what cannot be told."""
    now, found = reports[-1], list[FiredAlarm | Refusal]()
    for alarm in DEFAULT if alarms is None else alarms:
        own = [one for one in now.tasks if alarms is not None or _watches(alarm, one, reports)]
        found += _drifted(alarm, now.step, own) if isinstance(alarm, DriftAlarm) else _limited(alarm, own, reports)
    return tuple(x for x in found if isinstance(x, FiredAlarm)), tuple(x for x in found if isinstance(x, Refusal))


def _watches(alarm: Alarm | DriftAlarm, own: TaskReport, reports: Sequence[StepReport]) -> bool:
    """Whether `alarm`, one of DEFAULT, is that of the task."""
    if isinstance(alarm, Alarm) and alarm.divergence not in own.estimates:
        return False
    with_samples = any(past.task == own.task for past in reports[own.born - 1].tasks)
    return with_samples == isinstance(alarm, Alarm)


def _drifted(alarm: DriftAlarm, step: int, tasks: Sequence[TaskReport]) -> Iterator[FiredAlarm]:
    p_values = {own.task: own.p_value for own in tasks}
    for task, share in alarm.fired(p_values).items():
        why = f"the drift test has a p-value of {p_values[task]:.2g}, within its share of {share:.2g} of false alarms."
        yield FiredAlarm(alarm, task, step, p_values[task], share, why)


def _limited(
    alarm: Alarm, tasks: Sequence[TaskReport], reports: Sequence[StepReport]
) -> Iterator[FiredAlarm | Refusal]:
    now = reports[-1]
    known = {own.task for own in now.tasks}
    for own in tasks:
        # A shell has no numbers: a task that is not known as it was named may be known as a number, or as a word.
        named = alarm.task == own.task or (alarm.task not in known and str(alarm.task) == str(own.task))
        if alarm.task is not None and not named:
            continue
        e, then, at = own.estimates[alarm.divergence], None, 0
        if alarm.rise is not None:
            past = [(r.step, one) for r in reports[:-1] for one in r.tasks if one.task == own.task]
            if not past:  # there is nothing yet that it could have risen from
                continue
            at, earlier = past[0 if alarm.since == "learnt" else -1]
            then = earlier.estimates[e.name]
        one = _held(alarm, own.task, now.step, e, then, at)
        if one is not None:
            yield one


def _held(
    alarm: Alarm, task: Task, step: int, now: Estimate, then: Estimate | None, at: int
) -> FiredAlarm | Refusal | None:
    """`now`, or its difference to `then`, which is of step `at`, held against the limit."""
    for e, when in ((now, ""), (then, f" at step {at}")):
        if e is not None and math.isnan(e.value):
            why = f"the alarm on {now.name} cannot be told{when}. {e.reason or 'There is no estimate.'}"
            return Refusal(alarm, task, step, why)
    if then is None:
        amount, low = now.value, now.low
        what = f"{now.name} is {amount:.4g}"
    else:
        amount = now.value - then.value
        low = amount - float(ndtri((1 + now.level) / 2)) * math.hypot(now.std_error, then.std_error)
        if any("from_draws" in e.details for e in (now, then)):  # the error of the draws is in the ends alone
            low = now.low - then.high
        what = f"{now.name} has risen by {amount:.4g} since step {at}"
    by_value = alarm.by == "value" and now.verdict == "ok"
    if not (amount if by_value else low) > alarm.limit:
        return None
    why = f"{what} (at least {low:.4g} at {now.level:.0%}), beyond the limit of {alarm.limit:g}."
    if then is not None and then.verdict == "at least":
        why += f" At step {at} it was only known to be at least {then.low:.4g}, so the rise may be smaller."
    return FiredAlarm(alarm, task, step, amount, low, why)
