"""What `vestige run` shows while it runs, on stderr: a live table on a terminal, lines elsewhere, JSON lines on demand.

All three show the same: how many units are finished, how far each that runs is and what it says, the time that is left,
and the last number that came out.
"""

from __future__ import annotations

import json
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from vestige.cli import output
from vestige.core.plain import plain

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress, TaskID

    from vestige.continual.record import Record
    from vestige.runner import Finished, Unit

EVERY = 10.0  # seconds between two lines on how far a unit is
NARROW = 60  # columns; a narrower screen has no room for the time that a unit has taken, nor for long words


class Pace:
    """How much is done of `total` units, and how long the rest will take at the pace so far."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock, self.start = total, clock, clock()
        self.found = self.ran = 0
        self.shares: dict[Path, float] = {}  # of the units under way

    @property
    def finished(self) -> int:
        """Units whose Record is there."""
        return self.found + self.ran

    def told(self, unit: Unit, share: float) -> None:
        """A unit is so far."""
        self.shares[unit.path] = max(share, self.shares.get(unit.path, 0.0))

    def done(self, finished: Finished) -> None:
        """A unit is finished; those that were there before do not count for the pace."""
        self.shares.pop(finished.unit.path, None)
        self.ran += finished.fresh
        self.found += not finished.fresh

    def left(self) -> float:
        """Seconds; NaN while nothing is known."""
        now = self.ran + sum(self.shares.values())
        return (self.clock() - self.start) * (self.total - self.found - now) / now if now else math.nan


def clock_words(seconds: float) -> str:
    """As on a clock: h:mm:ss."""
    if math.isnan(seconds):
        return "-:--:--"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def last_number(record: Record) -> str:
    """The number that says most in few letters: average accuracy, or the first value that is a number."""
    from vestige.metrics.matrix import average_accuracy

    if record.matrices:
        head = record.head or next(iter(record.matrices))
        return f"A {average_accuracy(record.matrices[head]):.3f}"
    return next((f"{name} {float(value):.4g}" for name, value in record.values.items() if value.numel() == 1), "")


class Board(ABC):
    """One of the three ways to show a run: each says in its `show` what becomes of an event."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.pace = title, Pace(total)

    def begin(self, unit: Unit) -> Callable[[float, str], None]:
        """A unit begins; returns what hears how far it is."""
        self.show("begun", unit)
        return partial(self._told, unit)

    def _told(self, unit: Unit, share: float, words: str) -> None:
        self.pace.told(unit, share)
        self.show("told", unit, share=share, words=words)

    def done(self, finished: Finished) -> None:
        """A unit's Record is there; `fresh` if it was run now."""
        self.pace.done(finished)
        record = finished.record
        self.show("finished", finished.unit, fresh=finished.fresh, record=record.id, number=last_number(record))

    def say(self, text: str) -> None:
        """Something that a person should know."""
        output.note(text)

    @abstractmethod
    def show(self, event: str, unit: Unit, **said: Any) -> None:  # noqa: ANN401 - what an event has to say
        """Show that a unit has "begun", has "told" how far it is, or is "finished"."""


class LogLines(Board):
    """A line for a unit that was run now, and one every `EVERY` seconds while none finishes."""

    last = -math.inf

    def show(self, event: str, unit: Unit, **said: Any) -> None:  # noqa: ANN401 - as above
        """Those that were there before are only counted."""
        pace, text = self.pace, ""
        if event == "told" and pace.clock() - max(self.last, pace.start) >= EVERY:
            text = f"{unit}: {said['share']:.0%}, {said['words']}"
        elif event == "finished" and said["fresh"]:
            text = f"{unit} finished, {said['number']}".rstrip(", ")
        if text:
            self.last = pace.clock()
            output.note(f"[{pace.finished}/{pace.total}, {clock_words(pace.left())} left] {text}")


class JsonLines(Board):
    """An object a line, for programs: event, unit, seed, share, done, total, left (seconds)."""

    def show(self, event: str, unit: Unit | None, **said: Any) -> None:  # noqa: ANN401 - JSON
        """The event and all that it says."""
        who = {} if unit is None else {"unit": str(unit), "experiment": unit.experiment, "seed": unit.seed}
        state = {"done": self.pace.finished, "total": self.pace.total, "left": self.pace.left()}
        sys.stderr.write(json.dumps(plain({"event": event, **who, **said, **state}), allow_nan=False) + "\n")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Event "note"."""
        self.show("note", None, words=text)


class LiveTable(Board):
    """A bar for all, and one for each unit under way."""

    def __init__(self, title: str, total: int, bars: Progress) -> None:
        super().__init__(title, total)
        self.bars, self.narrow = bars, bars.console.width < NARROW
        self.all = bars.add_task(output.printable(title), total=total, right="")
        self.rows: dict[Path, TaskID] = {}
        self.number = ""
        self._all()

    def show(self, event: str, unit: Unit, **said: Any) -> None:  # noqa: ANN401 - as above
        """A bar comes, moves and goes, and the one for all with it; a unit that is tried again begins anew."""
        if event == "told":
            self.bars.update(self.rows[unit.path], completed=said["share"], right=output.printable(said["words"]))
        elif unit.path in self.rows:
            self.bars.remove_task(self.rows.pop(unit.path))
        if event == "begun":
            name = f"  seed {unit.seed}  {output.printable(unit.label)}"  # the experiment stands above
            self.rows[unit.path] = self.bars.add_task(name.rstrip(), total=1.0, right="")
        self.number = said.get("number", self.number)  # it stays until the next
        self._all()

    def say(self, text: str) -> None:
        """Above the bars."""
        self.bars.console.print(output.printable(text), style="dim")

    def _all(self) -> None:
        pace = self.pace
        count, left = f"{pace.finished}/{pace.total}", clock_words(pace.left())
        wide = [count, f"{left} left", self.number and f"last: {self.number}"]
        right = "  ".join(filter(None, [count, left, self.number])) if self.narrow else ", ".join(filter(None, wide))
        self.bars.update(self.all, completed=pace.finished + sum(pace.shares.values()), right=right)


@contextmanager
def board(title: str, total: int, *, as_json: bool) -> Iterator[Board]:
    """The way that fits: JSON lines if asked for, a live table on a terminal, lines elsewhere."""
    screen = output.console(stderr=True)
    if as_json or not screen.is_terminal:
        yield JsonLines(title, total) if as_json else LogLines(title, total)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    def column(text: str, share: float) -> TextColumn:
        """One line, whatever the width; names come from configurations and are never read as markup."""
        kept = Column(no_wrap=True, overflow="ellipsis", max_width=int(screen.width * share))
        return TextColumn(text, markup=False, table_column=kept)

    narrow = screen.width < NARROW
    columns = (
        column("{task.description}", 0.25 if narrow else 0.36),
        BarColumn(bar_width=max(4, screen.width // 8)),
        *([] if narrow else [TimeElapsedColumn()]),
        column("{task.fields[right]}", 0.55 if narrow else 0.42),
    )
    with Progress(*columns, console=screen, transient=True) as bars:
        yield LiveTable(title, total, bars)
