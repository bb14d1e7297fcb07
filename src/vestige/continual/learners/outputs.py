"""Which logits take part in a loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional


class Outputs:
    """The logits over which a loss is taken: a slice where they are neighbours, an index where they are not."""

    def __init__(self, outputs: Sequence[int], n_outputs: int) -> None:
        self.outputs = tuple(outputs)
        first, last = self.outputs[0], self.outputs[-1]
        self.first, self.stop = first, last + 1
        self.contiguous = self.outputs == tuple(range(first, last + 1))
        self.all = self.contiguous and len(self.outputs) == n_outputs
        self.index = torch.tensor(self.outputs)
        self.place = torch.full((n_outputs,), -1, dtype=torch.int64)
        self.place[self.index] = torch.arange(len(self.outputs))

    def loss(self, logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy over these outputs alone. A label outside them is an error, not a silent zero."""
        if self.all:
            return functional.cross_entropy(logits, y)
        if self.contiguous:
            return functional.cross_entropy(logits[:, self.first : self.stop], y - self.first)
        return functional.cross_entropy(logits[:, self.index], self.place[y])
