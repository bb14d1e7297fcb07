"""`vestige demo` with small settings: a page, Records, a table, JSON; and no half page."""

import json

import pytest

from vestige.cli import main
from vestige.cli.demo import jobs as demo
from vestige.continual.record import Record
from vestige.core.plain import plain


@pytest.fixture(autouse=True)
def small(monkeypatch, demo_run):
    monkeypatch.setattr(demo, "DEFAULT", demo_run.found.config)


def test_it_writes_a_page_and_records_and_says_where(demo_run):
    folder, printed = demo_run.folder, demo_run.printed
    assert "<h1>" in (folder / "index.html").read_text()
    assert len([Record.load(path) for path in (folder / "records").glob("*.json")]) == 5
    assert printed.splitlines()[-1] == f"Written to {folder / 'index.html'}."
    for text in ("The data is gone", "The classifier forgets", "The biased set can be corrected"):
        assert text in printed


def test_json_goes_over_the_page_of_the_run_before(demo_run, monkeypatch, capsys):
    folder, found = demo_run.folder, demo_run.found
    before = (folder / "index.html").read_bytes()
    monkeypatch.setattr(demo, "run", lambda **_: found)
    assert main(["demo", "--json", "--out", str(folder)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(folder / "index.html")
    assert told["learners"]["vanilla"]["matrix"] == found.records["vanilla"].R.tolist()
    assert (folder / "index.html").read_bytes() == before


@pytest.mark.slow
def test_the_same_seed_gives_the_same_json(demo_run, tmp_path, capsys):
    assert main(["demo", "--json", "--seed", "3", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == plain(demo_run.found.to_json()) | {"page": str(tmp_path / "index.html")}


@pytest.mark.slow
def test_a_run_that_ends_early_leaves_no_page(tmp_path, monkeypatch):
    def stop(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "follow", stop)
    assert main(["demo", "--out", str(tmp_path)]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "run", None)
    (tmp_path / "taken").write_text("")
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    assert "must be a folder" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_said_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "run", None)
    (tmp_path / "taken").write_text("")
    assert main(["demo", "--out", str(tmp_path / "taken" / "below")]) == 1
    assert "taken" in capsys.readouterr().err
