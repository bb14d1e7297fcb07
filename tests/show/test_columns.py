"""Bars: heights, error bars and gaps as given."""

import numpy as np
import pytest

from vestige.core.errors import InputError, UnknownName
from vestige.show import bars

AXES = {"title": "t", "y_label": "A"}


def test_heights_stand_side_by_side_under_their_labels():
    figure = bars({"paper": [3.0, 1.0], "ours": [2.0, np.nan]}, ["x", "y"], **AXES)
    axes = figure.axes[0]
    paper, ours = axes.containers
    assert [bar.get_height() for bar in paper] == [3.0, 1.0]
    assert ours[0].get_height() == 2.0
    assert np.isnan(ours[1].get_height())
    for i, bar in enumerate(paper):
        assert i - 0.5 < bar.get_x() < bar.get_x() + bar.get_width() < i < i + 0.5
    assert ours[0].get_x() > paper[0].get_x() + paper[0].get_width()
    assert paper[0].get_hatch() != ours[0].get_hatch()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["paper", "ours"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y"]
    assert axes.get_xlim() == (-0.5, 1.5)


def test_error_bars_reach_half_a_width_up_and_down_and_skip_gaps():
    figure = bars({"a": [3.0, 1.0, np.nan]}, ["x", "y", "z"], errors={"a": [0.5, np.nan, 1.0]}, **AXES)
    (segments,) = [c.get_segments() for c in figure.axes[0].collections]
    assert [segment[:, 1].tolist() for segment in segments] == [[2.5, 3.5]]
    assert segments[0][0, 0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"series": {}}, "The 'series' of bars must be at least one name with its values. Got none instead."),
        ({"labels": []}, "The 'labels' of bars must be at least one name. Got none instead."),
        ({"series": {"a": [1.0]}}, r"The 'series\['a'\]' of bars must be 2 long. Got 1 instead."),
        ({"errors": {"a": [0.1, -0.1]}}, r"The 'errors\['a'\]' of bars must be 0 or larger. Got -0.1 instead."),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        bars(**{"series": {"a": [1.0, 2.0]}, "labels": ["x", "y"], **AXES, **arguments})


def test_errors_of_an_unknown_series_are_refused():
    with pytest.raises(UnknownName, match="The 'errors' of bars must be one of a"):
        bars({"a": [1.0]}, ["x"], errors={"b": [1.0]}, **AXES)
