"""Named settings: `build("rwalk", stream, preset="authors")` is the method as the code of RWalk's authors has it.

"paper" is what the papers say, and the defaults of each method. "authors" replaces what their code does otherwise, as
far as it has the method at all: of EWC it has only the online form, which the paper too calls EWC. Strengths, memory
and learning rate stay those of the default. Fields that are given beside a preset win over it."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

# Truncated-normal weights, biases of 0.1, a fresh optimiser for each task.
_TRAINING: Fields = {"init": "truncated_normal", "reset_optimizer": True}
# The square of the mean gradient, averaged over the interval, scaled to [0, 1] over all layers; no factor 1/2.
_FISHER: Fields = _TRAINING | {"fisher": "batch", "accumulate": "interval", "normalise": "joint", "half": False}
_PI: Fields = _TRAINING | {"damping": 1e-3, "gradient": "task"}
# 3/2 of the old score and 1/2 of the new.
_RWALK: Fields = _FISHER | {"average": "code", "eps": 1e-3, "gradient": "task"}

AUTHORS: dict[str, Fields] = {
    "ewc_pp": _FISHER,
    "ewc_pp_s": _FISHER,
    "pi": _PI,
    "pi_s": _PI,
    "rwalk": _RWALK,
    "rwalk_s": _RWALK,
}

PRESETS = ("paper", "authors")


def preset_fields(preset: str, method: str) -> Fields:
    """What `preset` replaces in the configuration of `method`."""
    return {} if preset == "paper" else AUTHORS.get(method, _TRAINING)
