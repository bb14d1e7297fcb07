"""The page in a real browser: Debian's chromium, headless, driven by playwright. Skipped, and said so, without them."""

import dataclasses
import shutil

import pytest
import torch

from runner.report.planted import HOSTILE, LONG, bare, matrix
from vestige.runner.report import report, write

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    pytest.skip("no chromium here: apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")

PHONE = {"width": 360, "height": 740}
SCREEN = {"width": 1200, "height": 900}
PATIENCE = 120_000  # milliseconds, for a machine that has other things to do


def hostile_runs():
    t = 12
    names = [HOSTILE, LONG, *(f"task {i}" for i in range(2, t))]
    values = {"mutual_information": torch.rand(t, t, generator=torch.Generator().manual_seed(0)).double()}
    whole = {"matrices": {"single": matrix(0.3, t)}, "task_names": names, "values": values, "baseline": {}}
    runs = [bare(name, seed, reference=False, **whole) for name in ("zeta", "alpha", HOSTILE, LONG) for seed in (0, 1)]
    return [dataclasses.replace(run, details={"command": f"run {HOSTILE}", "verdicts": [HOSTILE]}) for run in runs]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = write(report(hostile_runs(), title=HOSTILE), tmp_path_factory.mktemp("page"), files=False).page
    assert path.stat().st_size < 3_000_000
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def view(browser, address):
    """Opens the page with what a reader prefers, and fails at the end if it complained or asked for anything else."""
    heard, pages = [], []

    def opened(**prefers):
        page = browser.new_page(**({"viewport": SCREEN} | prefers))
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "request", lambda asked: heard.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None
        )
        page.on("dialog", lambda dialog: heard.append(dialog.message))
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()
    assert heard == []


def paper(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_hostile_names_are_inert(view):
    page = view()
    assert page.title().startswith("<script>")
    assert page.locator("script").count() == 1
    assert page.locator("img[src=x]").count() == 0
    assert "<script>document.title" in page.locator(".status").inner_text()


def test_the_matrix_shows_its_values_in_colour(view):
    page = view()
    cell = page.locator(".side td[style]").first
    assert cell.is_visible()
    assert float(cell.get_attribute("data-value")) == pytest.approx(float(cell.inner_text()), abs=1e-4)
    colours = page.eval_on_selector_all(
        ".side td[style]", "cells => cells.map(c => getComputedStyle(c).backgroundColor)"
    )
    assert len(set(colours)) > 2
    assert page.eval_on_selector_all("img", "all => all.every(i => i.complete && i.naturalWidth > 100)")


def test_tables_sort_by_words_and_by_numbers_from_the_keyboard(view):
    page = view()
    table = page.locator("table", has=page.locator("caption", has_text="After the last task"))
    head, column = table.locator("thead th").first, table.locator("tbody tr > :first-child")
    before = column.all_inner_texts()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    up = column.all_inner_texts()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column.all_inner_texts() == up[::-1]
    assert sorted(up) == sorted(before)

    numbers = page.locator("table", has=page.locator("caption", has_text="alpha, single-head"))
    numbers.locator("thead th button").nth(1).click()
    values = [float(text) for text in numbers.locator("tbody tr > :nth-child(2)").all_inner_texts()]
    assert values == sorted(values)
    assert len(set(values)) > 1


def test_dark_and_light_follow_the_reader_and_the_button(view):
    light, dark = view(color_scheme="light"), view(color_scheme="dark")
    assert paper(light) != paper(dark)
    for page, other in ((light, dark), (dark, light)):
        own, wanted = paper(page), paper(other)
        page.locator("button.light").click()
        assert paper(page) == (wanted if page is light else "rgb(255, 255, 255)")
        page.locator("button.light").click()
        assert paper(page) == own


def test_a_print_is_light_and_has_no_buttons(view):
    page = view(color_scheme="dark")
    page.locator("button.light").click()
    page.locator("button.light").click()
    page.emulate_media(media="print")
    assert paper(page) == "rgb(255, 255, 255)"
    assert not page.locator("button.light").is_visible()


@pytest.mark.parametrize("size", [PHONE, SCREEN], ids=["phone", "screen"])
def test_the_page_never_scrolls_sideways_but_its_tables_do(view, size):
    page = view(viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.evaluate("scrollTo(500, 0)")
    assert page.evaluate("scrollX") == 0
    assert page.eval_on_selector_all(".scroll", "all => all.some(s => s.scrollWidth > s.clientWidth)")


def test_no_name_covers_its_neighbour(view):
    page = view()
    spills = "all => all.filter(c => c.scrollWidth > c.clientWidth + 1).length"
    assert page.eval_on_selector_all("th, td", spills) == 0


def test_the_first_tab_skips_to_the_content(view):
    page = view()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_without_script_the_page_is_whole(view):
    page = view(java_script_enabled=False)
    assert page.locator("table").count() > 5
    assert page.locator("button").count() == 0


def test_a_screenshot_is_taken(view, tmp_path):
    page = view(viewport=PHONE, color_scheme="dark")
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
