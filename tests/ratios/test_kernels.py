import warnings

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError, VestigeWarning
from vestige.ratios import KLIEP, ULSIF
from vestige.ratios.base import Sample
from vestige.ratios.kernels import BANDWIDTHS, Kernels, gaussian, gaussian_path, median_distance
from vestige.store.codec import decode, encode


def sample(n, d, name="x", scale=1.0):
    return scale * torch.randn(n, d, generator=rng.fork(0, name), dtype=torch.float64)


def test_centres_are_distinct_rows_of_q_and_nothing_else():
    q = sample(50, 3).repeat(2, 1)  # every row twice
    kernels = Kernels.of(q, None, 100, rng.fork(1, "centres"))
    assert len(kernels.centres) == len(torch.unique(kernels.centres, dim=0)) == 50
    assert all(bool((row == kernels.standardise(q)).all(1).any()) for row in kernels.centres)
    assert len(Kernels.of(q, None, 7, rng.fork(1, "centres")).centres) <= 7


def test_centres_follow_the_weights_of_q():
    q, weights = sample(1000, 1), torch.zeros(1000, dtype=torch.float64)
    weights[:40] = torch.linspace(1, 2, 40, dtype=torch.float64) / 60
    kernels = Kernels.of(q, weights, 100, rng.fork(1, "centres"))
    assert len(kernels.centres) == 40  # rows without weight are never drawn
    # A row of nine tenths of the weight is drawn almost always, one of a thousandth almost never.
    weights = torch.full((100,), 0.1 / 99, dtype=torch.float64)
    weights[3] = 0.9
    seen = [Kernels.of(q[:100], weights, 1, rng.fork(s, "centres")) for s in range(200)]
    hits = sum(bool(torch.isclose(k.centres, k.standardise(q[3:4])).all()) for k in seen)
    assert 160 < hits < 198


def test_squared_distances_against_the_definition():
    q, x = sample(30, 4), sample(20, 4, "y", scale=3.0)
    kernels = Kernels.of(q, None, 10, rng.fork(1, "centres"))
    z = (x - q.mean(0)) / q.std(0, correction=0)
    torch.testing.assert_close(kernels.squared_distances(x), torch.cdist(z, kernels.centres).square())
    assert kernels.squared_distances(q).min() >= 0


def test_gaussian_path_is_gaussian_on_any_grid():
    squared = sample(40, 6).square() * 20
    for sigmas in ([m * 1.7 for m in reversed(BANDWIDTHS)], [3.0, 3.0 / 2**0.5, 1.1, 0.2]):
        for sigma, phi in zip(sigmas, gaussian_path(squared.clone(), sigmas), strict=True):
            torch.testing.assert_close(phi, torch.exp(-squared / (2 * sigma**2)), rtol=1e-12, atol=0)
            torch.testing.assert_close(phi, gaussian(squared, sigma), rtol=1e-12, atol=0)


def test_gaussian_path_leaves_the_distances_alone():
    squared = sample(10, 3).square()
    before = squared.clone()
    list(gaussian_path(squared, [2.0, 2.0**0.5, 1.0]))
    assert torch.equal(squared, before)


def test_median_distance_takes_both_sides_and_their_weights():
    near_p, near_q = torch.full((1000, 2), 4.0).double(), torch.full((20, 2), 16.0).double()
    near_q[:10] = 1.0
    assert median_distance(Sample(near_p, near_q)) == 2.0  # of 1/4 ones, 1/2 twos, 1/4 fours: sides count alike
    only_far = torch.cat([torch.zeros(10), torch.full((10,), 0.1)]).double()
    assert median_distance(Sample(near_q, near_q, only_far, only_far)) == 4.0
    repeated = near_q.repeat_interleave(torch.arange(1, 21), 0)
    weights = torch.arange(1, 21).double() / 210
    assert median_distance(Sample(near_q, near_q, weights, weights)) == median_distance(Sample(repeated, repeated))
    assert median_distance(Sample(near_p * 0, near_p * 0)) == 1.0


def test_state_round_trip():
    kernels = Kernels.of(sample(30, 4), None, 10, rng.fork(1, "centres"))
    again, x = decode(Kernels, *encode(kernels)), sample(5, 4, "y")
    assert torch.equal(kernels.squared_distances(x), again.squared_distances(x))


@pytest.mark.parametrize("bad", [(), (1.0, 0.0), (-1.0,), (float("nan"),)])
@pytest.mark.parametrize("kind", [ULSIF, KLIEP])
def test_bad_bandwidths_are_refused(kind, bad):
    with pytest.raises(InputError, match=rf"The 'bandwidths' of {kind.__name__} must be .*\. Got .* instead\."):
        kind(bandwidths=bad).fit(sample(30, 2), sample(30, 2, "y"))


def test_many_dimensions_are_warned_of_and_few_are_not():
    with pytest.warns(VestigeWarning, match="ULSIF: kernel estimators fail in 10 dimensions"):
        report = ULSIF().fit(sample(30, 10), sample(30, 10, "y")).report_
    assert "Stack" in report["warnings"][0]
    assert "quadratic" in report["warnings"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = ULSIF().fit(sample(30, 9), sample(30, 9, "y")).report_
    assert report["warnings"] == []
