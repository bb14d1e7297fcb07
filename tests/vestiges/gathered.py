"""A state of the rows of a table under a frozen schema, for tests of how such states are gathered."""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vestige.core.numerics import Moments
from vestige.vestiges.schema import SchemaCounts


def mixed(n=1000, seed=0):
    g = np.random.default_rng(seed)
    age = [None if i % 9 == 0 else x for i, x in enumerate((1e4 + g.normal(40, 10, n)).tolist())]
    work = g.choice(["private", "state", "self"], n, p=[0.5, 0.4, 0.1])
    return pa.table({"age": age, "work": work, "member": g.random(n) < 0.3})


@dataclass(frozen=True)
class State:
    """Counts, moments of features, and the processes that took part."""

    counts: SchemaCounts
    moments: Moments
    processes: set[int]

    def merge(self, other):
        processes = self.processes | other.processes
        return State(self.counts.merge(other.counts), self.moments.merge(other.moments), processes)

    def gap(self, other):
        """The largest difference of means or covariances, relative to the largest of them."""
        pairs = [(self.moments.mean, other.moments.mean), (self.moments.covariance(), other.moments.covariance())]
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def state_of(schema):
    def of(batch):
        cells = schema.cells(batch).cells
        return State(SchemaCounts.of(batch), Moments.of(schema.features(cells)), {os.getpid()})

    return of
