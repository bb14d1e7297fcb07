"""What a run computes, counted in forward-backward passes, so that methods can be compared at equal compute.

A pass is one row through the learner's network, forward and back. A forward alone (old logits of a distillation, say)
is a third of one and a backward alone two thirds, as a backward is two products of the size of a forward's one. So the
rows that are replayed count, the extra gradients of GEM and A-GEM, and every backward of a Fisher. A row through
another network, such as a generator that is taught, counts by its parameters against those of the learner's network. A
Bayesian network or an ensemble makes a pass of each of its answers to a row. Every `nn.Module` that is called while a
`Passes` is open is counted, modules within it are not; what is no module (density ratios of weighted replay) is not
counted either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

FORWARD, BACKWARD = 1 / 3, 2 / 3  # of a pass
_counting: ContextVar[bool] = ContextVar("whether modules that are called count", default=True)


@contextmanager
def not_counted() -> Iterator[None]:
    """Within it nothing counts: a test, or a look of an audit, is no part of what a learner computes."""
    token = _counting.set(False)
    try:
        yield
    finally:
        _counting.reset(token)


def rows_of(args: tuple[Any, ...], output: Any) -> int:  # noqa: ANN401 - whatever a module takes and gives
    """Rows that went through; the answers of all members or samples where a network gives several, (s, n, k)."""
    rows = len(args[0]) if args and isinstance(args[0], Tensor) and args[0].ndim else 0
    several = isinstance(output, Tensor) and output.ndim == 3 and output.shape[1] == rows
    return rows * output.shape[0] if several else rows


def parameters_of(module: nn.Module) -> int:
    """Numbers in its parameters."""
    return sum(p.numel() for p in module.parameters())


class Passes:
    """Counts, while it is `open`, in passes through `net`; None: through the first network that is called."""

    def __init__(self, net: nn.Module | None = None) -> None:
        self.parameters, self.total = 0 if net is None else parameters_of(net), 0.0
        self._depth = 0
        self._sizes: dict[int, int] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within it every module that is called counts."""
        self._depth, self._sizes = 0, {}
        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._depth += 1

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
        self._depth -= 1
        if self._depth or not _counting.get():
            return
        if id(module) not in self._sizes:
            self._sizes[id(module)] = parameters_of(module)
        self.parameters = self.parameters or self._sizes[id(module)]
        cost = rows_of(args, output) * self._sizes[id(module)] / max(self.parameters, 1)
        self.total += FORWARD * cost
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: self._back(cost))

    def _back(self, cost: float) -> None:
        self.total += BACKWARD * cost
