"""The second part is `protocol.run` under an audit, and nothing else."""

import pytest
import torch

from vestige import data
from vestige.cli.demo.jobs import LEARNERS, REFERENCE
from vestige.continual import protocol
from vestige.continual.learners import build


@pytest.fixture
def records(demo_run):
    return demo_run.found.records


def test_every_learner_has_an_audit_and_the_same_reference(records):
    assert list(records) == [REFERENCE, *LEARNERS]
    for name in LEARNERS:
        assert records[name].audit is not None
        assert torch.equal(records[name].reference, records[REFERENCE].R.diagonal())


@pytest.mark.parametrize("method", ["vanilla", "rwalk_s"])
def test_the_matrix_is_that_of_the_protocol(records, method):
    stream = data.permuted(data.load("digits"), 2, seed=3)
    by_hand = protocol.run(stream, build(method, stream, seed=3, hidden=(16,)), seed=3, batch_size=32)
    assert torch.equal(records[method].R, by_hand.R)


def test_the_learner_that_keeps_samples_is_told_so(records):
    verdicts = {name: records[name].audit["answers"]["no_retraining"]["verdict"] for name in LEARNERS}
    assert verdicts["rwalk_s"] == "fails"
    assert verdicts["vanilla"] == "holds"
