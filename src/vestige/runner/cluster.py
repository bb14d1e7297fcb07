"""Units on many machines, with Ray (the extra `cluster`): the same code, the same Records, to the bit, as here.

Every unit is one Ray task with one torch thread, whatever share of CPUs and GPUs it is given: more threads would add in
another order. It writes its Record, and its checkpoint, to `OUT`, which all machines must share. A task whose machine
is lost is run again elsewhere, from its last finished task; a unit that turns out to be finished is not run again. All
machines need this version of Vestige (other versions of results give other ids, and are refused) and the data sets.

Whoever reaches the ports of a Ray cluster without token authentication can run code on its machines. So a cluster must
ask for a token (Ray >= 2.52, `RAY_AUTH_MODE=token`): before any unit is sent, a process without one knocks at it, and
if it is let in the cluster is refused, unless `open_cluster` says otherwise. A cluster that is started here has a token
of its own, no dashboard, and listens on the loopback address alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from vestige.continual.record import Record
from vestige.core import InputError, MissingPackage, VestigeError, checks
from vestige.runner.plan import Unit
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.unit import Finished, divided, run_unit, silent

RETRIES = 3  # of a unit whose machine or process was lost
MODE, TOKENS = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
# The name is Ray's: off, which it is on two systems by default, a cluster that is started binds to 127.0.0.1.
BEYOND_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
PATIENCE = 60  # seconds that the process which knocks at a cluster has
LET_IN, TURNED_AWAY = 10, 11  # its exit codes
KNOCK = f"""
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).internal_kv_get(b"vestige", None, timeout={PATIENCE // 2})
except AuthenticationError:
    sys.exit({TURNED_AWAY})
sys.exit({LET_IN})
"""


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
    open_cluster: bool = False,
    say: Callable[[str], None] = silent,
) -> Iterator[Finished]:
    """Yield each unit's Record as it comes, from the cluster at `address`; "local" starts one on this machine.

    A cluster that asks for no token is refused unless `open_cluster`. `resources` replace what units ask for
    themselves. A unit computes on `device`, or on the best that it finds where it runs: a GPU if it was given one.
    `say` hears where the units run.
    """
    if not open_cluster and os.environ.get(MODE, "token") == "disabled":
        raise InputError(
            f"The environment of vestige run --ray must have {MODE}=token. Got {MODE}=disabled instead, with which "
            "anybody who reaches the cluster can run code on it; --open-cluster allows it."
        )
    with _set(_environment(address, open_cluster)):
        yield from _run(units, address, resources, device, open_cluster, say)


def _run(
    units: Iterable[Unit],
    address: str,
    resources: Resources | None,
    device: str | None,
    open_cluster: bool,
    say: Callable[[str], None],
) -> Iterator[Finished]:
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
        if not open_cluster:
            _refuse_open(ray.get_runtime_context().gcs_address)
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


def _environment(address: str, open_cluster: bool) -> dict[str, str]:
    """What Ray reads from the environment, where the user has not said it."""
    wanted = {} if open_cluster else {MODE: "token"}
    if address == "local":
        wanted |= {BEYOND_LOOPBACK: "0"}
        if not open_cluster and not any(name in os.environ for name in TOKENS):
            wanted |= {TOKENS[0]: secrets.token_hex(32)}  # otherwise Ray leaves one in the user's home
    return {name: value for name, value in wanted.items() if name not in os.environ}


@contextlib.contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            os.environ.pop(name, None)


def _refuse_open(address: str) -> None:
    """Knock at the cluster without a token, in a process of its own; refuse the cluster unless that is turned away."""
    bare = {name: value for name, value in os.environ.items() if name not in TOKENS} | {MODE: "disabled"}
    try:
        code = subprocess.run(
            [sys.executable, "-c", KNOCK, address], env=bare, capture_output=True, timeout=PATIENCE
        ).returncode
    except subprocess.TimeoutExpired:
        code = None
    if code == TURNED_AWAY:
        return
    found = "lets in whoever has none" if code == LET_IN else "could not be asked"
    raise VestigeError(
        f"The Ray cluster at {address} must ask for a token: start it with {MODE}=token (Ray 2.52 or later). "
        f"It {found}; --open-cluster runs on it all the same, where its ports are out of everybody's reach."
    )


def _join(ray: ModuleType, address: str) -> None:
    where = {"_node_ip_address": "127.0.0.1"} if address == "local" else {"address": address}
    try:
        ray.init(**where, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError) as error:
        raise VestigeError(f"No Ray cluster answers at {address}: {str(error).splitlines()[0]}") from error
    except ray.exceptions.AuthenticationError as error:
        said = f"set {TOKENS[0]} or {TOKENS[1]} to that of the cluster"
        raise VestigeError(f"The Ray cluster at {address} does not take this token: {said}.") from error
