"""Forgetting and intransigence from the divergence matrix: against vestige.metrics.matrix and by hand."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from vestige.chains import StepReport, TaskReport
from vestige.core.errors import InputError
from vestige.core.estimate import Estimate
from vestige.metrics import matrix as metrics
from vestige.monitor import Alarm, FiredAlarm, MonitorStep, history
from vestige.store import decode, encode

NAN = math.nan
# One task a step, as in the equations.
SQUARE = [[0.30, NAN, NAN], [0.35, 0.20, NAN], [0.25, 0.50, 0.10]]


def estimate(value, error):
    return Estimate(value, value - error, value + error, std_error=error, name="js", ess=1.0)


def steps(D, born=None, error=0.01):
    """Steps whose js is D; tasks "a", "b", ... are learnt at `born`, or one a step."""
    born = born or range(1, len(D[0]) + 1)
    out = []
    for t, row in enumerate(D, 1):
        own = [
            TaskReport("abcdef"[j], b, 1, 0.0, 0, 0.0, {"js": estimate(row[j], error)}, (), ())
            for j, b in enumerate(born)
            if b <= t
        ]
        out.append(MonitorStep(StepReport(t, tuple(own)), (), 0, "2026-01-01T00:00:00+00:00", (), (), 0))
    return out


def averages(frame):
    return frame[frame.task == "average"].set_index("step").value


def test_with_one_task_a_step_they_are_those_of_the_accuracy_matrix():
    walk = steps(SQUARE)
    want = metrics.summary(np.array(SQUARE), reference=[0.0, 0.0, 0.0], better="down")
    forgotten = history.forgetting(walk, "js")
    assert averages(forgotten).tolist() == pytest.approx(want.forgetting[1:])
    last = forgotten[(forgotten.step == 3) & (forgotten.task != "average")]
    assert last.value.tolist() == pytest.approx(want.forgetting_per_task)
    learnt = history.intransigence(walk, "js")
    assert learnt.value[:3].tolist() == pytest.approx(want.intransigence)
    reference = {"a": 0.1, "b": 0.1, "c": 0.2}
    less = history.intransigence(walk, "js", reference)
    wanted = [metrics.intransigence(np.array(SQUARE), list(reference.values()), k, better="down") for k in (1, 2, 3)]
    assert less.value[:3].tolist() == pytest.approx(wanted)
    assert less.value[3] == pytest.approx(np.mean(wanted))


def test_more_steps_than_tasks_and_two_tasks_at_once():
    walk = steps([[0.3, 0.2, NAN], [0.2, 0.4, NAN], [0.5, 0.3, 0.1], [0.1, 0.3, 0.2]], born=[1, 1, 3])
    found = history.forgetting(walk, "js").pivot(index="step", columns="task", values="value")
    assert found.a.tolist() == pytest.approx([-0.1, 0.3, -0.1])
    assert found.b.tolist() == pytest.approx([0.2, 0.1, 0.1])
    assert np.isnan(found.c[3])
    assert found.c[4] == pytest.approx(0.1)
    assert found.average.tolist() == pytest.approx([0.05, 0.2, 0.1 / 3])
    assert history.intransigence(walk, "js").value.tolist() == pytest.approx([0.3, 0.2, 0.1, 0.2])


def test_errors_are_those_of_both_ends():
    row = history.forgetting(steps(SQUARE, error=0.03), "js").iloc[-1]
    one = math.hypot(0.03, 0.03)
    assert row.std_error == pytest.approx(math.sqrt(2 * one**2) / 2)
    assert row.high - row.value == pytest.approx(1.959964 * row.std_error)
    assert history.intransigence(steps(SQUARE, error=0.03), "js").std_error[0] == pytest.approx(0.03)


def test_a_refused_step_is_not_the_best_one_and_a_refused_end_is_not_a_number():
    found = history.forgetting(steps([[0.3], [NAN], [0.4]]), "js")
    assert np.isnan(found[found.step == 2].value).all()
    assert found[found.step == 3].value.tolist() == pytest.approx([0.1, 0.1])
    assert np.isnan(history.forgetting(steps([[NAN], [0.2]]), "js").value).all()
    both = history.forgetting(steps([[0.1, 0.1], [0.2, NAN]], born=[1, 1]), "js")
    assert np.isnan(averages(both)).all()


def test_a_task_may_come_without_samples_and_miss_steps():
    walk = steps([[0.3, NAN], [0.2, 0.4], [0.5, NAN], [0.1, 0.3]], born=[1, 1])
    walk = [
        dataclasses.replace(
            step,
            real_rows=(("a", 9), ("b", 9)) if step.number == 1 else (),
            report=StepReport(step.number, tuple(own for own in step.report.tasks if own.estimates["js"].value > 0)),
        )
        for step in walk
    ]
    assert history.known(walk) == history.known(walk[:1]) == {"a": 1, "b": 1}
    found = history.forgetting(walk, "js").pivot(index="step", columns="task", values="value")
    assert found.b.isna().tolist() == [True, True, False]  # from the first step with samples of it
    assert found.b[4] == pytest.approx(-0.1)
    assert found.average[3] == pytest.approx(found.a[3])
    assert history.intransigence(walk, "js").value.tolist() == pytest.approx([0.3, 0.3])
    np.testing.assert_array_equal(history.matrix(walk, "js").b, [NAN, 0.4, NAN, 0.3])


def test_before_any_samples_there_are_tasks_and_no_numbers():
    step = MonitorStep(StepReport(1, ()), (), 0, "2026-01-01T00:00:00+00:00", (("a", 9),), (), 0)
    assert history.known([step]) == {"a": 1}
    assert history.table([step], []).empty
    assert "step" in history.table([step], [])
    for frame in (history.forgetting([step], "js"), history.intransigence([step], "js"), history.drift([step])):
        assert frame.empty
    assert history.matrix([step], "js").shape == (1, 1)


def test_the_drift_tests_of_a_step_are_told_with_the_fid():
    own = TaskReport(
        "a", 1, 1, 0.0, 0, 0.0, {"js": estimate(0.1, 0.01)}, (), (), p_value=0.0312, fid=estimate(2.0, 0.5)
    )
    other = TaskReport("b", 1, 1, 0.0, 0, 0.0, {"js": estimate(0.1, 0.01)}, (), ())
    step = MonitorStep(StepReport(1, (own, other)), (), 0, "2026-01-01T00:00:00+00:00", (), (("a", 9), ("b", 9)), 0)
    assert history.drift([step]).iloc[0].tolist() == [1, "a", 0.0312, 2.0, 1.5, 2.5]
    assert history.tests(step).texts() == [["a", "0.031", "2 [1.5, 2.5]"]]
    assert decode(MonitorStep, *encode(step)) == dataclasses.replace(
        step, report=decode(StepReport, *encode(step.report))
    )


def test_the_matrix_has_a_row_for_each_step():
    D = history.matrix(steps(SQUARE), "js")
    pd.testing.assert_frame_equal(
        D,
        pd.DataFrame(SQUARE, index=pd.Index([1, 2, 3], name="step"), columns=pd.Index(list("abc"), name="task")),
        check_column_type=False,
    )


def test_a_reference_must_be_whole():
    with pytest.raises(InputError, match="none for 'b'"):
        history.intransigence(steps(SQUARE), "js", {"a": 0.1})


def test_a_step_comes_back_from_its_file_as_it_was():
    report = steps(SQUARE)[2].report
    one = FiredAlarm(Alarm("js", above=0.1), "b", 3, 0.5, 0.48, "why")
    rows = ((7, 30),), (("7", 40), (7, 50))
    step = MonitorStep(report, (one,), 7, "2026-01-01T00:00:00+00:00", *rows, 2)
    assert decode(MonitorStep, *encode(step)) == step
