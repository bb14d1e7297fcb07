"""A file imports its own room and those above it in this list, never below."""

import ast
from pathlib import Path

import pytest

from vestige.record import DETERMINING

SOURCE = Path(__file__).parent.parent / "src" / "vestige"

# The order of the rooms, lowest first. A new room gets one line here.
ROOMS = [
    "version",
    "errors",
    "checks",
    "rng",
    "machine",
    "numerics",
    "store",
    "weights",
    "divergences",
    "files",
    "data",
    "nets",
    "ratios",
    "chains",
    "features",
    "metrics",
    "comparison",
    "drawing",
    "generators",
    "memory",
    "methods",
    "policy",
    "record",
    "checkpoint",
    "protocol",
    "generation",
    "audit",
    "monitor",
    "experiments",
    "runner",
    "report",
    "demo",
    "cli",
]


def imported_rooms(tree: ast.AST) -> set[str]:
    """Rooms of this package that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "vestige" and node.level == 0:
            found |= {alias.name for alias in node.names if not alias.name.startswith("_")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vestige.") and node.level == 0:
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("vestige.")}
    return found


def violations(room: str, source: str) -> list[str]:
    """Imports in `source`, a file of `room`, that point upward; and relative imports, which hide the room."""
    tree = ast.parse(source)
    relative = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level > 0]
    upward = [r for r in imported_rooms(tree) if ROOMS.index(r) > ROOMS.index(room)]
    return sorted(upward) + ["relative import"] * bool(relative)


def files_with_rooms() -> list[tuple[str, Path]]:
    pairs = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] not in ("__init__", "__main__"):  # the front door may name every room
            pairs.append((parts[0], path))
    return pairs


@pytest.mark.parametrize(("room", "path"), files_with_rooms(), ids=lambda v: v if isinstance(v, str) else v.stem)
def test_a_file_imports_only_from_its_own_room_and_lower_ones(room, path):
    assert room in ROOMS, f"{path} stands in no room of the list"
    assert violations(room, path.read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "from vestige.protocol import run",
        "import vestige.protocol",
        "from vestige import protocol",
        "def late():\n    from vestige.protocol import run\n    return run",
        "from . import sibling",
    ],
)
def test_a_planted_upward_import_is_caught(planted):
    assert violations("checks", planted) != []


def test_no_drawers_without_a_name():
    drawers = {"utils", "util", "helpers", "common", "misc"}
    assert not [path for path in SOURCE.rglob("*") if path.stem in drawers]


# What these rooms do changes no number: words, names, files, times and pictures.
SAYING = {"errors", "version", "machine", "store", "files", "drawing", "record", "checkpoint"}


def test_whatever_a_run_rests_on_counts_towards_its_id():
    counted = {room.removesuffix(".py") for room in DETERMINING}
    used = set()
    for room, path in files_with_rooms():
        if room in counted:
            used |= imported_rooms(ast.parse(path.read_text()))
    assert used - SAYING <= counted
