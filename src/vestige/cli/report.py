"""`vestige report`: Records as a page with figures and tables, two sets of them side by side, or REPRODUCTIONS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError

if TYPE_CHECKING:
    from vestige.runner.report import Group, Written
    from vestige.show import Page


@dataclass(frozen=True)
class ReportVerb(output.Verb):
    """Runs as a page that opens from disk: measured beside published, matrices, curves, time, audit, commands.

    Runs of one experiment make one page; beside it every figure is written as PNG, PDF and SVG and every table as CSV,
    LaTeX and Markdown. Runs of several make a short index.html with every verdict, and a page for each.
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR|RECORD")] = ()
    """Records (.json, .jsonl), or folders of them at any depth; by default 'runs', where 'vestige run' puts them."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """The folder to write, or a page NAME.html with all else in NAME; by default 'report'."""
    compare: bool = False
    """Set two runs side by side, with paired differences: give two paths."""
    reproductions: bool = False
    """Write the index of every experiment in one folder, by default 'reproductions', and a page for each paper."""
    pack: Annotated[Path | None, arg(metavar="DIR")] = None
    """Write no page, but add the Records to DIR/NAME.jsonl, one file an experiment, in place of earlier versions."""
    page_only: bool = False
    """Leave out the files of figures and tables: faster."""
    files: bool = False
    """Write the files of figures and tables for several experiments too: several times slower."""

    def run(self) -> None:
        """Read, write, say where."""
        for one, other in (*combinations(("compare", "reproductions", "pack"), 2), ("page_only", "files")):
            if getattr(self, one) and getattr(self, other):
                words = f"--{one} or --{other}".replace("_", "-")
                raise InputError(f"The options of vestige report must be {words}. Got both instead.")
        if self.reproductions:
            self._document()
            return
        from vestige.runner import report

        out = self.out or Path("report")
        if self.compare:
            self._one(self._compared(), out)
            return
        paths = self.paths or (Path("runs"),)
        with output.progress("Reading Records"):
            records = report.gather(paths)
        if not records:
            raise InputError(f"The folder '{paths[0]}' must hold Records. Got none instead.")
        if self.pack is not None:
            packed = report.pack(records, self.pack)
            self.answer({"packed": packed}, f"{len(records)} Records are in {', '.join(map(str, packed))}.")
            return
        volumes = report.volumes(report.groups(records))
        if len(volumes) == 1:
            self._one(report.page_of(next(iter(volumes.values()))), out)
        else:
            self._several(volumes, out)

    def _one(self, page: Page, out: Path) -> None:
        from vestige.runner import report

        with output.progress("Drawing") as advance:
            written = report.write(page, out, files=not self.page_only, on_progress=lambda name: advance(0, name))
        self._say(f"{page.answer} {page.lead}".strip(), written.page, [written], [])

    def _several(self, volumes: Mapping[str, Sequence[Group]], out: Path) -> None:
        from vestige.runner import report

        order = list(volumes)
        with output.shares("Drawing") as reach:
            site = report.write_site(
                volumes, out, files=self.files, on_progress=lambda name: reach(order.index(name) / len(order), name)
            )
        self._say(site.lead, site.index, site.pages, [page.page for page in site.pages])

    def _say(self, lead: str, page: Path, written: Sequence[Written], pages: Sequence[Path]) -> None:
        figures = [path for one in written for path in one.figures]
        tables = [path for one in written for path in one.tables]
        beside = f", with a page for each of {len(pages)}" if pages else ""
        more = f", with {len(figures)} files of figures and {len(tables)} of tables" if figures or tables else ""
        told = {"conclusion": lead, "page": page, "pages": pages, "figures": figures, "tables": tables}
        self.answer(told, lead, f"Written to {page}{beside}{more}.")

    def _compared(self) -> Page:
        from vestige.runner import report

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
        from vestige import store
        from vestige.runner import report

        if len(self.paths) > 1:
            raise InputError(
                f"The paths of vestige report --reproductions must be one folder. Got {len(self.paths)} instead."
            )
        folder = self.paths[0] if self.paths else Path("reproductions")
        target = self.out or Path("REPRODUCTIONS.md")
        index, *pages = report.reproductions(folder).items()
        written = {target: index[1]} | {target.parent / name: text for name, text in pages}
        for path, text in written.items():
            store.write_bytes(path, text.encode())
        self.answer(
            {"document": target, "pages": [path for path in written if path != target]},
            f"Written to {target}, and a page for each paper to {target.parent / 'docs/reproductions'}.",
        )
