"""The examples of the site. Pictures are drawn by the example on their page, so that picture and code cannot disagree.

    python docs/examples.py

runs the Python blocks of every page that shows a picture and puts the pictures into `docs/pictures`. It ends with an
error if a block fails, warns or prints nothing, or if a picture that a page shows was not drawn. `make docs` does so
before it builds the site; the blocks of all other pages are run by tests/test_readme.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))


def shown(text: str) -> list[str]:
    """Names of the pictures that a page shows."""
    return re.findall(r"!\[[^\]]+\]\(pictures/([^)]+)\)", text)


def blocks(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def run(block: str, place: Path) -> str:
    """Run a block by itself, as a program started in `place`: its own names, warnings are errors, and it must print.

    What it printed is returned.
    """
    printed, before = io.StringIO(), Path.cwd()
    os.chdir(place)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("error")
            exec(compile(block, "block", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    assert printed.getvalue().strip(), f"This block prints nothing:\n{block}"
    return printed.getvalue()


def draw(text: str, folder: Path) -> None:
    """Run the blocks of a page and put the pictures that it shows into `folder`."""
    with tempfile.TemporaryDirectory() as place:
        for block in blocks(text):
            run(block, Path(place))
        for name in shown(text):
            (folder / name).write_bytes((Path(place) / name).read_bytes())


if __name__ == "__main__":
    pictures = DOCS / "pictures"
    pictures.mkdir(exist_ok=True)
    for page in PAGES:
        if shown(page.read_text()):
            print(f"drawing the pictures of {page.name} ...", flush=True)
            draw(page.read_text(), pictures)
