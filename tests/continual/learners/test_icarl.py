"""iCaRL's loss and its classifier, written out by hand."""

import math

import pytest
import torch

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.icarl import class_means, icarl_losses
from vestige.data.streams import split


def tasks():
    return split(blobs(n_classes=6, per_class=12), 2)


def bce(logit, target):
    g = 1 / (1 + math.exp(-logit))
    return -target * math.log(g) - (1 - target) * math.log(1 - g)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_new_outputs_learn_labels_and_old_ones_what_the_old_network_said(temperature):
    g = torch.Generator().manual_seed(0)
    logits, old = torch.randn(5, 6, generator=g), torch.randn(5, 6, generator=g)
    y = torch.tensor([2, 3, 0, 1, 2])  # two of them exemplars of old classes
    current = torch.tensor([0, 0, 1, 1, 0, 0], dtype=torch.bool)
    older = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)
    expected = []
    for i in range(5):
        new = sum(bce(float(logits[i, c]), float(y[i] == c)) for c in (2, 3))
        kept = sum(bce(float(logits[i, c]), 1 / (1 + math.exp(-float(old[i, c]) / temperature))) for c in (0, 1))
        expected.append(new + kept)
    torch.testing.assert_close(icarl_losses(logits, y, old, current, older, temperature), torch.tensor(expected))
    first = torch.tensor([sum(bce(float(logits[i, c]), float(y[i] == c)) for c in (2, 3)) for i in range(5)])
    torch.testing.assert_close(icarl_losses(logits, y, None, current, torch.zeros_like(older)), first)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_step_distils_the_network_of_the_tasks_beginning_on_data_and_exemplars(temperature):
    fields = {"memory": {"per_class": 4}, "learning_rate": 0.02, "temperature": temperature}
    learner = build("icarl_hb1", tasks(), hidden=(8,), **fields)
    for task in tasks():
        learner.begin_task(task)
        before = {k: v.clone() for k, v in learner.net.state_dict().items()}
        for x, y in zip(task.x.split(8), task.y.split(8), strict=True):
            learner.observe(x, y)
        if task.info.index == 1:
            now = {k: v.clone() for k, v in learner.net.state_dict().items()}
            learner.net.load_state_dict(before)
            old_logits = learner.predict(torch.cat([task.x, learner.memory.x]))
            learner.net.load_state_dict(now)
            joined = torch.cat([task.y, learner.memory.y])
            expected = icarl_losses(
                learner.predict(torch.cat([task.x, learner.memory.x])), joined, old_logits,
                torch.tensor([0, 0, 1, 1, 0, 0], dtype=torch.bool), torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool),
                temperature,
            )  # fmt: skip
            # A batch that is the whole task brings the whole memory along.
            learner.memory.seen_ = learner.memory.drawn_ = 0
            torch.testing.assert_close(learner.loss(task.x, task.y).detach(), expected.mean())
            break
        learner.end_task(task)


def trained(name, upto, **fields):
    learner = build(name, tasks(), hidden=(32,), memory={"per_class": 4}, **fields)
    for task in tasks():
        learner.begin_task(task)
        for x, y in zip(task.x.split(8), task.y.split(8), strict=True):
            learner.observe(x, y)
        learner.end_task(task)
        if task.info.index == upto:
            return learner
    raise AssertionError


def test_a_sample_belongs_to_the_nearest_mean_of_exemplars():
    learner = trained("icarl", upto=1)
    x = torch.rand(20, 6, 6, generator=torch.Generator().manual_seed(1)) * 2
    scores = learner.predict(x)
    assert scores.shape == (20, 6)
    assert (scores[:, 4:] == -torch.inf).all()  # not seen yet
    with torch.no_grad():
        features = learner.net.body(x)
        for i in range(20):
            for c in range(4):
                rows = learner.net.body(learner.memory.x[learner.memory.y == c])
                mean = sum(row / row.norm() for row in rows) / len(rows)
                gap = features[i] / features[i].norm() - mean / mean.norm()
                torch.testing.assert_close(scores[i, c], -gap.norm(), atol=2e-4, rtol=1e-4)


def test_the_mean_of_directions_is_not_the_direction_of_the_mean():
    features, y = torch.tensor([[10.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1])
    means = class_means(features, y, 3)
    torch.testing.assert_close(means[1], torch.full((2,), 0.5**0.5))
    assert means[[0, 2]].eq(0).all()


def test_hybrid_1_answers_by_the_network_and_learns_the_same():
    one, two = trained("icarl", upto=2), trained("icarl_hb1", upto=2)
    for key, value in one.net.state_dict().items():
        assert torch.equal(value, two.net.state_dict()[key])
    x = torch.rand(7, 6, 6)
    torch.testing.assert_close(two.predict(x), two.net(x).detach())


def test_before_any_exemplar_nothing_can_be_answered():
    assert (build("icarl", tasks()).predict(torch.rand(2, 6, 6)) == -torch.inf).all()


def test_it_remembers_what_vanilla_forgets():
    stream = split(blobs(), 2)
    runs = {
        name: protocol.run(stream, build(name, stream, hidden=(32,), learning_rate=5e-3), epochs=6, batch_size=16)
        for name in ("vanilla", "icarl")
    }
    assert runs["icarl"].R[-1].mean() > runs["vanilla"].R[-1].mean() + 0.3
