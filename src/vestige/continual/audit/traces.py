"""Rows of past tasks, wherever they turn up: among what a learner keeps, or in a network that trains.

Each row that a learner is shown gets a fingerprint, a number made of its bits; the rows themselves are not kept. A
learner keeps a row if a tensor that can be reached from it (through attributes, dicts and lists) has one with that
fingerprint, whether in its memory or elsewhere; it trains on old tasks if such a row enters any network while gradients
are on. Rows of the task under way do not count, nor rows of old ones that are in it again.

What is found is a copy, bit for bit, in 32-bit floats. A row that was rounded, cropped or drawn anew is not recognised,
nor one that hides in a closure or a file: evidence that data was kept is proof, its absence is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from vestige.core import rng

ROWS_AT_ONCE = 4096  # bounds memory, changes nothing
NO_HOLDERS = (str, bytes, type, ModuleType, FunctionType, MethodType)


@functools.cache
def _factors(width: int) -> Int64[Tensor, " w"]:
    limit = torch.iinfo(torch.int64)
    return torch.randint(limit.min, limit.max, (width,), generator=rng.fork(0, "fingerprints", width))


def fingerprints(x: Float[Tensor, "n *shape"]) -> set[int]:
    """A number for each row but those of zeros, which are in every optimiser; the order of the rows does not matter.

    The sum runs in integers, which wrap and never round: the same row gives the same number in any batch.
    """
    bits = x.detach().flatten(1).float().contiguous().view(torch.int32)
    found = {f for part in bits.split(ROWS_AT_ONCE) for f in (part * _factors(bits.shape[1])).sum(1).tolist()}
    return found - {0}


def tensors_in(thing: object, skip: object = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from `thing`, each once; nothing of `skip`."""
    left, met = [thing], {id(skip)}
    while left:
        item = left.pop()
        if id(item) in met or isinstance(item, NO_HOLDERS):
            continue
        met.add(id(item))
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, Mapping):
            left += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            left += item
        else:
            left += vars(item).values() if hasattr(item, "__dict__") else []


class Traces:
    """What a learner was shown, and what of it came back. `aside` surrounds the looking: a clock that stops, say."""

    def __init__(self, width: int, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.width, self.aside = width, aside  # the width of a row
        self.past: set[int] = set()
        self.present: set[int] = set()
        self.again: set[int] = set()  # rows of the past that a network trained on

    def begin(self, x: Float[Tensor, "n *shape"]) -> None:
        """These rows are the present; what was before is the past."""
        self.past |= self.present
        self.present = fingerprints(x) if len(x) else set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs, look at what enters any network with gradients on."""

        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            if torch.is_grad_enabled() and args and isinstance(args[0], Tensor) and self._has_rows(args[0]):
                with self.aside():
                    self.again |= (fingerprints(args[0]) & self.past) - self.present

        handle = register_module_forward_pre_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def copies(self, thing: object, skip: object = None) -> tuple[int, int]:
        """Samples and bytes of all tasks so far that `thing` holds outside of `skip`."""
        shown, samples, size = self.past | self.present, 0, 0
        for tensor in tensors_in(thing, skip):
            if self._has_rows(tensor):
                found = len(fingerprints(tensor) & shown)
                samples, size = samples + found, size + found * self.width * tensor.element_size()
        return samples, size

    def _has_rows(self, x: Tensor) -> bool:
        return x.is_floating_point() and x.ndim > 1 and len(x) > 0 and x[0].numel() == self.width
