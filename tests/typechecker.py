"""Annotations enforced at run time, in tests alone: beartype checks every argument and result of our functions.

`--jaxtyping-packages` has `jaxtyping.jaxtyped` put on each function that is imported. Its own version checks arguments
twice a call and reads the signature each time, which costs more than most functions do: the suite took nearly twice as
long. `jaxtyped` here takes its place (see conftest.py). It checks once, for the first calls in each test, and opens a
scope for the names of sizes ("n d" means the same n and d in all arguments and the result) only where an annotation has
sizes. Functions inside of functions are left alone: they would be compiled anew at every call of the outer one.
"""

import dataclasses
import functools
import inspect
import re
import typing

import jaxtyping
from beartype import BeartypeConf, beartype

# An int may stand where a float is asked for, as PEP 484 has it.
CONFIG = BeartypeConf(is_pep484_tower=True)
# A loop that calls the same function ten thousand times shows nothing new after the first few.
CALLS = 3
THEIRS = jaxtyping.jaxtyped


class Current:
    """The test that runs; conftest.py says which."""

    test = None


def check(function):
    """`function`, checking arguments and results of its first CALLS calls in every test."""
    checked, test, left = None, None, 0

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal checked, test, left
        if test is not Current.test:
            test, left = Current.test, CALLS
        if not left:
            return function(*args, **kwargs)
        left -= 1
        if checked is None:
            checked = compiled(function)
        return checked(*args, **kwargs)

    return call


def compiled(function):
    """`function` with its checks, in a scope of its own if its annotations have sizes."""
    function.__annotations__ = {name: resolved(hint, function) for name, hint in function.__annotations__.items()}
    if inspect.isgeneratorfunction(function):  # its body runs later, outside of any scope of ours
        return THEIRS(function, typechecker=beartype(conf=CONFIG))
    checked = beartype(conf=CONFIG)(function)
    if not any(map(has_sizes, function.__annotations__.values())):
        return checked

    def scoped(*args, **kwargs):
        with THEIRS("context"):
            return checked(*args, **kwargs)

    return scoped


def jaxtyped(decorated=None, *, typechecker):
    """What the import hook of jaxtyping decorates with: functions, and the constructors of dataclasses."""
    if decorated is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if isinstance(decorated, type):
        if dataclasses.is_dataclass(decorated) and not hasattr(decorated.__init__, "__wrapped__"):
            decorated.__init__ = typechecker(decorated.__init__)
        return decorated
    return decorated if "<locals>" in decorated.__qualname__ else typechecker(decorated)


def resolved(hint, function):
    """An annotation as the object that it names; `object`, so unchecked, where that is imported for mypy alone."""
    if not isinstance(hint, str):
        return object if hint is typing.Self else hint
    carrier = type("Carrier", (), {"__annotations__": {"value": re.sub(r"\bSelf\b", "object", hint)}})
    try:
        return typing.get_type_hints(carrier, function.__globals__, include_extras=True)["value"]
    except (NameError, TypeError):  # TypeError: a name in quotes joined by |
        return object


def has_sizes(hint):
    """Whether an annotation has an array of jaxtyping's in it."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_sizes, typing.get_args(hint)))
