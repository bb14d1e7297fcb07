"""False alarms over a monitor's life: how the rate of a year is shared out among its steps and tasks.

A test at level a raises a false alarm with a chance of at most a. A monitor that tests three tasks every week has 156
such chances a year, and at 5 % each it would call somebody every other week. So the rate is promised for a year:

    P(any drift alarm within N steps, nothing having changed) <= alpha          N = steps_a_year, alpha = false_alarms

Each step may spend alpha / N, whatever the steps before it found, and the K tasks that it tests share that evenly: an
alarm fires where p <= alpha / (N K). The shares of N steps add up to at most alpha, so the promise is Bonferroni's and
holds however the tests depend on each other, which they do: those of one task share what was kept of its data. Little
is lost by that: if they were independent, 1 - (1 - alpha / (N K))^(N K) >= 1 - exp(-alpha) of such years would have an
alarm, 4.88 % for 5 %. `tests/monitor/test_false_alarms.py` counts them.

The budget renews every year: without that the shares would have to run out, and an old monitor would be deaf. As they
are all equal, any N steps in a row keep the promise, wherever a year is said to begin. That is the one deviation from
the spending functions of clinical trials (Lan and DeMets 1983), which spend most where they end: a monitor does not
know when its drift will come. A step that tests nothing spends nothing, and does not save it up.

"Nothing having changed" is what the test asks: new rows of a task are drawn as its data was. The samples of a generator
hardly ever are, and so it is by how far they are off that a generator is watched (`alarms.Alarm`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vestige.chains.report import Task
from vestige.core import checks
from vestige.core.checks import option


@dataclass(frozen=True)
class DriftAlarm:
    """Fires where the p-value of a task's drift test is within its share of a year's `false_alarms`.

    Example
    -------
    >>> DriftAlarm(false_alarms=0.05, steps_a_year=50).fired({"cats": 0.0004, "dogs": 0.2})
    {'cats': 0.0005}
    """

    false_alarms: float = option(0.05, above=0, below=1)
    steps_a_year: int = option(52, low=1)

    def __post_init__(self) -> None:
        checks.declared(self)

    def share(self, tasks: int) -> float:
        """The level of each test, in a step that tests so many tasks."""
        return self.false_alarms / (self.steps_a_year * tasks)

    def fired(self, p_values: Mapping[Task, float]) -> dict[Task, float]:
        """Of the tasks that a step tests, those that fire, with the share that each had; NaN is no test."""
        tested = {task: p for task, p in p_values.items() if not math.isnan(p)}
        return {task: self.share(len(tested)) for task, p in tested.items() if p <= self.share(len(tested))}

    def __str__(self) -> str:
        return (
            f"the drift test of a task has a p-value of at most {self.share(1):.2g}, shared by the tasks of a step: of "
            f"years of {self.steps_a_year} steps without change at most {100 * self.false_alarms:g} % raise an alarm"
        )
