"""Traces: rows are recognised wherever they are kept or trained on, and nothing else is."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from toys import blobs
from vestige import data
from vestige.continual.audit import Traces, WatchedLearner, audit, fingerprints, tensors_in
from vestige.continual.learners import METHODS, build
from vestige.continual.learners.frozen import FrozenFeatures
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.learners.vcl import VCLCoreset
from vestige.core import rng
from vestige.data.streams import split

X = torch.rand(50, 4, 4, generator=rng.fork(0, "x"))


def test_a_row_has_one_fingerprint_in_any_batch_and_shape():
    assert len(fingerprints(X)) == 50
    assert fingerprints(X[7:9].flatten(1)) <= fingerprints(X)
    assert fingerprints(X.transpose(1, 2)) & fingerprints(X) == set()
    nearly = X.clone()
    nearly[:, 0, 0] = torch.nextafter(X[:, 0, 0], torch.tensor(2.0))
    assert fingerprints(nearly) & fingerprints(X) == set()
    assert fingerprints(torch.zeros(3, 16)) == set()


def test_tensors_are_found_wherever_they_hang():
    a, b, c, d = (torch.rand(2) for _ in range(4))
    thing = SimpleNamespace(one=[a, (b,)], two={"c": SimpleNamespace(c=c)}, memory=SimpleNamespace(d=d), name="word")
    thing.itself = thing
    found = list(tensors_in(thing, skip=thing.memory))
    assert {id(t) for t in found} == {id(a), id(b), id(c)}


def test_copies_are_counted_in_samples_and_bytes():
    traces = Traces(16)
    traces.begin(X[:30])
    traces.begin(X[30:])
    holder = SimpleNamespace(kept=X[:5].clone(), weight=torch.rand(9, 16), late=X[48:].double())
    assert traces.copies(holder) == (7, 5 * 16 * 4 + 2 * 16 * 8)
    assert traces.copies(SimpleNamespace(kept=torch.full((5, 4, 4), torch.nan))) == (0, 0)


def test_only_rows_of_the_past_that_train_count():
    traces, net = Traces(16), nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    traces.begin(X[:30])
    traces.begin(X[20:])  # ten of the first task come again
    with traces.watching():
        net(X[20:])
        assert traces.again == set()
        with torch.no_grad():
            net(X[:20])
        assert traces.again == set()
        net(X[:7])
        assert traces.again == fingerprints(X[:7])
    net(X[7:20])
    assert len(traces.again) == 7, "outside of the block nobody looks"


class Thief(Vanilla):
    """Copies what it sees, past its memory, and never uses it."""

    def end_task(self, task):
        self.loot = [*getattr(self, "loot", []), task.x[:4].clone()]
        super().end_task(task)


class Reference(Vanilla):
    """Keeps the task itself, whose data the stream destroys."""

    def end_task(self, task):
        self.kept_task = task
        super().end_task(task)


@pytest.fixture
def stream():
    return split(blobs(), 2)


def with_learner(kind, stream):
    like = build("vanilla", stream, hidden=(8,))
    return kind(like.spec, like.config)


def test_copies_beside_the_memory_are_found(stream):
    found = audit(stream, with_learner(Thief, stream))["no_retraining"]
    assert found.verdict == "fails"
    assert found.numbers == {"samples": 12.0, "bytes": 12 * 36 * 4.0}
    assert "outside of the memory" in found.evidence
    assert "trained on again" not in found.evidence


def test_a_reference_to_data_that_was_withdrawn_is_no_copy(stream):
    assert audit(stream, with_learner(Reference, stream))["no_retraining"].verdict == "holds"


RETRAIN = {"agem", "coreset_only", "der_pp", "er", "gdumb", "gem", "icarl", "icarl_hb1", "joint", "vcl_coreset"}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_in_its_memory_alone_and_trains_again_only_if_it_must(name, stream):
    small = {} if issubclass(METHODS[name], FrozenFeatures) else {"hidden": (8,)}
    if name.startswith(("vcl", "coreset")):
        small |= {"train_samples": 1, "test_samples": 1, "fit_steps": 2}
    if name.startswith("vgr"):
        small |= {"test_samples": 1, "replay": {"generator": "gan_dense", "options": {"widths": (8,), "epochs": 2}}}
    if name in ("dgr", "weighted_replay"):
        small |= {"replay": {"options": {"encoder": (8,), "decoder": (8,), "steps": 5, "collapse": 0.0}}}
    if name in ("vcl_coreset", "coreset_only"):
        small |= {"coreset": 3, "coreset_steps": 1}
    from vestige.continual import protocol

    watched = WatchedLearner(build(name, stream, **small), stream, seed=0)
    record = protocol.run(stream, watched)
    facts = watched.facts(record)
    assert watched.traces.copies(watched.learner, skip=watched.learner.memory) == (0, 0)
    rehearses = name in RETRAIN or name.endswith("_s")
    assert facts.retrains == rehearses
    assert bool(facts.kept_samples) == rehearses
    assert bool(facts.kept_bytes) == rehearses


def test_a_reservoir_that_trains_again_is_found_without_borders():
    stream = data.blurred(blobs())
    memory = {"fill": "reservoir", "per_class": None, "total": 12, "replay": "beside"}
    kept = audit(stream, build("vanilla_s", stream, hidden=(8,), memory=memory))["no_retraining"]
    assert kept.numbers["samples"] == 12
    assert "trained on again" in kept.evidence
    assert audit(stream, build("vanilla", stream, hidden=(8,)))["no_retraining"].verdict == "holds"


def test_a_coreset_that_is_fitted_at_once_is_retraining_too(stream):
    fields = {"hidden": (8,), "train_samples": 1, "test_samples": 1, "fit_steps": 2, "coreset": 5, "coreset_steps": 2}
    found = audit(stream, build("vcl_coreset", stream, **fields))["no_retraining"]
    assert "10 of their samples" in found.evidence  # five of each of the two tasks that came before the last
    assert isinstance(build("vcl_coreset", stream), VCLCoreset)
