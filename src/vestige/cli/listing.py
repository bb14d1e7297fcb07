"""`vestige list`: what this installation knows, read from the registry of each package."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tyro.conf import Positional

from vestige.cli import output

# Section -> (module, the dict in it). A package that is not there has nothing to list.
REGISTRIES = {
    "experiments": ("vestige.runner.registry", "EXPERIMENTS"),
    "methods": ("vestige.continual.learners", "METHODS"),
    "streams": ("vestige.data", "STREAMS"),
    "generators": ("vestige.generators", "GENERATORS"),
    "estimators": ("vestige.ratios", "RATIOS"),
    "features": ("vestige.features", "FEATURES"),
    "data": ("vestige.data", "SOURCES"),
}


@dataclass(frozen=True)
class ListVerb:
    """Experiments, methods, streams, generators, estimators, feature maps and data sets that are known here."""

    what: Positional[str | None] = None
    """One of them: experiments, methods, streams, generators, estimators, features, data. All of them if left out."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Print one table a section."""
        from vestige.core.checks import one_of

        sections = list(REGISTRIES) if self.what is None else [one_of(self.what, REGISTRIES, "what", "vestige list")]
        found = {section: entries(section) for section in sections}
        if self.json:
            output.document(found)
            return
        for section, known_here in found.items():
            if known_here:
                output.table(output.Table(section, ("name", "what it is"), list(known_here.items())))
            else:
                output.say(f"{section}: none yet")


def entries(section: str) -> dict[str, str]:
    """Name -> one line about it, in the order of the registry."""
    module, attribute = REGISTRIES[section]
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # it is there, and broken
            raise
        return {}
    registry: Mapping[str, Any] = getattr(found, attribute, {})
    return {name: _about(entry) for name, entry in registry.items()}


def _about(entry: object) -> str:
    """The `about` of an entry, or the first line of its docstring."""
    about = getattr(entry, "about", None)
    if isinstance(about, str):
        return about
    text = (inspect.getdoc(entry) or "").partition("\n")[0]
    # A dataclass without a docstring is given its signature for one, which says nothing here.
    automatic = dataclasses.is_dataclass(entry) and text.startswith(f"{getattr(entry, '__name__', '')}(")
    return "" if automatic else text
