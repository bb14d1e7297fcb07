"""What remains of rows: exact moments, draws that stand for the rows, one file, merging, and no row in it."""

import importlib

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from vestige import store
from vestige.core import InputError, StoreError
from vestige.metrics.fid import FID, fid
from vestige.vestiges import append

keeping = importlib.import_module("vestige.vestiges.keep")  # the function of that name hides it

N = 1200


def table(n: int, seed: int) -> pd.DataFrame:
    """Numbers, a category that depends on them, and missing values."""
    rng = np.random.default_rng(seed)
    age = rng.gamma(4, 10, n)
    income = age * 100 + rng.normal(0, 500, n)
    job = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 40) / 10)), "cook", "smith")
    income[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"age": age, "income": income, "job": job})


@pytest.fixture(scope="module")
def kept_table() -> vs.Vestige:
    return vs.keep(table(N, 0), seed=1)


@pytest.fixture(scope="module")
def rows() -> torch.Tensor:
    return torch.randn(N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)


@pytest.fixture(scope="module")
def kept(rows) -> vs.Vestige:
    return vs.keep(rows, seed=1, third=True)


def test_fid_from_moments_is_that_of_the_rows_to_a_hundredth_of_its_error(kept, rows):
    new = rows[:300] + 0.3
    other = FID(groups=2).update(new)
    with_rows = fid(rows, new, std_error=True)
    assert 0 < abs(kept.moments.compute(other).value - with_rows.value) < 0.01 * with_rows.std_error


def test_weighted_draws_have_the_means_and_covariances_of_the_rows(kept, rows):
    seen, weights = kept.points()
    assert abs(float(weights.sum()) - 1) < 1e-9
    mean = weights @ seen
    assert torch.allclose(mean, rows.mean(0), atol=0.1)
    covariance = (seen - mean).mT @ ((seen - mean) * weights[:, None])
    assert torch.allclose(covariance, torch.cov(rows.mT), atol=0.25)


@pytest.mark.slow
@pytest.mark.full_training
@pytest.mark.usefixtures("own_errors_of_users")
def test_own_error_is_small_for_gaussian_rows_and_large_for_a_wrong_density(rows):
    ring = torch.stack([rows[:, 0].sin(), rows[:, 0].cos()], 1) * 3 + 0.05 * rows[:, 1:]
    right, wrong = (vs.keep(x, density="mixture", seed=1) for x in (rows, ring))
    assert right.errors.limit("js") < wrong.errors.estimates["js"].low
    assert right.errors.limit("nothing of the kind") == float("inf")
    assert wrong.errors.held == N // 4


def test_one_file_comes_back_the_same(kept_table, tmp_path):
    path = kept_table.save(tmp_path / "a.vestige")
    back = vs.Vestige.load(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size < 2_000_000
    a, b = store.encode(kept_table), store.encode(back)
    assert a[0] == b[0]
    assert all(torch.equal(a[1][key], b[1][key]) for key in a[1])
    assert torch.equal(kept_table.draws[0].nan_to_num(), back.draws[0].nan_to_num())
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StoreError):
        vs.Vestige.load(path)


def test_no_array_in_it_is_as_long_as_the_rows_and_none_holds_a_row(kept_table):
    cells = kept_table.cells(table(N, 0)).cells
    values = set(cells[:, :2].flatten().tolist())
    for key, tensor in store.encode(kept_table)[1].items():
        assert N not in tensor.shape, key
        if tensor.is_floating_point() and "total" not in key:
            assert not values & set(tensor.double().flatten().tolist()), key
    assert set(kept_table.kept().columns) == {"name", "shape", "bytes", "what", "gives away"}


def test_draws_of_a_table_are_a_table_with_its_columns(kept_table):
    drawn = kept_table.draw(500, seed=3).to_pandas()
    assert list(drawn.columns) == ["age", "income", "job"]
    assert set(drawn["job"].dropna()) <= {"cook", "smith", "(other)"}
    real = table(N, 0)
    assert abs(drawn["income"].isna().mean() - real["income"].isna().mean()) < 0.05
    assert abs(drawn["age"].mean() - real["age"].mean()) < 3
    old, young = (drawn["job"][drawn["age"] > 50] == "cook").mean(), (drawn["job"][drawn["age"] < 30] == "cook").mean()
    assert old > young + 0.3


def shards_and_whole(rows, kept, monkeypatch):
    monkeypatch.setattr(keeping, "fit_reference", lambda *_, **__: (kept.reference, None, None))
    monkeypatch.setattr(keeping, "own_errors", lambda *_, **__: kept.errors)
    first = vs.keep(rows[:300], seed=1)
    shards = [vs.keep(rows[i : i + 300], like=first, seed=1) for i in range(0, N, 300)]
    merged = shards[0]
    for shard in shards[1:]:
        merged = merged.merge(shard)
    return merged, vs.keep(rows, like=first, seed=1)


