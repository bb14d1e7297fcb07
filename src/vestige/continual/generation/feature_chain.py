"""The view without data: f-divergences from data that is gone, by a chain on features that learn along.

The features are CDRE's `cvae` (Eq. 15), or any other map. At each step they see the new task's data, for the only time,
and generated samples of the others. Where the map changes under an anchored chain, the generated samples of each task's
first step are kept as they are and encoded anew (`Chain.encode_anew`); other chains rely on codes that hardly move,
which is what the tie of `cvae` is for. No row of data is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from vestige.chains import Chain, TaskReport
from vestige.features import FeatureMap


@dataclass
class FeatureChain:
    """Features that learn along, a chain on them, and generated samples to encode anew."""

    seen: FeatureMap
    chain: Chain
    first: dict[int, Tensor] = field(default_factory=dict)  # samples of each task's first step

    def step(
        self, task: int, real: Float[Tensor, "n d"], drawn: Mapping[int, Tensor], seed: int
    ) -> dict[int, TaskReport]:
        """Compare `drawn`, samples of every task so far, `task` being the new one; a report for each."""
        recodes = not self.seen.consistent and self.chain.strategy.name == "anchored"
        if self.chain.steps:
            self.seen.update({task: real}, {j: x for j, x in drawn.items() if j != task}, seed=seed)
            if recodes:
                self.chain.encode_anew(self._codes(self.first))
        else:
            self.seen.fit({task: real}, seed=seed)
        if recodes:
            self.first[task] = drawn[task].clone()
        report = self.chain.step(self._codes({task: real}), self._codes(drawn), seed=seed)
        return {int(own.task): own for own in report.tasks}

    def _codes(self, rows: Mapping[int, Tensor]) -> dict[str | int, Any]:
        return {j: self.seen.codes(x).double() for j, x in rows.items()}

    def bytes(self) -> int:
        """What the samples that are kept for encoding anew occupy; the chain keeps codes of its own."""
        return sum(x.numel() * x.element_size() for x in self.first.values())
