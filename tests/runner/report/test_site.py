"""Several experiments: a short index, and a page for each that opens alone."""

import re

import pytest

from dice import Dice
from runner.report.planted import HOSTILE, bare
from vestige import runner
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import gather, groups, page_of, volumes, write_site
from vestige.runner.report.page import index_page, page_names


def links(text):
    return re.findall(r'<a href="([^"#]+)">', text)


@pytest.fixture
def several(monkeypatch, tmp_path):
    """An experiment under two settings, and bare runs whose name is hostile."""
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    for preset in ("paper", "smoke"):
        list(runner.run(runner.plan("dice", tmp_path / "runs", preset=preset)))
    config = {"stream": {"stream": HOSTILE, "data": "digits"}, "learner": {"method": "a"}}
    return volumes(groups([*gather([tmp_path / "runs"]), bare(config=config), bare()]))


def test_settings_of_an_experiment_share_a_page(several):
    assert [len(own) for own in several.values()] == [2, 1, 1]
    assert [group.name for group in several["dice"]] == ["dice", "dice"]


@pytest.mark.slow
def test_every_link_of_the_index_leads_to_a_page_that_stands_alone(several, tmp_path):
    heard = []
    site = write_site(several, tmp_path / "out", on_progress=heard.append)
    assert heard == list(several)
    assert site.index == tmp_path / "out" / "index.html"
    text = site.index.read_text()
    assert len(text) < 20_000
    assert text.count("<script>") == 1
    targets = [site.index.parent / link for link in links(text)]
    assert len(targets) == 4  # a line for each setting
    assert set(targets) == {written.page for written in site.pages}
    for (_, found), written in zip(several.items(), site.pages, strict=True):
        assert written.page.read_text() == page_of(found).html()
        assert (written.figures, written.tables) == ((), ())


def test_the_index_has_verdict_and_conclusion_of_each(several):
    page = index_page(several, dict.fromkeys(several, "x.html"))
    assert page.answer == "2 experiments: 1 reproduced, 1 no verdict."
    assert (page.status.kind, page.status.word) == ("plain", "1 of 2 reproduced")
    assert page.lead == "2 groups of runs without a published counterpart."
    ((_, (table,)),) = page.sections
    assert table.rows[0][:5] == ("dice (preset paper)", "Table 0", "reproduced", 3, 3)
    assert table.rows[0][2].note.startswith(
        "Table 0 is reproduced: its claim holds. Without any one of the 3 seeds the same claims hold. Holds: the mean"
    )
    assert table.rows[1][:3] == ("dice (preset smoke)", "Table 0", "no verdict")
    assert table.rows[1][2].note.startswith("Table 0 has no verdict: too small to judge.")
    (own,) = [row for row in table.rows if row[0] == "split digits, single-head"]
    assert own[1:5] == ("", "-", 1, 1)
    assert own[2].note.startswith("After 3 tasks, vanilla has")


def test_a_named_index_has_its_pages_in_a_folder_of_its_name(several, tmp_path):
    site = write_site({"dice": several["dice"]}, tmp_path / "mine.html", files=True)
    assert site.index == tmp_path / "mine.html"
    assert links(site.index.read_text()) == ["mine/dice.html"] * 2
    assert [written.page for written in site.pages] == [tmp_path / "mine" / "dice.html"]
    assert all(path.is_relative_to(tmp_path / "mine" / "dice" / "tables") for path in site.pages[0].tables)
    assert site.pages[0].tables


def test_no_two_pages_have_one_name_and_none_is_the_index():
    names = page_names(dict.fromkeys(["Index", "index", "a b", "a-b", "שבת", "../../etc"], ()))
    assert list(names.values()) == ["index-2", "index-3", "a-b", "a-b-2", "runs", "etc"]
