"""A package of somebody else registers an experiment, as docs/running.md says, and the command line finds it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


# Each line that is heard is a command; what it prints is followed by a mark, and by when its Record was written.
COMMANDS = """
import sys
from pathlib import Path
from vestige.cli import main
for line in sys.stdin:
    if code := main(line.split()):
        sys.exit(code)
    print("----", *(path.stat().st_mtime_ns for path in Path("runs/mine").glob("*.json")))
"""


def vestige(sites, *commands):
    """What each of these words of `vestige` prints in the first of these folders, with all of them on the path."""
    path = os.pathsep.join([*map(str, sites), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = {"cwd": sites[0], "env": os.environ | {"PYTHONPATH": path}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", COMMANDS], input="\n".join(commands), **process)
    assert done.returncode == 0, done.stderr
    return re.findall(r"(.*?)\n---- ?(\d*)\n", done.stdout, re.DOTALL)


def test_it_is_listed_and_run_and_finished(installed):
    run = "run mine --preset smoke --workers 0"
    (listed, nothing), (shown, written), (again, still) = vestige([installed], "list experiments", run, f"{run} --json")
    assert "mine" in listed
    assert not nothing
    assert "No verdict: " in shown  # of a smoke run
    assert "mine" in again
    assert written == still != ""


@pytest.mark.slow
def test_two_of_one_name_are_refused(installed, tmp_path):
    about = tmp_path / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vestige.experiments]\nmine = other:Mine\n")
    (tmp_path / "other.py").write_text((installed / "my_package.py").read_text())
    with pytest.raises(AssertionError, match="Two experiments are called 'mine'"):
        vestige([installed, tmp_path], "list experiments")
