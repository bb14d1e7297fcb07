"""The audit: each verdict on evidence that is planted, and on streams and methods whose faults are known."""

import dataclasses
import json
import math
import os

import pytest
import torch
from scipy.stats import linregress

import have
from toys import blobs
from vestige import data
from vestige.continual import checkpoint, protocol
from vestige.continual.audit import (
    DESIDERATA,
    QUESTIONS,
    Audit,
    Facts,
    WatchedLearner,
    audit,
    audit_of,
    audited_run,
    described,
    from_record,
)
from vestige.continual.desiderata import COMPARISON, grows, grows_exactly, growth
from vestige.continual.learners import build
from vestige.continual.learners.base import Spec
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.learners.vcl import CoresetConfig, VCLCoreset
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.errors import InputError, StoreError
from vestige.core.plain import plain
from vestige.data.streams import permuted, split, two_task

SMALL = {"hidden": (32,), "learning_rate": 3e-3}


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def verdicts(found):
    return {q: found[q].verdict for q in QUESTIONS}


def test_every_question_is_answered_in_order_and_survives_json():
    found = audit_of(Facts("nothing known"))
    assert list(found.answers) == [*QUESTIONS, *COMPARISON]
    assert set(verdicts(found).values()) == {"not measured"}
    assert from_record(Record({}, 0, audit=json.loads(json.dumps(plain(found))))) == found
    assert found.unknown == tuple(DESIDERATA)
    with pytest.raises(StoreError, match="no audit"):
        from_record(Record({}, 0, audit={"subject": "x", "answers": {}}))
    with pytest.raises(StoreError, match="'subject' of the stored Audit is missing"):
        from_record(Record({}, 0, audit={"answers": {}}))


@pytest.mark.parametrize(
    ("facts", "question", "verdict"),
    [
        ({"tasks": 2}, "many_tasks", "fails"),
        ({"tasks": 3}, "many_tasks", "holds"),
        ({"tasks": 19}, "long", "fails"),
        ({"tasks": 20}, "long", "holds"),
        ({"shared_head": True}, "shared_head", "holds"),
        ({"shared_head": False}, "shared_head", "fails"),
        ({"shared_head": False}, "no_task_labels", "fails"),
        ({"shared_head": True, "labels_at_test": False}, "no_task_labels", "holds"),
        ({"shared_head": True, "labels_at_test": True}, "no_task_labels", "fails"),
        ({"kept_samples": 0, "retrains": False}, "no_retraining", "holds"),
        ({"kept_samples": 1, "retrains": False}, "no_retraining", "fails"),
        ({"kept_samples": 0, "retrains": True}, "no_retraining", "fails"),
        ({"kept_samples": 0}, "no_retraining", "not measured"),
        ({"kept_bytes": 5}, "no_retraining", "fails"),
        ({"same_inputs": True}, "resemblance", "fails"),
        ({"same_inputs": False}, "resemblance", "not measured"),
        ({"borders_told": False}, "unclear_borders", "holds"),
        ({"borders_told": True}, "unclear_borders", "fails"),
        ({"continuous": True}, "continuous", "holds"),
        ({"overlapping": False}, "overlapping", "fails"),
        ({"seconds": [1.0, 1.01, 0.99, 1.0]}, "time", "holds"),
        ({"seconds": [1.0, 2.0, 3.0, 4.0]}, "time", "fails"),
        ({"seconds": [1.0, 2.0]}, "time", "not measured"),
        ({"seconds": [100.0, 101.0, 102.0, 103.0]}, "time", "holds"),
        ({"held_bytes": [1000.0, 2000.0, 3000.0]}, "memory", "fails"),
        ({"held_bytes": [3.244e6, 3.307e6, 3.370e6, 3.433e6, 3.496e6]}, "memory", "fails"),  # exact, 1.9 % a task
        ({"held_bytes": [5000.0, 5016.0, 5032.0, 5048.0]}, "memory", "holds"),  # the names of two outputs a task
        ({"held_bytes": [3000.0, 2000.0, 1000.0]}, "memory", "holds"),
        ({"held_bytes": [10.0, 10.0, 10.0]}, "memory", "holds"),
    ],
)
def test_a_planted_fact_decides_its_question(facts, question, verdict):
    assert audit_of(Facts("planted", **facts))[question].verdict == verdict


