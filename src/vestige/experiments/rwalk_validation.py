"""How a unit of RWalk's tables is searched: on every twentieth training row of a class, by the score of the search.

The test set is not read: `validate` of `rwalk_runs` takes the held-out rows in its place.
"""

from __future__ import annotations

from dataclasses import replace

from vestige.errors import InputError
from vestige.experiments.rwalk_runs import Setting
from vestige.experiments.rwalk_search import score
from vestige.record import Record

NTH = 20  # as in `rwalk-search-mnist`
SMALL, NTH_SMALL = 100, 6  # with so few rows of a class, more of them are held out


class OnHeldOutRows:
    """What `vestige run --grid` asks of an experiment."""

    def validation(self, config: Setting) -> Setting:
        """The same unit, tested on rows held out from training."""
        if config.validate:
            raise InputError(
                "The 'grid' of vestige run must be for a preset that is tested on the test set. Got one whose final "
                f"test is on held-out training rows already (validate={config.validate}) instead."
            )
        few = config.per_class is not None and config.per_class <= SMALL
        return replace(config, validate=NTH_SMALL if few else NTH)

    def score(self, record: Record) -> float:
        """Single-head A in percent; without samples the mean of both heads."""
        return score(record)
