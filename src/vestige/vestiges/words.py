"""A comparison in words and tables, for the shell, for notebooks and for pages; nothing here draws."""

from __future__ import annotations

import html
import math
from typing import Any, TypeAlias

from vestige.show.tables import Table, card

Compared: TypeAlias = Any  # `two_sets.Comparison`, which is above this file: it shows itself through it

NAMES = {
    "kl": "KL(real || fake)",
    "reverse_kl": "KL(fake || real)",
    "js": "Jensen-Shannon",
    "js_smoothed": "Jensen-Shannon, smoothed",
    "hellinger2": "Hellinger, squared",
    "pearson_chi2": "Pearson chi^2",
    "neyman_chi2": "Neyman chi^2",
    "total_variation": "total variation",
    "jeffreys": "Jeffreys",
    "fid": "FID",
    "fid_extrapolated": "FID, n to infinity",
    "kid": "KID",
    "mmd2": "MMD^2, RBF",
    "prd_f8_recall": "PRD F8 (recall)",
    "prd_f1_8_precision": "PRD F1/8 (precision)",
}
WORDS_OF = {"same": "no difference found", "differs": "they differ", "not told": "not tested"}
COLUMNS = 10  # of a table
SHARES = (
    "Share of the difference: how much of what a classifier finds is lost when the column is shuffled. Shares need not "
    "add up to one: columns that say the same share theirs, and what two tell together is counted for both."
)


def column_table(found: Compared, *, most: int = COLUMNS) -> Table:
    """The columns that differ most: in what, how surely, and how much of the difference they carry."""
    rows: list[tuple[str, str, str, str]] = []
    for one in found.differences[:most]:
        share = "-" if math.isnan(one.share) else f"{one.share:.0%}"
        rows.append((one.name, one.told, f"{one.p_value:.2g}", share))
    tested = "exact tests of each column" if found.drift is None else "the drift test"
    note = f"p-values of {tested}, corrected for the number of columns ({len(found.differences)})."
    return Table(
        "columns, those that differ most first",
        ("column", "differs most in", "p-value", "share of the difference"),
        rows,
        note=f"{note} {SHARES}" if any(not math.isnan(one.share) for one in found.differences) else note,
    )


def brief(found: Compared) -> str:
    """A card for a notebook: status, answer, advice, few numbers and the columns."""
    colour = {"same": "#116329", "differs": "#a40e26", "not told": "#57606a"}[found.status]
    word = f"<p><strong style='color:{colour}'>{html.escape(WORDS_OF[found.status])}</strong></p>"
    columns = column_table(found, most=5).html() if found.differences else ""
    return f"{word}{card(f'{found.answer} {found.advice}', found.figures())}{columns}"