@pytest.mark.parametrize(
    ("difference", "p", "verdict"), [(0.3, 0.025, "holds"), (0.3, 0.075, "fails"), (0.01, 0.025, "fails")]
)
def test_resemblance_must_be_large_and_no_chance(difference, p, verdict):
    numbers = {"named_old": 0.5, "other_orders": 0.5 - difference, "difference": difference, "p": p}
    assert audit_of(Facts("planted", resemblance=numbers))["resemblance"].verdict == verdict


def test_the_evidence_says_whether_it_is_chance_or_too_little():
    def evidence(difference, p, **more):
        numbers = {"named_old": 0.5, "other_orders": 0.5 - difference, "difference": difference, "p": p}
        return audit_of(Facts("planted", resemblance=numbers, **more))["resemblance"].evidence

    assert "by chance" not in evidence(0.3, 0.025)
    numbers = {"named_old": 0.0, "other_orders": 0.0, "difference": 0.0, "p": 1.0, "sure_of_any": 0.012}
    assert "(any class: 1.2%)" in audit_of(Facts("unsure", resemblance=numbers))["resemblance"].evidence
    assert "no more than by chance" in evidence(0.01, 0.5)
    assert "hardly by chance, but by less than 2% of the inputs" in evidence(0.01, 0.025)


def test_inputs_that_are_declared_the_same_fail_whatever_a_rank_says():
    """One stream of permutations in twenty passes the test of ranks; what was measured is quoted beside it."""
    numbers = {"named_old": 0.4, "other_orders": 0.1, "difference": 0.3, "p": 0.025}
    assert audit_of(Facts("planted", resemblance=numbers))["resemblance"].verdict == "holds"
    found = audit_of(Facts("planted", resemblance=numbers, same_inputs=True))["resemblance"]
    assert found.verdict == "fails"
    assert "same inputs under a fixed map" in found.evidence
    assert "40.0% of its inputs are surely named an old class" in found.evidence
    assert found.numbers == numbers


def test_retraining_alone_does_not_claim_that_data_is_kept():
    found = audit_of(Facts("planted", retrains=True))["no_retraining"]
    assert found.evidence == "old tasks are trained on again"
    assert "some samples" in audit_of(Facts("planted", kept_bytes=5))["no_retraining"].evidence


def test_growth_is_the_least_squares_line():
    y = [3.0, 5.0, 4.0, 8.0]
    slope = float(torch.linalg.lstsq(torch.tensor([[1.0, i] for i in range(4)]), torch.tensor(y)[:, None]).solution[1])
    assert growth(y)["slope"] == pytest.approx(slope / 5)
    assert growth(y)["se"] == pytest.approx(linregress(range(4), y).stderr / 5)
    assert growth(y)["margin"] == pytest.approx(4.302653 * growth(y)["se"])  # Student's t, two degrees of freedom
    assert growth(y)["each"] == pytest.approx(slope)
    assert grows_exactly(growth([0.0, 257.0, 514.0]))
    assert not grows_exactly(growth([0.0, 256.0, 512.0]))
    assert not grows_exactly(growth([0.0, 900.0, 300.0, 1200.0])), "no line"
    assert grows(growth([1.0, 1.2, 1.3, 1.6, 1.7]))
    assert not grows(growth([1.0, 1.01, 1.02, 1.03, 1.04])), "below 2 % a task"
    assert not grows(growth([1.0, 1.3, 1.2, 1.5, 1.4])), "2.5 standard errors, of five tasks"
    noisy = growth([1.0, 1.5, 0.9, 1.4, 1.1])
    assert not grows(noisy)
    assert math.isnan(growth([1.0, 2.0])["slope"])


def shapes(near: float, seed=0):
    """Twelve classes of 16 x 16 patterns; each later pair is `near` the pair before it, the rest is its own."""
    generator = rng.fork(seed, "shapes")
    patterns = torch.rand(12, 256, generator=generator).round()
    for c in range(2, 12):
        keep = torch.rand(256, generator=generator) < near
        patterns[c] = torch.where(keep, patterns[c - 2], patterns[c])
    y = torch.arange(12).repeat_interleave(50)
    x = (patterns[y] + 0.3 * torch.randn(600, 256, generator=generator)).clamp(0, 1).reshape(-1, 16, 16)
    return data.DataSet("shapes", x, y, x.clone(), y.clone(), tuple("abcdefghijkl"), "none", "here")


