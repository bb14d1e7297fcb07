"""`vestige compare` and `vestige weigh` where the data is a vestige."""

import json

import numpy as np
import pandas as pd
import pytest

from vestige.cli import main
from vestige.vestiges import keep

FAST = ["--estimator", "logistic", "--pair-rows", "100"]


def rows(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({"age": rng.normal(40 + shift, 10, n).round(), "work": rng.choice(["a", "b", "c"], n)})
    made.loc[rng.random(n) < 0.1, "age"] = np.nan
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vestige of a table, one of an array, and new files for each."""
    where = tmp_path_factory.mktemp("vestiges")
    keep(rows(700, 0)).save(where / "cats.vestige")
    new = rows(500, 1, shift=8).rename(columns={"age": "Age"}).assign(more=1)
    new.to_parquet(where / "new.parquet")
    new.drop(columns="work").to_csv(where / "less.csv", index=False)
    rng = np.random.default_rng(2)
    data = np.concatenate([rng.normal(size=(400, 2)), rng.normal(size=(400, 2)) + np.array([9, 0])])
    keep(data, density="mixture").save(where / "array.vestige")
    np.save(where / "lost.npy", rng.normal(size=(500, 2)))
    away = data[::2].copy()
    away[:150, 1] += 30
    np.save(where / "away.npy", away)
    return where


def test_a_table_for_people(folder, capsys):
    assert main(["compare", str(folder / "cats.vestige"), str(folder / "new.parquet"), *FAST]) == 0
    printed = capsys.readouterr()
    assert "'Age' of new.parquet was taken for 'age'" in printed.err
    assert "'more'" in printed.err
    for text in (
        "a vestige of 700 real rows, 500 fake rows",
        "columns, those that differ most first",
        "drift test p-value",
    ):
        assert text in printed.out
    assert "a vestige keeps no rows, so these cannot be told: PRD F8 (recall)" in printed.err
    assert "permutation" not in printed.out
    last = printed.out.rstrip().splitlines()[-1]
    assert last.startswith("The rows of new.parquet differ")
    assert "Columns that differ by themselves: age, mean " in last


@pytest.mark.slow
def test_for_machines(folder, capsys):
    assert main(["compare", str(folder / "cats.vestige"), str(folder / "new.parquet"), *FAST, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["by_draws"] is True
    assert (found["n_p"], found["n_q"]) == (700, 500)
    assert found["p_value"] == found["drift"]["p_value"] < 0.001
    first, second = found["differences"]
    assert (first["name"], second["name"]) == ("age", "work")
    assert first["p_value"] < second["p_value"]
    assert found["divergences"]["js"]["details"]["own_error"] > 0
    assert found["divergences"]["kl"]["verdict"] != "ok"
    assert any("'Age'" in note for note in found["notes"])


@pytest.mark.slow
def test_draws_that_are_out_of_reach_are_called_draws(folder, capsys):
    assert main(["compare", str(folder / "array.vestige"), str(folder / "lost.npy"), *FAST]) == 0
    out = capsys.readouterr().out
    assert "reference draws out of reach" in out
    assert "real rows out of reach" not in out
    table = out[out.index("reference draws out of reach") :].splitlines()
    assert "x0" in table[2]
    shown = [float(line.split("│")[2]) for line in table[4:9]]
    assert min(shown) > 4  # the cluster that was lost


@pytest.mark.slow
def test_new_rows_where_the_data_had_none(folder, capsys):
    assert main(["compare", str(folder / "array.vestige"), str(folder / "away.npy"), *FAST]) == 0
    out = capsys.readouterr().out
    assert "reference draws out of reach" not in out
    table = out[out.index("fake rows out of reach") :].splitlines()
    assert [line.split("│")[1].strip() for line in table[4:9]] == ["0", "1", "2", "3", "4"]
    assert min(float(line.split("│")[3]) for line in table[4:9]) > 15  # clipped at 20 spreads


@pytest.mark.slow
def test_weights_and_figures_after_weighting(folder, tmp_path, capsys):
    out = tmp_path / "w.npy"
    pair = [str(folder / "cats.vestige"), str(folder / "new.parquet")]
    assert main(["weigh", *pair, "-o", str(out), "--estimator", "logistic", "--temper", "0.8"]) == 0
    printed = capsys.readouterr()
    assert "'Age' of new was taken for 'age'" in printed.err
    weights = np.load(out)
    assert len(weights) == 500
    assert weights.mean() == pytest.approx(1)
    assert main(["compare", *pair, "--weights", str(out), *FAST, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weighted"]["p_value"] > found["p_value"]
    np.save(tmp_path / "short.npy", weights[:-1])
    assert main(["compare", *pair, "--weights", str(tmp_path / "short.npy"), *FAST]) != 0
    assert "q_weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["cats.vestige", "less.csv"], "work"),
        (["cats.vestige", "new.parquet", "--drop", "more"], "--drop is for rows alone"),
        (["cats.vestige", "new.parquet", "--scale", "standard"], "with a vestige"),
        (["nothing.vestige", "new.parquet"], "nothing.vestige"),
    ],
)
def test_refusals(folder, capsys, argv, told):
    assert main(["compare", str(folder / argv[0]), str(folder / argv[1]), *argv[2:], *FAST]) != 0
    assert told in capsys.readouterr().err
