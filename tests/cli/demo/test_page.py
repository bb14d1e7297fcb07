"""The page holds the numbers of all three parts, and the JSON is the same numbers."""

import json

import pytest

from vestige.cli.demo import jobs as demo
from vestige.cli.demo.kept import LIKE
from vestige.cli.demo.page import CHANGED, page, summary


@pytest.fixture
def found(demo_run):
    return demo_run.found


def test_progress_goes_from_nothing_to_everything(demo_run):
    shares = [share for _, share in demo_run.heard]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert 0 < shares[1] < 0.5
    assert shares[-1] == 1.0


def test_progress_says_which_part_is_under_way(demo_run):
    heard = demo_run.heard
    said = list(dict.fromkeys(what for what, _ in heard))
    learners = [f"{name} learns" for name in (demo.REFERENCE, *demo.LEARNERS)]
    first = "half of the digits are kept and deleted"
    assert said == [first, "a generator learns digit after digit", *learners, "weights correct a biased set"]
    assert min(share for what, share in heard if what == said[-1]) < 1  # said before it, not after it


@pytest.mark.slow
def test_every_figure_stands_on_the_page(found):
    html = page(found).html()
    for row in summary(found).rows:
        assert f'data-value="{row[2]!r}"' in html
    for heading in ("Three answers", "Weights correct a biased sample set", "Was this comparison honest?"):
        assert heading in html
    assert html.count("<img ") == 4
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_the_first_sentence_is_what_was_found(found):
    shown = page(found)
    before, after = found.reweighted.misplaced
    assert shown.answer.endswith(f"weights bring misplaced samples from {before:.0%} to {after:.0%}.")
    assert f"a file of {found.kept.file_bytes / 1e3:.0f} kB tells " in shown.answer
    last = found.last
    gap = 100 * (last[demo.REFERENCE]["average"] - last["vanilla"]["average"])
    assert f"plain training ends {gap:.0f} points below" in shown.answer
    told = sum(found.kept.found[name].p_value < 0.05 for name in CHANGED)
    assert f"{told} of 2 changed sets" in shown.answer
    well = told == 2 and found.kept.found[LIKE].p_value >= 0.05 and after < before
    assert shown.status.kind == ("good" if well else "care")


def test_the_json_is_plain_and_agrees(found):
    told = found.to_json()
    assert told["learners"]["vanilla"]["average"] == found.records["vanilla"].summary().last()["average"]
    assert told["weights"]["misplaced"]["after"] == found.reweighted.misplaced[1]
    assert "no_retraining" in told["learners"]["rwalk_s"]["fails"]
    json.dumps(told)