class TestStreamsWithKnownFaults:
    def test_split_single_head_whose_tasks_are_alike_respects_all_five(self):
        stream = split(shapes(0.85), 2)
        found = audit(stream, build("vanilla", stream, **SMALL), epochs=20)
        assert found.failed == found.unknown == ()
        assert found["unclear_borders"].verdict == "fails"
        assert "0 of" in found["no_task_labels"].evidence

    def test_tasks_that_are_not_alike_are_flagged_for_resemblance(self):
        stream = split(shapes(0.0), 2)
        found = audit(stream, build("vanilla", stream, **SMALL), epochs=20)
        assert found.failed == ("resemblance",)

    def test_permuted_inputs_are_flagged_for_resemblance(self):
        stream = permuted(shapes(0.7), 4)
        found = audit(stream, build("vanilla", stream, **SMALL), epochs=10)
        assert found.failed == ("resemblance",)

    @pytest.mark.data
    @pytest.mark.slow
    def test_on_mnist_split_resembles_and_permuted_does_not(self):
        have.data_set("mnist")
        mnist = data.load("mnist")
        verdicts = {}
        for make in (split, permuted):
            stream = make(mnist, 2 if make is split else 5, per_class=1000)
            verdicts[make.__name__] = audit(stream, build("vanilla", stream, hidden=(100,)), epochs=3)["resemblance"]
        assert verdicts["split"].verdict == "holds"
        assert verdicts["permuted"].verdict == "fails"

    def test_multi_head_is_flagged_for_head_and_labels(self, digits):
        stream = split(digits, 2, head="multi")
        found = audit(stream, build("vanilla", stream, **SMALL), epochs=5)
        assert {"shared_head", "no_task_labels"} <= set(found.failed)

    def test_two_tasks_are_flagged_for_length(self, digits):
        stream = two_task(digits, digits)
        assert "many_tasks" in audit(stream, build("vanilla", stream, **SMALL), epochs=5).failed

    def test_a_coreset_and_a_memory_are_flagged_and_counted(self, digits):
        stream = split(digits, 2)
        spec = Spec(stream.input_shape, stream.n_outputs)
        fields = {"hidden": (16,), "train_samples": 2, "test_samples": 4, "fit_steps": 20}
        learner = VCLCoreset(spec, CoresetConfig(**fields, coreset=7, coreset_steps=2))
        found = audit(stream, learner)
        assert "no_retraining" in found.failed
        assert found["no_retraining"].numbers["samples"] == 35
        kept = audit(stream, build("vanilla_s", stream, memory={"per_class": 3}, **SMALL))
        assert kept["no_retraining"].numbers["samples"] == 30

    def test_per_task_coresets_are_flagged_for_retraining_by_label(self, digits):
        stream = split(digits, 2, head="multi")
        spec = Spec(stream.input_shape, stream.n_outputs)
        fields = {"hidden": (16,), "train_samples": 2, "test_samples": 4, "fit_steps": 5}
        found = audit(
            stream, VCLCoreset(spec, CoresetConfig(**fields, coreset=7, coreset_steps=1, coreset_fit="per_task"))
        )
        assert "chosen by its label" in found["no_retraining"].evidence
        assert found["no_task_labels"].verdict == "fails"
        assert not found["no_task_labels"].evidence.endswith("in 0 of 0 calls of predict")

    def test_an_oracle_is_flagged(self, digits):
        stream = split(digits, 5)
        found = audit(stream, build("joint", stream, **SMALL))
        assert "an oracle" in found["no_retraining"].evidence


class Curious(Vanilla):
    """Uses the task wherever it is told."""

    uses_task = True


