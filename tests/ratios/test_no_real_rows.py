"""No estimator stores a row of p: not raw, not in single precision, not standardised, in tensors or in files.

Rows are recognised by their bytes. Values lie near 1000, where neither weights nor standardised samples do, so that a
match of four bytes at any alignment is no accident. Rows that went through a stored shift and scale are undone first.
"""

import numpy as np
import pytest
import torch

from vestige import store
from vestige.ratios import RATIOS

D = 3
# Estimators that must be given another; all the rest are made with their defaults.
GIVEN = {"bootstrap": lambda: RATIOS["bootstrap"](RATIOS["ulsif"](), 3)}


def draw(n, seed):
    x = torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 1000 + x


def patterns_found(data, values, kind):
    """How many of `values`, as bytes of float `kind`, occur in `data` at any alignment."""
    size = np.dtype(kind).itemsize
    wanted = np.unique(values.astype(kind).view(f"u{size}"))
    found = np.zeros(len(wanted), dtype=bool)
    for offset in range(size):
        whole = data[offset:]
        words = np.frombuffer(whole[: len(whole) // size * size], dtype=f"<u{size}")
        found |= np.isin(wanted, words)
    return int(found.sum())


def rows_found(state, p):
    """How many rows of `p` some tensor of width D holds, as they are or after any shift and scale of the state."""
    identity = (torch.zeros(D).double(), torch.ones(D).double())
    maps = [identity]
    for key, shift in state.items():
        scale = state.get(key.removesuffix("shift") + "scale") if key.endswith("shift") else None
        if scale is not None and shift.shape[-1:] == scale.shape[-1:] == (D,):
            pairs = zip(shift.reshape(-1, D).double(), scale.reshape(-1, D).double(), strict=True)
            maps += list(pairs)
    count = 0
    for value in state.values():
        if value.is_floating_point() and value.ndim and value.shape[-1] == D:
            for shift, scale in maps:
                rows = value.reshape(-1, D).double() * scale + shift
                count += int((torch.cdist(rows, p).min(0).values < 1e-3).sum())
    return count


@pytest.mark.few_steps
@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
@pytest.mark.parametrize("name", sorted(RATIOS))
def test_nothing_stored_is_a_row_of_p(name, tmp_path):
    p, q = draw(70, 0), draw(90, 1) + 0.2
    estimator = GIVEN.get(name, RATIOS[name])().fit(p, q)
    state = store.to_tensors(estimator)
    assert rows_found(state, p) == 0
    estimator.save(tmp_path / "ratio.json")
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    blobs = [file.read_bytes() for file in files]
    blobs += [t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in state.values()]
    for blob in blobs:
        assert patterns_found(blob, p.numpy().ravel(), "<f8") == 0
        assert patterns_found(blob, p.numpy().ravel(), "<f4") == 0
    text = b"".join(blob for file, blob in zip(files, blobs, strict=False) if file.suffix == ".json").decode()
    assert not [value for value in p.ravel().tolist() if repr(value) in text]
    assert estimator.report_["kept_of_p"]


@pytest.mark.parametrize("kind", ["<f8", "<f4"])
def test_a_planted_value_is_found_at_any_alignment(kind):
    p = draw(5, 0).numpy().ravel()
    planted = b"abc" + p[7:8].astype(kind).tobytes() + b"xyz"
    assert patterns_found(planted, p, kind) == 1
    assert patterns_found(b"abc" * 100, p, kind) == 0


def test_a_planted_row_is_found_standardised_and_in_single_precision():
    p = draw(5, 0)
    shift, scale = p.mean(0), p.std(0)
    state = {"a.shift": shift, "a.scale": scale, "centres": ((p[2:3] - shift) / scale).float()}
    assert rows_found(state, p) == 1
    assert rows_found({"centres": p[3:].float()}, p) == 2
    assert rows_found({"a.shift": shift, "a.scale": scale}, p) == 0
