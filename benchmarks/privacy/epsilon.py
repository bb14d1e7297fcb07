"""What a vestige with an epsilon is worth: errors, intervals, level, power and attacks, from stored results.

Eight features, n = 10 000 rows kept, epsilon 1, delta 1e-6, public rows (5000 others) or declared bounds; beside each
figure stands the same without noise ("no noise": the same sums, the same code). New rows are 2000, or 500 and 2000 for
power. The truth of a distance is that of LARGE rows of both sides under the same public query, without noise.

- Relative error: root mean square, over references, of the private value less the one without noise, over the truth;
  "in all" it is less the truth itself, so sampling is in it. Of shifts of half a scale, stretches by a half, and the
  loss of seven tenths of a cluster.
- Intervals: share that holds the truth.
- Level: share of p <= .05 where nothing differs. Power: the same for the drifts of `beyond-vestige`, both sizes.
- Attacks, ATTACKS files with a row and as many without it. "All others": somebody who knows all other rows and the
  scale of the noise scores a file by the product of the rest with the row's own vector, for the row that moves the sums
  most. That is the likelihood ratio under Gaussian noise, so nobody does better: its AUC is Phi(1 / (sigma sqrt 2)),
  sigma the noise over the sensitivity. "Moments": (k - m)' S^-1 (f(x) - m), with k the released means, m and S those of
  other rows, for members and for rows that were not in. Beside them what (epsilon, delta) allows to anybody.

Shares of the budget, the number of frequencies and the radius were chosen on the families of CHOSEN_ON; those of
REPORTED were not looked at before.

    python -m benchmarks privacy                                    # these tables, after those of attacks by default
    python -m benchmarks.privacy.epsilon --run --rows mnist --frame public --references 12
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "privacy"
DATA = Path(os.environ.get("VESTIGE_DATA", Path.home() / ".cache" / "vestige"))
VERSION = 1
D, N, PUBLIC, LARGE = 8, 10_000, 5000, 60_000
EPSILON, DELTA = 1.0, 1e-6
M = 2000
POWER_M = (500, 2000)
NULLS = 4  # tests of nothing a reference, of either size
ATTACKS = 400
ALPHA = 0.05
HOWS = ("public", "bounds")
JS_FILE, JS_M, JS_SIZES = FOLDER / "epsilon-js.json", 3000, (0.0, 0.3, 0.7)
CHOSEN_ON, REPORTED = ("normal", "gamma"), ("mixture", "covertype", "mnist")
SIZED = {"shift": 0.5, "scale": 0.5, "lost modes": 0.7}
Draw = Callable[[np.random.Generator, int], np.ndarray]


def _normal(rng: np.random.Generator, n: int) -> np.ndarray:
    mix = np.eye(D) + 0.4 * np.random.default_rng(1).normal(size=(D, D))
    return rng.normal(size=(n, D)) @ mix


def _gamma(rng: np.random.Generator, n: int) -> np.ndarray:
    common = rng.gamma(2, 1, (n, 1))
    return rng.gamma(np.linspace(1, 5, D), 1, (n, D)) + common * np.linspace(0, 1, D)


def _mixture(rng: np.random.Generator, n: int) -> np.ndarray:
    """Five clusters of heavy tails."""
    centres = 2 * np.random.default_rng(2).normal(size=(5, D))
    return centres[rng.choice(5, n, p=[0.35, 0.25, 0.2, 0.15, 0.05])] + rng.standard_t(5, (n, D))


@functools.cache
def _stored_rows(name: str) -> np.ndarray:
    if name == "covertype":
        from vestige_papers.beyond.drifting_tables import covertype

        rows = covertype().rows(np.random.default_rng(0), 10**9)
        return rows[:, [0, 1, 2, 3, 5, 6, 7, 9]]
    x = np.load(DATA / "mnist.npz")["train_x"].reshape(60_000, -1).astype(np.float32) / 255
    x = x - x.mean(0)
    _, vectors = np.linalg.eigh(x.T @ x)
    return (x @ vectors[:, ::-1][:, :D]).astype(float)


def _of_rows(name: str) -> Draw:
    return lambda rng, n: (rows := _stored_rows(name))[rng.choice(len(rows), n, replace=n > len(rows))]


FAMILIES: dict[str, Draw] = {
    "normal": _normal,
    "gamma": _gamma,
    "mixture": _mixture,
    "covertype": _of_rows("covertype"),
    "mnist": _of_rows("mnist"),
}


@functools.cache
def _public(family: str, how: str) -> Any:
    """The query of a family, made of public rows alone, and what drifts need to know of its columns."""
    from vestige_papers.beyond.drifting_tables import changeable

    rng = np.random.default_rng([3, sum(family.encode())])
    public = FAMILIES[family](rng, PUBLIC)
    wide = {f"x{j}": (float(a), float(b)) for j, (a, b) in enumerate(np.quantile(public, [0.001, 0.999], axis=0).T)}
    kept = _keep(public[:300], {"public": public} if how == "public" else {"bounds": wide})
    return kept, changeable(public, ("number",) * D, rng)


def _keep(rows: np.ndarray, options: dict[str, Any]) -> Any:
    from vestige import keep

    return keep(rows, epsilon=EPSILON, delta=DELTA, **options)


def _without_noise(kept: Any, cells: Any) -> Any:
    """The same sums as they are."""
    from dataclasses import replace

    query = kept.released.query
    return replace(kept.released, sums=query.sums(cells), variance=0.0)


def _changed(family: str, how: str, drift: str, size: float, rows: np.ndarray) -> np.ndarray:
    from vestige_papers.beyond.drifting_tables import DRIFTS

    rng = np.random.default_rng(sum(drift.encode()))
    return DRIFTS[drift][0](rows, _public(family, how)[1], rng, size)


def _resized(family: str, how: str, drift: str, rows: np.ndarray) -> np.ndarray:
    """A change whose size is fixed: by constants of public rows, so that its truth is one number."""
    _, of = _public(family, how)
    if drift == "lost modes":
        return _changed(family, how, drift, SIZED[drift], rows)
    rng = np.random.default_rng([3, sum(family.encode())])
    column = rows[:, of.dependent[0]].copy()
    low, middle, high = np.quantile(FAMILIES[family](rng, PUBLIC)[:, of.dependent[0]], [0.1, 0.5, 0.9])
    out = rows.copy()
    moved = (
        column + SIZED[drift] * (high - low) / 2.56 if drift == "shift" else column + SIZED[drift] * (column - middle)
    )
    out[:, of.dependent[0]] = moved
    return out


@functools.cache
def truth(family: str, how: str, drift: str) -> dict[str, float]:
    """FID and MMD^2 of LARGE rows and the same rows changed, so that most of their own sampling cancels."""
    from vestige.vestiges.private.answers import frechet

    kept, _ = _public(family, how)
    rows = FAMILIES[family](np.random.default_rng([5, sum(family.encode())]), LARGE)
    query, spans = kept.released.query, kept.released.spans()

    def means(x: np.ndarray) -> Any:
        parts = np.array_split(x, 20)
        return sum(query.values(kept.cells(part).cells).sum(0) for part in parts) / len(x)

    p, q = means(rows), means(_resized(family, how, drift, rows))
    fid = float(frechet(p[None, spans["moments"]], q[None, spans["moments"]], query.d)[0]) * query.radius**2
    return {"fid": fid, "mmd2": float((p - q)[spans["random"]].square().sum())}


def _sides(family: str, how: str, reference: int, part: str) -> tuple[np.random.Generator, Callable[..., Any]]:
    """A reference that is kept, and what holds new rows against it, with noise and without."""
    from vestige.vestiges.private.answers import Against

    like, _ = _public(family, how)
    rng = np.random.default_rng([7, reference, sum((family + how + part).encode())])
    rows = FAMILIES[family](rng, N)
    kept = _keep(rows, {"like": like})
    sides = {"private": kept.released, "no noise": _without_noise(kept, kept.cells(rows).cells)}

    def against(new: np.ndarray) -> dict[str, Any]:
        values = kept.released.query.values(kept.cells(new).cells)
        return {side: Against(one, values, reference) for side, one in sides.items()}

    return rng, against


def size_cell(family: str, how: str, reference: int) -> list[dict[str, Any]]:
    """FID and MMD^2 of three drifts."""
    from vestige.vestiges.private.answers import metrics_of

    rng, against = _sides(family, how, reference, "size")
    found = []
    for drift in SIZED:
        new = _resized(family, how, drift, FAMILIES[family](rng, 2 * M))[:M]
        row: dict[str, Any] = {"drift": drift}
        for side, one in against(new).items():
            for name, estimate in metrics_of(one, 0.95, lambda _: None).items():
                if name in ("fid_extrapolated", "mmd2"):
                    row |= {f"{name} {side}": [estimate.value, estimate.low, estimate.high]}
        found.append(row)
    return found


def level_cell(family: str, how: str, reference: int) -> list[dict[str, Any]]:
    """Tests of nothing."""
    from vestige.vestiges.private.answers import drift_of

    rng, against = _sides(family, how, reference, "")
    sizes = [POWER_M[k % 2] for k in range(2 * NULLS)]
    drawn = [against(FAMILIES[family](rng, m))["private"] for m in sizes]
    return [{"m": m, "private": drift_of(one).p_value} for m, one in zip(sizes, drawn, strict=True)]


def power_cell(family: str, how: str, reference: int) -> list[dict[str, Any]]:
    """Tests of every drift."""
    from vestige.vestiges.private.answers import drift_of
    from vestige_papers.beyond.drifting_tables import DRIFTS

    rng, against = _sides(family, how, reference, "power")
    found = []
    for drift, (_, sizes) in DRIFTS.items():
        m, size = POWER_M[reference % 2], sizes[reference // 2 % 2]
        new = _changed(family, how, drift, size, FAMILIES[family](rng, 3 * m))[:m]
        p = {side: drift_of(one).p_value for side, one in against(new).items()}
        found.append({"drift": drift, "m": m, "size": size} | p)
    return found


# What is measured, and how often rows are drawn anew for it.
PARTS: dict[str, tuple[Callable[..., list[dict[str, Any]]], int]] = {
    "size": (size_cell, 16),
    "level": (level_cell, 16),
    "power": (power_cell, 8),
}


def attacks(family: str, how: str) -> dict[str, float]:
    """AUC of both attacks, and what they may be."""
    import torch
    from scipy.stats import norm, rankdata

    from vestige.vestiges.private.noise import released

    kept, _ = _public(family, how)
    query, scale = kept.released.query, math.sqrt(kept.released.variance)
    rng = np.random.default_rng([9, sum(family.encode())])
    rows = kept.cells(FAMILIES[family](rng, N)).cells
    sums, own = query.sums(rows), query.contributions(rows).double()
    most = own[own.norm(dim=1).argmax()]

    def auc(inside: np.ndarray, outside: np.ndarray) -> float:
        ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)].sum()
        return float((ranks - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside)))

    scores: dict[int, list[float]] = {0: [], 1: []}
    for k in range(2 * ATTACKS):
        noisy = released(sums + (k % 2) * most.long(), scale, DELTA)
        scores[k % 2].append(float((noisy - sums).double() @ most))
    others = query.contributions(kept.cells(FAMILIES[family](rng, 4000)).cells).double()
    mean, fresh = others.mean(0), query.contributions(kept.cells(FAMILIES[family](rng, 4000)).cells).double()
    spread = torch.cov(others.T) + (scale / math.sqrt(N)) ** 2 * torch.eye(len(mean), dtype=torch.float64)
    turned = torch.linalg.solve(spread, released(sums, scale, DELTA).double() / N - mean)
    by_moments = [((side - mean) @ turned).numpy() for side in (own[:4000], fresh)]
    return {
        "all others": auc(np.array(scores[1]), np.array(scores[0])),
        "of the Gaussian": float(norm.cdf(float(most.norm()) / scale / math.sqrt(2))),
        "moments": auc(*by_moments),
        "anybody": kept.guarantee.auc_bound,
    }


def js_cell(how: str, size: float, reference: int) -> dict[str, Any]:
    """JS of normal rows of which one column is shifted by so many deviations, and the truth by quadrature."""
    from vestige.vestiges.private.answers import Against, js_of

    rng = np.random.default_rng([13, reference, round(10 * size), len(how)])
    covariance = np.cov(_normal(np.random.default_rng(0), 200_000).T)
    step = np.zeros(D)
    step[2] = size * math.sqrt(covariance[2, 2])
    apart = math.sqrt(step @ np.linalg.solve(covariance, step))
    t = np.linspace(-10, 10 + apart, 40_001)
    p, q = (np.exp(-((t - c) ** 2) / 2) / math.sqrt(2 * math.pi) for c in (0, apart))
    true = float(np.trapezoid(p * np.log(2 * p / (p + q)) + q * np.log(2 * q / (p + q)), t)) / 2
    public = _normal(rng, PUBLIC)
    public[:, 0] += 0.2
    wide = {f"x{j}": (-4 * math.sqrt(v), 4 * math.sqrt(v)) for j, v in enumerate(covariance.diagonal())}
    kept = _keep(_normal(rng, N), {"public": public} if how == "public" else {"bounds": wide})
    query, cells = kept.released.query, kept.cells(_normal(rng, JS_M) + step).cells
    against, options = Against(kept.released, query.values(cells), reference), {"estimator": "auto", "rows": 20_000}
    found, _ = js_of(against, kept._base, query.points(cells), level=0.95, **options)
    ends = [found.value, found.low, found.high] if found.known else None
    return {"how": how, "size": size, "truth": true, "js": ends, "told": found.verdict}


def run_js(references: int) -> None:
    """Measure what is missing."""
    from vestige.store.objects import write_bytes

    done = stored_js()
    for reference in range(references):
        for how in HOWS:
            for size in JS_SIZES:
                key = f"{how}/{size}/{reference}"
                if key not in done:
                    done[key] = _short(js_cell(how, size, reference))
                    write_bytes(JS_FILE, (json.dumps(done, indent=0, allow_nan=False) + "\n").encode())
                    print(key, done[key], file=sys.stderr, flush=True)


def stored_js() -> dict[str, Any]:
    """By frame, size and reference."""
    return json.loads(JS_FILE.read_text()) if JS_FILE.exists() else {}


def js_table() -> list[list[str]]:
    """A frame and a size a row."""
    out = []
    for how in HOWS:
        for size in JS_SIZES:
            mine = [one for one in stored_js().values() if (one["how"], one["size"]) == (how, size)]
            told = [one for one in mine if one["told"] != "refused"]
            figures = ["-", "-", "-"]
            if told:
                off = math.sqrt(np.mean([(one["js"][0] - one["truth"]) ** 2 for one in told]))
                low = np.mean([one["js"][1] <= one["truth"] for one in told])
                holds = np.mean([one["js"][1] <= one["truth"] <= one["js"][2] for one in told])
                figures = [f"{off:.4f}", f"{low:.2f}", f"{holds:.2f}"]
            if mine:
                out.append(
                    [how, f"{size:g}", f"{mine[0]['truth']:.4f}", *figures, str(len(mine) - len(told)), str(len(mine))]
                )
    return out


def file_of(family: str, how: str) -> Path:
    return FOLDER / f"epsilon-{family}-{how}.json"


def stored(family: str, how: str) -> dict[str, Any]:
    """Finished references of this version by part and number, the truth, and attacks."""
    file = file_of(family, how)
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("version") == VERSION:
        return found
    return {"version": VERSION, "truth": {}, "attacks": {}, "parts": {part: {} for part in PARTS}}


def run(family: str, how: str, part: str, references: int | None) -> None:
    """Measure what is missing."""
    done = stored(family, how)
    done["truth"] = done["truth"] or {drift: truth(family, how, drift) for drift in SIZED}
    done["attacks"] = done["attacks"] or attacks(family, how)
    cell, most = PARTS[part]
    for reference in range(references or most):
        if str(reference) not in done["parts"][part]:
            start = time.process_time()
            done["parts"][part][str(reference)] = cell(family, how, reference)
            _write(family, how, done)
            print(
                f"{family} {how} {part} {reference}: {time.process_time() - start:.1f} s", file=sys.stderr, flush=True
            )


def _write(family: str, how: str, done: dict[str, Any]) -> None:
    """A reference a line."""
    from vestige.store.objects import write_bytes

    known = {key: value for key, value in _short(done).items() if key != "parts"}
    parts = [
        f'"{part}":{{\n' + ",\n".join(f'"{k}":{json.dumps(v, separators=(",", ":"))}' for k, v in cells.items()) + "}"
        for part, cells in _short(done["parts"]).items()
    ]
    write_bytes(file_of(family, how), (json.dumps(known)[:-1] + ', "parts":{\n' + ",\n".join(parts) + "}}\n").encode())


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---- tables


def _rows(family: str, how: str, part: str) -> list[dict[str, Any]]:
    return [row for cell in stored(family, how)["parts"][part].values() for row in cell]


def sizes_table(families: Sequence[str]) -> list[list[str]]:
    """A family and a drift a row: the truth, relative errors, and shares of intervals that hold it."""
    out = []
    for family in families:
        for how in HOWS:
            found, known = _rows(family, how, "size"), stored(family, how)["truth"]
            for drift in SIZED if found else ():
                mine = [row for row in found if row["drift"] == drift]
                cells = [family, how, drift]
                for name in ("fid_extrapolated", "mmd2"):
                    true = known[drift][name.removesuffix("_extrapolated")]
                    private = np.array([row[f"{name} private"] for row in mine])
                    plain = np.array([row[f"{name} no noise"] for row in mine])
                    by_noise = math.sqrt(np.mean((private[:, 0] - plain[:, 0]) ** 2)) / true
                    in_all = math.sqrt(np.mean((private[:, 0] - true) ** 2)) / true
                    holds = np.mean((private[:, 1] <= true) & (true <= private[:, 2]))
                    cells += [f"{true:.2g}", f"{by_noise:.3f}", f"{in_all:.3f}", f"{holds:.2f}"]
                out.append([*cells, str(len(mine))])
    return out


def tests_table(families: Sequence[str]) -> list[list[str]]:
    """A family a row: level, and power with noise and without."""
    out = []
    for family in families:
        for how in HOWS:
            null, power = _rows(family, how, "level"), _rows(family, how, "power")
            if null:
                level = float(np.mean([row["private"] <= ALPHA for row in null]))
                error = math.sqrt(level * (1 - level) / len(null))
                shares = [np.mean([row[side] <= ALPHA for row in power]) for side in ("private", "no noise")]
                found = [f"{level:.3f} ± {error:.3f}", str(len(null)), *(f"{x:.3f}" for x in shares), str(len(power))]
                out.append([family, how, *found])
    return out


def attacks_table(families: Sequence[str]) -> list[list[str]]:
    """A family a row: the AUC of both attacks and of the best there is."""
    out = []
    for family in families:
        for how in HOWS:
            found = stored(family, how)["attacks"]
            if found:
                names = "moments", "all others", "of the Gaussian", "anybody"
                out.append([family, how, *(f"{found[name]:.3f}" for name in names)])
    return out


TABLES = {
    "n = 10 000, epsilon 1: errors and intervals": (
        sizes_table,
        ("rows", "frame", "drift", "FID", "error by noise", "in all", "interval holds", "MMD^2", "error by noise",
         "in all", "interval holds", "references"),
    ),
    "n = 10 000, epsilon 1: drift test": (
        tests_table,
        ("rows", "frame", "level at 5 %", "tests", "power", "without noise", "tests"),
    ),
    "n = 10 000, epsilon 1: AUC of attacks": (
        attacks_table,
        ("rows", "frame", "moments", "all other rows known", "best possible", "allowed by (epsilon, delta)"),
    ),
}  # fmt: skip


def tables() -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Title, heads and rows of every table of what is stored: families that nothing was chosen on, then the others."""
    both = (("", REPORTED), (", families that settings were chosen on", CHOSEN_ON))
    made = [(title + told, heads, table(some)) for title, (table, heads) in TABLES.items() for told, some in both]
    heads = "frame", "shift", "true JS", "error", "low end below it", "interval holds", "refused", "references"
    made.append(("n = 10 000, epsilon 1: JS of 3000 normal rows, nats", heads, js_table()))
    return [one for one in made if one[2]]


