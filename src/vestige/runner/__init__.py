"""(configuration, seed) -> Record: resumable, in parallel, here or on a cluster; settings searched on validation."""

from vestige.runner.claims import (
    Claim,
    Finding,
    NotJudged,
    Rule,
    at_least,
    at_most,
    half,
    in_one_case,
    need,
    shown,
    some,
    those,
)
from vestige.runner.experiment import BEYOND, Experiment, Gap, Line, OnProgress, gap, grouped, line
from vestige.runner.local import run
from vestige.runner.plan import Unit, Validated, configured, parse, plan, search, take_over
from vestige.runner.trained import OnHeldOutRows, Trained
from vestige.runner.unit import Finished, run_unit

__all__ = [
    "BEYOND",
    "Claim",
    "Experiment",
    "Finding",
    "Finished",
    "Gap",
    "Line",
    "NotJudged",
    "OnHeldOutRows",
    "OnProgress",
    "Rule",
    "Trained",
    "Unit",
    "Validated",
    "at_least",
    "at_most",
    "configured",
    "gap",
    "grouped",
    "half",
    "in_one_case",
    "line",
    "need",
    "parse",
    "plan",
    "run",
    "run_unit",
    "search",
    "shown",
    "some",
    "take_over",
    "those",
]
