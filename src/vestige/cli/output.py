"""The one place where the shell writes: tables and JSON to stdout; notes, errors and progress to stderr.

Colour and bars are for terminals alone, and NO_COLOR is honoured. Text from files and names is never read as markup,
and control characters in it are shown, not obeyed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import rich.table
from rich.console import Console
from rich.text import Text

# Wide enough that a table in a pipe or a file is never folded.
UNFOLDED = 10_000
MOST_DECIMALS = 12


@dataclass(frozen=True)
class Table:
    """A table as it is printed: `rows` of ready cells; numbers (None included) stand right, words left."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]
    note: str = ""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # `main` is where a closed pipe ends the run


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr, as they are at this moment."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    width = None if terminal or "COLUMNS" in os.environ else UNFOLDED
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def printable(text: str) -> str:
    """`text` with control characters and broken bytes spelt out, so that no file can drive the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def say(text: str = "") -> None:
    """A line of the answer."""
    console().print(Text(printable(text)), soft_wrap=True)


def note(text: str) -> None:
    """A line beside the answer, which a pipe does not carry on."""
    console(stderr=True).print(Text(printable(text), style="dim"), soft_wrap=True)


def error(text: str) -> None:
    """A refusal or a failure."""
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), printable(text)), soft_wrap=True)


def warn(text: str) -> None:
    """A result that stands, but not on firm ground."""
    console(stderr=True).print(Text.assemble(("warning: ", "bold yellow"), printable(text)), soft_wrap=True)


def document(value: object) -> None:
    """`value` as JSON on stdout; a NaN becomes null, because JSON has none."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON
    """`value` as plain JSON: dataclasses and mappings as objects, arrays as lists, what is not finite as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def decimals(values: Iterable[float | None], significant: int = 4) -> int:
    """How many decimals show `significant` digits of the largest of `values`: 4 for 0.98, 2 for 98.2."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    before_the_point = math.ceil(math.log10(max(sizes))) if sizes else 0
    return min(max(significant - before_the_point, 0), MOST_DECIMALS)


def cell(value: str | float | int | None, places: int = 4) -> str:
    """One cell: a number with `places` decimals, a dash for what is not there."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if not isinstance(value, float):
        return printable(str(value))
    text = f"{value:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text


def table(content: Table) -> None:
    """Print `content`; the decimals of its numbers are the same throughout."""
    numbers = [v for row in content.rows for v in row if isinstance(v, float)]
    places = decimals(numbers)
    drawn = rich.table.Table()
    for i, name in enumerate(content.columns):
        words = any(isinstance(row[i], str) for row in content.rows)
        drawn.add_column(Text(printable(name)), justify="left" if words else "right", overflow="fold")
    for row in content.rows:
        drawn.add_row(*(Text(cell(value, places)) for value in row))
    screen = console()
    screen.print(Text(printable(content.title), style="bold"), soft_wrap=True)
    screen.print(drawn)
    if content.note:
        say(content.note)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs, moved on by calling what it yields; nothing where there is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(printable(title), total=total)
        yield lambda steps: bar.advance(task, steps)
