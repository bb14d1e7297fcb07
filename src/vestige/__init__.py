"""Vestige judges models that keep learning after their data is gone.

    import vestige as vs

    stream = vs.data.split(vs.data.load("digits"), 2)           # tasks whose data goes away
    record = vs.run(stream, vs.methods.build("vanilla", stream))  # the whole matrix, time, bytes
    record.summary().last()                                     # A, F, I, BWT, FWT

    found = vs.compare(real, fake)                              # metrics and divergences, with intervals
    weights = vs.weigh(real, fake)                              # weights that correct a model's bias
    train = vs.augment(real, fake, label="y").table             # both, with weights to train on

Packages are loaded when they are first used, so that `import vestige` is quick.
"""

from importlib import import_module
from typing import Any

from vestige.core import __version__

# What users know by a short name, and where it lives.
MODULES = {
    "audit": "vestige.continual.audit",
    "chains": "vestige.chains",
    "checks": "vestige.core.checks",
    "data": "vestige.data",
    "densities": "vestige.densities",
    "divergences": "vestige.ratios.divergences",
    "errors": "vestige.core.errors",
    "features": "vestige.features",
    "generation": "vestige.continual.generation",
    "generators": "vestige.generators",
    "memory": "vestige.continual.memory",
    "methods": "vestige.continual.learners",
    "metrics": "vestige.metrics",
    "monitor": "vestige.monitor",
    "nets": "vestige.nets",
    "policy": "vestige.policy",
    "protocol": "vestige.continual.protocol",
    "ratios": "vestige.ratios",
    "readers": "vestige.data.readers",
    "report": "vestige.runner.report",
    "rng": "vestige.core.rng",
    "runner": "vestige.runner",
    "show": "vestige.show",
    "store": "vestige.store",
    "weights": "vestige.ratios.weights",
}
NAMES = {
    "Chain": "vestige.chains",
    "FidStatistics": "vestige.vestiges",
    "Monitor": "vestige.monitor",
    "PrivateVestige": "vestige.vestiges",
    "Record": "vestige.continual.record",
    "Vestige": "vestige.vestiges",
    "augment": "vestige.vestiges",
    "compare": "vestige.vestiges",
    "keep": "vestige.vestiges",
    "load": "vestige.vestiges",
    "run": "vestige.continual.protocol",
    "search": "vestige.continual.search",
    "weigh": "vestige.vestiges",
}

__all__ = ["__version__", *MODULES, *NAMES]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module or one of its functions
    if name in MODULES:
        return import_module(MODULES[name])
    if name in NAMES:
        return getattr(import_module(NAMES[name]), name)
    raise AttributeError(f"module 'vestige' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
