"""What a run shows while it runs: the same facts as a table, as lines and as JSON."""

import contextlib
import dataclasses
import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.progress import Progress, TextColumn

from vestige.cli import live
from vestige.continual.record import Record
from vestige.runner import Finished, Unit


def unit(seed):
    return Unit("toy", None, seed, Path(f"{seed}.json"), "", "row=[bold]A[/bold]")


def finished(seed, *, fresh=True, **fields):
    return Finished(unit(seed), Record({}, seed, **fields), fresh)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_the_time_left_counts_what_was_run_now_and_not_what_was_there():
    clock = Clock()
    pace = live.Pace(5, clock)
    assert math.isnan(pace.left())
    pace.done(finished(0, fresh=False))
    clock.now += 30
    assert math.isnan(pace.left())
    pace.told(unit(1), 0.5)
    assert pace.left() == pytest.approx(30 / 0.5 * 3.5)  # 4 to run, half of one done in 30 s
    pace.done(finished(1))
    assert pace.left() == pytest.approx(30 * 3)
    pace.told(unit(2), 0.5)
    pace.told(unit(2), 0.2)  # tried again: it does not go back
    assert pace.left() == pytest.approx(30 / 1.5 * 2.5)
    assert pace.finished == 2


@pytest.mark.parametrize(("seconds", "words"), [(math.nan, "-:--:--"), (59.6, "0:01:00"), (3 * 3600 + 61, "3:01:01")])
def test_time_as_on_a_clock(seconds, words):
    assert live.clock_words(seconds) == words


def test_the_last_number_is_average_accuracy_or_the_first_value():
    R = torch.tensor([[1.0, torch.nan], [0.5, 1.0]], dtype=torch.float64)
    assert live.last_number(Record({}, 0, "single", {"single": R})) == "A 0.750"
    values = {"curve": torch.zeros(3, dtype=torch.float64), "kl": torch.tensor(2.5, dtype=torch.float64)}
    assert live.last_number(Record({}, 0, values=values)) == "kl 2.5"
    assert live.last_number(Record({}, 0)) == ""


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    with live.board("toy", 2, as_json=False) as shown:
        shown.done(finished(0, fresh=False))
        heard = shown.begin(unit(1))
        heard(0.5, "task 1")
        monkeypatch.setattr(live, "EVERY", 0.0)
        heard(0.75, "task 2")
        shown.done(finished(1, values={"kl": torch.tensor(2.5, dtype=torch.float64)}))
        shown.say("a note")
    captured = capsys.readouterr()
    first, second, note = captured.err.splitlines()
    assert first.startswith("[1/2, 0:00:0")
    assert first.endswith("toy row=[bold]A[/bold] seed 1: 75%, task 2")
    assert second == "[2/2, 0:00:00 left] toy row=[bold]A[/bold] seed 1 finished, kl 2.5"
    assert note == "a note"
    assert captured.out == ""


def test_json_lines(capsys):
    with live.board("toy", 2, as_json=True) as shown:
        shown.begin(unit(1))(0.5, "task 1")
        shown.done(finished(1))
        shown.say("a note")
    begun, told, done, note = map(json.loads, capsys.readouterr().err.splitlines())
    assert (begun["event"], begun["seed"], begun["left"]) == ("begun", 1, None)
    assert (told["event"], told["share"], told["words"], told["done"], told["total"]) == ("told", 0.5, "task 1", 0, 2)
    assert (done["event"], done["fresh"], done["done"]) == ("finished", True, 1)
    assert done["record"] == Record({}, 1).id
    assert note["words"] == "a note"


