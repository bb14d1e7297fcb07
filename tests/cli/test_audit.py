"""`vestige audit` from the file to the exit code."""

import dataclasses
import json

import pytest

from toys import blobs
from vestige.cli import main
from vestige.continual.audit import audited_run
from vestige.continual.learners import build
from vestige.data.streams import split

GOOD = """[evaluation]
name = "Mine"
tasks = 5
shared_head = true
labels_at_test = false
kept_samples = 0
retrains = false
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "e.toml").write_text(text)
        return str(tmp_path / "e.toml")

    return write


def test_a_description_as_a_table_a_paragraph_and_json(file, capsys):
    path = file(GOOD)
    assert main(["audit", path]) == 0
    shown = capsys.readouterr().out
    assert "More than two tasks" in shown
    assert "not measured" in shown
    assert main(["audit", path, "--paragraph"]) == 0
    assert capsys.readouterr().out.startswith("We audited the evaluation 'Mine'")
    assert main(["audit", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == []
    assert found["answers"]["many_tasks"]["verdict"] == "holds"


def test_strict_has_an_exit_code_for_scripts(file, capsys):
    assert main(["audit", file(GOOD), "--strict"]) == 0
    assert main(["audit", file(GOOD.replace("tasks = 5", "tasks = 2")), "--strict"]) == 1
    assert "many_tasks" in capsys.readouterr().err


def test_a_record_is_audited(tmp_path, capsys):
    stream = split(blobs(), 2)
    path = audited_run(stream, build("vanilla", stream, hidden=(8,))).save(tmp_path)
    from vestige.continual.record import load_all, save_all

    packed = save_all(load_all(path), tmp_path / "many" / "one.jsonl")
    for same in (packed, packed.parent):
        assert main(["audit", str(same)]) == 0
    capsys.readouterr()
    assert main(["audit", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subject"].startswith("Vanilla on")


@pytest.mark.parametrize(("name", "words"), [("x.csv", "must be Records"), ("missing.toml", "missing.toml")])
def test_other_files_are_refused(tmp_path, capsys, name, words):
    (tmp_path / "x.csv").touch()
    assert main(["audit", str(tmp_path / name)]) == 2
    assert words in capsys.readouterr().err


def test_a_bad_description_names_line_and_field(file, capsys):
    assert main(["audit", file(GOOD.replace("tasks = 5", "tasks = -5"))]) == 2
    assert "line 3" in capsys.readouterr().err


@pytest.fixture
def two_arms(monkeypatch):
    """An experiment of two short arms under its own name."""
    from vestige.runner.registry import EXPERIMENTS
    from vestige_papers.robust.audit import HEADS, PLAIN, SPLIT, RobustAudit

    class Short(RobustAudit):
        def arms(self, config):
            pairs = ((HEADS, PLAIN), (SPLIT, "vanilla_s"))
            return [dataclasses.replace(config, stream=s, method=m) for s, m in pairs]

    monkeypatch.setitem(EXPERIMENTS, "short", Short())


def test_every_arm_of_an_experiment_is_trained_and_watched(two_arms, capsys):
    assert main(["audit", "short", "--preset", "smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["split, a head each", "split"]
    assert {"shared_head", "no_task_labels"} <= set(found["split, a head each"]["failed"])
    assert found["split"]["answers"]["no_retraining"]["numbers"]["samples"] == 100


def test_an_experiment_as_a_table_with_evidence_for_what_fails(two_arms, capsys):
    assert main(["audit", "short", "--preset", "smoke", "--strict"]) == 1
    shown = capsys.readouterr()
    assert "What fails of the five desiderata" in shown.out
    assert "100 samples of past tasks are kept" in shown.out
    assert "digits in place of MNIST" in shown.err
    assert "split, a head each: " in shown.err


def test_one_arm_of_an_experiment_has_the_whole_table(two_arms, capsys):
    assert main(["audit", "short", "--preset", "smoke", "--arm", "head"]) == 0
    shown = capsys.readouterr().out
    assert "Vanilla on split digits" in shown
    assert "More than two tasks" in shown
    assert main(["audit", "short", "--preset", "smoke", "--arm", "head", "--paragraph"]) == 0
    assert capsys.readouterr().out.startswith("We audited the evaluation 'Vanilla on split digits'")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["shord"], "'short'"),
        (["cdre-fig2a"], "must train learners on a stream of tasks"),
        (["short", "--arm", "nobody"], "'arm'"),
        (["short", "--seed", "-1"], "'seed'"),
        (["e.toml", "--preset", "smoke"], "for experiments"),
    ],
)
def test_misuse_of_names_and_options_is_one_sentence(two_arms, capsys, argv, words):
    assert main(["audit", *argv]) == 2
    assert words in capsys.readouterr().err


def test_help_says_what_it_takes_and_which_exit_codes_there_are(capsys):
    assert main(["audit", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in (
        "Records (.json, .jsonl or a folder)",
        "[evaluation]",
        "the name of an experiment",
        "Exit codes: 0",
        "1 --strict",
    ):
        assert words in shown
