"""A year of steps without change raises an alarm as seldom as it was said, and not much more seldom."""

import math

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.monitor import DriftAlarm
from vestige.store import decode, encode


def years_with_an_alarm(alarm, tasks, *, years, together=False, seed=0):
    """The share of years of uniform p-values in which any alarm fires; `tasks` at each step of a year, in turn."""
    dice, called = np.random.default_rng(seed), 0
    for _ in range(years):
        any_fired = False
        for step in range(alarm.steps_a_year):
            k = tasks[step % len(tasks)]
            p = np.full(k, dice.random()) if together else dice.random(k)
            any_fired |= bool(alarm.fired(dict(enumerate(p.tolist()))))
        called += any_fired
    return called / years


@pytest.mark.parametrize(("rate", "steps", "tasks"), [(0.05, 52, [1]), (0.05, 12, [1, 2, 3]), (0.3, 12, [3, 0, 5])])
def test_years_without_change_raise_as_many_alarms_as_was_said(rate, steps, tasks):
    alarm, years = DriftAlarm(rate, steps), 3000
    found = years_with_an_alarm(alarm, tasks, years=years)
    spent = sum(tasks[step % len(tasks)] > 0 for step in range(steps)) / steps  # a step without a test spends nothing
    expected = 1 - math.exp(-rate * spent)
    noise = math.sqrt(expected / years)
    assert found <= rate + 3 * noise
    assert abs(found - expected) < 3.5 * noise


def test_the_promise_holds_where_the_tasks_tell_the_same():
    found = years_with_an_alarm(DriftAlarm(0.3, 12), [4], years=3000, together=True)
    assert found < 0.1  # four tasks that are one test spend a quarter of the rate


@pytest.mark.parametrize("tasks", [[1] * 52, [3] * 52, list(range(1, 53))])
def test_the_shares_of_a_year_add_up_to_the_rate(tasks):
    alarm = DriftAlarm(0.07, 52)
    assert sum(k * alarm.share(k) for k in tasks) == pytest.approx(0.07)


def test_it_fires_up_to_the_share_and_what_was_not_tested_takes_none():
    alarm = DriftAlarm(0.05, 50)
    assert alarm.fired({"a": 0.001}) == {"a": 0.001}
    assert alarm.fired({"a": 0.00101}) == {}
    assert alarm.fired({"a": 0.0006, "b": 0.5}) == {}
    assert alarm.fired({"a": 0.0006, "b": math.nan}) == {"a": 0.001}
    assert alarm.fired({"a": 0.0005, "b": 0.0}) == {"a": 0.0005, "b": 0.0005}
    assert alarm.fired({}) == {}


def test_it_reads_as_a_sentence_and_is_stored():
    alarm = DriftAlarm(0.05, 12)
    assert str(alarm).endswith("of years of 12 steps without change at most 5 % raise an alarm")
    assert "at most 0.0042" in str(alarm)
    assert decode(DriftAlarm, *encode(alarm)) == alarm


@pytest.mark.parametrize("options", [{"false_alarms": 0.0}, {"false_alarms": 1.0}, {"steps_a_year": 0}])
def test_a_senseless_rate_is_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        DriftAlarm(**options)
