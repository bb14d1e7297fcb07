"""The functions whose means are kept of deleted rows, fitted on a sample and frozen.

Five families, each a matrix of functions f(row):

- "columns": for each column the indicator of each code (bin, atom, category, missing), and for numbers the rank score,
  its square, and the standard score clipped at four scales with its square;
- "pairs": products of scores of two columns. A score is the rank score of a number (and, with few columns, its
  square), or the indicator of one of a category's commonest codes or of missing cells, standardised;
- "triples": products of scores of three columns, for what no pair shows, such as the parity of three signs. The score
  of a number is here sign(s) |s|^(1/2) of its rank score s, which lies between a rank and a sign (its correlation with
  either is above .94), since a product of three loses the cube of what one score loses;
- "leaves": indicators of leaves of a forest that tells rows from rows whose columns were shuffled apart;
- "random": cos(w.s + b) of the normal scores s of all columns at once, w of three widths around the median distance.

Pairs and triples are all there are, up to a cap; beyond it half are those that depend most on each other in the sample,
half are drawn. These and the leaves are *learnt*: they were chosen because of the sample, and their means over it are
not those of fresh rows. Their moments are therefore taken of other rows (`learnt`). Edges of bins are quantiles of the
sample, too, but a share below an estimated quantile varies by tau (1 - tau) (1/n + 1/m) like one below a fixed edge, so
"columns" and "random" are taken of all rows. Tests: `test_level_*`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri
from torch import Tensor

from vestige.core import rng
from vestige.core.rounding import rounded
from vestige.vestiges.drift_test import trees
from vestige.vestiges.drift_test.columns import MIN_ROWS, MIN_SHARE, CodedColumn
from vestige.vestiges.rare import masks_of

FAMILIES = ("columns", "pairs", "triples", "leaves", "random")
LEARNT = ("pairs", "triples", "leaves")
FEW_COLUMNS = 16
BINS_FEW, BINS_MANY = 16, 8  # of a number, with few columns and with many
SQUARES_UP_TO = 10  # columns, up to which squares of rank scores enter pairs
MOST_PAIRS, MOST_TRIPLES = 700, 800
CODES_IN_PRODUCTS = 3  # of a category
COMMON = 0.05  # share of rows that an indicator in a product has, and leaves to others
TREES, LEAVES, DEPTH = 20, 16, 6
LEARN_ROWS = 300  # below which nothing is learnt
FREQUENCIES = 256
RANK, SQUARE, ROOT = -1, -2, -3  # what a product takes of a rank score: itself, its square, its signed root
SHAPES = ("mean rank", "spread of ranks", "mean", "spread")
WIDTHS = (0.5, 1.0, 2.0)  # of random features, in median distances
SCREENED_SCORES = 64  # scores that screening looks at
PRODUCT_ROWS, MOST_MASKED = 5000, 200  # that `rests_on_few` looks at, and products at a time


@dataclass(frozen=True)
class Dictionary:
    """The functions, frozen: `evaluate(cells)` gives a row of values each."""

    kinds: tuple[str, ...]
    columns: tuple[CodedColumn, ...]
    indicators: Int[Tensor, "2 i"]  # column and code of each indicator
    unit_column: Int[Tensor, " u"]  # scores of which products are made: their column,
    unit_code: Int[Tensor, " u"]  # and a code, or the shape of a rank score
    unit_mean: Float[Tensor, " u"]
    unit_scale: Float[Tensor, " u"]
    pairs: Int[Tensor, "2 p"]
    triples: Int[Tensor, "3 t"]
    forest: trees.Trees
    frequencies: Float[Tensor, "r c"]
    phases: Float[Tensor, " r"]
    normal: tuple[Float[Tensor, " k"], ...]  # the normal score of each code, a column
    scored: Int[Tensor, " s"]  # the columns that have a rank score

    @classmethod
    def fit(cls, cells: Float[Tensor, "n c"], kinds: Sequence[str], *, seed: int = 0, learn: bool = True) -> Dictionary:
        """Functions for rows like `cells`; with `learn`, some that are chosen because of them."""
        n, c = cells.shape
        learn = learn and n >= LEARN_ROWS
        bins = BINS_FEW if c <= FEW_COLUMNS else BINS_MANY
        columns = tuple(CodedColumn.fit(cells[:, j].contiguous(), kind, bins) for j, kind in enumerate(kinds))
        indicators = [(j, k) for j, column in enumerate(columns) for k in _tested(column, n)]
        normal = tuple(_normal_scores(column) for column in columns)
        scored = [j for j, column in enumerate(columns) if bool(column.linear.any())]
        units = _units(columns, n)
        of_triples = _triple_units(columns, n)
        both = units + of_triples
        unit_column, unit_code = torch.tensor([u[0] for u in both]), torch.tensor([u[1] for u in both])
        blank = cls(
            tuple(kinds), columns, _index(indicators, 2), unit_column.long(), unit_code.long(),
            cells.new_zeros(len(both)), cells.new_ones(len(both)), _index([], 2), _index([], 3), trees.none(),
            torch.zeros(0, c), torch.zeros(0), normal, torch.tensor(scored, dtype=torch.int64),
        )  # fmt: skip
        codes = blank._codes(cells)
        raw = blank._units(codes)
        scale = _deviation(raw)
        mean, scale = rounded(raw.mean(1), scale / n**0.5), rounded(scale, scale / (2 * n) ** 0.5)
        values = (raw - mean[:, None]) / scale[:, None]
        pairs = _pairs(values[: len(units)], [u[0] for u in units], learn, seed)
        triples = _triples(values[len(units) :], learn, seed) + len(units)
        scores = blank._normal(codes)
        frequencies, phases = _random_features(scores, seed)
        forest = trees.none()
        if learn and c > 1 and len(units) > 1:
            forest = trees.grow(
                values[: len(units)], unit_column[: len(units)], trees=TREES, leaves=LEAVES, depth=DEPTH, seed=seed
            )
        return cls(
            tuple(kinds), columns, blank.indicators, blank.unit_column, blank.unit_code, mean, scale, pairs, triples,
            forest, frequencies, phases, normal, blank.scored,
        )  # fmt: skip

    @property
    def sizes(self) -> dict[str, int]:
        """How many functions each family has."""
        counts = (
            self.indicators.shape[1] + 4 * len(self.scored),
            self.pairs.shape[1],
            self.triples.shape[1],
            len(self.forest.tree),
            len(self.phases),
        )
        return dict(zip(FAMILIES, counts, strict=True))

    @property
    def spans(self) -> dict[str, slice]:
        """Where the functions of each family stand."""
        ends = list(itertools.accumulate(self.sizes.values(), initial=0))
        return {name: slice(a, b) for name, a, b in zip(FAMILIES, ends[:-1], ends[1:], strict=True)}

    @property
    def learnt(self) -> slice:
        """Functions whose moments must come of rows that the dictionary was not fitted on."""
        spans = self.spans
        return slice(spans[LEARNT[0]].start, spans[LEARNT[-1]].stop)

    @property
    def owner(self) -> Int[Tensor, " f"]:
        """The column of each function of the family "columns"."""
        return torch.cat([self.indicators[0], self.scored.repeat(4)])

    def what(self, place: int) -> str:
        """What the function at `place` of the family "columns" measures."""
        if place >= self.indicators.shape[1]:
            return SHAPES[(place - self.indicators.shape[1]) // len(self.scored)]
        column, code = self.columns[int(self.indicators[0, place])], int(self.indicators[1, place])
        return column.name_of(code)

    def evaluate(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "f n"]:
        """The value of each function at each row."""
        return torch.cat(self.parts(cells))

    def parts(self, cells: Float[Tensor, "n c"]) -> list[Float[Tensor, "k n"]]:
        """The same in pieces, in their order."""
        codes = self._codes(cells)
        units = self._standard_units(codes)
        rank = self._linear(codes)[self.scored]
        each = [self.columns[j].standard(cells[:, j]) for j in self.scored.tolist()]
        standard = torch.stack(each) if each else rank
        return [
            (codes[self.indicators[0]] == self.indicators[1][:, None]).to(torch.float64),
            rank, rank.square(), standard, standard.square(),
            units[self.pairs[0]] * units[self.pairs[1]],
            units[self.triples[0]] * units[self.triples[1]] * units[self.triples[2]],
            self.forest.leaves(units),
            torch.cos(self.frequencies.double() @ self._normal(codes) + self.phases.double()[:, None]),
        ]  # fmt: skip

    def counted(self) -> Bool[Tensor, " f"]:
        """Which functions are indicators, whose sums are numbers of rows."""
        found = torch.zeros(sum(self.sizes.values()), dtype=torch.bool)
        found[: self.indicators.shape[1]] = True
        found[self.spans["leaves"]] = True
        return found

    def rests_on_few(self, cells: Float[Tensor, "n c"]) -> Bool[Tensor, " f"]:
        """Products whose scores leave their usual values together in fewer than MIN_ROWS of the rows.

        Of an indicator both values count as usual, of another score one that more than half of the rows have: about
        these a sum of products is a sum over the rows that leave all of them.
        """
        raw = self._units(self._codes(cells[:PRODUCT_ROWS]))
        masks, owner, _ = masks_of(raw.mT)
        away = torch.cat([masks.mT.float(), torch.ones(1, raw.shape[1])])
        own = [[k for k, one in enumerate(owner) if one == u] or [len(owner)] for u in range(len(raw))]
        either = torch.tensor([[ids[0], ids[-1]] for ids in own]).reshape(-1, 2)
        few = torch.zeros(sum(self.sizes.values()), dtype=torch.bool)
        for name, places in (("pairs", self.pairs), ("triples", self.triples)):
            least = torch.full((places.shape[1],), torch.inf)
            for sides in itertools.product((0, 1), repeat=len(places)):
                ids = [either[place, side] for place, side in zip(places, sides, strict=True)]
                for part in torch.arange(places.shape[1]).split(MOST_MASKED):
                    together = math.prod([away[one[part]] for one in ids[1:]], start=away[ids[0][part]])
                    least[part] = torch.minimum(least[part], together.sum(1))
            few[self.spans[name]] = least < MIN_ROWS
        return few

    def units(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "u n"]:
        """Scores of which products are made, standardised as they enter them."""
        return self._standard_units(self._codes(cells))

    def _standard_units(self, codes: Int[Tensor, "c n"]) -> Float[Tensor, "u n"]:
        return (self._units(codes) - self.unit_mean[:, None]) / self.unit_scale[:, None]

    def _codes(self, cells: Float[Tensor, "n c"]) -> Int[Tensor, "c n"]:
        turned = cells.T.contiguous()
        return torch.stack([column.codes(turned[j]) for j, column in enumerate(self.columns)])

    def _linear(self, codes: Int[Tensor, "c n"]) -> Float[Tensor, "c n"]:
        return torch.stack([column.linear[codes[j]] for j, column in enumerate(self.columns)])

    def _normal(self, codes: Int[Tensor, "c n"]) -> Float[Tensor, "c n"]:
        return torch.stack([scores[codes[j]] for j, scores in enumerate(self.normal)])

    def _units(self, codes: Int[Tensor, "c n"]) -> Float[Tensor, "u n"]:
        """Scores of which products are made, not yet standardised."""
        if not len(self.unit_column):
            return torch.zeros(0, codes.shape[1], dtype=torch.float64)
        rank = self._linear(codes)
        rows = []
        for column, code in zip(self.unit_column.tolist(), self.unit_code.tolist(), strict=True):
            indicator = code >= 0
            rows.append((codes[column] == code).to(torch.float64) if indicator else _shaped(rank[column], code))
        return torch.stack(rows)


def _deviation(values: Float[Tensor, "u n"]) -> Float[Tensor, " u"]:
    return (values - values.mean(1, keepdim=True)).square().mean(1).sqrt().clamp_min(1e-6)


def _shaped(score: Float[Tensor, " n"], shape: int) -> Float[Tensor, " n"]:
    """A rank score as it enters products."""
    if shape == RANK:
        return score
    return score.square() if shape == SQUARE else score.sign() * score.abs().sqrt()


def _index(entries: Sequence[tuple[int, ...]], rows: int) -> Int[Tensor, "k e"]:
    return torch.tensor(list(entries), dtype=torch.int64).reshape(-1, rows).T.contiguous()


def _tested(column: CodedColumn, n: int) -> list[int]:
    """Codes with an indicator: those of enough rows, and those of none, at which something new would show.

    Of two that are all there is, one is enough.
    """
    least = max(MIN_ROWS / n, MIN_SHARE)
    codes = [k for k in range(column.size) if least <= column.shares[k] <= 1 - least]
    codes = codes[:1] if len(codes) == 2 else codes
    new = [*range(column.bins), column.size - 2, column.size - 1]
    return codes + [k for k in new if column.shares[k] == 0 and _can_occur(column, k)]


def _can_occur(column: CodedColumn, code: int) -> bool:
    """Numbers have no rare categories."""
    return column.kind == "category" or code != column.size - 2


def _common(column: CodedColumn, n: int, codes: range) -> list[int]:
    least = max(MIN_ROWS / n, COMMON)
    usable = [k for k in codes if least <= column.shares[k] <= 1 - least]
    return sorted(usable, key=lambda k: -float(column.shares[k]))


def _units(columns: Sequence[CodedColumn], n: int) -> list[tuple[int, int]]:
    """(column, code or shape) of the scores that enter pairs."""
    found = []
    for j, column in enumerate(columns):
        if bool(column.linear.any()):
            found += [(j, RANK), (j, SQUARE)] if len(columns) <= SQUARES_UP_TO else [(j, RANK)]
        elif column.kind == "category":
            usable = _common(column, n, range(column.size - 1))
            found += [(j, k) for k in (usable[:1] if len(usable) == 2 else usable[:CODES_IN_PRODUCTS])]
        found += [(j, k) for k in _common(column, n, range(column.size - 1, column.size))]
    return found


def _triple_units(columns: Sequence[CodedColumn], n: int) -> list[tuple[int, int]]:
    """One score a column: of a category the code nearest to half of the rows."""
    found = []
    for j, column in enumerate(columns):
        if bool(column.linear.any()):
            found.append((j, ROOT))
        else:
            usable = _common(column, n, range(column.size))
            found += [(j, k) for k in sorted(usable, key=lambda k: abs(float(column.shares[k]) - 0.5))[:1]]
    return found


def _normal_scores(column: CodedColumn) -> Float[Tensor, " k"]:
    """What random features see of a code: the normal score of its rank; of a category, of its place by share."""
    shares = column.shares.clone()
    order = (
        shares.argsort(descending=True, stable=True)
        if column.kind == "category"
        else column.linear.argsort(stable=True)
    )
    middle = shares[order].cumsum(0) - shares[order] / 2
    scores = torch.zeros_like(shares)
    scores[order] = torch.as_tensor(ndtri(middle.clamp(1e-3, 1 - 1e-3).numpy()))
    scores[-1] = 0 if shares[-1] == 0 else -2.0
    return scores


def _pairs(values: Float[Tensor, "u n"], owner: list[int], learn: bool, seed: int) -> Int[Tensor, "2 p"]:
    """Pairs of scores of different columns."""
    every = [(a, b) for a, b in itertools.combinations(range(len(owner)), 2) if owner[a] != owner[b]]
    if len(every) <= MOST_PAIRS:
        return _index(every, 2)
    strength = (values @ values.T).abs()[tuple(_index(every, 2))]
    return _chosen(_index(every, 2), strength if learn else None, MOST_PAIRS, rng.fork(seed, "pairs"))


def _triples(values: Float[Tensor, "u n"], learn: bool, seed: int) -> Int[Tensor, "3 t"]:
    """Triples of scores."""
    u = len(values)
    if math.comb(u, 3) <= MOST_TRIPLES:
        return _index(list(itertools.combinations(range(u), 3)), 3)
    generator = rng.fork(seed, "triples")
    few = torch.randperm(u, generator=generator)[:SCREENED_SCORES].sort().values
    every = _index(list(itertools.combinations(few.tolist(), 3)), 3)
    strength = None
    if learn:
        rows = values[few, :2000].to(torch.float32)
        place = torch.searchsorted(few, every)
        dense = torch.stack([(rows * one) @ rows.T for one in rows])
        strength = dense[tuple(place)].abs()
    return _chosen(every, strength, MOST_TRIPLES, generator)


def _chosen(
    every: Int[Tensor, "k e"], strength: Float[Tensor, " e"] | None, most: int, generator: torch.Generator
) -> Int[Tensor, "k m"]:
    """Half of them the strongest, half drawn from the rest; all drawn without strengths."""
    order = torch.randperm(every.shape[1], generator=generator)
    if strength is not None:
        strongest = strength.argsort(descending=True)[: most // 2]
        order = torch.cat([strongest, order[~torch.isin(order, strongest)]])
    return every[:, order[:most].sort().values].contiguous()


def _random_features(scores: Float[Tensor, "c n"], seed: int) -> tuple[Float[Tensor, "r c"], Float[Tensor, " r"]]:
    """Frequencies for the median distance between rows, rounded to it, and phases."""
    generator = rng.fork(seed, "random features")
    some = scores[:, :500].T
    median = float(torch.pdist(some).median())
    median = float(f"{median:.1e}") if median > 0 else 1.0
    width = torch.tensor(WIDTHS, dtype=torch.float64).repeat(FREQUENCIES // len(WIDTHS) + 1)[:FREQUENCIES]
    draws = torch.randn(FREQUENCIES, len(scores), dtype=torch.float64, generator=generator)
    phases = 2 * math.pi * torch.rand(FREQUENCIES, dtype=torch.float64, generator=generator)
    return (draws / (median * width[:, None])).to(torch.float32), phases.to(torch.float32)
