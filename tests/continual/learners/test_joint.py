"""Joint: what it ends with does not hang on whether it trained at the tasks before."""

import pytest
import torch

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.core.errors import InputError
from vestige.data.streams import split


def ended(**options):
    """Weights after three tasks, and the accuracy matrix."""
    stream = split(blobs(), 2)
    learner = build("joint", stream, hidden=(8,), seed=0, **options)
    return list(learner.net.state_dict().values()), protocol.run(stream, learner, epochs=2, batch_size=16).R, learner


def test_it_may_train_at_the_last_task_alone():
    _, always, whole = ended()
    begun, alone, last = ended(since=2)
    assert torch.equal(alone[-1], always[-1])
    for a, b in zip(whole.net.parameters(), last.net.parameters(), strict=True):
        assert torch.equal(a, b), "the same network, to the bit"
    assert not torch.equal(always[1], alone[1])
    never = ended(since=3)[2]
    for a, b in zip(begun, never.net.state_dict().values(), strict=True):
        assert torch.equal(a, b), "before its time it only keeps"
    assert len(never.memory) == len(whole.memory)


def test_a_task_before_the_first_is_refused():
    with pytest.raises(InputError, match="'since'"):
        ended(since=-1)
