"""What every object that learns can do with what it has learnt: copy it, hand it over, write it and read it.

A child is a dataclass: its fields are its configuration, what was learnt ends in `_`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from torch import Tensor

from vestige.store.codec import encode, restore_tensors, to_tensors
from vestige.store.objects import load_object, save_object


class Stored:
    """Stored by the codec, as one file of JSON and one of tensors."""

    stored_as: ClassVar[str]  # the kind of its files

    def copy(self) -> Self:
        """One of its own that stays as this one is now."""
        return copy.deepcopy(self)

    def state_dict(self) -> dict[str, Tensor]:
        """All that was learnt, as flat tensors, copied."""
        return {key: value.clone() for key, value in to_tensors(self).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Self:
        """Take over what another of the same configuration has learnt; a mismatch names the key."""
        taken = self.copy()
        restore_tensors(taken, state)
        self.__dict__.update(taken.__dict__)
        return self

    def bytes(self) -> int:
        """What the learnt state occupies."""
        return sum(value.numel() * value.element_size() for value in encode(self)[1].values())

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and state to `path` (.json) and a safetensors file beside it."""
        return save_object(path, self.stored_as, self)

    @classmethod
    def load(cls, path: str | Path, classes: Mapping[str, type] | None = None) -> Self:
        """What is stored at `path`, of this class or one of `classes`."""
        return load_object(cls, path, cls.stored_as, classes)
