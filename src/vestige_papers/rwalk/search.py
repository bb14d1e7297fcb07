"""The search behind RWalk Table 1 on MNIST: lambda and epochs of each method, on validation data.

The paper prints one lambda a method (75000 for EWC, 0.1 for PI, 1000 for RWalk), no epochs, and does not say what they
were chosen on. Here every twentieth training row of a class is held out and tested on; the test set is never read. A
method without samples is scored by the mean of its multi-head and single-head A5, since the paper has one lambda for
both; one with samples, and iCaRL, by its single-head A5. The printed lambdas are among those tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from vestige.continual.record import Record
from vestige.runner import Line, Rule, line
from vestige_papers.rwalk.runs import WITH, WITHOUT, Incremental, RWalkChoice, RWalkSetting, filled, score

SEARCH = "A search has no verdict; it says what it chose."
LAMBDAS: dict[str, tuple[float | None, ...]] = {
    "EWC": (750.0, 7500.0, 75000.0, 750000.0, 7500000.0),
    "PI": (0.1, 10.0, 100.0, 1000.0),
    "RWalk": (0.1, 1.0, 10.0, 100.0, 1000.0),
}
# (epochs, whether all rows train): of 1000 rows a task 128 and 320 steps, of all rows about 190.
SETTINGS = ((8, False), (20, False), (1, True))
# With all rows, a sample of the memory comes once in hundreds and as heavy: tried for Vanilla-S alone.
WHOLE = (*WITHOUT, "Vanilla-S")
ROWS = (*WITHOUT, "iCaRL", *WITH)


def tried(records: Sequence[Record]) -> dict[str, dict[RWalkChoice, list[float]]]:
    """row -> choice -> score of each seed."""
    found: dict[str, dict[RWalkChoice, list[float]]] = {}
    for record in records:
        c = record.config
        choice = RWalkChoice(c["lam"], c["epochs"], c["per_class"] is None)
        found.setdefault(c["row"], {}).setdefault(choice, []).append(score(record))
    return found


def chosen(records: Sequence[Record]) -> dict[str, RWalkChoice]:
    """row -> the choice with the best mean score; of equals the first."""
    return {row: max(grid, key=lambda choice: fmean(grid[choice])) for row, grid in tried(records).items()}


class RWalkSearchMNIST(Incremental):
    """Lambda and epochs for RWalk Table 1 on MNIST, on validation data."""

    name = "rwalk-search-mnist"
    item = "RWalk Table 1 (MNIST): the search for lambda and epochs"
    rule = Rule(note=SEARCH)
    presets: ClassVar[Mapping[str, RWalkSetting]] = {
        "smoke": RWalkSetting(data="digits", per_class=30, hidden=(16,), memory_per_class=2, epochs=2, validate=6),
        "laptop": RWalkSetting(validate=20),
        "paper": RWalkSetting(per_class=None, epochs=1, validate=20),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 1, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "MNIST (digits instead), most of the rows and of the network",
        "laptop": "all rows of the rows with samples (500 a class train); seeds beyond 1",
    }

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """Every row, with every lambda of its method and every setting."""
        choices = [
            (row, RWalkChoice(lam, epochs, whole))
            for row in ROWS
            for lam in LAMBDAS.get(row.removesuffix("-S"), (None,))
            for epochs, whole in SETTINGS
            if row in WHOLE or not whole
        ]
        units = [filled(config, row, choice) for row, choice in choices]
        return list(dict.fromkeys(units))  # in a smoke run settings coincide

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The score of everything that was tried."""
        return [
            line(f"{row}, {choice}", "validation score (%)", scores)
            for row, grid in tried(records).items()
            for choice, scores in grid.items()
        ]

    def remarks(self, facts: Sequence[Record]) -> str:
        """What was chosen."""
        return "; ".join(f"{row}: {choice}" for row, choice in chosen(facts).items())
