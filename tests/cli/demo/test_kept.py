"""The first part: what the vestige says of new digits is what the demo did to them."""

from vestige.cli.demo.kept import LACKING, LIKE, THICKER


def test_new_digits_are_told_apart_by_what_was_done_to_them(demo_run):
    kept = demo_run.found.kept
    assert kept.found[LIKE].p_value > 0.001
    assert kept.found[LACKING].p_value < 0.001
    assert kept.found[THICKER].p_value < 0.001
    assert kept.found[LIKE].n_q > kept.found[LACKING].n_q


def test_the_file_is_smaller_than_the_rows(demo_run):
    kept = demo_run.found.kept
    assert kept.file_bytes < kept.row_bytes
    assert kept.rows == 1797 // 2


def test_the_page_shows_every_set(demo_run):
    text = (demo_run.folder / "index.html").read_text()
    assert "Keep, delete, compare" in text
    assert all(name in text for name in (LIKE, LACKING, THICKER))
    assert "The data is gone" in demo_run.printed
