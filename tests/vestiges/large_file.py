"""Reads a large file in batches within a limit of memory, and prints what it found; run by test_batches.py.

usage: large_file.py ROWS LIMIT FILE ...: batches of ROWS rows, LIMIT bytes of address space beyond those of libraries.
"""

import json
import resource
import sys
from pathlib import Path

import torch

from vestige.core.machine import PeakMemory
from vestige.core.numerics import Moments
from vestige.vestiges.batches import Reservoir, batches, survey


def taken():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read(path, rows):
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
