"""Shares of a ratio's gain: of a column that tells all, of columns that tell nothing, of two that tell it together."""

import math

import pytest
import torch

from vestige.ratios import Logistic, Stack
from vestige.ratios.cross_fit import held_out
from vestige.ratios.importance import shares_of_gain

FAST = Stack(**Stack.presets["fast"])


def normal(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shares(p, q, groups, estimator=FAST, **weights):
    return shares_of_gain(held_out(p, q, estimator=estimator, **weights), p, q, groups, **weights, seed=0)


@pytest.mark.parametrize("estimator", [FAST, Logistic(kind="quadratic")], ids=["stack", "folds"])
def test_the_column_that_tells_all_has_all_of_it(estimator):
    p, q = normal(600, 3, 0), normal(600, 3, 1)
    q[:, 1] += 1
    found = shares(p, q, [[0], [1], [2]], estimator)
    assert found[1] > 0.95
    assert max(found[0], found[2]) < 0.1
    assert shares(p, q, [[0, 1, 2]], estimator)[0] > 0.95


def test_what_two_columns_tell_only_together_is_counted_for_both():
    p, q = normal(800, 3, 2), normal(800, 3, 3)
    q[:, 1] = 0.8 * q[:, 0] + 0.6 * q[:, 1]  # the same margins
    found = shares(p, q, [[0], [1], [2]])
    assert min(found[:2]) > 0.8 > 0.1 > found[2]


def test_where_nothing_was_found_there_is_nothing_to_share_out():
    p = normal(200, 2, 4)
    assert all(map(math.isnan, shares(p, p.clone(), [[0], [1]], Logistic(kind="linear"))))


def test_rows_of_no_weight_say_nothing():
    p, q = normal(600, 2, 6), normal(600, 2, 7)
    q[:, 0] += 1
    far = torch.cat([p, p + 50])
    weights = torch.cat([torch.ones(600), torch.zeros(600)]).double() / 600
    found = shares(far, q, [[0], [1]], p_weights=weights)
    assert found[0] > 0.9 > 0.1 > found[1]
