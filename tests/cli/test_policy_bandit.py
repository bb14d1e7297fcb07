"""`vestige policy bandit` from a table to another and to JSON; and one sentence on bad input."""

import json

import numpy as np
import pandas as pd
import pytest

from vestige.cli import main


@pytest.fixture
def logs(tmp_path):
    g = np.random.default_rng(0)
    x, go = g.normal(size=200), g.integers(0, 2, 200)
    columns = {"context_x": x, "action": np.where(go, "go", "stay"), "reward": (g.random(200) < 0.3 + 0.4 * go) * 1}
    columns |= {"propensity": 0.5, "policy_stay": 0.25, "policy_go": 0.75}
    pd.DataFrame(columns).to_csv(tmp_path / "logs.csv", index=False)
    return tmp_path / "logs.csv"


def test_a_table_with_a_row_an_estimate(logs, capsys):
    assert main(["policy", "bandit", str(logs), "--low", "0", "--high", "1"]) == 0
    said = capsys.readouterr().out
    for word in ("doubly robust (DR)", "SNIPS", "IPS", "logged reward", "ESS", "ok", "The weights average"):
        assert word in said


def test_json_holds_everything(logs, capsys):
    assert main(["policy", "bandit", str(logs), "--json", "--level", "0.9"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["estimates"]) == {"dr", "snips", "ips", "logged"}
    dr = told["estimates"]["dr"]
    assert dr["verdict"] == "ok"
    assert dr["level"] == 0.9
    assert dr["low"] < 0.6 < dr["high"]
    assert told["report"]["actions"] == {"stay": told["report"]["rows"] - told["report"]["actions"]["go"]} | {
        "go": told["report"]["actions"]["go"]
    }


def test_an_action_that_was_never_taken_is_told(logs, capsys):
    table = pd.read_csv(logs)
    table.assign(policy_stay=0.0, policy_wait=0.25).to_csv(logs, index=False)
    assert main(["policy", "bandit", str(logs)]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "refused" in said
    assert "25.0% of the policy's choices are actions that the logs never took ('wait')" in said
    assert main(["policy", "bandit", str(logs), "--low", "0", "--high", "1"]) == 0
    assert "at least" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, ["--low", "0"], "The 'high' of vestige policy bandit must be given together with 'low'"),
        ({}, ["--low", "0.5", "--high", "1"], "around every logged reward"),
        ({"propensity": 2.0}, [], "The 'propensities' of logs.csv must be from 1e-12 to 1"),
        ({"policy_go": 0.8}, [], "sum to 1 in every row"),
        ({"action": "sit"}, [], "among those that the policy knows: stay, go. Got 'sit' in row 0"),
    ],
)
def test_bad_input_is_one_sentence(logs, capsys, change, options, said):
    pd.read_csv(logs).assign(**change).to_csv(logs, index=False)
    assert main(["policy", "bandit", str(logs), *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
