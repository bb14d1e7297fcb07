"""`vestige augment`: from two files to one that scikit-learn trains on."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression

from vestige.cli import main


@pytest.fixture
def pair(tmp_path):
    """Two files with missing cells, text with commas, dates and a label, of which every second one is wrong in fake."""
    rng = np.random.default_rng(0)
    for name, n in (("real", 120), ("fake", 160)):
        size, kind = rng.normal(size=n), rng.choice(["red", "green, or so"], n)
        sold = size > 0
        if name == "fake":
            sold[::2] = ~sold[::2]
        size[5] = np.nan
        days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 365, n)]
        frame = pd.DataFrame({"size": size, "kind": kind, "day": days, "sold": np.where(sold, "yes", "no")})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return [str(tmp_path / "real.csv"), str(tmp_path / "fake.csv")]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_rows_come_back_with_weights_that_scikit_learn_takes(tmp_path, pair, ending, capsys):
    out = tmp_path / f"train.{ending}"
    assert main(["augment", *pair, "-o", str(out), "--label", "sold", "--weighted", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    whole = pd.concat([pd.read_csv(one) for one in pair], ignore_index=True)
    got = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)
    assert list(got.columns) == [*whole.columns, "weight"]
    for name in ("kind", "sold"):
        assert got[name].tolist() == whole[name].tolist()
    assert got["day"].astype(str).tolist() == whole["day"].tolist()
    assert np.array_equal(got["size"], whole["size"], equal_nan=True)
    assert got["size"].isna().sum() == 2
    if ending == "parquet":
        assert parquet.read_schema(out).field("day").type == pa.date32()
    w = got["weight"].to_numpy()
    assert np.array_equal(w[:120], np.ones(120))
    assert w[121::2].mean() > 2 * w[120::2].mean()  # the wrong ones weigh less
    assert (told["arm"], told["real"], told["generated"]) == ("weighted", 120, 160)
    assert w[120:].mean() == pytest.approx(told["mass"], rel=1e-6)
    LogisticRegression().fit(got[["size"]].fillna(0), got["sold"], sample_weight=got["weight"])


def test_for_people(tmp_path, pair, capsys):
    out = tmp_path / "train.parquet"
    assert main(["augment", *pair, "-o", str(out), "--label", "sold", "--validation", pair[0]]) == 0
    said = capsys.readouterr().out
    for text in (
        "verdict on the weights",
        "reachable share of the data (mean raw weight)",
        "effective share of the fake rows (ESS)",
        "k, the mass of a fake row beside a real one",
        "accuracy of HistGradientBoostingClassifier on 120 held-out real rows",
        "over real only",
        "real only (best)",
        f"120 real and 0 fake rows written to {out}; the weights are in the column 'weight'",
    ):
        assert text in said
    assert len(pd.read_parquet(out)) == 120


@pytest.mark.slow
def test_without_a_label_nothing_is_validated(tmp_path, pair, capsys):
    out = tmp_path / "train.parquet"
    assert main(["augment", *pair, "-o", str(out), "--drop", "day", "--column", "w", "--seed", "3"]) == 0
    assert "weighted: nothing was validated; a generated row weighs" in capsys.readouterr().out
    got = pd.read_parquet(out)
    assert list(got.columns) == ["size", "kind", "day", "sold", "w"]
    assert len(got) == 280


def test_refusals_are_one_sentence_and_write_nothing(tmp_path, pair, capsys):
    np.save(tmp_path / "rows.npy", np.zeros((9, 2)))
    out, array = str(tmp_path / "t.parquet"), str(tmp_path / "rows.npy")
    (tmp_path / "there.csv").write_text("a\n1\n")
    for words, told in [
        ([*pair, "-o", str(tmp_path / "t.npy")], "The output must end in .parquet or .csv."),
        ([*pair, "-o", str(tmp_path / "there.csv")], "The output must be a new file, or --force given."),
        ([*pair, "-o", out, "--temper", "2"], "The share of --temper must be in (0, 1]."),
        ([*pair, "-o", out, "--validation", pair[0]], "must have a --label to choose by."),
        ([*pair, "-o", out, "--label", "sold", "--weighted", "--validation", pair[0]], "--weighted or --validation."),
        ([*pair, "-o", out, "--label", "solt"], "Did you mean 'sold'?"),
        ([*pair, "-o", out, "--column", "kind"], "must be a name that no column of the tables has."),
        ([pair[0], array, "-o", out], "must be a table (.csv, .parquet, .arrow, .feather)."),
        ([pair[0], str(tmp_path / "none.csv"), "-o", out], "must be there."),
        ([*pair, "-o", out, "--estimator", "oracle"], "The 'estimator' of"),
    ]:
        assert main(["augment", *words]) == 2
        said = capsys.readouterr().err
        assert told in said, said
        assert said.count("\n") == 1
    assert (tmp_path / "there.csv").read_text() == "a\n1\n"
    assert not (tmp_path / "t.parquet").exists()
