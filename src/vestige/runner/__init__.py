"""(configuration, seed) -> Record: resumable, in parallel, here or on a cluster; settings searched on validation."""

from vestige.runner.grid import Search, Validated, search
from vestige.runner.local import run
from vestige.runner.plan import Unit, configured, home, parse, plan
from vestige.runner.unit import Finished, run_unit

__all__ = [
    "Finished",
    "Search",
    "Unit",
    "Validated",
    "configured",
    "home",
    "parse",
    "plan",
    "run",
    "run_unit",
    "search",
]
