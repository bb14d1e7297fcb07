"""`vestige run` from the command to the table."""

import json

import numpy as np
import pytest

from dice import Dice
from vestige.cli import main
from vestige.runner.registry import EXPERIMENTS


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


def test_what_somebody_has_run_is_taken_over(dice, monkeypatch, tmp_path, capsys):
    first = answer(["dice", "--preset", "paper", "--seeds", "2", "--out", str(tmp_path / "theirs")], capsys)
    assert main(["report", str(tmp_path / "theirs"), "--pack", str(tmp_path / "packed")]) == 0
    capsys.readouterr()
    own = ["--preset", "paper", "--out", str(tmp_path / "own"), "--known", str(tmp_path / "packed")]
    assert main(["run", "dice", *own, "--workers", "0", "--json"]) == 0
    said = capsys.readouterr()
    assert "2 units were taken over from" in said.err
    found = json.loads(said.out)[0]
    assert set(first["records"]) < set(found["records"])
    # With another version nothing of theirs is what a run of today would make.
    monkeypatch.setattr(Dice, "version", 2)
    own[3] = str(tmp_path / "newer")
    assert main(["run", "dice", *own, "--workers", "0"]) == 0
    assert "0 units were taken over from" in capsys.readouterr().err


def test_fields_can_be_set(dice, tmp_path, capsys):
    found = answer(["dice", "--set", "bias=10", "--set", "throws=50", "--seeds", "1", "--out", str(tmp_path)], capsys)
    assert found["verdict"]["word"] == "preliminary"
    assert found["sentence"].startswith("preliminary, with 1 of 3 seeds and a hundredth of the throws: not so far")
    assert 10 < found["lines"][0]["ours"] < 17


def test_a_part_is_run_and_told_of_as_one(monkeypatch, dice, tmp_path, capsys):
    two = Dice.presets | {"laptop": Dice.presets["laptop"].__class__(sides=(6, 8))}
    monkeypatch.setattr(Dice, "presets", two)
    part = answer(["dice", "--only", "sides=[8]", "--out", str(tmp_path)], capsys)
    assert len(part["records"]) == 2
    assert "1 of 2 runs of a seed" in part["cut"]
    assert set(part["records"]) < set(answer(["dice", "--out", str(tmp_path)], capsys)["records"])


