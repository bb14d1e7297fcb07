"""`vestige list`: the registries as they are, and rooms that are missing or broken."""

import json
import sys
import types
from dataclasses import dataclass

import pytest

from vestige.cli import listing, main
from vestige.continual.learners import METHODS
from vestige.data import SOURCES


def test_every_method_and_data_set_is_listed_with_a_line_about_it(capsys):
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["experiments", "methods", "streams", "generators", "estimators", "features", "data"]
    assert list(found["methods"]) == list(METHODS)
    assert list(found["data"]) == list(SOURCES)
    assert all(found["methods"].values())
    assert all(found["data"].values())


def test_one_section_as_a_table(capsys):
    assert main(["list", "methods"]) == 0
    out = capsys.readouterr().out
    assert "vanilla" in out
    assert "digits" not in out


@dataclass
class Undescribed:
    x: int = 0


@dataclass
class Described:
    """The first line.

    The rest.
    """


def plant(monkeypatch, **attributes):
    module = types.ModuleType("vestige.planted")
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, "vestige.planted", module)
    monkeypatch.setitem(listing.REGISTRIES, "experiments", ("vestige.planted", "THINGS"))


def test_a_line_comes_from_about_or_from_the_docstring(monkeypatch):
    spoken = types.SimpleNamespace(about="What it says of itself.")
    plant(monkeypatch, THINGS={"a": Described, "b": Undescribed, "c": spoken})
    assert listing.entries("experiments") == {"a": "The first line.", "b": "", "c": "What it says of itself."}


def test_a_room_that_is_not_there_has_nothing_to_list(monkeypatch, capsys):
    monkeypatch.setitem(listing.REGISTRIES, "experiments", ("vestige.nowhere", "THINGS"))
    assert main(["list", "experiments"]) == 0
    assert capsys.readouterr().out == "experiments: none yet\n"


def test_a_room_that_is_there_and_broken_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "broken_room.py").write_text("import a_package_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(listing.REGISTRIES, "experiments", ("broken_room", "THINGS"))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_installed"):
        listing.entries("experiments")
