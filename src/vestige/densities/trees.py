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
- **A leaf of a number** has segments of at least `rows_a_bin` of its rows, cut between codes. Positions (see
  `densities.margins`) within a segment have a linear density with the mean of the rows there; the outermost segments
  end where mean and mean square of the distance from their inner edge ask for it. So a leaf knows no least and no
  largest value. The shape within a segment is that of the whole column, for positions are shares of all rows.
- **A leaf of a category** has the share of each code that at least `rows_a_bin` of its rows have; the others share what
  is left as they do in the whole column.
- **Missing values**: the leaf's own rate where it has `rows_a_bin` rows with and without a value, else that of all such
  leaves together.

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
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import learnt, option
from vestige.densities.base import ROWS_TOGETHER, Density
from vestige.densities.margins import Codes, FloatArray, IntArray, Margin, group_codes, margin_of, rounded_rate

SPLIT_GROUPS = 32  # of a column's codes, missing among them, that a split can send to either side
SCREEN_GROUPS, SCREEN_ROWS = 8, 10_000  # of the quick look at which columns depend on each other


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """Nodes in the order in which they were made, the root first, and what is drawn in each leaf.

    A node is a leaf where `column` is -1; then `left` is the number of the leaf.
    """

    column: Int64[Tensor, " nodes"]  # that is asked
    goes_left: Bool[Tensor, "nodes groups"]  # which groups of its codes
    left: Int64[Tensor, " nodes"]
    right: Int64[Tensor, " nodes"]
    missing: Float64[Tensor, " leaves"]
    start: Int64[Tensor, " more_leaves"]  # the first segment of each leaf, and the number of segments
    share: Float64[Tensor, " segments"]  # of the leaf's rows that have a value
    low: Float64[Tensor, " segments"]  # position, or code of a category
    high: Float64[Tensor, " segments"]
    slope: Float64[Tensor, " segments"]


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


def segment_shape(beyond: FloatArray) -> tuple[float, float]:
    """Length and slope of the linear density from 0 that has the mean and mean square of `beyond`.

    With density (1 + a (2 t - 1)) / L at t = x / L: mean L (1/2 + a/6), mean square L^2 (1/3 + a/6).
    """
    mean, square = float(beyond.mean()), float(np.square(beyond).mean())
    if mean <= 0:
        return 0.0, 0.0
    ratio = square / mean**2  # 1.125 at a = 1, 4/3 at 0, 1.5 at -1
    # ratio (1/2 + a/6)^2 = 1/3 + a/6
    a2, a1, a0 = ratio / 36, (ratio - 1) / 6, ratio / 4 - 1 / 3
    inside = a1 * a1 - 4 * a2 * a0
    slope = -1.0 if inside < 0 else (-a1 + math.sqrt(inside)) / (2 * a2)
    slope = min(max(slope, -1.0), 1.0)
    return mean / (0.5 + slope / 6), slope


def from_linear(r: FloatArray, slope: FloatArray) -> FloatArray:
    """The quantile of the density 1 + a (2 t - 1) on [0, 1] at each share `r`."""
    b = 1 - slope
    return np.where(r > 0, 2 * r / np.maximum(b + np.sqrt(b * b + 4 * slope * r), 1e-300), 0.0)


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


def find_leaf(tree: ColumnTree, groups: IntArray) -> IntArray:
    """The leaf of each row, by the groups of all columns (rows, columns)."""
    column, goes_left = tree.column.numpy(), tree.goes_left.numpy()
    left, right = tree.left.numpy(), tree.right.numpy()
    node = np.zeros(len(groups), dtype=np.int64)
    if column[0] < 0:
        return np.full(len(groups), left[0])
    rows = np.arange(len(groups))
    while len(rows):
        at = node[rows]
        asked = column[at]
        goes = goes_left[at, groups[rows, asked]]
        node[rows] = np.where(goes, left[at], right[at])
        rows = rows[column[node[rows]] >= 0]
    return left[node]


