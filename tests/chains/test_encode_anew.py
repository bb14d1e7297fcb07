"""A feature map that changes: anchor samples encoded anew give the answer, stale codes a drift of the map."""

import copy
import functools

import pytest
import torch

from vestige.chains import Chain
from vestige.core.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
TURN = torch.tensor([[0.0, -2.0], [2.0, 0.0]], dtype=torch.float64)  # a quarter turn, twice as large
N = 1500


def normal(seed, shift=0.0, n=N):
    return shift + torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def later(x):
    """The map at the second step; no divergence changes under it."""
    return x @ TURN + 3


def begun(strategy="anchored", n=N):
    return copy.deepcopy(first_step(strategy, n))


@functools.cache
def first_step(strategy, n):
    chain = Chain(strategy, names=("kl",), estimator="quadratic" if strategy == "anchored" else None)
    chain.step({"a": normal(0, n=n)}, {"a": normal(1, 0.3, n=n)})
    return chain


def kl(chain):
    return float(chain.divergences(["kl"]).iloc[0]["value"])


def test_codes_of_the_newest_map_give_the_same_divergence():
    """KL of N(0, I) from N((0.6, 0.6), I) is 0.36 under either map."""
    fresh, stale, as_was = begun(), begun(), begun()
    fresh.encode_anew({"a": later(normal(1, 0.3))})
    for chain, code in ((fresh, later), (stale, later), (as_was, lambda x: x)):
        chain.step(None, {"a": code(normal(2, 0.6))})
    assert kl(as_was) == pytest.approx(0.36, abs=0.06)
    assert kl(fresh) == pytest.approx(kl(as_was), abs=0.01)
    assert kl(stale) > 3


def test_weights_stay_and_samples_are_the_new_codes():
    chain = begun()
    _, before = chain.anchor_samples("a")
    codes = later(normal(1, 0.3))
    chain.encode_anew({"a": codes})
    samples, weights = chain.anchor_samples("a")
    assert torch.equal(samples, codes)
    assert torch.equal(weights, before)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    chain = begun()
    before = chain.anchor_samples("a")[0]
    for bad, match in (
        ({}, "given for every known task"),
        ({"a": before, "b": before}, "given for every known task"),
        ({"a": before[:-1]}, f"the {N} samples"),
        ({"a": before[:, :1]}, "wide"),
        ({"a": before / 0}, "finite"),
    ):
        with pytest.raises(InputError, match=match):
            chain.encode_anew(bad)
    assert torch.equal(chain.anchor_samples("a")[0], before)
    with pytest.raises(InputError, match="there is none"):
        Chain().encode_anew({})
    for strategy in ("keyframe", "every-step"):
        other = begun(strategy, n=200)
        with pytest.raises(InputError, match="'strategy' of"):
            other.encode_anew({"a": before[:200]})
