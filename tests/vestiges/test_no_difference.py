"""The level of the test of "no difference": p-values of pairs from one distribution, redrawn each time, are uniform.

`compare` itself is called, as users call it; only the parts that the p-value does not use (the ratio, what it reaches,
the metrics) are replaced by nothing, because they take a hundred times as long.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest

from vestige.core import Estimate
from vestige.data.readers import read_pair
from vestige.ratios.cross_fit import HeldOut
from vestige.vestiges import compare, no_difference, pairs, two_sets
from vestige.vestiges.two_sets import conclude


@pytest.fixture
def bare(monkeypatch):
    """Nothing but the test is computed."""
    figures = {"held_out": {"accuracy": 0.5, "log_loss": 0.69, "ece": 0.0}, "gap": 0.0}

    def nothing(p, q, **_):
        return HeldOut(torch.zeros(len(p)).double(), torch.zeros(len(q)).double(), None, figures, (), None)

    reached = two_sets.reach(*(torch.randn(50, 1).double() for _ in range(2)), *(torch.zeros(50).double(),) * 2)
    monkeypatch.setattr(two_sets, "held_out", nothing)
    monkeypatch.setattr(two_sets, "reach", lambda *_, **__: reached)
    monkeypatch.setattr(two_sets, "_divergences", lambda *_: dict.fromkeys(("kl", "js"), Estimate(0.0, 0.0, 0.0)))
    monkeypatch.setattr(pairs, "metric_estimates", lambda *_, **__: {})


def normals(d, n_p=60, n_q=60):
    return lambda rng, _: (rng.normal(size=(n_p, d)), rng.normal(size=(n_q, d)), {})


def heavy(rng, _):
    return rng.standard_t(2, (80, 4)), rng.standard_t(2, (50, 4)), {}


def skewed(rng, _):
    return np.exp(rng.normal(size=(40, 2))), np.exp(rng.normal(size=(120, 2))), {}


def counts(rng, _):
    return rng.poisson(0.5, (70, 3)).astype(float), rng.poisson(0.5, (50, 3)).astype(float), {}


def frame(rng, n):
    made = pd.DataFrame(
        {"age": rng.normal(40, 10, n).round(), "work": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])}
    )
    made["member"] = rng.random(n) < 0.5
    made["wage"] = np.exp(rng.normal(size=n)) * (1 + made["member"])
    made.loc[rng.random(n) < 0.1, "age"] = np.nan
    made.loc[rng.random(n) < 0.1, "work"] = None
    return made


def tables(rng, folder):
    """Text, numbers, truth values and missing cells, from two files as `vestige compare` reads them."""
    for name, n in (("a", 60), ("b", 90)):
        frame(rng, n).to_csv(folder / f"{name}.csv", index=False)
    p, q, _ = read_pair(str(folder / "a.csv"), str(folder / "b.csv"))
    return p, q, {"standardise": True}


def images(rng, _):
    """Blurred dots of 17 x 17 pixels: more features than rows, seen as principal components."""
    centre, grid = rng.integers(4, 13, (110, 2)), np.arange(17)
    dots = np.exp(-((grid - centre[:, :1]) ** 2)[:, :, None] / 8 - ((grid - centre[:, 1:]) ** 2)[:, None] / 8)
    x = (dots + 0.1 * rng.random(dots.shape)).reshape(110, -1)
    return x[:40], x[40:], {}


def images_in_part(rng, _):
    """Of one side every row is seen, of the other a fifth: the components must not know the one better."""
    x = rng.normal(size=(240, 260))
    return x[:40], x[40:], {"rows": 40}


def weighted(shift, n=400):
    """q is N(0, 1) and carries the exact weights of p, which is N(shift, 1)."""

    def draw(rng, _):
        q = rng.normal(size=(n, 1))
        return rng.normal(size=(100, 1)) + shift, q, {"q_weights": np.exp(shift * q[:, 0] - shift**2 / 2)}

    return draw


CASES = {
    "one column": normals(1),
    "five columns": normals(5),
    "more columns than rows": normals(40, 30, 30),
    "unequal sizes": normals(3, 200, 25),
    "heavy tails": heavy,
    "skewed": skewed,
    "counts": counts,
    "tables": tables,
    "images": images,
    "images in part": images_in_part,
    "mild weights": weighted(0.4),
    "strong weights": weighted(1.0),
}


def p_values(draw, folder, draws, seed):
    found = []
    for i in range(draws):
        p, q, options = draw(np.random.default_rng([seed, i]), folder)
        found.append(compare(p, q, **options).p_value)
    return np.array(found)


def test_a_hundred_pairs_of_one_distribution(bare, tmp_path):
    found = p_values(heavy, tmp_path, 100, 1)
    assert (found < 0.05).mean() <= 0.12
    assert kstest(found, "uniform").pvalue > 0.001


def test_the_level_is_not_shared_where_the_permutations_see_every_column(bare, monkeypatch):
    """p-values are theirs, not 1/0.95 of them; below the least that they can have the columns speak."""
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 80, 2))
    monkeypatch.setattr(pairs, "p_value", lambda *_, **__: 0.97)
    assert compare(p, q).p_value == 0.97
    assert compare(p, q + 3).p_value == 0.97  # which columns alone cannot lower
    monkeypatch.setattr(pairs, "p_value", lambda *_, **__: no_difference.LEAST)
    assert compare(p, q).p_value == no_difference.LEAST
    assert compare(p, q + 3).p_value < 1e-9
    # of rows that the permutations do not see, columns may find what they cannot: the level is shared
    monkeypatch.setattr(pairs, "p_value", lambda *_, **__: 0.198)
    assert compare(p, q, rows=50).p_value == pytest.approx(0.2)
    assert compare(p, q + 3, rows=50).p_value < 1e-9


@pytest.mark.slow
@pytest.mark.full_training
@pytest.mark.parametrize("case", CASES)
def test_p_values_are_uniform_under_one_distribution(bare, tmp_path, case):
    """500 draws; three standard deviations of a share of 5 % are 2.9 points."""
    found = p_values(CASES[case], tmp_path, 500, 0)
    tested = found[~np.isnan(found)]
    assert len(tested) > (450 if case != "strong weights" else 100)
    assert (tested < 0.05).mean() < 0.05 + 3 * (0.05 * 0.95 / len(tested)) ** 0.5
    assert kstest(tested, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_a_test_that_learns_from_the_labels_would_be_seen(bare, tmp_path, monkeypatch):
    """Components of one side alone tell the sides apart, and this file finds it."""

    def one_sided(p, q, planned, estimator, seed):
        axes = torch.linalg.svd(p.double() - p.double().mean(0), full_matrices=False)[2][:16]
        return p.double() @ axes.mT, q.double() @ axes.mT, "told"

    monkeypatch.setattr(pairs, "projected", one_sided)
    found = p_values(lambda rng, _: (rng.normal(size=(30, 260)), rng.normal(size=(30, 260)), {}), tmp_path, 6, 0)
    assert (found < 0.05).mean() > 0.5


def test_rows_are_drawn_by_weight_and_none_twice():
    weights = torch.rand(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = no_difference.by_weight(weights, 0)
    assert len(drawn) == len(set(drawn.tolist()))
    assert len(drawn) <= 0.5 * float(weights.sum() ** 2 / weights.square().sum())
    weights[7] = 0.02 * float(weights.sum())  # half of one in fifty: 25 rows may be drawn
    assert len(no_difference.by_weight(weights, 0)) == 25
    assert no_difference.by_weight(weights**9, 0) is None


def test_weights_worth_a_handful_of_rows_are_not_tested(bare):
    p, q, options = weighted(2.5)(np.random.default_rng(0), None)
    found = compare(p, q, **options)
    assert math.isnan(found.p_value)
    assert found.conclusion.startswith("Whether fake differs from real was not tested")
    assert conclude(math.nan, found.divergences["js"], found.diagnosis, "a", "b").startswith("Whether b differs from a")
