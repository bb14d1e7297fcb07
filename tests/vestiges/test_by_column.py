"""The test of each column by itself: against scipy, its level over redrawn pairs, and what it finds."""

import numpy as np
import pytest
import torch
from scipy import stats

from vestige.vestiges.by_column import RANKS, SPREAD, coded, examined, holm, relations


def both(p, q, categories=None):
    return coded(torch.cat([torch.as_tensor(p), torch.as_tensor(q)]).double(), categories), len(p)


def test_holm_is_that_of_the_definition():
    p = np.random.default_rng(0).random(7) ** 3
    order = np.argsort(p)
    slow = {int(j): max(min((7 - k) * p[order[k]], 1.0) for k in range(i + 1)) for i, j in enumerate(order)}
    assert holm(p.tolist()) == pytest.approx([slow[j] for j in range(7)])


def test_the_rank_test_is_that_of_mann_and_whitney():
    rng = np.random.default_rng(1)
    p, q = rng.normal(size=400), rng.normal(0.5, 1, size=300)
    found = examined(*both(p, q))
    reference = stats.mannwhitneyu(q, p, use_continuity=False, method="asymptotic")
    assert found.place == RANKS
    assert found.p_value == pytest.approx(4 * reference.pvalue, rel=1e-6)
    assert found.z > 0


def test_a_share_is_tested_by_the_hypergeometric_distribution():
    p, q = [0] * 40 + [1] * 10, [0] * 20 + [1] * 20
    found = examined(*both(p, q, ("no", "yes")))
    below = stats.hypergeom(90, 30, 50).cdf(10)
    assert found.p_value == pytest.approx(2 * 2 * 2 * below)  # two tails, two codes, half of the level


def test_spread_and_missing_cells_are_seen():
    rng = np.random.default_rng(2)
    p, q = rng.normal(size=1000), 1.5 * rng.normal(size=1000)
    assert examined(*both(p, q)).place == SPREAD
    q = np.where(rng.random(1000) < 0.1, np.nan, p)
    column, n = both(p, q)
    assert column.names[examined(column, n).place] == "missing"


def table(rng, n):
    """Numbers that depend on each other, one of few values, a category, missing cells."""
    x = rng.normal(size=(n, 4))
    x[:, 1] += x[:, 0]
    x[:, 2] = np.round(x[:, 2])
    x[:, 3] = np.where(rng.random(n) < 0.1, np.nan, np.exp(x[:, 3]))
    return x, rng.choice(5, n, p=[0.5, 0.3, 0.1, 0.06, 0.04])


def corrected(rng, n, m):
    (x, a), (y, b) = table(rng, n), table(rng, m)
    columns = [both(x[:, j], y[:, j])[0] for j in range(4)] + [both(a, b, tuple("abcde"))[0]]
    return holm([examined(column, n).p_value for column in columns])


def test_a_column_that_did_not_change_is_named_at_most_as_often_as_the_level_says():
    rng = np.random.default_rng(3)
    named = [min(corrected(rng, 150, 90)) <= 0.05 for _ in range(400)]
    assert 0.002 < np.mean(named) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_a_broken_relation_points_at_its_column():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(4000, 1))
    x = common + rng.normal(size=(4000, 5))
    p, q = x[:2000], x[2000:].copy()
    q[:, 3] = rng.permutation(q[:, 3]) + 5  # its own shift is no relation
    found = relations([both(p[:, j], q[:, j])[0] for j in range(5)], 2000)
    assert max(range(5), key=lambda j: found[j][0]) == 3
    assert all(partner == 3 for j, (_, partner) in enumerate(found) if j != 3)
