"""A training set of real and weighted generated rows, and its loss (LFIW Eqs. 1, 2 and 6, section 3.2).

Eq. 2 mixes real data and a model with the share m for the data. With the self-normalised weights w of the generated
rows (Eq. 6, mean one) the loss is, up to the factor 1/m,

    mean over real rows of l  +  (1 - m) / m  *  mean over generated rows of w l.

Divided by m it has **equal exposure to real data whatever is added**: a real row weighs one, alone or beside any number
of generated rows, and `batches` deals the same real rows in the same order, to the bit, so that two trainings differ in
what was added and in nothing else.

Generated rows of weight zero are left out; the mean of the others is one, which is the same estimate. Deviation: the
paper trains on all rows in one pool, where each real row counts the less the more is generated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, Kind, as_tensor
from vestige.ratios.weights.diagnosis import Diagnosis, diagnose
from vestige.ratios.weights.transforms import log_weight_vector, self_normalise

# Rows and their labels.
Labelled: TypeAlias = "tuple[ArrayLike, ArrayLike]"


class Batch(NamedTuple):
    """Rows, their labels, and weights under which the loss of the batch is the weighted sum of the rows' losses."""

    x: Tensor
    y: Tensor
    weights: Float[Tensor, " n"]


@dataclass(frozen=True, eq=False)
class Augmented:
    """Real rows first, then generated ones. Weights: one for each real row, (1 - m) / m as much for all generated.

    `x`, `y` and `weights` are of the kind that came in, for what takes a weight a sample; `batches` is for networks.
    """

    x: Any
    y: Any
    weights: Any
    n_real: int
    n_generated: int
    real_share: float
    diagnosis: Diagnosis | None  # of the weights as they came; None without generated rows

    def batches(self, size: int, steps: int, *, generated: int | None = None, seed: int = 0) -> Iterator[Batch]:
        """`steps` batches of `size` real rows and `generated` others (as many, unless told); one side alone if alone.

        Each side comes in shuffled passes: all rows before any comes again.
        """
        owner = "Augmented.batches"
        size, steps = checks.whole(size, "size", owner, low=1), checks.whole(steps, "steps", owner, low=1)
        beside = size if generated is None else checks.whole(generated, "generated", owner, low=1)
        seed = checks.whole(seed, "seed", owner)
        sides = ((0, self.n_real, size, "real"), (self.n_real, self.n_generated, beside, "generated"))
        return self._dealt([(start, n, each, rng.fork(seed, name)) for start, n, each, name in sides if n], steps)

    def _dealt(self, sides: list[tuple[int, int, int, torch.Generator]], steps: int) -> Iterator[Batch]:
        """Hands of each side: (its first row, its rows, how many a hand, its shuffles)."""
        x, y, weights = (as_tensor(v, "rows", "Augmented.batches") for v in (self.x, self.y, self.weights))
        whole = self.n_real or self.n_generated
        # The loss of the whole set is the weighted sum over `whole`; a hand of `each` stands for its side's n rows.
        scales = [n / each / whole for _, n, each, _ in sides]
        for hands in zip(*(deal(n, each, steps, shuffle) for _, n, each, shuffle in sides), strict=True):
            rows = [first + hand for (first, *_), hand in zip(sides, hands, strict=True)]
            scaled = torch.cat([scale * weights[part] for scale, part in zip(scales, rows, strict=True)])
            index = torch.cat(rows)
            yield Batch(x[index], y[index], scaled.to(torch.get_default_dtype()))


