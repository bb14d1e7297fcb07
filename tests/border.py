"""An experiment that trains for real, in a moment: a method on three tasks. Run as a script it is `vestige` with it.

`log` names a file to which every unit that is run, and does not merely lie there, adds its id, the task that it trains
and its process.
`gate` names a file without which no unit trains beyond its first batches.
`die` names a file: where it is absent a unit makes it and kills its own process, as the kernel does when memory is
short; "always" does so whenever it is run.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parent))
from toys import blobs
from vestige import data
from vestige.continual import learners as methods
from vestige.continual import protocol
from vestige.metrics import matrix
from vestige.runner.experiment import Experiment, line
from vestige.runner.registry import EXPERIMENTS


@dataclass(frozen=True)
class Config:
    """One method."""

    method: str = ""
    methods: tuple[str, ...] = ("vanilla", "ewc_pp_s")
    lr: float = 1e-3
    epochs: int = 2
    validate: bool = False
    log: str = ""
    gate: str = ""
    die: str = ""
    fail: str = ""


class Border(Experiment[Config]):
    """Average accuracy on three tasks."""

    name, item = "border", "Table 0"
    presets: ClassVar = {"smoke": Config(epochs=1), "laptop": Config(), "paper": Config(epochs=9)}
    seeds: ClassVar = {"smoke": 2, "laptop": 3, "paper": 9}

    def arms(self, config):
        return [replace(config, method=method, methods=(method,)) for method in config.methods]

    def run(self, config, seed, on_progress):
        if config.die and config.method == "vanilla" and seed == 0 and not Path(config.die).exists():
            if config.die != "always":
                Path(config.die).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if config.fail:
            raise ValueError(config.fail)
        stream = data.split(blobs(seed=int(config.validate)), 2)
        own = {"hidden": (8,), "learning_rate": config.lr}
        own |= {"memory": {"per_class": 3}} if config.method.endswith("_s") else {}
        learner = methods.build(config.method, stream, seed=seed, **own)

        def heard(p):
            if config.log:
                with Path(config.log).open("a") as log:
                    log.write(f"{self.unit_id(config, seed)} {p.task} {os.getpid()}\n")
            patience = time.monotonic() + 300
            while config.gate and not Path(config.gate).exists() and time.monotonic() < patience:
                time.sleep(0.02)
            on_progress(p.done / p.total, f"task {p.task + 1}")

        options = {"seed": seed, "epochs": config.epochs, "batch_size": 16}
        return self.adopt(protocol.run(stream, learner, on_progress=heard, **options), config)

    def validation(self, config):
        return replace(config, validate=True)

    def score(self, record):
        return matrix.average_accuracy(record.R)

    def lines(self, records):
        return [line("all", "A", [matrix.average_accuracy(r.R) for r in records])]


EXPERIMENTS["border"] = Border()

if __name__ == "__main__":
    from vestige.cli import main

    sys.exit(main(sys.argv[1:]))
