"""The demo: vanilla training against joint training on Split digits, which ship with scikit-learn.

Ten digits come two at a time and go away again. Vanilla training forgets them; joint training keeps all data, which
is what nobody may do, and serves as the reference of intransigence.
"""

from __future__ import annotations

from collections.abc import Callable

from vestige import data, protocol
from vestige.methods import build
from vestige.protocol import Progress
from vestige.record import Record

EPOCHS, BATCH_SIZE, HIDDEN = 20, 32, (100,)


def samples_to_train() -> int:
    """How many samples both runs will report as done, for a progress bar."""
    return 2 * EPOCHS * len(data.load("digits").train_y)


def run(*, seed: int = 0, on_progress: Callable[[str, Progress], None] | None = None) -> dict[str, Record]:
    """The Records of `joint` and of `vanilla`, the second with the first as its reference."""
    stream = data.split(data.load("digits"), 2, seed=seed)
    records: dict[str, Record] = {}
    for method in ("joint", "vanilla"):

        def tell(progress: Progress, method: str = method) -> None:
            if on_progress is not None:
                on_progress(method, progress)

        records[method] = protocol.run(
            stream,
            build(method, stream, seed=seed, hidden=HIDDEN),
            seed=seed,
            epochs=EPOCHS,
            batch_size=BATCH_SIZE,
            reference=records.get("joint"),
            on_progress=tell,
        )
    return records
