"""Vanilla on Split MNIST, MLP 256-256, Adam 1e-3, batch 64, one epoch: where it must land, by which outputs train."""

import pytest

import have
from vestige import data
from vestige.continual import protocol
from vestige.continual.learners import build

pytestmark = [pytest.mark.data, pytest.mark.slow]


def mean_accuracies(train_logits, seeds):
    stream = data.split(data.load("mnist", download=False), 2, train_logits=train_logits)
    records = [protocol.run(stream, build("vanilla", stream, seed=s), seed=s) for s in range(seeds)]
    return {head: sum(float(r.matrices[head][-1].mean()) for r in records) / seeds for head in ("single", "multi")}


def test_all_outputs(mnist_here):
    found = mean_accuracies("all", 2)
    assert 0.19 <= found["single"] <= 0.20
    assert 0.60 <= found["multi"] <= 0.90


def test_current_outputs_alone(mnist_here):
    found = mean_accuracies("current", 10)  # one seed is worth little: they run from 33 to 46 %
    assert 0.38 <= found["single"] <= 0.42


@pytest.fixture
def mnist_here():
    have.data_set("mnist")
