"""Names beside points: near them, apart from each other, inside the frame."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from vestige.show import points as labels
from vestige.show import style


def written(x, y, names):
    with style.settings():
        figure, axes = style.sheet(6.0, 5.0, "t")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        texts = labels.beside(figure, axes, names, np.column_stack([x, y]).astype(float))
        figure.draw_without_rendering()
        return axes, texts, [text.get_window_extent() for text in texts]


def test_names_of_close_points_do_not_overlap():
    x, y = [0.5, 0.52, 0.5, 0.52, 0.51, 0.9], [0.5, 0.5, 0.52, 0.52, 0.51, 0.9]
    axes, texts, boxes = written(x, y, [f"method {i}" for i in range(6)])
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    dots = axes.transData.transform(np.column_stack([x, y]))
    assert not any(box.contains(*dot) for box in boxes for dot in dots)
    assert [text.get_text() for text in texts] == [f"method {i}" for i in range(6)]


@pytest.mark.parametrize("corner", [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_a_name_at_the_border_turns_inwards(corner):
    axes, _, (box,) = written([corner[0]], [corner[1]], ["a long name of a method"])
    frame = axes.get_window_extent()
    assert frame.x0 <= box.x0
    assert box.x1 <= frame.x1
    assert frame.y0 <= box.y0
    assert box.y1 <= frame.y1


def test_a_lonely_name_stands_right_of_its_point():
    axes, (text,), (box,) = written([0.3], [0.4], ["a"])
    dot = axes.transData.transform((0.3, 0.4))
    assert 0 < box.x0 - dot[0] < 20
    assert box.y0 < dot[1] < box.y1
    assert tuple(text.xy) == (0.3, 0.4)


def test_a_crowd_is_named_all_the_same_and_led_back_to_its_points():
    axes, texts, _ = written([0.5] * 12, [0.5] * 12, [f"{i}" for i in range(12)])
    assert len(texts) == 12
    leaders = [text for text in axes.texts if not text.get_text()]
    assert leaders
    assert all(line.arrow_patch is not None and tuple(line.xy) == (0.5, 0.5) for line in leaders)


def test_boxes_overlap_as_matplotlib_says():
    generator = np.random.default_rng(0)
    corners = generator.integers(0, 6, (2, 30, 2)).astype(float)  # whole numbers: many touch
    one, two = (np.hstack([c, c + generator.integers(1, 4, (30, 2))]) for c in corners)
    expected = [[Bbox.from_extents(a).overlaps(Bbox.from_extents(b)) for b in two] for a in one]
    found = labels._overlaps(one, two)
    assert found.tolist() == expected
    assert 0 < found.sum() < found.size
