"""Sequential trees: a table drawn column after column, each from a leaf of a tree on the columns before.

    p(x) = prod_j p(x_j | leaf_j(x_1 .. x_{j-1}))

Every column is first read into codes (`densities.margins`: atoms, categories, bins between rounded edges, missing). The
tree of column j then works on codes alone.

- **Candidates.** The `parents` columns before j with the largest mutual information with j, over coarse groups of
  codes.
- **Growth.** Best first. A split sends some groups of one candidate's codes to the left; its gain is that of the
  log-likelihood of j's codes in at most `targets` groups, and it must exceed `penalty` for each of those groups but one
  (1 is Akaike's criterion). Groups of numbers stay in order, with missing values last; categories are ordered by the
  mean group of j in the node. A leaf has at least max(`rows_a_leaf`, n / 100) rows, and there are at most `leaves`.
- **Bins** and segments have at least max(`rows_a_bin`, n / 100) rows. A likelihood-ratio attack on the density of 10
  000 rows, which knows another density of as many, has an AUC of .54-.56 then on three tables; with 50 rows it had
  .56-.60.
- **Shares of codes** are found from the root, which has those of the whole column, down to the leaves, and what a node
  cannot say by itself it takes from the node above. A number's code with an eighth of the node's rows, and at least
  `rows_a_bin`, has its own share. The others are cut into segments of at least `rows_a_bin` rows, and their shares are
  those nearest to the shares above (in Kullback-Leibler divergence) that have each segment's share and mean position:
  within a segment those above are tilted by an exponential. So no node knows its least or its largest value. Of a
  category a node counts the codes that at least `rows_a_bin` of its rows have; the others share what is left as they do
  above.
- **Missing values**: the leaf's own rate where it has `rows_a_bin` rows with and without a value, else that of all such
  leaves together.

What greedy splits cannot see is not drawn: an exclusive or of two columns of which neither tells anything by itself.

Trees grow on at most `most_rows` rows, drawn at random, and n is their number; leaves are counted over all. This is
CART synthesis (Reiter 2005, "Using CART to generate partially synthetic public use microdata"), with two deviations:
values in a leaf are never those of rows but come from its segments, and leaves are large.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float16, Float64, Int16
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import learnt, option
from vestige.core.rounding import ROWS_TOGETHER
from vestige.densities.base import Density
from vestige.densities.margins import (
    Codes,
    FloatArray,
    IntArray,
    Margin,
    group_codes,
    margin_of,
    rounded_rate,
    rows_of_all,
)

SPLIT_GROUPS = 32  # of a column's codes, missing among them, that a split can send to either side
HEAVY = 1 / 8  # of a node's rows: a code with so many has a share of its own
NEWTON, STEEPEST = 20, 60.0  # steps and bound of the tilt of a segment, in units of its mean distance
SCREEN_GROUPS, SCREEN_ROWS = 8, 10_000  # of the quick look at which columns depend on each other


@dataclass(frozen=True, eq=False)
class Splits:
    """Nodes of a tree, each before its children. One is a leaf where `column` is -1; then `left` is its number."""

    column: Int16[Tensor, " nodes"]  # that is asked
    goes_left: Bool[Tensor, "nodes groups"]  # which groups of its codes
    left: Int16[Tensor, " nodes"]
    right: Int16[Tensor, " nodes"]

    @property
    def leaves(self) -> int:
        """How many."""
        return int((self.column < 0).sum())


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """The splits, and what is drawn in each leaf."""

    splits: Splits
    missing: Float64[Tensor, " leaves"]  # rate
    shares: Float16[Tensor, "leaves codes"]  # of the column's codes among rows that are not missing

    def sound(self, codes: int, drawn: set[int]) -> bool:
        """Whether its parts, read from a file, go together, and it asks only columns that are drawn before it."""
        column, left, right = self.splits.column.numpy(), self.splits.left.numpy(), self.splits.right.numpy()
        nodes, leaves = len(column), self.splits.leaves
        own, is_leaf = np.arange(nodes), column < 0
        shapes = self.splits.goes_left.shape == (nodes, SPLIT_GROUPS) and len(left) == len(right) == nodes
        shapes &= self.missing.shape == (leaves,) and self.shares.shape == (leaves, codes) and leaves > 0
        ends = np.concatenate([left[~is_leaf], right[~is_leaf]])
        forward = bool((ends > np.tile(own[~is_leaf], 2)).all() and (ends < nodes).all())  # so that no walk is endless
        numbered = sorted(left[is_leaf].tolist()) == list(range(leaves)) and bool((left == right)[is_leaf].all())
        shares = self.shares.double()
        drawable = bool((shares >= 0).all()) and bool((shares.sum(1) > 0.5).all()) and bool(shares.isfinite().all())
        rates = bool(((self.missing >= 0) & (self.missing <= 1)).all())
        return shapes and forward and numbered and drawable and rates and set(column[~is_leaf].tolist()) <= drawn


def mutual_information(groups: list[IntArray]) -> FloatArray:
    """Of every pair of columns, in nats, less what independent columns would show."""
    sizes = [int(g.max()) + 1 for g in groups]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    n = len(groups[0])
    flat = np.zeros((n, starts[-1]), dtype=np.float32)
    for g, start in zip(groups, starts[:-1], strict=True):
        flat[np.arange(n), start + g] = 1
    joint = (flat.T @ flat).astype(np.float64) / n
    single = joint.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / np.outer(single, single)), 0.0)
    summed = np.add.reduceat(np.add.reduceat(terms, starts[:-1], axis=0), starts[:-1], axis=1)
    free = np.array(sizes) - 1
    return summed - np.outer(free, free) / (2 * n)


def entropy_sum(counts: NDArray[np.int64], table: FloatArray) -> FloatArray:
    """Log-likelihood of rows under their own shares, by the counts along the last axis."""
    return table[counts].sum(-1) - table[counts.sum(-1)]


@dataclass(frozen=True)
class Growth:
    """What bounds a tree."""

    leaf: int  # rows, at least
    leaves: int
    penalty: float


class _Node:
    def __init__(self, rows: IntArray, counts: IntArray) -> None:
        self.rows, self.counts = rows, counts
        self.split: tuple[int, NDArray[np.bool_]] | None = None
        self.children: tuple[int, int] = (-1, -1)


def best_split(
    counts: IntArray, unordered: NDArray[np.bool_], least: int, table: FloatArray
) -> tuple[float, int, NDArray[np.bool_]]:
    """Gain, candidate and the groups that go left, from counts by (candidate, group, target)."""
    order = np.broadcast_to(np.arange(counts.shape[1]), counts.shape[:2])
    if unordered.any():
        size = counts.sum(-1)
        mean = (counts @ np.arange(counts.shape[2])) / np.maximum(size, 1)
        order = np.where(unordered[:, None], np.argsort(mean, axis=1, kind="stable"), order)
        counts = np.take_along_axis(counts, order[:, :, None], axis=1)
    left = np.cumsum(counts, axis=1)
    whole = left[:, -1:]
    right = whole - left
    gain = entropy_sum(left, table) + entropy_sum(right, table) - entropy_sum(whole, table)
    small = (left.sum(-1) < least) | (right.sum(-1) < least)
    gain = np.where(small, -np.inf, gain)
    where = int(gain.argmax())
    candidate, place = divmod(where, counts.shape[1])
    goes = np.zeros(counts.shape[1], dtype=bool)
    goes[order[candidate, : place + 1]] = True
    return float(gain.flat[where]), candidate, goes


def grow(groups: IntArray, unordered: NDArray[np.bool_], target: IntArray, growth: Growth) -> list[_Node]:
    """Nodes of a tree for `target` on the columns of `groups` (rows, candidates), best splits first."""
    n, candidates = groups.shape
    targets = int(target.max()) + 1
    cells = SPLIT_GROUPS * targets
    offset = groups * targets + np.arange(candidates) * cells + target[:, None]
    spread = np.arange(n + 1, dtype=np.float64)
    table = np.where(spread > 0, spread * np.log(np.maximum(spread, 1)), 0.0)

    def count(rows: IntArray) -> IntArray:
        flat = np.bincount(offset[rows].ravel(), minlength=candidates * cells)
        return flat.reshape(candidates, SPLIT_GROUPS, targets)

    rows = np.arange(n)
    nodes = [_Node(rows, count(rows))]
    heap: list[tuple[float, int, int, NDArray[np.bool_]]] = []

    def offer(i: int) -> None:
        node = nodes[i]
        if len(node.rows) < 2 * growth.leaf:
            return
        gain, candidate, goes = best_split(node.counts, unordered, growth.leaf, table)
        present = int((node.counts[0].sum(0) > 0).sum())
        if gain > growth.penalty * max(present - 1, 1):
            heapq.heappush(heap, (-gain, i, candidate, goes))

    offer(0)
    leaves = 1
    while heap and leaves < growth.leaves:
        _, i, candidate, goes = heapq.heappop(heap)
        node = nodes[i]
        is_left = goes[groups[node.rows, candidate]]
        parts = (node.rows[is_left], node.rows[~is_left])
        small = count(min(parts, key=len))
        large = node.counts - small
        counted = (small, large) if len(parts[0]) <= len(parts[1]) else (large, small)
        node.split, node.children = (candidate, goes), (len(nodes), len(nodes) + 1)
        nodes += [_Node(*made) for made in zip(parts, counted, strict=True)]
        offer(node.children[0])
        offer(node.children[1])
        leaves += 1
    return nodes


def find_leaf(splits: Splits, groups: IntArray) -> IntArray:
    """The leaf of each row, by the groups of all columns (rows, columns)."""
    column, goes_left = splits.column.numpy(), splits.goes_left.numpy()
    left, right = splits.left.numpy().astype(np.int64), splits.right.numpy().astype(np.int64)
    node, rows = np.zeros(len(groups), dtype=np.int64), np.arange(len(groups) if column[0] >= 0 else 0)
    while len(rows):
        at = node[rows]
        goes = goes_left[at, groups[rows, column[at]]]
        node[rows] = np.where(goes, left[at], right[at])
        rows = rows[column[node[rows]] >= 0]
    return left[node]


def cut_codes(counts: IntArray, least: int, most: int) -> IntArray:
    """The segment of each code: neighbours with at least `least` rows together, at most `most` of about equal size."""
    cumulative = np.cumsum(counts)
    n = int(cumulative[-1])
    many = min(most, n // least)
    ends, before = [], 0
    for i in range(1, many):
        code = int(np.searchsorted(cumulative, i * n / many))
        if cumulative[code] - before >= least and n - cumulative[code] >= least:
            ends.append(code)
            before = int(cumulative[code])
    return np.searchsorted(np.array(ends, dtype=np.int64), np.arange(len(counts)))


def number_shares(counts: IntArray, before: FloatArray, centre: FloatArray, least: int, most: int) -> FloatArray:
    """Shares of codes in a node, from its counts and the shares `before` of the node above.

    A code that has an eighth of the rows, and enough, has its own share: such are atoms. The others have together what
    is left, rounded where that is of few rows.
    """
    n = int(counts.sum())
    if n < least:
        return before
    heavy = counts >= max(least, HEAVY * n)
    rest = n - int(counts[heavy].sum())
    above = np.where(heavy, 0.0, before)
    rate = rounded_rate(rest, n, least) if above.sum() > 0 else 0.0
    if rest >= least and rate > 0:
        above = tilted(np.where(heavy, 0, counts), above, centre, least, most)
    own = np.where(heavy, counts, 0.0)
    share = (1 - rate) * own / max(own.sum(), 1.0) + rate * above / max(above.sum(), 1e-300)
    return share / share.sum()


def tilted(counts: IntArray, before: FloatArray, centre: FloatArray, least: int, most: int) -> FloatArray:
    """Of all shares that have the counts' segments' shares and mean positions, those nearest to `before`.

    Nearest in Kullback-Leibler divergence, so within each segment before_c exp(t centre_c) up to a factor.
    """
    segment = cut_codes(counts, least, most)
    many = int(segment[-1]) + 1
    held = np.bincount(segment, counts, many)
    mean = np.bincount(segment, counts * centre, many) / held
    apart = centre - mean[segment]
    mass = np.maximum(np.bincount(segment, before, many), 1e-300)
    apart = apart / np.maximum(np.bincount(segment, before * np.abs(apart), many) / mass, 1e-12)[segment]
    tilt, starts = np.zeros(many), np.searchsorted(segment, np.arange(many))
    for _ in range(NEWTON):
        exponent = np.where(before > 0, tilt[segment] * apart, -np.inf)
        top = np.maximum.reduceat(exponent, starts)[segment]
        weight = before * np.exp(exponent - np.where(np.isfinite(top), top, 0.0))
        whole = np.maximum(np.bincount(segment, weight, many), 1e-300)
        first = np.bincount(segment, weight * apart, many) / whole
        if np.abs(first).max() < 1e-3:
            break
        second = np.bincount(segment, weight * apart * apart, many) / whole - first * first
        tilt = np.clip(tilt - np.clip(first / np.maximum(second, 1e-9), -2.0, 2.0), -STEEPEST, STEEPEST)
    return weight / whole[segment] * held[segment] / counts.sum()


def category_shares(counts: IntArray, before: FloatArray, least: int) -> FloatArray:
    """Shares of codes in a node: those of at least `least` rows, and the rest as the node above has them."""
    kept = counts >= least
    rest = int(counts[~kept].sum())
    if 2 * rest < least:  # so few count as none
        rest = 0
    if kept.any() and 0 < rest < least:  # the smallest of the others joins them
        kept[np.where(kept, counts, counts.max() + 1).argmin()] = False
        rest = int(counts[~kept].sum())
    if not kept.any():
        return before
    share = np.where(kept, counts, 0.0)
    if rest and before[~kept].sum() > 0:
        share[~kept] = rest * before[~kept] / before[~kept].sum()
    return share / share.sum()


def leaf_shares(splits: Splits, leaf: IntArray, code: IntArray, codes: Codes, least: int, most: int) -> FloatArray:
    """Shares of codes in each leaf, from the root down."""
    column, left, right = (part.numpy() for part in (splits.column, splits.left, splits.right))
    leaves, many = splits.leaves, len(codes)
    by_leaf = np.bincount(leaf * many + code, minlength=leaves * many).reshape(leaves, many)
    counts, shares = np.zeros((len(column), many), dtype=np.int64), np.zeros((len(column), many))
    for i in reversed(range(len(column))):  # children stand after their parents
        counts[i] = by_leaf[left[i]] if column[i] < 0 else counts[left[i]] + counts[right[i]]
    shares[0] = codes.share
    for parent in np.flatnonzero(column >= 0):
        for child in (left[parent], right[parent]):
            shares[child] = (
                category_shares(counts[child], shares[parent], least)
                if codes.kind == "category"
                else number_shares(counts[child], shares[parent], codes.centre, least, most)
            )
    found = np.empty((leaves, many))
    found[left[column < 0]] = shares[column < 0]
    return found


def missing_rates(leaf: IntArray, leaves: int, missing: NDArray[np.bool_], whole: float, least: int) -> FloatArray:
    """Of each leaf: its own where enough rows have a value and enough have none, else that of all others together."""
    rows = np.bincount(leaf, minlength=leaves)
    without = np.bincount(leaf, weights=missing, minlength=leaves).astype(np.int64)
    if not missing.any():
        return np.zeros(leaves)
    own = np.minimum(without, rows - without) >= least
    rates = np.where(own, without / np.maximum(rows, 1), whole)
    if own.any() and not own.all():
        rates[~own] = rounded_rate(int(without[~own].sum()), int(rows[~own].sum()), least)
    return rates


@dataclass(eq=False)
class SequentialTrees(Density):
    """Each column from a leaf of a tree on the columns before."""

    name: ClassVar[str] = "trees"
    joins: ClassVar[bool] = True
    keeps: ClassVar[str] = (
        "for each column a tree with split points on a rounded grid, and in each leaf shares of bins, atoms and "
        "categories of at least 50 rows"
    )

    rows_a_leaf: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)  # at least, and a hundredth of all rows
    leaves: int = option(50, low=1)  # at most
    rows_a_bin: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)  # at least, and a hundredth of all rows
    segments: int = option(16, low=2)  # of a leaf, at most
    parents: int = option(12, low=1)
    targets: int = option(16, low=2)
    penalty: float = option(1.0, low=0, below=math.inf)
    order: str = option("dependence", among=("given", "dependence"))
    most_rows: int = option(20_000, low=ROWS_TOGETHER)

    margins_: tuple[Margin, ...] = learnt(())
    trees_: tuple[ColumnTree, ...] = learnt(())  # of the columns in the order in which they are drawn
    order_: tuple[int, ...] = learnt(())

    def _fit(self, cells: Float64[Tensor, "n c"], kinds: tuple[str, ...], seed: int) -> dict[str, Any]:
        table = cells.numpy()
        n, columns = table.shape
        least = rows_of_all(self.rows_a_bin, n)
        self.margins_ = tuple(margin_of(table[:, j], kinds[j], least) for j in range(columns))
        coded = [Codes(margin, kind) for margin, kind in zip(self.margins_, kinds, strict=True)]
        code = np.stack([codes.read(table[:, j]) for j, codes in enumerate(coded)], 1)
        groups = np.stack([groups_of(codes, SPLIT_GROUPS)[code[:, j]] for j, codes in enumerate(coded)], 1)
        few = rng.fork_numpy(seed, "rows").permutation(n)[: self.most_rows] if n > self.most_rows else np.arange(n)
        seen = few[:SCREEN_ROWS]
        dependence = mutual_information([groups_of(c, SCREEN_GROUPS)[code[seen, j]] for j, c in enumerate(coded)])
        self.order_ = ordered(dependence) if self.order == "dependence" else tuple(range(columns))
        growth = Growth(rows_of_all(self.rows_a_leaf, len(few)), self.leaves, self.penalty)
        unordered = np.array([kind == "category" for kind in kinds])
        trees = []
        for place, j in enumerate(self.order_):
            before = np.array(self.order_[:place], dtype=np.int64)
            candidates = before[np.argsort(-dependence[j, before], kind="stable")[: self.parents]]
            nodes: list[_Node] = []
            if len(candidates):
                target = np.unique(groups_of(coded[j], self.targets)[code[few, j]], return_inverse=True)[1]
                nodes = grow(groups[np.ix_(few, candidates)], unordered[candidates], target, growth)
            trees.append(self._tree(structure(nodes, candidates), groups, code[:, j], coded[j]))
        self.trees_ = tuple(trees)
        return {"leaves": [len(tree.missing) for tree in trees], "order": list(self.order_)}

    def _tree(self, splits: Splits, groups: IntArray, code: IntArray, codes: Codes) -> ColumnTree:
        """With leaves counted over all rows."""
        leaf = find_leaf(splits, groups)
        missing = code == len(codes)
        least = rows_of_all(self.rows_a_bin, len(code))
        shares = leaf_shares(splits, leaf[~missing], code[~missing], codes, least, self.segments)
        rates = missing_rates(leaf, splits.leaves, missing, codes.margin.missing, least)
        return ColumnTree(splits, torch.from_numpy(rates), torch.from_numpy(shares).half())

    def _sound(self, columns: int) -> bool:
        if sorted(self.order_) != list(range(columns)) or not len(self.margins_) == len(self.trees_) == columns:
            return False
        drawn: set[int] = set()
        for j, tree in zip(self.order_, self.trees_, strict=True):
            if not (self.margins_[j].sound() and tree.sound(len(self.margins_[j]), drawn)):
                return False
            drawn.add(j)
        return True

    def _draw(self, n: int, seed: int) -> Float64[Tensor, "n c"]:
        noise = rng.fork_numpy(seed, "draw")
        drawn, groups = np.empty((n, len(self._kinds))), np.zeros((n, len(self._kinds)), dtype=np.int64)
        for j, tree in zip(self.order_, self.trees_, strict=True):
            codes = Codes(self.margins_[j], self._kinds[j])
            code = draw_codes(tree, find_leaf(tree.splits, groups), noise)
            drawn[:, j] = codes.values(code, noise.random(n))
            groups[:, j] = groups_of(codes, SPLIT_GROUPS)[code]
        return torch.from_numpy(drawn)

    def _log_density(self, cells: Float64[Tensor, "n c"]) -> Float64[Tensor, " n"]:
        table = cells.numpy()
        coded = [Codes(margin, kind) for margin, kind in zip(self.margins_, self._kinds, strict=True)]
        code = np.stack([codes.read(table[:, j]) for j, codes in enumerate(coded)], 1)
        groups = np.stack([groups_of(codes, SPLIT_GROUPS)[code[:, j]] for j, codes in enumerate(coded)], 1)
        total = np.zeros(len(table))
        for j, tree in zip(self.order_, self.trees_, strict=True):
            leaf, missing = find_leaf(tree.splits, groups), code[:, j] == len(coded[j])
            shares, rate = tree.shares.double().numpy(), tree.missing.numpy()[leaf]
            own = (shares / shares.sum(1, keepdims=True))[leaf, np.where(missing, 0, code[:, j])]
            with np.errstate(divide="ignore"):
                chance = np.log(np.where(missing, rate, (1 - rate) * own))
            total += chance + coded[j].log_within(code[:, j], table[:, j])
        return torch.from_numpy(total)


def draw_codes(tree: ColumnTree, leaf: IntArray, noise: np.random.Generator) -> IntArray:
    """A code of each leaf by its share; the number of codes where it is missing."""
    shares = tree.shares.double().numpy()
    leaves, many = shares.shape
    ends = np.cumsum(shares, 1)
    ends = ends / ends[:, -1:] + np.arange(leaves)[:, None]
    code = np.searchsorted(ends.ravel(), leaf + noise.random(len(leaf)), side="right") - leaf * many
    missing = noise.random(len(leaf)) < tree.missing.numpy()[leaf]
    return np.where(missing, many, np.clip(code, 0, many - 1))


def groups_of(codes: Codes, most: int) -> IntArray:
    """The group of each code, and at the end that of missing values."""
    own = group_codes(codes.share, most - 1, codes.kind != "category")
    return np.append(own, own.max() + 1)


def ordered(dependence: FloatArray) -> tuple[int, ...]:
    """Columns by how much all others tell about them, the most first."""
    whole = dependence - np.diag(dependence.diagonal())
    return tuple(int(j) for j in np.argsort(-whole.sum(0), kind="stable"))


def structure(nodes: list[_Node], candidates: IntArray) -> Splits:
    """The nodes alone; without any, one leaf."""
    many = max(len(nodes), 1)
    column, left, right = (np.full(many, start, dtype=np.int16) for start in (-1, 0, 0))
    goes = np.zeros((many, SPLIT_GROUPS), dtype=bool)
    leaf = 0
    for i, node in enumerate(nodes):
        if node.split is None:
            left[i] = right[i] = leaf
            leaf += 1
        else:
            column[i], goes[i] = candidates[node.split[0]], node.split[1]
            left[i], right[i] = node.children
    return Splits(*(torch.from_numpy(part) for part in (column, goes, left, right)))
