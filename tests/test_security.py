"""SECURITY.md says the limits that the code has."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMITS = re.findall(
    r"^\| `([\w.]+)\.(\w+)` \| (\S+) \|", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_there_are_limits():
    assert len(LIMITS) >= 5


@pytest.mark.parametrize(("module", "name", "value"), LIMITS)
def test_a_limit_is_what_the_page_says(module, name, value):
    assert getattr(import_module(module), name) == pytest.approx(float(value))


def test_no_pickle_and_no_eval():
    allowed = re.compile(r"allow_pickle=False")
    for path in (ROOT / "src").rglob("*.py"):
        text = allowed.sub("", path.read_text(encoding="utf-8"))
        assert not re.search(r"^\s*(import|from) (pickle|dill|joblib|marshal|shelve)\b", text, re.MULTILINE), path
        assert not re.search(r"(?<![\w.])(eval|exec)\(", text), path
        assert "allow_pickle" not in text, path
        loads = [line for line in text.splitlines() if "torch.load(" in line]
        assert all("weights_only=True" in line for line in loads), path


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_it_is_linked(page):
    assert "(SECURITY.md)" in (ROOT / page).read_text(encoding="utf-8")
