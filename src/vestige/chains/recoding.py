"""A chain behind a feature map that changes: its stand-ins in the codes of the newest map.

A ratio means something only between codes of one map (see `features.base`). Who lets the map change keeps the raw
samples of each task's first step and hands them over, encoded anew, before the next step. The weights stay: they belong
to the samples, not to their codes. Only "anchored" needs no more than that; the others carry ratios of older codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from vestige.chains.admission import listed
from vestige.chains.chain import Chain
from vestige.chains.report import Task
from vestige.core import checks
from vestige.core.checks import ArrayLike


def encode_anew(chain: Chain, stand_ins: Mapping[Task, ArrayLike]) -> None:
    """Give `chain` the same samples of every stand-in, in the same order, as they are encoded now."""
    owner = "encode_anew"
    if not chain.tasks or set(stand_ins) != set(chain.tasks):
        must = f"given for every known task ({listed(chain.tasks) or 'there is none'})"
        checks.refuse("stand_ins", owner, must, listed(stand_ins) or "none")
    codes = {}
    for place, task in enumerate(chain.tasks):
        name, n = f"stand_ins[{task!r}]", len(chain.stand_in(task)[0])
        codes[place] = checks.samples(stand_ins[task], name, owner, width=chain._width)
        if len(codes[place]) != n:
            checks.refuse(name, owner, f"the {n} samples of its first step", len(codes[place]))
    state = chain.strategy.encoded_anew(chain._state, codes)
    if state is None:
        checks.refuse("strategy", owner, "'anchored', which carries no ratio of older codes", chain.strategy.name)
    chain._state = state