def test_sums_of_four_shards_are_those_of_the_whole_before_they_are_rounded(rows, kept, monkeypatch):
    monkeypatch.setattr(keeping, "rounded_sketch", lambda sketch, *_: sketch)
    merged, whole = shards_and_whole(rows, kept, monkeypatch)
    a, b = merged.moments.whole(), whole.moments.whole()
    assert torch.allclose(a.mean, b.mean, atol=1e-10, rtol=0)
    assert torch.allclose(a.scatter, b.scatter, atol=1e-10, rtol=1e-12)
    assert torch.allclose(merged.test.moments.total, whole.test.moments.total, atol=1e-8, rtol=1e-10)


def test_four_shards_in_one_frame_are_the_whole_to_the_rounding(rows, kept, monkeypatch):
    merged, whole = shards_and_whole(rows, kept, monkeypatch)
    assert merged.n == whole.n == N
    a, b = merged.moments.whole(), whole.moments.whole()
    error = (whole.moments.whole().covariance().diagonal() / N) ** 0.5
    assert bool(((a.mean - b.mean).abs() < 0.01 * error).all())  # of what each shard is rounded by, a tenth is left
    assert torch.allclose(a.covariance(), b.covariance(), atol=0.03 / N**0.5 * float(b.covariance().max()), rtol=0)
    assert len(merged.reference.parts) == 4
    assert abs(float(merged.points()[1].sum()) - 1) < 1e-9


def test_vestiges_of_two_frames_are_not_merged(kept, rows):
    other = vs.keep(rows[:60, :2], density="mixture")
    with pytest.raises(InputError, match="one feature map and schema"):
        kept.merge(other)


def test_rows_may_be_appended_but_not_fewer_than_fifty(kept_table):
    more = append(kept_table, table(200, 5))
    assert more.n == N + 200
    with pytest.raises(InputError, match="at least 50"):
        append(kept_table, table(49, 5))


def test_the_same_rows_and_seed_leave_the_same(rows):
    few = rows[:200].clone()
    a, b = (store.encode(vs.keep(few, density="mixture", seed=1))[1] for _ in range(2))
    assert torch.equal(few, rows[:200])
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_fifty_rows_leave_a_vestige_that_knows_no_error_of_its_own():
    few = vs.keep(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)))
    assert few.errors.limit("js") == float("inf")
    with pytest.raises(InputError, match="at least 50"):
        vs.keep(torch.randn(49, 2))


def test_images_are_kept_by_their_principal_components():
    x = torch.rand(400, 6, 6, generator=torch.Generator().manual_seed(0))
    x = x.cumsum(2) / 6
    found = vs.keep(x)
    assert found.frame.map is not None
    assert found.frame.map.width == 20  # a direction for each 20 rows
    assert found.points()[0].shape[1] == 16
    assert found.feature_points()[0].shape[1] == 20
    assert "js_smoothed" in found.errors.estimates


def test_batches_larger_than_the_sample_leave_what_the_whole_leaves(rows, monkeypatch):
    monkeypatch.setattr(keeping, "SAMPLE", 500)
    whole = vs.keep(rows, seed=1)
    parts = vs.keep([part.numpy() for part in rows.split(333)], seed=1)
    a, b = whole.moments.whole(), parts.moments.whole()
    assert torch.allclose(a.scatter, b.scatter, atol=1e-9)
    assert whole.test.n == parts.test.n == N
    assert torch.allclose(whole.test.moments.total, parts.test.moments.total, atol=1e-8)
    assert torch.equal(whole.draws[0], parts.draws[0])


def test_the_drift_test_holds_new_rows_against_it(kept, kept_table):
    fresh = torch.randn(600, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64).cumsum(1)
    assert kept.test.test(kept.cells(fresh).cells).p_value > 0.001
    assert kept.test.test(kept.cells(fresh * 1.5).cells).p_value < 0.001
    other = table(600, 3).assign(job="cook")
    assert kept_table.test.test(kept_table.cells(other).cells).p_value < 0.001


def test_weights_that_end_on_a_few_draws_are_not_taken(monkeypatch):
    from vestige.vestiges import reference

    p, draws = (torch.randn(60, 2, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in (0, 1))
    few = torch.full((60,), -50.0, dtype=torch.float64)
    few[:5] = 0.0
    monkeypatch.setattr(reference, "balance_to", lambda *_, **__: few.log_softmax(0))
    assert torch.equal(reference._tilted(p, draws, 0), torch.full((60,), 1 / 60, dtype=torch.float64))
    monkeypatch.setattr(reference, "balance_to", lambda *_, **__: (few * 0.01).log_softmax(0))
    assert float(reference._tilted(p, draws, 0).max()) > 1 / 60
