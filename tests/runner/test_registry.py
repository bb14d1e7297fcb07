"""A package of somebody else registers an experiment, as docs/running.md says, and the command line finds it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vestige.cli import main
from vestige.runner.registry import EXPERIMENTS

PAGE = Path(__file__).parents[2] / "docs" / "running.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package of the page: its module, and what an installer leaves of its pyproject.toml."""
    section = PAGE.read_text().partition("## Register your own experiment")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL))
    group, name, target = re.search(r'entry-points\."(.+?)"\]\n(\w+) = "(.+?)"', blocks["toml"]).groups()
    site = tmp_path_factory.mktemp("site")
    (site / "my_package.py").write_text(blocks["python"])
    about = site / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    return site


def listed(sites):
    """What a process of its own says when it is asked for all experiments, with these folders on its path."""
    path = os.pathsep.join([*map(str, sites), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = {"cwd": sites[0], "env": os.environ | {"PYTHONPATH": path}, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-m", "vestige", "list", "experiments"], **process)


@pytest.fixture
def on_the_path(installed, monkeypatch):
    """The package is installed for this process too: nothing of it is known before, and nothing is left of it."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(installed)
    monkeypatch.delitem(vars(EXPERIMENTS), "data", raising=False)
    yield
    vars(EXPERIMENTS).pop("data", None)
    sys.modules.pop("my_package", None)


@pytest.mark.usefixtures("on_the_path")
def test_it_is_listed_and_run_and_finished(capsys):
    run = ["run", "mine", "--preset", "smoke", "--workers", "0"]
    told = []
    for words in (["list", "experiments"], run, [*run, "--json"]):
        assert main(words) == 0
        told.append((capsys.readouterr().out, [path.stat().st_mtime_ns for path in Path("runs/mine").glob("*.json")]))
    (listed, nothing), (shown, written), (again, still) = told
    assert "mine" in listed
    assert not nothing
    assert "No verdict: " in shown  # of a smoke run
    assert "mine" in again
    assert written == still != []


@pytest.mark.slow
def test_two_of_one_name_are_refused(installed, tmp_path):
    about = tmp_path / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vestige.experiments]\nmine = other:Mine\n")
    (tmp_path / "other.py").write_text((installed / "my_package.py").read_text())
    assert "mine" in listed([installed]).stdout
    refused = listed([installed, tmp_path])
    assert refused.returncode != 0
    assert "Two experiments are called 'mine'" in refused.stderr
