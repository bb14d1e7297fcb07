"""requirements.lock names every file by its hash, and says nothing else than constraints.txt and pyproject.toml do."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _pins(text):
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*?\])?==([^\s;]+)", text, re.MULTILINE)
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found}


def _locked():
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_every_locked_version_is_the_constrained_one():
    locked, constrained = _pins(_locked()), _pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert {name: version for name, version in locked.items() if constrained.get(name, version) != version} == {}


def test_every_requirement_of_a_user_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["policy"], *extras["cluster"]]
    names = {re.match(r"[A-Za-z0-9._-]+", line).group().lower() for line in wanted}
    assert names - set(_pins(_locked())) == set()


def test_every_locked_version_has_hashes():
    entries = re.split(r"\n(?=\S)", _locked())
    assert len(entries) == len(_pins(_locked()))
    assert [entry.split()[0] for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
