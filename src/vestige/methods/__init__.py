"""Learners: one file each. A new one is a file like `vanilla.py`, a line in `METHODS`, a row in the contract tests."""

from dataclasses import replace
from typing import Any

from vestige.checks import one_of
from vestige.data.stream import Stream
from vestige.errors import InputError
from vestige.methods.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.methods.ewc import EWC, EWCHuszar
from vestige.methods.ewc_pp import EWCPP
from vestige.methods.joint import Joint
from vestige.methods.pi import PI
from vestige.methods.rwalk import RWalk
from vestige.methods.vanilla import Vanilla

METHODS: dict[str, type[Learner]] = {
    "ewc": EWC,
    "ewc_huszar": EWCHuszar,
    "ewc_pp": EWCPP,
    "joint": Joint,
    "pi": PI,
    "rwalk": RWalk,
    "vanilla": Vanilla,
}


def build(name: str, stream: Stream, *, seed: int = 0, **fields: Any) -> Learner:  # noqa: ANN401
    """The learner called `name` for `stream`; `fields` replace those of its configuration."""
    method = METHODS[one_of(name, METHODS, "method", "methods.build")]
    config = method.default_config()
    unknown = sorted(set(fields) - set(config.__dataclass_fields__))
    if unknown:
        known = ", ".join(config.__dataclass_fields__)
        raise InputError(f"The 'fields' of {name} must be among {known}. Got {', '.join(unknown)} instead.")
    return method(Spec(stream.input_shape, stream.n_outputs), replace(config, **fields), seed=seed)


__all__ = [
    "EWC",
    "EWCPP",
    "METHODS",
    "PI",
    "EWCHuszar",
    "Info",
    "Joint",
    "Learner",
    "Outputs",
    "RWalk",
    "Spec",
    "TrainConfig",
    "Vanilla",
    "build",
]
