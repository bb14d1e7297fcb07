"""A smoke run of an experiment, and what must hold of whatever is read from its Records."""

import math

from vestige import runner
from vestige.runner.registry import EXPERIMENTS


def run_smoke(name, out, units=None, only=lambda config: True):
    """The Records of a smoke run, reloaded from disk; `units` cuts how many, `only` says which."""
    planned = [unit for unit in runner.plan(name, out, preset="smoke", seeds=1) if only(unit.config)][:units]
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
    said = experiment.verdict(records)
    assert (said.word, said.claims) == ("no verdict", "too small to judge"), "a smoke run is not judged"
    assert experiment.by_rule(records).word in ("reproduced", "partly", "not", "not judged"), "but its rule applies"
    return lines, experiment.figures(records)
