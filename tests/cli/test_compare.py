"""`vestige compare` from files to the conclusion, for people and for machines."""

import json

import numpy as np
import pandas as pd
import pytest

from vestige.cli import main
from vestige.cli.pairs import read_weights

FAST = ["--estimator", "ulsif", "--pair-rows", "200"]


@pytest.fixture
def arrays(tmp_path):
    """Two files of one law, and one that is shifted."""
    rng = np.random.default_rng(0)
    paths = {}
    for name, shift in (("real", 0.0), ("same", 0.0), ("far", 1.0)):
        paths[name] = str(tmp_path / f"{name}.npy")
        np.save(paths[name], rng.normal(size=(300, 2)) + shift)
    return paths


def table(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40 + 20 * shift, 10, n).round(),
            "work": rng.choice(["private", "state", "self"], n),
            "joined": (np.datetime64("2020-01-01") + rng.integers(0, 900, n)).astype(str),
            "member": rng.random(n) < 0.5,
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "work"] = None
    return frame


def answer(argv, capsys):
    assert main(["compare", *argv, *([] if "--estimator" in argv else FAST), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_one_law(arrays, capsys):
    found = answer([arrays["real"], arrays["same"]], capsys)
    assert found["conclusion"].startswith("No difference between real.npy and same.npy was found")
    assert found["p_value"] > 0.05
    assert (found["n_p"], found["n_q"], found["d"]) == (300, 300, 2)
    assert set(found["divergences"]) >= {"kl", "js", "hellinger2", "total_variation"}
    assert found["metrics"]["fid"]["low"] < found["metrics"]["fid"]["value"] < found["metrics"]["fid"]["high"]


def test_two_laws(arrays, capsys):
    found = answer([arrays["real"], arrays["far"], "--estimator", "auto"], capsys)
    assert found["ratio"]["estimator"] == "Stack"
    assert found["conclusion"].startswith("The rows of far.npy differ clearly from those of real.npy")
    assert found["p_value"] < 0.02
    assert found["divergences"]["kl"]["value"] == pytest.approx(1.0, abs=0.3)  # |shift|^2 / 2 in two dimensions


def test_for_people(arrays, capsys):
    assert main(["compare", arrays["real"], arrays["far"], *FAST]) == 0
    out = capsys.readouterr().out
    for text in (
        "Jensen-Shannon",
        "95% interval",
        "FID, n to infinity",
        "same distribution",
        "no difference: p-value",
        "ULSIF",
    ):
        assert text in out
    assert out.rstrip().splitlines()[-1].startswith("The rows of far.npy differ")


@pytest.mark.slow
def test_refusals_stand_in_the_table(tmp_path, arrays, capsys):
    np.save(tmp_path / "away.npy", np.random.default_rng(1).normal(size=(300, 2)) / 5 + 6)
    assert main(["compare", arrays["real"], str(tmp_path / "away.npy"), *FAST]) == 0
    out = capsys.readouterr().out
    assert "The js cannot be estimated from these samples: a simple classifier does better than ULSIF" in out
    assert out.rstrip().splitlines()[-1].startswith("The rows of away.npy differ from those of real.npy (p = ")
    found = answer([arrays["real"], str(tmp_path / "away.npy"), "--estimator", "stack"], capsys)
    assert found["divergences"]["kl"]["value"] is None
    assert "The kl cannot be estimated" in found["divergences"]["kl"]["reason"]
    assert found["divergences"]["js"]["value"] == pytest.approx(0.69, abs=0.02)


@pytest.mark.slow
def test_weights_stand_beside(tmp_path, arrays, capsys):
    x = np.load(arrays["far"])
    np.save(tmp_path / "w.npy", np.exp(1 - x.sum(1)))  # the exact ratio of the two laws
    argv = [arrays["real"], arrays["far"], "--weights", str(tmp_path / "w.npy")]
    found = answer(argv, capsys)
    weighted = found["weighted"]
    assert weighted["metrics"]["fid"]["value"] < 0.2 * found["metrics"]["fid"]["value"]
    assert "weighted" in weighted["conclusion"]
    assert main(["compare", *argv, *FAST]) == 0
    captured = capsys.readouterr()
    assert "weighted" in captured.out
    assert "flatter" in captured.err


def test_weights_from_every_kind_of_file(tmp_path):
    weights = np.arange(1.0, 6.0)
    np.save(tmp_path / "w.npy", weights)
    np.savez(tmp_path / "w.npz", weight=weights, low=-weights, high=-weights)
    pd.DataFrame({"low": -weights, "weight": weights}).to_csv(tmp_path / "w.csv", index=False)
    pd.DataFrame({"anything": weights}).to_parquet(tmp_path / "w.parquet")
    for name in ("w.npy", "w.npz", "w.npz:weight", "w.csv", "w.parquet"):
        assert read_weights(str(tmp_path / name), 5).tolist() == weights.tolist()


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (np.ones(7), "a weight for each of the 300 fake rows. Got 7"),
        (np.ones((300, 2)), "one weight a row. Got 2 columns"),
        (-np.ones(300), "0 or larger"),
        (np.zeros(300), "positive somewhere"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, arrays, capsys, weights, sentence):
    np.save(tmp_path / "w.npy", weights)
    assert main(["compare", arrays["real"], arrays["same"], "--weights", str(tmp_path / "w.npy"), *FAST]) == 2
    assert sentence in capsys.readouterr().err


def test_tables_of_every_kind(tmp_path, capsys):
    for name, seed, shift in (("real", 0, 0), ("same", 1, 0), ("far", 2, 1)):
        table(300, seed, shift).to_csv(tmp_path / f"{name}.csv", index=False)
    same = answer([str(tmp_path / "real.csv"), str(tmp_path / "same.csv")], capsys)
    far = answer([str(tmp_path / "real.csv"), str(tmp_path / "far.csv")], capsys)
    assert same["conclusion"].startswith("No difference")
    assert far["conclusion"].startswith("The rows of far.csv differ")
    assert [c["kind"] for c in same["columns"]["columns"]] == ["number", "text", "date", "boolean"]
    assert main(["compare", str(tmp_path / "real.csv"), str(tmp_path / "far.csv"), *FAST]) == 0
    out = capsys.readouterr().out
    assert "one-hot, 3 categories" in out
    assert "days since 1970" in out


@pytest.mark.slow
def test_tables_are_standardised_and_arrays_are_not(tmp_path, capsys):
    for name, seed in (("a", 0), ("b", 1)):
        frame = pd.DataFrame(np.random.default_rng(seed).normal(size=(200, 2)) * [1, 1000], columns=["u", "v"])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        np.save(tmp_path / f"{name}.npy", frame.to_numpy())
    by_table = answer([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], capsys)
    by_array = answer([str(tmp_path / "a.npy"), str(tmp_path / "b.npy")], capsys)
    standard = answer([str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "--scale", "standard"], capsys)
    assert by_table["metrics"]["fid"]["value"] == pytest.approx(standard["metrics"]["fid"]["value"])
    assert by_array["metrics"]["fid"]["value"] > 100 * by_table["metrics"]["fid"]["value"]
    assert any("spread" in text for text in by_array["warnings"])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["missing.npy", "missing.npy"], "no such file or folder"),
        (["REAL", "SAME", "--estimator", "logistik"], "Did you mean 'logistic'"),
        (["REAL", "SAME", "--drop", "a"], "a table for 'drop'"),
        (["REAL", "SAME", "--level", "2"], "'level'"),
    ],
)
def test_misuse(arrays, capsys, argv, sentence):
    argv = [arrays.get(word.lower(), word) for word in argv]
    assert main(["compare", *argv]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer(arrays, capsys):
    first, second = (answer([arrays["real"], arrays["far"], "--seed", "3"], capsys) for _ in range(2))
    assert first == second


def test_rows_out_of_reach_are_shown(tmp_path, capsys):
    frame = table(900, 0)
    frame.to_csv(tmp_path / "real.csv", index=False)
    lacking = table(900, 1)
    lacking[lacking["work"] != "state"].to_csv(tmp_path / "fake.csv", index=False)
    paths = [str(tmp_path / "real.csv"), str(tmp_path / "fake.csv")]
    assert main(["compare", *paths, *FAST]) == 0
    out = capsys.readouterr().out
    assert "real rows out of reach" in out
    assert "fake rows out of reach" not in out
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("The rows of fake.csv differ")
    assert "fake.csv does not reach a part of real.csv, at least 25 %." in last  # as this ratio is blind
    found = answer(paths, capsys)
    assert found["reach"]["missed"]["value"] == pytest.approx((frame["work"] == "state").mean(), abs=0.01)
    rows = found["reach"]["outside_p"]
    assert (frame["work"].iloc[rows] == "state").all()
