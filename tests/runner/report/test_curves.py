"""Lines go through the numbers of the matrices."""

import numpy as np
import pytest

from runner.report.planted import bare, matrix
from vestige.runner.report.matrices import LINES_A_PICTURE, MOST_PICTURES, curves, plane
from vestige.runner.report.reading import arms
from vestige.show import Picture, Table


def lines(picture):
    axes = picture.figure.axes[0]
    return {line.get_label(): line.get_ydata() for line in axes.lines}


def test_averages_stand_together_and_every_task_by_itself():
    together, first, second = curves(arms([bare("a", last=0.2), bare("b", last=0.4)]))
    assert lines(together)["a"] == pytest.approx([1, 0.6, 1.4 / 3])
    assert lines(together)["b"] == pytest.approx([1, 0.7, 1.8 / 3])
    drawn = lines(first)
    assert drawn["one"] == pytest.approx([1, 0.2, 0.2])
    assert np.isnan(drawn["two"][0])
    assert drawn["two"][1:] == pytest.approx([1, 0.2])
    assert "two 0.4" in second.alt


def test_a_band_needs_two_seeds():
    (alone,) = curves(arms([bare("a")]))
    assert not alone.figure.axes[0].collections
    (both,) = curves(arms([bare("a", 0, 0.2), bare("a", 1, 0.4)]))
    (*_, band) = both.figure.axes[0].collections[:1]
    height = band.get_paths()[0].vertices[:, 1]
    assert height.min() == pytest.approx(0.2)  # 0.3 less its standard error, 0.1
    assert "standard error" in both.caption


def test_runs_of_other_tasks_do_not_share_a_picture_and_what_is_left_out_is_said():
    other = bare("b", matrices={"single": matrix(0.3, 4)}, task_names=[], baseline={}, reference=False)
    assert len(curves(arms([bare("a"), other]))) == 2
    many = curves(arms([bare(f"m{i}") for i in range(MOST_PICTURES + 1)]))
    assert many[-1] == f"Without a picture of their own, for brevity: m{MOST_PICTURES}."
    assert curves(arms([bare(matrices={})])) == []


def test_a_hundred_arms_do_not_make_a_hundred_pictures():
    many = arms([bare(f"m{i:03d}", reference=False) for i in range(LINES_A_PICTURE * MOST_PICTURES + 2)])
    drawn = curves(many)
    assert sum(isinstance(part, Picture) for part in drawn) == 2 * MOST_PICTURES
    assert f"In none of these pictures, for brevity: {many[-2].label}; {many[-1].label}." in drawn


def test_the_plane_needs_a_reference():
    assert plane(arms([bare(reference=False)])) == []
    picture, table = plane(arms([bare("a", 0, 0.2), bare("a", 1, 0.4), bare("b", 0, 1.3)]))
    assert isinstance(picture, Picture)
    assert isinstance(table, Table)
    (label, lost, lacks, words), (_, kept, _, good) = table.rows
    assert (label, words) == ("a", "forgets, learns")
    assert (lost, lacks) == pytest.approx((0.7, -0.1))
    assert (kept, good) == (pytest.approx(-0.3 / 2), "keeps, learns")
    assert "a: forgets, learns" in picture.alt
