"""Reads a large file in batches within a limit of memory, and prints what it found; run by test_batches.py.

usage: large_file.py ROWS LIMIT FILE ...: batches of ROWS rows, LIMIT bytes of address space beyond those of libraries.
In the place of a file "keep:TIMES" keeps rows that are repeated so many times.
"""

import json
import resource
import sys
from pathlib import Path

import torch

from vestige.core.machine import PeakMemory
from vestige.core.numerics import Moments
from vestige.vestiges.batches import Reservoir, batches, survey
from vestige.vestiges.keep import keep


def taken():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def repeated(times):
    """100 rows of 80 000 numbers with 16 directions, so many times."""
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(100, 16, generator=g, dtype=torch.float64) @ torch.randn(16, 80_000, generator=g).double()
    return lambda: (rows for _ in range(times))


def read(path, rows):
    if path.startswith("keep:"):
        return {"n": keep(repeated(int(path.removeprefix("keep:")))).n}
    data = batches(path, rows)
    if data.kind == "table":
        found = survey(data)
        cells, rows = 0, 0
        for batch in data:
            got = found.schema.cells(batch, path).cells
            cells, rows = cells + got.nansum(0), rows + len(got)
        return {"n": found.n, "rows": rows, "sums": cells.tolist(), "features": found.schema.feature_names}
    sample, moments = Reservoir(1000), None
    for batch in data:
        sample.add(batch)
        part = Moments.of(batch.double())
        moments = part if moments is None else moments.merge(part)
    return {"n": moments.n, "rows": sample.seen, "sample": len(sample.rows()[0])}


def main(rows, limit, *paths):
    torch.set_num_threads(1)
    allowed = taken() + int(float(limit))
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    peak = PeakMemory()
    print(json.dumps({"found": [read(path, int(rows)) for path in paths], "peak": peak.peak()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
