"""Curves: what is drawn is what was given."""

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError, UnknownName
from vestige.show import curves, encode, while_training

AXES = {"title": "t", "x_label": "step", "y_label": "nats"}


def drawn(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_each_series_stands_at_its_values_with_its_gaps():
    figure = curves({"a": [1.0, np.nan, 3.0], "b": torch.tensor([2, 4, 6])}, np.array([1, 2, 5]), **AXES)
    lines = drawn(figure)
    np.testing.assert_array_equal(lines["a"].get_xydata(), [[1, 1], [2, np.nan], [5, 3]])
    np.testing.assert_array_equal(lines["b"].get_ydata(), [2, 4, 6])
    assert lines["a"].get_color() != lines["b"].get_color()
    assert lines["a"].get_marker() != lines["b"].get_marker()
    assert figure.axes[0].get_xlabel() == "step"
    assert figure.axes[0].get_ylabel() == "nats"
    assert figure.axes[0].get_title(loc="left") == "t"


def test_a_band_covers_low_to_high_in_the_colour_of_its_series():
    figure = curves(
        {"a": [1.0, 2.0], "b": [0.0, 1.0]}, [1, 2], bands={"b": (pd.Series([-1.0, 0.5]), [2.0, 3.0])}, **AXES
    )
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices
    assert {(1.0, -1.0), (2.0, 0.5), (1.0, 2.0), (2.0, 3.0)} <= set(map(tuple, corners.tolist()))
    from matplotlib.colors import to_rgb

    assert tuple(band.get_facecolor()[0][:3]) == to_rgb(drawn(figure)["b"].get_color())


def test_references_are_dashed_black_and_named_last():
    figure = curves({"a": [1.0, 2.0]}, [1, 2], reference={"truth": [1.5, np.nan], "alarm": 3}, **AXES)
    lines = drawn(figure)
    np.testing.assert_array_equal(lines["truth"].get_ydata(), [1.5, np.nan])
    np.testing.assert_array_equal(lines["alarm"].get_ydata(), [3, 3])
    assert lines["truth"].get_color() == lines["alarm"].get_color() == "#000000"
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "truth", "alarm"]
    assert legend.legend_handles[0].get_color() == lines["a"].get_color()


def test_a_single_series_needs_no_legend():
    assert curves({"a": [1.0]}, [1], **AXES).axes[0].get_legend() is None


def test_words_may_stand_under_the_curve():
    axes = curves({"a": [1.0, 2.0]}, ["task <1>", "b\x00"], **AXES).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["task <1>", "b\\x00"]


def test_steps_are_counted_in_whole_numbers():
    figure = curves({"a": [1.0, 2.0]}, [1, 2], **AXES)
    encode(figure, "png")
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


def test_a_log_axis_has_plain_labels_and_takes_only_positive_values():
    figure = curves({"a": [0.01, 10.0]}, [1, 2], log=True, bands={"a": ([-1, 5], [1, 20])}, **AXES)
    encode(figure, "svg")
    assert figure.axes[0].get_yscale() == "log"
    labels = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert {"0.01", "0.1", "1", "10"} <= labels
    for bad in ({"series": {"a": [0.0, 1.0]}}, {"series": {"a": [1, 2]}, "reference": {"r": -1.0}}):
        with pytest.raises(InputError, match=r"The '.*' of curves must be positive with log=True. Got (0|-1) instead."):
            curves(x=[1, 2], log=True, **{"reference": None, **bad}, **AXES)


def test_nothing_measured_is_said():
    axes = curves({"a": [np.nan, np.nan]}, [1, 2], **AXES).axes[0]
    assert [text.get_text() for text in axes.texts] == ["nothing was measured"]
    assert not curves({"a": [np.nan, 1.0]}, [1, 2], **AXES).axes[0].texts


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"series": {}}, r"The 'series' of curves must be at least one name with its values. Got none instead."),
        ({"x": []}, r"The 'x' of curves must be at least 1 long. Got 0 instead."),
        ({"x": [1, np.nan]}, r"The 'x' of curves must be finite. Got 1 NaN instead."),
        ({"series": {"a": [1.0]}}, r"The 'series\['a'\]' of curves must be 2 long. Got 1 instead."),
        ({"series": {"a": [1.0, np.inf]}}, r"The 'series\['a'\]' of curves must be finite, or NaN"),
        ({"bands": {"a": ([1, 3], [2, 2])}}, r"The 'bands\['a'\]' .* low <= high. Got \(3, 2\) instead."),
        ({"reference": {"r": [1, 2, 3]}}, r"The 'reference\['r'\]' of curves must be 2 long. Got 3 instead."),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        curves(**{"series": {"a": [1.0, 2.0]}, "x": [1, 2], **AXES, **arguments})


def test_a_band_of_an_unknown_series_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'every-step'"):
        curves({"every-step": [1.0]}, [1], bands={"everystep": ([0], [1])}, **AXES)


class TestWhileTraining:
    def test_lines_borders_and_lowest_points_stand_where_they_were_measured(self):
        curve = [[0.9, np.nan], [0.4, 0.5], [0.8, 0.7]]
        figure = while_training(curve, [[0, 4], [1, 2], [1, 5]], title="gap")
        lines = figure.axes[0].lines
        np.testing.assert_array_equal(drawn(figure)["task 1"].get_xydata(), [[4, 0.9], [6, 0.4], [9, 0.8]])
        low = next(line for line in lines if line.get_marker() == "o")
        assert low.get_xydata().tolist() == [[6, 0.4]]
        assert [line.get_xdata() for line in lines if len(set(line.get_xdata())) == 1][-1] == [4, 4]

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(InputError, match="a task and a batch"):
            while_training([[0.9]], [[0, 4], [0, 5]], title="gap")
        with pytest.raises(InputError, match="'names'"):
            while_training([[0.9]], [[0, 4]], title="gap", names=["a", "b"])
