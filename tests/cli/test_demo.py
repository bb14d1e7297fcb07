"""`vestige demo`, with one pass over the data instead of twenty: tables, JSON, Records on disk."""

import json

import pytest

from vestige import demo
from vestige.cli import main
from vestige.record import Record


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 1)


def test_a_matrix_for_each_method_and_one_conclusion(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for text in ("joint: accuracy", "vanilla: accuracy", "8/9", "BWT"):
        assert text in out
    assert out.splitlines()[-1].startswith("Trained on without its old data, the network knows ")
    stored = [Record.load(path) for path in tmp_path.glob("*.json")]
    assert len(stored) == 2


def test_the_same_seed_gives_the_same_json(capsys):
    answers = []
    for seed in ("3", "3", "4"):
        assert main(["demo", "--json", "--seed", seed]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["vanilla"]["matrix"] != answers[2]["vanilla"]["matrix"]
    assert answers[0]["vanilla"]["last"]["intransigence"] is not None
    assert answers[0]["joint"]["last"]["intransigence"] is None
