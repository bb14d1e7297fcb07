"""A zoo of pairs (p, q) whose divergences are known: `ZOO["gauss-shift-d10"]`, `ZOO[name].truth()`.

Every pair draws from p and from q, has the exact log p/q, and its KL, reverse KL, JS, squared Hellinger and reachable
shares in truth.json. `python -m benchmarks.zoo` lists them, `python -m benchmarks.zoo --truth` computes the truth anew.
Numpy and scipy alone are needed. The pairs of `benchmarks.zoo.unseen` and `benchmarks.zoo.second`, which nothing is
chosen on, are not among them.
"""

from __future__ import annotations

from benchmarks.zoo import columns, copulas, gaussians, heavy, manifolds, maps, mixtures, series, skewed, support
from benchmarks.zoo.pair import Pair

_GROUPS = (gaussians, heavy, skewed, mixtures, manifolds, maps, copulas, columns, series, support)
ZOO: dict[str, Pair] = {pair.name: pair for group in _GROUPS for pair in group.pairs()}
FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(name for name, pair in ZOO.items() if pair.family == family)
    for family in dict.fromkeys(pair.family for pair in ZOO.values())
}
