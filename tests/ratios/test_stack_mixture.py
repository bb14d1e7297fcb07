"""Mixtures against scikit-learn and closed forms; what is kept of a component; pairs and their state."""

import math

import torch
from sklearn.mixture import GaussianMixture
from torch.distributions import Normal

from vestige.ratios.stack.mixture import Pairs, fit_mixture
from vestige.ratios.stack.stack import Stack
from vestige.store.codec import decode, encode


def fast(**options):
    """The preset whose models are those of the first edition: quick, and what this file is about."""
    return Stack(**{**Stack.presets["fast"], **options})


def draw(n, d, seed, mean=0.0, scale=1.0):
    return mean + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def modes(n, d, seed, scale=1.0, shift=0.0):
    """Three modes a long way out."""
    centres = 6 * torch.eye(3, d, dtype=torch.float64)
    which = torch.randint(3, (n,), generator=torch.Generator().manual_seed(seed + 50))
    return centres[which] + draw(n, d, seed, shift, scale)


def test_one_component_is_the_gaussian_of_the_weighted_moments():
    z, rows = draw(400, 3, 0, mean=0.5, scale=0.7), torch.rand(400, dtype=torch.float64).add(0.5)
    found = fit_mixture(z, rows, torch.zeros(1, 3, dtype=torch.float64), iterations=1, prior=0.0)
    mean = (rows[:, None] * z).sum(0) / rows.sum()
    variance = (rows[:, None] * (z - mean).square()).sum(0) / rows.sum()
    torch.testing.assert_close(found.log_prob(z), Normal(mean, variance.sqrt()).log_prob(z).sum(1))


def test_em_is_that_of_scikit_learn():
    z = modes(900, 4, 1, scale=0.8)
    start = 6 * torch.eye(3, 4, dtype=torch.float64) + 0.5
    ours = fit_mixture(z, torch.ones(900, dtype=torch.float64), start, iterations=60, prior=0.0)
    theirs = GaussianMixture(3, covariance_type="diag", means_init=start.numpy(), reg_covar=0.0, max_iter=60, tol=1e-9)
    theirs.fit(z.numpy())
    torch.testing.assert_close(ours.mean, torch.from_numpy(theirs.means_), atol=1e-3, rtol=0)
    torch.testing.assert_close(ours.variance, torch.from_numpy(theirs.covariances_), atol=1e-3, rtol=0)
    scored = torch.from_numpy(theirs.score_samples(z.numpy()))
    torch.testing.assert_close(ours.log_prob(z), scored, atol=1e-2, rtol=0)  # shares have a pseudo-row each


def test_variances_are_drawn_to_the_pooled_one_by_pseudo_rows():
    z = torch.cat([draw(60, 2, 7, scale=0.2), draw(100, 2, 8, mean=9.0, scale=2.0), draw(5, 2, 9, mean=-9.0)])
    start = torch.tensor([[0.0, 0.0], [9.0, 9.0], [-9.0, -9.0]], dtype=torch.float64)
    for prior in (0.0, 10.0, 1e9):
        found = fit_mixture(z, torch.ones(165, dtype=torch.float64), start, iterations=1, prior=prior)
        parts = [(z[:60], z[:60].mean(0)), (z[60:160], z[60:160].mean(0)), (z[160:], start[2])]  # 5 rows are too few
        around = [(x - mean).square().sum(0) for x, mean in parts]
        pooled = sum(around) / 165
        expected = [(around[k] + prior * pooled) / (len(parts[k][0]) + prior) for k in (0, 1)]
        torch.testing.assert_close(found.variance, torch.stack([*expected, pooled]))


def test_no_component_closes_in_on_few_rows(monkeypatch):
    z = draw(500, 2, 2)
    z[0] = torch.tensor([40.0, 40.0], dtype=torch.float64)  # a row that would have a component to itself
    start = torch.tensor([[0.0, 0.0], [39.0, 39.0]], dtype=torch.float64)
    found = fit_mixture(z, torch.ones(500, dtype=torch.float64), start, iterations=10)
    assert torch.equal(found.mean[1], start[1])
    monkeypatch.setattr("vestige.ratios.stack.mixture.LEAST", 0.5)
    near = fit_mixture(z, torch.ones(500, dtype=torch.float64), start, iterations=10)
    torch.testing.assert_close(near.mean[1], z[0])  # which is what LEAST is for


def test_pairs_find_the_log_ratio_of_two_mixtures_and_survive_storage():
    p, q = modes(2000, 5, 3), modes(2000, 5, 4, scale=0.8, shift=0.3)
    z, trained = torch.cat([p, q]), torch.ones(2, 4000, dtype=torch.float64)
    trained[0, ::2] = trained[1, 1::2] = 0
    pairs = Pairs.fit(z, 2000, trained, 6 * torch.eye(3, 5, dtype=torch.float64), None)
    one, many = pairs.log_ratio(p)
    assert one.shape == many.shape == (2, 2000)
    truth = 5 * (math.log(0.8) + (1 + 0.3**2) / (2 * 0.8**2) - 0.5)  # modes do not overlap
    assert abs(float(many.mean()) - truth) < 0.1 < abs(float(one.mean()) - truth)
    back = decode(Pairs, *encode(pairs))
    assert torch.equal(back.log_ratio(p)[1], many)


def test_they_join_the_stack_in_many_dimensions_alone_and_help_there():
    p, q = draw(800, 40, 5), draw(800, 40, 6, mean=0.1, scale=0.85)
    stack = fast(min_steps=50, epochs=1, gap_warning=math.inf).fit(p, q)
    losses = stack.report_["held_out_loss_of_models"]
    assert len(losses) == 6
    assert min(losses[4:]) < min(losses[:4])  # a Gaussian a side is the truth, and needs few rows
    private = fast(min_steps=50, epochs=1, gap_warning=math.inf, standardise="model").fit(p, q)
    assert private.pairs_ is None
    assert stack.pairs_ is not None
    flat = fast(min_steps=20, epochs=1).fit(p[:, :2], q[:, :2])
    assert len(flat.report_["held_out_loss_of_models"]) == 4
    warm = fast(min_steps=50, epochs=1, gap_warning=math.inf)
    warm.fit_from(stack, p, q)
    assert len(warm.report_["coefficients"]) == 6
