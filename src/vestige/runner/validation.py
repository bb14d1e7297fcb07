"""How a unit that trains a learner is searched: on rows held out from training, never on the test set.

A configuration with a field `validate` says there that every n-th training row of a class is tested on in place of the
test set (see `rwalk_runs.for_validation`); `vestige run --grid` asks for that unit, and for its score.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.metrics import matrix

NTH = 20  # as in `rwalk-search-mnist`
SMALL, NTH_SMALL = 100, 6  # with so few rows of a class, more of them are held out


class OnHeldOutRows:
    """What a grid asks of an experiment."""

    def validation(self, config: Any) -> Any:  # noqa: ANN401 - a configuration with `validate` and `per_class`
        """The same unit, tested on rows held out from training."""
        if config.validate:
            raise InputError(
                "The 'grid' of vestige run must be for a preset that is tested on the test set. Got one whose final "
                f"test is on held-out training rows already (validate={config.validate}) instead."
            )
        few = config.per_class is not None and config.per_class <= SMALL
        return replace(config, validate=NTH_SMALL if few else NTH)

    def score(self, record: Record) -> float:
        """Average accuracy after the last task in percent, under the head that the stream declared."""
        return 100 * matrix.average_accuracy(record.R)