class TestTaskLabels:
    """Detected from what `predict` was given, whatever the stream declares."""

    def audited(self, learner, stream, **told):
        watched = WatchedLearner(learner, stream, seed=0)
        record = protocol.run(stream, watched)
        if told:
            watched.predict(torch.rand(3, *stream.input_shape), **told)
        return audit_of(watched.facts(record))["no_task_labels"]

    def test_one_call_that_was_told_is_enough_on_a_stream_that_declares_none(self):
        stream = split(blobs(), 2)
        assert self.audited(build("vanilla", stream, hidden=(8,)), stream).verdict == "holds"
        found = self.audited(build("vanilla", stream, hidden=(8,)), stream, task=stream.info(0))
        assert found.verdict == "fails"
        assert "in 1 of " in found.evidence

    def test_labels_that_a_shared_head_is_offered_and_nobody_takes_do_not_count(self):
        stream = split(blobs(), 2, task_labels_at_test=True)
        learner = build("vanilla", stream, hidden=(8,))
        assert self.audited(learner, stream).verdict == "holds"
        assert self.audited(Curious(learner.spec, learner.config), stream).verdict == "fails"


def test_a_stretch_without_borders_is_looked_at_before_it_trains():
    """As many looks as stretches but the first, each with the stretch's own inputs; the same bits as unwatched."""
    stream = data.continuous(blobs(), 4)
    learner = build("vanilla", stream, hidden=(8,))
    watched = WatchedLearner(learner, stream, seed=0)
    record = protocol.run(stream, watched)
    assert [r.task for r in watched.looked] == [1, 2, 3]
    assert [r.n for r in watched.looked] == [min(stream.info(k).n, 250) for k in (1, 2, 3)]
    assert torch.equal(record.R, protocol.run(stream, build("vanilla", stream, hidden=(8,))).R)


def test_the_time_of_watching_is_not_the_learners(monkeypatch):
    """By a clock that each prediction moves on by one: forty looks before every task but the first."""
    stream = split(blobs(), 2)
    learner, now = build("vanilla", stream, hidden=(8,)), [0.0]
    answer = learner.predict

    def predict(x, task=None):
        now[0] += 1
        return answer(x, task)

    monkeypatch.setattr(learner, "predict", predict)
    monkeypatch.setattr("vestige.continual.audit.CLOCKS", {"train_cpu": lambda: now[0]})
    watched = WatchedLearner(learner, stream, seed=0)
    record = protocol.run(stream, watched)
    assert watched.own == {"train_cpu": [0.0, 40.0, 40.0]}
    planted = dataclasses.replace(record, seconds={"train_cpu": [10.0, 52.0, 30.0], "eval": [1.0] * 3})
    assert watched.cleared(planted).seconds == {"train_cpu": [10.0, 12.0, 0.0], "eval": [1.0] * 3}


def test_evidence_and_verdict_agree_where_the_protocol_picks_the_head(digits):
    stream = split(digits, 2, head="multi")
    found = audit(stream, build("vanilla", stream, **SMALL))["no_task_labels"]
    assert found.verdict == "fails"
    assert "0 of" not in found.evidence


def test_growth_is_known_where_no_borders_are_told(digits):
    stream = data.blurred(digits)
    assert audit(stream, build("vanilla", stream, **SMALL))["memory"].verdict == "holds"


def test_a_record_gives_time_and_the_learner_is_left_alone():
    stream = split(blobs(), 2)
    learner = build("vanilla", stream, hidden=(8,))
    record = protocol.run(stream, build("vanilla", stream, hidden=(8,)), epochs=2)
    before = learner.state_dict()
    found = audit(stream, learner, record)
    assert all(torch.equal(before[k], v) for k, v in learner.state_dict().items())
    assert found["time"].numbers["last"] == record.seconds["train_cpu"][-1]
    with pytest.raises(InputError, match="same stream"):
        audit(split(blobs(), 3), learner, record)


def test_a_record_of_another_learner_is_refused(tmp_path):
    stream = split(blobs(), 2)
    record = protocol.run(stream, build("vanilla", stream, hidden=(8,)))
    stored = Record.load(record.save(tmp_path))
    assert audit(stream, build("vanilla", stream, hidden=(8,)), stored).subject.startswith("Vanilla")
    for other in (build("ewc", stream, hidden=(8,)), build("vanilla", stream, hidden=(9,))):
        with pytest.raises(InputError, match="same learner"):
            audit(stream, other, stored)


