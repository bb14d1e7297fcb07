"""Files of `mu` and `sigma`, as pytorch-fid and clean-fid write them: a vestige that answers FID and nothing else.

    vestige.compare("cifar10.npz", features_of_the_model).metrics["fid"]
    kept.to_fid_stats("january.npz")                      # of a vestige, for those tools

They hold the mean and the covariance (divisor n - 1) of features, and not how many rows these rest on. FID from them is
the number of those tools: tests/vestiges/test_fid_statistics.py computes it as they do, by scipy's `sqrtm`. The rest
needs rows, or a vestige, and is refused.

**What the interval knows.** The rows of the model are here, and their part of the error is known. That of the data's
mean and covariance is not, since nobody knows how many rows they rest on: the interval is then about the model's rows
alone, and a warning says so. Files that are written here hold `n` as well, which those tools pass over; with it the
data's part is added as for normal features (`Slope.variance_of_normal`). FID is too large by c / n of either side;
"fid_extrapolated" is without the part of the model's rows, the part of the data's stays.

torch-fidelity caches the same two arrays by `torch.save`, inside of a pickle, which is not read here: load them there
and write them with `numpy.savez(path, mu=..., sigma=...)`.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import store
from vestige.core import Estimate, InputError, checks
from vestige.core.numerics import Moments
from vestige.data.formats import open_npz
from vestige.data.readers import encode
from vestige.data.readers.address import refuse_file
from vestige.metrics.fid import fid_to
from vestige.ratios.divergences import FAMILY
from vestige.vestiges.kept import Answers
from vestige.vestiges.lines import METRICS
from vestige.vestiges.pairs import Tested

KEYS = ("mu", "sigma")
ALONE = "A file of 'mu' and 'sigma' answers FID alone: the rest needs the rows, or a vestige of them."
SYMMETRIC = 1e-6  # of the largest entry: how far sigma may be from its transpose


@dataclass(frozen=True, eq=False)
class FidStatistics:
    """Mean and covariance of features of data that is gone.

    Example
    -------
    >>> rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> stats = FidStatistics(rows.mean(0), rows.mT.cov(), n=500)
    >>> from vestige.vestiges import compare
    >>> abs(compare(stats, rows).metrics["fid"].value) < 1e-9
    True
    """

    mean: Float64[Tensor, " d"]
    covariance: Float64[Tensor, "d d"]
    n: int | None = None  # rows that they rest on, where that is known

    @classmethod
    def load(cls, path: str | Path) -> FidStatistics:
        """What the .npz at `path` holds; no pickle is read."""
        at = Path(path)
        if at.suffix.lower() != ".npz":
            told = f"one that ends in '{at.suffix}'; of a pickle save the two arrays by numpy.savez"
            refuse_file(at, "an .npz file with 'mu' and 'sigma'", told)
        if not at.is_file():
            refuse_file(at, "there", "no such file")
        with open_npz(at) as file:
            for key in KEYS:
                if key not in file:
                    refuse_file(at, "an .npz file with 'mu' and 'sigma'", f"one without '{key}'")
            mu, sigma = (_numbers(at, key, file.array(key)) for key in KEYS)
            n = _numbers(at, "n", file.array("n")) if "n" in file else None
        if mu.ndim != 1 or sigma.shape != (len(mu), len(mu)) or not len(mu):
            refuse_file(
                at, "of a 'mu' of length d and a 'sigma' of d x d", f"{tuple(mu.shape)} and {tuple(sigma.shape)}"
            )
        apart = float((sigma - sigma.mT).abs().max())
        if apart > SYMMETRIC * float(sigma.abs().max()) or bool((sigma.diagonal() < 0).any()):
            refuse_file(at, "of a 'sigma' that is a covariance", "one that is not symmetric, or has negative variances")
        if n is not None and (n.ndim or not float(n).is_integer() or n < 2):
            refuse_file(at, "of an 'n' that is a number of rows", f"{n.tolist()}")
        return cls(mu, (sigma + sigma.mT) / 2, None if n is None else int(n))

    def save(self, path: str | Path) -> Path:
        """Write an .npz for those tools, whole or not at all; with `n`, which they pass over, where it is known."""
        at = Path(path)
        if at.suffix.lower() != ".npz":
            raise InputError(f"The file of FID statistics must end in .npz. Got '{at}' instead.")
        known = {} if self.n is None else {"n": np.int64(self.n)}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, mu=self.mean.numpy(), sigma=self.covariance.numpy(), **known)
        store.write_bytes(at, buffer.getvalue())
        return at

    def answers(
        self,
        new: Any,  # noqa: ANN401 - a table or an array of features
        *,
        level: float,
        names: tuple[str, str],
        **_: Any,  # noqa: ANN401 - what concerns ratios
    ) -> Answers:
        """FID of `new` rows, which are features; everything else is refused."""
        if isinstance(new, pa.Table):
            new = encode([new], [names[1]])[0][0]
        x = checks.samples(new, "q", "compare", min_rows=8, width=len(self.mean))
        moments = Moments(self.n or 0, 1.0, 0.0, self.mean, self.covariance)
        value, bias, error = fid_to(moments, x, n_p=self.n)
        lines = [name for _, _, own in METRICS.values() for name in own]
        metrics, refused = (
            {name: Estimate.refused(ALONE, name=name, level=level) for name in of} for of in (lines, FAMILY)
        )
        metrics["fid"] = found = Estimate.normal(value, error, level, name="fid", details={"same": None})
        less = Estimate.normal(value - bias, error, level, name="fid_extrapolated", details={"same": None})
        why = f"FID extrapolates poorly from fewer samples than features ({x.shape[1]})."
        enough = len(x) > x.shape[1]
        metrics["fid_extrapolated"] = less if enough else Estimate.refused(why, name="fid_extrapolated", level=level)
        warnings: tuple[str, ...] = ()
        if self.n is None:
            warnings = ("The interval of FID is about the new rows alone: how many rows the file rests on is unknown.",)
        ends = f"[{max(found.low, 0):.4g}, {found.high:.4g}]"
        told = f"The FID of {names[1]} from {names[0]} is {value:.4g} {ends}. {ALONE}"
        tested = Tested(math.nan, untested="a file of 'mu' and 'sigma' has no test")
        return Answers(len(x), x.shape[1], refused, metrics, tested, {}, told, warnings, ())

    def __repr__(self) -> str:
        rows = "an unknown number of rows" if self.n is None else f"{self.n} rows"
        return f"FidStatistics of {rows}: {len(self.mean)} features; answers FID alone"


def _numbers(at: Path, key: str, array: Any) -> Float64[Tensor, "*shape"]:  # noqa: ANN401 - a numpy array
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        refuse_file(at, f"of finite numbers in '{key}'", f"{array.dtype} with others")
    return torch.from_numpy(np.array(array, dtype=np.float64))


def is_fid_statistics(where: object) -> bool:
    """Whether this is the name of an .npz file with `mu` and `sigma`, and of no other key; anything torn is not."""
    if not isinstance(where, str | Path) or Path(where).suffix.lower() != ".npz" or not Path(where).is_file():
        return False
    try:
        with zipfile.ZipFile(where) as archive:
            return {f"{key}.npy" for key in KEYS} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        return False
