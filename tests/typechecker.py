"""beartype as the tests use it: jaxtyping decorates methods one by one, and there beartype cannot know what Self is.

So `Self` is read as `object`; every other annotation of the same function is still enforced.
"""

import re
from typing import Self

from beartype import BeartypeConf, beartype

# An int may stand where a float is asked for, as PEP 484 has it.
CONFIG = BeartypeConf(is_pep484_tower=True)


def check(function):
    """`function`, checking its arguments and its result at every call."""
    if isinstance(function, classmethod | staticmethod):
        return type(function)(check(function.__func__))
    function.__annotations__ = {name: _without_self(hint) for name, hint in function.__annotations__.items()}
    return beartype(conf=CONFIG)(function)


def _without_self(hint):
    if isinstance(hint, str):
        return re.sub(r"\bSelf\b", "object", hint)
    return object if hint is Self else hint
