"""A memory copies, counts and never exceeds its budget."""

import pytest
import torch
from scipy import stats

from vestige.continual.memory import Memory, shares
from vestige.core.errors import InputError, StoreError


def test_it_holds_copies_and_counts_them():
    memory = Memory(budget=5)
    x, y = torch.rand(3, 2), torch.tensor([0, 1, 1])
    memory.add(x, y, task=0)
    kept = x.clone()
    x.zero_()
    assert torch.equal(memory.x, kept)
    memory.add(torch.rand(2, 2), torch.tensor([2, 3]), task=1)
    assert len(memory) == 5
    assert memory.task.tolist() == [0, 0, 0, 1, 1]
    assert memory.bytes == 5 * (2 * 4 + 8 + 8)


def test_more_than_the_budget_is_refused_and_changes_nothing():
    memory = Memory(budget=2)
    memory.add(torch.rand(1, 2), torch.tensor([0]), task=0)
    with pytest.raises(InputError, match="at most 1 samples, what the budget of 2 leaves"):
        memory.add(torch.rand(2, 2), torch.tensor([0, 1]), task=1)
    assert len(memory) == 1
    with pytest.raises(InputError, match="'budget' of Memory must be at least 0"):
        Memory(budget=-1)


def test_more_of_a_class_than_its_budget_is_refused():
    memory = Memory(None, per_class=2)
    memory.add(torch.rand(3, 2), torch.tensor([0, 4, 4]), task=0)
    with pytest.raises(InputError, match=r"at most 2 samples in a class\. Got 3 of class 4"):
        memory.add(torch.rand(1, 2), torch.tensor([4]), task=1)
    assert len(memory) == 3
    with pytest.raises(InputError, match="'per_class' of Memory must be at least 0"):
        Memory(None, per_class=-1)


@pytest.mark.parametrize(("n", "parts", "expected"), [(10, 4, [3, 3, 2, 2]), (2, 3, [1, 1, 0]), (6, 3, [2, 2, 2])])
def test_shares_sum_to_what_there_is(n, parts, expected):
    assert shares(n, parts) == expected


def fill(memory, classes, task, n=50):
    """All that is allowed of n samples a class; the input says (class, task, place in its order)."""
    room = memory.make_room(torch.tensor(classes), task)
    for label in classes:
        rows = torch.tensor([[label, task, i] for i in range(n)])[: room[label]].float()
        memory.add(rows, torch.full((len(rows),), label), task)
    return room


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 7, 10, 23])
def test_a_total_that_the_classes_do_not_divide_is_used_up_and_not_exceeded(budget):
    memory = Memory(budget)
    for task in range(4):
        fill(memory, [2 * task + 1, 2 * task], task)
        assert len(memory) == budget
        counts = memory.y.bincount(minlength=8)[: 2 * task + 2]
        assert counts.max() - counts.min() <= 1


def test_what_goes_goes_from_the_end_of_each_class():
    memory = Memory(7)
    fill(memory, [5, 2], 0)
    assert memory.y.tolist() == [5] * 4 + [2] * 3
    fill(memory, [0], 1)
    assert memory.x[:, [0, 2]].tolist() == [[5, 0], [5, 1], [5, 2], [2, 0], [2, 1], [0, 0], [0, 1]]


def test_a_class_that_comes_back_shares_its_budget_among_its_tasks():
    memory = Memory(None, per_class=5)
    for task, expected in enumerate(([5], [3, 2], [2, 2, 1])):
        assert fill(memory, [0, 1], task) == {0: expected[-1], 1: expected[-1]}
        for label in (0, 1):
            assert memory.task[memory.y == label].bincount().tolist() == expected
    assert memory.x[memory.y == 1][:, 2].tolist() == [0, 1, 0, 1, 0]


