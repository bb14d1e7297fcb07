"""Which columns of new rows, or which parts of new images, differ from those of a vestige.

Columns are tested by the drift test, corrected for columns and for what it looks at in each. It looks at no category
and no missing cell that less than a hundredth of many rows have; of these the moments of a table have exact counts, and
Fisher's exact test of all of them gets a tenth of the level: p = min(p of the drift test / 0.9, 10 k p of Fisher), k
the number of counts. What fewer than 50 rows had, or lacked, is not among them: it was replaced by the commonest cell
of its column before anything was counted (`rare`), so neither count is that of the data.
Means, deviations and shares of the data are those of the stored moments, quantiles those of its draws, bins those of
its drift test. Of images the difference of mean components is mapped back to pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from scipy.stats import hypergeom
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER
from vestige.features import PCA
from vestige.vestiges.by_column import LEAST_P
from vestige.vestiges.differences import (
    ALPHA,
    ColumnDifference,
    Numbers,
    Profile,
    difference,
    numbers_of,
    of_number,
    of_share,
    percent,
)
from vestige.vestiges.drift_test import DriftFound
from vestige.vestiges.image_difference import ImageDifference
from vestige.vestiges.kept import KeptData
from vestige.vestiges.spelling import dated, spelt

COUNTED = 0.1  # of the level, for counts of categories and missing cells


def of_vestige(kept: KeptData, cells: Float[Tensor, "n c"], found: DriftFound) -> tuple[ColumnDifference, ...]:
    """How each column of the new rows `cells` differs from those that were kept, by what the drift test `found`."""
    frame = kept.frame
    names = cell_names(kept)
    drawn = kept.draws if frame.density_of_cells else None
    moments = kept.moments.whole()
    mean, variance = moments.mean, moments.covariance().diagonal()
    counted = _counted(kept, cells, mean)
    out = []
    for one in found.columns:
        j = one.column
        column, values = kept.test.dictionary.columns[j], cells[:, j]
        of_table = None if frame.schema is None else frame.schema.used[j]
        texts = None if of_table is None or frame.kinds[j] == "number" else of_table.categories
        write = dated if of_table is not None and of_table.kind == "date" else spelt
        profile = Profile(
            tuple(_code_name(column.name_of(k, write), texts) for k in range(column.size)),
            tuple(column.shares.tolist()),
            tuple((torch.bincount(column.codes(values), minlength=column.size) / len(values)).tolist()),
        )
        rarest = counted.get(j)
        missing = float(column.shares[-1]) if rarest is None else rarest.missing, float(values.isnan().double().mean())
        numbers = None
        if frame.kinds[j] == "number":
            numbers = numbers_of(
                values if drawn is None else drawn[0][:, j], values, None if drawn is None else drawn[1]
            )
            own_mean, own_deviation = _stored_numbers(kept, j, mean, variance, missing[0])
            numbers = Numbers(
                (own_mean, numbers.means[1]),
                (own_deviation, numbers.deviations[1]),
                {} if drawn is None else numbers.quantiles,
            )
        if numbers is not None and one.what in ("mean rank", "mean", "spread of ranks", "spread"):
            told, place = of_number(numbers, "mean" if one.what.startswith("mean") else "spread", write), 0
        else:
            place = [column.name_of(k) for k in range(column.size)].index(one.what)
            exact = replace(profile, before=_put(profile.before, place, one.before))
            told = of_share(exact, place, frame.kinds[j])
            profile = exact
        z, p_value, evidence = one.z, one.p_value, one.evidence
        if rarest is not None:
            evidence = max(evidence, -math.log(max(rarest.p_value, LEAST_P)))
            p_value = min(p_value / (1 - COUNTED), rarest.p_value, 1.0)
            if rarest.p_value <= ALPHA and abs(rarest.z) > abs(z):
                z, told = rarest.z, rarest.told
        out.append(
            difference(
                *(names[j], frame.kinds[j], told, z, p_value, numbers, profile, place),
                missing=missing,
                relation=one.relation,
                partner=names[one.partner],
                evidence=evidence,
            )
        )
    return tuple(out)


@dataclass(frozen=True)
class Counted:
    """Of a column of a table: the category, or missing cells, whose exact count differs most."""

    z: float
    p_value: float  # corrected, see the module
    told: str
    missing: float  # the share of missing cells in the data


def _counted(kept: KeptData, cells: Float[Tensor, "n c"], mean: Float[Tensor, " d"]) -> dict[int, Counted]:
    """By the place of the column; none where the data was no table."""
    schema = kept.frame.schema
    if schema is None:
        return {}
    found: dict[int, list[tuple[float, float, str]]] = {}
    missing: dict[int, float] = {}
    start, n, m = 0, kept.n, len(cells)
    for j, column in enumerate(schema.used):
        shares = [
            min(max(centre + spread * float(mean[start + i]), 0.0), 1.0)
            for i, (centre, spread) in enumerate(zip(column.centres, column.spreads, strict=True))
        ]
        known = _known(shares, n, column.is_category)
        for i, name in enumerate(column.features):
            of_missing = name == f"{column.name} is missing"
            share = shares[i]
            missing |= {j: share} if of_missing else {}
            if not (known[i] and (column.is_category or of_missing)):
                continue
            new = cells[:, j].isnan() if of_missing else cells[:, j] == i
            before, after = round(share * n), int(new.sum())
            total = before + after
            tails = hypergeom.cdf(after, n + m, total, m), hypergeom.sf(after - 1, n + m, total, m)
            deviation = math.sqrt(total / (n + m) * (1 - total / (n + m)) * (1 / n + 1 / m))
            what = "missing" if of_missing else f"'{[*column.categories, 'other'][i]}'"
            told = f"{what} {percent(share)} -> {percent(after / m)}"
            z = (after / m - share) / deviation if deviation > 0 else 0.0
            found.setdefault(j, []).append((min(2 * min(map(float, tails)), 1.0), z, told))
        start += len(column.features)
    k = sum(map(len, found.values()))
    best = {j: min(own) for j, own in found.items()}
    none = {j: Counted(0.0, 1.0, "", share) for j, share in missing.items()}
    return none | {j: Counted(z, k * p / COUNTED, told, missing.get(j, 0.0)) for j, (p, z, told) in best.items()}


def _known(shares: Sequence[float], n: int, is_category: bool) -> list[bool]:
    """Which counts are those of the data: of no few rows, and not of the category that stands for what few rows had."""
    many = [ROWS_TOGETHER <= share * n <= n - ROWS_TOGETHER for share in shares]
    commonest = max(range(len(shares)), key=lambda i: shares[i])
    return [one and (all(many) or i != commonest or not is_category) for i, one in enumerate(many)]


def cell_names(kept: KeptData) -> tuple[str, ...]:
    """The names of the columns; those of a feature map are called what they are."""
    frame = kept.frame
    if frame.map is None:
        return frame.names
    word = "component" if isinstance(frame.map, PCA) else "feature"
    return tuple(f"{word} {i}" for i in range(len(frame.names)))


def _stored_numbers(kept: KeptData, j: int, mean: Tensor, variance: Tensor, missing: float) -> tuple[float, float]:
    """Mean and deviation of a number from the moments of its feature, in its own units, of cells that were there."""
    schema = kept.frame.schema
    if schema is None:
        return float(mean[j]), float(variance[j].clamp_min(0).sqrt())
    place = sum(len(column.features) for column in schema.used[:j])
    column, there = schema.used[j], max(1 - missing, 1e-12)
    m = float(mean[place]) / there  # a missing cell counts as 0 in the feature
    square = (float(variance[place]) + float(mean[place]) ** 2) / there
    return column.fill + column.spreads[0] * m, column.spreads[0] * math.sqrt(max(square - m**2, 0.0))


def _code_name(name: str, texts: Sequence[str] | None) -> str:
    """A code of the drift test as a person knows it."""
    if texts is None or not name.startswith("category "):
        return name
    code = int(float(name.removeprefix("category ")))
    return texts[code] if code < len(texts) else "other"


def _put(values: tuple[float, ...], place: int, value: float) -> tuple[float, ...]:
    return (*values[:place], value, *values[place + 1 :])


def images_of_vestige(
    kept: KeptData, features: Float[Tensor, "n d"], q_weights: Float[Tensor, " n"] | None
) -> ImageDifference | None:
    """Of new images by their components."""
    seen = kept.frame.map
    if not isinstance(seen, PCA) or len(kept.frame.shape) < 2:
        return None
    moments = kept.moments.whole()
    q_mean = features.mean(0) if q_weights is None else q_weights @ features / q_weights.sum()
    back = seen.directions_.double() * seen.scale_.double()[:, None]
    variance = torch.einsum("kd,kl,ld->d", back, moments.covariance(), back).clamp_min(0)
    p_pixels, q_pixels = (seen.mean_.double() + mean @ back for mean in (moments.mean, q_mean))
    return ImageDifference.of(p_pixels, q_pixels, variance.sqrt(), kept.frame.shape)
