"""Uncertainty measured on every task after each, against the learner asked by hand."""

import math

import pytest
import torch

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.data.streams import split
from vestige.metrics.uncertainty import unseen_task_roc

SCALARS = {"mutual_information", "predictive_entropy", "expected_entropy", "ece"}


@pytest.mark.parametrize(
    ("options", "outputs"),
    [
        ({"train_logits": "all"}, range(6)),
        ({"train_logits": "seen"}, range(6)),
        ({"head": "multi", "train_logits": "current"}, None),
    ],
)
def test_the_last_row_is_what_the_learner_says_at_the_end(options, outputs):
    stream = split(blobs(), 2, **options)
    learner = build("ensemble", stream, hidden=(8,), members=3, seed=3)
    record = protocol.run(stream, learner, epochs=2, uncertainty=True)
    for j, test in enumerate(stream.test_sets()):
        p = learner.posterior_log_p(test.x, outputs=list(outputs or test.outputs)).exp().double()
        predictive, expected = torch.special.entr(p.mean(0)).sum(-1), torch.special.entr(p).sum(-1).mean(0)
        assert float(record.values["predictive_entropy"][-1, j]) == pytest.approx(float(predictive.mean()), rel=1e-5)
        mutual = float((predictive - expected).mean())
        assert float(record.values["mutual_information"][-1, j]) == pytest.approx(mutual, rel=1e-3, abs=1e-7)
    many = bool((record.values["predictive_entropy"][0] > math.log(3)).all())
    assert many is (options["train_logits"] == "all")  # after one task of two classes
    assert all(record.values[name].shape == (3, 3) for name in SCALARS)
    assert record.values["reliability_count"].shape == (3, 3, 10)
    assert bool((record.values["reliability_count"].sum(-1) == 40).all())


def test_before_a_task_only_outputs_that_trained_take_part():
    stream = split(blobs(), 2, train_logits="seen")
    record = protocol.run(stream, build("ensemble", stream, hidden=(8,), members=3), uncertainty=True)
    most = torch.tensor([2.0, 4.0, 6.0]).log()  # the entropy of a fair choice among the outputs so far
    assert bool((record.values["predictive_entropy"] <= most[:, None] + 1e-9).all())
    assert bool((record.values["predictive_entropy"][2] > most[0]).any())


def test_the_stored_matrix_goes_into_the_detector(tmp_path):
    stream = split(blobs(), 2, train_logits="all")
    learner = build("vcl", stream, hidden=(8,), train_samples=2, test_samples=5, fit_steps=3)
    record = protocol.run(stream, learner, uncertainty=True)
    again = Record.load(record.save(tmp_path))
    torch.testing.assert_close(again.values["mutual_information"], record.values["mutual_information"])
    assert 0 <= unseen_task_roc(again.values["mutual_information"], pairs="all").auc <= 1


def test_it_is_off_by_default_changes_no_accuracy_and_is_refused_where_scores_are_no_probabilities():
    records = []
    for asked in (False, True):
        stream = split(blobs(), 2)
        records.append(protocol.run(stream, build("vanilla", stream, hidden=(8,)), uncertainty=asked))
    plain, asked = records
    assert plain.values == {}
    assert set(asked.values) & SCALARS == {"predictive_entropy", "ece"}
    assert torch.equal(plain.R, asked.R)
    assert plain.id != asked.id
    with pytest.raises(InputError, match=r"'uncertainty' of protocol\.run must be False"):
        protocol.run(split(blobs(), 2), build("icarl", split(blobs(), 2)), uncertainty=True)


def test_a_run_that_was_interrupted_has_the_same_matrices(tmp_path):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.task == 2:
            raise Stop

    def run(**options):
        stream = split(blobs(), 2)
        learner = build("mc_dropout", stream, hidden=(8,), test_samples=4)
        return protocol.run(stream, learner, uncertainty=True, **options)

    with pytest.raises(Stop):
        run(checkpoint=tmp_path, on_progress=stop)
    whole, resumed = run(), run(checkpoint=tmp_path)
    for name, value in whole.values.items():
        torch.testing.assert_close(resumed.values[name], value, equal_nan=True, atol=0, rtol=0)