def test_of_two_budgets_the_smaller_counts():
    memory = Memory(10, per_class=4)
    fill(memory, [0, 1], 0)
    assert memory.y.bincount().tolist() == [4, 4]
    fill(memory, [2], 1)
    assert memory.y.bincount().tolist() == [4, 3, 3]


def test_a_small_class_leaves_its_share_unused():
    memory = Memory(6)
    fill(memory, [0, 1], 0, n=1)
    assert len(memory) == 2
    fill(memory, [2], 1)
    assert memory.y.bincount().tolist() == [1, 1, 2]


class TestReservoir:
    """Algorithm R in batches: sizes exact, every sample as likely as any other."""

    def filled(self, seed, budget=6, sizes=(1, 4, 3, 9, 2, 11)):
        memory, start = Memory(budget), 0
        for i, n in enumerate(sizes):
            rows = torch.arange(start, start + n)
            generator = torch.Generator().manual_seed(seed * 1000 + start)
            memory.offer(rows[:, None].float(), rows % 4, i, generator=generator)
            start += n
            assert len(memory) == min(budget, start)
            assert memory.offered_ == start
        return memory

    def test_every_sample_is_in_with_the_same_chance(self):
        """For m of n without replacement, sum (c - e)^2 / e times (n - 1) / (n - m) is chi-squared with n - 1."""
        times, n, m = 500, 30, 6
        counts = torch.zeros(n)
        for seed in range(times):
            counts[self.filled(seed).x[:, 0].long()] += 1
        expected = times * m / n
        statistic = float(((counts - expected).square() / expected).sum()) * (n - 1) / (n - m)
        assert stats.chi2.sf(statistic, n - 1) > 1e-3

    def test_any_pair_is_as_likely_as_any_other(self):
        times, n, m = 500, 8, 3
        pairs = torch.zeros(n, n)
        for seed in range(times):
            rows = self.filled(seed, m, (2, 3, 3)).x[:, 0].long()
            pairs[rows[:, None], rows] += 1
        seen = pairs[torch.triu_indices(n, n, 1).unbind()]
        chance = m * (m - 1) / (n * (n - 1))
        spread = (times * chance * (1 - chance)) ** 0.5
        assert float((seen - times * chance).abs().max()) < 4.5 * spread

    def test_rows_labels_and_tasks_stay_together_and_no_row_is_twice_in(self):
        memory = self.filled(3)
        rows = memory.x[:, 0].long()
        assert len(rows.unique()) == 6
        assert torch.equal(memory.y, rows % 4)
        ends = torch.tensor([1, 5, 8, 17, 19, 30])
        assert torch.equal(memory.task, (rows[:, None] >= ends).sum(1))

    def test_it_goes_on_from_a_state(self):
        one, two = self.filled(1), Memory(6)
        two.load_state_dict(one.state_dict())
        for memory in (one, two):
            memory.offer(torch.rand(9, 1), torch.zeros(9, dtype=torch.int64), 7, generator=torch.Generator())
        assert one.offered_ == two.offered_ == 39
        assert torch.equal(one.y, two.y)

    def test_a_budget_of_nothing_keeps_nothing_and_other_budgets_are_refused(self):
        memory = self.filled(0, budget=0)
        assert len(memory) == 0
        for other in (Memory(None), Memory(5, per_class=2)):
            with pytest.raises(InputError, match=r"'budget' of Memory\.offer must be given"):
                other.offer(torch.rand(2, 1), torch.tensor([0, 1]), 0, generator=torch.Generator())


def test_state_comes_back():
    one, two = Memory(None), Memory(None)
    one.add(torch.rand(3, 2), torch.tensor([0, 1, 1]), task=2)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)
    assert torch.equal(one.task, two.task)
    for small, sentence in (
        (Memory(2), "holds 3 samples; the budget"),
        (Memory(9, 1), "holds 2 samples; the per_class"),
    ):
        with pytest.raises(StoreError, match=sentence):
            small.load_state_dict(one.state_dict())
        assert len(small) == 0
