"""What a monitor keeps, array by array, and what each of them is an account of."""

from __future__ import annotations

import pandas as pd

from vestige.chains import Chain
from vestige.features import FeatureMap

SAMPLES = "generated samples, and centres of them"
A_SAMPLE = "a number for each generated sample"
MOMENTS = "mean and deviation of real and generated samples together"
MODEL_MOMENTS = "mean and deviation of generated samples"
GROUPS = "means, variances and shares of groups of at least 50 samples, of real ones when a task is learnt"
WEIGHTS = "what was fitted: weights of the ratio"
FIGURE = "a single figure of the fit"
FEATURES = "the feature map"


def inventory(chain: Chain, seen: FeatureMap, keep_moments: bool) -> pd.DataFrame:
    """A row for each array in the folder: where it stands, its shape, and what it is."""
    rows = [("chain", name, shape, _what(name, shape, keep_moments)) for name, shape in chain.kept().items()]
    state = {} if seen.shape_ is None else seen.state_dict()
    what = f"{FEATURES}: {seen.keeps}"
    rows += [("features", name, tuple(x.shape), what) for name, x in state.items()]
    return pd.DataFrame(rows, columns=["part", "name", "shape", "what"])


def _what(name: str, shape: tuple[int, ...], keep_moments: bool) -> str:
    last = name.rpartition(".")[2]
    if shape == ():
        return FIGURE
    if name.startswith("log_ratio_q.") or last in ("log_ratio", "weights", "anchor_weights"):
        return A_SAMPLE
    if last in ("samples", "anchor", "centres"):
        return SAMPLES
    if last in ("shift", "scale"):
        return MOMENTS if keep_moments else MODEL_MOMENTS
    return GROUPS if ".mixtures." in name else WEIGHTS
