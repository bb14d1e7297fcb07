"""The one place where the shell writes: tables and JSON to stdout; notes, errors and progress to stderr.

Colour and bars are for terminals alone, and NO_COLOR is honoured. Text from files and names is never read as markup,
and control characters in it are shown, not obeyed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import rich.table
from rich.console import Console
from rich.text import Text

from vestige.core.errors import shortened
from vestige.core.plain import plain
from vestige.show.tables import Table as Table
from vestige.show.tables import printable as printable

# Characters of a sentence on stderr; the middle of a longer one, such as a name that has no end, is left out.
SENTENCE = 1500
# Wide enough that a table in a pipe or a file is never folded.
UNFOLDED = 10_000


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # `main` is where a closed pipe ends the run


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr, as they are at this moment."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    width = None if terminal or "COLUMNS" in os.environ else UNFOLDED
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(text: str = "") -> None:
    """A line of the answer."""
    console().print(Text(printable(text)), soft_wrap=True)


def note(text: str) -> None:
    """A line beside the answer, which a pipe does not carry on."""
    console(stderr=True).print(Text(printable(text), style="dim"), soft_wrap=True)


def error(text: str) -> None:
    """A refusal or a failure."""
    console(stderr=True).print(
        Text.assemble(("error: ", "bold red"), shortened(printable(text), SENTENCE)), soft_wrap=True
    )


def warn(text: str) -> None:
    """A result that holds under conditions."""
    console(stderr=True).print(
        Text.assemble(("warning: ", "bold yellow"), shortened(printable(text), SENTENCE)), soft_wrap=True
    )


def document(value: object) -> None:
    """`value` as JSON on stdout; a NaN becomes null, because JSON has none."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def table(content: Table) -> None:
    """Print `content`; the decimals of its numbers are the same throughout."""
    drawn = rich.table.Table()
    for name, words in zip(content.columns, content.words(), strict=True):
        drawn.add_column(Text(printable(name)), justify="left" if words else "right", overflow="fold")
    for row in content.texts():
        drawn.add_row(*map(Text, row))
    screen = console()
    screen.print(Text(printable(content.title), style="bold"), soft_wrap=True)
    screen.print(drawn)
    if content.note:
        say(content.note)
    for number, text in enumerate(content.footnotes(), 1):
        say(f"[{number}] {text}")


class Note(str):
    """A sentence beside the answer, for stderr."""


class Caution(str):
    """A sentence for stderr: the answer holds under conditions."""


PRINTED: dict[type, Callable[[Any], None]] = {Table: table, str: say, Note: note, Caution: warn}


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What every verb has: its answer in words or in JSON."""

    json: bool = False
    """Print JSON instead of tables and sentences."""

    def answer(self, value: object, *shown: Table | str) -> None:
        """`value` as JSON where that was asked for, else the tables and sentences."""
        if self.json:
            document(value)
            return
        for part in shown:
            PRINTED[type(part)](part)


@dataclass(frozen=True, kw_only=True)
class SeededVerb(Verb):
    """A verb that draws numbers."""

    seed: int = 0
    """The same seed gives the same numbers."""


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar on stderr while the block runs, moved on by calling what it yields; nothing where there is no terminal.

    It is called with a number of steps, and with words where what is going on is to stand in the place of `title`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    # Words come from configurations and are never read as markup.
    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(printable(title), total=total)

        def advance(steps: int, said: str | None = None) -> None:
            bar.update(task, advance=steps, description=None if said is None else printable(said))

        yield advance


@contextmanager
def shares(title: str) -> Iterator[Callable[[float, str | None], None]]:
    """The same bar, moved on by calling what it yields with the share of the work that is done, and words."""
    with progress(title, 100) as advance:
        at = 0

        def reach(share: float, said: str | None = None) -> None:
            nonlocal at
            now = round(100 * share)
            advance(now - at, said)
            at = now

        yield reach
