"""The document says what the Records say, and nothing else."""

import pytest

from dice import Dice
from vestige import runner
from vestige.cli import main
from vestige.errors import InputError
from vestige.experiments import EXPERIMENTS
from vestige.report import reproductions


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path, preset="paper")))
    return tmp_path


def test_measured_stands_beside_published_with_command_and_verdict(folder):
    text = reproductions(folder)
    mean = Dice().lines([f.record for f in runner.run(runner.plan("dice", folder, preset="paper"))])[0]
    assert f"| die | mean | 3.500 | {mean.ours:.3f} | {mean.se:.3f} | 3 |" in text
    assert "**reproduced.** by the mean" in text
    assert "`vestige run dice --preset paper --seeds 3`; 3 Records" in text
    assert "Rule: reproduced if within a tenth" in text
    assert "leaves out" not in text


def test_the_same_records_give_the_same_document(folder):
    assert reproductions(folder) == reproductions(folder)


def test_the_shell_writes_it(folder, tmp_path, capsys):
    target = tmp_path / "R.md"
    assert main(["report", str(folder), "--reproductions", "-o", str(target)]) == 0
    assert target.read_text() == reproductions(folder)
    assert str(target) in capsys.readouterr().out


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="must hold Records"):
        reproductions(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert "--reproductions" in capsys.readouterr().err
