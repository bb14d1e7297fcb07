"""`vestige keep`, `show` and `merge`, from files to files: what is written, what is told, what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from vestige.cli import main
from vestige.core import VestigeWarning
from vestige.vestiges import keep
from vestige.vestiges.vestige import Vestige


def month(seed, n=300):
    g = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": g.normal(40, 10, n),
            "work": g.choice(["private", "state"], n, p=[0.6, 0.4]),
            "name": [f"person {seed}-{i}" for i in range(n)],
        }
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a table a month and two vestiges, the second like the first."""
    folder = tmp_path_factory.mktemp("kept")
    for i in range(3):
        month(i).to_parquet(folder / f"{i}.parquet")
    assert main(["keep", str(folder / "0.parquet"), "-o", str(folder / "0.vestige"), "--seed", "3"]) == 0
    like = ["--like", str(folder / "0.vestige")]
    assert main(["keep", str(folder / "1.parquet"), "-o", str(folder / "1.vestige"), *like]) == 0
    return folder


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_kept_holds_no_row_and_is_small(kept):
    found = Vestige.load(kept / "0.vestige")
    assert found.n == 300
    assert found.seed == 3
    data = (kept / "0.vestige").read_bytes()
    assert len(data) < 2e6
    assert b"person" not in data
    assert all(value not in data for value in month(0)["age"].to_numpy().view("S8"))


