"""Every Python block of the README and of the pages in docs/ runs as it stands, in a folder of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    f"{page.name}-{i}": block
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S))
}


JOBS = ("watch_a_generator", "compare_learners", "weigh_samples", "evaluate_a_policy", "run_a_paper")


def test_there_are_blocks_to_run():
    assert sum(name.startswith("README") for name in BLOCKS) >= 2
    assert {f"{page}.md-0" for page in (*JOBS, "index", "add_a_method")} <= set(BLOCKS)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_shows_its_picture_and_its_example_draws_it(job):
    text = (ROOT / "docs" / f"{job}.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([^)]+)\)", text)
    drawn = re.findall(r'"(\w+\.svg)"', "".join(b for name, b in BLOCKS.items() if name.startswith(job)))
    assert shown
    assert sorted(shown) == sorted(drawn)


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text())) - {"REPRODUCTIONS.md"}
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} | {"reproductions.md"}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs(name, tmp_path):
    block = BLOCKS[name]
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
