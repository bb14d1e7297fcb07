"""Run as a script: a Ray Data set on two machines on this one, gathered there and here.

Prints as JSON, in its last line: the machines, the processes that saw rows, and how far the two states are apart.
"""

import json
import os
import secrets
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # a test tells nobody that it ran
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
import ray
import torch
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent))
from vestige.vestiges.batches import batches, survey
from vestige.vestiges.keep import keep
from vestige.vestiges.on_ray import gathered_on_ray
from vestiges.gathered import State, mixed, state_of

MACHINE = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


def tried(start, times=3):
    """Ray gives a machine 30 s to start and no way to ask for more, which is short where many other things run."""
    try:
        return start()
    except Exception:
        if times == 1:
            raise
        return tried(start, times - 1)


def main():
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # Ray's workers import `vestiges.gathered` by its name
    torch.set_num_threads(1)
    nodes = tried(lambda: Cluster(initialize_head=True, head_node_args=MACHINE))
    tried(lambda: nodes.add_node(**MACHINE))
    ray.init(address=nodes.address, log_to_driver=False)
    table = mixed(20_000)
    data = ray.data.from_arrow([table.slice(i, 500) for i in range(0, len(table), 500)])
    found = survey(data)
    of = state_of(found.schema)
    there = gathered_on_ray(data, of, State.merge, State, rows=300)
    here = None
    for batch in batches(table, 1000):
        here = of(batch) if here is None else here.merge(of(batch))
    first = keep(mixed(800, seed=1))
    a, b = (keep(one, like=first).moments.whole() for one in (data, table))
    apart = [(a.mean - b.mean).abs().max(), (a.covariance() - b.covariance()).abs().max()]
    seen = {
        "kept": float(max(apart)),
        "machines": sum(node["Alive"] for node in ray.nodes()),
        "processes": len(there.processes - {os.getpid()}),
        "gap": there.gap(here),
        "n": [found.n, there.moments.n],
        "counts": there.counts == here.counts,
    }
    ray.shutdown()
    nodes.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
