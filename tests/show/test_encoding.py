"""Bytes of the right kind, the same every time, at a path whole or not at all."""

import re

import numpy as np
import pytest
from PIL import Image

from vestige.core.errors import UnknownName
from vestige.show import bars, curves, encode, images, matrix, plane, save, scatter_front, settled

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}

DRAWN = {
    "curves": lambda: curves(
        {"a": [1.0, np.nan, 3.0], "b": [1, 2, 3]},
        [1, 2, 3],
        title="t",
        x_label="x",
        y_label="y",
        bands={"a": ([0, np.nan, 2], [2, np.nan, 4])},
        reference={"truth": 2.0},
    ),
    "matrix": lambda: matrix([[0.5, np.nan], [0.4, 0.9]], rows=["1", "2"], columns=["1", "2"], title="t"),
    "plane": lambda: plane({"a": (0.5, -0.2), "b": (0.1, 0.3)}, title="t", errors={"a": (0.1, 0.1)}),
    "scatter_front": lambda: scatter_front({"a": (1.0, 0.5), "b": [[2.0, 0.4], [3.0, 0.9]]}, title="t"),
    "bars": lambda: bars({"a": [1.0, np.nan]}, ["x", "y"], title="t", y_label="y", errors={"a": [0.1, np.nan]}),
    "images": lambda: images(np.arange(2 * 3 * 3).reshape(2, 3, 3) / 17, title="t"),
}


# What differs between two files is written once for each format (dates, names of programs), but names of parts, which
# are drawn by lot, stand in every SVG.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "svg") for name in DRAWN),
        ("bars", "png"),
        ("bars", "pdf"),
        *(pytest.param(name, "png", marks=pytest.mark.slow) for name in DRAWN if name != "bars"),
    ],
)
def test_each_picture_in_each_format_gives_the_same_bytes_twice(name, kind):
    first, second = encode(DRAWN[name](), kind), encode(DRAWN[name](), kind)
    assert first.startswith(MAGIC[kind])
    assert first == second


@pytest.mark.slow
def test_a_figure_encoded_twice_gives_the_same_bytes():
    figure = DRAWN["plane"]()
    encode(figure, "png")  # another size of pixel in between
    assert encode(figure, "svg") == encode(figure, "svg") == encode(DRAWN["plane"](), "svg")


@pytest.mark.slow
def test_a_layout_held_over_several_formats_is_the_one_that_each_would_find(monkeypatch):
    alone = [encode(DRAWN["matrix"](), kind) for kind in MAGIC]  # with a bar of colours, whose place the layout finds
    figure = DRAWN["matrix"]()
    engine = figure.get_layout_engine()
    with settled(figure):
        monkeypatch.setattr(type(engine), "execute", lambda self, figure: pytest.fail("laid out again"))
        assert [encode(figure, kind) for kind in MAGIC] == alone
    assert figure.get_layout_engine() is engine


def test_a_layout_is_free_again_after_a_fault():
    figure = DRAWN["bars"]()
    with pytest.raises(ZeroDivisionError), settled(figure):
        raise ZeroDivisionError
    assert figure.get_layout_engine() is not None


@pytest.mark.parametrize("kind", MAGIC)
def test_no_date_and_no_version_is_written(kind):
    data = encode(DRAWN["matrix"](), kind)
    assert not re.search(rb"CreationDate|dc:date|Software|Producer|20\d\d-\d\d-\d\d|[Mm]atplotlib v", data)


@pytest.mark.parametrize("kind", MAGIC)
def test_a_file_is_written_by_its_suffix(tmp_path, kind):
    path = tmp_path / "new" / f"plot.{kind.upper()}"
    assert save(DRAWN["bars"](), path) == path
    assert path.read_bytes() == encode(DRAWN["bars"](), kind)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_png_is_sharp_enough_for_print(tmp_path):
    with Image.open(save(DRAWN["curves"](), tmp_path / "a.png")) as image:
        assert image.info["dpi"] == pytest.approx((150, 150), rel=1e-3)
        assert image.width > 900


@pytest.mark.parametrize("suffix", ["jpg", "", "svgz"])
def test_other_formats_are_refused_and_nothing_is_written(tmp_path, suffix):
    with pytest.raises(UnknownName, match=r"The 'suffix' of drawing.save must be one of pdf, png, svg"):
        save(DRAWN["bars"](), tmp_path / f"a.{suffix}")
    with pytest.raises(UnknownName, match="The 'kind' of encode must be one of pdf, png, svg"):
        encode(DRAWN["bars"](), "gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_name_that_never_ends_is_cut_and_leaves_room_for_the_picture():
    name = "a long name " * 50
    axes = {"title": name, "x_label": name, "y_label": name}
    pictures = [
        curves({f"{i} {name}": [1.0, 2.0] for i in range(30)}, [1, 2], **axes),
        curves({"a": [1.0, 2.0]}, [name, "b"], **axes),
        matrix([[0.5]], rows=[name], columns=[name], title=name, row_label=name, column_label=name),
        plane({name: (0.1, 0.1)}, title=name),
        scatter_front({name: (1.0, 0.5)}, **axes),
        bars({name: [1.0, 2.0]}, [name, "b"], title=name, y_label=name),
        images(np.zeros((1, 3, 3)), rows=[name], title=name),
    ]
    for figure in pictures:
        figure.draw_without_rendering()  # warnings are errors: matplotlib would say that the axes have no room
        box = figure.axes[0].get_window_extent()
        assert min(box.width, box.height) / figure.dpi > 0.3
    assert pictures[0].axes[0].get_legend().get_texts()[0].get_text() == ("0 " + name)[:39] + "\N{HORIZONTAL ELLIPSIS}"


@pytest.mark.slow
def test_names_are_drawn_as_they_are_and_never_read_as_formulas():
    hostile = ["$x", "a$\\bad{$", "_hidden", "<script>", "名前", "\x1b[31m\x07", "שלום", ""]
    series = {name: [1.0, float(i)] for i, name in enumerate(hostile)}
    figure = curves(series, [1, 2], title="$\\frac", x_label="$", y_label="a_b")
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert shown == ["$x", "a$\\bad{$", "_hidden", "<script>", "名前", "\\x1b[31m\\x07", "שלום", ""]
    assert encode(figure, "svg").startswith(MAGIC["svg"])
    points = {name: (0.1 * i, 0.2) for i, name in enumerate(hostile)}
    assert encode(plane(points, title="$"), "png")
    assert encode(matrix([[1.0]], rows=["$_"], columns=["$\\"], title="$"), "svg")


def test_names_of_rows_of_images_lie_on_the_sheet():
    figure = images(np.zeros((120, 28, 28)), title="t", columns=10, rows=["a, held out", "by weight"] * 6)
    with settled(figure):
        assert min(name.get_window_extent().x0 for name in figure.axes[0].get_yticklabels()) > 2
