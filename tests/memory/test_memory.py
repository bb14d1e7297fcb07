"""A memory copies, counts and never exceeds its budget."""

import pytest
import torch

from vestige.errors import InputError
from vestige.memory import Memory


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


def test_state_comes_back():
    one, two = Memory(None), Memory(None)
    one.add(torch.rand(3, 2), torch.tensor([0, 1, 1]), task=2)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)
    assert torch.equal(one.task, two.task)
