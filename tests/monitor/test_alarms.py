"""Alarms against hand-made estimates: the limit, the interval's end, the rise, and what was refused."""

import math

import pytest

from vestige.chains import StepReport, TaskReport
from vestige.core.errors import InputError, UnknownName
from vestige.core.estimate import Estimate
from vestige.monitor import Alarm, FiredAlarm
from vestige.monitor.alarms import fired
from vestige.store import decode, encode


def estimate(value, error=0.0, refusal=None, name="js"):
    return Estimate.refused(refusal, name=name) if refusal else Estimate.normal(value, error, name=name, ess=100.0)


def report(step, **tasks):
    """Tasks by name: (born, value, standard error)."""
    own = [
        TaskReport(task, born, 1, 0.0, 0, 0.0, {"js": estimate(*numbers)}, (), ())
        for task, (born, *numbers) in tasks.items()
    ]
    return StepReport(step, tuple(own))


WALK = [
    report(1, a=(1, 0.10, 0.01)),
    report(2, a=(1, 0.20, 0.02), b=(2, 0.5, 0.01)),
    report(3, a=(1, 0.25, 0.02), b=(2, 0.4, 0.01)),
]


@pytest.mark.parametrize(
    ("alarm", "step", "expected"),
    [
        (Alarm("js", above=0.2), 3, {"a", "b"}),  # a: 0.25 - 1.96 * 0.02 = 0.2108
        (Alarm("js", above=0.2), 2, {"b"}),  # a is at the limit, not above it
        (Alarm("js", above=0.2109), 3, {"b"}),
        (Alarm("js", above=0.2107), 3, {"a", "b"}),
        (Alarm("js", above=0.24), 3, {"b"}),
        (Alarm("js", above=0.24, by="value"), 3, {"a", "b"}),
        (Alarm("js", above=0.0, task="a"), 3, {"a"}),
        (Alarm("js", above=0.0, task="c"), 3, set()),
        (Alarm("js", rise=0.1), 3, {"a"}),  # 0.15 - 1.96 * hypot(0.02, 0.01) = 0.1062
        (Alarm("js", rise=0.1061), 3, {"a"}),
        (Alarm("js", rise=0.1063), 3, set()),
        (Alarm("js", rise=0.04, since="last"), 3, set()),  # 0.05 - 1.96 * hypot(0.02, 0.02) < 0
        (Alarm("js", rise=0.04, since="last", by="value"), 3, {"a"}),
        (Alarm("js", rise=-1.0, since="last"), 3, {"a", "b"}),
        (Alarm("js", rise=-1.0), 2, {"a"}),  # b has just arrived: there is nothing it could have risen from
        (Alarm("js", rise=-1.0), 1, set()),
    ],
)
def test_it_fires_where_it_should(alarm, step, expected):
    assert {one.task for one in fired([alarm], WALK[:step])} == expected


def test_what_fired_says_why():
    (one,) = fired([Alarm("js", rise=0.1)], WALK)
    assert one.amount == pytest.approx(0.15)
    assert one.low == pytest.approx(0.15 - 1.959964 * math.hypot(0.02, 0.01))
    assert str(one) == (
        "Step 3, task 'a': js has risen by 0.15 since step 1 (at least 0.1062 at 95%), beyond the limit of 0.1."
    )
    assert decode(FiredAlarm, *encode(one)) == one


@pytest.mark.parametrize("alarm", [Alarm("js", above=99.0), Alarm("js", rise=99.0), Alarm("js", rise=9, since="last")])
def test_what_cannot_be_estimated_fires_and_says_so(alarm):
    walk = [WALK[0], report(2, a=(1, math.nan, math.nan, "Too few."))]
    (one,) = fired([alarm], walk)
    assert "cannot be told" in one.why
    assert "Too few." in one.why
    back = decode(FiredAlarm, *encode(one))
    assert math.isnan(back.amount)
    assert back.why == one.why


def test_a_rise_from_what_was_refused_cannot_be_told():
    walk = [report(1, a=(1, math.nan, math.nan, "Too few.")), report(2, a=(1, 0.1, 0.01))]
    (one,) = fired([Alarm("js", rise=0.5)], walk)
    assert "cannot be told at step 1" in one.why
    assert fired([Alarm("js", above=0.5)], walk) == ()


def test_bad_alarms_are_refused():
    for options, says in (
        ({}, "neither"),
        ({"above": 1.0, "rise": 1.0}, "both"),
        ({"above": math.nan}, "in "),
        ({"above": math.inf}, "in "),
    ):
        with pytest.raises(InputError, match=says):
            Alarm("js", **options)
    with pytest.raises(UnknownName, match="learnt"):
        Alarm("js", rise=1.0, since="learned")
    with pytest.raises(UnknownName, match="low"):
        Alarm("js", rise=1.0, by="lo")


def test_they_read_as_sentences():
    assert str(Alarm("js", above=0.2)) == "js of any task is above 0.2"
    assert str(Alarm("kl", rise=0.1, task="a")) == "kl of task 'a' is more than 0.1 higher than when it was learnt"
    assert str(Alarm("kl", rise=0.1, since="last", by="value")) == (
        "kl of any task is more than 0.1 higher than at the last step, by its value alone"
    )
