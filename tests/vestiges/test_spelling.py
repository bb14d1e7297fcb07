"""Numbers of a column in words: neighbours are told apart, dates are dates."""

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from vestige.vestiges.by_column import coded
from vestige.vestiges.spelling import between, dated, least_gap, spelt


@pytest.mark.parametrize(
    ("value", "step", "words"),
    [
        (20480.0, 1000.0, "2.048e+04"),
        (20480.0, 3.0, "20480"),
        (20481.5, 0.5, "20481.5"),
        (-1234567.0, 10.0, "-1234567"),
        (0.125, 0.01, "0.125"),
        (0.0, 1.0, "0"),
        (5.0, 0.0, "5"),
        (np.inf, 1.0, "inf"),
    ],
)
def test_digits_are_four_or_as_many_as_it_takes(value, step, words):
    assert spelt(value, step) == words


def test_neighbours_never_share_a_name():
    rng = np.random.default_rng(0)
    for scale, offset in ((1.0, 0.0), (1e-3, 5.0), (10.0, 2e4), (1.0, 1e9), (1e-9, 1.0)):
        edges = np.sort(offset + scale * rng.normal(size=12))
        names = [between(edges, i, spelt) for i in range(len(edges) + 1)]
        assert len(set(names)) == len(names)


def test_days_are_dates_and_hours_are_told_where_days_do_not_tell_them_apart():
    assert dated(0.0, 1.0) == "1970-01-01"
    assert dated(20484.25, 0.1) == "2026-01-31T06:00"
    assert dated(-1.0, 30.0) == "1969-12-31"
    assert dated(1e9, 30.0) == "1000000000"  # no date
    assert least_gap(np.array([1.0, 4.0, 6.0])) == 2.0


def test_columns_of_dates_are_told_as_dates_with_rows_and_with_a_vestige():
    rng = np.random.default_rng(1)

    def month(n, first, last):
        days = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(first, last, n), "D")
        return pd.DataFrame({"joined": days, "amount": rng.normal(size=n)})

    before, after = month(600, 0, 60), month(300, 20, 80)
    for kept in (before, vs.keep(before)):
        told = {one.name: one for one in vs.compare(kept, after, estimator="logistic").differences}
        assert "2026-0" in told["joined"].told
        assert all("2026-0" in name for name in told["joined"].profile.names[:3])
        assert "2026" not in told["amount"].told


def test_a_column_of_large_numbers_that_differ_little_has_names_that_differ():
    years = torch.linspace(20480.0, 20510.0, 400)
    names = coded(years, None).names
    assert len(set(names)) == len(names)
