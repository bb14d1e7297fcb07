"""What every package rests on: errors, estimates, checks at the door, seeds, numerics, the machine.

Errors and estimates are imported from here, the rest from its module; nothing that is imported here loads torch.
"""

from vestige.core.errors import (
    DataGone,
    DataUnavailable,
    InputError,
    MissingPackage,
    NotEstimable,
    NotFitted,
    StoreError,
    UnknownName,
    VestigeError,
    VestigeWarning,
)
from vestige.core.estimate import Estimate, rendered
from vestige.core.version import __version__

__all__ = [
    "DataGone",
    "DataUnavailable",
    "Estimate",
    "InputError",
    "MissingPackage",
    "NotEstimable",
    "NotFitted",
    "StoreError",
    "UnknownName",
    "VestigeError",
    "VestigeWarning",
    "__version__",
    "rendered",
]
