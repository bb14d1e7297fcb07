"""Estimates under each other: an interval has ends, a spread has none, what was refused is said."""

import pytest

from vestige.core import Estimate, InputError
from vestige.show import encode, estimates

GIVEN = {
    "sure": Estimate(3.0, 2.0, 5.0),
    "loose": Estimate.spread(4.0, 0.5),
    "bare": Estimate(1.0),
    "none": Estimate.refused("too few"),
}


def test_an_interval_a_spread_and_neither():
    axes = estimates(GIVEN, title="values", x_label="return", reference={"truth": 3.5}).axes[0]
    (bar,) = axes.containers
    (segment,) = bar.lines[2][0].get_segments()
    assert segment.tolist() == [[2.0, 3.0], [5.0, 3.0]]  # from low to high, in the first row
    assert len(bar.lines[1]) == 2  # ends
    (spread,) = (line for line in axes.lines if line.get_linestyle() == ":")
    assert spread.get_xdata() == pytest.approx([3.5, 4.5])
    assert list(spread.get_ydata()) == [2, 2]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(GIVEN)
    assert [text.get_text() for text in axes.texts] == ["refused"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "interval (95 %)",
        "spread, no interval",
        "truth",
    ]


def test_it_is_drawn_the_same_twice_and_nothing_is_refused():
    pictures = [encode(estimates(GIVEN, title="values", x_label="return"), "svg") for _ in range(2)]
    assert pictures[0] == pictures[1]
    with pytest.raises(InputError, match="'values' of estimates must be at least one name"):
        estimates({}, title="values", x_label="return")
