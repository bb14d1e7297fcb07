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


def test_there_are_blocks_to_run():
    assert sum(name.startswith("README") for name in BLOCKS) >= 2


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs(name, tmp_path):
    block = BLOCKS[name]
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
