"""`vestige audit` from the file to the exit code."""

import json

import pytest

from toys import blobs
from vestige.audit import audited_run
from vestige.cli import main
from vestige.data.split import split
from vestige.methods import build

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
    assert main(["audit", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subject"].startswith("Vanilla on")


@pytest.mark.parametrize(("name", "words"), [("x.csv", "must be a Record"), ("missing.toml", "missing.toml")])
def test_other_files_are_refused(tmp_path, capsys, name, words):
    (tmp_path / "x.csv").touch()
    assert main(["audit", str(tmp_path / name)]) == 2
    assert words in capsys.readouterr().err


def test_a_bad_description_names_line_and_field(file, capsys):
    assert main(["audit", file(GOOD.replace("tasks = 5", "tasks = -5"))]) == 2
    assert "line 3" in capsys.readouterr().err
