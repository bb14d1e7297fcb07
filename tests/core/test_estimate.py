"""One type of number, written in one way."""

import doctest
import math

import numpy as np
import pytest

from vestige.core import estimate
from vestige.core.estimate import Estimate, figure, rendered


def test_the_examples_of_the_docstring_run():
    assert doctest.testmod(estimate).failed == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value": 0.25}, "0.25"),
        ({"value": 0.25, "low": 0.2, "high": 0.3}, "0.25 [0.2, 0.3]"),
        ({"value": 0.25, "low": 0.2, "high": math.inf}, "0.25 [0.2, inf]"),
        (
            {"value": 2.0, "low": 1.5, "high": 2.5, "verdict": "at least", "reason": "few rows"},
            "at least 1.5 (few rows)",
        ),
        (
            {"value": np.array([1.0, 2.0]), "low": np.array([0.0, 1.0]), "high": np.array([2.0, 3.0])},
            "(1, 2) [(0, 1), (2, 3)]",
        ),
    ],
)
def test_every_verdict_has_its_words(fields, words):
    assert rendered(Estimate(**fields)) == words


def test_a_refusal_has_no_number_and_says_why():
    e = Estimate.refused("The rows do not overlap.", name="kl", n=3)
    assert math.isnan(e.value)
    assert not e.known
    assert str(e) == "kl refused: The rows do not overlap."


def test_it_is_a_float_and_can_be_changed_and_shown():
    e = Estimate(0.5, 0.4, 0.6, name="js")
    assert float(e) == 0.5
    assert e.but(value=0.6).value == 0.6
    assert e.value == 0.5
    assert Estimate(0.5, name="<b>")._repr_html_() == "<span class='estimate'>&lt;b&gt; 0.5</span>"


def test_significant_digits():
    assert figure(0.123456) == "0.1235"
    assert figure(123456.0, 2) == "1.2e+05"


def test_the_normal_interval_and_a_number_that_is_withdrawn():
    e = Estimate.normal(2.0, 0.5, 0.9, name="kl", n=7)
    assert (e.low, e.high) == pytest.approx((2 - 0.5 * 1.6448536, 2 + 0.5 * 1.6448536))
    assert e.withdrawn("No.") == Estimate.refused("No.", name="kl", n=7, level=0.9)


def test_a_spread_has_no_ends_and_can_take_the_place_of_an_interval():
    e = Estimate.spread(12.5, 0.6321, name="value")
    assert (e.verdict, e.known, e.std_error) == ("spread", True, 0.6321)
    assert math.isnan(e.low)
    assert math.isnan(e.high)
    assert str(e) == "value 12.5, spread 0.63"
    assert str(e.but(reason="few rows")) == "value 12.5, spread 0.63 (few rows)"
    assert str(Estimate.spread(12.5, math.nan)) == "12.5"
    left = Estimate(2.0, 1.0, 3.0, std_error=0.5, details={"k": 1}).without_interval("estimates disagree")
    assert str(left) == "2, spread 0.5 (estimates disagree)"
    assert left.details == {"k": 1, "withdrawn": (1.0, 3.0)}
    assert math.isnan(left.low)
    assert math.isnan(left.high)
