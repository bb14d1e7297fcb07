"""What fewer than fifty rows have leaves no trace in what is kept: data sets that differ in it leave the same."""

import importlib

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from vestige import store
from vestige.core.numerics import Moments
from vestige.core.rounding import SHARE, rounded, rounded_covariance, semi_definite, steps
from vestige.vestiges.rare import UsualCells, hidden_products, scale_of, sparse_mode, with_correlations_of
from vestige.vestiges.reference import OwnErrors

keeping = importlib.import_module("vestige.vestiges.keep")  # the function of that name hides it

N = 600
NO_ERRORS = OwnErrors({}, 0)


@pytest.fixture(autouse=True)
def quick_errors(monkeypatch):
    """Without the own error, which sees rows as they are; `test_own_errors_are_rounded` is about it."""
    monkeypatch.setattr(keeping, "own_errors", lambda *_, **__: NO_ERRORS)


def people(seed=0):
    g = np.random.default_rng(seed)
    x = g.normal(size=N)
    return pd.DataFrame(
        {
            "x": x,
            "y": x + g.normal(size=N),
            "job": g.choice(["cook", "smith"], N),
            "debt": np.zeros(N),
            "member": np.ones(N, dtype=bool),
            "whole": g.integers(0, 40, N).astype(float),
        }
    )


def left(rows, **options):
    """Everything that is stored: fields, and tensors by name."""
    return store.encode(vs.keep(rows, seed=1, **options))


def differing(a, b):
    """The names of what differs."""
    (fields_a, a), (fields_b, b) = a, b
    assert a.keys() == b.keys()
    return [key for key in a if not torch.equal(a[key], b[key])] + ["fields"] * (fields_a != fields_b)


@pytest.fixture(scope="module")
def nobody():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "own_errors", lambda *_, **__: NO_ERRORS)
        return left(people())


OTHER_CELLS = (("job", "astronaut"), ("member", False), ("x", np.nan))


@pytest.mark.parametrize(
    ("column", "cell"),
    [("debt", 12_345.0), ("job", None), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHER_CELLS)],
)
def test_one_persons_cell_leaves_no_trace(nobody, column, cell):
    rows = people()
    if column == "x":
        rows["x"] = rows["x"].round(1)  # what a missing one is filled with must not differ from what was there
        centre = scale_of(rows["x"].to_numpy())[0]
        rows.loc[7, "x"] = centre
        nobody = left(rows)
    if column == "job":
        rows.loc[7, "job"] = most = rows["job"].mode()[0]
        nobody = left(rows)
        assert most in ("cook", "smith")
    rows[column] = rows[column].astype(object) if isinstance(cell, str | None) else rows[column]
    rows.loc[7, column] = cell
    assert differing(nobody, left(rows)) == []


