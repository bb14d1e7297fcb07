"""A file imports from its own package and from those before it in this list, never from those after it."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# The order of the packages of `vestige`, lowest first; `vestige_papers` stands above them all.
PACKAGES = [
    "core",
    "store",
    "show",
    "data",
    "nets",
    "ratios",
    "features",
    "metrics",
    "densities",
    "vestiges",
    "chains",
    "generators",
    "continual",
    "policy",
    "monitor",
    "plugins",
    "runner",
    "cli",
    "vestige_papers",
]


def imported_modules(tree: ast.AST) -> set[str]:
    """Modules of ours that a file imports, at any depth of its code, as dotted names."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("vestige", "vestige_papers")}


def package_of(module: str) -> str:
    """The package that a dotted name stands in; the front door `vestige` itself counts as the last."""
    parts = module.split(".")
    if parts[0] == "vestige_papers":
        return "vestige_papers"
    return parts[1] if len(parts) > 1 and not parts[1].startswith("_") else "vestige_papers"


def violations(package: str, tree: ast.AST) -> list[str]:
    """Imports in a file of `package` that point upward; and relative imports, which hide the package."""
    relative = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level > 0]
    place = PACKAGES.index(package)
    upward = [m for m in imported_modules(tree) if PACKAGES.index(package_of(m)) > place]
    return sorted(upward) + ["relative import"] * bool(relative)


def modules() -> dict[str, Path]:
    """Every file by its dotted name."""
    named = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


FILES = {name: path for name, path in modules().items() if name not in ("vestige", "vestige.__main__")}


@cache
def tree_of(path: Path) -> ast.Module:
    """Read once for all tests: there are hundreds of files."""
    return ast.parse(path.read_text())


def test_a_file_imports_only_from_its_own_package_and_lower_ones():
    homeless = [name for name in FILES if package_of(name) not in PACKAGES]
    assert homeless == [], "these stand in no package of the list"
    found = {name: violations(package_of(name), tree_of(path)) for name, path in FILES.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from vestige.continual.protocol import run",
        "import vestige.continual.protocol",
        "from vestige.continual import protocol",
        "import vestige_papers",
        "from vestige_papers.cdre import fig2",
        "def late():\n    from vestige.continual.protocol import run\n    return run",
        "from . import sibling",
    ],
)
def test_a_planted_upward_import_is_caught(planted):
    assert violations("core", ast.parse(planted)) != []


def test_the_library_never_imports_the_papers():
    assert violations("cli", ast.parse("from vestige_papers import EXPERIMENTS")) == ["vestige_papers.EXPERIMENTS"]


def graph(files: dict[str, ast.AST]) -> dict[str, set[str]]:
    """Which module imports which, function-level imports included; a name of a package counts as the package."""
    edges: dict[str, set[str]] = {}
    for name, tree in files.items():
        found = set()
        for module in imported_modules(tree):
            parent = module.rpartition(".")[0]
            found.add(module if module in files else parent)
        edges[name] = (found & set(files)) - {name}
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """A cycle of imports, or nothing."""
    state: dict[str, int] = {}

    def visit(node: str, path: list[str]) -> list[str]:
        state[node] = 1
        for after in sorted(edges[node]):
            if state.get(after) == 1:
                return [*path[path.index(after) :], after] if after in path else [node, after]
            if after not in state and (found := visit(after, [*path, after])):
                return found
        state[node] = 2
        return []

    for node in edges:
        if node not in state and (found := visit(node, [node])):
            return found
    return []


def test_there_are_no_import_cycles():
    assert cycle(graph({name: tree_of(path) for name, path in FILES.items()})) == []


def test_a_planted_cycle_is_found():
    planted = {"vestige.a": "def f():\n    from vestige.b import g", "vestige.b": "import vestige.a"}
    found = cycle(graph({name: ast.parse(source) for name, source in planted.items()}))
    assert found == ["vestige.a", "vestige.b", "vestige.a"]


def test_no_drawers_without_a_name():
    drawers = {"utils", "util", "helpers", "common", "misc"}
    assert not [path for path in SOURCE.rglob("*") if path.stem in drawers]


def class_names(files: dict[str, Path]) -> dict[str, list[str]]:
    """Where each public class is defined."""
    homes: dict[str, list[str]] = {}
    for name, path in files.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    return homes


def test_a_class_name_is_used_once():
    assert {name: homes for name, homes in class_names(FILES).items() if len(homes) > 1} == {}


PROJECT = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
# Where a package is imported by another name than it is installed by.
IMPORTED_AS = {
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "avalanche-lib": "avalanche",
    "gymnasium[mujoco]": "gymnasium",
}
UNLISTED = {"avalanche"}  # whose requirements no pip can settle beside ours: make installs it by itself


def names_of(requirements: list[str]) -> set[str]:
    """What these packages are imported as."""
    names = (re.split(r"[<>=]", requirement)[0] for requirement in requirements)
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def foreign(tree: ast.AST, *, at_import: bool) -> set[str]:
    """Packages of others that a file imports: anywhere, or when it is imported itself."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]}
        elif not at_import or not (
            isinstance(node, ast.FunctionDef)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ):
            found |= foreign(node, at_import=at_import)
    return found - sys.stdlib_module_names - {"vestige", "vestige_papers"}


def undeclared(package: str, tree: ast.AST) -> set[str]:
    """Packages of others that are not there when a file needs them."""
    needed = names_of(PROJECT["dependencies"])
    extras = names_of([name for extra in PROJECT["optional-dependencies"].values() for name in extra]) | UNLISTED
    at_import = set() if package == "plugins" else foreign(tree, at_import=True) - needed
    return at_import | (foreign(tree, at_import=False) - needed - extras)


def test_a_file_needs_only_what_is_installed_with_it():
    found = {name: undeclared(package_of(name), tree_of(path)) for name, path in FILES.items()}
    assert not {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("import transformers", {"transformers"}),
        ("try:\n    from ray import init\nexcept ImportError:\n    pass", {"ray"}),
        ("class A:\n    import gymnasium", {"gymnasium"}),
        ("def f():\n    import gymnasium", set()),
        ("def f():\n    import tensorflow", {"tensorflow"}),
        ("if TYPE_CHECKING:\n    import ray", set()),
        ("import torch, sklearn.svm, json", set()),
    ],
)
def test_a_planted_need_is_found(planted, found):
    assert undeclared("runner", ast.parse(planted)) == found
