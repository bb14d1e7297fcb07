"""Tables: every format escapes its own markup, numbers keep their decimals, CSV keeps every digit."""

import csv
import io
import math
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.core.estimate import Estimate, rendered
from vestige.show import Link, Table
from vestige.show.tables import PROSE

HOSTILE = [
    "<script>alert(1)</script>",
    "a \"quoted\" 'name'",
    "a|b",
    "x & y",
    "50% of $5_{x}^~#\\",
    "שלום",
    "\u202eabc",
]


class Cells(HTMLParser):
    """The texts of the cells as a browser would show them, and the tags seen."""

    def __init__(self, text):
        super().__init__()
        self.inside = False
        self.cells, self.tags, self.values = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside = tag == "bdi"
        if tag in ("td", "th"):
            self.cells.append("")
            self.values.append(dict(attrs).get("data-value"))

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.cells and self.inside:
            self.cells[-1] += data


def test_numbers_have_the_decimals_of_the_largest_and_missing_ones_a_dash():
    table = Table("t", ["a", "b"], [[0.5, 12.346], [None, math.nan], [1, -0.001]])
    assert table.texts() == [["0.50", "12.35"], ["-", "-"], ["1", "0.00"]]


def test_decimals_may_be_those_of_a_row_or_a_column():
    rows = [[0.5, 120.0, "x"], [0.25, None, "y"]]
    assert Table("t", "abc", rows, alike="row").texts() == [["0.5", "120.0", "x"], ["0.2500", "-", "y"]]
    assert Table("t", "abc", rows, alike="column").texts() == [["0.5000", "120.0", "x"], ["0.2500", "-", "y"]]
    assert Table("t", "abc", [], alike="column").texts() == []


def test_a_row_of_another_width_is_refused():
    with pytest.raises(InputError, match=r"The 'rows' of Table must be 2 cells wide. Got 1 instead."):
        Table("t", ["a", "b"], [["x", 1], ["y"]])


def test_csv_reads_back_to_every_digit():
    rows = [["a,b", 0.1 + 0.2, 3], ['say "x"', math.nan, None], ["two\nlines", np.float64(1e-300), -7]]
    read = list(csv.reader(io.StringIO(Table("t", ["name", "x", "n"], rows).csv())))
    assert read[0] == ["name", "x", "n"]
    assert [row[0] for row in read[1:]] == ["a,b", 'say "x"', "two\nlines"]
    assert [float(row[1]) if row[1] else None for row in read[1:]] == [0.1 + 0.2, None, 1e-300]
    assert [row[2] for row in read[1:]] == ["3", "", "-7"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+cmd|x", "'+cmd|x"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-", "-"),
        ("-1.5", "-1.5"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_of_a_csv_is_a_formula(text, written):
    assert next(csv.reader(io.StringIO(Table("t", [text], []).csv()))) == [written]
    assert list(csv.reader(io.StringIO(Table("t", ["c"], [[text]]).csv())))[1] == [written]


def test_markdown_escapes_what_could_begin_something():
    lines = Table("a *b*", ["x|y", "n"], [["<b>`_", 0.5], ["two\nlines", 1.0]], note="[n](u)").markdown().splitlines()
    assert lines == [
        r"**a \*b\***",
        "",
        r"| x\|y | n |",
        "| --- | ---: |",
        r"| \<b\>\`\_ | 0.5000 |",
        "| two lines | 1.0000 |",
        "",
        r"\[n\](u)",
    ]


def test_latex_escapes_its_ten_special_characters():
    text = Table("50%", ["a_b", "n"], [[r"\x{}~^&#$<>|", 0.5]], note="n_1").latex()
    special = (
        r"\textbackslash{}x\{\}\textasciitilde{}\textasciicircum{}\&\#\$"
        r"\textless{}\textgreater{}\textbar{}"
    )
    assert f"    {special} & 0.5000 \\\\" in text.splitlines()
    assert r"\caption{50\%}" in text
    assert r"a\_b & n \\" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"n\_1" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_html_shows_a_hostile_name_and_runs_nothing(name):
    seen = Cells(Table(name, [name, "n"], [[name, 0.5], ["b", 2]], note=name).html())
    shown = name.replace("\u202e", "\\u202e")
    assert seen.cells == [shown, "n", shown, "0.5000", "b", "2"]
    assert seen.values == [None, None, None, "0.5", None, "2"]
    assert set(seen.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td", "bdi"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(), st.floats() | st.integers() | st.none()), max_size=4), st.text())
def test_every_format_takes_any_text(rows, name):
    table = Table(name, [name, "n"], [list(row) for row in rows], note=name)
    cells = Cells(table.html()).cells
    assert len(cells) == 2 * (len(rows) + 1)
    assert len(list(csv.reader(io.StringIO(table.csv())))) == len(rows) + 1
    pipes = [line for line in table.markdown().splitlines() if line.startswith("| ")]
    assert len(pipes) == len(rows) + 2
    assert all(line.replace("\\\\", "").replace("\\|", "").count("|") == 3 for line in pipes)
    for text in (table.csv(), table.markdown(), table.latex(), table.html()):
        text.encode()  # no broken halves of a character


def test_words_stand_left_and_numbers_right():
    html = Table("t", ["w", "n"], [["a", None], ["b", 1.0]]).html()
    assert '<th scope="col"><bdi>w' in html
    assert '<th scope="col" class="number"><bdi>n' in html
    assert '<th scope="row"><bdi>a' in html
    assert '<td class="number"><bdi>-' in html
    long = Table("t", ["w", "v"], [["a", "b" * PROSE], ["b", "c" * (PROSE - 1)]]).html()
    assert long.count('<td class="prose"><bdi>b') == long.count("<td><bdi>c") == 1


def test_a_table_waits_for_neither_torch_nor_matplotlib():
    code = "import sys; from vestige.show import Table; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_link_leads_in_html_and_is_words_elsewhere():
    table = Table("t", ["page"], [[Link("a <b>", 'x.html?"&<')]])
    assert '<a href="x.html?&#34;&amp;&lt;"><bdi>a &lt;b&gt;</bdi></a>' in table.html()
    assert table.csv() == "page\na <b>\n"
    assert "x.html" not in table.markdown() + table.latex()
    assert Link("a", "x") == "a"


def test_an_estimate_is_written_as_core_renders_it_and_sorts_by_its_value():
    known = Estimate(0.25, 0.2, 0.3, name="js")
    lost = Estimate.refused("The rows do not <overlap>.", name="kl")
    table = Table("t", ["name", "e"], [["js", known], ["kl", lost]])
    assert table.texts() == [["js", rendered(known)], ["kl", rendered(lost)]]
    assert table.words() == [True, True]
    assert '<td data-value="0.25"><bdi>0.25 [0.2, 0.3]</bdi></td>' in table.html()
    assert "<td><bdi>refused: The rows do not &lt;overlap&gt;.</bdi></td>" in table.html()
    assert table.csv().splitlines()[1] == 'js,"0.25 [0.2, 0.3]"'
