"""The first part: the truth is the same estimator with the data kept, and both are the same where a digit is new."""

import math
import warnings

import pytest
import torch

from vestige import data
from vestige.chains import Chain
from vestige.cli.demo.drift import DIVERGENCE, DigitDrift, DigitGenerator, by_digit
from vestige.core import rng
from vestige.features import PCA


@pytest.fixture
def found(demo_run):
    return demo_run.found.drift


def test_nothing_is_said_of_a_digit_before_it_came(found):
    for matrix in (found.monitor, found.low, found.high, found.truth):
        assert matrix.shape == (2, 2)
        assert math.isnan(matrix[0, 1])


def test_the_monitor_says_what_the_truth_says_while_the_data_is_there(found):
    assert float(found.monitor[0, 0]) == float(found.truth[0, 0])  # the same call
    assert found.low[1, 1] <= found.truth[1, 1] <= found.high[1, 1]  # other folds
    assert float(found.monitor[1, 0]) != float(found.truth[1, 0])


@pytest.mark.slow
def test_the_truth_is_a_chain_of_one_step_with_the_data(demo_run):
    found, config = demo_run.found.drift, demo_run.found.config.drift
    kept = by_digit(data.load("digits"), 2)
    generator = DigitGenerator(config.generator, n_pixels=64, n_digits=2, seed=3)
    for x in kept:
        generator.learn(x)
    seen = PCA(dims=3).fit(kept[0])
    model = {j: seen.codes(generator.sample(200, j, seed=rng.child_seed(3, "monitor", 1))).double() for j in (0, 1)}
    chain = Chain(names=(DIVERGENCE,), estimator="quadratic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = chain.step({j: seen.codes(kept[j]).double() for j in (0, 1)}, model, seed=3)
    assert [own.estimates[DIVERGENCE].value for own in report.tasks] == pytest.approx(found.truth[1].tolist())


def test_pictures_are_real_then_fresh_then_last(found):
    assert found.pictures.shape == (3, 2, 64)
    assert torch.equal(found.pictures[0, 1], by_digit(data.load("digits"), 2)[1][0])
    assert torch.equal(found.pictures[1, 1], found.pictures[2, 1])  # the newest digit has not changed since
    assert not torch.equal(found.pictures[1, 0], found.pictures[2, 0])


def test_gaps_and_rises_by_hand():
    nan = math.nan
    monitor = torch.tensor([[0.1, nan, nan], [0.2, 0.3, nan], [0.4, nan, 0.0]], dtype=torch.float64)
    truth = torch.tensor([[0.1, nan, nan], [0.25, 0.3, nan], [0.5, 0.6, 0.0]], dtype=torch.float64)
    judged = DigitDrift(monitor, monitor, monitor, truth, {}, torch.zeros(3, 3, 4))
    assert judged.gone.tolist() == pytest.approx([0.05, 0.1])  # the refused cell has no gap
    assert judged.risen == pytest.approx((0.3, 0.35))  # monitor: digit 0 alone; truth: mean of 0.4 and 0.3
