"""One plain sentence about two sample sets, made of the p-value, the classifier's accuracy and the weights' verdict."""

from __future__ import annotations

import math

from vestige.core import Estimate
from vestige.ratios.weights import Diagnosis

# The level of the test, and the words for how often a classifier tells the two apart on rows it has not seen.
ALPHA = 0.05
WORDS = ((0.55, "slightly"), (0.65, "moderately"), (0.8, "clearly"), (0.95, "strongly"), (math.inf, "almost entirely"))


def conclude(
    p_value: float,
    js: Estimate,
    diagnosis: Diagnosis,
    real: str = "real",
    fake: str = "fake",
    *,
    blind: str | None = None,
) -> str:
    """The sentence: is there a difference, how large is it, and would weights mend it."""
    accuracy = diagnosis.accuracy if diagnosis.accuracy is not None else 0.5
    if p_value > ALPHA:
        bound = "" if math.isnan(js.high) else f", and their JS divergence is at most {max(js.high, 0):.2g} nats"
        return (
            f"No difference between {real} and {fake} was found (p = {p_value:.2g}): a classifier tells their rows "
            f"apart {accuracy:.1%} of the time{bound}."
        )
    if blind:
        return f"The rows of {fake} differ from those of {real} (p = {p_value:.2g}); how much is not known: {blind}."
    word = next(word for limit, word in WORDS if accuracy < limit)
    size = "" if math.isnan(js.value) else f", JS {js.value:.2g} [{max(js.low, 0):.2g}, {js.high:.2g}] nats"
    mend = {
        "good": f"weights can correct it, and leave {diagnosis.ess_fraction:.0%} of the rows",
        "usable with care": f"weights can correct it in part (effective share of rows {diagnosis.ess_fraction:.1%})",
        "unreliable": "weights cannot correct it",
    }[diagnosis.verdict]
    return (
        f"The rows of {fake} differ {word} from those of {real} (p = {p_value:.2g}): a classifier tells them apart "
        f"{accuracy:.1%} of the time{size}; {mend}."
    )
