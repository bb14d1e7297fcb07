"""The pictures of the site: each is drawn by the example on its page, so that picture and code cannot disagree.

    python docs/pictures.py

runs the Python blocks of every page that shows a picture, in `docs/pictures`, and ends with an error if a block fails
or a picture that a page shows was not drawn. `make docs` does so before it builds the site.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
FOLDER = DOCS / "pictures"


def shown(text: str) -> list[str]:
    """Names of the pictures that a page shows."""
    return re.findall(r"!\[[^\]]*\]\(pictures/([^)]+)\)", text)


def blocks(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def draw(text: str, folder: Path) -> None:
    """Run the blocks of a page and put the pictures that it shows into `folder`."""
    with tempfile.TemporaryDirectory() as place:
        for block in blocks(text):
            subprocess.run([sys.executable, "-c", block], cwd=place, check=True, stdout=subprocess.DEVNULL)
        for name in shown(text):
            (folder / name).write_bytes((Path(place) / name).read_bytes())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page in sorted(DOCS.glob("*.md")):
        if shown(page.read_text()):
            print(f"drawing the pictures of {page.name} ...", flush=True)
            draw(page.read_text(), FOLDER)