def test_a_learner_that_was_trained_is_audited_as_it_was_before():
    """A memory that is full and a network that knows the tasks would both answer for another evaluation."""
    stream = split(blobs(), 2)
    learner = build("gem", stream, hidden=(8,))
    before = audit(stream, learner)
    protocol.run(stream, learner)
    after = audit(stream, learner)
    assert {q: before[q] for q in QUESTIONS if q != "time"} == {q: after[q] for q in QUESTIONS if q != "time"}


class Stopped(Exception):
    """An interruption."""


def test_a_watched_run_that_was_interrupted_gives_the_record_of_a_whole_one(tmp_path):
    """What was seen before the interruption is in no checkpoint."""

    def found(folder, stop=None):
        def heard(progress):
            if progress.task == stop:
                raise Stopped

        stream = split(blobs(), 2)
        with checkpoint.kept_in(folder):
            return audited_run(stream, build("gem", stream, hidden=(8,)), on_progress=heard)

    whole = found(tmp_path / "whole")
    with pytest.raises(Stopped):
        found(tmp_path / "broken", stop=2)
    again = found(tmp_path / "broken")
    assert torch.equal(whole.R, again.R)
    one, two = from_record(whole), from_record(again)
    assert {q: one[q] for q in QUESTIONS if q != "time"} == {q: two[q] for q in QUESTIONS if q != "time"}


def test_watching_changes_nothing():
    def stream():
        return split(blobs(), 2)

    one, two = build("ewc", stream(), hidden=(8,)), build("ewc", stream(), hidden=(8,))
    watched, alone = audited_run(stream(), one, seed=3), protocol.run(stream(), two, seed=3)
    assert torch.equal(watched.R, alone.R)
    assert watched.id == alone.id
    a, b = one.state_dict(), two.state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_the_record_carries_the_audit_and_a_bare_one_says_less(tmp_path):
    from vestige.continual import protocol

    stream = split(blobs(), 2)
    record = audited_run(stream, build("vanilla", stream, hidden=(8,)))
    again = from_record(Record.load(record.save(tmp_path)))
    assert again == from_record(record)
    bare = from_record(protocol.run(stream, build("vanilla_s", stream, hidden=(8,), memory={"per_class": 2})))
    assert bare["resemblance"].verdict == "not measured"
    assert bare["no_retraining"].verdict == "fails"
    assert bare["many_tasks"].verdict == "holds"
    with pytest.raises(InputError, match="nothing to audit"):
        from_record(Record({}, 0))


DESCRIPTION = """# a paper
[evaluation]
name = "Two-task transfer"
tasks = 2
shared_head = true
labels_at_test = false
kept_samples = 0
retrains = false
"""


def test_a_description_is_audited_and_names_its_lines(tmp_path):
    (tmp_path / "e.toml").write_text(DESCRIPTION)
    found = described(tmp_path / "e.toml")
    assert found.subject == "Two-task transfer"
    assert found.failed == ("many_tasks",)
    assert found.unknown == ("resemblance",)
    assert "declared in line 5" in found["shared_head"].evidence
    assert "Two-task transfer" in found.paragraph()
    assert "not measured" in found.paragraph()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tasks = 2", "tasks = two"), "not TOML"),
        (("tasks = 2", 'tasks = "two"'), "line 4.*'tasks' of an evaluation must be a whole number from 1"),
        (("tasks = 2", "tasks = 0"), "line 4.*'tasks'"),
        (("tasks = 2", "tasks = true"), "line 4.*'tasks'"),
        (("retrains = false", "retrains = 0"), "line 8.*true or false"),
        (("retrains", "retrain"), "line 8.*retrains"),
        (('name = "Two-task transfer"\n', ""), "'name' is missing"),
        (("[evaluation]", "[other]"), r"one table, \[evaluation\]"),
        (("retrains = false", "seconds = [1, -1]"), "line 8.*from 0 to"),
        (("retrains = false", "seconds = [1, 2, 3]"), "line 8.*'seconds'.*one a task, of which there are 2"),
        (("retrains = false", f"held_bytes = [1{'0' * 400}, 1]"), "line 8.*'held_bytes'"),
        (("kept_samples = 0", f"kept_samples = 1{'0' * 400}"), "line 7.*'kept_samples'"),
        (("kept_samples = 0", f"kept_samples = 1{'0' * 5000}"), "not TOML"),
        (("retrains = false", "seconds = []"), "line 8"),
        (("retrains = false", "seconds = [inf]"), "line 8"),
        (("retrains = false", f"seconds = {'[' * 5000}{']' * 5000}"), "fewer than 100 levels"),
        (("retrains = false", f"retrains = {'{a=' * 5000}1{'}' * 5000}"), "fewer than 100 levels"),
        (("retrains = false", f"{'a.' * 20_000}a = 1"), "fewer than 100 levels"),  # the parser takes minutes
        (("retrains = false", "retrains = false" + " " * 100_000), r"at most 100000 bytes\. Got 100"),
        (("[evaluation]", "\n".join(f"[x{i}]" for i in range(5000))), r"^.{,700}$"),
    ],
)
def test_a_bad_description_is_refused_by_line_and_field(tmp_path, change, words):
    (tmp_path / "e.toml").write_text(DESCRIPTION.replace(*change))
    with pytest.raises(InputError, match=words):
        described(tmp_path / "e.toml")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "e.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        described(tmp_path / "e.toml")


