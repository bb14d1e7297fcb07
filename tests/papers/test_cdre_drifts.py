"""Truths against one-dimensional quadrature and independent densities; samples against the laws they come from."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from vestige.core.errors import InputError
from vestige.ratios import divergences
from vestige_papers.cdre import drifts
from vestige_papers.cdre.drifts import DRIFTS, Modes, SinhArcsinh, melting, mixture, poor, skewed, still

NAMES = ("kl", "reverse_kl", "js", "hellinger2")


def one_dimension(log_p, log_q):
    """(kl, reverse_kl, js, Bhattacharyya coefficient) of two densities on the line."""

    def js(x):
        p, q = np.exp(log_p(x)), np.exp(log_q(x))
        m = math.log((p + q) / 2) if p + q > 0 else 0.0
        return (p * (log_p(x) - m) + q * (log_q(x) - m)) / 2

    parts = (
        lambda x: np.exp(log_p(x)) * (log_p(x) - log_q(x)),
        lambda x: np.exp(log_q(x)) * (log_q(x) - log_p(x)),
        js,
        lambda x: np.exp((log_p(x) + log_q(x)) / 2),
    )
    return [quad(part, -60, 60, limit=2000, epsabs=1e-11, points=[-3, 0, 3])[0] for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("t", [1, 5, 10])
def test_melting_is_a_drift_along_the_diagonal(t):
    """Across the diagonal both laws are N(0, 1); along it two modes at +-reach sqrt 2."""

    def log_two(a):
        return lambda x: np.logaddexp(-((x - a) ** 2) / 2, -((x + a) ** 2) / 2) - math.log(2 * math.sqrt(2 * math.pi))

    reach = 1.95 * math.sqrt(2)
    kl, reverse, js, affinity = one_dimension(log_two(reach), log_two(reach * (1 - t / 10)))
    bed = melting()
    expected = [kl, reverse, js, 1 - affinity]
    assert [bed.true(name, t) for name in NAMES] == pytest.approx(expected, rel=1e-6)
    assert [bed.true_error(name, t) for name in NAMES] == [0, 0, 0, 0]
    if t == 10:
        assert bed.true("kl", 10) == pytest.approx(3.1175, abs=1e-4)


@pytest.mark.slow
def test_skewed_has_independent_axes_in_its_own_basis():
    bed = skewed()
    p, q = bed.p(), bed.q(10)
    torch.testing.assert_close(p.basis @ p.basis.mT, torch.eye(5, dtype=torch.float64))
    shift = (q.shift @ q.basis).numpy()

    def log_axis(law, i, centre):
        delta, eps, scale = float(law.tail[i]), float(law.skew[i]), law.scale

        def log_density(x):
            y = (x - centre) / scale
            z = math.sinh(delta * math.asinh(y) - eps)
            # the density of z = g(y) is phi(z) dz/dy
            slope = delta * math.sqrt(1 + z * z) / math.sqrt(1 + y * y)
            return -z * z / 2 + math.log(slope / scale / math.sqrt(2 * math.pi))

        return log_density

    axes = [one_dimension(log_axis(p, i, 0.0), log_axis(q, i, shift[i])) for i in range(5)]
    expected = {
        "kl": sum(a[0] for a in axes),
        "reverse_kl": sum(a[1] for a in axes),
        "hellinger2": 1 - math.prod(a[3] for a in axes),
    }
    for name, value in expected.items():
        error = bed.true_error(name, 10)
        assert 0 < error < 0.01 * value
        assert abs(bed.true(name, 10) - value) < 4 * error


def test_sinh_arcsinh_rows_are_what_the_formula_says():
    law = skewed().q(7)
    x = law.sample(20_000, generator=torch.Generator().manual_seed(0))
    back = (law.tail * ((x - law.shift) @ law.basis / law.scale).asinh() - law.skew).sinh()  # N(0, I) again
    assert back.mean(0).abs().max() < 4 / math.sqrt(20_000)
    assert (back.mT @ back / 20_000 - torch.eye(5)).abs().max() < 4 * math.sqrt(2 / 20_000)
    straight = torch.tensor([0.0], dtype=torch.float64)
    one = SinhArcsinh(straight, 2.0, straight, straight + 1, torch.ones(1, 1, dtype=torch.float64))
    x = torch.linspace(-6, 6, 50, dtype=torch.float64)[:, None]
    torch.testing.assert_close(one.log_prob(x), Normal(straight, 2.0).log_prob(x)[:, 0])


@pytest.mark.slow
def test_the_mixture_is_that_of_torch_and_its_truth_is_that_of_fresh_rows():
    bed = mixture()
    p, q = bed.p(), bed.q(30)

    def reference(law):
        k = len(law.means)
        return MixtureSameFamily(
            Categorical(torch.ones(k)), Independent(Normal(law.means, torch.full_like(law.means, law.std)), 1)
        )

    x = bed.real(1, 20_000, seed=3)
    torch.testing.assert_close(p.log_prob(x[:500]), reference(p).log_prob(x[:500]))
    fresh = reference(p).log_prob(x) - reference(q).log_prob(x)
    spread = math.hypot(float(fresh.std()) / math.sqrt(20_000), bed.true_error("kl", 30))
    assert abs(float(fresh.mean()) - bed.true("kl", 30)) < 4 * spread
    assert bed.true_error("kl", 30) < 0.01
    assert bed.true("kl", 30) == pytest.approx(5.7, abs=0.15)


@pytest.mark.slow
def test_the_truth_of_a_mixture_does_not_hang_on_its_fixed_draws():
    assert mixture(n_steps=50).true("kl", 50) == pytest.approx(mixture().true("kl", 30), abs=0.04)


def test_modes_sample_all_modes_with_their_deviation():
    means = torch.tensor([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]], dtype=torch.float64)
    x = Modes(means, 0.5).sample(9_000, generator=torch.Generator().manual_seed(1))
    nearest = torch.cdist(x, means).argmin(1)
    assert torch.bincount(nearest).min() > 2_800
    assert float((x - means[nearest]).std()) == pytest.approx(0.5, abs=0.01)


def test_still_has_nothing_to_find():
    bed = still(3)
    assert bed.real(1, 4, seed=0).shape == (4, 3)
    assert [bed.true(name, 6) for name in NAMES] == pytest.approx([0, 0, 0, 0], abs=1e-12)
    assert not torch.equal(bed.real(1, 4, seed=0), bed.model(1, 1, 4, seed=0))


@pytest.mark.parametrize("ess", [0.05, 0.3])
def test_a_poor_first_generator_is_worth_what_was_asked(ess):
    bed = poor(ess=ess)
    assert bed.ess() == pytest.approx(ess, rel=1e-9)
    x = bed.model(1, 1, 200_000, seed=0)
    w = bed.true_log_ratio(x, 1).exp()
    assert float(w.sum() ** 2 / w.square().sum()) / len(x) == pytest.approx(ess, rel=0.3)
    assert bed.true("kl", 10) > bed.true("kl", 1) == pytest.approx(-math.log(ess) / 2)


@pytest.mark.parametrize("name", DRIFTS)
def test_every_drift_keeps_the_one_interface(name, monkeypatch):
    monkeypatch.setattr(drifts, "TRUTH_ROWS", 2**14)  # slow tests look at the truth of all of them
    bed = DRIFTS[name]()
    assert bed.name == name
    assert list(bed.tasks(bed.n_steps)) == [1]
    real, model = bed.real(1, 3_000, seed=1), bed.model(bed.n_steps, 1, 3_000, seed=1)
    assert real.shape == model.shape == (3_000, bed.d)
    assert real.dtype == torch.float64
    assert torch.equal(real, bed.real(1, 3_000, seed=1))
    assert not torch.equal(real, bed.real(1, 3_000, seed=2))
    assert not torch.equal(bed.model(1, 1, 9, seed=1), bed.model(2, 1, 9, seed=1))
    exact = divergences.estimate("js", bed.true_log_ratio(model, bed.n_steps), bed.true_log_ratio(real, bed.n_steps))
    error = math.hypot(exact.std_error, bed.true_error("js", bed.n_steps))
    assert abs(exact.value - bed.true("js", bed.n_steps, task=1)) < 4 * error + 1e-12


def test_what_has_no_answer_is_refused():
    bed = melting()
    for call in (lambda: bed.true("kl", 11), lambda: bed.model(0, 1, 5, seed=0), lambda: bed.tasks(0)):
        with pytest.raises(InputError, match="'t' of melting"):
            call()
    with pytest.raises(InputError, match="'task' of melting must be at most 1"):
        bed.real(2, 5, seed=0)
    with pytest.raises(InputError, match="'n' of melting"):
        bed.real(1, 0, seed=0)
    with pytest.raises(InputError, match="'ess' of poor"):
        poor(ess=0.0)
    with pytest.raises(InputError, match="'n_steps' of poor must be below 51"):
        poor(n_steps=51)
    with pytest.raises(InputError, match="'modes' of mixture"):
        mixture(modes=0)
