import math

import pytest
import torch

from vestige.chains import gaussians
from vestige.core.errors import InputError, UnknownName


def kl(mean_step, k, d):
    """KL(N(0, I) || N(mean_step k, (1 - mean_step k)^2 I)), written out."""
    mean, std = mean_step * k, 1 - mean_step * k
    return d * (math.log(std) + (1 + mean**2) / (2 * std**2) - 0.5)


@pytest.mark.parametrize(("d", "step", "published"), [(2, 0.05, 2.614), (100, 0.02, 8.936)])
def test_the_truth_of_the_single_task(d, step, published):
    drift = gaussians(d)
    for t in (1, 5, 10):
        assert drift.true("kl", t) == pytest.approx(kl(step, t, d), rel=1e-12)
        assert drift.true("kl", t, task=1) == drift.true("kl", t)
    assert drift.true("kl", 10) == pytest.approx(published, abs=5e-4)
    assert list(drift.tasks(10)) == [1]


@pytest.mark.parametrize(("d", "step"), [(2, 0.05), (100, 0.02)])
def test_many_tasks_average_over_their_ages(d, step):
    drift = gaussians(d, multi_task=True)
    assert list(drift.tasks(3)) == [1, 2, 3]
    assert drift.true("kl", 3, task=1) == pytest.approx(kl(step, 3, d), rel=1e-9)
    assert drift.true("kl", 3, task=3) == pytest.approx(kl(step, 1, d), rel=1e-9)
    assert drift.true("kl", 10) == pytest.approx(sum(kl(step, k, d) for k in range(1, 11)) / 10, rel=1e-9)


def test_other_divergences_are_theirs():
    drift = gaussians()
    mean, std = 0.25, 0.75
    affinity = math.sqrt(2 * std / (1 + std**2)) * math.exp(-(mean**2) / (4 * (1 + std**2)))
    assert drift.true("hellinger2", 5) == pytest.approx(1 - affinity**2, rel=1e-9)
    assert math.isfinite(drift.true("pearson_chi2", 5))
    assert drift.true("pearson_chi2", 6) == math.inf  # the std is 0.7, below 0.707
    with pytest.raises(UnknownName):
        drift.true("kll", 5)


def test_samples_have_the_moments_that_the_drift_says():
    drift = gaussians(2, multi_task=True)
    n, sd = 20_000, 1 / math.sqrt(20_000)
    for x, mean, std in (
        (drift.real(3, n, seed=0), 6.0, 1.0),
        (drift.model(5, 3, n, seed=0), 6.15, 0.85),
        (drift.model(3, 3, n, seed=0), 6.05, 0.95),
    ):
        assert x.shape == (n, 2)
        assert x.dtype == torch.float64
        assert (x.mean(0) - mean).abs().max() < 5 * sd
        assert (x.std(0) - std).abs().max() < 5 * sd
    assert abs(float(gaussians().real(1, n, seed=0).mean())) < 5 * sd  # a single task is centred at 0


def test_draws_follow_the_seed_and_are_independent_of_each_other():
    drift = gaussians(2, multi_task=True)
    assert torch.equal(drift.model(4, 2, 5, seed=1), drift.model(4, 2, 5, seed=1))
    draws = [drift.model(4, 2, 5, seed=1), drift.model(4, 2, 5, seed=2), drift.model(5, 2, 5, seed=1)]
    draws += [drift.model(4, 1, 5, seed=1), drift.real(2, 5, seed=1), drift.real(1, 5, seed=1)]
    noise = [(x - x.mean(0)) / x.std(0) for x in draws]
    for i, a in enumerate(noise):
        assert not any(torch.allclose(a, b) for b in noise[:i])


def test_the_true_log_ratio_averages_to_the_divergences():
    drift = gaussians()
    x = drift.real(1, 50_000, seed=0)
    value = drift.true_log_ratio(x, 5)
    assert float(value.mean()) == pytest.approx(drift.true("kl", 5), abs=5 * float(value.std()) / math.sqrt(50_000))
    y = drift.model(5, 1, 50_000, seed=0)
    ratio = drift.true_log_ratio(y, 5).exp()
    assert float(ratio.mean()) == pytest.approx(1.0, abs=0.05)


def test_what_has_no_answer_is_refused():
    with pytest.raises(InputError, match="'n_steps' of gaussians must be below 20"):
        gaussians(n_steps=20)
    assert gaussians(n_steps=19).q(19).cov[0, 0] == pytest.approx(0.0025)
    with pytest.raises(InputError, match="'mean_step' of gaussians must be stated for d = 3"):
        gaussians(3)
    assert gaussians(3, mean_step=0.1, n_steps=2).true("kl", 2) == pytest.approx(kl(0.1, 2, 3))
    drift = gaussians(multi_task=True)
    for bad in (0, 11):
        with pytest.raises(InputError, match="'t' of gaussians"):
            drift.true("kl", bad)
    with pytest.raises(
        InputError, match=r"'task' of gaussians must be one that step 3 has learnt \(3 at most\). Got 4"
    ):
        drift.q(3, 4)
    with pytest.raises(InputError, match="'task' of gaussians"):
        drift.real(11, 5, seed=0)
    with pytest.raises(InputError, match="'n' of gaussians"):
        drift.real(1, 0, seed=0)
    with pytest.raises(InputError, match="'task' of gaussians must be at most 1"):
        gaussians().real(2, 5, seed=0)
