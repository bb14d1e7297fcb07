"""The plan of a comparison: what is announced, what is kept to, and what a projection may claim."""

import math
from dataclasses import replace

import pytest
import torch

import vestige as vs
from vestige.core import InputError
from vestige.core.machine import free_memory
from vestige.ratios.weights import diagnose
from vestige.vestiges import Plan
from vestige.vestiges.plan import COMPONENTS, LEAST_ROWS, MANY_FEATURES, PAIR_OPERATIONS, cautious, plan, principal
from vestige.vestiges.two_sets import conclude

SIZES = {"rows": 20_000, "pair_rows": 5000, "owner": "compare"}


def _wide(n, d, shift=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 5, generator=generator)
    hidden[:, 0] += shift
    mixing = torch.randn(5, d, generator=torch.Generator().manual_seed(9))
    return hidden @ mixing + 0.1 * torch.randn(n, d, generator=generator)


def test_few_features_are_seen_as_they_are():
    found = plan(500, 400, MANY_FEATURES, memory=None, **SIZES)
    assert (found.components, found.rows, found.pair_rows) == (None, 20_000, 5000)


def test_many_features_are_projected_and_pairs_of_wide_rows_are_fewer():
    found = plan(10_000, 10_000, 2048, memory=1e10, **SIZES)
    assert found.components == COMPONENTS
    assert found.pair_rows == math.isqrt(int(PAIR_OPERATIONS / 2048))


def test_a_budget_lowers_the_rows_and_refuses_what_cannot_be():
    free = plan(100_000, 100_000, 50, memory=1e12, **SIZES)
    tight = plan(100_000, 100_000, 50, memory=free.bytes / 2, **SIZES)
    assert tight.rows < free.rows
    assert tight.rows >= LEAST_ROWS
    assert tight.bytes <= free.bytes / 2
    with pytest.raises(InputError, match=r"need about .* GB beside the data \(100000 and 100000 rows of 50 features\)"):
        plan(100_000, 100_000, 50, memory=1e6, **SIZES)
    with pytest.raises(InputError, match="'memory' of compare"):
        plan(100, 100, 5, memory=0, **SIZES)


def test_the_default_budget_is_half_of_what_is_free(monkeypatch):
    assert free_memory() > 1e8
    monkeypatch.setattr("vestige.vestiges.plan.free_memory", lambda: 2 * 10**6)
    with pytest.raises(InputError, match=r"its memory is 0.001 GB"):
        plan(100_000, 100_000, 50, memory=None, **SIZES)


@pytest.mark.parametrize(
    ("small", "large"), [((1000, 1000, 5), (9000, 9000, 5)), ((3000, 3000, 300), (3000, 3000, 900))]
)
def test_more_rows_and_more_features_cost_more(small, large):
    a, b = (plan(*sizes, memory=1e12, **SIZES) for sizes in (small, large))
    assert a.seconds < b.seconds
    assert a.bytes < b.bytes


def test_the_plan_is_a_sentence_with_its_numbers():
    said = str(Plan(10_000, 9000, 2048, 20_000, 3125, 64, 36.2, 7e8))
    assert said == (
        "about 36 s of one core and 0.7 GB beside the data: the ratio is fitted on 10000 rows a side, 64 principal "
        "components of 2048 features; KID, MMD and neighbourhoods see 3125 rows a side"
    )
    assert "KID" not in str(Plan(10, 10, 2, 20, 0, None, 1.0, 1.0))  # `weigh` computes no metric


def test_principal_components_are_those_of_the_pooled_standardised_rows():
    p, q = _wide(400, 300, seed=1), _wide(300, 300, shift=1.0, seed=2)
    one, other, share = principal(p, q, 5, rows=1000, seed=0)
    pooled = torch.cat([p, q])
    z = (pooled - pooled.mean(0)) / pooled.std(0, correction=0)
    _, values, axes = torch.linalg.svd(z, full_matrices=False)
    assert share == pytest.approx(float(values[:5].square().sum() / values.square().sum()), rel=1e-3)
    best = z @ axes[:5].mT
    found = torch.cat([one, other])
    assert torch.allclose(found.norm(dim=0), best.norm(dim=0), rtol=1e-3)
    assert torch.allclose(found @ found.mT, best @ best.mT, atol=0.05 * float(best.square().sum(1).max()))


def test_components_know_nothing_of_the_labels():
    """What keeps the permutation test exact: rows that change sides change nothing but their place."""
    p, q = _wide(200, 300, seed=1), _wide(200, 300, seed=2)
    one, other, share = principal(p, q, 3, rows=1000, seed=0)
    again, back, same = principal(q, p, 3, rows=1000, seed=0)
    assert same == pytest.approx(share, rel=1e-4)
    assert torch.allclose(one.norm(dim=1), back.norm(dim=1), rtol=1e-2)
    assert torch.allclose(other.norm(dim=1), again.norm(dim=1), rtol=1e-2)


def test_divergences_of_many_features_are_at_least_and_hold():
    p, q = _wide(1000, 300, seed=3), _wide(1000, 300, shift=0.8, seed=4)
    plans = []
    found = vs.compare(p, q, pair_rows=300, on_plan=plans.append)
    truth = 0.8**2 / 2  # of the hidden direction; noise hides a little of it, so the truth of the rows is below
    kl = found.divergences["kl"]
    assert plans == [found.plan]
    assert kl.verdict == "at least"
    assert 0.45 * truth < kl.low < truth  # 0.498 and 0.51 on two processors
    assert "64 principal components of 300 features" in kl.reason
    assert any("principal components" in warning for warning in found.warnings)
    assert "JS at least" in found.conclusion


def test_an_estimator_that_is_named_sees_every_feature():
    p, q = _wide(200, 300, seed=5), _wide(200, 300, shift=1.0, seed=6)
    found = vs.weigh(p, q, estimator="logistic")
    assert not any("principal components" in warning for warning in found.warnings)
    assert any("principal components" in warning for warning in vs.weigh(p, q).warnings)


def test_good_weights_are_good_where_every_feature_was_seen_alone():
    good = diagnose(torch.zeros(100))
    assert cautious(good, "").verdict == good.verdict == "good"
    assert cautious(good, "The ratio saw 64 components.").verdict == "usable with care"
    poor = replace(good, verdict="unreliable")
    assert cautious(poor, "The ratio saw 64 components.") == poor


def test_weights_of_a_projection_are_never_good():
    """Two sets that differ in a direction of little variance, which no component shows."""
    p, q = _wide(400, 300, seed=8), _wide(400, 300, seed=9)
    p[:, :100] += 0.02
    found = vs.weigh(p, q)
    assert found.diagnosis.verdict == found.final.verdict == "usable with care"
    assert vs.compare(p, q, pair_rows=100).diagnosis.verdict == "usable with care"


def test_the_sentence_of_no_difference_promises_no_bound_that_is_not_there():
    p = _wide(300, 300, seed=7)
    found = vs.compare(p[:150], p[150:], pair_rows=100)
    assert "at most" not in found.conclusion
    assert "No difference" in conclude(0.5, found.divergences["js"], found.diagnosis, "a", "b")
