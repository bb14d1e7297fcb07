"""The test of each column by itself: against scipy, its level over redrawn pairs, and what it finds."""

import numpy as np
import pytest
import torch
from scipy import stats

from vestige.vestiges.by_column import (
    RANKS,
    RIDGE,
    SPREAD,
    coded,
    evidence_of,
    examined,
    given_others,
    holm,
    log_p_of,
    relations,
    windows,
)


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


def test_residuals_are_those_of_a_ridge_regression_on_the_other_columns():
    rng = np.random.default_rng(6)
    x, job = table(rng, 300)
    columns = [both(x[:200, j], x[200:, j])[0] for j in range(4)] + [both(job[:200], job[200:], tuple("abcde"))[0]]
    found = given_others(columns)
    ranks = columns[1].scores
    units, own = [], []
    for j in (0, 1, 2, 3):
        u = np.nan_to_num(columns[j].scores)
        missing = [np.isnan(columns[j].scores).astype(float)] if np.isnan(columns[j].scores).any() else []
        units += [u, u**2, *missing]
        own += [j] * (2 + len(missing))
    units += [(job == k).astype(float) for k in range(5)]
    own += [4] * 5
    z = np.stack([(u - u.mean()) / u.std() for u in units], 1)
    rest, mine = z[:, np.array(own) != 1], z[:, np.array(own) == 1]
    slopes = np.linalg.solve(rest.T @ rest / 300 + RIDGE * np.eye(rest.shape[1]), rest.T @ mine / 300)
    by_hand = mine - rest @ slopes
    e = found.values[:, (found.column == 1) & (found.group == 0)].numpy()[:, 0]
    # the ridge of the column's own scores mixes them a little: the span is the same
    fitted = by_hand @ np.linalg.lstsq(by_hand, e, rcond=None)[0]
    np.testing.assert_allclose(fitted, e, atol=1e-9)
    assert np.corrcoef(e, by_hand[:, 0])[0, 1] > 0.99
    assert len(ranks) == len(e)


@pytest.mark.parametrize("change", ["shift", "broken"])
def test_what_a_column_is_given_the_others_points_at_the_one_that_was_changed(change):
    """Four columns of one cause: the margin of a shift is lost in noise, that of a broken relation is untouched."""
    hits = {"margin": 0, "order": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(1400, 1)) + 0.3 * rng.normal(size=(1400, 4))
        p, q = x[:1000], x[1000:].copy()
        q[:, 2] = (
            q[:, 2] + 0.1 if change == "shift" else np.where(rng.random(400) < 0.4, rng.permutation(q[:, 2]), q[:, 2])
        )
        columns = [both(p[:, j], q[:, j])[0] for j in range(4)]
        margin = [examined(column, 1000).log_p for column in columns]
        given = given_others(columns).log_p(4, 1000)
        hits["margin"] += int(np.argmax([evidence_of(one) for one in margin]) == 2)
        hits["order"] += int(np.argmax([evidence_of([*a, *b]) for a, b in zip(margin, given, strict=True)]) == 2)
    assert hits["order"] >= 17
    assert hits["margin"] <= 15


def test_evidence_is_the_logarithm_of_the_mean_of_one_over_p():
    p_values = np.array([0.01, 0.2, 1.0])
    assert evidence_of(np.log(p_values).tolist()) == pytest.approx(np.log((1 / p_values).mean()))
    assert evidence_of([-800.0, -3.0]) == pytest.approx(800 - np.log(2))  # where 1/p is no number any more
    assert evidence_of([]) == 0
    # with more kinds the same smallest p is less
    assert evidence_of([-5.0, 0.0, 0.0, 0.0]) < evidence_of([-5.0, 0.0]) < evidence_of([-5.0])


def test_kinds_of_evidence_are_those_of_the_definition():
    rng = np.random.default_rng(8)
    p, q = rng.normal(size=400), rng.normal(0.5, 1, size=300)
    reference = stats.mannwhitneyu(q, p, use_continuity=False, method="asymptotic")
    found = examined(*both(p, q)).log_p
    assert len(found) == 4  # of codes, ranks, their spread and runs
    assert min(found) == found[1] == pytest.approx(np.log(reference.pvalue), rel=1e-6)
    assert len(examined(*both([0.0, 1.0] * 30, [0.0, 1.0] * 20, ("no", "yes"))).log_p) == 1
    assert examined(*both([0.0] * 30, [0.0] * 20, ("no",))).log_p == ()
    assert log_p_of(3.0) == pytest.approx(np.log(2 * stats.norm.sf(3)))
    assert log_p_of(3.0, 5) == pytest.approx(np.log(10 * stats.norm.sf(3)))
    assert log_p_of(0.1, 5) == 0
    assert log_p_of(60.0) < log_p_of(50.0)  # far beyond what a p-value can be


def test_windows_are_runs_that_hold_a_quarter_of_the_rows():
    rng = np.random.default_rng(3)
    p, q = rng.normal(size=4000), rng.normal(size=1000)
    column, n_p = both(p, q)
    counts = [np.bincount(side, minlength=16) for side in np.split(column.codes, [n_p])]
    found = windows(*counts, (4000, 1000))
    edges = np.quantile(np.concatenate([p, q]), np.arange(9) / 8)
    for i, z in enumerate(found):
        inside = [((x >= edges[i]) & (x < edges[i + 2])).mean() for x in (p, q)]
        share = (4 * inside[0] + inside[1]) / 5
        assert z == pytest.approx(
            (inside[1] - inside[0]) / np.sqrt(share * (1 - share) * (1 / 4000 + 1 / 1000)), abs=0.1
        )
    assert len(found) == 7
    assert windows(np.zeros(3), np.zeros(3), (10, 10)) == []
    assert windows(np.array([5.0]), np.array([7.0]), (5, 7)) == []


def test_neighbours_that_change_together_are_evidence():
    """The odds of a quarter of the range times 1.5: a share of 25 % becomes a third, and no bin stands out."""
    rng = np.random.default_rng(5)
    p, q = rng.random(5000), rng.random(900)
    q = q[rng.random(900) < np.where((q > 0.375) & (q < 0.625), 1.0, 1 / 1.5)]
    column, n_p = both(p, q)
    found = examined(column, n_p)
    counts = [np.bincount(side, minlength=16) for side in np.split(column.codes, [n_p])]
    z = windows(*counts, (5000, len(q)))
    assert evidence_of(found.log_p) > 4
    assert min(found.log_p) == found.log_p[-1]
    assert found.log_p[-1] == pytest.approx(np.log(len(z) * 2 * stats.norm.sf(max(map(abs, z)))))
