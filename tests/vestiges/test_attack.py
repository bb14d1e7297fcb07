"""Attacks against closed forms, brute force, and vestiges that hold nothing of either side."""

import copy
import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import mannwhitneyu

from vestige import densities
from vestige.core import InputError
from vestige.features.fixed import PCA
from vestige.vestiges import attack, keep
from vestige.vestiges.attack import auc, by_density, by_moments, by_residual, last_row, measure, together


def normal(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def wide():
    """A vestige of 100 rows in 64 dimensions, its rows, fresh ones and the attacker's."""
    rows = normal(700, 64, 0)
    return keep(rows[:100], density="mixture"), rows[:100], rows[100:300], rows[300:]


def test_the_auc_is_that_of_mann_whitney_and_its_error_that_of_delong_by_brute_force():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.7, 1, 60).round(1), rng.normal(0, 1, 45).round(1)  # with ties
    found = auc(torch.tensor(x), torch.tensor(y))
    assert found.value == pytest.approx(mannwhitneyu(x, y).statistic / (60 * 45))
    better = (x[:, None] > y) + (x[:, None] == y) / 2
    error = math.sqrt(better.mean(1).var(ddof=1) / 60 + better.mean(0).var(ddof=1) / 45)
    assert found.std_error == pytest.approx(error)
    assert auc(torch.tensor(y), torch.tensor(x)).value == pytest.approx(1 - found.value)


def test_the_interval_of_the_auc_holds_at_its_level():
    rng, truth, held = np.random.default_rng(1), float(ndtr(0.5 / math.sqrt(2))), 0
    for _ in range(400):
        found = auc(torch.tensor(rng.normal(0.5, 1, 80)), torch.tensor(rng.normal(0, 1, 120)))
        held += found.low <= truth <= found.high
    assert 0.92 < held / 400 < 0.98
    certain = auc(torch.arange(10.0) + 20, torch.arange(10.0))
    assert certain.value == 1
    assert 0.85 < certain.low < 0.95


def test_references_together_have_the_wider_interval():
    alike = [auc(normal(50, 1, i)[:, 0], normal(50, 1, 50 + i)[:, 0]) for i in range(4)]
    found = together(alike)
    assert found.value == pytest.approx(np.mean([one.value for one in alike]))
    within = math.sqrt(sum(one.std_error**2 for one in alike)) / 4
    between = np.std([one.value for one in alike], ddof=1) / 2
    assert found.std_error == pytest.approx(max(within, between))
    apart = together([alike[0].but(value=0.3), alike[0].but(value=0.5), alike[0].but(value=0.9)])
    assert apart.std_error == pytest.approx(np.std([0.3, 0.5, 0.9], ddof=1) / math.sqrt(3))


def test_moments_of_few_rows_give_members_away_and_a_swap_turns_the_auc_around(wide):
    kept, members, fresh, reference = wide
    scores = by_moments(kept, reference)
    found = auc(scores(members), scores(fresh))
    assert found.value > 0.95
    assert auc(scores(fresh), scores(members)).value == pytest.approx(1 - found.value)


@pytest.fixture(scope="module")
def narrow():
    rows = normal(4000, 4, 1)
    return keep(rows[:60], density="mixture"), rows[:60], rows[60:1060], rows[1060:]


def test_the_mean_alone_reaches_the_auc_of_theory(narrow):
    """Of d independent means of n rows: the score is N(0, d/n) for others, and d/n higher for members."""
    kept, members, fresh, reference = narrow
    known = attack.Functions(kept, reference)
    gap = torch.where(known.moving < 4, known.gap, 0.0)  # the features' means come first
    torch.testing.assert_close(
        gap[:4] * known.scale[:4], members.mean(0) - reference.mean(0), rtol=0, atol=0.01 / 60**0.5
    )
    a, b = (torch.cat([block @ gap for block in known.of(x)]) for x in (members, fresh))
    size = float(gap.square().sum())
    assert float(a.mean() - b.mean()) == pytest.approx(4 / 60, abs=4 * math.sqrt(size / 60) / 3)
    assert float(b.var()) == pytest.approx(size, rel=0.2)
    second = known.mean + known.gap * known.scale  # then the second moments about the reference's mean
    i, j = torch.triu_indices(4, 4)
    z = members - reference.mean(0)
    rounding = {"rtol": 0, "atol": 0.05 / 60**0.5}  # a hundredth of standard errors of up to five
    torch.testing.assert_close(second[4:14], (z[:, i] * z[:, j]).mean(0), **rounding)
    f = kept.test.dictionary.evaluate(members).mT
    torch.testing.assert_close(second[14:], torch.cat([f, f.square()], 1).mean(0)[known.moving[14:] - 14], **rounding)


