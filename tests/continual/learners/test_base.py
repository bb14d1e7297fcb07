"""What all learners share: the loss over chosen outputs, building by name, counting bytes."""

import math

import pytest
import torch
from torch.nn import functional

from toys import blobs
from vestige.continual.learners import Outputs, build
from vestige.core.errors import InputError, UnknownName
from vestige.data.streams import split


@pytest.mark.parametrize("outputs", [(0, 1, 2, 3, 4), (1, 2), (3, 4), (0, 2, 4), (2,), (0, 4, 2), (2, 0, 1)])
def test_the_loss_is_a_cross_entropy_over_the_chosen_outputs(outputs):
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5, generator=g)
    y = torch.tensor(outputs)[torch.randint(len(outputs), (20,), generator=g)]
    masked = torch.full_like(logits, -math.inf)
    masked[:, list(outputs)] = logits[:, list(outputs)]
    torch.testing.assert_close(Outputs(outputs, 5).loss(logits, y), functional.cross_entropy(masked, y))


@pytest.mark.parametrize("outputs", [(1, 2), (0, 2, 4)])
def test_a_label_outside_the_outputs_is_an_error(outputs):
    with pytest.raises(IndexError):
        Outputs(outputs, 5).loss(torch.zeros(1, 5), torch.tensor([3]))


def test_methods_are_built_by_name_with_their_fields_replaced():
    stream = split(blobs(), 2)
    learner = build("vanilla", stream, seed=2, hidden=(7,), lr=0.5)
    assert learner.net.head.weight.shape == (6, 7)
    assert learner.describe()["lr"] == 0.5
    assert learner.describe()["seed"] == 2
    with pytest.raises(UnknownName, match="Did you mean 'vanilla'"):
        build("vanila", stream)
    with pytest.raises(
        InputError, match=r"must be among hidden, lr, reset_optimizer, net, init, head, optimizer\. Got lamda instead"
    ):
        build("vanilla", stream, lamda=1)


def test_momentum_survives_a_border_only_on_request():
    steps = {}
    for reset in (True, False):
        learner = build("vanilla", split(blobs(), 2), hidden=(4,), reset_optimizer=reset)
        for task in split(blobs(), 2):
            learner.begin_task(task)
            learner.observe(task.x, task.y)
        steps[reset] = int(learner.state_dict()["optimizer.0.step"])
    assert steps == {True: 1, False: 3}
