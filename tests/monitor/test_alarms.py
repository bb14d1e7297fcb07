"""Alarms against hand-made estimates: the limit, the interval's end, the rise, and what was refused."""

import dataclasses
import math

import pytest
import torch

from vestige.chains import Chain, StepReport, TaskReport
from vestige.core.errors import InputError, UnknownName
from vestige.core.estimate import Estimate
from vestige.monitor import Alarm, DriftAlarm, FiredAlarm, Refusal
from vestige.monitor.alarms import held, sentences
from vestige.store import decode, encode


def fired(alarms, walk):
    return held(alarms, walk)[0]


def estimate(value, error=0.0, refusal=None, name="js"):
    return Estimate.refused(refusal, name=name) if refusal else Estimate.normal(value, error, name=name, ess=100.0)


def report(step, **tasks):
    """Tasks by name: (born, value, standard error)."""
    own = [
        TaskReport(task, born, 1, 0.0, 0, 0.0, {"js": estimate(*numbers)}, (), ())
        for task, (born, *numbers) in tasks.items()
    ]
    return StepReport(step, tuple(own))


def at_least(step):
    """The same step, its numbers only known to be at least what they are."""
    least = [
        dataclasses.replace(own, estimates={"js": own.estimates["js"].but(verdict="at least", reason="overfitted")})
        for own in step.tasks
    ]
    return dataclasses.replace(step, tasks=tuple(least))


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


@pytest.mark.parametrize("alarm", [Alarm("js", above=-9.0), Alarm("js", rise=-9.0), Alarm("js", rise=-9, since="last")])
@pytest.mark.parametrize("by", ["low", "value"])
def test_what_cannot_be_estimated_does_not_fire_and_says_so(alarm, by):
    first = report(1, a=(1, 0.10, 0.01), b=(1, 0.4, 0.01))
    walk = [first, report(2, a=(1, math.nan, math.nan, "Too few."), b=(1, 0.5, 0.01))]
    alarms, (one,) = held([dataclasses.replace(alarm, by=by)], walk)
    assert [other.task for other in alarms] == ["b"]
    assert str(one) == "Step 2, task 'a': the alarm on js cannot be told. Too few."
    assert decode(Refusal, *encode(one)) == one


def test_a_rise_from_what_was_refused_cannot_be_told():
    walk = [report(1, a=(1, math.nan, math.nan, "Too few.")), report(2, a=(1, 0.1, 0.01))]
    alarms, (one,) = held([Alarm("js", rise=-5)], walk)
    assert alarms == ()
    assert "cannot be told at step 1. Too few." in one.why
    assert held([Alarm("js", above=0.5)], walk) == ((), ())


@pytest.mark.parametrize("by", ["low", "value"])
@pytest.mark.parametrize(("limit", "fires"), [(0.2107, True), (0.2109, False), (0.24, False)])
def test_a_number_that_is_at_least_something_fires_by_its_low_end(limit, fires, by):
    least = at_least(report(3, a=(1, 0.25, 0.02)))  # 0.25 - 1.96 * 0.02 = 0.2108
    assert bool(fired([Alarm("js", above=limit, by=by)], [*WALK[:2], least])) == fires
    assert not held([Alarm("js", above=limit, by=by)], [*WALK[:2], least])[1]


@pytest.mark.parametrize("by", ["low", "value"])
def test_a_rise_to_what_is_at_least_something_fires_by_its_low_end(by):
    walk = [WALK[0], WALK[1], at_least(report(3, a=(1, 0.25, 0.02)))]
    assert fired([Alarm("js", rise=0.1061, by=by)], walk)
    assert not fired([Alarm("js", rise=0.1063, by=by)], walk)


def test_a_rise_from_what_was_at_least_something_says_so():
    walk = [at_least(WALK[0]), WALK[1], report(3, a=(1, 0.25, 0.02))]
    (one,) = fired([Alarm("js", rise=0.1)], walk)
    assert one.why.endswith("At step 1 it was only known to be at least 0.0804, so the rise may be smaller.")


def test_a_rise_from_draws_goes_by_the_ends_of_the_intervals():
    """The error of draws of a vestige is no sampling error: it is in the ends, and not in the standard error."""
    first, last = report(1, a=(1, 0.10, 0.01)), report(2, a=(1, 0.40, 0.01))
    e = last.tasks[0].estimates["js"].but(low=0.25, high=0.6, details={"from_draws": (0.38, 0.42)})
    wide = StepReport(2, (dataclasses.replace(last.tasks[0], estimates={"js": e}),))
    low = 0.25 - (0.10 + 1.959964 * 0.01)
    for limit in (low - 0.001, low + 0.001):
        assert bool(fired([Alarm("js", rise=limit)], [first, wide])) == (limit < low)
        assert fired([Alarm("js", rise=limit)], [first, last])


