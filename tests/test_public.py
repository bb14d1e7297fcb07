"""The public names: what a user may lean on. A change here is a change for users, and belongs in the changelog."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import vestige

PUBLIC = {
    "Chain",
    "Monitor",
    "Record",
    "__version__",
    "audit",
    "chains",
    "checks",
    "compare",
    "data",
    "divergences",
    "drawing",
    "errors",
    "experiments",
    "features",
    "files",
    "generation",
    "generators",
    "memory",
    "methods",
    "metrics",
    "monitor",
    "nets",
    "policy",
    "protocol",
    "ratios",
    "report",
    "rng",
    "run",
    "runner",
    "store",
    "weigh",
    "weights",
}


def test_the_front_door_names_exactly_these():
    assert set(vestige.__all__) == set(dir(vestige)) == PUBLIC
    for name in PUBLIC:
        assert getattr(vestige, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = vestige.nonsense


@pytest.mark.parametrize(
    "room",
    sorted({*PUBLIC & set(vestige.ROOMS)} - {"checks", "errors", "protocol", "rng", "store"}),  # packages, not files
)
def test_a_room_lists_its_names_in_order_and_has_them(room):
    module = import_module(f"vestige.{room}")
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        thing = getattr(module, name)
        documented = inspect.isfunction(thing) or inspect.isclass(thing)
        assert not documented or thing.__doc__, f"{room}.{name} has no docstring"


def test_the_import_is_light():
    """torch takes seconds to load; `import vestige` and `vestige --help` must not wait for it."""
    code = "import sys, vestige, vestige.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
