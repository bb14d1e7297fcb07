"""A file of features larger than one likes to hold is read in chunks, and gives what one pass gives."""

import numpy as np
import pytest
import torch

from vestige.data import readers as files
from vestige.metrics import FID, KID, fid, kid


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".safetensors"])
def test_chunks_of_a_file_give_the_whole(tmp_path, suffix):
    sides = []
    for i in range(2):
        x = np.random.default_rng(i).normal(i * 0.2, 1, (500, 4))
        path = tmp_path / f"{i}{suffix}"
        if suffix == ".npy":
            np.save(path, x)
        elif suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file({"features": x}, path)
        else:
            import pandas as pd

            frame = pd.DataFrame(x, columns=list("abcd"))
            frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
        sides.append((x, path))
    (p, p_path), (q, q_path) = sides
    for accumulator, function in ((FID, fid), (KID, kid)):
        parts = accumulator(), accumulator()
        for part, path in zip(parts, (p_path, q_path), strict=True):
            for chunk in files.chunks(path, rows=77):
                part.update(chunk)
        assert parts[0].compute(parts[1]).value == pytest.approx(function(p, q).value, rel=1e-9)
    assert torch.is_tensor(next(iter(files.chunks(p_path, rows=77))))
