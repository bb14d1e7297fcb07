"""`compare` end to end, on features as wide as an Inception network's and on a table of a million rows.

Beside it, on the same features, what torch-fidelity computes of two sets: FID, KID (100 subsets of 1000) and precision
and recall. It has neither divergences nor intervals, so its seconds are a yardstick and no target; the largest sets are
not given to it, since its precision and recall hold every distance at once. The note says what the plan had announced,
and how much memory was used beside the data. Each row is run once: these take minutes.
"""

from __future__ import annotations

import numpy as np
import torch

import vestige as vs
from benchmarks.metrics import _peer
from benchmarks.timing import Row, cpu_seconds
from vestige.core.machine import PeakMemory

SIZES = ((10_000, 2048), (100_000, 2048), (1_000_000, 10), (5000, 64))
PEER_ROWS = 10_000


def features(n: int, d: int, shift: float, seed: int) -> torch.Tensor:
    """Rectified features of a falling spectrum, the first direction shifted."""
    draw, mixing = np.random.default_rng(seed), np.random.default_rng(0)
    rank = min(d, 256)
    basis = (mixing.normal(size=(rank, d)) * np.linspace(1, 0.05, rank)[:, None]).astype("float32")
    out = np.empty((n, d), dtype="float32")
    for start in range(0, n, 10_000):
        rows = min(10_000, n - start)
        z = draw.normal(size=(rows, rank)).astype("float32")
        z[:, 0] += shift
        noise = draw.normal(size=(rows, d)).astype("float32")
        out[start : start + rows] = np.maximum(0.1 * z @ basis + 0.3 + 0.05 * noise, 0)
    return torch.from_numpy(out)


def row(n: int, d: int) -> Row:
    p, q = features(n, d, 0.0, 1), features(n, d, 0.3, 2)
    plans: list = []
    memory = PeakMemory()
    before = memory.peak()
    ours = cpu_seconds(lambda: vs.compare(p, q, on_plan=plans.append))
    used = (memory.peak() - before) / 1e9
    plan = plans[0]
    note = (
        f"announced {plan.seconds:.0f} s, {plan.bytes / 1e9:.1f} GB; used {used:.1f} GB beside {2 * n * d * 4e-9:.1f}"
    )
    peer = None
    modules = [_peer("torch_fidelity", f"torch_fidelity.metric_{name}") for name in ("fid", "kid", "prc")]
    if d > 1000 and n <= PEER_ROWS and all(modules):
        fid, kid, prc = modules

        def theirs() -> None:
            fid.fid_statistics_to_metric(*(fid.fid_features_to_statistics(side) for side in (p, q)), False)
            kid.kid_features_to_metric(p, q, verbose=False)
            prc.prc_features_to_metric(q, p, verbose=False)

        peer = cpu_seconds(theirs)
    return Row(f"compare {n} x {d}", ours, "torch_fidelity", peer, note=note)


def rows() -> list[Row]:
    return [row(n, d) for n, d in SIZES]
