"""A comparison as a page: the answer first, what differs in pictures second, every number below."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import show as drawing
from vestige.show import Page, Part, Picture, Status, Table
from vestige.vestiges.words import NAMES, WORDS_OF, Compared, column_table

COLOURS: dict[str, Literal["good", "bad", "plain"]] = {"same": "good", "differs": "bad", "not told": "plain"}
DRAWN = 4  # columns whose distribution is drawn
MOST_BARS = 18  # of a picture; of more those stay that differ most


def page(
    found: Compared,
    *,
    title: str = "",
    outside: Sequence[Table] = (),
    rows: Mapping[str, Float[Tensor, "n ..."]] | None = None,
) -> Page:
    """The page; `outside` are rows out of reach, `rows` images by what they are, as the shell has them at hand."""
    real, fake = found.names
    out = Page(
        title or f"{real} and {fake}",
        found.advice,
        status=Status(COLOURS[found.status], WORDS_OF[found.status]),
        answer=found.answer,
    )
    pictures = [*_maps(found), *_images(rows or {}), *(() if found.images is not None else _profiles(found))]
    if pictures:
        out.section("What differs", *pictures)
    if found.differences and found.images is None:
        out.section("Columns", column_table(found))
    out.section("How far they are apart", found.conclusion, *_numbers(found))
    if outside:
        out.section("Rows out of reach", *outside)
    told = dict.fromkeys((*found.warnings, *found.notes))
    if told:
        out.section("What to keep in mind", *told)
    return out


def _numbers(found: Compared) -> list[Part]:
    real = f"a vestige of {found.n_p} rows" if found.by_draws else f"{found.n_p} rows"
    title = f"divergences: {real} against {found.n_q}, {found.d} features"
    parts: list[Part] = [
        Table(title, ("", "value and interval"), [(NAMES.get(k, k), e) for k, e in found.divergences.items()])
    ]
    rows = [
        (NAMES.get(name, name), one, one.details.get("same"))
        for name, one in found.metrics.items()
        if one.known or not found.by_draws
    ]
    parts.append(Table("metrics", ("", "value and interval", "same distribution"), rows))
    if found.drift is not None:
        families = [(name, f"{p:.2g}") for name, p in found.drift.families.items()]
        parts.append(Table("drift test, by family of moments", ("", "p-value"), families))
    return parts


def _profiles(found: Compared) -> list[Part]:
    """The distributions of the first columns, before and after."""
    shown = [one for one in found.differences if one.differs][:DRAWN] or list(found.differences[:1])
    shown = [one for one in shown if len(one.profile.names)]  # noisy means have no distribution to draw
    if found.status != "differs":
        shown = []
    out: list[Part] = []
    for one in shown:
        names, before, after = _fewer(one.profile.names, one.profile.before, one.profile.after)
        figure = drawing.bars(
            {found.names[0]: before, found.names[1]: after},
            names,
            title=f"{one.name}: {one.told}",
            y_label="share of the rows",
        )
        told = "; ".join(f"{name} {a:.0%} and {b:.0%}" for name, a, b in zip(names, before, after, strict=True))
        out.append(Picture(figure, f"Shares of {one.name} in {found.names[0]} and in {found.names[1]}: {told}."))
    return out


def _fewer(
    names: Sequence[str], before: Sequence[float], after: Sequence[float]
) -> tuple[list[str], list[float], list[float]]:
    """Bins that hold rows; of many, those whose shares changed most, in their order."""
    places = [i for i in range(len(names)) if max(before[i], after[i]) > 0]
    if len(places) > MOST_BARS:
        places = sorted(sorted(places, key=lambda i: -abs(after[i] - before[i]))[:MOST_BARS])
    short = [re.sub(r"^from (\S+) below (\S+)$", r"\1 to \2", names[i]) for i in places]
    return short, [before[i] for i in places], [after[i] for i in places]


def _maps(found: Compared) -> list[Part]:
    """Where images differ."""
    one = found.images
    if one is None:
        return []
    real, fake = found.names
    figure = drawing.signed_map(
        one.deviations, title=f"mean of {real} less mean of {fake}", label="deviations of a pixel"
    )
    told = f"The images differ most in the {one.region}."
    return [Picture(figure, f"A map of mean pixels: {real} less {fake}. {told}", told)]


def _images(rows: Mapping[str, Float[Tensor, "n ..."]]) -> list[Part]:
    """Images side by side, one row of them a kind."""
    if not rows:
        return []
    every = torch.cat(list(rows.values()))
    low, high = float(every.min()), float(every.max())
    wide = max(map(len, rows.values()))
    blank = torch.full((1, *every.shape[1:]), high)
    grid = torch.cat([torch.cat([x, blank.expand(wide - len(x), *blank.shape[1:])]) for x in rows.values()])
    title = "Rows by how much they are like the data"
    figure = drawing.images(grid, title=title, columns=wide, rows=list(rows), limits=(low, max(high, low + 1e-9)))
    return [Picture(figure, f"{title}: {', '.join(rows)}.")]