def augment(
    real: Labelled | None,
    generated: Labelled | None = None,
    log_weights: ArrayLike | None = None,
    *,
    real_share: float = 0.5,
) -> Augmented:
    """Real rows (x, y) joined by generated ones, weighted by `log_weights` (all equal if None).

    `real_share` is m of Eq. 2. Either side may be None: the other then stands alone, and its weights average one.
    """
    owner = "weights.augment"
    share = checks.number(real_share, "real_share", owner, low=0, high=1, open_low=True, open_high=True)
    if real is None and generated is None:
        checks.refuse("real", owner, "given, or 'generated'", "neither")
    if generated is None and log_weights is not None:
        checks.refuse("log_weights", owner, "None where nothing is generated", "weights")
    sides = {"real": real, "generated": generated}
    given = {name: pair for name, pair in sides.items() if pair is not None}
    rows = {name: _rows(pair, name, owner) for name, pair in given.items()}
    ws, n_real, diagnosis = [], 0, None
    if real is not None:
        n_real = len(rows["real"][0])
        ws.append(torch.ones(n_real, dtype=torch.float64))
    if generated is not None:
        x, y = rows["generated"]
        if real is not None:
            _alike(given, rows, owner)
        equal = torch.zeros(len(x), dtype=torch.float64)
        log_w = equal if log_weights is None else log_weight_vector(log_weights, owner, length=len(x))
        kept, diagnosis = log_w > -math.inf, diagnose(log_w)
        w = self_normalise(log_w[kept]).exp()  # mean one: Eq. 6
        ws.append(w * ((1 - share) / share * n_real / len(w)) if n_real else w)
        rows["generated"] = x[kept], y[kept]
    weights = torch.cat(ws)
    first_x, first_y = next(iter(given.values()))
    xs, ys = zip(*rows.values(), strict=True)
    plain = dataclasses.replace(Kind.of(first_x), dtype=None)  # weights keep their precision
    counts = n_real, len(weights) - n_real
    return Augmented(_like(first_x, xs), _like(first_y, ys), plain.give(weights), *counts, share, diagnosis)


def weighted_loss(losses: Float[Tensor, " n"], weights: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The loss of a batch: its rows' losses, summed under the weights that came with it."""
    return (weights * losses).sum()


def deal(n: int, each: int, times: int, generator: torch.Generator) -> Iterator[Int64[Tensor, " e"]]:
    """`times` hands of `each` from decks of n cards, each shuffled anew; a hand may end one deck and begin the next."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(times):
        while len(left) < each:
            left = torch.cat([left, torch.randperm(n, generator=generator)])
        yield left[:each]
        left = left[each:]


def _rows(pair: Labelled, name: str, owner: str) -> tuple[Tensor, Tensor]:
    """Rows and labels as tensors: as many of one as of the other, and finite."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        checks.refuse(name, owner, "a pair (rows, labels)", f"a {type(pair).__name__}")
    x, y = as_tensor(pair[0], f"{name}[0]", owner), as_tensor(pair[1], f"{name}[1]", owner)
    if x.ndim < 1 or not len(x) or x.numel() == 0:
        checks.refuse(f"{name}[0]", owner, "at least one row with at least one feature", f"shape {tuple(x.shape)}")
    if y.ndim < 1 or len(y) != len(x):
        checks.refuse(f"{name}[1]", owner, f"one label for each of {len(x)} rows", f"shape {tuple(y.shape)}")
    for part, value in ((f"{name}[0]", x), (f"{name}[1]", y)):
        bad = 0 if not value.is_floating_point() else int((~torch.isfinite(value)).sum())
        if bad:
            checks.refuse(part, owner, "finite", f"{bad} NaN or infinite values among {value.numel()}")
    return x, y


def _alike(given: Mapping[str, Labelled], rows: Mapping[str, tuple[Tensor, Tensor]], owner: str) -> None:
    """Both sides must have one layout, one scale (bytes beside other numbers are two) and one set of columns."""
    for a, b, what in zip(rows["real"], rows["generated"], ("rows", "labels"), strict=True):
        if a.shape[1:] != b.shape[1:]:
            must = f"{what} of shape {tuple(a.shape[1:])}, as 'real' has"
            checks.refuse("generated", owner, must, tuple(b.shape[1:]))
    kinds = [rows[name][0].dtype for name in ("real", "generated")]
    if (kinds[0] == torch.uint8) != (kinds[1] == torch.uint8):
        checks.refuse("generated", owner, f"rows of {kinds[0]}, as 'real' has: bytes are another scale", kinds[1])
    tables = [pair[0] for pair in given.values() if isinstance(pair[0], pd.DataFrame)]
    if len(tables) == 2 and list(tables[0].columns) != list(tables[1].columns):
        checks.refuse("generated", owner, f"a table of the columns {list(tables[0].columns)}", list(tables[1].columns))


def _like(first: ArrayLike, parts: Sequence[Tensor]) -> Any:  # noqa: ANN401 - the kind that came in
    """Parts one after the other, as the kind that `first` is."""
    out = Kind.of(first).give(torch.cat(list(parts)))
    return out.set_axis(first.columns, axis=1) if isinstance(first, pd.DataFrame) else out
