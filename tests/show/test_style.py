"""The look of every picture, and that it stays inside the pictures."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from vestige.core.errors import InputError
from vestige.show import curves, encode, style


def test_settings_leave_nothing_behind_even_after_an_error():
    before = dict(matplotlib.rcParams)
    with style.settings():
        assert matplotlib.rcParams["svg.hashsalt"] == "vestige"
        assert matplotlib.rcParams["text.parse_math"] is False
    with pytest.raises(RuntimeError), style.settings():
        raise RuntimeError
    encode(curves({"a": [1.0, 2.0]}, [1, 2], title="t", x_label="x", y_label="y"), "png")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
def test_no_picture_loads_pyplot():
    code = "import sys; from vestige.show import Page, bars, plane; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_session_with_other_settings_gets_the_same_picture():
    def draw():
        return encode(curves({"a": [1.0, 2.0]}, [1, 2], title="t", x_label="x", y_label="y"), "svg")

    plain = draw()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        assert draw() == plain


def luma(colour):
    return float(np.dot(to_rgb(colour), [0.299, 0.587, 0.114]))


def test_series_differ_in_more_than_colour():
    looks = [style.look(i) for i in range(60)]
    assert len({str(look) for look in looks}) == 60
    assert len({(look["marker"], str(look["linestyle"])) for look in looks[:45]}) == 45  # in grey


def test_every_colour_can_be_seen_on_white():
    assert all(luma(colour) < 0.75 for colour in style.PALETTE)


@pytest.mark.parametrize(("value", "got"), [([1.0, np.inf], "1 infinite values"), ([[1.0, 2.0], [3.0, 4.0]], "shape")])
def test_gaps_are_nan_and_nothing_else(value, got):
    with pytest.raises(InputError, match=f"The 'v' of curves must be .* Got {got}"):
        style.with_gaps(value, "v", "curves")


def test_nan_is_a_gap():
    np.testing.assert_array_equal(style.with_gaps([1, np.nan], "v", "curves"), [1, np.nan])
