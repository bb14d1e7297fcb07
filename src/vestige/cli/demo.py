"""`vestige demo`: the main job, on data that ships with the package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from vestige.cli import output
from vestige.cli.matrix import SYMBOLS, as_document

if TYPE_CHECKING:
    from vestige.protocol import Progress
    from vestige.record import Record


@dataclass(frozen=True)
class Demo:
    """The main job on data that ships with the package, in under a minute.

    Ten handwritten digits come two at a time and are deleted when their turn is over. One network simply trains on
    (vanilla); another may keep everything and start anew each time (joint), which is what nobody may do: the reference.
    """

    seed: int = 0
    """The same seed gives the same numbers."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Also write a Record of each run into this folder."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Train, test, print."""
        # Networks this small are slower on several threads; torch is not loaded yet, and a user's own choice stands.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        from vestige import demo

        with output.progress("training", total=demo.samples_to_train()) as advance:
            last: dict[str, int] = {}

            def tell(method: str, progress: Progress) -> None:
                advance(progress.done - last.get(method, 0))
                last[method] = progress.done

            records = demo.run(seed=self.seed, on_progress=tell)
        paths = {} if self.out is None else {name: record.save(self.out) for name, record in records.items()}
        if self.json:
            found = {name: {"id": r.id, **as_document(r.summary())} for name, r in records.items()}
            output.document(found)
            return
        for name, record in records.items():
            title = f"{name}: accuracy on each pair of digits (columns) after training on each pair (rows)"
            cells = [(after, *row) for after, row in zip(record.task_names, record.R.tolist(), strict=True)]
            output.table(output.Table(title, ("after", *record.task_names), cells))
        output.table(_summary(records))
        output.say(_conclusion(records))
        for name, path in paths.items():
            output.note(f"{name}: {path}")


def _summary(records: dict[str, Record]) -> output.Table:
    rows = []
    for name, record in records.items():
        last = record.summary().last()
        rows.append((name, *(last[quantity] for quantity in SYMBOLS), f"{sum(record.seconds['train']):.1f}"))
    note = "A average accuracy, F forgetting, I intransigence, BWT and FWT backward and forward transfer."
    return output.Table("after the last pair", ("method", *SYMBOLS.values(), "seconds"), rows, note)


def _conclusion(records: dict[str, Record]) -> str:
    vanilla, joint = (records[name].summary().last() for name in ("vanilla", "joint"))
    return (
        f"Trained on without its old data, the network knows {vanilla['average']:.0%} of all digits instead of "
        f"{joint['average']:.0%}: it forgot {vanilla['forgetting']:.0%} of what it knew of earlier pairs."
    )