def judged(step, **tasks):
    """Tasks by name: (born, js, p-value)."""
    own = [
        TaskReport(task, born, 1, 0.0, 0, 0.0, {"js": estimate(js, 0.001)}, (), (), p_value=p)
        for task, (born, js, p) in tasks.items()
    ]
    return StepReport(step, tuple(own))


def test_a_drift_alarm_shares_its_step_among_the_tasks_that_were_tested():
    alarm = DriftAlarm(0.05, 50)
    (one,) = fired([alarm], [judged(1, a=(1, 0.1, 0.0004), b=(1, 0.1, 0.0006))])
    assert (one.task, one.amount, one.low) == ("a", 0.0004, 0.0005)
    assert one.why == "the drift test has a p-value of 0.0004, within its share of 0.0005 of false alarms."
    assert decode(FiredAlarm, *encode(one)) == one
    alone = fired([alarm], [judged(1, a=(1, 0.1, 0.0004), b=(1, 0.1, math.nan))])
    assert [one.low for one in alone] == [0.001]


def test_by_default_models_are_watched_by_the_rise_of_js_and_incoming_data_by_its_drift_test():
    """Task a came with samples, b without; both have drifted."""
    walk = [judged(1, a=(1, 0.01, 0.0)), judged(2, a=(1, 0.2, 0.0), b=(1, 0.2, 0.0))]
    assert {(one.task, type(one.alarm)) for one in fired(None, walk)} == {("a", Alarm), ("b", DriftAlarm)}
    assert fired(None, walk[:1]) == ()  # a model need not be the data itself
    assert fired(None, [*walk[:1], judged(2, a=(1, 0.05, 0.0), b=(1, 0.3, 0.01))]) == ()
    nothing = dataclasses.replace(walk[1].tasks[1], estimates={"kl": estimate(0.3, name="kl")})
    assert held(None, [walk[0], StepReport(2, (nothing,))])[1] == ()
    with_model, without = sentences(None)
    assert with_model.endswith("this watches tasks that came with samples of a model")
    assert "at most 5 % raise an alarm" in without
    assert sentences((Alarm("js", above=0.2),)) == ["js of any task is above 0.2"]


def test_a_rise_is_counted_from_the_first_or_the_last_step_that_had_samples():
    walk = [report(1), report(2, a=(1, 0.1, 0.0)), report(3, a=(1, 0.3, 0.0)), report(4), report(5, a=(1, 0.35, 0.0))]
    (one,) = fired([Alarm("js", rise=0.2)], walk)
    assert "since step 2" in one.why
    assert one.amount == pytest.approx(0.25)
    (last,) = fired([Alarm("js", rise=0.04, since="last")], walk)
    assert last.amount == pytest.approx(0.05)
    assert fired([Alarm("js", rise=-1)], walk[:2]) == ()


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


def without_drift(n, seed):
    """Samples of one and the same distribution."""
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fired_and_refused(chains, steps=10, n=1000):
    """What fires and what cannot be told, in so many chains without drift."""
    alarms, found = [Alarm("kl", above=0.05), Alarm("kl", rise=0.05), Alarm("js", rise=0.05)], ([], [])
    for chain_seed in chains:
        chain, walk = Chain(names=("kl", "js")), []
        for t in range(1, steps + 1):
            real = {"a": without_drift(n, 1000 * chain_seed)} if t == 1 else {}
            walk.append(chain.step(real, {"a": without_drift(n, 1000 * chain_seed + t)}, seed=chain_seed))
            for into, told in zip(found, held(alarms, walk), strict=True):
                into.extend(told)
    return found


@pytest.mark.slow
@pytest.mark.full_training
@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
def test_a_chain_that_does_not_drift_fires_none():
    fires, untold = fired_and_refused([2, 8], steps=3)
    assert fires == []
    assert {one.alarm.divergence for one in untold} == {"kl"}  # else the chains say nothing about refusals


@pytest.mark.slow
@pytest.mark.full_training
@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
def test_thirty_chains_that_do_not_drift_fire_none():
    fires, untold = fired_and_refused(range(30))
    assert fires == []
    assert len({(one.task, one.step) for one in untold}) > 3
