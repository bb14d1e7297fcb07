"""The stored results of the estimators of `benchmark-mi`: what is finished is kept, what is not is computed."""

import json
import os
import statistics

import numpy as np
import pytest

from benchmarks import environments, mi

WIDTHS = {"a": 2, "b": 100}


def finished(peer: str, task: str, value: float | None = 1.0) -> dict:
    return {"peer": peer, "task": task, "value": value, "settings": mi.PEERS[peer].settings(WIDTHS[task])}


@pytest.fixture
def stored(tmp_path):
    return tmp_path / "results.json"


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """Samples of two tasks in a folder of their own."""
    monkeypatch.setattr(mi, "DATA", tmp_path / "data")
    (tmp_path / "data").mkdir()
    for task, width in WIDTHS.items():
        x, y = np.arange(8.0 * width).reshape(2, 8, width // 2)
        np.savez(tmp_path / "data" / f"{task}.npz", x=x, y=y, mutual_information=0.5)
    return tmp_path / "data"


def test_every_cell_is_missing_at_first_the_cheap_peers_first(stored):
    expected = [(peer, task) for peer in ("ksg", "mine", "dv", "infonce") for task in WIDTHS]
    assert mi.missing(mi.read(stored), WIDTHS) == expected


def test_a_kept_cell_is_read_back_and_not_missing_any_more(stored):
    mi.keep(mi.read(stored), finished("dv", "b", 0.25), stored)
    again = mi.read(stored)
    assert again["cells"]["dv"]["b"]["value"] == 0.25
    assert ("dv", "b") not in mi.missing(again, WIDTHS)
    assert len(mi.missing(again, WIDTHS)) == len(mi.PEERS) * len(WIDTHS) - 1


def test_a_cell_without_a_value_is_finished_too(stored):
    mi.keep(mi.read(stored), finished("mine", "a", None) | {"error": "it diverged"}, stored)
    assert ("mine", "a") not in mi.missing(mi.read(stored), WIDTHS)


def test_a_cell_of_other_settings_is_missing(stored):
    mi.keep(mi.read(stored), finished("dv", "a") | {"settings": {"max_n_steps": 1, "verbose": False}}, stored)
    assert ("dv", "a") in mi.missing(mi.read(stored), WIDTHS)


def test_results_of_other_samples_are_not_read(stored):
    results = mi.read(stored)
    mi.keep(results, finished("dv", "a"), stored)
    mi.write(results | {"made_by": mi.MADE_BY | {"seed": mi.SEED + 1}}, stored)
    assert mi.read(stored) == mi.empty()


def test_a_write_that_fails_leaves_what_was_stored(stored, monkeypatch):
    mi.keep(mi.read(stored), finished("ksg", "a"), stored)
    before = stored.read_bytes()

    def full(source, target):
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        mi.keep(mi.read(stored), finished("ksg", "b"), stored)
    assert stored.read_bytes() == before
    assert list(stored.parent.iterdir()) == [stored]


def test_not_a_number_is_never_stored(stored):
    with pytest.raises(ValueError, match="JSON"):
        mi.keep(mi.read(stored), finished("ksg", "a", float("nan")), stored)


def test_a_run_that_is_cut_short_goes_on_where_it_stopped(samples, stored, monkeypatch, capsys):
    asked = []

    def cells(wanted, limit):
        asked.append(wanted)
        return iter([finished(*cell) | {"cpu_seconds": 1.0} for cell in wanted[:limit]])

    monkeypatch.setattr(mi, "_cells", lambda wanted: cells(wanted, 3))
    assert mi.run_peers(stored) == 1
    assert "5 cells are missing" in capsys.readouterr().err
    monkeypatch.setattr(mi, "_cells", lambda wanted: cells(wanted, None))
    assert mi.run_peers(stored) == 0
    assert asked[1] == asked[0][3:]
    assert "all        5 cells" in capsys.readouterr().out  # the plan speaks of what is left
    assert json.loads(stored.read_text())["truth"] == {"a": 0.5, "b": 0.5}


def test_q_has_the_same_marginals_as_p_and_no_pair_more_than_chance_keeps(samples):
    p, q, kl = mi.pair("a")
    assert kl == 0.5
    np.testing.assert_array_equal(p[:, 0], q[:, 0])
    assert (p[:, 1] != q[:, 1]).any()
    np.testing.assert_array_equal(np.sort(p[:, 1]), np.sort(q[:, 1]))
    np.testing.assert_array_equal(q, mi.pair("a").q)


def test_median_error_counts_a_missing_value_as_a_whole_error():
    results = mi.empty() | {"truth": {"a": 0.5, "b": 2.0}}
    results["cells"] = {"dv": {"a": {"value": 0.4}, "b": {"value": None}}, "ksg": {}}
    errors = mi.median_errors(results)
    assert errors["dv"] == (pytest.approx(statistics.median([0.2, 1.0])), 2)
    assert errors["ksg"][1] == 0


def test_the_limit_of_steps_keeps_to_the_seconds_and_to_whole_tests():
    for peer in mi.PEERS.values():
        for width in (2, 10, 50, 100):
            steps = peer.max_steps(width)
            if peer.step is None:
                assert peer.settings(width) == {}
                continue
            assert steps >= 3 * mi.TEST_EVERY  # fewer could not even stop by the test
            assert steps % mi.TEST_EVERY == 0
            assert steps * (peer.step[0] + peer.step[1] * width) <= mi.CELL_SECONDS


def test_what_is_committed_is_whole():
    """A cell has a value or says why it has none, and belongs to a task with a truth."""
    results = mi.read()
    for cells in results["cells"].values():
        for task, cell in cells.items():
            assert results["truth"][task] > 0
            assert cell["cpu_seconds"] > 0
            assert ("error" in cell) == (cell["value"] is None)


def test_an_environment_is_made_once_and_again_when_its_list_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    made = []

    def run(command, **options):
        made.append(command)
        (tmp_path / ".venv-x").mkdir(exist_ok=True)
        return environments.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environments.subprocess, "run", run)
    one = environments.Environment(".venv-x", needed=["a==1"])
    one.ensure()
    assert [command[-1] for command in made] == [str(tmp_path / ".venv-x"), "a==1"]
    one.ensure()
    assert len(made) == 2
    environments.Environment(".venv-x", needed=["a==2"]).ensure()
    assert len(made) == 4


def test_an_environment_without_what_it_needs_is_none_and_one_without_an_option_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(environments, "ROOT", tmp_path)

    def run(command, **options):
        (tmp_path / ".venv-x").mkdir(exist_ok=True)
        failed = command[-1] == "bad"
        return environments.subprocess.CompletedProcess(command, int(failed), "", "ERROR: no such thing\n" * failed)

    monkeypatch.setattr(environments.subprocess, "run", run)
    assert environments.Environment(".venv-x", needed=["bad"]).ensure() is None
    assert "no such thing" in capsys.readouterr().err
    other = environments.Environment(".venv-x", needed=["good"], optional={"b": ["bad"], "g": ["good"]})
    assert other.ensure() is not None
    assert other.refusals() == {"b": "ERROR: no such thing"}