def test_an_extreme_value_is_only_known_to_be_one():
    arrays = []
    for extreme in (1e3, 1e12):
        rows = torch.randn(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rows[5, 1] = extreme
        arrays.append(left(rows))
        frame = pd.DataFrame(rows.numpy(), columns=["a", "b"])
        arrays.append(left(frame))
    assert differing(arrays[0], arrays[2]) == []
    assert differing(arrays[1], arrays[3]) == []


def test_the_last_row_is_known_to_the_rounding_alone():
    """Who knows all rows but one solves for it: n means less the others' sum. It is off by what rounding leaves."""
    rows = torch.randn(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = vs.keep(rows, density="mixture", seed=1)
    solved = N * kept.moments.whole().mean - rows[:-1].sum(0)
    off = (solved - rows[-1]).abs()
    assert bool((off > 1e-4).all())
    assert bool((off < N * 0.01 / N**0.5).all())


def test_a_pair_that_meets_in_one_row_is_told_as_if_it_never_did():
    """Mean and covariance of two indicators give the row in which they meet, and what else that row has."""
    rows = torch.zeros(N, 3, dtype=torch.float64)
    rows[:, 2] = torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[:100, 0], rows[100:200, 1] = 1, 5.0
    apart = vs.keep(rows, density="mixture", seed=1)
    once = rows.clone()
    once[99, 1], once[199, 1] = 5.0, 0.0
    meeting = vs.keep(once, density="mixture", seed=1)
    a, b = apart.moments.whole(), meeting.moments.whole()
    assert torch.equal(a.mean[:2], b.mean[:2])
    assert torch.equal(a.scatter[:2, :2], b.scatter[:2, :2])
    exact = torch.cov(once.mT)
    assert float((meeting.moments.whole().covariance() - exact)[0, 1].abs()) < 5 * 50 / N


def test_hidden_products_are_those_of_features_that_never_meet_or_have_nothing_to_do_with_each_other():
    x = torch.zeros(1000, 2, dtype=torch.float64)
    x[:200, 0], x[195:400, 1] = 1, 3
    mean, covariance = x.mean(0), torch.cov(x.mT, correction=0)
    told, hidden = hidden_products(mean, covariance, x)  # 5 rows have both, and 41 would have
    assert hidden.tolist() == [[False, True], [True, False]]
    assert float(told[0, 1]) == pytest.approx(-float(mean[0] * mean[1]))
    assert torch.equal(told.diagonal(), covariance.diagonal())
    x[170:195, 1] = 3  # now 30 of 46
    assert float(hidden_products(x.mean(0), torch.cov(x.mT), x)[0][0, 1]) == pytest.approx(0, abs=1e-6)
    x[100:170, 1] = 3  # and now a hundred
    told, hidden = hidden_products(x.mean(0), torch.cov(x.mT), x)
    assert torch.equal(told, torch.cov(x.mT))
    assert not hidden.any()


def test_of_a_shard_no_count_below_fifty_is_kept():
    rows = people()
    first = vs.keep(rows, seed=1)
    second = rows[(rows["job"] == "cook") | (rows.index < 40)].assign(whole=3.0)
    shard = vs.keep(second, like=first, seed=1)
    told, n = shard.test.moments, len(second)
    counted = shard.test.dictionary.counted()
    counts = told.total[counted]
    assert bool(((counts == 0) | (counts >= 49.9)).all())  # they are rounded
    assert bool((counts <= n - 49.9).all())
    hidden = told.hidden[counted]
    assert set(hidden[counts == 0].tolist()) == {50.0}


def test_sparse_columns_and_their_scale():
    values = np.zeros(300)
    assert sparse_mode(values) == 0
    values[:49] = np.arange(1, 50)
    assert sparse_mode(values) == 0
    values[49] = 1
    assert sparse_mode(values) is None
    assert sparse_mode(np.arange(60.0)) is None  # no value that most rows have
    assert sparse_mode(np.zeros(0)) is None


def test_rare_cells_take_the_usual_value_and_common_ones_stay():
    nan = float("nan")
    cells = torch.tensor([[0.0, 2.0, 1.0, nan]] * 120 + [[1.0, 1.0, nan, nan]] * 60 + [[2.0, nan, 3.0, 5.0]] * 20)
    cells = cells.double()
    usual = UsualCells.of(cells, ("category", "category", "number", "number"))
    told = usual(cells)
    assert told[:, 0].tolist() == [0] * 120 + [1] * 60 + [0] * 20
    assert told[:, 1].tolist() == [2] * 120 + [1] * 60 + [2] * 20
    assert told[:120, 2].tolist() == [1] * 120
    assert bool(told[120:180, 2].isnan().all())
    assert told[180:, 2].tolist() == [1] * 20
    assert bool(told[:, 3].isnan().all())


def test_steps_are_powers_of_two_below_a_hundredth_of_the_error():
    error = torch.tensor([1.0, 0.3, 0.0], dtype=torch.float64)
    found = steps(error)
    assert found.log2()[:2].frac().abs().max() == 0
    assert bool((found[:2] <= SHARE * error[:2]).all())
    assert bool((2 * found[:2] > SHARE * error[:2]).all())
    x = torch.tensor([1.23456, -0.98765, 0.123], dtype=torch.float64)
    told = rounded(x, error)
    assert bool(((told - x).abs()[:2] <= found[:2] / 2).all())
    assert float(told[2]) == 0.123
    assert torch.equal(rounded(told, error), told)


def test_a_rounded_covariance_is_one():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(80, 6, generator=g, dtype=torch.float64)
    x[:, 5] = x[:, :5].sum(1)  # singular
    s = torch.cov(x.mT)
    told = rounded_covariance(s, 80)
    assert float(torch.linalg.eigvalsh(told).min()) > -1e-12
    assert 0 < float((told - s).abs().max()) < 0.01 * 2 * float(s.max()) / 80**0.5
    assert torch.equal(semi_definite(torch.eye(3, dtype=torch.float64)), torch.eye(3, dtype=torch.float64))


def test_own_errors_are_rounded(monkeypatch):
    monkeypatch.undo()
    kept = vs.keep(torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), density="mixture", seed=1)
    js = kept.errors.estimates["js"]
    grid = float(steps(torch.tensor(js.std_error * 1.01, dtype=torch.float64)))
    assert (js.value / (grid / 2)).is_integer()
    assert all(float(f"{x:.2e}") == x for x in js.details.values() if isinstance(x, float) and x == x)
    weights = kept.reference.parts[0].weights.double()
    weights = weights[weights > 1e-9].log() * 64
    assert float((weights - weights[0] - (weights - weights[0]).round()).abs().max()) < 1e-3
    assert kept.errors.held == 75
    few = vs.keep(torch.randn(120, 2, generator=torch.Generator().manual_seed(0)), density="mixture", seed=1)
    assert few.errors.held == 50


def test_images_too_few_for_a_fitted_map_are_seen_by_a_public_one():
    g = torch.Generator().manual_seed(0)
    images = torch.rand(100, 12, 12, generator=g)
    kept = vs.keep(images, features={"map": "pca", "dims": 64}, seed=1)
    assert kept.frame.map.name == "random"
    assert kept.frame.map.width == 64
    assert "100 rows are too few for 64 directions of the map 'pca'" in kept.frame.note
    other = vs.keep(torch.rand(100, 12, 12, generator=g), features={"map": "pca", "dims": 64}, seed=2)
    assert torch.equal(kept.frame.map.codes(images.reshape(100, -1)), other.frame.map.codes(images.reshape(100, -1)))
    fitted = vs.keep(torch.rand(200, 12, 12, generator=g), features={"map": "pca", "dims": 10}, seed=1)
    assert fitted.frame.map.name == "pca"
    assert fitted.frame.note == ""


def test_a_pixel_that_one_image_has_is_not_in_the_map():
    images = torch.rand(200, 6, 6, generator=torch.Generator().manual_seed(0))
    images[:, 0, 0] = 0
    dark = vs.keep(images, features={"map": "pca", "dims": 4}, seed=1)
    images[3, 0, 0] = 0.7
    lit = vs.keep(images, features={"map": "pca", "dims": 4}, seed=1)
    assert torch.equal(dark.frame.map.mean_, lit.frame.map.mean_)
    assert torch.equal(dark.frame.map.directions_, lit.frame.map.directions_)
    assert float(lit.frame.map.directions_[:, 0].abs().max()) < 1e-12


def relu_rows(n, seed):
    """Features of a network: many are 0 in most rows, and go together where they are not."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 4)) @ np.random.default_rng(5).normal(size=(4, 24))
    return torch.as_tensor(np.maximum(z - np.linspace(0, 3, 24), 0))


def test_fid_finds_no_difference_in_covariances_that_are_hidden():
    p, q = relu_rows(1000, 1), relu_rows(1000, 2)
    kept = vs.keep(p, seed=0)
    assert int(kept.sketch.hidden.sum()) > 50
    exact = vs.metrics.fid(p, q).value
    new = vs.metrics.FID(groups=2).update(kept.frame.features(kept.comparable(kept.cells(q).cells)))
    told = kept.moments_beside(new).compute(new).value
    assert told == pytest.approx(exact, abs=0.25 * exact)
    assert kept.moments.compute(new).value > 1.5 * exact  # what is hidden, held against what is there
    assert "of 276 pairs of features that fewer than 50 rows had together" in kept.left_out()
    assert vs.keep(p[:, :3], seed=0).left_out() == ""


def test_pairs_of_categories_of_one_column_are_not_taken_for_hidden():
    kept = vs.keep(people(), seed=1)
    columns = [j for j, one in enumerate(kept.schema.used) for _ in one.features]
    same = torch.tensor(columns) == torch.tensor(columns)[:, None]
    assert not bool((kept.sketch.hidden & same).any())


def test_filled_moments_have_the_other_sets_correlations_and_their_own_variances():
    x, y = (torch.as_tensor(np.random.default_rng(i).normal(size=(200, 3)) @ np.diag([1, 2, 3])) for i in (1, 2))
    p, q = Moments.of(x), Moments.of(y @ torch.tensor([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.float64))
    hidden = torch.zeros(3, 3, dtype=torch.bool)
    hidden[0, 1] = hidden[1, 0] = True
    found = with_correlations_of(q, p, hidden)
    r = [m.scatter[0, 1] / (m.scatter[0, 0] * m.scatter[1, 1]).sqrt() for m in (found, q)]
    assert float(r[0]) == pytest.approx(float(r[1]))
    assert torch.equal(found.scatter.diagonal(), p.scatter.diagonal())
    assert torch.equal(found.scatter[2], p.scatter[2])
