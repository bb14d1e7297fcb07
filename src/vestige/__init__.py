"""Vestige judges models that keep learning after their data is gone.

    import vestige as vs

    stream = vs.data.split(vs.data.load("digits"), 2)           # tasks whose data goes away
    record = vs.run(stream, vs.methods.build("vanilla", stream))  # the whole matrix, time, bytes
    record.summary().last()                                     # A, F, I, BWT, FWT

    found = vs.compare(real, fake)                              # metrics and divergences, with intervals
    weights = vs.weigh(real, fake)                              # weights that correct a model's bias

Rooms are loaded when they are first used, so that `import vestige` is quick.
"""

from importlib import import_module
from typing import Any

from vestige.version import __version__

ROOMS = (
    "audit",
    "chains",
    "checks",
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
    "runner",
    "store",
    "weights",
)
SHORTCUTS = {
    "Chain": "vestige.chains",
    "Monitor": "vestige.monitor",
    "Record": "vestige.record",
    "compare": "vestige.comparison",
    "run": "vestige.protocol",
    "weigh": "vestige.comparison",
}

__all__ = ["__version__", *ROOMS, *SHORTCUTS]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module or one of its functions
    if name in ROOMS:
        return import_module(f"vestige.{name}")
    if name in SHORTCUTS:
        return getattr(import_module(SHORTCUTS[name]), name)
    raise AttributeError(f"module 'vestige' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
