"""The one error sentence, in the one place where it is written."""

from __future__ import annotations

from typing import NoReturn

from vestige.core.errors import InputError


def refuse(name: str, owner: str, must: str, got: object) -> NoReturn:
    """Raise the one error sentence."""
    raise InputError(f"The '{name}' of {owner} must be {must}. Got {got} instead.")