def figures(family: str, how: str) -> dict[str, float]:
    """What the targets are about: over all drifts, errors by noise, and the share of intervals that hold."""
    found, known = _rows(family, how, "size"), stored(family, how)["truth"]
    out: dict[str, float] = {}
    holds = []
    for name in ("fid_extrapolated", "mmd2"):
        off = []
        for row in found:
            true = known[row["drift"]][name.removesuffix("_extrapolated")]
            (value, low, high), plain = row[f"{name} private"], row[f"{name} no noise"][0]
            off.append((value - plain) / true)
            holds.append(low <= true <= high)
        out[f"error of {name.removesuffix('_extrapolated')}"] = math.sqrt(np.mean(np.square(off)))
    out["intervals that hold"] = float(np.mean(holds))
    out["level"] = float(np.mean([row["private"] <= ALPHA for row in _rows(family, how, "level")]))
    power = _rows(family, how, "power")
    shares = [float(np.mean([row[side] <= ALPHA for row in power])) for side in ("no noise", "private")]
    attacked = stored(family, how)["attacks"]
    over = max(attacked["all others"], attacked["moments"]) - attacked["anybody"]
    return out | {"power lost": shares[0] - shares[1], "AUC above what is allowed": over}


TARGETS: dict[str, tuple[float, float]] = {
    "error of fid": (0.0, 0.15),
    "error of mmd2": (0.0, 0.15),
    "intervals that hold": (0.92, 1.0),
    "level": (0.035, 0.065),
    "power lost": (-1.0, 0.10),
    "AUC above what is allowed": (-1.0, 0.0),
}


