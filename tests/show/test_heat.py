"""Coloured matrices: the value in each cell, blanks blank, light is better."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from vestige.core.errors import InputError, UnknownName
from vestige.show import Heat, matrix

R = np.array([[0.9, np.nan], [0.25, 1.0]])
NAMES = {"rows": ["after 1", "after 2"], "columns": ["one", "two"], "title": "R"}


def brightness(figure, value):
    drawn = figure.axes[0].images[0]
    return float(np.dot(drawn.cmap(drawn.norm(value))[:3], [0.299, 0.587, 0.114]))


def test_each_measured_cell_carries_its_value_and_each_gap_none():
    axes = matrix(R, **NAMES).axes[0]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "0.9000",
        (0, 1): "0.2500",  # x is the column, y the row
        (1, 1): "1.0000",
    }
    np.testing.assert_array_equal(np.ma.getmaskarray(axes.images[0].get_array()), np.isnan(R))
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES["rows"]
    assert [label.get_text() for label in axes.get_xticklabels()] == NAMES["columns"]


@pytest.mark.parametrize(("better", "words", "sign"), [("up", "larger", 1), ("down", "smaller", -1)])
def test_light_is_better(better, words, sign):
    figure = matrix(R, better=better, **NAMES)
    assert sign * (brightness(figure, 1.0) - brightness(figure, 0.25)) > 0.3
    assert f"{words} is better" in (figure.axes[1].get_ylabel(), figure.axes[1].get_xlabel())


def test_where_neither_is_better_larger_is_light_and_nothing_is_claimed():
    neither, up = (matrix(R, better=better, **NAMES) for better in ("neither", "up"))
    assert neither.axes[0].images[0].cmap == up.axes[0].images[0].cmap
    assert neither.axes[1].get_ylabel() == neither.axes[1].get_xlabel() == ""


@pytest.mark.parametrize("better", ["up", "down"])
def test_numbers_are_readable_on_their_colour(better):
    values = np.linspace(0, 1, 21)[None]
    figure = matrix(values, rows=["r"], columns=[str(i) for i in range(21)], title="", better=better)
    for text, value in zip(figure.axes[0].texts, values[0], strict=True):
        ink = 1.0 if text.get_color() == "white" else 0.0
        assert abs(ink - brightness(figure, value)) > 0.4


def test_matrices_to_be_compared_share_their_limits():
    first, second = matrix(R, limits=(0, 2), **NAMES), matrix(R / 2, limits=(0, 2), **NAMES)
    assert brightness(first, 0.7) == brightness(second, 0.7)
    assert first.axes[0].images[0].get_clim() == (0, 2)
    with pytest.raises(InputError, match="The 'limits' of matrix must be"):
        matrix(R, limits=(1, 1), **NAMES)


def test_a_value_beyond_the_limits_shows_on_the_bar_of_colours():
    assert matrix(R, limits=(0.5, 0.95), **NAMES).axes[0].images[0].colorbar.extend == "both"
    assert matrix(R, **NAMES).axes[0].images[0].colorbar.extend == "neither"


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_a_constant_matrix_has_one_colour(value):
    axes = matrix([[value, value]], rows=["r"], columns=["a", "b"], title="").axes[0]
    assert len(axes.texts) == 2


def test_a_matrix_of_gaps_says_so():
    axes = matrix([[np.nan]], rows=["r"], columns=["a"], title="").axes[0]
    assert [text.get_text() for text in axes.texts] == ["nothing was measured"]


def test_the_table_has_the_colours_of_the_picture():
    heat = Heat(R, ["after 1", "after <2>"], ["one", "two"], "R", better="down", limits=(0, 2), corner="after")
    drawn = matrix(R, better="down", limits=(0, 2), **NAMES).axes[0].images[0]
    html = heat.table().html(heat.styles())
    cells = re.findall(r'<td[^>]*?(?: style="background:(#\w{6});color:(\w+)")?><bdi>([^<]*)</bdi></td>', html)
    assert [text for _, _, text in cells] == ["0.9000", "-", "0.2500", "1.0000"]
    for (fill, ink, _), value in zip(cells, R.ravel(), strict=True):
        if np.isnan(value):
            assert not fill
        else:
            assert fill == to_hex(drawn.cmap(drawn.norm(value)))
            assert abs({"white": 1.0, "black": 0.0}[ink] - np.dot(to_rgb(fill), [0.299, 0.587, 0.114])) > 0.4
    assert "after &lt;2&gt;" in html
    assert heat.table().csv() == "after,one,two\nafter 1,0.9,\nafter <2>,0.25,1.0\n"


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match=r"The 'values' of matrix must be a matrix .* Got shape \(0, 2\) instead."):
        matrix(np.empty((0, 2)), **NAMES)
    with pytest.raises(InputError, match=r"The 'rows' of matrix must be 2 names. Got 1 instead."):
        matrix(R, **{**NAMES, "rows": ["a"]})
    with pytest.raises(InputError, match="The 'values' of matrix must be finite, or NaN"):
        matrix([[np.inf]], rows=["r"], columns=["a"], title="")
    with pytest.raises(InputError, match=r"The 'columns' of matrix must be 2 names. Got 1 instead."):
        Heat(R, ["a", "b"], ["a"], "R").styles()
    with pytest.raises(UnknownName, match="The 'better' of matrix must be one of down, neither, up"):
        matrix(R, better="more", **NAMES)
