"""Shares counted by hand, and a classifier whose answers are known."""

import pytest
import torch

from toys import blobs
from vestige.core.errors import InputError
from vestige.features import Classifier
from vestige.generators.labels import label_accuracy, label_confusion, shares


def test_shares_are_counts_by_row():
    asked = torch.tensor([0, 0, 0, 0, 2, 2])
    called = torch.tensor([0, 1, 0, 0, 1, 2])
    found = shares(called, asked, 3)
    assert found[0].tolist() == [0.75, 0.25, 0]
    assert bool(found[1].isnan().all())
    assert found[2].tolist() == [0, 0.5, 0.5]


@pytest.fixture(scope="module")
def judged():
    data = blobs(n_classes=3, per_class=60)
    return Classifier(dims=8, epochs=15, batch_size=30).fit(data.floats(data.train_x), data.train_y), data


def test_real_test_rows_are_taken_for_what_they_are_and_mixed_ones_by_share(judged):
    judge, data = judged
    x = {c: data.test_x[data.test_y == c] for c in range(3)}
    assert label_accuracy(x, judge) == {0: 1.0, 1: 1.0, 2: 1.0}
    mixed = torch.cat([x[0][:15], x[2][:5]])
    assert label_accuracy({0: mixed}, judge) == {0: 0.75}
    found = label_confusion({0: mixed}, judge)
    assert found[0].tolist() == [0.75, 0, 0.25]
    assert bool(found[1:].isnan().all())
    assert float(found.isnan().logical_not().sum()) == 3


def test_the_judge_calls_what_its_network_says(judged):
    judge, data = judged
    x = data.floats(data.test_x)
    with torch.no_grad():
        expected = judge.net_(x.unsqueeze(1)).argmax(1)
    assert torch.equal(judge.called(judge(x)), expected)


def test_what_cannot_be_judged_is_refused(judged):
    judge, data = judged
    for bad in ({}, {3: data.test_x}, {0: data.test_x[:, :4]}, {0: data.test_x[:0]}):
        with pytest.raises(InputError, match="'samples"):
            label_accuracy(bad, judge)