def verdicts() -> list[str]:
    """A sentence a target: what was measured on the families that nothing was chosen on, and which of them miss it.

    Level and intervals are those of all their tests together: those of one alone are too few for so narrow a target.
    """
    both = [(family, how) for family in REPORTED for how in HOWS if _rows(family, how, "size")]
    measured = {where: figures(*where) for where in both}
    counts = {"level": [len(_rows(*where, "level")) for where in both]}
    counts["intervals that hold"] = [2 * len(_rows(*where, "size")) for where in both]
    out = []
    for target, (low, high) in TARGETS.items() if measured else ():
        values = {f"{family} ({how})": one[target] for (family, how), one in measured.items()}
        span = f"from {min(values.values()):.3f} to {max(values.values()):.3f}"
        if target in counts:
            number = sum(counts[target])
            values = {"all": sum(x * k for x, k in zip(values.values(), counts[target], strict=True)) / number}
            span = f"{values['all']:.3f} of {number}, {span}"
        missed = [f"{where} {x:.3f}" for where, x in values.items() if not low <= x <= high]
        told = f"not met by {', '.join(missed)}" if missed else "met"
        out.append(f"{target} in [{low:g}, {high:g}]: {told}; {span}")
    return out


def _print(title: str, heads: Sequence[str], rows: list[list[str]], markdown: bool) -> None:
    if markdown:
        print(f"**{title}**\n\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, title=title)
    for row in rows:
        table.add_row(*row)
    Console(width=180).print(table)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.privacy.epsilon", description=__doc__)
    parser.add_argument("--run", action="store_true", help="measure what is missing")
    parser.add_argument("--js", action="store_true", help="measure what is missing of JS")
    parser.add_argument("--rows", action="append", choices=FAMILIES, help="of these rows alone; may be repeated")
    parser.add_argument("--frame", choices=HOWS, help="of this frame alone")
    parser.add_argument("--part", choices=PARTS, help="this part alone")
    parser.add_argument("--references", type=int, help="how often rows are drawn anew")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    options = parser.parse_args(given)
    if options.js:
        run_js(options.references or 4)
        return 0
    if options.run:
        for family in options.rows or FAMILIES:
            for how in [options.frame] if options.frame else HOWS:
                for part in [options.part] if options.part else PARTS:
                    run(family, how, part, options.references)
        return 0
    for one in tables():
        _print(*one, options.markdown)
    print("\n".join(verdicts()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
