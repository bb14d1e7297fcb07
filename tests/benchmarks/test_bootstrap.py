"""The benchmark of the bootstrap runs with few fits: estimators take the options that it gives them."""

import warnings

import pytest

from benchmarks import bootstrap


@pytest.mark.slow
def test_both_sides_are_timed_on_the_same_resamples(monkeypatch):
    for name, value in {"FITS": 32, "PEER_FITS": 2, "JUDGED": 2, "N": 20, "STEPS": 5, "TEST": 40}.items():
        monkeypatch.setattr(bootstrap, name, value)
    with warnings.catch_warnings():  # the benchmark silences both sides
        rows = bootstrap.rows()
    assert [row.name.rpartition(": ")[2] for row in rows] == ["same recipe", "same loss", "default"]
    assert all(row.ours > 0 and row.peer > 0 and row.ratio > 0 for row in rows)
    assert all("train / test log-loss" in row.note for row in rows)
