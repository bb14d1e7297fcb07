import math

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, VestigeWarning
from vestige.ratios.kernels import gaussian
from vestige.ratios.kliep import KLIEP


def normal(n, mean, scale, name, d=2):
    noise = torch.randn(n, d, generator=rng.fork(0, name), dtype=torch.float64)
    return torch.tensor(mean, dtype=torch.float64) + scale * noise


def log_density(x, mean, scale):
    z = (x - torch.tensor(mean, dtype=torch.float64)) / scale
    return -z.square().sum(1) / 2 - x.shape[1] * math.log(scale)


P, Q = ([0.0, 0.0], 1.0), ([0.5, 0.5], 1.2)


def fitted(estimator, n=1000, **options):
    return estimator.fit(normal(n, *P, "p"), normal(n, *Q, "q"), **options)


def test_log_ratio_of_two_gaussians():
    fit = fitted(KLIEP(), 2000)
    x = torch.cat([normal(2000, *P, "test p"), normal(2000, *Q, "test q")])
    assert float((fit.log_ratio(x) - log_density(x, *P) + log_density(x, *Q)).square().mean()) < 0.05
    assert fit.report_["converged"]
    assert fit.report_["gap"] <= 1e-6


def test_the_constraint_holds_under_weights_of_q():
    weights = torch.rand(1000, generator=rng.fork(0, "w"), dtype=torch.float64)
    fit = fitted(KLIEP(), q_weights=weights)
    r = fit.log_ratio(normal(1000, *Q, "q")).exp()
    assert float((weights * r).sum() / weights.sum()) == pytest.approx(1, abs=1e-9)


def test_the_gap_is_the_certificate_of_the_stated_problem():
    """Rebuild A from what the fit stores, over every row of q as a centre that it drew: no column beats the gap."""
    p, q = normal(500, *P, "p"), normal(400, *Q, "q")
    fit = KLIEP(max_centres=400, bandwidths=(0.4,)).fit(p, q)
    sigma, kernels = fit.report_["sigma"], fit.kernels_
    z_p, z_q = kernels.standardise(p), kernels.standardise(q)
    columns = gaussian(torch.cdist(z_p, z_q).square(), sigma) / gaussian(torch.cdist(z_q, z_q).square(), sigma).mean(0)
    slopes = (columns / fit.log_ratio(p).exp()[:, None]).mean(0)
    assert float(slopes.max()) - 1 == pytest.approx(fit.report_["gap"], abs=1e-8)
    assert fit.report_["objective"] == pytest.approx(float(fit.log_ratio(p).mean()), abs=1e-10)
    assert fit.report_["held_out_objective"] is None


def test_the_bandwidth_is_the_one_of_the_best_held_out_likelihood():
    """Cross-validation by hand: refit on four fifths with the class itself, score on the rest."""
    p, q = normal(300, *P, "p"), normal(300, *Q, "q")
    order = torch.randperm(300, generator=rng.fork(0, "folds"))
    fit = KLIEP(bandwidths=(0.2, 0.8)).fit(p, q)
    scores = {}
    for multiple in (0.2, 0.8):
        total = 0.0
        for k in range(5):
            test = order[60 * k : 60 * (k + 1)]
            weights = torch.ones(300).index_fill(0, test, 0.0)
            # The median distance moves with the fold, so the multiple is scaled to keep sigma.
            probe = KLIEP(bandwidths=(1.0,)).fit(p, q, p_weights=weights).report_["sigma"]
            sigma = multiple * fit.report_["median_distance"]
            part = KLIEP(bandwidths=(sigma / probe,)).fit(p, q, p_weights=weights)
            total += float(part.log_ratio(p[test]).sum()) / 300
        scores[multiple] = total
    best = max(scores, key=scores.get)
    assert fit.report_["sigma"] == pytest.approx(best * fit.report_["median_distance"])
    assert fit.report_["held_out_objective"] == pytest.approx(scores[best], abs=1e-5)