def test_a_table_on_a_terminal():
    text = io.StringIO()
    columns = (TextColumn("{task.description}", markup=False), TextColumn("{task.fields[right]}", markup=False))
    bars = Progress(*columns, console=Console(file=text, width=200, force_terminal=True), auto_refresh=False)
    shown = live.LiveTable("toy", 3, bars)
    shown.begin(unit(1))(0.5, "task [red]1")
    heard = shown.begin(unit(2))
    heard(0.25, "task 1")
    descriptions = [(task.description.strip(), task.completed) for task in bars.tasks]
    assert descriptions == [
        ("toy", 0.75),
        ("seed 1  row=[bold]A[/bold]", 0.5),
        ("seed 2  row=[bold]A[/bold]", 0.25),
    ]
    shown.done(finished(1, values={"kl": torch.tensor(2.5, dtype=torch.float64)}))
    assert [task.completed for task in bars.tasks] == [1.25, 0.25]
    assert bars.tasks[0].fields["right"].startswith("1/3, ")
    assert bars.tasks[0].fields["right"].endswith("last: kl 2.5")
    shown.begin(unit(2))  # its worker died
    assert len(bars.tasks) == 2
    assert bars.tasks[1].completed == 0
    bars.refresh()
    bars.console.print(bars.get_renderable())
    assert "seed 2  row=[bold]A[/bold]" in text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_row_stays_a_line_however_long_its_name_and_narrow_the_screen(monkeypatch, width):
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(live.output, "console", lambda stderr: screen)
    with live.board("an experiment with a name", 3, as_json=False) as shown:
        assert "0/3" in shown.bars.tasks[0].fields["right"]  # from the start
        long = dataclasses.replace(unit(1), label=", ".join(f"field_{i}={i}" for i in range(20)))
        shown.begin(long)(0.5, "a method of many words, task 1")
        drawn = screen.render_lines(shown.bars.get_renderable())
    assert len(drawn) == 2
    assert "seed 1  field_0" in "".join(segment.text for segment in drawn[1])


@pytest.fixture
def drawn(monkeypatch):
    """Opens a board on a terminal of some width under a clock of its own; gives the board, the clock, and its lines."""

    @contextlib.contextmanager
    def opened(width):
        screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        monkeypatch.setattr(live.output, "console", lambda stderr: screen)
        clock = Clock()
        with live.board("toy", 4, as_json=False) as shown:
            shown.pace.clock, shown.pace.start = clock, clock.now

            def lines():
                return [
                    "".join(part.text for part in line) for line in screen.render_lines(shown.bars.get_renderable())
                ]

            yield shown, clock, lines

    return opened


@pytest.mark.parametrize(
    ("width", "pending", "running", "one", "done"),
    [
        (80, "0/4, -:--:-- left", "1/4, 5:00:00 left", "task 1 of 2", "2/4, 2:00:00 left, last: kl 2.5"),
        (40, "0/4  -:--:--", "1/4  5:00:00", "task 1 of 2", "2/4  2:00:00  kl 2.5"),
    ],
)
def test_what_a_terminal_shows_of_units_that_wait_run_and_are_finished(drawn, width, pending, running, one, done):
    with drawn(width) as (shown, clock, lines):
        (total,) = lines()  # nothing has begun
        assert total.startswith("toy")
        assert pending in total
        assert "━" not in total

        shown.done(finished(0, fresh=False))
        heard = shown.begin(unit(1))
        shown.begin(unit(2))
        clock.now += 3600
        heard(0.5, "task 1 of 2")  # half a unit in an hour, and two and a half to go
        total, first, second = lines()
        assert running in total
        assert one in first
        assert ("seed 1" in first, "seed 2" in second) == (True, True)
        # 1.5 of 4 units, half of one, and nothing: a mark for each, in halves
        marks = [2 * line.count("━") + line.count("╸") for line in (total, first, second)]
        bar = max(4, width // 8)
        assert marks == [int(2 * bar * share) for share in (1.5 / 4, 0.5, 0.0)]

        shown.done(finished(1, values={"kl": torch.tensor(2.5, dtype=torch.float64)}))
        total, second = lines()
        assert done in total
        assert "seed 2" in second
        assert all(len(line) <= width for line in (total, second))


def test_a_unit_that_fails_leaves_a_clean_screen(drawn):
    with contextlib.suppress(ZeroDivisionError), drawn(80) as (shown, _, _):
        shown.begin(unit(1))(0.5, "task 1")
        shown.say("seed 1 begins again: its worker died")
        raise ZeroDivisionError
    screen = live.output.console(stderr=True).file.getvalue()
    assert "its worker died" in screen
    hide, show, erase = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    assert screen.rindex(show) > screen.rindex(hide)  # the cursor is there again
    assert screen.endswith(erase)  # and the bars are gone
