"""`vestige weigh` from files to a file of weights, whole or not at all."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.cli import main
from vestige.cli.pairs import write
from vestige.ratios.weights import diagnose
from vestige.vestiges import Weighing

FAST = ["--estimator", "ulsif"]


@pytest.fixture
def pair(tmp_path):
    """Real and fake rows in one dimension, shifted by one: the exact log-ratio is 1/2 - x."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "real.npy", rng.normal(size=(500, 1)))
    np.save(tmp_path / "fake.npy", rng.normal(size=(600, 1)) + 1)
    return [str(tmp_path / "real.npy"), str(tmp_path / "fake.npy")]


def test_weights_are_written_and_right(tmp_path, pair, capsys):
    out = tmp_path / "weights.npy"
    assert main(["weigh", *pair, "-o", str(out), *FAST, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    weights, x = np.load(out), np.load(pair[1])[:, 0]
    assert found["written"] == [str(out)]
    assert found["final"]["verdict"] == "good"
    assert weights.shape == (600,)
    assert weights.dtype == np.float64
    assert weights.mean() == pytest.approx(1)
    assert np.average(x, weights=weights) == pytest.approx(0, abs=0.2)
    assert np.corrcoef(np.log(weights), 0.5 - x)[0, 1] > 0.85


def test_for_people(tmp_path, pair, capsys):
    assert main(["weigh", *pair, "-o", str(tmp_path / "w.npy"), *FAST, "--temper", "0.8"]) == 0
    out = capsys.readouterr().out
    for text in ("effective rows", "Pareto k", "held-out accuracy", "Tempered with exponent", "written to"):
        assert text in out


def test_tempering(tmp_path, pair, capsys):
    out = tmp_path / "w.npy"
    assert main(["weigh", *pair, "-o", str(out), *FAST, "--temper", "0.8", "--json"]) == 0
    weights = np.load(out)
    assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(0.8 * 600, rel=1e-6)
    assert json.loads(capsys.readouterr().out)["alpha"] < 1


@pytest.mark.slow
def test_bootstrap_intervals(tmp_path, pair, capsys):
    out = tmp_path / "w.npy"
    assert main(["weigh", *pair, "-o", str(out), "--bootstrap", "5", *FAST]) == 0
    assert "Intervals (95 %) from 5 fits" in capsys.readouterr().out
    weights, (low, high) = np.load(out), np.load(tmp_path / "w.interval.npy").T
    assert len(weights) == len(low) == 600
    assert (low <= high).all()
    assert np.mean((low <= weights) & (weights <= high)) > 0.9


@pytest.mark.parametrize("with_intervals", [False, True])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv"])
def test_every_kind_of_file(tmp_path, ending, with_intervals):
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(7, generator=generator, dtype=torch.float64) / 3
    interval = torch.stack([weights / 2, weights * 2], 1) if with_intervals else None
    nothing = diagnose(torch.zeros(7))
    found = Weighing(weights, interval, nothing, nothing, 1.0, {}, ())
    path = tmp_path / f"w{ending}"
    assert write(path, found)[0] == path
    if ending == ".npy":
        stored = {"weight": np.load(path)}
        if with_intervals:
            stored["low"], stored["high"] = np.load(tmp_path / "w.interval.npy").T
    else:
        stored = dict(np.load(path)) if ending == ".npz" else pd.read_csv(path).to_dict("list")
    expected = {"weight": weights} | ({"low": weights / 2, "high": weights * 2} if with_intervals else {})
    assert {name: list(values) for name, values in stored.items()} == {k: v.tolist() for k, v in expected.items()}


def test_what_is_there_is_not_overwritten_unless_forced(tmp_path, pair, capsys):
    out = tmp_path / "w.npy"
    out.write_text("precious")
    assert main(["weigh", *pair, "-o", str(out), *FAST]) == 2
    assert "which exists" in capsys.readouterr().err
    assert out.read_text() == "precious"
    assert main(["weigh", *pair, "-o", str(out), *FAST, "--force"]) == 0
    assert np.load(out).shape == (600,)
    (tmp_path / "v.interval.npy").write_text("precious")
    assert main(["weigh", *pair, "-o", str(tmp_path / "v.npy"), "--bootstrap", "3"]) == 2
    assert not (tmp_path / "v.npy").exists()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, pair, capsys, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "w.npy")

    monkeypatch.setattr(os, "replace", fail)
    before = sorted(os.listdir(tmp_path))
    assert main(["weigh", *pair, "-o", str(tmp_path / "w.npy"), *FAST]) == 1
    assert "No space left" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.slow
def test_unreliable_weights_are_not_written(tmp_path, pair, capsys):
    np.save(tmp_path / "away.npy", np.random.default_rng(1).normal(size=(300, 1)) / 9 + 30)
    argv = ["weigh", pair[0], str(tmp_path / "away.npy"), "-o", str(tmp_path / "w.npy"), *FAST]
    assert main(argv) == 1
    err = capsys.readouterr().err
    assert "unreliable and were not written" in err
    assert "a simple classifier does better than ULSIF" in err
    assert not (tmp_path / "w.npy").exists()
    assert main([*argv[:-1], "stack"]) == 1  # which sees the gap, and that weights cannot close it
    assert "tells real from generated with accuracy 1.000" in capsys.readouterr().err
    assert main([*argv, "--anyway"]) == 0
    assert (tmp_path / "w.npy").exists()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["-o", "w.pkl"], "must end in .npy, .npz, .csv"),
        (["-o", "w.npy", "--temper", "1.5"], "--temper must be in (0, 1]"),
        (["-o", "w.npy", "--bootstrap", "-2"], "'bootstrap' of weigh"),
        (["-o", "w.npy", "--estimator", "Stak"], "must be one of"),
    ],
)
def test_misuse(tmp_path, pair, capsys, argv, sentence, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["weigh", *pair, *argv]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "w.npy").exists()


def test_an_output_is_asked_for(pair, capsys):
    assert main(["weigh", *pair]) == 2


def test_the_same_seed_gives_the_same_weights(tmp_path, pair):
    for name in ("a.npy", "b.npy"):
        assert main(["weigh", *pair, "-o", str(tmp_path / name), *FAST, "--seed", "7"]) == 0
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.slow
def test_what_weigh_writes_compare_reads(tmp_path, pair, capsys):
    out = tmp_path / "w.npz"
    assert main(["weigh", *pair, "-o", str(out), *FAST]) == 0
    capsys.readouterr()
    assert main(["compare", *pair, "--weights", str(out), *FAST, "--pair-rows", "200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weighted"]["divergences"]["js"]["value"] < found["divergences"]["js"]["value"] / 2


@pytest.mark.slow
@pytest.mark.full_training
def test_weights_that_cannot_reach_part_of_the_data_are_not_written(tmp_path, capsys):
    rng = np.random.default_rng(0)
    fake = rng.normal(size=(2000, 2))
    np.save(tmp_path / "real.npy", rng.normal(size=(1000, 2)))
    np.save(tmp_path / "fake.npy", fake[fake[:, 0] < 0])
    argv = ["weigh", str(tmp_path / "real.npy"), str(tmp_path / "fake.npy"), "-o", str(tmp_path / "w.npy")]
    assert main(argv) == 1
    err = capsys.readouterr().err
    assert "cannot reach part of the data and were not written" in err
    assert "does not reach about" in err
    assert not (tmp_path / "w.npy").exists()
    assert main([*argv, "--anyway", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["final"]["verdict"] == "cannot reach part of the data"
    assert found["reach"]["missed"]["low"] > 0.4
