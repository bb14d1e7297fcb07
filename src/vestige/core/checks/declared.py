"""Declared constraints: a field of a configuration says beside its default what it may hold.

    @dataclass
    class Settings:
        learning_rate: float = option(1e-3, above=0)
        hidden: tuple[int, ...] = option((64, 64), low=1)
        loss: str = option("js", among=("js", "kl"))

        def __post_init__(self) -> None:
            declared(self)

Whether a field is a whole number, a number, a name, a truth value or a tuple of them is read from its annotation, and
None is allowed where the annotation has it. `among` concerns words, beside which numbers may have bounds; it may be
anything that has `in` and can be listed, such as a registry; a function of no arguments where that would be imported
too early.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from vestige.core.checks.refusal import refuse
from vestige.core.checks.scalars import number, one_of, whole

KEY = "vestige constraint"
Names = Collection[str] | Callable[[], Collection[str]]


@dataclass(frozen=True)
class Constraint:
    """What a value, or each value of a tuple, must satisfy."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    among: Names | None = None
    least: int | None = None  # how many values a tuple must hold


def option(
    default: Any = MISSING,  # noqa: ANN401 - of the field's type
    *,
    factory: Callable[[], Any] | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    among: Names | None = None,
    least: int | None = None,
    **field: Any,  # noqa: ANN401 - of `dataclasses.field`
) -> Any:  # noqa: ANN401 - a field, typed as its annotation
    """A dataclass field with its constraint: [low, high], (above, below), `among` names, `least` so many values."""
    metadata = {KEY: Constraint(low, high, above, below, among, least)}
    made: dict[str, Any] = {"default_factory": factory} if factory is not None else {"default": default}
    return dataclasses.field(**made, metadata=metadata, **field)


def learnt(default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401 - a field
    """A dataclass field that is no option: what `fit` learns, under a name that ends in "_"."""
    made: dict[str, Any] = {"default_factory": factory} if factory is not None else {"default": default}
    return dataclasses.field(**made, init=False, repr=False, compare=False)


def declared(config: Any, owner: str | None = None) -> None:  # noqa: ANN401 - a dataclass instance
    """Refuse the first field of `config` that its annotation or its declared constraint does not allow."""
    owner = owner or type(config).__name__
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        constraint = field.metadata.get(KEY)
        if constraint is not None:
            _allowed(getattr(config, field.name), hints[field.name], constraint, field.name, owner)


def _allowed(value: Any, hint: Any, c: Constraint, name: str, owner: str) -> None:  # noqa: ANN401
    arms = typing.get_args(hint) if _is_union(hint) else (hint,)
    if value is None and type(None) in arms:
        return
    arm = _fitting(value, [a for a in arms if a is not type(None)])
    if typing.get_origin(arm) in (tuple, list):
        inner = typing.get_args(arm)[0]
        if not isinstance(value, tuple | list):
            refuse(name, owner, "a list", repr(value))
        if len(value) < (c.least or 0):
            refuse(name, owner, f"at least {c.least} long", len(value))
        for entry in value:
            _allowed(entry, inner, dataclasses.replace(c, least=None), name, owner)
    elif arm is bool:
        if not isinstance(value, bool):
            refuse(name, owner, "True or False", repr(value))
    elif c.among is not None and arm not in (int, float):
        one_of(value, c.among() if callable(c.among) else c.among, name, owner)
    elif arm is int:
        i = whole(
            value, name, owner, low=None if c.low is None else int(c.low), high=None if c.high is None else int(c.high)
        )
        _open(i, c, name, owner)
    elif arm is float:
        low, high = (c.low if c.above is None else c.above), (c.high if c.below is None else c.below)
        number(
            value,
            name,
            owner,
            low=-float("inf") if low is None else low,
            high=float("inf") if high is None else high,
            open_low=c.above is not None,
            open_high=c.below is not None,
        )
    elif arm is str and not isinstance(value, str):
        refuse(name, owner, "a word", repr(value))


def _open(i: int, c: Constraint, name: str, owner: str) -> None:
    if (c.above is not None and i <= c.above) or (c.below is not None and i >= c.below):
        refuse(name, owner, f"above {c.above:g}" if c.above is not None and i <= c.above else f"below {c.below:g}", i)


def _is_union(hint: Any) -> bool:  # noqa: ANN401
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _fitting(value: Any, arms: list[Any]) -> Any:  # noqa: ANN401
    """The arm of a union that the value is meant for; the last where none is, so that its refusal speaks."""
    for arm in arms:
        base = typing.get_origin(arm) or arm
        if isinstance(base, type) and isinstance(value, base) and not (base is int and isinstance(value, bool)):
            return arm
    return arms[-1]


def options(kind: Any, preset: str | None, given: Mapping[str, Any], owner: str) -> dict[str, Any]:  # noqa: ANN401
    """`given` over the preset of that name of the dataclass `kind`; a name that it has no field for is refused."""
    chosen = {} if preset is None else kind.presets[one_of(preset, kind.presets, "preset", owner)]
    fields = [f.name for f in dataclasses.fields(kind) if f.init]
    for option in given:
        one_of(option, fields, "options", owner)
    # JSON and command lines have no tuples
    return {k: tuple(v) if isinstance(v, list) else v for k, v in (chosen | dict(given)).items()}
