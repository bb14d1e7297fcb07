"""The door: what comes in is checked here, once, before any work, and leaves as the kind it came in.

Every refusal is one sentence of one form: "The 'x' of Y must be Z. Got v instead."

`samples`, `vector`, `matrix`, `labels` and `weights` return torch tensors; `Kind.of(x).give(tensor)` turns a result
back into the kind that `x` was: numpy array, torch tensor, list, or pandas object with the index of `x`.
`option` declares what a field of a configuration may hold, and `declared` refuses what it may not.
"""

from vestige.core.checks.arrays import labels, matrix, pair, samples, vector, weights
from vestige.core.checks.declared import declared, learnt, option, options
from vestige.core.checks.kinds import ArrayLike, Kind
from vestige.core.checks.refusal import refuse
from vestige.core.checks.scalars import number, one_of, whole

__all__ = [
    "ArrayLike",
    "Kind",
    "declared",
    "labels",
    "learnt",
    "matrix",
    "number",
    "one_of",
    "option",
    "options",
    "pair",
    "refuse",
    "samples",
    "vector",
    "weights",
    "whole",
]
