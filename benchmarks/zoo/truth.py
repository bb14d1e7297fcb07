"""The truth of a pair: exact where it knows it, else by Monte Carlo from its exact log-ratio.

Monte Carlo averages a over p and b over q, bounded for js and hellinger (`two_sided` of the f family). For any h,
E_p[h q/(p + q)] = E_q[h p/(p + q)]; with h = 1, x, x^2 (x = log p/q) these differences have mean 0 and are taken off by
regression (control variates), which leaves the mean as it is and makes its error smaller. Where hellinger is known
exactly, its own error is one more: js of near-equal pairs differs from it in the fourth order alone.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, log_expit

from benchmarks.zoo.pair import DIVERGENCES, KEYS, TRUTH, Pair, stored

CHUNK = 100_000
MOST = 2_000_000  # draws of either side
PRECISION = 0.002  # draws double until every standard error is below this share of its value
LOG_2 = math.log(2)


def log_ratios(pair: Pair, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The log-ratio at n draws of p and at n draws of q."""
    sizes = [min(CHUNK, n - start) for start in range(0, n, CHUNK)]
    at_p, at_q = (
        np.concatenate([pair.log_ratio(draw(size, rng)) for size in sizes]) for draw in (pair.draw_p, pair.draw_q)
    )
    return at_p, at_q


def by_draws(
    at_p: np.ndarray, at_q: np.ndarray, keys: Sequence[str] = DIVERGENCES, hellinger: float | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Divergences and their standard errors from log-ratios at draws of p and of q; `hellinger` if it is known."""
    zero_p, zero_q = np.zeros_like(at_p), np.zeros_like(at_q)
    sides = {
        "kl": (at_p, zero_q),
        "reverse_kl": (zero_p, -at_q),
        "js": ((LOG_2 + log_expit(at_p)) / 2, (LOG_2 + log_expit(-at_q)) / 2),
        "hellinger": tuple((1 - np.sqrt(4 * expit(x) * expit(-x))) / 2 for x in (at_p, at_q)),
    }
    over_p, over_q = _controls(at_p, -1), _controls(at_q, 1)
    if hellinger is not None:
        a, b = sides["hellinger"]
        over_p, over_q = np.vstack([over_p, a - hellinger]), np.vstack([over_q, -b])
    values, errors = {}, {}
    for key in keys:
        a, b = sides[key]
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            values[key], errors[key] = math.inf, 0.0
        else:
            values[key], errors[key] = _controlled(a, b, over_p, over_q)
    return values, errors


def _controls(x: np.ndarray, sign: int) -> np.ndarray:
    finite = np.where(np.isfinite(x), x, 0.0)
    weight = np.where(np.isfinite(x), expit(sign * x), 0.0)
    return np.stack([weight, weight * finite, weight * finite**2])


def _controlled(a: np.ndarray, b: np.ndarray, over_p: np.ndarray, over_q: np.ndarray) -> tuple[float, float]:
    at_p, at_q = np.vstack([a, over_p]), np.vstack([b, -over_q])
    cov = np.cov(at_p) / len(a) + np.cov(at_q) / len(b)
    means = at_p.mean(1) + at_q.mean(1)
    beta = np.linalg.lstsq(cov[1:, 1:], cov[1:, 0], rcond=None)[0]
    variance = cov[0, 0] - beta @ cov[1:, 0]
    return float(means[0] - beta @ means[1:]), float(max(variance, 0.0) ** 0.5)


def of(pair: Pair) -> dict:
    """The row of truth.json: the values, and under "se" their standard errors (0 where exact)."""
    known = pair.exact()
    errors = dict.fromkeys(known, 0.0)
    missing = [key for key in KEYS if key not in known]
    if missing:
        rng = np.random.default_rng(zlib.crc32(pair.name.encode()))
        at_p, at_q = log_ratios(pair, 2 * CHUNK, rng)
        values, found = by_draws(at_p, at_q, missing, known.get("hellinger"))
        while len(at_p) < MOST and any(found[key] > PRECISION * values[key] for key in missing):
            more_p, more_q = log_ratios(pair, min(len(at_p), MOST - len(at_p)), rng)
            at_p, at_q = np.concatenate([at_p, more_p]), np.concatenate([at_q, more_q])
            values, found = by_draws(at_p, at_q, missing, known.get("hellinger"))
        known, errors = known | values, errors | found
    return {key: _digits(known[key]) for key in KEYS} | {"se": {key: _digits(errors[key]) for key in KEYS}}


def _digits(value: float) -> float:
    return float(f"{value:.12g}") if abs(value) > 1e-14 else 0.0


def write(pairs: dict[str, Pair], prefix: str) -> None:
    """truth.json with a row for each pair; rows whose name does not begin with `prefix` are kept."""
    table = {} if not prefix else {name: row for name, row in stored().items() if not name.startswith(prefix)}
    for name, pair in pairs.items():
        if name in table:
            continue
        table[name] = of(pair)
        print(name, {key: value for key, value in table[name]["se"].items() if value}, flush=True)
    TRUTH.write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(table[name])}' for name in pairs) + "\n}\n")
