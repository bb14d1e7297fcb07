"""What is printed where: JSON without NaN, numbers with fitting decimals, nothing of a file obeyed by a terminal."""

import io
import json
import math
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.cli import output
from vestige.core.plain import plain
from vestige.show.tables import cell, decimals


class Terminal(io.StringIO):
    def isatty(self):
        return True


@dataclass
class Thing:
    a: float
    b: tuple[int, ...]


def test_json_takes_what_verbs_have(capsys):
    value = {"x": math.nan, 2: torch.tensor([1.0, math.inf]), "y": np.float32(0.5), "z": Thing(1.5, (1, 2)), "n": None}
    output.document(value)
    assert json.loads(capsys.readouterr().out) == {
        "x": None,
        "2": [1.0, None],
        "y": 0.5,
        "z": {"a": 1.5, "b": [1, 2]},
        "n": None,
    }


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.one_of(st.floats(), st.text(), st.none(), st.booleans()),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        max_leaves=15,
    )
)
def test_plain_is_always_json(value):
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == plain(value)


@pytest.mark.parametrize(
    ("values", "places"),
    [([0.98, 0.1], 4), ([1.0], 4), ([98.2], 2), ([100.0, 3.0], 2), ([12345.6], 0), ([0.0004], 7), ([], 4), ([0.0], 4)],
)
def test_decimals_fit_the_largest_number(values, places):
    assert decimals([*values, None, math.nan]) == places


@pytest.mark.parametrize(
    ("value", "shown"), [(0.12345, "0.1235"), (-0.00001, "0.0000"), (None, "-"), (math.nan, "-"), (3, "3"), ("a", "a")]
)
def test_cells(value, shown):
    assert cell(value) == shown


def test_a_table_in_a_pipe_is_neither_folded_nor_coloured(capsys):
    output.table(
        output.Table("wide [bold]", [f"column {i}" for i in range(60)], [["[red]x[/red]"] * 60], note="A note.")
    )
    out = capsys.readouterr().out
    assert out.startswith("wide [bold]\n")
    assert out.count("[red]x[/red]") == 60
    assert len([line for line in out.splitlines() if "[red]x" in line]) == 1
    assert "\x1b" not in out
    assert out.endswith("A note.\n")


def test_numbers_stand_right_and_words_left(capsys):
    output.table(output.Table("t", ["word", "number"], [["a", 0.5], ["long word", -0.25]]))
    lines = capsys.readouterr().out.splitlines()
    assert any("│ a         │  0.5000 │" in line for line in lines)


def test_escape_sequences_of_a_name_are_spelt_out(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    output.table(output.Table("\x1b[2J", ["\x1b]0;x\x07"], [["\x1b[31mred"]]))
    output.say("bell\x07")
    shown = screen.getvalue()
    assert "\\x1b[2J" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown


def test_colour_is_for_terminals_and_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for forbidden in (False, True):
        monkeypatch.setenv("NO_COLOR", "1") if forbidden else monkeypatch.delenv("NO_COLOR", raising=False)
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        output.error("no")
        assert ("\x1b[1;31m" in screen.getvalue()) is not forbidden


def test_a_bar_is_drawn_on_terminals_alone(monkeypatch, capsys):
    with output.progress("work", total=3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with output.progress("work", total=3) as advance:
        advance(2)
        advance(1, "the [last] part")
    assert "work" in screen.getvalue()
    assert "the [last] part" in screen.getvalue()
    assert "3/3" in screen.getvalue()
