"""The plane of RWalk's Fig. 3: every point in the quadrant whose name it earns, every name inside its quadrant."""

from itertools import product

import numpy as np
import pytest

from vestige.core.errors import InputError, UnknownName
from vestige.show import plane, quadrant

NAMES = {
    (1, 1): "forgets, refuses to learn",
    (1, -1): "forgets, learns",
    (-1, 1): "keeps, refuses to learn",
    (-1, -1): "keeps, learns",
}


def corners(figure):
    """Sign of forgetting, sign of intransigence -> the drawn name, its box in data units."""
    figure.draw_without_rendering()
    axes = figure.axes[0]
    found = {}
    for text in axes.texts:
        if text.get_gid() == "quadrant":
            box = text.get_window_extent().transformed(axes.transData.inverted())
            signs = {(int(np.sign(y)), int(np.sign(x))) for x, y in product((box.x0, box.x1), (box.y0, box.y1))}
            assert len(signs) == 1, f"{text.get_text()!r} crosses a border"
            found[signs.pop()] = text.get_text().replace("\n", " ")
    return found


@pytest.mark.parametrize(("signs", "name"), NAMES.items())
def test_quadrants_are_named_by_what_was_lost(signs, name):
    assert quadrant(0.2 * signs[0], 0.1 * signs[1]) == name


def test_nothing_lost_is_kept_and_learnt():
    assert quadrant(0.0, 0.0) == "keeps, learns"


@pytest.mark.parametrize("signs", NAMES)
def test_all_four_names_stand_in_their_own_quadrant_wherever_the_points_are(signs):
    figure = plane({"a": (0.9 * signs[0], 0.3 * signs[1]), "b": (0.1 * signs[0], 0.2 * signs[1])}, title="t")
    assert corners(figure) == NAMES


def test_points_stand_at_intransigence_and_forgetting():
    points = {"vanilla": (0.62, 0.29), "free": (0.3, -0.1), "kept": (-0.05, 0.3), "best": (-0.1, -0.2), "zero": (0, 0)}
    axes = plane(points, title="t").axes[0]
    drawn = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    for name, (forgetting, intransigence) in points.items():
        assert drawn[name] == (intransigence, forgetting)
    assert "intransigence" in axes.get_xlabel()
    assert "forgetting" in axes.get_ylabel()
    low, high = axes.get_xlim()
    assert low < -0.2
    assert high > 0.3


def test_the_good_quadrant_is_the_shaded_one():
    axes = plane({"a": (0.5, 0.5)}, title="t").axes[0]
    (patch,) = axes.patches
    box = patch.get_bbox()
    assert (box.x0, box.y0, box.x1, box.y1) == (axes.get_xlim()[0], axes.get_ylim()[0], 0, 0)


def test_every_method_is_named_once_at_its_point():
    points = {"EWC": (0.08, 0.9), "PI": (0.09, 0.8), "R$walk": (0.15, 0.18)}
    axes = plane(points, title="t").axes[0]
    named = {text.get_text(): tuple(text.xy) for text in axes.texts if text.get_gid() != "quadrant" and text.get_text()}
    assert named == {name: (i, f) for name, (f, i) in points.items()}


def test_error_bars_reach_half_a_width_to_each_side_and_stay_in_the_picture():
    axes = plane({"a": (0.5, 0.2), "b": (0.1, 0.1)}, title="t", errors={"a": (0.4, 0.1)}).axes[0]
    bars = [line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata()) == 2]
    assert [pytest.approx([0.2, 0.1]), pytest.approx([0.2, 0.9])] in bars
    assert [pytest.approx([0.1, 0.5]), pytest.approx([0.3, 0.5])] in bars
    assert axes.get_ylim()[1] > 0.9


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match=r"The 'points' of plane must be at least one name with its values. Got none"):
        plane({}, title="t")
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match=r"The 'points\['a'\]' of plane must be"):
            plane({"a": (0.1, bad)}, title="t")
    with pytest.raises(UnknownName, match="The 'errors' of plane"):
        plane({"a": (0.1, 0.1)}, title="t", errors={"b": (0.1, 0.1)})
    with pytest.raises(InputError, match=r"The 'errors\['a'\]' of plane must be in \[0, inf\]. Got -1"):
        plane({"a": (0.1, 0.1)}, title="t", errors={"a": (-1.0, 0.1)})
