"""Pages of compare, of a monitor and of the demo in a real browser, on a screen and on a phone."""

import shutil
import warnings

import numpy as np
import pytest
import torch

from vestige.cli import main
from vestige.core import VestigeWarning
from vestige.monitor import Monitor
from vestige.ratios import Stack
from vestige.vestiges import compare
from vestige.vestiges.page import page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    pytest.skip("no chromium here: apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
FAST = Stack(**Stack.presets["fast"])
PATIENCE = 120_000  # milliseconds


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, demo_run):
    """Each page with the words that its first heading begins with."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(200, 4)), rng.normal(size=(150, 4))
    q[:, 1] += 2
    np.save(folder / "real.npy", p)
    np.save(folder / "new.npy", q)
    told = ["compare", str(folder / "real.npy"), str(folder / "new.npy"), "--pair-rows", "50"]
    assert main([*told, "--estimator", "logistic", "--html", str(folder / "table.html")]) == 0
    images = torch.rand(200, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shifted = images[:100].clone()
    shifted[:, :3, :3] += 1
    found = compare(images[100:], shifted, estimator=FAST, pair_rows=50)
    page(found, rows={"least like the data": shifted[:8]}).save(folder / "images.html")
    monitor = Monitor.create(
        folder / "monitor", chain={"strategy": "anchored", "names": ("js",), "estimator": "quadratic"}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)  # few rows, which is said on the page
        monitor.step(real={"cats": p}, model={"cats": q})
    monitor.report(folder / "monitor.html")
    return {
        folder / "table.html": "new.npy differs",
        folder / "images.html": "fake differs",
        folder / "monitor.html": "Step 1, 1 task:",
        demo_run.folder / "index.html": "The data is gone",
    }


@pytest.mark.parametrize("width", [1280, 390])
def test_the_answer_is_first_and_nothing_is_wider_than_the_screen(browser, pages, width):
    for path, answer in pages.items():
        opened = browser.new_page(viewport={"width": width, "height": 900})
        opened.set_default_timeout(PATIENCE)
        opened.goto(path.as_uri())
        assert opened.locator("h1, h2, h3").first.inner_text().startswith(answer)
        assert opened.locator(".status").first.is_visible()
        assert opened.locator(".lead").bounding_box()["y"] < 500
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        wide = opened.eval_on_selector_all("img", "all => all.map(i => i.getBoundingClientRect().right)")
        assert wide
        assert max(wide) <= width
        first = opened.eval_on_selector_all("main img, main table", "all => all.map(one => one.tagName)")[0]
        assert first == "IMG"  # the picture comes before any table
        opened.close()


def test_a_monitor_of_one_task_has_no_average(pages):
    text = next(path for path in pages if path.name == "monitor.html").read_text()
    assert "average" not in text.partition("<main")[2]


def test_a_page_must_be_html(tmp_path, capsys):
    assert main(["compare", "a.npy", "b.npy", "--html", str(tmp_path / "page.pdf")]) == 2
    assert "must end in .html" in capsys.readouterr().err