@pytest.mark.parametrize("rows", [50, 2000])
def test_weights_are_those_of_the_regularised_covariance_either_way(narrow, rows, monkeypatch):
    monkeypatch.setattr(attack, "COVARIANCE_ROWS", rows)
    kept, _, _, reference = narrow
    known = attack.Functions(kept, reference[:rows])
    z = torch.cat(known.of(reference[:rows]))
    m, k = z.shape
    assert (k > m) == (rows == 50)
    plain = torch.linalg.inv(z.mT @ z / m + k / m * torch.eye(k, dtype=z.dtype)) @ known.gap
    torch.testing.assert_close(known.weights(0), plain, rtol=1e-6, atol=1e-9)


def test_no_attack_finds_rows_that_neither_vestige_has(wide):
    kept, _, _, reference = wide
    others = normal(400, 64, 99)
    for found in measure(kept, others[:200], others[200:], reference).values():
        if found.known:
            assert found.value == pytest.approx(0.5, abs=4 * found.std_error)


@pytest.mark.slow
def test_a_density_that_learns_by_heart_is_found_by_its_likelihood_ratio(wide):
    kept, members, fresh, reference = wide
    scores = by_density(kept, reference)
    assert auc(scores(members), scores(fresh)).value > 0.65
    heart = densities.build("mixture", components=(1,), pseudo_rows=0.0).fit(members)
    part = replace(kept.reference.parts[0], density=heart)
    worse = by_density(replace(kept, reference=replace(kept.reference, parts=(part,))), reference)
    assert auc(worse(members), worse(fresh)).value > 0.95


def test_the_residual_of_a_map_of_few_rows_gives_members_away():
    rows = normal(800, 400, 3)
    kept = keep(rows[:60], features=PCA(dims=30).fit(rows[:60]), density="mixture")
    scores = by_residual(kept, rows[400:])
    assert auc(scores(rows[:60]), scores(rows[60:400])).value > 0.95
    # what lies across the directions, by the reconstruction
    map_ = kept.frame.map
    x = rows[:5]
    back = map_.mean_ + map_.codes(x).double() @ map_.directions_
    torch.testing.assert_close(attack._left_by_map(map_)(x), (x - back).square().sum(1), rtol=1e-6, atol=1e-6)


def test_the_residual_needs_something_that_was_fitted(wide):
    kept, members, fresh, reference = wide
    bare = replace(kept, frame=replace(kept.frame, axes=None))
    found = measure(bare, members, fresh, reference)["map"]
    assert not found.known
    assert "fitted to the rows" in found.reason


def test_who_knows_all_other_rows_finds_the_last_until_noise_hides_it(narrow):
    kept, members, fresh, _ = narrow
    found = last_row(kept, members, fresh)
    assert found.value > 0.99
    assert found.low > 0.9
    sums = kept.sketch.test.moments
    noisy = replace(sums, total=sums.total + 50 * normal(1, len(sums.total), 5)[0], squares=sums.squares * 0 + 1)
    moments = kept.sketch.moments
    far = [replace(one, mean=one.mean + normal(1, len(one.mean), 6)[0]) for one in moments.summaries_]
    blurred = copy.copy(moments)
    blurred.summaries_ = far
    sketch = replace(kept.sketch, test=replace(kept.sketch.test, moments=noisy), moments=blurred)
    assert last_row(replace(kept, sketch=sketch), members, fresh).value < 0.75


def test_a_run_is_a_table_by_size_and_attack_and_needs_rows_enough():
    rows = normal(600, 2, 8)
    made = []
    make = functools.partial(keep, density="mixture")
    found = attack.run(rows, sizes=[60], references=2, make=lambda x, seed: made.append(len(x)) or make(x, seed=seed))
    assert made == [60, 60]
    assert list(found.attack) == ["density", "map", "moments", "last row"]
    assert ((found.low <= found.auc) | found.auc.isna()).all()
    with pytest.raises(InputError, match="at least 720 rows"):
        attack.run(rows, sizes=[240])
