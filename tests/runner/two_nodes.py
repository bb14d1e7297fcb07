"""Run as a script, `two_nodes.py FOLDER`: a Ray cluster of two machines on this one, one of them lost in the middle.

Prints as JSON, in its last line, what was seen: the units in the order in which they finished, the machines at the
start and at the end, how many units moved from one process to another, and the ids of Records that differ from those of
a run on one thread without Ray.
"""

import json
import os
import secrets
import sys
import threading
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # a test tells nobody that it ran
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
import ray
import torch
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent))
import border  # noqa: F401 - makes itself known
from vestige import runner
from vestige.runner import cluster
from vestige.runner.unit import silent

torch.set_num_threads(1)
FIELDS = {"methods": ["vanilla", "ewc_pp_s"], "epochs": 10}
# One worker a machine, and none of the services that this test has no use for: each is a Python that imports Ray.
MACHINE = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


def essence(record):
    """Everything but times and the peak of memory."""
    numbers = {name: x.tolist() for name, x in (record.matrices | record.baseline).items()}
    return json.dumps([record.id, record.config, numbers, {k: v for k, v in record.bytes.items() if k != "peak"}])


def machines():
    return sum(node["Alive"] for node in ray.nodes())


def left(patience=60):
    """Machines that are there once Ray has noticed the loss, of which its workers hear before it does itself."""
    end = time.monotonic() + patience
    while machines() > 1 and time.monotonic() < end:
        time.sleep(0.2)
    return machines()


def tried(start, times=3):
    """Ray gives a machine 30 s to start and no way to ask for more, which is short where many other things run."""
    try:
        return start()
    except Exception:
        if times == 1:
            raise
        return tried(start, times - 1)


def processes(log):
    """unit -> the processes that trained it."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = {}
    for unit, _, process in (line.split() for line in lines if line.count(" ") == 2):
        found.setdefault(unit, set()).add(process)
    return found


def alive(process):
    """Whether a process runs; one that has ended and waits to be noticed does not."""
    try:
        os.kill(int(process), 0)
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def lose(nodes, machine, log, gate):
    """`machine`, as soon as both have a unit under way; no unit goes on before the lost one's process is dead."""
    workers = set()
    while len(workers) < 2:
        time.sleep(0.02)
        workers = set().union(*processes(log).values())
    nodes.remove_node(machine, allow_graceful=False)
    while all(map(alive, workers)):
        time.sleep(0.02)
    gate.touch()


def main(folder):
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # Ray's workers import `border` by its name
    log, gate = Path(folder) / "log", Path(folder) / "gate"
    asked = {"seeds": 2, "overrides": FIELDS | {"log": str(log), "gate": str(gate)}}
    nodes = tried(lambda: Cluster(initialize_head=True, head_node_args=MACHINE))
    second = tried(lambda: nodes.add_node(**MACHINE))
    ray.init(address=nodes.address, log_to_driver=False)
    seen = {"machines": [machines()], "differ": []}
    threading.Thread(target=lose, args=(nodes, second, log, gate), daemon=True).start()
    there = {f.unit.path.name: f.record for f in cluster.run(runner.plan("border", f"{folder}/ray", **asked), "ours")}
    seen["machines"].append(left())
    seen["again"] = [f.fresh for f in cluster.run(runner.plan("border", f"{folder}/ray", **asked), "ours")]
    ray.shutdown()
    nodes.shutdown()
    seen["finished"] = [record.id for record in there.values()]
    seen["moved"] = sum(len(by) > 1 for by in processes(log).values())
    for unit in runner.plan("border", f"{folder}/here", **asked):
        here = runner.run_unit(unit, silent)
        seen["differ"] += [here.id] if essence(here) != essence(there[unit.path.name]) else []
    seen["files"] = sorted(path.name for path in Path(folder, "ray/border").iterdir())
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
