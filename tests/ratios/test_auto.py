"""Each rule of the choice, and that the reason survives the fit."""

import pytest
import torch

from vestige.core.errors import InputError
from vestige.ratios.auto import FAR_LOSS, auto, look
from vestige.ratios.bridge import Bridge
from vestige.ratios.logistic import Logistic
from vestige.ratios.stack.stack import Stack


def gaussian(n, d, mean=0.0, scale=1.0, seed=0):
    return mean + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "d", "mean", "kind", "word"),
    [
        (1000, 5, 0.5, Stack, "stack"),
        (60, 20, 0.2, Stack, "stack"),
        (60, 2, 0.5, Logistic, "quadratic"),
        (500, 2, 8.0, Bridge, "waymarks"),
        (50, 1500, 0.1, Logistic, "linear"),
    ],
)
def test_each_rule(n, d, mean, kind, word):
    chosen = auto(gaussian(n, d), gaussian(n, d, mean, seed=1))
    assert isinstance(chosen, kind)
    assert chosen.width_ is None
    assert word in chosen.reason_


def test_the_reason_is_in_the_report_after_the_fit():
    p, q = gaussian(60, 2), gaussian(60, 2, 0.5, seed=1)
    chosen = auto(p, q)
    why = chosen.report_["why"]
    assert chosen.fit(p, q).report_["why"] == why == chosen.reason_


def test_the_look_is_held_out_and_near_the_true_loss():
    same = look(gaussian(100, 100), gaussian(100, 100, seed=1), seed=0)
    assert same > 0.69  # log 2 or worse: what was memorised of 100 rows counts for nothing
    far = look(gaussian(1000, 2), gaussian(1000, 2, 8.0, seed=1), seed=0)
    assert far < FAR_LOSS


def test_unequal_widths_are_refused():
    with pytest.raises(InputError, match="as wide as"):
        auto(gaussian(10, 2), gaussian(10, 3))