def cut_leaf(cumulative: IntArray, rows_a_bin: int, most: int) -> list[int]:
    """Codes after which a leaf's segments end, by the cumulated rows of codes; the last one included."""
    n = int(cumulative[-1])
    many = min(most, n // rows_a_bin)
    ends: list[int] = []
    before = 0
    for i in range(1, many):
        code = int(np.searchsorted(cumulative, i * n / many))
        if cumulative[code] - before >= rows_a_bin and n - cumulative[code] >= rows_a_bin:
            ends.append(code)
            before = int(cumulative[code])
    return [*ends, len(cumulative) - 1]


def number_segments(
    leaf: IntArray, leaves: int, code: IntArray, position: FloatArray, codes: Codes, rows_a_bin: int, most: int
) -> list[list[tuple[float, float, float, float]]]:
    """(share, low, high, slope) of the segments of each leaf, by rows that have a value."""
    order = np.argsort(leaf * (len(codes) + 1) + code, kind="stable")
    leaf, code, position = leaf[order], code[order], position[order]
    starts = np.searchsorted(leaf, np.arange(leaves + 1))
    found = []
    for i in range(leaves):
        own, where = code[starts[i] : starts[i + 1]], position[starts[i] : starts[i + 1]]
        if len(own) < rows_a_bin or leaves == 1:
            found.append(
                [
                    (float(s), float(a), float(b), 0.0)
                    for s, a, b in zip(codes.share, codes.lower, codes.upper, strict=True)
                ]
            )
            continue
        cumulative = np.cumsum(np.bincount(own, minlength=len(codes)))
        ends = cut_leaf(cumulative, rows_a_bin, most)
        begin, segments = 0, []
        for k, end in enumerate(ends):
            rows = slice(cumulative[begin - 1] if begin else 0, cumulative[end])
            here, low, high = where[rows], float(codes.lower[begin]), float(codes.upper[end])
            first, last = k == 0, k == len(ends) - 1
            if first and last:
                low, high, slope = around(here)
            elif first or last:
                length, slope = segment_shape(high - here if first else here - low)
                length = min(length, high - low)
                low, high, slope = (high - length, high, -slope) if first else (low, low + length, slope)
            else:
                slope = min(max(6 * ((float(here.mean()) - low) / (high - low) - 0.5), -1.0), 1.0)
            segments.append((len(here) / len(own), low, high, slope))
            begin = end + 1
        found.append(segments)
    return found


def around(position: FloatArray) -> tuple[float, float, float]:
    """Ends and slope of a uniform density with mean and deviation of `position`, within [0, 1]."""
    mean, half = float(position.mean()), math.sqrt(3) * float(position.std())
    return max(mean - half, 0.0), min(mean + half, 1.0), 0.0


def category_segments(
    leaf: IntArray, leaves: int, code: IntArray, codes: Codes, rows_a_bin: int
) -> list[list[tuple[float, float, float, float]]]:
    """(share, code, code, 0) of each leaf's categories."""
    counts = np.bincount(leaf * len(codes) + code, minlength=leaves * len(codes)).reshape(leaves, len(codes))
    found = []
    for own in counts:
        kept = own >= rows_a_bin
        rest = int(own[~kept].sum())
        if kept.any() and 0 < rest < rows_a_bin:  # the smallest of the others joins them
            kept[np.where(kept, own, own.max() + 1).argmin()] = False
            rest = int(own[~kept].sum())
        share = np.where(kept, own, 0.0)
        if not kept.all():
            left = codes.share[~kept]
            share[~kept] = (rest or 1.0 * (own.sum() == 0)) * left / left.sum()
        share = share / share.sum()
        found.append([(float(s), float(c), float(c), 0.0) for c, s in enumerate(share) if s > 0])
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
    keeps: ClassVar[str] = (
        "for each column a tree with split points on a rounded grid, and in each leaf shares of bins, atoms and "
        "categories of at least 50 rows"
    )

    rows_a_leaf: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)  # at least, and a hundredth of all rows
    leaves: int = option(50, low=1)  # at most
    rows_a_bin: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)
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
        self.margins_ = tuple(margin_of(table[:, j], kinds[j], self.rows_a_bin) for j in range(columns))
        coded = [Codes(margin) for margin in self.margins_]
        code, position = np.empty((n, columns), dtype=np.int64), np.zeros((n, columns))
        for j, codes in enumerate(coded):
            if kinds[j] == "category":
                code[:, j] = codes.read_categories(table[:, j])
            else:
                code[:, j], position[:, j] = codes.read(table[:, j])
            if codes.margin.missing == 1:  # too few rows have a value for anything to be said of it
                code[:, j] = len(codes)
        split_groups = [groups_of(c, SPLIT_GROUPS, k) for c, k in zip(coded, kinds, strict=True)]
        groups = np.stack([g[code[:, j]] for j, g in enumerate(split_groups)], 1)
        few = rng.fork_numpy(seed, "rows").permutation(n)[: self.most_rows] if n > self.most_rows else np.arange(n)
        seen = few[:SCREEN_ROWS]
        coarse = [
            groups_of(c, SCREEN_GROUPS, k)[code[seen, j]] for j, (c, k) in enumerate(zip(coded, kinds, strict=True))
        ]
        dependence = mutual_information(coarse)
        self.order_ = ordered(dependence) if self.order == "dependence" else tuple(range(columns))
        growth = Growth(max(self.rows_a_leaf, math.ceil(len(few) / 100)), self.leaves, self.penalty)
        unordered = np.array([kind == "category" for kind in kinds])
        trees = []
        for place, j in enumerate(self.order_):
            before = np.array(self.order_[:place], dtype=np.int64)
            candidates = before[np.argsort(-dependence[j, before], kind="stable")[: self.parents]]
            nodes: list[_Node] = []
            if len(candidates):
                target = np.unique(groups_of(coded[j], self.targets, kinds[j])[code[few, j]], return_inverse=True)[1]
                nodes = grow(groups[np.ix_(few, candidates)], unordered[candidates], target, growth)
            trees.append(self._tree(nodes, candidates, groups, code[:, j], position[:, j], coded[j], kinds[j]))
        self.trees_ = tuple(trees)
        return {"leaves": [len(tree.missing) for tree in trees], "order": list(self.order_)}

    def _tree(
        self,
        nodes: list[_Node],
        candidates: IntArray,
        groups: IntArray,
        code: IntArray,
        position: FloatArray,
        codes: Codes,
        kind: str,
    ) -> ColumnTree:
        """The stored form, with leaves counted over all rows."""
        shape = structure(nodes, candidates)
        leaf = find_leaf(shape, groups)
        leaves = int((shape.column < 0).sum())
        missing = code == len(codes)
        known = ~missing
        if kind == "category":
            segments = category_segments(leaf[known], leaves, code[known], codes, self.rows_a_bin)
        else:
            segments = number_segments(
                leaf[known], leaves, code[known], position[known], codes, self.rows_a_bin, self.segments
            )
        rates = missing_rates(leaf, leaves, missing, codes.margin.missing, self.rows_a_bin)
        flat = np.array([segment for own in segments for segment in own])
        start = np.concatenate([[0], np.cumsum([len(own) for own in segments])])
        share, low, high, slope = (torch.from_numpy(np.ascontiguousarray(part)) for part in flat.T)
        return ColumnTree(
            shape.column,
            shape.goes_left,
            shape.left,
            shape.right,
            torch.from_numpy(rates),
            torch.from_numpy(start),
            share,
            low,
            high,
            slope,
        )

    def _draw(self, n: int, seed: int) -> Float64[Tensor, "n c"]:
        noise = rng.fork_numpy(seed, "draw")
        columns = len(self.kinds_)
        drawn, groups = np.empty((n, columns)), np.zeros((n, columns), dtype=np.int64)
        for j, tree in zip(self.order_, self.trees_, strict=True):
            codes = Codes(self.margins_[j])
            leaf = find_leaf(tree, groups)
            segment, within = draw_segment(tree, leaf, noise)
            if self.kinds_[j] == "category":
                code = tree.low.numpy()[segment].astype(np.int64)
                value = codes.low[code]
            else:
                low, high = tree.low.numpy()[segment], tree.high.numpy()[segment]
                code, value = codes.values(low + (high - low) * within)
            missing = noise.random(n) < tree.missing.numpy()[leaf]
            drawn[:, j] = np.where(missing, np.nan, value)
            groups[:, j] = groups_of(codes, SPLIT_GROUPS, self.kinds_[j])[np.where(missing, len(codes), code)]
        return torch.from_numpy(drawn)


