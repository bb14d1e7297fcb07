"""Accuracy against time: the front is what no other point beats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.show import encode, pareto_front, scatter_front

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def undominated(pairs):
    """By definition: no other is at least as good in both and better in one."""
    return {
        i for i, (s, a) in enumerate(pairs) if not any(s2 <= s and a2 >= a and (s2 < s or a2 > a) for s2, a2 in pairs)
    }


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(PAIRS)
def test_the_front_is_what_no_other_point_beats(pairs):
    seconds, accuracy = [float(s) for s, _ in pairs], [float(a) for _, a in pairs]
    front = pareto_front(seconds, accuracy)
    assert set(front) == undominated(pairs)
    assert len(front) == len(set(front))
    assert [seconds[i] for i in front] == sorted(seconds[i] for i in front)


def test_every_setting_is_drawn_and_the_front_runs_through_the_best():
    points = {"VGR": [[600, 0.9], [3000, 0.96]], "VCL": np.array([[50, 0.2], [700, 0.25]]), "coreset": (100, 0.67)}
    figure = scatter_front(points, title="t")
    axes = figure.axes[0]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["VGR"] == [[600, 0.9], [3000, 0.96]]
    assert lines["coreset"] == [[100, 0.67]]
    assert lines["Pareto front"] == [[50, 0.2], [100, 0.67], [600, 0.9], [3000, 0.96]]
    named = {text.get_text(): tuple(text.xy) for text in axes.texts if text.get_text()}
    assert named == {"VGR": (3000, 0.96), "VCL": (700, 0.25), "coreset": (100, 0.67)}
    low, high = axes.get_xlim()
    assert low < 50
    assert high > 3000


def test_a_name_covers_no_point_of_its_own_method_or_of_another():
    points = {
        "VCL + coreset": [[40, 45.6], [68, 45.5], [24, 40.0]],
        "VGR": [[46, 62.5], [400, 93.0]],
        "VCL": (12, 11.0),
    }
    figure = scatter_front(points, title="t", log=True)
    axes = figure.axes[0]
    figure.draw_without_rendering()
    dots = axes.transData.transform(np.concatenate([np.atleast_2d(value) for value in points.values()]))
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == 3
    assert not any(box.contains(*dot) for box in boxes for dot in dots)


def test_seconds_may_stand_in_powers_of_ten():
    figure = scatter_front({"a": (0.5, 0.1), "b": (500, 0.9)}, title="t", log=True)
    encode(figure, "png")
    assert figure.axes[0].get_xscale() == "log"
    assert {"1", "10", "100"} <= {label.get_text() for label in figure.axes[0].get_xticklabels()}


@pytest.mark.parametrize(
    ("points", "arguments", "sentence"),
    [
        ({}, {}, "The 'points' of scatter_front must be at least one name with its values. Got none"),
        (
            {"a": (1.0, 2.0, 3.0)},
            {},
            r"The 'points\['a'\]' of scatter_front must be \(seconds, accuracy\). Got 3 numbers",
        ),
        ({"a": (-1.0, 0.5)}, {}, r"must be seconds of 0 or more. Got -1 instead"),
        ({"a": (0.0, 0.5)}, {"log": True}, r"must be seconds above 0 with log=True. Got 0 instead"),
        ({"a": (1.0, np.nan)}, {}, "must be finite"),
        ({"a": np.empty((0, 2))}, {}, "must be a matrix with at least one row"),
    ],
)
def test_what_cannot_be_drawn_is_refused(points, arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        scatter_front(points, title="t", **arguments)
