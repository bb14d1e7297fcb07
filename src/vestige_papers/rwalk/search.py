"""The searches behind RWalk Table 1: lambda and, on MNIST, epochs of each method, on validation data.

The paper prints one lambda a method (75000 for EWC, 0.1 for PI, 1000 for RWalk), no epochs, and does not say what they
were chosen on. Here every twentieth training row of a class is held out and tested on; the test set is never read. A
method without samples is scored by the mean of its multi-head and single-head A5, since the paper has one lambda for
both; one with samples, and iCaRL, by its single-head A5. The printed lambdas are among those tried. What the first two
tasks alone would have chosen is said beside it.

On CIFAR-100 (3e6, 10 and 1000 are printed; 1.5e6, 10 and 500 with samples) a run costs minutes: every fifth training
row of a class is held out, and the choice is by the first two tasks, as for somebody who cannot know the later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vestige.continual.record import Record, Tried
from vestige.continual.search import LEAST_SEEDS, best, by_setting
from vestige.runner import Line, Rule, line
from vestige_papers.rwalk.runs import WITH, WITHOUT, Incremental, RWalkChoice, RWalkSetting, by_row, filled, score
from vestige_papers.rwalk.table1 import CIFAR_EPOCHS, RWalkTable1CIFAR

SEARCH = "A search has no verdict; it says what it chose."
FIRST = 2  # tasks that a choice by the first ones alone sees
LAMBDAS: dict[str, tuple[float | None, ...]] = {
    "EWC": (750.0, 7500.0, 75000.0, 750000.0, 7500000.0),
    "PI": (0.1, 10.0, 100.0, 1000.0),
    "RWalk": (0.1, 1.0, 10.0, 100.0, 1000.0),
}
LAMBDAS_CIFAR: dict[str, tuple[float, ...]] = {
    "EWC": (3e4, 3e5, 3e6, 3e7),
    "PI": (1.0, 10.0, 100.0, 1000.0),
    "RWalk": (10.0, 100.0, 1000.0, 10000.0),
}
# (epochs, whether all rows train): of 1000 rows a task 128 and 320 steps, of all rows about 190.
SETTINGS = ((8, False), (20, False), (1, True))
# With all rows, a sample of the memory comes once in hundreds and as heavy: tried for Vanilla-S alone.
WHOLE = (*WITHOUT, "Vanilla-S")
ROWS = (*WITHOUT, "iCaRL", *WITH)


def choice_of(record: Record) -> dict[str, Any]:
    """The fields of the `RWalkChoice` that a Record tried."""
    c = record.config
    return RWalkChoice(c["lam"], c["epochs"], c["per_class"] is None)._asdict()


def tried(records: Sequence[Record], tasks: int | None = None) -> dict[str, list[Tried]]:
    """row -> what was tried for it; `tasks` scores by the first ones alone."""
    return {row: by_setting(runs, choice_of, score, tasks) for row, runs in by_row(records).items()}


def chosen(records: Sequence[Record], tasks: int | None = None) -> dict[str, RWalkChoice]:
    """row -> the choice with the best mean score; fewer than three seeds choose nothing."""
    return {row: RWalkChoice(**best(found).set) for row, found in tried(records, tasks).items()}


def told(
    records: Sequence[Record],
    tried: Callable[[Sequence[Record], int | None], Mapping[str, Sequence[Tried]]],
    words: Callable[[Mapping[str, Any]], str],
) -> str:
    """What a search chose for each row, with the spread over seeds, and what the first tasks alone would have chosen.

    Of fewer than three seeds it says that they choose nothing, and what led.
    """
    found, early, said = tried(records, None), tried(records, FIRST), []
    for row, settings in found.items():
        seeds = len(settings[0].scores)
        lead = max(settings, key=lambda each: each.mean)
        what = f"{words(lead.set)} ({lead.mean:.1f}"
        if seeds < LEAST_SEEDS:
            said.append(f"{row}: {what}; {seeds} seed{'s' * (seeds > 1)}, which choose nothing)")
        else:
            first = words(best(early[row]).set)
            said.append(f"{row}: {what} +- {lead.spread:.1f} over {seeds} seeds; by the first {FIRST} tasks: {first})")
    return "; ".join(said)


class RWalkSearch(Incremental):
    """Lambda, and where it is open how long to train, for a half of RWalk Table 1, on validation data."""

    rule = Rule(note=SEARCH)
    choices: ClassVar[Sequence[tuple[str, RWalkChoice]]]  # (row, what is tried for it)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 3, "laptop": 3, "paper": 5}

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """Every row with everything that is tried for it."""
        units = [filled(config, row, choice) for row, choice in self.choices]
        return list(dict.fromkeys(units))  # in a smoke run settings coincide

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The score of everything that was tried."""
        return [
            line(f"{row}, {RWalkChoice(**each.set)}", "validation score (%)", each.scores)
            for row, found in tried(records).items()
            for each in found
        ]

    def remarks(self, facts: Sequence[Record]) -> str:
        """What was chosen."""
        return told(facts, tried, lambda setting: str(RWalkChoice(**setting)))


class RWalkSearchMNIST(RWalkSearch):
    """Lambda and epochs for RWalk Table 1 on MNIST, on validation data."""

    name = "rwalk-search-mnist"
    item = "RWalk Table 1 (MNIST): the search for lambda and epochs"
    presets: ClassVar[Mapping[str, RWalkSetting]] = {
        "smoke": RWalkSetting(data="digits", per_class=30, hidden=(16,), memory_per_class=2, epochs=2, validate=6),
        "laptop": RWalkSetting(validate=20),
        "paper": RWalkSetting(per_class=None, epochs=1, validate=20),
    }
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of MNIST; few rows; a small network",
        "laptop": "500 of about 6000 training rows a class for the rows with samples",
    }
    choices = tuple(
        (row, RWalkChoice(lam, epochs, whole))
        for row in ROWS
        for lam in LAMBDAS.get(row.removesuffix("-S"), (None,))
        for epochs, whole in SETTINGS
        if row in WHOLE or not whole
    )


class RWalkSearchCIFAR(RWalkSearch):
    """Lambda for RWalk Table 1 on CIFAR-100, on validation rows of the first two tasks."""

    name = "rwalk-search-cifar"
    item = "RWalk Table 1 (CIFAR-100): the search for lambda"
    presets: ClassVar[Mapping[str, RWalkSetting]] = {
        "smoke": replace(RWalkTable1CIFAR.presets["smoke"], validate=6),
        "laptop": replace(RWalkTable1CIFAR.presets["laptop"], classes=20, per_class=250, validate=5),
        "paper": replace(RWalkTable1CIFAR.presets["paper"], validate=20),
    }
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": RWalkTable1CIFAR.cut["smoke"],
        "laptop": "2 of 10 tasks; 250 of 500 training rows a class; images of 16 x 16 pixels",
    }
    choices = tuple(
        (row, RWalkChoice(lam, CIFAR_EPOCHS))
        for row in (*WITHOUT, *WITH)
        for lam in LAMBDAS_CIFAR.get(row.removesuffix("-S"), ())
    )