def test_a_description_in_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "e.toml")
    with pytest.raises(InputError, match=r"e\.toml' must be a regular file\. Got a pipe"):
        described(tmp_path / "e.toml")


class TestComparison:
    """What an audit says of the comparison that an evaluation is for."""

    def test_a_run_that_says_all_of_it(self):
        stream = split(blobs(), 2, scenario="domain")
        record = audited_run(stream, build("vanilla", stream, hidden=(4,)), budget=float("inf"), every=2, every_rows=5)
        found = from_record(record)
        assert found["scenario"].verdict == "holds"
        assert "domain-incremental" in found["scenario"].evidence
        assert found["compute"].evidence == "forward-backward passes are counted, 240 in all"
        assert found["while_training"].evidence == "tested between borders too, every 2 batches, on 5 rows a task"
        assert found["search"].verdict == "not measured"
        assert [row[0] for row in found.rows()][-4:] == ["comparison"] * 4

    def test_a_run_that_says_nothing_of_it(self):
        stream = split(blobs(), 2)
        found = from_record(audited_run(stream, build("vanilla", stream, hidden=(4,))))
        assert {q: found[q].verdict for q in ("compute", "while_training")} == dict.fromkeys(
            ("compute", "while_training"), "fails"
        )
        assert "at borders alone" in found.paragraph()

    @pytest.mark.parametrize(("seeds", "verdict"), [(1, "fails"), (3, "holds")])
    def test_a_search_with_few_seeds_fails(self, seeds, verdict):
        stream = split(blobs(), 2)
        record = protocol.run(stream, build("vanilla", stream, hidden=(4,)))
        tried = [{"set": {"lam": 1.0}, "scores": [0.5] * seeds, "records": [""] * seeds}]
        search = {"on": "every 20th training row", "chosen": {"lam": 1.0}, "tried": tried}
        found = from_record(dataclasses.replace(record, details={"search": search}))
        assert found["search"].verdict == verdict
        assert "every 20th training row" in found["search"].evidence

    def test_a_file_may_say_it(self, tmp_path):
        path = tmp_path / "e.toml"
        path.write_text('[evaluation]\nname = "x"\nscenario = "task"\nsearch_seeds = 0\ntests_while_training = false\n')
        found = described(path)
        assert found["scenario"].verdict == "holds"
        assert found["search"].evidence.startswith("settings were chosen on rows that are tested on")
        assert found["while_training"].verdict == "fails"
        path.write_text('[evaluation]\nname = "x"\nscenario = "other"\n')
        with pytest.raises(InputError, match="'scenario' of an evaluation must be one of class, task, domain"):
            described(path)

    def test_an_audit_that_was_stored_before_they_were_asked_is_read(self):
        full = audit_of(Facts("x"))
        old = Audit("x", {q: full[q] for q in QUESTIONS})
        assert len(old.rows()) == 11
