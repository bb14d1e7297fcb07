"""Samplers against loops that follow their definitions, and against the probabilities that they state."""

import math

import pytest
import torch
from scipy import stats

from vestige.continual.samplers import (
    SAMPLERS,
    View,
    draw,
    entropy,
    herding,
    k_center,
    mean_of_features,
    plane_distance,
    uniform,
)


def fork(seed=0):
    return torch.Generator().manual_seed(seed)


def view(n=40, f=5, k=3, seed=0):
    g = fork(seed)
    features = torch.randn(n, f, generator=g)
    return View(features, torch.randn(n, generator=g), torch.randn(n, k, generator=g).log_softmax(1))


def farther_from_the_mean(features, chosen, candidate, mean):
    rows = features[[*chosen, candidate]]
    return float((rows.mean(0) - mean).norm())


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_herding_is_the_greedy_loop_over_all_candidates(unit, seed):
    rows = view(seed=seed)
    features = rows.features.double()
    if unit:
        features = features / features.norm(dim=1, keepdim=True)
    mean, chosen = features.mean(0), []
    for _ in range(12):
        left = [i for i in range(len(features)) if i not in chosen]
        chosen.append(min(left, key=lambda i: farther_from_the_mean(features, chosen, i, mean)))
    assert mean_of_features(rows, 12, generator=fork(), unit=unit).tolist() == chosen
    assert SAMPLERS["herding" if unit else "mean_of_features"](rows, 12, generator=fork()).tolist() == chosen


def test_herding_chooses_each_row_once_even_among_doubles():
    same = View(torch.ones(6, 2), torch.ones(6), torch.zeros(6, 1))
    assert sorted(herding(same, 6, generator=fork()).tolist()) == list(range(6))
    assert sorted(k_center(same, 6, generator=fork()).tolist()) == list(range(6))


def test_herding_comes_nearer_to_the_mean_than_chance():
    rows = view(n=300, f=16)
    mean = rows.features.mean(0)
    gaps = [
        float((rows.features[s(rows, 10, generator=fork(3))].mean(0) - mean).norm())
        for s in (mean_of_features, uniform)
    ]
    assert gaps[0] < 0.5 * gaps[1]


@pytest.mark.parametrize("seed", range(4))
def test_k_center_is_the_greedy_loop_from_a_start_that_the_seed_draws(seed):
    rows = view(seed=seed)
    found = k_center(rows, 9, generator=fork(seed)).tolist()
    assert found == k_center(rows, 9, generator=fork(seed)).tolist()
    chosen = found[:1]
    while len(chosen) < 9:
        left = [i for i in range(40) if i not in chosen]
        chosen.append(max(left, key=lambda i: min(float((rows.features[i] - rows.features[j]).norm()) for j in chosen)))
    assert found == chosen
    assert len({k_center(rows, 1, generator=fork(s)).item() for s in range(20)}) > 5


def counted_first_draws(sampler, rows, times=3000):
    g = fork(7)
    firsts = torch.tensor([int(sampler(rows, 2, generator=g)[0]) for _ in range(times)])
    return firsts.bincount(minlength=len(rows.features)).numpy()


def test_draws_by_plane_distance_follow_its_inverse():
    rows = view(n=6)._replace(distance=torch.tensor([0.5, -1.0, 2.0, 4.0, -0.25, 1e-9]))
    q = torch.tensor([2.0, 1.0, 0.5, 0.25, 4.0, 8.0], dtype=torch.float64)  # the last is at the floor

    def sampler(*args, **options):
        return plane_distance(*args, **options, floor=0.125)

    counts = counted_first_draws(sampler, rows)
    assert stats.chisquare(counts, (q / q.sum() * counts.sum()).numpy()).pvalue > 1e-3
    # The test can fail: the same counts are not those of uniform draws.
    assert stats.chisquare(counts).pvalue < 1e-10


def test_draws_by_entropy_follow_it():
    p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.99, 0.01], [1.0, 0.0]])
    rows = View(torch.zeros(4, 1), torch.zeros(4), p.log())
    q = [sum(-a * math.log(a) for a in row if a > 0) for row in p.tolist()]
    counts = counted_first_draws(entropy, rows)
    assert counts[3] == 0  # no entropy, never first
    expected = [w / sum(q) * counts.sum() for w in q]
    assert stats.chisquare(counts[:3], expected[:3]).pvalue > 1e-3


def test_the_second_draw_is_by_weight_among_what_is_left():
    w, g, times = torch.tensor([5.0, 3.0, 2.0], dtype=torch.float64), fork(1), 3000
    pairs = [tuple(draw(w.log(), 2, generator=g).tolist()) for _ in range(times)]
    order = [(a, b) for a in range(3) for b in range(3) if a != b]
    expected = [times * float(w[a] / 10 * w[b] / (10 - w[a])) for a, b in order]
    assert stats.chisquare([pairs.count(o) for o in order], expected).pvalue > 1e-3


def test_uniform_is_uniform():
    assert stats.chisquare(counted_first_draws(uniform, view(n=8))).pvalue > 1e-3


def test_the_top_is_the_top_in_order():
    rows = view(n=30)
    nearest = sorted(range(30), key=lambda i: abs(float(rows.distance[i])))
    assert SAMPLERS["plane_distance_top"](rows, 7, generator=fork()).tolist() == nearest[:7]
    uncertain = torch.distributions.Categorical(logits=rows.log_p).entropy()
    assert (
        SAMPLERS["entropy_top"](rows, 7, generator=fork()).tolist() == uncertain.argsort(descending=True)[:7].tolist()
    )


@pytest.mark.parametrize("name", SAMPLERS)
class TestEverySampler:
    def test_it_chooses_m_different_rows_by_its_seed(self, name):
        for n, m in ((40, 7), (5, 5), (1, 1), (4, 0)):
            found = SAMPLERS[name](view(n=n), m, generator=fork(2))
            assert found.dtype == torch.int64
            assert len(found.unique()) == len(found) == m
            assert torch.equal(found, SAMPLERS[name](view(n=n), m, generator=fork(2)))

    def test_fewer_are_the_first_of_more(self, name):
        """So that a shrinking budget keeps what a smaller one would have chosen."""
        few, many = (SAMPLERS[name](view(), m, generator=fork(2)) for m in (4, 11))
        assert torch.equal(few, many[:4])
