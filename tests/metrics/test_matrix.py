"""Against the papers' formulas written as loops over one cell at a time, and the worked example of RWalk, section 3."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError, UnknownName
from vestige.metrics import matrix as m

NAN = math.nan

# Task 1 of the example: 0.7 0.8 0.6 0.5 down its column.
EXAMPLE = [
    [0.7, NAN, NAN, NAN],
    [0.8, 0.9, NAN, NAN],
    [0.6, 0.8, 0.7, NAN],
    [0.5, 0.9, 0.4, 0.6],
]


# One cell at a time, None where a term was not measured.


def mean(terms):
    return NAN if not terms or any(t is None or math.isnan(t) for t in terms) else sum(terms) / len(terms)


def slow_forgetting(R, k, sign):
    terms = []
    for j in range(1, k):
        past = [sign * R[row][j - 1] for row in range(k - 1) if not math.isnan(R[row][j - 1])]
        terms.append(max(past) - sign * R[k - 1][j - 1] if past else None)
    return mean(terms)


def slow_backward(R, k, sign):
    return mean([sign * (R[k - 1][j - 1] - R[j - 1][j - 1]) for j in range(1, k)])


def slow_forward(R, b, k, sign):
    return mean([sign * (R[j - 2][j - 1] - b[j - 1]) for j in range(2, k + 1)])


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, rel=1e-12, abs=1e-9)


@st.composite
def matrices(draw):
    """A matrix, a reference, a baseline; fewer rows than tasks, and holes, included."""
    tasks = draw(st.integers(1, 6))
    rows = draw(st.integers(1, tasks))
    cell = st.one_of(st.floats(-100, 100), st.just(NAN))
    cells = [draw(st.lists(cell, min_size=tasks, max_size=tasks)) for _ in range(rows)]
    if all(math.isnan(v) for v in cells[-1]):
        cells[-1][0] = 0.5
    line = st.lists(st.floats(-100, 100), min_size=tasks, max_size=tasks)
    return cells, draw(line), draw(line)


@settings(max_examples=60, deadline=None)
@given(case=matrices(), better=st.sampled_from(["up", "down"]))
def test_every_quantity_at_every_k_is_the_loop_over_its_formula(case, better):
    R, reference, b = case
    sign = 1 if better == "up" else -1
    whole = m.summary(R, reference, b, better=better)
    assert whole.trained == len(R)
    for k in range(1, len(R) + 1):
        slow = {
            "average": mean(R[k - 1][:k]),
            "forgetting": slow_forgetting(R, k, sign),
            "intransigence": sign * (reference[k - 1] - R[k - 1][k - 1]),
            "backward_transfer": slow_backward(R, k, sign),
            "forward_transfer": slow_forward(R, b, k, sign),
        }
        one = {
            "average": m.average_accuracy(R, k),
            "forgetting": m.forgetting(R, k, better=better),
            "intransigence": m.intransigence(R, reference, k, better=better),
            "backward_transfer": m.backward_transfer(R, k, better=better),
            "forward_transfer": m.forward_transfer(R, b, k, better=better),
        }
        for name in m.MatrixSummary.QUANTITIES:
            assert same(one[name], slow[name]), (name, k)
            assert same(getattr(whole, name)[k - 1], slow[name]), (name, k)
    assert all(same(whole.last()[name], one[name]) for name in one)


@settings(max_examples=40, deadline=None)
@given(case=matrices())
def test_down_is_up_of_the_negative(case):
    R, reference, b = case
    up = m.summary((-np.array(R)).tolist(), [-v for v in reference], [-v for v in b])
    down = m.summary(R, reference, b, better="down")
    for name in ("forgetting", "intransigence", "backward_transfer", "forward_transfer"):
        assert all(map(same, getattr(up, name), getattr(down, name)))
    assert all(map(same, up.average, [-v for v in down.average]))  # an average has no good side
    np.testing.assert_array_equal(down.matrix.numpy(), np.array(R))


@settings(max_examples=40, deadline=None)
@given(case=matrices())
def test_a_transfer_is_its_positive_minus_its_negative_part(case):
    R, _, b = case
    for k in range(1, len(R) + 1):
        gains, losses = m.positive_backward_transfer(R, k), m.negative_backward_transfer(R, k)
        assert same(gains - losses, m.backward_transfer(R, k))
        assert math.isnan(gains) or (gains >= 0 and losses >= 0)
        gains, losses = m.positive_forward_transfer(R, b, k), m.negative_forward_transfer(R, b, k)
        assert same(gains - losses, m.forward_transfer(R, b, k))
        assert math.isnan(gains) or (gains >= 0 and losses >= 0)


def test_the_parts_do_not_cancel():
    R = [[0.5, 0.2, 0.3], [0.5, 0.5, 0.1], [0.7, 0.2, 0.5]]
    assert m.positive_backward_transfer(R) == pytest.approx(0.1)  # (0.2 + 0) / 2
    assert m.negative_backward_transfer(R) == pytest.approx(0.15)  # (0 + 0.3) / 2
    assert m.positive_forward_transfer(R, [0.2, 0.1, 0.2]) == pytest.approx(0.05)
    assert m.negative_forward_transfer(R, [0.2, 0.1, 0.2]) == pytest.approx(0.05)
    assert m.negative_backward_transfer(R, better="down") == pytest.approx(0.1)
    assert m.negative_forward_transfer(R, [0.2, 0.1, 0.1], better="down") == pytest.approx(0.05)


def test_the_example_of_the_paper():
    assert m.forgetting_per_task(EXAMPLE, 4)[0] == pytest.approx(0.3)
    assert m.backward_transfer_per_task(EXAMPLE, 4)[0] == pytest.approx(-0.2)
    assert m.forgetting(EXAMPLE) == pytest.approx((0.3 + 0.0 + 0.3) / 3)
    assert m.forgetting(EXAMPLE, 3) == pytest.approx((0.2 + 0.1) / 2)
    assert m.average_accuracy(EXAMPLE) == pytest.approx(0.6)


def test_forgetting_is_negative_when_the_last_row_is_the_best():
    assert m.forgetting([[0.5, NAN], [0.9, 0.8]]) == pytest.approx(-0.4)


def test_after_one_task_nothing_can_have_been_forgotten_or_transferred():
    one = m.summary([[0.9]], [0.95], [0.1])
    assert one.last()["average"] == pytest.approx(0.9)
    assert one.last()["intransigence"] == pytest.approx(0.05)
    assert all(math.isnan(one.last()[n]) for n in ("forgetting", "backward_transfer", "forward_transfer"))
    assert one.forgetting_per_task == ()
    assert m.forgetting_per_task([[0.9]]) == []


def test_a_row_that_was_not_measured_is_passed_over_by_the_maximum_alone():
    R = [[0.9, NAN, NAN], [NAN, NAN, NAN], [0.5, 0.6, 0.7]]
    assert m.forgetting_per_task(R)[0] == pytest.approx(0.4)
    assert math.isnan(m.forgetting_per_task(R)[1])  # task 2 was never measured before
    assert math.isnan(m.forgetting(R))
    assert math.isnan(m.average_accuracy(R, 2))


def test_rows_before_a_task_was_learnt_count_as_equation_3_has_it():
    R = [[0.9, 0.8, NAN], [0.9, 0.5, NAN], [0.9, 0.4, 0.9]]
    assert m.forgetting_per_task(R)[1] == pytest.approx(0.4)


def test_k_defaults_to_the_last_row_in_which_anything_was_measured():
    R = [[0.9, NAN, NAN], [0.6, 0.8, NAN], [NAN, NAN, NAN]]
    assert m.average_accuracy(R) == pytest.approx(0.7)
    assert m.forgetting(R) == pytest.approx(0.3)
    assert m.summary(R).trained == 2


def test_a_reference_may_be_a_vector_a_column_or_a_matrix():
    R = torch.tensor(EXAMPLE, dtype=torch.float64)
    stars = [0.9, 0.95, 0.85, 0.8]
    whole = np.full((4, 4), 0.1)
    np.fill_diagonal(whole, stars)
    for reference in (stars, np.array(stars), np.array(stars)[:, None], whole, whole.tolist(), pd.DataFrame(whole)):
        assert m.intransigence(R, reference) == pytest.approx(0.2)
        assert m.intransigence(R, reference, 1) == pytest.approx(0.2)
        assert m.average_intransigence(R, reference) == pytest.approx((0.2 + 0.05 + 0.15 + 0.2) / 4)
        torch.testing.assert_close(
            m.intransigence_per_task(R, reference), torch.tensor([0.2, 0.05, 0.15, 0.2]).double()
        )


def test_fewer_rows_than_tasks_is_a_run_in_progress():
    R = [[0.9, 0.1, 0.2], [0.8, 0.9, 0.3]]
    assert m.forgetting(R) == pytest.approx(0.1)
    for b in ([0.0, 0.05, 0.1], [0.0, 0.05]):
        assert m.forward_transfer(R, b) == pytest.approx(0.05)
        assert m.intransigence(R, [1.0, 1.0, 1.0][: len(b)]) == pytest.approx(0.1)


def test_what_comes_in_goes_out():
    forgot = [0.3, 0.0, 0.3]
    assert m.forgetting_per_task(EXAMPLE) == pytest.approx(forgot)
    assert isinstance(m.forgetting_per_task(np.array(EXAMPLE)), np.ndarray)
    assert m.forgetting_per_task(torch.tensor(EXAMPLE, dtype=torch.float32)).dtype == torch.float32
    frame = pd.DataFrame(EXAMPLE, columns=["cats", "dogs", "cars", "ships"])
    series = m.forgetting_per_task(frame)
    assert list(series.index) == ["cats", "dogs", "cars"]
    assert list(m.forward_transfer_per_task(frame, [0.1] * 4).index) == ["dogs", "cars", "ships"]
    before = frame.copy()
    m.summary(frame, better="down")
    pd.testing.assert_frame_equal(frame, before)
    assert isinstance(m.forgetting(frame), float)


def test_percentages_and_losses_are_left_at_their_scale():
    assert m.forgetting([[97, NAN], [77.5, 99]]) == pytest.approx(19.5)
    assert m.forgetting([[0.1, NAN], [2.6, 0.2]], better="down") == pytest.approx(2.5)


def test_fractions_and_percentages_in_one_matrix_are_refused_with_the_cells():
    cells = r"Got 0\.97 in row 1, column 1 beside 95 in row 2, column 1 instead"
    with pytest.raises(InputError, match=rf"'R' of Y must be fractions in every cell or percentages.*{cells}"):
        m.require_one_scale([[0.97, NAN], [95.0, 96.0]], "Y")
    many = [[90.0, 0.1, 0.2], [0.3, 80.0, 0.4], [0.5, 0.6, 70.0]]
    named = r"0\.1 in row 1, column 2, 0\.2 in row 1, column 3, 0\.3 in row 2, column 1 and 3 more beside 90 in row 1"
    with pytest.raises(InputError, match=named):
        m.require_one_scale(many, "Y")


@pytest.mark.parametrize(
    ("R", "better"),
    [
        (EXAMPLE, "up"),
        ([[1.0, 0.0], [0.5, 1.0]], "up"),
        ([[97.0, 0.0], [1.0, 99.0]], "up"),  # nothing, and one percent
        ([[100.0, NAN], [1.2, 99.0]], "up"),
        ([[1.001, NAN], [0.3, 0.9]], "up"),  # a fraction that was rounded or smoothed
        ([[0.2, NAN], [2.6, 0.1]], "down"),  # losses
        ([[0.2, NAN], [230.0, 12.0]], "up"),  # returns of an agent
        ([[-0.2, NAN], [30.0, 0.5]], "up"),
        ([[NAN, NAN], [NAN, NAN]], "up"),
    ],
)
def test_what_may_be_on_one_scale_passes(R, better):
    assert m.require_one_scale(R, "Y", better=better) is None  # which it says by not refusing


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: m.forgetting([[0.1], [0.2]]),
            r"'R' of forgetting must be at most as many rows as columns \(1\).*2 rows",
        ),
        (lambda: m.forgetting([0.1, 0.2]), r"a matrix with at least one row and one column. Got shape \(2,\)"),
        (lambda: m.forgetting([[]]), r"at least one row and one column"),
        (lambda: m.forgetting([[0.1, 0.2], [0.3]]), "rows of unequal length"),
        (lambda: m.forgetting([["a", "b"], ["c", "d"]]), "an array of numbers"),
        (lambda: m.forgetting([[math.inf, 0], [0, 0]]), "finite, or NaN where nothing was measured. Got 1 infinite"),
        (lambda: m.forgetting([[NAN, NAN], [NAN, NAN]]), "measured somewhere"),
        (lambda: m.forgetting(EXAMPLE, 5), "'k' of forgetting must be at most 4. Got 5"),
        (lambda: m.forgetting(EXAMPLE, 0), "'k' of forgetting must be at least 1. Got 0"),
        (
            lambda: m.intransigence(EXAMPLE, [0.9]),
            "'reference' of intransigence must be 4 long, one value a task. Got 1",
        ),
        (
            lambda: m.intransigence(EXAMPLE, np.ones((2, 2))),
            r"at least 4 rows and columns, or one value a task. Got shape",
        ),
        (lambda: m.intransigence(EXAMPLE, [[1, 2], [3]]), "rows of unequal length"),
        (lambda: m.intransigence(EXAMPLE, [1, 1, 1, math.inf]), "'reference' of intransigence must be finite"),
        (lambda: m.forward_transfer(EXAMPLE, [0.1] * 5), "'baseline' of forward_transfer must be 4 long"),
        (lambda: m.forward_transfer([[1, 2, 3]], [0.1] * 2), r"3 long \(tasks\) or 1 \(rows of 'R'\). Got 2"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_an_unknown_direction_names_the_known_ones():
    with pytest.raises(UnknownName, match=r"must be one of down, up\. Got 'upp' instead\. Did you mean 'up'"):
        m.summary(EXAMPLE, better="upp")
