"""The page: one file, nothing fetched, nothing run that came in, and a reader without a mouse or eyes is served."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.show import Heading, Heat, Page, Picture, Table, Verbatim, curves, images, matrix

VOID = {"meta", "img", "br", "link", "hr", "input"}
HOSTILE = "<script>alert(1)</script> \"q\" 'a' & <img src=x onerror=y> \x00\x1b[2J\u202eשבת"
SHOWN = "<script>alert(1)</script> \"q\" 'a' & <img src=x onerror=y> \\x00\\x1b[2J\\u202eשבת"


class Document(HTMLParser):
    """Elements, texts and balance of a page, read as a browser reads it."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts, self.raw = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.raw if self.open and self.open[-1] in ("script", "style") else self.texts).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def picture(points=2, **arguments):
    at = np.arange(1, points + 1)
    figure = curves({"a": at % 7}, at, title="t", x_label="x", y_label="y")
    return Picture(figure, **{"alt": "a rises from 1 to 2", **arguments})


@pytest.fixture(scope="module")
def page():
    table = Table(HOSTILE, [HOSTILE, "n", ""], [[HOSTILE, 0.5, None], ["b", 2, 1.0]], note=HOSTILE)
    heat = Heat([[0.5, np.nan]], [HOSTILE], ["a", "b"], HOSTILE, corner=HOSTILE, note=HOSTILE)
    return (
        Page(HOSTILE, HOSTILE)
        .section(HOSTILE, f"{HOSTILE}\n\nsecond", table, heat)
        .section("Pictures", picture(alt=HOSTILE, caption=HOSTILE), picture(points=3_000))
        .section("Commands", Verbatim(HOSTILE))
    )


@pytest.fixture(scope="module")
def document(page):
    return Document(page.html())


@pytest.mark.slow
def test_tags_are_balanced_and_of_known_kinds(document):
    assert {tag for tag, _ in document.elements} == {
        *("html", "head", "meta", "title", "style", "body", "a", "header", "h1", "p", "nav", "ol", "li", "main"),
        *("section", "h2", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "figure", "img"),
        *("figcaption", "pre", "code", "footer", "script"),
    }


def test_hostile_text_is_shown_and_never_run(page, document):
    # Title, h1, lead, contents, h2, paragraph, figcaption, code; twice caption, head, cell, note.
    assert sum(text == SHOWN for text in document.texts) == 8 + 2 * 4
    assert len(document.all("script")) == 1
    assert "alert" not in "".join(document.raw)
    assert not [a for _, attributes in document.elements for a in attributes if a.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page.html())


def test_nothing_is_fetched(page, document):
    for _, attributes in document.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            if name in attributes:
                assert attributes[name].startswith(("data:image/", "#"))
    assert not re.search(r"url\(|@import|fetch|XMLHttp|import\(|http", "".join(document.raw))
    assert not document.all("link")
    assert not re.search(r"https?://", page.html())


def test_every_link_inside_the_page_has_its_target_and_every_name_is_used_once(document):
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"].removeprefix("#") for a in document.all("a")} <= set(ids)
    assert {section["aria-labelledby"] for section in document.all("section")} <= set(ids)


def test_a_reader_without_eyes_or_mouse_is_served(document):
    assert document.all("html")[0]["lang"] == "en"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in document.all("meta")
    assert document.elements[[tag for tag, _ in document.elements].index("body") + 1] == (
        "a",
        {"class": "skip", "href": "#main"},
    )
    for landmark in ("header", "nav", "main", "footer"):
        assert len(document.all(landmark)) == 1
    assert [img["alt"] for img in document.all("img")] == [SHOWN, "a rises from 1 to 2"]
    assert all(th["scope"] in ("col", "row") for th in document.all("th"))
    scrolls = [(div["role"], div["aria-label"], div["tabindex"]) for div in document.all("div")]
    assert scrolls == 2 * [("region", SHOWN, "0")] + 2 * [("group", "Picture", "0")]


def test_light_dark_print_and_phones_are_thought_of(document):
    css = document.raw[0]
    assert "prefers-color-scheme: dark" in css
    assert "@media print" in css
    assert "max-width: 100%" in css
    assert css.count("{") == css.count("}")


def contrast(first, second):
    """WCAG 2.2: relative luminance of the lighter over that of the darker."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_in_light_and_dark(document):
    light, dark = re.findall(r":root \{[^}]*--ink[^}]*\}", document.raw[0])[:2]
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for ink in ("ink", "soft", "link"):
            for paper in ("paper", "band"):
                assert contrast(colours[ink], colours[paper]) >= 4.5


def test_pictures_are_inlined_and_one_of_many_marks_as_png(document):
    svg, png = (img["src"] for img in document.all("img"))
    assert base64.b64decode(svg.removeprefix("data:image/svg+xml;base64,"), validate=True).startswith(b"<?xml")
    assert base64.b64decode(png.removeprefix("data:image/png;base64,"), validate=True).startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_typical_page_stays_small_and_is_the_same_every_time(tmp_path):
    R = np.tril(np.random.default_rng(0).random((10, 10)))
    names = [f"task {i}" for i in range(10)]

    def build():
        accuracies = Picture(matrix(R, rows=names, columns=names, title="R"), "accuracies")
        page = Page("A run", "It forgets.").section("Method", accuracies, picture())
        grid = images(np.random.default_rng(0).integers(0, 255, (100, 28, 28), np.uint8), title="samples")
        return page.section("Samples", Picture(grid, "100 samples"))

    path = build().save(tmp_path / "out" / "index.html")
    assert path.read_text(encoding="utf-8") == build().html()
    assert path.stat().st_size < 600_000


def test_sections_come_in_order_and_an_empty_page_is_whole():
    page = Page("t").section("One", "a").section("Two").section("Three", "c")
    assert re.findall(r"<h2[^>]*><bdi>(\w+)", page.html()) == ["One", "Two", "Three"]
    assert not Document(Page("t").html()).all("nav")


def test_a_heading_stands_inside_its_section_and_the_parts_can_be_had_back():
    page = Page("t").section("One", Heading(HOSTILE), "a").section("Two")
    assert Document(page.html()).all("h3") == [{}]
    assert SHOWN in Document(page.html()).texts
    assert page.sections == (("One", (Heading(HOSTILE), "a")), ("Two", ()))


def test_the_button_for_light_and_dark_knows_both_themes(document):
    css, script = document.raw
    light, dark = re.findall(r":root \{[^{}]*(--paper[^}]*;) \}", css)[:2]
    for state, theme in (("on", light), ("off", dark)):
        assert f':root[data-light="{state}"]' in css
        assert css.count(theme) == 2
        assert f'"{state}"' in script


def test_what_cannot_stand_in_a_page_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"The 'alt' of Picture must be words that say what the picture shows. Got ' '"
    ):
        picture(alt=" ")
    with pytest.raises(InputError, match="The 'title' of Page must be a few words"):
        Page("")
    with pytest.raises(InputError, match=r"The 'heading' of Page.section must be a few words"):
        Page("t").section(" ")
    with pytest.raises(
        InputError, match=r"The 'path' of Page.save must be a name that ends in .html. Got a.txt instead."
    ):
        Page("t").save(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
