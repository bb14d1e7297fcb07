"""A forest that tells rows from rows whose columns were shuffled apart: its leaves show how columns depend.

Trees see scores of codes, of which there are few, so that a threshold says no more than which bins are below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from vestige.core import rng
from vestige.vestiges.drift_test.columns import MIN_ROWS, MIN_SHARE

LEAF = -1  # the feature of a node that is a leaf


@dataclass(frozen=True)
class Trees:
    """Nodes of all trees, one tree a row, padded: what is asked at a node, and where either answer leads."""

    feature: Int[Tensor, "t k"]
    threshold: Float[Tensor, "t k"]
    left: Int[Tensor, "t k"]
    right: Int[Tensor, "t k"]
    tree: Int[Tensor, " l"]  # the leaves that are functions: their trees, and their nodes
    node: Int[Tensor, " l"]
    depth: int

    def leaves(self, inputs: Float[Tensor, "u n"]) -> Float[Tensor, "l n"]:
        """Whether a row falls into each of the leaves."""
        if not len(self.tree):
            return inputs.new_zeros(0, inputs.shape[1])
        trees, nodes = self.feature.shape
        below = inputs[self.feature.clamp_min(0)] <= self.threshold[:, :, None]
        reached = torch.zeros(trees, nodes, inputs.shape[1], dtype=torch.bool)
        reached[:, 0] = True
        tree, node = torch.arange(trees), torch.zeros(trees, dtype=torch.int64)
        for _ in range(self.depth):  # a level of all trees at once
            inner = self.feature[tree, node] != LEAF
            tree, node = tree[inner], node[inner]
            here, yes = reached[tree, node], below[tree, node]
            reached[tree, self.left[tree, node]] = here & yes
            reached[tree, self.right[tree, node]] = here & ~yes
            node = torch.cat([self.left[tree, node], self.right[tree, node]])
            tree = tree.repeat(2)
        return reached[self.tree, self.node].to(inputs.dtype)


def none() -> Trees:
    """No trees, for rows that are too few."""
    empty, whole = torch.zeros(0, 0, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.int64)
    return Trees(whole, empty, whole, whole, whole.reshape(-1), whole.reshape(-1), 0)


def grow(
    inputs: Float[Tensor, "u n"], owner: Int[Tensor, " u"], *, trees: int, leaves: int, depth: int, seed: int
) -> Trees:
    """A forest on `inputs`, of which those with one `owner` are shuffled together."""
    n = inputs.shape[1]
    generator = rng.fork(seed, "shuffled columns")
    apart = inputs.clone()
    for column in owner.unique().tolist():
        apart[owner == column] = inputs[owner == column][:, torch.randperm(n, generator=generator)]
    rows = torch.cat([inputs, apart], 1).T.to(torch.float32).numpy()
    least = max(MIN_ROWS, int(1.5 * MIN_SHARE * n))
    forest = RandomForestClassifier(
        trees, max_leaf_nodes=leaves, max_depth=depth, min_samples_leaf=least, max_features=0.5,
        max_samples=0.7, random_state=rng.child_seed(seed, "forest") % 2**32, n_jobs=1,
    ).fit(rows, np.repeat([1, 0], n))  # fmt: skip
    size = max(one.tree_.node_count for one in forest.estimators_)

    def padded(name: str, blank: float) -> Tensor:
        entries = [getattr(one.tree_, name) for one in forest.estimators_]
        return torch.tensor(np.stack([np.pad(e, (0, size - len(e)), constant_values=blank) for e in entries]))

    feature = padded("feature", LEAF).clamp_min(LEAF).to(torch.int64)
    left, right = padded("children_left", LEAF).to(torch.int64), padded("children_right", LEAF).to(torch.int64)
    exists = torch.arange(size) < torch.tensor([[one.tree_.node_count] for one in forest.estimators_])
    tree, node = ((feature == LEAF) & exists).nonzero().T
    grown = Trees(feature, padded("threshold", 0.0).to(torch.float64), left, right, tree, node, depth)
    share = grown.leaves(inputs).mean(1)
    usable = (share * n >= least) & ((1 - share) * n >= least)
    return Trees(feature, grown.threshold, left, right, tree[usable], node[usable], depth)
