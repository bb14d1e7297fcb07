"""Run as a script, `one_node.py FOLDER`: clusters of one machine, started by `vestige run` and without a token.

Prints as JSON, in its last line, what was seen: addresses beyond loopback that were listened on, whether the units were
finished, what was said of a cluster that asks for no token, whether units ran on it when that was allowed, and what was
left in the home of the user.
"""

import json
import os
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # a test tells nobody that it ran
os.environ["HOME"] = str(Path(sys.argv[1]) / "home")
sys.path.insert(0, str(Path(__file__).parent.parent))
import border  # noqa: F401 - makes itself known, to Ray's workers too
from vestige import runner
from vestige.core.errors import VestigeError
from vestige.runner import cluster

ASKED = {"preset": "smoke", "seeds": 1, "overrides": {"methods": ["vanilla"]}}
LISTENS = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def beyond_loopback():
    """Addresses and ports that are listened on, as the kernel writes them."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[3] == LISTENS and line[1].partition(":")[0] not in LOOPBACK}


def main(folder):
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # Ray's workers import `border` by its name
    (folder / "home").mkdir(exist_ok=True)
    before, seen = beyond_loopback(), {"beyond": []}

    def say(text):
        seen["beyond"] += sorted(beyond_loopback() - before)

    units = runner.plan("border", folder / "local", **ASKED)
    seen["local"] = [found.fresh for found in cluster.run(units, "local", say=say)]
    seen["environment"] = [
        name for name in os.environ if name.startswith("RAY_AUTH") or name == cluster.BEYOND_LOOPBACK
    ]
    import ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    del os.environ["RAY_AUTH_MODE"]  # as one who has not thought of it
    units = runner.plan("border", folder / "open", **ASKED)
    try:
        list(cluster.run(units, "ours"))
    except VestigeError as error:
        seen["refusal"] = str(error)
    seen["stored"] = [unit.path.exists() for unit in units]
    seen["allowed"] = [found.fresh for found in cluster.run(units, "ours", open_cluster=True)]
    ray.shutdown()
    seen["home"] = [path.name for path in (folder / "home").rglob("*token*")]
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
