"""The public names: what a user may lean on. A change here is a change for users, and belongs in the changelog."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import vestige

PUBLIC = {
    "Chain",
    "FidStatistics",
    "Monitor",
    "PrivateVestige",
    "Record",
    "Vestige",
    "__version__",
    "audit",
    "augment",
    "chains",
    "checks",
    "compare",
    "data",
    "densities",
    "divergences",
    "errors",
    "features",
    "generation",
    "generators",
    "keep",
    "load",
    "memory",
    "methods",
    "metrics",
    "monitor",
    "nets",
    "policy",
    "protocol",
    "ratios",
    "readers",
    "report",
    "rng",
    "run",
    "runner",
    "search",
    "show",
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
    "name",
    sorted(set(vestige.MODULES) - {"errors", "protocol", "rng"}),  # packages, not files
)
def test_a_package_lists_its_names_and_has_them(name):
    module = import_module(vestige.MODULES[name])
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    for entry in module.__all__:
        thing = getattr(module, entry)
        documented = inspect.isfunction(thing) or inspect.isclass(thing)
        assert not documented or thing.__doc__, f"{name}.{entry} has no docstring"


def test_the_import_is_light():
    """torch takes seconds to load; `import vestige` and `vestige --help` must not wait for it."""
    code = "import sys, vestige, vestige.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
