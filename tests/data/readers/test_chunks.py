import functools

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vestige.core.errors import InputError
from vestige.core.numerics import Moments
from vestige.data import readers as files

X = np.random.default_rng(0).normal(size=(1000, 3))


def write(folder, ending):
    path = folder / f"a{ending}"
    if ending == ".npy":
        np.save(path, X)
    elif ending == ".npz":
        np.savez(path, x=X)
    elif ending == ".safetensors":
        save_file({"x": torch.from_numpy(X)}, path)
    else:
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path, row_group_size=70)
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors", ".csv", ".parquet"])
@pytest.mark.parametrize("rows", [1, 64, 333, 1000, 5000])
def test_chunks_are_the_whole_in_order(tmp_path, ending, rows):
    parts = list(files.chunks(write(tmp_path, ending), rows))
    assert [len(part) for part in parts] == [rows] * (1000 // rows) + [1000 % rows] * (1000 % rows > 0)
    assert np.array_equal(torch.cat(parts).numpy(), X)


def test_csv_chunks_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.data.readers.tables.BLOCK_BYTES", 4096)
    parts = list(files.chunks(write(tmp_path, ".csv"), 300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    assert np.array_equal(torch.cat(parts).numpy(), X)


def test_images_in_chunks(tmp_path):
    for i in range(5):
        Image.new("L", (2, 2), color=i * 51).save(tmp_path / f"{i}.png")
    parts = list(files.chunks(tmp_path, 2))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert torch.allclose(torch.cat(parts)[:, 0], torch.arange(5) / 5)


def test_a_file_in_chunks_has_the_moments_of_the_whole(tmp_path):
    merged = functools.reduce(Moments.merge, map(Moments.of, files.chunks(write(tmp_path, ".npy"), 77)))
    np.testing.assert_allclose(merged.covariance().numpy(), np.cov(X.T), rtol=1e-12)


def test_npy_is_mapped_not_loaded(tmp_path, monkeypatch):
    """A chunk of a file touches its own rows only: the rows behind it may even be missing from disk when it comes."""
    path = write(tmp_path, ".npy")
    first = next(iter(files.chunks(path, 10)))
    assert first.shape == (10, 3)
    assert first.untyped_storage().nbytes() == 10 * 3 * 8


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n1,x\n", "numeric in column 'b' to be read in chunks. Got 'x' in row 3"),
        (
            "a,b\n1,2\n1,NA\n",
            "column 'b' of .* must be complete to be read in chunks. Got a missing value in data row 2",
        ),
        ("a,b\n1,2\n1,inf\n", "column 'b' of .* must be finite. Got inf in data row 2"),
        ("a,b\n1,2\n1,1e39\n", "column 'b' of .* no larger than 3.4e.38. Got 1e.39 in data row 2"),
        ("a,b\n1,2\n1,1152921504606846977\n", "column 'b' of .* 2.53.* Got 1152921504606846977 in data row 2"),
        ("a,b\n1,2\n1\n", "Got 1 in row 3"),
        ("a,b\n", "at least one row"),
    ],
)
def test_tables_that_cannot_be_streamed(tmp_path, text, sentence):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        list(files.chunks(tmp_path / "a.csv"))


def test_a_gap_late_in_a_table_is_named_with_its_row(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[500, "b"] = np.nan
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=70)
    with pytest.raises(InputError, match=r"'b'.* Got a missing value in data row 501"):
        list(files.chunks(tmp_path / "a.parquet", 70))


def test_text_in_parquet_cannot_be_streamed(tmp_path):
    pd.DataFrame({"w": ["a", "b"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"column 'w' of .* must be numeric to be read in chunks"):
        list(files.chunks(tmp_path / "a.parquet"))


def test_nan_is_named_with_its_row_in_the_file(tmp_path):
    x = X.copy()
    x[700, 2] = np.nan
    np.save(tmp_path / "a.npy", x)
    parts = files.chunks(tmp_path / "a.npy", 300)
    next(parts)
    next(parts)
    with pytest.raises(InputError, match="row 700, column 2"):
        next(parts)


def test_rows_must_be_a_number_above_zero(tmp_path):
    with pytest.raises(InputError, match="'rows' of files"):
        files.chunks(write(tmp_path, ".npy"), 0)
    with pytest.raises(InputError, match="no such file"):
        files.chunks(tmp_path / "missing.npy")
