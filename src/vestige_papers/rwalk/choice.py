"""What is settled for a row of RWalk's tables before it runs: lambda, epochs, and how many training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from vestige_papers.rwalk.runs import Setting


class Choice(NamedTuple):
    """Lambda, epochs, and whether all training rows train or as many as the setting allows."""

    lam: float | None
    epochs: int
    whole: bool = False

    def __str__(self) -> str:
        what = f"{self.epochs} epoch{'s' * (self.epochs > 1)} of {'all' if self.whole else 'few'} rows"
        return what if self.lam is None else f"lambda {self.lam:g}, {what}"


def filled(config: Setting, row: str, choice: Choice) -> Setting:
    """The unit of a row: as chosen where `config` leaves lambda and epochs open.

    A row whose choice is to train on all rows does so whatever `per_class` says.
    """
    return replace(
        config,
        row=row,
        lam=choice.lam if config.lam is None or choice.lam is None else config.lam,
        epochs=choice.epochs if config.epochs is None else config.epochs,
        per_class=None if choice.whole else config.per_class,
    )
