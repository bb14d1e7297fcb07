"""Batches counted by hand: equal shares, every real row once before any twice, replay in bulk and anew each epoch."""

import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.generators.base import ReplaySource


def rows(condition, n):
    """n rows that say whose they are: (condition, number)."""
    return torch.stack([torch.full((n,), float(condition)), torch.arange(float(n))], 1)


def two_new(replay, earlier=(0, 3)):
    """Condition 1 with 6 rows, condition 2 with 4."""
    x = torch.cat([rows(1, 6), rows(2, 4)])
    return ReplaySource(x, torch.tensor([1] * 6 + [2] * 4), list(earlier), replay)


def dealt(source, batch, steps, seed=0):
    return list(source.batches(batch, steps, rng.fork(seed, "test")))


class Drawer:
    """Replay that counts its calls and numbers its rows."""

    def __init__(self):
        self.asked = []

    def __call__(self, conditions, generator):
        self.asked.append(conditions.tolist())
        serial = torch.rand(len(conditions), generator=generator)
        return torch.stack([conditions.float(), serial], 1)


def test_an_epoch_has_equal_shares_and_rows_keep_their_condition():
    x, conditions = two_new(Drawer()).epoch(24, rng.fork(0, "test"))
    assert torch.bincount(conditions).tolist() == [6, 6, 6, 6]
    assert torch.equal(x[:, 0].long(), conditions)


def test_every_real_row_comes_once_before_any_comes_twice():
    x, conditions = two_new(Drawer()).epoch(24, rng.fork(0, "test"))
    assert sorted(x[conditions == 1, 1].tolist()) == [0, 1, 2, 3, 4, 5]
    counts = torch.bincount(x[conditions == 2, 1].long(), minlength=4)
    assert sorted(counts.tolist()) == [1, 1, 2, 2]
    assert set(x[conditions == 2, 1][:4].tolist()) == {0, 1, 2, 3}


def test_replay_is_drawn_in_bulk_once_an_epoch_and_anew():
    """Four conditions of 6 rows are 6 batches of 4: 13 batches take three epochs, the last of one batch."""
    drawer = Drawer()
    source = two_new(drawer)
    parts = dealt(source, 4, 13)
    assert len(parts) == 13
    assert all(x.shape == (4, 2) and c.shape == (4,) for x, c in parts)
    assert [len(asked) for asked in drawer.asked] == [12, 12, 2]
    assert drawer.asked[0] == [0] * 6 + [3] * 6
    serials = [x[(c == 0) | (c == 3), 1] for x, c in parts]
    assert len(torch.cat(serials).unique()) == len(torch.cat(serials))  # no drawn row comes twice


def test_within_an_epoch_each_condition_is_as_frequent_as_any_other():
    conditions = torch.cat([c for _, c in dealt(two_new(Drawer()), 4, 6)])
    assert torch.bincount(conditions).tolist() == [6, 6, 6, 6]
    assert conditions.tolist() != sorted(conditions.tolist())  # shuffled


def test_given_replay_is_dealt_like_real_rows():
    source = two_new({0: rows(0, 3), 3: rows(3, 8)})
    x, conditions = source.epoch(24, rng.fork(0, "test"))
    assert torch.bincount(conditions).tolist() == [6, 6, 6, 6]
    assert torch.bincount(x[conditions == 0, 1].long()).tolist() == [2, 2, 2]
    assert len(x[conditions == 3, 1].unique()) == 6


def test_without_replay_only_new_conditions_come():
    source = two_new({}, earlier=())
    x, conditions = source.epoch(12, rng.fork(0, "test"))
    assert torch.bincount(conditions).tolist() == [0, 6, 6]
    assert len(x) == 12


def test_a_share_for_what_is_new():
    """Half of 24 rows real: 6 of each new condition; a quarter: 3 of each, and 9 of each earlier one."""
    for fresh, counts in ((0.5, [6, 6, 6, 6]), (0.25, [9, 3, 3, 9])):
        source = two_new(Drawer())
        source.fresh = fresh
        _, conditions = source.epoch(24, rng.fork(0, "test"))
        assert torch.bincount(conditions).tolist() == counts
    x, y = rows(1, 6), torch.ones(6, dtype=torch.int64)
    assert len(ReplaySource(x, y, [], {}, fresh=0.5).epoch(6, rng.fork(0, "test"))[0]) == 6  # nothing is replayed


def test_steps_are_whole_batches_of_an_epoch_and_at_least_one():
    source = two_new(Drawer())
    assert source.steps(1, 4) == 6
    assert source.steps(3, 5) == 12  # 24 rows are 4 batches of 5
    assert source.steps(2, 1000) == 2
    assert [len(x) for x, _ in dealt(source, 1000, 2)] == [1000, 1000]


def test_rows_beyond_pixels_are_refused_wherever_they_are():
    x, y = torch.rand(4, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(4, dtype=torch.int64)
    ReplaySource(x, y, [1], {1: x}).must_be_pixels("Toy.fit")
    for real, old in ((x + 1, x), (x, x - 1)):
        with pytest.raises(InputError, match=r"'x' of Toy.fit must be in \[0, 1\]"):
            ReplaySource(real, y, [1], {1: old}).must_be_pixels("Toy.fit")
    drawn = Drawer()
    ReplaySource(x, y, [1], drawn).must_be_pixels("Toy.fit")  # what is drawn is not at hand
    assert drawn.asked == []


def test_the_same_generator_deals_the_same():
    one, two, other = (dealt(two_new(Drawer()), 4, 9, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(one, two, strict=True))
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(one, other, strict=True))
