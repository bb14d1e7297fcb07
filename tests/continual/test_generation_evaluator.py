"""Variety by hand, and an evaluator whose features and verdicts are known."""

import math

import pytest
import torch

from vestige import metrics
from vestige.continual.generation import HELD_OUT, Evaluator, traces, variety
from vestige.data.stream import TestSet
from vestige.features import ClassifierFeatures


def noise(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


class Signs(ClassifierFeatures):
    """Rows are their own features, and of class 1 where the first number is positive."""

    def codes(self, x):
        return x

    def called(self, codes):
        return (codes[:, 0] > 0).long()


def rows(n, scale, seed=0):
    """n rows of class 0 and as many of class 1, far apart, each `scale` wide; and their classes."""
    y = torch.arange(2).repeat_interleave(n)
    x = scale * noise(2 * n, seed)
    x[:, 0] += 100.0 * (2 * y - 1)
    return x, y


def evaluator(*tests):
    return Evaluator.of(Signs(), [TestSet(x, y, tuple(y.unique().tolist())) for x, y in tests])


def test_traces_are_sums_of_variances_class_by_class():
    x, y = torch.tensor([[0.0, 0.0], [2.0, 4.0], [5.0, 5.0], [7.0, 7.0], [9.0, 9.0]]), torch.tensor([3, 3, 1, 0, 0])
    assert traces(x, y) == {0: pytest.approx(2.0 + 2.0), 3: pytest.approx(2.0 + 8.0)}  # one row has no variance


def test_variety_is_the_mean_ratio_of_the_classes_that_both_have():
    assert variety({0: 1.0, 1: 3.0, 2: 7.0}, {0: 2.0, 1: 2.0}) == pytest.approx((0.5 + 1.5) / 2)
    assert math.isnan(variety({0: 1.0}, {1: 1.0}))
    assert math.isnan(variety({0: 1.0}, {0: 0.0}))  # data that never varies is no measure
    assert math.isnan(variety({}, {0: 1.0}))


def test_what_is_said_of_samples_is_what_was_planted():
    found = evaluator(rows(2000, 1.0, seed=1))
    for scale, seed in ((1.0, 2), (0.5, 3), (0.0, 4)):
        x, y = rows(2000, scale, seed)
        said, codes = found.compare(0, x, y)
        assert tuple(said) == HELD_OUT
        assert said["variety"] == pytest.approx(scale**2, rel=0.05)
        assert said["labels"] == 1
        assert torch.equal(codes, x.double())


def test_variety_is_within_classes_and_of_rows_that_are_what_they_are_to_be():
    """Classes lie a hundred deviations apart: neither that distance nor a stray may count."""
    test, labels = rows(500, 1.0, seed=1)
    test[0, 0], test[-1, 0] = 200.0, -200.0  # test rows that the classifier gets wrong
    found = evaluator((test, labels))
    x, y = rows(500, 0.5, seed=2)
    y[:250] = 1  # a quarter of all samples were asked for as the other class
    said, _ = found.compare(0, x, y)
    assert said["labels"] == 0.75
    assert said["variety"] == pytest.approx(0.25, rel=0.15)


def test_each_task_has_its_own_test_rows_and_those_so_far_are_pooled():
    one, other = rows(300, 1.0, seed=1), rows(300, 3.0, seed=2)
    found, (x, y) = evaluator(one, other), rows(300, 3.0, seed=3)
    first, codes = found.compare(0, x, y)
    second, _ = found.compare(1, x, y)
    assert first["variety"] == pytest.approx(9 * second["variety"], rel=0.2)
    assert first["fid"] == pytest.approx(metrics.fid(one[0].double(), x.double()).value)
    assert second["kid"] == pytest.approx(metrics.kid(other[0].double(), x.double()).value)
    assert found.pooled([codes]) == {name: pytest.approx(first[name]) for name in ("fid", "kid")}
    both = torch.cat([one[0], other[0]]).double()
    assert found.pooled([codes, codes])["fid"] == pytest.approx(metrics.fid(both, torch.cat([codes, codes])).value)


def test_where_no_sample_is_what_was_asked_for_there_is_no_variety_to_speak_of():
    x, y = rows(100, 1.0)
    said, _ = evaluator((x, y)).compare(0, x, 1 - y)
    assert said["labels"] == 0
    assert math.isnan(said["variety"])
