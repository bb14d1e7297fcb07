"""A smoke run of an experiment, and what must hold of whatever is read from its Records."""

import math

from vestige import runner
from vestige.runner.registry import EXPERIMENTS


def run_smoke(name, out, units=None):
    """The Records of a smoke run, reloaded from disk; `units` cuts how many."""
    planned = runner.plan(name, out, preset="smoke", seeds=1)[:units]
    ids = [finished.record.id for finished in runner.run(planned)]
    records = [unit.finished() for unit in planned]
    assert [r.id for r in records] == ids
    return records


def read(name, records):
    """Lines and pictures of an experiment, with what they must fulfil."""
    experiment = EXPERIMENTS[name]
    lines = experiment.lines(records)
    assert len({(x.label, x.quantity) for x in lines}) == len(lines)
    assert all(math.isfinite(x.ours) for x in lines)
    assert experiment.verdict(records).word in ("reproduced", "partly", "not", "not judged")
    return lines, experiment.figures(records)
