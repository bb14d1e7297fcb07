"""Units on many machines, with Ray (the extra `cluster`): the same code, the same Records, to the bit, as here.

Every unit is one Ray task with one torch thread, whatever share of CPUs and GPUs it is given: more threads would add in
another order. It writes its Record, and its checkpoint, to `OUT`, which all machines must share. A task whose machine
is lost is run again elsewhere, from its last finished task; a unit that turns out to be finished is not run again. All
machines need this version of Vestige (other versions of results give other ids, and are refused) and the data sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from vestige.continual.record import Record
from vestige.core import MissingPackage, VestigeError, checks
from vestige.runner.plan import Unit
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.unit import Finished, divided, run_unit, silent

RETRIES = 3  # of a unit whose machine or process was lost


@dataclass(frozen=True)
class Resources:
    """What a unit is given; fractions share a CPU or a GPU among units."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        checks.number(self.cpus, "cpus", "Resources", low=0)
        checks.number(self.gpus, "gpus", "Resources", low=0)


def resources_of(unit: Unit) -> Resources:
    """What the unit's configuration asks for under `resources`, or else its experiment; one CPU by default."""
    for place in (unit.config, EXPERIMENTS[unit.experiment]):
        asked = getattr(place, "resources", None)
        if asked is not None:
            return asked if isinstance(asked, Resources) else Resources(**asked)
    return Resources()


def run(
    units: Iterable[Unit],
    address: str,
    *,
    resources: Resources | None = None,
    device: str | None = None,
    say: Callable[[str], None] = silent,
) -> Iterator[Finished]:
    """Yield each unit's Record as it comes, from the cluster at `address`; "local" starts one on this machine.

    `resources` replace what units ask for themselves. A unit computes on `device`, or on the best that it finds where
    it runs: a GPU if it was given one. `say` hears where the units run.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise MissingPackage("Running on a cluster needs Ray: pip install 'vestige[cluster]'") from error
    done, left = divided(units, device)
    yield from done
    if not left:
        return
    ours = not ray.is_initialized()
    if ours:
        _join(ray, address)
    try:
        total = ray.cluster_resources()
        say(f"Ray: {len(ray.nodes())} machines, {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs.")
        task = ray.remote(_work)
        waiting = {}
        for unit in left:
            need = resources or resources_of(unit)
            if device == "cuda" and need.gpus == 0:  # Ray hides the GPUs of a machine from one that asks for none
                need = dataclasses.replace(need, gpus=1.0)
            _tell_of_waiting(ray, unit, need, say)
            options = {"num_cpus": need.cpus, "num_gpus": need.gpus, "max_retries": RETRIES, "name": str(unit)}
            # A path means the same to every machine only if it is absolute.
            sent = dataclasses.replace(unit, path=unit.path.resolve())
            waiting[task.options(**options).remote(sent)] = unit
        while waiting:
            for ended in ray.wait(list(waiting))[0]:
                unit = waiting.pop(ended)
                try:
                    ray.get(ended)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except ray.exceptions.RayError as error:
                    raise VestigeError(
                        f"The unit {unit} was lost {RETRIES + 1} times: {str(error).splitlines()[0]} What is finished "
                        "is stored; the same command tries again."
                    ) from error
                yield Finished(unit, Record.load(unit.path), True)
    finally:
        if ours:
            ray.shutdown()  # ends what still runs; files are written whole or not at all


def _tell_of_waiting(ray: ModuleType, unit: Unit, need: Resources, say: Callable[[str], None]) -> None:
    """Say so if no machine has now what a unit asks for: it waits for one that joins, perhaps for ever."""
    have = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(h.get("CPU", 0) >= need.cpus and h.get("GPU", 0) >= need.gpus for h in have):
        say(f"{unit} waits for a machine with {need.cpus:g} CPUs and {need.gpus:g} GPUs: none of the cluster has them.")


def _work(unit: Unit) -> str:
    import torch

    torch.set_num_threads(1)  # in the process of a Ray worker
    return run_unit(unit, silent).id


def _join(ray: ModuleType, address: str) -> None:
    where = {} if address == "local" else {"address": address}
    try:
        ray.init(**where, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError) as error:
        raise VestigeError(f"No Ray cluster answers at {address}: {str(error).splitlines()[0]}") from error
