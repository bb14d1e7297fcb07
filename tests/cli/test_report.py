"""`vestige report` from the command to the files."""

import json

import pytest

from dice import Dice
from runner.report.planted import bare
from vestige import runner
from vestige.cli import main
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import gather


@pytest.fixture
def runs(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path / "runs", preset="paper")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_and_its_files_are_written_where_runs_are(runs, capsys):
    assert main(["report"]) == 0
    shown = capsys.readouterr().out
    assert (
        "Table 0 is reproduced: its claim holds. Without any one of the 3 seeds the same claims hold. Holds:" in shown
    )
    assert "report/index.html" in shown
    text = (runs / "report" / "index.html").read_text()
    assert "vestige run dice --preset paper --seeds 3" in text
    assert len(text) < 100_000
    assert "die,mean,3.5," in (runs / "report" / "tables" / "01-table-0.csv").read_text()


def test_records_can_be_named_and_json_tells_where_everything_is(runs, capsys):
    path = next((runs / "runs" / "dice").glob("*.json"))
    assert main(["report", str(path), "-o", "mine.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == "mine.html"
    assert (runs / "mine.html").exists()
    assert all((runs / table).exists() for table in found["tables"])
    assert found["conclusion"].startswith("Table 0 is preliminary, with 1 of 3 seeds: ")


def test_the_page_can_stand_alone(runs, capsys):
    assert main(["report", "runs", "--page-only", "-o", "alone"]) == 0
    assert [path.name for path in (runs / "alone").iterdir()] == ["index.html"]
    assert "files of" not in capsys.readouterr().out


@pytest.mark.slow
def test_several_experiments_make_an_index_and_a_page_each(runs, capsys):
    bare().save(runs / "runs" / "mine")
    assert main(["report"]) == 0
    shown = capsys.readouterr()
    assert "1 experiment: 1 reproduced" in shown.out
    assert "Written to report/index.html, with a page for each of 2." in shown.out
    names = {path.name for path in (runs / "report").iterdir()}
    assert names == {"index.html", "dice.html", "split-digits-single-head.html"}

    assert main(["report", "--files", "--json", "-o", "whole.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == "whole.html"
    assert found["pages"] == ["whole/dice.html", "whole/split-digits-single-head.html"]
    assert all((runs / path).stat().st_size for path in (*found["pages"], *found["figures"], *found["tables"]))
    assert any(path.startswith("whole/split-digits-single-head/figures/") for path in found["figures"])


def test_two_runs_side_by_side(runs, capsys):
    for name, last in (("old", 0.2), ("new", 0.5)):
        for seed in range(3):
            bare(name, seed, last + 0.01 * seed).save(runs / name)
    assert main(["report", "--compare", "old", "new", "--page-only"]) == 0
    assert "(new less old, at 95%)" in capsys.readouterr().out
    assert "3 paired" in (runs / "report" / "index.html").read_text()


def test_equal_names_are_told_apart_by_their_paths(runs):
    for side in ("a", "b"):
        bare(side).save(runs / side / "same")
    assert main(["report", "--compare", "a/same", "b/same", "--page-only"]) == 0
    assert "a/same beside b/same" in (runs / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nowhere"], "must be a Record or a folder of Records"),
        (["empty"], "'empty' must hold Records"),
        (["--compare", "runs"], "must be two. Got 1"),
        (["--compare", "runs", "empty"], "'empty' must hold Records"),
        (["--compare", "--reproductions"], "Got both instead"),
        (["--compare", "--pack", "kept"], "must be --compare or --pack. Got both instead"),
        (["bare", "--pack", "kept"], "must be Records of experiments. Got the run"),
        (["--page-only", "--files"], "must be --page-only or --files. Got both instead"),
        (["--reproductions", "runs", "empty"], "must be one folder. Got 2"),
        (["--compare", "runs", "bare"], "must have the same quantities"),
    ],
)
def test_misuse_is_one_sentence_and_writes_nothing(runs, capsys, argv, words):
    (runs / "empty").mkdir()
    bare().save(runs / "bare")
    assert main(["report", *argv]) == 2
    assert words in capsys.readouterr().err
    assert not (runs / "report").exists()
    assert not (runs / "REPRODUCTIONS.md").exists()
    assert not (runs / "kept").exists()


def test_finished_runs_are_packed_into_one_file_an_experiment(runs, capsys):
    before = gather(["runs"])
    for _ in range(2):  # the second time nothing is new
        assert main(["report", "--pack", "kept"]) == 0
        assert "kept/dice.jsonl" in capsys.readouterr().out
        assert [path.name for path in (runs / "kept").iterdir()] == ["dice.jsonl"]
        assert [record.id for record in gather(["kept"])] == [record.id for record in before]
    assert main(["report", "kept", "--page-only", "-o", "again.html"]) == 0
    assert main(["report", "--compare", "kept/dice.jsonl", "runs", "--page-only"]) == 0
