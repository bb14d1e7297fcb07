"""The page: the sections that have something to say, the conclusion in words, everything as files."""

import base64
import csv
import re

import pytest

from dice import Dice
from runner.report.planted import HOSTILE, LONG, bare, matrix
from vestige import runner
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import gather, report, write
from vestige.runner.report.page import conclusion, exhibits, slug
from vestige.runner.report.reading import groups
from vestige.show import Heading, Heat, Page, Picture, Table, curves, encode


@pytest.fixture
def thrown(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path / "runs", preset="paper")))
    return gather([tmp_path / "runs"])


def headings(page):
    return [heading for heading, _ in page.sections]


def test_sections_with_nothing_to_show_are_left_out(thrown):
    assert headings(report(thrown)) == ["Paper beside measurement", "How to get the same numbers"]
    assert headings(report([bare(reference=False, seconds={}, bytes={})])) == [
        "As tasks go by",
        "Every task after every task",
        "How to get the same numbers",
    ]


def test_paper_and_measurement_stand_side_by_side(thrown):
    page = report(thrown)
    assert page.title == "dice: Table 0"
    assert (page.status.kind, page.answer) == ("good", "Table 0 is reproduced: its claim holds.")
    assert page.lead.startswith("Without any one of the 3 seeds the same claims hold. Holds: the mean is within a")
    words, table = page.sections[0][1]
    assert words.startswith("Verdict: reproduced, by a rule")
    (line,) = Dice().lines(thrown)
    assert table.rows == [("die", "mean", 3.5, line.ours, line.se, 3)]


def test_several_groups_get_a_summary_and_a_section_each(thrown):
    page = report([*thrown, bare()])
    assert page.answer == "1 experiment: 1 reproduced."
    assert page.lead == "1 group of runs without a published counterpart."
    assert headings(page) == ["Summary", "dice: Table 0", "split digits, single-head"]
    assert page.sections[0][1][0].rows == [
        ("dice", "Table 0", "reproduced", 3),
        ("split digits, single-head", "", "-", 1),
    ]
    inside = [part.text for part in page.sections[1][1] if isinstance(part, Heading)]
    assert inside == ["Paper beside measurement", "How to get the same numbers"]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (
            [bare(last=0.25)],
            "After 3 tasks, vanilla has an average accuracy of 50.0 %. On earlier tasks it lost 75.0 points",
        ),
        ([bare(last=0.25)], "It forgets and learns."),
        ([bare(last=1.0, reference=False)], "it gained 0.0 points since their best."),
        (
            [bare("a", last=0.1), bare("b", last=0.4)],
            "b is the best of 2 with an average accuracy of 60.0 %; a is the last",
        ),
        (
            [bare("a", last=0.1), bare("b", last=0.4)],
            "a forgot the most of earlier tasks, 90.0 points on average; b the",
        ),
        ([bare(matrices={})], "1 run without a matrix over tasks."),
    ],
)
def test_the_conclusion_is_in_plain_words(records, words):
    (group,) = groups(records)
    assert words in " ".join(conclusion(group))


def test_small_divergences_are_the_good_ones():
    far, near = (bare(m, head="c", matrices={"c": matrix(d)}, baseline={}) for m, d in (("far", 5.0), ("near", 0.5)))
    (group,) = groups([far, near])
    assert (
        "near is the best of 2 with an average divergence of 0.667; far is the last with 3.67" in conclusion(group)[0]
    )


def test_no_records_are_refused():
    with pytest.raises(InputError, match="'records' of report must be at least one"):
        report([])


@pytest.mark.slow
def test_what_users_write_is_shown_and_never_run():
    hostile = bare(HOSTILE, task_names=[HOSTILE, LONG, HOSTILE], details={"verdicts": [HOSTILE], "command": HOSTILE})
    text = report([hostile]).html()
    assert text.count("<script>") == 1
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;document.title" in text


@pytest.mark.slow
def test_every_exhibit_is_written_from_what_the_page_shows(tmp_path):
    heat = Heat([[0.25, float("nan")]], ["r"], ["a", "b"], "R <1>", corner="after")
    page = Page("t", "l").section("One", Table("T", ["x"], [[1.5]]), heat).section("Two", Table("", ["y"], [["z"]]))
    written = write(page, tmp_path / "out")
    assert written.page == tmp_path / "out" / "index.html"
    assert written.page.read_text() == page.html()
    names = {path.name for path in (tmp_path / "out" / "tables").iterdir()}
    assert names == {f"{name}.{kind}" for name in ("01-t", "01-r-1", "02-two") for kind in ("csv", "tex", "md")}
    assert {path.name for path in written.figures} == {f"01-r-1.{kind}" for kind in ("png", "pdf", "svg")}
    assert all(path.stat().st_size for path in (*written.figures, *written.tables))
    rows = (tmp_path / "out/tables/01-r-1.csv").read_text().splitlines()
    assert list(csv.reader(rows)) == [["after", "a", "b"], ["r", "0.25", ""]]
    assert (tmp_path / "out/figures/01-r-1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_picture_is_the_same_on_the_page_and_in_its_file_and_drawn_once_a_format(tmp_path, monkeypatch):
    figure = curves({"a": [1.0, 2.0]}, [1, 2], title="T", x_label="x", y_label="y")
    page = Page("t").section("One", Picture(figure, "a line"))
    alone = {kind: encode(figure, kind) for kind in ("png", "pdf", "svg")}
    drawn = []
    monkeypatch.setattr(type(figure), "savefig", _counted(type(figure).savefig, drawn))
    heard = []
    written = write(page, tmp_path, on_progress=heard.append)
    assert heard == ["01-t"]
    assert sorted(drawn) == ["pdf", "png", "svg"]
    assert {path.suffix[1:]: path.read_bytes() for path in written.figures} == alone
    assert base64.b64encode(alone["svg"]).decode() in written.page.read_text()


def _counted(real, drawn):
    def savefig(self, *args, **options):
        drawn.append(options["format"])
        return real(self, *args, **options)

    return savefig


def test_a_page_can_be_named_and_can_stand_alone(tmp_path):
    page = Page("t").section("One", Table("T", ["x"], [[1]]))
    assert write(page, tmp_path / "mine.html").tables[0] == tmp_path / "mine" / "tables" / "01-t.csv"
    alone = write(page, tmp_path / "alone", files=False)
    assert (alone.figures, alone.tables) == ((), ())
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["index.html"]


def test_names_of_files_are_plain_and_different():
    page = Page("t").section("One", *(Table(name, ["x"], [[1]]) for name in ("../é", "E", HOSTILE, LONG, "שבת")))
    names = [name for name, _ in exhibits(page)]
    assert names[:2] == ["01-e", "01-e-2"]
    assert names[-1] == "01-one"
    assert all(re.fullmatch(r"[a-z0-9-]{1,70}", name) for name in names)
    assert len(set(names)) == 5
    assert slug("A/B: c") == "a-b-c"