def groups_of(codes: Codes, most: int, kind: str) -> IntArray:
    """The group of each code, and at the end that of missing values."""
    own = group_codes(codes.share, most - 1, kind != "category")
    return np.append(own, own.max() + 1)


def ordered(dependence: FloatArray) -> tuple[int, ...]:
    """Columns by how much all others tell about them, the most first."""
    whole = dependence - np.diag(dependence.diagonal())
    return tuple(int(j) for j in np.argsort(-whole.sum(0), kind="stable"))


def structure(nodes: list[_Node], candidates: IntArray) -> ColumnTree:
    """The nodes alone; without any, one leaf."""
    many = max(len(nodes), 1)
    column, left, right = np.full(many, -1), np.zeros(many, dtype=np.int64), np.zeros(many, dtype=np.int64)
    goes = np.zeros((many, SPLIT_GROUPS), dtype=bool)
    leaf = 0
    for i, node in enumerate(nodes):
        if node.split is None:
            left[i] = right[i] = leaf
            leaf += 1
        else:
            column[i], goes[i] = candidates[node.split[0]], node.split[1]
            left[i], right[i] = node.children
    nothing = torch.zeros(0, dtype=torch.float64)
    return ColumnTree(
        torch.from_numpy(column),
        torch.from_numpy(goes),
        torch.from_numpy(left),
        torch.from_numpy(right),
        nothing,
        torch.zeros(1, dtype=torch.int64),
        nothing,
        nothing,
        nothing,
        nothing,
    )


def draw_segment(tree: ColumnTree, leaf: IntArray, noise: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """A segment of each leaf by its share, and where in it."""
    share, start = tree.share.numpy(), tree.start.numpy()
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    cumulative = np.cumsum(share)
    before = np.concatenate([[0.0], cumulative])[start[:-1]]
    ends = owner + np.minimum(cumulative - before[owner], 1.0)
    ends[start[1:] - 1] = owner[start[1:] - 1] + 1.0
    r = noise.random(len(leaf))
    segment = np.minimum(np.searchsorted(ends, leaf + r, side="right"), start[leaf + 1] - 1)
    return segment, from_linear(noise.random(len(leaf)), tree.slope.numpy()[segment])
