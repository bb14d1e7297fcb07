"""`vestige report`: Records as a page with figures and tables, two sets of them side by side, or REPRODUCTIONS.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.errors import InputError

if TYPE_CHECKING:
    from vestige.drawing import Page


@dataclass(frozen=True)
class Report:
    """Runs as one page that opens from disk: measured beside published, matrices, curves, time, audit, commands.

    Beside the page every figure is written as PNG, PDF and SVG and every table as CSV, LaTeX and Markdown.
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR|RECORD")] = ()
    """Records, or folders of them at any depth; by default 'runs', where 'vestige run' puts them."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """The folder to write, or a page NAME.html with its figures and tables in NAME; by default 'report'."""
    compare: bool = False
    """Set two runs side by side, with paired differences: give two paths."""
    reproductions: bool = False
    """Write the Markdown document of every experiment in one folder, by default 'reproductions'."""
    page_only: bool = False
    """Leave out the files of figures and tables: faster."""
    json: bool = False
    """Print JSON: what was concluded, and where everything is."""

    def run(self) -> None:
        """Read, write, say where."""
        if self.compare and self.reproductions:
            raise InputError("The options of vestige report must be --compare or --reproductions. Got both instead.")
        if self.reproductions:
            self._document()
            return
        from vestige import report

        page = self._page()
        written = report.write(page, self.out or Path("report"), files=not self.page_only)
        if self.json:
            output.document(
                {
                    "conclusion": page.lead,
                    "page": str(written.page),
                    "figures": [str(path) for path in written.figures],
                    "tables": [str(path) for path in written.tables],
                }
            )
            return
        output.say(page.lead)
        more = f", with {len(written.figures)} files of figures and {len(written.tables)} of tables"
        output.say(f"Written to {written.page}{'' if self.page_only else more}.")

    def _page(self) -> Page:
        from vestige import report

        if not self.compare:
            paths = self.paths or (Path("runs"),)
            records = report.gather(paths)
            if not records:
                raise InputError(f"The folder '{paths[0]}' must hold Records. Got none instead.")
            return report.report(records)
        if len(self.paths) != 2:
            raise InputError(f"The paths of vestige report --compare must be two. Got {len(self.paths)} instead.")
        first, second = (report.gather([path]) for path in self.paths)
        for path, found in zip(self.paths, (first, second), strict=True):
            if not found:
                raise InputError(f"The folder '{path}' must hold Records. Got none instead.")
        names = [path.resolve().name for path in self.paths]
        one, two = names if names[0] != names[1] else map(str, self.paths)
        return report.compare(first, second, (one, two))

    def _document(self) -> None:
        from vestige import report, store

        if len(self.paths) > 1:
            raise InputError(
                f"The paths of vestige report --reproductions must be one folder. Got {len(self.paths)} instead."
            )
        folder = self.paths[0] if self.paths else Path("reproductions")
        target = self.out or Path("REPRODUCTIONS.md")
        store.write_bytes(target, report.reproductions(folder).encode())
        output.document({"document": str(target)}) if self.json else output.say(f"Written to {target}.")
