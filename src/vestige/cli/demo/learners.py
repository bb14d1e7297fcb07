"""Second part: four learners on single-head Split digits, two digits at a time, each run watched by an audit.

`joint`, which keeps all data, is the reference of intransigence (RWalk Eq. 4) and no contender: nobody may keep all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vestige import data
from vestige.continual.audit import audited_run
from vestige.continual.learners import build
from vestige.continual.protocol import Progress
from vestige.continual.record import Record
from vestige.data import DataSet

REFERENCE = "joint"
LEARNERS = ("vanilla", "ewc", "rwalk_s", "vcl")


@dataclass(frozen=True)
class LearnersConfig:
    """How the network trains; `fields` are further ones of a method's own configuration."""

    epochs: int = 20
    batch_size: int = 32
    hidden: tuple[int, ...] = (100,)
    fields: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"vcl": {"train_samples": 3, "test_samples": 30}}  # a third of its authors': faster
    )


def learn(
    dataset: DataSet,
    config: LearnersConfig,
    *,
    seed: int,
    on_progress: Callable[[str, float], None] = lambda _name, _share: None,
) -> dict[str, Record]:
    """The audited Record of each method, the reference first; `on_progress` hears a method and the share done of it."""
    stream = data.split(dataset, 2, seed=seed)
    records: dict[str, Record] = {}
    for method in (REFERENCE, *LEARNERS):

        def tell(progress: Progress, method: str = method) -> None:
            on_progress(method, progress.done / progress.total)

        records[method] = audited_run(
            stream,
            build(method, stream, seed=seed, hidden=config.hidden, **config.fields.get(method, {})),
            seed=seed,
            epochs=config.epochs,
            batch_size=config.batch_size,
            reference=records.get(REFERENCE),
            on_progress=tell,
        )
    return records
