"""Forgetting, intransigence and agreement on matrices small enough to do by hand."""

import math

import pytest
import torch

from vestige.continual.generation import agreement, forgetting, intransigence, rank_correlation
from vestige.continual.record import Record

NAN = math.nan


def record(**matrices):
    tensors = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in matrices.items()}
    values = {"fid.real": torch.tensor([1.0, 2.0, 3.0]), "labels.real": torch.tensor([1.0, 0.9, 1.0])}
    return Record({}, 0, matrices=tensors, values={k: v.double() for k, v in values.items()})


FID = [[4, NAN, NAN], [3, 6, NAN], [8, 7, 5]]
LABELS = [[0.9, NAN, NAN], [0.95, 0.8, NAN], [0.5, 0.7, 0.9]]


def test_a_distance_is_forgotten_by_growing_and_an_accuracy_by_falling():
    found = record(fid=FID, js=FID, labels=LABELS)
    assert forgetting(found, "fid") == pytest.approx(((8 - 3) + (7 - 6)) / 2)
    assert forgetting(found, "js") == forgetting(found, "fid")
    assert forgetting(found, "labels") == pytest.approx(((0.95 - 0.5) + (0.8 - 0.7)) / 2)


def test_intransigence_is_measured_from_what_real_rows_get_and_from_zero():
    found = record(fid=FID, js=FID, labels=LABELS)
    assert intransigence(found, "fid") == pytest.approx(((4 - 1) + (6 - 2) + (5 - 3)) / 3)
    assert intransigence(found, "js") == pytest.approx((4 + 6 + 5) / 3)
    assert intransigence(found, "labels") == pytest.approx(((1 - 0.9) + (0.9 - 0.8) + (1 - 0.9)) / 3)


def test_agreement_is_the_rank_correlation_of_all_cells_and_knows_which_way_is_better():
    found = record(fid=FID, js=FID, labels=LABELS, worse=[[-v for v in row] for row in FID])
    assert agreement(found, "fid", "js") == pytest.approx(1)
    assert agreement(found, "fid", "worse") == pytest.approx(-1)
    # pairs of cells (4 3 6 8 7 5 against .9 .95 .8 .5 .7 .9), counted: one tie in labels, of 5 with 4
    fids, labels = [4, 3, 6, 8, 7, 5], [0.9, 0.95, 0.8, 0.5, 0.7, 0.9]
    pairs = [(i, j) for i in range(6) for j in range(i)]
    score = sum(
        math.copysign(1, fids[i] - fids[j]) * ((labels[j] > labels[i]) - (labels[j] < labels[i])) for i, j in pairs
    )
    assert agreement(found, "fid", "labels") == pytest.approx(score / math.sqrt(15 * 14))


def test_cells_that_one_view_lacks_do_not_count():
    gappy = [row[:] for row in FID]
    gappy[1][0] = NAN
    assert agreement(record(fid=FID, kl=gappy), "fid", "kl") == pytest.approx(1)
    a = torch.tensor([1.0, 2.0, NAN, 4.0]).double()
    assert math.isnan(rank_correlation(a, torch.tensor([1.0, NAN, 3.0, 2.0]).double()))
    assert rank_correlation(a, torch.tensor([1.0, 5.0, 3.0, 2.0]).double()) == pytest.approx(1 / 3)