def test_files_of_ones_own_have_options(tmp_path, capsys):
    files = {"--real": 0.0, "--fake": 0.3}
    for option, mean in files.items():
        np.save(tmp_path / f"{option[2:]}.npy", np.random.default_rng(0).normal(mean, 1, (60, 2)))
    given = [word for option in files for word in (option, str(tmp_path / f"{option[2:]}.npy"))]
    small = ["--preset", "smoke", "--set", "n=20", "--set", "hidden=5", "--out", str(tmp_path / "runs")]
    found = answer(["lfiw-table1", *given, *small], capsys)
    assert {line["label"] for line in found["lines"]} == {"own files"}
    assert main(["run", "lfiw-table1", *given[:2], *small]) == 2
    assert "'fake' of lfiw-table1 must be given" in capsys.readouterr().err
    missing = ["--features", str(tmp_path / "none")]
    assert main(["run", "lfiw-table1", *given, *missing, *small]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_the_table_says_what_was_left_out(dice, tmp_path, capsys):
    assert main(["run", "dice", "--preset", "smoke", "--workers", "0", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "this ran with: 1 of 3 seeds; ten throws." in shown
    assert "No verdict: too small to judge." in shown
    assert "erdict: not" not in shown
    assert "paper" in shown
    assert "Rule: (a) the mean is within a tenth of 3.5. Reproduced if (a) holds" in shown


def test_a_known_cost_is_announced_for_what_is_left(monkeypatch, tmp_path, capsys):
    class Dear(Dice):
        """A die that says what it costs."""

        def cost(self, config):
            return config.throws * 3.0

    monkeypatch.setitem(EXPERIMENTS, "dice", Dear())
    argv = ["run", "dice", "--workers", "0", "--out", str(tmp_path)]
    assert main([*argv, "--seeds", "1"]) == 0
    assert "dice: 1 of 1 units are to be run, about 5 CPU-minutes." in capsys.readouterr().err
    assert main([*argv, "--seeds", "3"]) == 0
    assert "dice: 2 of 3 units are to be run, about 10 CPU-minutes." in capsys.readouterr().err
    assert main([*argv, "--seeds", "3"]) == 0
    assert "CPU-minutes" not in capsys.readouterr().err


def test_progress_is_json_lines_beside_the_answer(dice, tmp_path, capsys):
    assert main(["run", "dice", "--workers", "0", "--json", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.err.splitlines()]
    assert [e["event"] for e in events] == ["begun", "told", "finished"] * 2
    assert [e["record"] for e in events if e["event"] == "finished"] == json.loads(captured.out)[0]["records"]


def test_progress_is_lines_where_there_is_no_terminal(dice, tmp_path, capsys):
    argv = ["run", "dice", "--workers", "0", "--seeds", "3", "--out", str(tmp_path)]
    assert main(argv) == 0
    lines = capsys.readouterr().err.splitlines()
    said = [f"dice seed {seed} finished, mean {mean}" for seed, mean in means(tmp_path)]
    assert [line.partition("] ")[2] for line in lines] == said
    assert main(argv) == 0
    assert capsys.readouterr().err == ""  # nothing was run


def means(folder):
    """(seed, mean) of every Record, by seed."""
    found = [json.loads(path.read_text())["fields"] for path in (folder / "dice").glob("*.json")]
    return sorted((record["seed"], f"{record['values']['mean']:.4g}") for record in found)


@pytest.mark.slow
def test_a_grid_from_the_command_to_the_record(monkeypatch, tmp_path, capsys):
    from border import Border

    monkeypatch.setitem(EXPERIMENTS, "border", Border())
    argv = ["border", "--preset", "smoke", "--seeds", "1", "--set", "methods=vanilla,", "--out", str(tmp_path)]
    argv += ["--grid", "lr=1e-9,1e-2", "--grid", "epochs=1,3", "--workers", "0"]
    assert main(["run", *argv]) == 0
    shown = capsys.readouterr().out
    assert "Chosen on validation data, all tasks, among 4: lr=0.01, epochs=3" in shown
    (path,) = (tmp_path / "border").glob("*.json")
    stored = json.loads(path.read_text())["fields"]
    assert stored["config"]["lr"] == 0.01
    assert stored["config"]["validate"] is False
    tried = stored["details"]["search"]["tried"]
    assert [len(one["records"]) for one in tried] == [len(one["scores"]) for one in tried] == [3] * 4
    of_the_search = sorted(path.stem for path in (tmp_path / "border" / "search").glob("*.json"))
    assert of_the_search == sorted(record for one in tried for record in one["records"])
    assert stored["details"]["command"].endswith("--grid lr=1e-09,0.01 --grid epochs=1,3")


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
        (["dice", "--only", "bias"], "'only' of vestige run must be FIELD=VALUE"),
        (["dice", "--only", "bias=2"], "a value that a run has (bias=0.0)"),
        (["dice", "--grid", "bias"], "'grid' of vestige run must be FIELD=VALUE"),
        (["dice", "--grid", "bias=1,2"], "must be for an experiment with a validation score"),
        (["dice", "--device", "tpu"], "'device'"),
        (["dice", "--device", "cuda"], "must be"),
        (["dice", "--cpus", "2"], "must come with --ray"),
        (["dice", "--known", "nowhere"], "nowhere"),
    ],
)
def test_misuse_is_one_sentence_and_writes_nothing(dice, tmp_path, capsys, argv, words):
    assert main(["run", *argv, "--out", str(tmp_path / "runs")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
