"""Run as a script, `two_nodes.py FOLDER`: a Ray cluster of two machines on this one, one of them lost in the middle.

Prints as JSON, in its last line, what was seen: the units in the order in which they finished, the machines at the
start and at the end, how many units moved from one process to another, and the ids of Records that differ from those of
a run on one thread without Ray.
"""

import json
import os
import sys
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent))
import border  # noqa: F401 - makes itself known
from vestige import runner
from vestige.runner import cluster
from vestige.runner.unit import silent

torch.set_num_threads(1)
FIELDS = {"methods": ["vanilla", "ewc_pp_s"], "epochs": 150}


def essence(record):
    """Everything but times and the peak of memory."""
    numbers = {name: x.tolist() for name, x in (record.matrices | record.baseline).items()}
    return json.dumps([record.id, record.config, numbers, {k: v for k, v in record.bytes.items() if k != "peak"}])


def machines():
    return sum(node["Alive"] for node in ray.nodes())


def begun(tries=3):
    """The first machine. Ray gives a node 30 s to start, which is short where many other things run: tried again."""
    try:
        return Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    except Exception:
        if tries == 1:
            raise
        return begun(tries - 1)


def main(folder):
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # Ray's workers import `border` by its name
    log = Path(folder) / "log"
    asked = {"seeds": 3, "overrides": FIELDS | {"log": str(log)}}
    nodes = begun()
    second = nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    nodes.wait_for_nodes()
    seen = {"machines": [machines()], "finished": [], "differ": []}
    for finished in cluster.run(runner.plan("border", f"{folder}/ray", **asked), nodes.address):
        seen["finished"].append(finished.record.id)
        if len(seen["finished"]) == 1:  # both have a unit under way
            nodes.remove_node(second, allow_graceful=False)
    seen["machines"].append(machines())
    seen["again"] = [f.fresh for f in cluster.run(runner.plan("border", f"{folder}/ray", **asked), nodes.address)]
    ray.shutdown()
    nodes.shutdown()
    places = {tuple(line.split()[::2]) for line in log.read_text().splitlines()}
    seen["moved"] = len(places) - len({unit for unit, _ in places})  # units that went on in another process
    for unit in runner.plan("border", f"{folder}/here", **asked):
        here = runner.run_unit(unit, silent)
        there = runner.run_unit(
            unit.__class__(**vars(unit) | {"path": Path(folder, "ray/border", unit.path.name)}), silent
        )
        seen["differ"] += [here.id] if essence(here) != essence(there) else []
    seen["files"] = sorted(path.name for path in Path(folder, "ray/border").iterdir())
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