def test_the_answer_of_keep(kept, tmp_path, capsys):
    out = tmp_path / "a.vestige"
    assert main(["keep", str(kept / "0.parquet"), "-o", str(out), "--seed", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == str(out)
    assert told["n"] == 300
    assert told["bytes"] == out.stat().st_size
    assert out.read_bytes() == (kept / "0.vestige").read_bytes()  # the same seed, the same bits


def test_show_for_people(kept, capsys):
    assert main(["show", str(kept / "0.vestige")]) == 0
    out = capsys.readouterr().out
    for text in ("Vestige of 300 rows", " kB", "columns", "one of 2 categories", "identifiers", "its own error"):
        assert text in out
    for text in ("Jensen-Shannon", "what is stored", "header", "sketch.moments", "sketch.test", "reference"):
        assert text in out
    assert main(["show", str(kept / "0.vestige"), "--parts"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(out.splitlines())


def test_show_for_machines_names_every_array_and_every_byte(kept, capsys):
    assert main(["show", str(kept / "0.vestige"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kinds"] == {"age": "number", "work": "category"}
    assert [column["name"] for column in told["columns"]] == ["age", "work", "name"]
    assert told["densities"][0]["rows"] == 300
    assert not told["third_moments"]
    assert told["errors"]["js"]["high"] > 0
    assert sum(part["bytes"] for part in told["stored"]) == told["bytes"] == (kept / "0.vestige").stat().st_size
    assert len({part["name"] for part in told["stored"]}) == len(told["stored"]) > 5


def test_merging_adds_the_rows_up(kept, tmp_path, capsys):
    both = [str(kept / "0.vestige"), str(kept / "1.vestige")]
    assert main(["merge", *both, "-o", str(tmp_path / "all.vestige")]) == 0
    assert "2 vestiges of 300 + 300 rows" in capsys.readouterr().out
    found = Vestige.load(tmp_path / "all.vestige")
    assert found.n == 600
    parts = [Vestige.load(path) for path in both]
    mean = sum(part.moments.whole().mean for part in parts) / 2
    np.testing.assert_allclose(found.moments.whole().mean, mean, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_appending_is_merging_with_what_is_there(kept, tmp_path, capsys):
    out = tmp_path / "a.vestige"
    shutil.copy(kept / "0.vestige", out)
    assert main(["keep", str(kept / "1.parquet"), "-o", str(out), "--append"]) == 0
    assert "300 rows were added. Vestige of 600 rows" in capsys.readouterr().out
    want = Vestige.load(kept / "0.vestige").merge(Vestige.load(kept / "1.vestige"))
    got = Vestige.load(out)
    np.testing.assert_allclose(got.moments.whole().scatter, want.moments.whole().scatter, rtol=1e-12)


@pytest.mark.parametrize("how", ["--like", "--append"])
def test_how_rows_were_made_to_fit_is_told(kept, tmp_path, capsys, how):
    rows = month(7).rename(columns={"age": "Age"})[["work", "Age", "name"]].assign(colour="red")
    rows.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "a.vestige"
    shutil.copy(kept / "0.vestige", out)
    words = ["keep", str(tmp_path / "new.parquet"), "-o", str(out), *(["--append"] if how == "--append" else [])]
    words += ["--like", str(kept / "0.vestige"), "--force"] if how == "--like" else []
    assert main([*words, "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert len(notes) == 3
    for note, part in zip(notes, ("was taken for 'age'", "left out: 'colour'", "another order"), strict=True):
        assert part in note
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{note[1:]}." in told for note in notes)


def test_a_first_missing_number_is_a_warning_where_rows_are_kept_alike(kept):
    rows = month(8)
    rows.loc[:99, "age"] = np.nan
    with pytest.warns(VestigeWarning, match="age"):
        found = keep(rows, like=Vestige.load(kept / "0.vestige"))
    assert found.n == len(rows)


@pytest.mark.slow
def test_appending_keeps_third_moments_if_there_are_any(kept, tmp_path):
    out = str(tmp_path / "a.vestige")
    assert main(["keep", str(kept / "0.parquet"), "-o", out, "--third-moments"]) == 0
    assert main(["keep", str(kept / "1.parquet"), "-o", out, "--append"]) == 0
    assert Vestige.load(out).third.n_ == 600


@pytest.mark.slow
def test_those_that_were_not_kept_alike_are_refused_by_name(kept, tmp_path, capsys):
    assert main(["keep", str(kept / "2.parquet"), "-o", str(tmp_path / "c.vestige")]) == 0
    capsys.readouterr()
    code = main(["merge", str(kept / "0.vestige"), str(tmp_path / "c.vestige"), "-o", str(tmp_path / "all.vestige")])
    told = capsys.readouterr().err
    assert code == 2
    assert "0.vestige" in told
    assert "c.vestige" in told
    assert "--like" in told
    assert not (tmp_path / "all.vestige").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("keep {k}/0.parquet -o {t}/a.json", "must end in .vestige"),
        ("keep {k}/0.parquet -o {k}/0.vestige", "or --force given"),
        ("keep {k}/0.parquet -o {t}/a.vestige --append", "must be a vestige that is there"),
        ("keep {k}/1.parquet -o {k}/0.vestige --append --block 7", "Got --block beside it"),
        ("keep {k}/1.parquet -o {k}/0.vestige --append --third-moments", "Got --third-moments beside it"),
        ("keep {k}/few.parquet -o {t}/a.vestige", "at least 50"),
        ("keep {k}/few.parquet -o {k}/0.vestige --append", "at least 50"),
        ("keep {k}/0.parquet -o {t}/a.vestige --drop aeg", "Did you mean 'age'"),
        ("keep {k}/other.parquet -o {t}/a.vestige --like {k}/0.vestige", "no 'work' (the nearest is 'works')"),
        ("keep {k}/nowhere.csv -o {t}/a.vestige", "no such file"),
        ("merge {k}/0.vestige -o {t}/a.vestige", "at least two"),
        ("merge {k}/0.vestige {k}/1.vestige -o {k}/1.vestige", "or --force given"),
        ("merge {k}/0.vestige {k}/1.vestige -o {t}/a.npy", "must end in .vestige"),
    ],
)
def test_misuse_is_one_sentence_and_changes_nothing(kept, tmp_path, capsys, words, told):
    if not (kept / "few.parquet").exists():
        month(5, 49).to_parquet(kept / "few.parquet")
        month(5).rename(columns={"work": "works"}).to_parquet(kept / "other.parquet")
    before = files(kept)
    assert main([word.format(k=kept, t=tmp_path) for word in words.split()]) == 2
    assert told in capsys.readouterr().err
    assert files(kept) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda x: x[:-20], lambda x: b"nonsense", lambda x: x[:300] + b"?" + x[301:]])
def test_a_damaged_file_is_refused_by_name(kept, tmp_path, capsys, damage):
    bad = tmp_path / "bad.vestige"
    bad.write_bytes(damage((kept / "0.vestige").read_bytes()))
    for words in (["show", str(bad)], ["merge", str(kept / "0.vestige"), str(bad), "-o", str(tmp_path / "a.vestige")]):
        assert main(words) == 1
        assert "bad.vestige" in capsys.readouterr().err


def test_force_overwrites(kept, tmp_path):
    out = tmp_path / "a.vestige"
    out.write_bytes(b"old")
    words = ["merge", str(kept / "0.vestige"), str(kept / "1.vestige"), "-o", str(out)]
    assert main(words) == 2
    assert main([*words, "--force"]) == 0
    assert Vestige.load(out).n == 600
