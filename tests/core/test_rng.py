"""Named streams: reproducible, independent of each other, and deaf to the global generator."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.core import rng

NAMES = st.lists(st.one_of(st.text(alphabet="abc:1", max_size=3), st.integers(-3, 3)), max_size=3)


def test_a_seed_is_the_same_on_every_machine_and_in_every_version():
    # Stored Records name their seeds: a change of these numbers changes every one of them.
    assert rng.child_seed(0) == 4246866556266386882
    assert rng.child_seed(0, "init") == 3687151546666213446
    assert rng.child_seed(7, "shuffle", 3) == 4422318248694591935


@given(st.integers(-5, 5), NAMES, st.integers(-5, 5), NAMES)
def test_different_names_and_seeds_are_different_streams(seed, names, other_seed, other_names):
    equal = (seed, names) == (other_seed, other_names)
    assert (rng.child_seed(seed, *names) == rng.child_seed(other_seed, *other_names)) is equal
    assert 0 <= rng.child_seed(seed, *names) < 2**63


def test_one_more_draw_from_one_stream_does_not_shift_another():
    first, second = rng.fork(0, "a"), rng.fork(0, "b")
    torch.rand(100, generator=first)
    drawn = torch.rand(5, generator=second)
    assert torch.equal(drawn, torch.rand(5, generator=rng.fork(0, "b")))
    assert np.array_equal(rng.fork_numpy(0, "b").random(5), rng.fork_numpy(0, "b").random(5))
    assert not np.array_equal(rng.fork_numpy(0, "a").random(5), rng.fork_numpy(0, "b").random(5))


def test_streams_are_not_correlated():
    drawn = torch.stack([torch.randn(4000, generator=rng.fork(0, "s", i)) for i in range(20)])
    off_diagonal = torch.corrcoef(drawn) - torch.eye(20)
    assert off_diagonal.abs().max() < 5 / 4000**0.5


def test_a_fork_leaves_the_global_generators_alone():
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    torch.rand(3, generator=rng.fork(0, "x"))
    rng.fork_numpy(0, "x").random(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


def test_the_guard_lends_the_global_generator_and_gives_it_back():
    before = torch.get_rng_state()
    with rng.guard(0, "init"):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    with rng.guard(0, "init"):
        assert torch.equal(torch.rand(3), inside)
    with rng.guard(1, "init"):
        assert not torch.equal(torch.rand(3), inside)


def test_the_guard_gives_back_after_an_error_and_when_nested():
    before = torch.get_rng_state()
    with pytest.raises(KeyError), rng.guard(0, "outer"):
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
    with rng.guard(0, "outer"):
        first = torch.rand(1)
        with rng.guard(0, "inner"):
            torch.rand(9)
        second = torch.rand(1)
    with rng.guard(0, "outer"):
        assert torch.equal(torch.rand(2), torch.cat([first, second]))


@pytest.mark.parametrize("fails", [False, True])
def test_the_guard_gives_back_the_generator_of_mps_as_well(monkeypatch, fails):
    state = [torch.tensor([1, 2, 3])]  # of a device that is not there
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state[0].clone())
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda new: state.__setitem__(0, new))
    monkeypatch.setattr(torch.mps, "manual_seed", lambda seed: state.__setitem__(0, torch.tensor([seed])))
    with contextlib.suppress(ZeroDivisionError), rng.guard(5, "init"):
        assert state[0].tolist() == [rng.child_seed(5, "init")]
        if fails:
            raise ZeroDivisionError
    assert state[0].tolist() == [1, 2, 3]
