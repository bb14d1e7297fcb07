"""`vestige policy evaluate` from files to a table, JSON and a picture; and nothing written on bad input."""

import json

import numpy as np
import pytest

from linear_system import System, linear_policy
from vestige.cli import main
from vestige.policy import GaussianPolicy

SYSTEM = System.default()
FAST = ["--horizon", "5", "--trajectories", "20", "--members", "2", "--classifiers", "1", "--steps", "20"]


@pytest.fixture
def given(tmp_path):
    """Logs and a policy, as files."""
    SYSTEM.logs(linear_policy([[0.0, -0.2]], [0.0], 0.5), 30, 10, seed=0).write(tmp_path / "logs.csv")
    linear_policy([[0.1, -0.6]], [0.1], 0.3).save(tmp_path / "policy.json")
    return [str(tmp_path / "logs.csv"), "--policy", str(tmp_path / "policy.json")]


def test_for_people_and_for_programs(given, tmp_path, capsys):
    assert main(["policy", "evaluate", *given, *FAST, "--out", str(tmp_path / "found")]) == 0
    said = capsys.readouterr()
    for text in ("logged actions, replayed", "fitted Q", "beyond the logs", "Verdict:", "value.svg", "spread"):
        assert text in said.out
    # The check of the model comes first, then the headline, then the rest.
    places = [said.out.index(text) for text in ("replayed", "logged return", "corrected", "model alone", "fitted Q")]
    assert places == sorted(places)
    assert "weighted" not in said.out.replace("after weighting", "")
    assert "<svg" in (tmp_path / "found" / "value.svg").read_text()
    stored = json.loads((tmp_path / "found" / "evaluation.json").read_text())
    assert main(["policy", "evaluate", *given, *FAST, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("written") == []
    assert told == stored  # the same seed, the same numbers
    assert told["calibration"]["replayed"] is True


def test_the_policy_that_ran_and_the_diagnostics(given, tmp_path, capsys):
    linear_policy([[0.0, -0.2]], [0.0], 0.5).save(tmp_path / "ran.json")
    ran = ["--behaviour", str(tmp_path / "ran.json"), "--rollouts", "noise", "--diagnostics"]
    assert main(["policy", "evaluate", *given, *FAST, *ran]) == 0
    said = capsys.readouterr().out
    for text in ("policy that ran, simulated", "diagnostics", "weighted (LFIW)", "shuffled weights"):
        assert text in said
    assert said.index("corrected") < said.index("diagnostics") < said.index("Verdict")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--horizon", "0"], "The 'horizon' of policy.evaluate must be at least 1"),
        (["--reward", "HalfCheeta-v5"], "Did you mean 'HalfCheetah-v5'?"),
        (["--policy", "nowhere.json"], "nowhere.json does not exist"),
        (["--reward", "HalfCheetah-v5"], "The 'reward' of policy.evaluate must be one for observations 2 wide"),
    ],
)
def test_a_refusal_writes_nothing(given, tmp_path, change, sentence, capsys):
    out = tmp_path / "found"
    assert main(["policy", "evaluate", *given, *FAST, "--out", str(out), *change]) in (1, 2)
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(given, tmp_path, capsys):
    for out in ("logs.csv", "logs.csv/x/y"):
        assert main(["policy", "evaluate", "nowhere.csv", *given[1:], "--out", str(tmp_path / out)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "The 'out' of vestige policy evaluate must be" in said
        assert "Got the file" in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"actions": 7.0}, "The 'actions' of logs.npz must be within the space, here [-3, 3]. Got 7 in row 4"),
        ({"rewards": None}, "The 'rewards' of logs.npz must be 300 long. Got 299 instead."),
        ({}, "The 'policy' of policy.evaluate must be bounded as the logs' actions are (give it low= and high=)."),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(given, tmp_path, change, sentence, capsys):
    logs = SYSTEM.logs(linear_policy([[0.0, -0.2]], [0.0], 0.3), 30, 10, seed=0)
    names = ("observations", "actions", "rewards", "next_observations", "episodes")
    arrays = {name: getattr(logs, name).numpy() for name in names} | {"action_low": [-3.0], "action_high": [3.0]}
    if "actions" in change:
        arrays["actions"][4] = change["actions"]
    if "rewards" in change:
        arrays["rewards"] = arrays["rewards"][:-1]
    np.savez(tmp_path / "logs.npz", **arrays)
    out = tmp_path / "found"
    assert main(["policy", "evaluate", str(tmp_path / "logs.npz"), *given[1:], *FAST, "--out", str(out)]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_bad_files_are_one_sentence(given, tmp_path, capsys):
    out = tmp_path / "found"
    torn = np.loadtxt(tmp_path / "logs.csv", delimiter=",", skiprows=1)
    header = (tmp_path / "logs.csv").read_text().splitlines()[0].replace('"', "")
    torn[3, header.split(",").index("reward")] = np.nan
    np.savetxt(tmp_path / "logs.csv", torn, delimiter=",", header=header, comments="")
    assert main(["policy", "evaluate", *given, "--out", str(out)]) == 2
    assert "The 'rewards' of logs.csv must be finite. Got 1 NaN" in capsys.readouterr().err
    GaussianPolicy.initial(5, 1).save(tmp_path / "wide.json")
    SYSTEM.logs(linear_policy([[0.0, -0.2]], [0.0], 0.5), 3, 4, seed=0).write(tmp_path / "logs.csv")
    assert main(["policy", "evaluate", given[0], "--policy", str(tmp_path / "wide.json"), "--out", str(out)]) == 2
    assert "must be one for observations 2 wide and actions 1 wide" in capsys.readouterr().err
    assert not out.exists()
