"""`vestige run` from the command to the table."""

import json

import pytest

from dice import Dice
from vestige.cli import main
from vestige.experiments import EXPERIMENTS


@pytest.fixture
def dice(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())


def answer(argv, capsys):
    assert main(["run", *argv, "--workers", "0", "--json"]) == 0
    return json.loads(capsys.readouterr().out)[0]


def test_it_runs_every_seed_and_judges(dice, tmp_path, capsys):
    found = answer(["dice", "--preset", "paper", "--out", str(tmp_path)], capsys)
    assert len(found["records"]) == len(list((tmp_path / "dice").glob("*.json"))) == 3
    assert found["lines"][0]["paper"] == 3.5
    assert found["lines"][0]["n"] == 3
    assert found["verdict"]["word"] == "reproduced"
    stored = json.loads(next((tmp_path / "dice").glob("*.json")).read_text())["fields"]
    assert stored["details"]["command"] == "run dice --preset paper --seeds 3"


def test_fields_can_be_set(dice, tmp_path, capsys):
    found = answer(["dice", "--set", "bias=10", "--set", "throws=50", "--seeds", "1", "--out", str(tmp_path)], capsys)
    assert found["verdict"]["word"] == "not"
    assert 10 < found["lines"][0]["ours"] < 17


def test_the_table_says_what_was_left_out(dice, tmp_path, capsys):
    assert main(["run", "dice", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "nearly all throws" in shown
    assert "paper" in shown
    assert "Rule: reproduced if within a tenth" in shown


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "needs the name of an experiment"),
        (["dise"], "'dice'"),
        (["dice", "--set", "bias"], "FIELD=VALUE"),
        (["dice", "--set", "bios=1"], "bias"),
        (["dice", "--set", "bias=high"], "must be float"),
        (["dice", "--seeds", "0"], "'seeds'"),
        (["dice", "--workers", "-1"], "'workers'"),
    ],
)
def test_misuse_is_one_sentence_and_writes_nothing(dice, tmp_path, capsys, argv, words):
    assert main(["run", *argv, "--out", str(tmp_path / "runs")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
