"""`vestige demo`: four of the package's jobs, on data that ships with it, and a page about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from vestige.cli import output


@dataclass(frozen=True)
class DemoVerb(output.SeededVerb):
    """Four jobs on handwritten digits that ship with the package, in about two minutes, and a page about them.

    Half of the digits are kept as a small file and deleted, and new ones are held against it; a generator learns digit
    after digit while the data is deleted, and a monitor follows it without; four learners are compared on digits whose
    pixels change their order, and the comparison is audited; weights correct a biased sample set.
    """

    out: Annotated[Path, arg(metavar="DIR")] = Path("demo-report")
    """Where index.html goes, and a Record of each learner under 'records'."""

    def run(self) -> None:
        """Train, compare, write, print."""
        from vestige.cli.demo import jobs as demo
        from vestige.cli.demo.page import page, sentences
        from vestige.core import checks

        checks.whole(self.seed, "seed", "vestige demo", low=0)
        if self.out.exists() and not self.out.is_dir():
            checks.refuse("out", "vestige demo", "a folder", f"the file {self.out}")
        self.out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made is said before two minutes of work
        with output.shares("the demo") as reach:
            found = demo.run(seed=self.seed, on_progress=lambda what, share: reach(share, what))
            reach(1.0, "the page is drawn")
            drawn = page(found)
        for record in found.records.values():
            record.save(self.out / "records")
        written = drawn.save(self.out / "index.html")  # last, whole or not at all: who finds it finds everything
        said = (*sentences(found), f"Written to {written}.")
        self.answer(found.to_json() | {"page": written}, *said)
