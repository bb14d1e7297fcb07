"""`vestige keep --epsilon`, and `show`, `merge` and `compare` of what it wrote."""

import json

import numpy as np
import pandas as pd
import pytest

from vestige.cli import main

BOUNDS = 'age = [0, 100]\nborn = [1900-01-01, 2020-12-31]\nwork = ["private", "state"]\nsmoker = [false, true]\n'


def table(seed, n=4000):
    g = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": g.normal(40, 10, n),
            "born": pd.Timestamp("1980-01-01") + pd.to_timedelta(g.integers(0, 9000, n), "D"),
            "work": g.choice(["private", "state", "none"], n),
            "smoker": g.random(n) < 0.3,
            "person": g.integers(0, n // 2, n),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("private")
    for seed in range(2):
        table(seed).to_parquet(found / f"{seed}.parquet")
        (found / "bounds.toml").write_text(BOUNDS)
        declared = ["--bounds", f"{found}/bounds.toml", "--unit", "person", "--max-rows", "2"]
        out = ["-o", f"{found}/{seed}.vestige"]
        assert main(["keep", f"{found}/{seed}.parquet", *out, "--epsilon", "2", *declared]) == 0
    return found


def told(capsys, *words):
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_show_states_the_promise_and_what_it_covers(folder, capsys):
    found = told(capsys, "show", f"{folder}/0.vestige")
    assert [found[key] for key in ("epsilon", "delta", "unit", "max_rows", "parts")] == [2.0, 1e-6, "person", 2, 1]
    assert "all rows of one 'person', of which at most 2 count" in found["covers"]
    assert "a second expense" in found["covers"]
    assert 2700 < found["n"] < 3100  # E min(rows, 2) of 2000 persons with two rows on average is 2917
    assert main(["show", f"{folder}/0.vestige"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "sums over the rows, with noise" in printed
    assert "epsilon 2, delta 1e-06" in printed


@pytest.mark.slow
def test_comparing_prints_what_is_known_and_refuses_the_rest(folder, capsys):
    found = told(capsys, "compare", f"{folder}/0.vestige", f"{folder}/1.parquet", "--estimator", "ulsif")
    assert found["p_value"] > 0.001
    assert found["divergences"]["kl"]["verdict"] == "refused"
    assert found["metrics"]["fid"]["reason"].startswith("FID needs n x epsilon")
    assert found["reach"] is found["diagnosis"] is None
    assert main(["compare", f"{folder}/0.vestige", f"{folder}/1.parquet", "--estimator", "ulsif"]) == 0
    printed = capsys.readouterr().out
    assert "drift test p-value" in printed
    assert "a vestige of about" in printed


def test_the_page_of_a_difference_is_written(folder, tmp_path):
    table(5).assign(age=90.0).to_parquet(tmp_path / "other.parquet")
    words = ["--estimator", "ulsif", "--html", f"{tmp_path}/page.html"]
    assert main(["compare", f"{folder}/0.vestige", f"{tmp_path}/other.parquet", *words]) == 0
    assert "differ" in (tmp_path / "page.html").read_text()


def test_merging_says_what_a_file_cannot_tell(folder, tmp_path, capsys):
    out = ["-o", f"{tmp_path}/all.vestige"]
    found = told(capsys, "merge", f"{folder}/0.vestige", f"{folder}/1.vestige", *out)
    assert [found[key] for key in ("epsilon", "parts")] == [2.0, 2]
    assert "no person is in two of the parts, which a file cannot tell" in found["covers"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--bounds", "bounds.toml"], "--bounds must be given with --epsilon"),
        (["--unit", "person"], "--unit must be given with --epsilon"),
        (["--epsilon", "1", "--third-moments", "--bounds", "b.toml"], "--third-moments must be left out"),
        (["--epsilon", "1"], "'bounds' of keep must be given"),
        (["--epsilon", "0", "--bounds", "{}/bounds.toml", "--drop", "person"], "'epsilon' of keep must be in"),
        (["--epsilon", "1", "--bounds", "{}/bounds.toml"], "Got none for 'person' instead"),
        (["--epsilon", "1", "--bounds", "{}/0.parquet"], "must be TOML"),
        (["--epsilon", "1", "--bounds", "{}/none.toml"], "none.toml"),
    ],
)
def test_what_is_refused(folder, tmp_path, words, sentence, capsys):
    words = [word.format(folder) for word in words]
    assert main(["keep", f"{folder}/0.parquet", "-o", f"{tmp_path}/a.vestige", *words]) != 0
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a.vestige").exists()
