"""`vestige data`: the listing and the fetch, without the network."""

import json

import pytest

import vestige.data
from vestige.cli import main
from vestige.core.errors import DataUnavailable


def test_the_listing_for_machines_is_that_of_the_library(capsys):
    assert main(["data", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == vestige.data.listing()
    assert next(row for row in found if row["name"] == "digits")["here"] == "installed"


def test_the_listing_for_people(tmp_path, capsys):
    (tmp_path / "mnist.npz").touch()
    assert main(["data", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert str(tmp_path / "mnist.npz") in out
    assert "11.6 MB" in out
    assert "CC BY" in out


def test_a_folder_that_is_none_is_misuse(tmp_path, capsys):
    assert main(["data", "--data", str(tmp_path / "nowhere")]) == 2
    assert "must be a folder" in capsys.readouterr().err


def test_fetch_says_what_came_from_where(capsys):
    assert main(["data", "fetch", "digits", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "digits"
    assert row["train"] + row["test"] == 1797


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["fetch"], "needs a name"),
        (["fetch", "minst"], "Did you mean 'mnist'?"),
        (["fetch", "digits", "--data", "."], "'--data' of vestige data fetch must be left out"),
        (["list", "mnist"], "names of vestige data list must be none"),
    ],
)
def test_misuse(argv, sentence, capsys):
    assert main(["data", *argv]) == 2
    assert sentence in capsys.readouterr().err


def test_every_name_is_checked_before_the_first_is_fetched(monkeypatch):
    fetched = []
    monkeypatch.setattr(vestige.data, "fetch", lambda name, **_: fetched.append(name))
    assert main(["data", "fetch", "digits", "minst"]) == 2
    assert fetched == []


def test_a_fetch_that_fails_is_1(monkeypatch, capsys):
    def fail(name, **_):
        raise DataUnavailable(f"{name} is nowhere.")

    monkeypatch.setattr(vestige.data, "fetch", fail)
    assert main(["data", "fetch", "mnist"]) == 1
    assert capsys.readouterr().err == "error: mnist is nowhere.\n"
