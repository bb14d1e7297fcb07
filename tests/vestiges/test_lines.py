import math

import pytest
import torch

from vestige.metrics.fid import fid
from vestige.metrics.mmd import kid, mmd
from vestige.metrics.precision_recall import prd, precision_recall_density_coverage
from vestige.vestiges import metric_estimates
from vestige.vestiges.lines import some_rows

NAMES = ["fid", "fid_extrapolated", "kid", "mmd2", "prd_f8_recall", "prd_f1_8_precision"]
NAMES += ["precision", "recall", "density", "coverage"]


def pair(n=200, shift=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p, q, w = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    w = w[:, 0].abs()
    return p, q + shift, w / w.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_every_line_is_the_metric_it_names(weighted):
    p, q, w = pair()
    w = w if weighted else None
    found = metric_estimates(p, q, q_weights=w)
    assert list(found) == NAMES
    neighbours = precision_recall_density_coverage(p, q, q_weights=w)
    curve = prd(p, q, q_weights=w)
    expected = {
        "fid": fid(p, q, q_weights=w).value,
        "fid_extrapolated": fid(p, q, q_weights=w, extrapolate=True, std_error=True).value,
        "kid": kid(p, q, q_weights=w).value,
        "mmd2": mmd(p, q, q_weights=w).value,
        "prd_f8_recall": curve.f8,
        "prd_f1_8_precision": curve.f1_8,
        "precision": neighbours.precision,
        "recall": neighbours.recall,
        "density": neighbours.density,
        "coverage": neighbours.coverage,
    }
    assert {name: line.value for name, line in found.items()} == pytest.approx(expected, rel=1e-9)
    error = kid(p, q, q_weights=w).std_error
    assert found["kid"].high - found["kid"].value == pytest.approx(1.959964 * error, rel=1e-5)
    assert found["prd_f8_recall"].details["same"] == curve.same_law["f8"]


def test_pairs_are_of_a_part_and_the_rest_of_the_whole():
    p, q, _ = pair(300)
    found = {name: e.value for name, e in metric_estimates(p, q, pair_rows=100, seed=1).items()}
    rows_p, rows_q = some_rows(300, 100, 1, "p"), some_rows(300, 100, 1, "q")
    assert len(set(rows_p.tolist())) == 100
    assert found["mmd2"] == pytest.approx(mmd(p[rows_p], q[rows_q]).value)
    assert found["fid"] == pytest.approx(fid(p, q).value)


def test_what_cannot_be_had_says_why():
    p, q, _ = pair(200)
    coarse = metric_estimates(p.round(), q.round())
    assert "rows repeat" in coarse["precision"].reason
    assert math.isnan(coarse["precision"].value)
    assert coarse["kid"].verdict == "ok"
    tiny = metric_estimates(p[:4], q[:4])
    assert "'k'" in tiny["recall"].reason
    assert "fid" in tiny["fid"].reason


def test_steps_are_told():
    p, q, _ = pair(50)
    steps = []
    metric_estimates(p, q, on_step=steps.append)
    assert steps == ["FID", "KID", "MMD", "PRD", "neighbours"]