def test_weights_of_p_are_repetitions():
    p, q = normal(200, *P, "p"), normal(200, *Q, "q")
    counts = torch.arange(200) % 4
    one = KLIEP(bandwidths=(0.7,)).fit(p, q, p_weights=counts)
    two = KLIEP(bandwidths=(0.7,)).fit(p.repeat_interleave(counts, 0), q)
    sigma = two.report_["sigma"] / one.report_["sigma"]
    two = KLIEP(bandwidths=(0.7 / sigma,)).fit(p.repeat_interleave(counts, 0), q)
    torch.testing.assert_close(one.log_ratio(q), two.log_ratio(q), atol=1e-4, rtol=1e-3)


def test_log_ratio_is_finite_far_away_and_follows_the_nearest_kernel():
    fit = fitted(KLIEP())
    far = fit.log_ratio(torch.tensor([[1e3, 0.0], [2e3, 0.0]], dtype=torch.float64))
    assert bool(torch.isfinite(far).all())
    assert float(far[1]) < float(far[0]) < -1e4  # exp of it is zero in double precision


def test_rounds_that_run_out_are_said():
    with pytest.warns(VestigeWarning, match="not at the optimum: after 2 rounds the gap is"):
        fit = fitted(KLIEP(bandwidths=(0.25,), max_rounds=2), 300)
    assert not fit.report_["converged"]
    assert fit.report_["gap"] > 1e-6
    assert len(fit.report_["warnings"]) == 1


def test_only_kernels_with_a_share_are_stored_and_none_is_a_row_of_p():
    fit = fitted(KLIEP())
    kernels = fit.kernels_
    assert len(fit.theta_) == len(kernels.centres) == fit.report_["centres"] < 100
    rows = kernels.centres * kernels.standardise.scale + kernels.standardise.shift
    distance = [(rows[:, None] - normal(1000, *of, name)).square().sum(2).sqrt() for of, name in ((P, "p"), (Q, "q"))]
    assert distance[0].min() > 1e-6
    assert distance[1].amin(1).max() < 1e-12


def test_save_and_load_give_the_same_ratio(tmp_path):
    fit = fitted(KLIEP(), 200)
    again = KLIEP.load(fit.save(tmp_path / "ratio.json"))
    x = normal(50, [0.0, 0.0], 1.0, "x")
    assert torch.equal(again.log_ratio(x), fit.log_ratio(x))
    assert again.report_ == fit.report_


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (KLIEP(max_centres=0), "max_centres"),
        (KLIEP(bandwidths=(-1.0,)), "bandwidths"),
        (KLIEP(folds=1), "folds"),
        (KLIEP(folds=30), "p"),
        (KLIEP(tolerance=0.0), "tolerance"),
        (KLIEP(max_rounds=0), "max_rounds"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_settings_that_cannot_be_used_are_refused(estimator, name):
    with pytest.raises(InputError, match=rf"The '{name}' of KLIEP(\.fit)? must be"):
        fitted(estimator, 20)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (torch.zeros(20, 2), torch.zeros(20, 2)),
        (torch.ones(20, 2), torch.randn(20, 2, generator=rng.fork(0, "q"))),
        (torch.randn(20, 2, generator=rng.fork(0, "p")), torch.ones(20, 2)),
        (torch.randn(6, 9, generator=rng.fork(0, "p")), torch.randn(3, 9, generator=rng.fork(0, "q"))),
        (torch.randn(50, 2, generator=rng.fork(0, "p")) + 1e4, torch.randn(50, 2, generator=rng.fork(0, "q"))),
        (torch.arange(20)[:, None] % 3, torch.arange(30)[:, None] % 4),
    ],
    ids=["constant", "constant p", "constant q", "n < d", "far apart", "ties"],
)
def test_degenerate_samples_give_finite_answers(p, q):
    fit = KLIEP().fit(p, q)
    assert bool(torch.isfinite(fit.log_ratio(torch.cat([p, q]).double())).all())
    assert float(fit.log_ratio(q.double()).exp().mean()) == pytest.approx(1, abs=1e-9)
