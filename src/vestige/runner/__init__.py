"""(configuration, seed) -> Record: resumable, in parallel on this machine."""

from vestige.runner.local import Finished, run, run_unit
from vestige.runner.plan import Unit, configured, home, parse, plan

__all__ = ["Finished", "Unit", "configured", "home", "parse", "plan", "run", "run_unit"]
