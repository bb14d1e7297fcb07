"""The report: what it must say, and that a task's name is text in it, never markup."""

import pytest

from monitor.tiny import CHAIN, normal
from vestige.core.errors import InputError
from vestige.monitor import Alarm, Monitor

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def monitor(tmp_path_factory):
    """A task with an evil name, a number and the same number as a word; the second arrives at step 2."""
    alarms = [Alarm("js", above=-1.0, by="value", task=7), Alarm("kl", rise=50.0)]
    monitor = Monitor.create(tmp_path_factory.mktemp("m") / "judge", chain=CHAIN, alarms=alarms)
    monitor.step({EVIL: normal(40, 0), "7": normal(40, 1)}, {EVIL: normal(40, 2), "7": normal(40, 3)})
    monitor.step({7: normal(40, 4)}, {EVIL: normal(40, 5), "7": normal(40, 6), 7: normal(40, 7)})
    return monitor


@pytest.fixture(scope="module")
def html(monitor, tmp_path_factory):
    return monitor.report(tmp_path_factory.mktemp("r") / "report.html").read_text()


def test_it_says_everything(html):
    for text in (
        "Step 2, 3 tasks: 1 alarm fires, for task 7.",
        "js of task 7 is above -1, by its value alone",
        "kl of any task is more than 50 higher than when it was learnt",
        "beyond the limit of -1",
        "Divergences over steps",
        "Forgetting and intransigence",
        "No row of real data is kept",
        "generated samples",
        "forgetting at the last step",
        "verdict",
    ):
        assert text in html, text
    assert html.count("<img ") == 3  # two curves and the matrix
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_a_name_is_text(html):
    assert "alert(" in html
    assert "<script>alert" not in html


def test_the_same_history_gives_the_same_page(monitor, html, tmp_path):
    again = Monitor.open(monitor.folder).report(tmp_path / "again.html")
    assert again.read_text() == html


def test_without_alarms_and_moments(tmp_path):
    monitor = Monitor.create(tmp_path / "m", chain=CHAIN, alarms=[], keep_moments=False)
    monitor.step({"a": normal(40, 0)}, {"a": normal(40, 1)})
    html = monitor.report(tmp_path / "x.html", names=["js"]).read_text()
    assert "No alarm was set." in html
    assert "No average over real rows is kept either." in html
    assert html.count("<img ") == 2
    with pytest.raises(InputError, match=r"\.html"):
        monitor.report(tmp_path / "x.txt")
