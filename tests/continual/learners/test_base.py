"""What all learners share: the loss over chosen outputs, building by name, counting bytes."""

import math

import pytest
import torch
from torch.nn import functional

from toys import blobs
from vestige.continual.learners import METHODS, Learner, Rehearsal, build
from vestige.continual.learners.base import Outputs
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
    learner = build("vanilla", stream, seed=2, hidden=(7,), learning_rate=0.5)
    assert learner.net.head.weight.shape == (6, 7)
    assert learner.describe()["learning_rate"] == 0.5
    assert learner.describe()["seed"] == 2
    with pytest.raises(UnknownName, match="Did you mean 'vanilla'"):
        build("vanila", stream)
    with pytest.raises(UnknownName, match=r"'options' of ewc must be one of .*learning_rate.*Did you mean 'lam'"):
        build("ewc", stream, lamda=1)


def test_rehearsal_is_an_argument_and_the_s_names_fill_it_in():
    stream = split(blobs(), 2)
    assert build("rwalk", stream).memory is None
    named, given = build("rwalk_s", stream), build("rwalk", stream, memory=Rehearsal())
    assert type(named) is type(given)
    assert named.describe() == given.describe() == build("rwalk", stream, memory={}).describe()
    changed = build("rwalk_s", stream, memory={"per_class": 3, "replay": "beside"})
    assert changed.config.memory == Rehearsal(per_class=3, replay="beside")
    assert build("icarl", stream, memory={"per_class": 3}).config.memory.sampler == "herding"
    with pytest.raises(UnknownName, match="'options' of the memory of rwalk must be one of"):
        build("rwalk", stream, memory={"per_clas": 3})
    for name, part in (("gem", "memory"), ("icarl", "memory"), ("dgr", "replay")):
        with pytest.raises(InputError, match=f"'{part}' of {name} must be given"):
            build(name, stream, **{part: None})
    with pytest.raises(UnknownName, match="'options' of dgr"):
        build("dgr", stream, memory={})


def test_an_option_means_one_thing():
    stream = split(blobs(), 2)
    penalty, distance = ({f for f in vars(build(name, stream).config) if "half" in f} for name in ("ewc_pp", "rwalk"))
    assert (penalty, distance) == ({"half_penalty"}, {"half_distance"})
    assert build("rwalk", stream, lam=3.0).strength == 3.0
    assert build("ewc_pp", stream, lam=3.0).strength == 1.5


def test_no_learner_has_two_parents():
    for method in METHODS.values():
        for kind in (*method.__mro__, *type(method.default_config()).__mro__):
            assert len([base for base in kind.__bases__ if base.__module__.startswith("vestige")]) <= 1, kind


def test_momentum_survives_a_border_only_on_request():
    steps = {}
    for reset in (True, False):
        learner = build("vanilla", split(blobs(), 2), hidden=(4,), reset_optimizer=reset)
        for task in split(blobs(), 2):
            learner.begin_task(task)
            learner.observe(task.x, task.y)
        steps[reset] = int(learner.state_dict()["optimizer.0.step"])
    assert steps == {True: 1, False: 3}


def test_a_configuration_of_another_class_is_refused():
    learner = build("ewc", split(blobs(), 2))
    with pytest.raises(InputError, match=r"The 'config' of EWC must be a EWCConfig\. Got a VanillaConfig instead\."):
        Learner.__init__(learner, learner.spec, METHODS["vanilla"].default_config())
