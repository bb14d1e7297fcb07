"""One state of many machines' rows: partial states by Ray Data's `map_batches`, then merged.

Under a frozen schema and feature map a batch of rows becomes a state (counts, moments, sums), and two states become the
state of both. That is all that is needed to gather it where the rows are: each block of a Ray Data set becomes a state
on the machine that holds it, groups of GROUP states are merged there, and only these reach the caller, one at a time.
Rows never travel, but for a random sample.

`survey_on_ray` is `batches.survey` of a Ray Data set: counts of all rows, and the rows with the smallest random keys. A
Ray Data set has no order, so keys cannot depend on positions: those of a batch come from the seed and a hash of the
batch. The same blocks give the same sample in whichever order they are read, and it is not the sample that one machine
would draw: what is compared with one machine is under one frozen frame.

States are told to the caller in the bytes of `packed`: the codec's tensors as safetensors. Ray ships the functions by
its own means. The order in which states arrive is not fixed, so sums differ from those of one machine by rounding: less
than 1e-10 of their size (tests/vestiges/test_on_ray.py, with a cluster of two machines under `make test-cluster`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float64, UInt8
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from vestige import store
from vestige.core import StoreError, checks, rng
from vestige.vestiges.batches import ROWS, SAMPLE_ROWS, Survey, batches, fitting_sample, is_ray_data
from vestige.vestiges.schema import Schema, SchemaCounts

S = TypeVar("S")
GROUP = 16  # states that are merged where they are
COLUMN = "state"
OWNER = "gathered_on_ray"
ORIGIN = "the Ray Data set"


def packed(state: object) -> bytes:
    """A state, which the codec can store, as the bytes of a safetensors file."""
    tensors = {key: value.cpu().contiguous().clone() for key, value in store.to_tensors(state).items()}
    return bytes(dump_tensors(tensors))


def unpacked(kind: type[S], data: bytes) -> S:
    """The inverse of `packed`, a `kind`."""
    try:
        tensors = load_tensors(data)
    except (SafetensorError, ValueError, KeyError):
        raise StoreError(f"The bytes of a {kind.__name__} are torn or not safetensors.") from None
    state: S = store.from_tensors(kind, tensors)
    return state


def gathered_on_ray(
    data: Any,  # noqa: ANN401 - Ray may be missing
    state_of: Callable[[pa.Table], S],
    merge: Callable[[S, S], S],
    kind: type[S],
    *,
    rows: int = ROWS,
) -> S:
    """The state of all rows of the Ray Data set `data`, gathered where they are.

    Parameters
    ----------
    data
        A Ray Data set whose rows are those of a table.
    state_of
        The state of one batch, of at most `rows` rows; sent to the machines by Ray.
    merge
        The state of the rows of two states.
    kind
        The class of a state, a dataclass that the codec can store.

    Raises
    ------
    InputError
        `data` is no Ray Data set, or has no row.
    """
    if not is_ray_data(data):
        checks.refuse("data", OWNER, "a Ray Data set", type(data).__name__)

    def of_block(block: pa.Table) -> pa.Table:
        torch.set_num_threads(1)  # in the process of a Ray worker
        state = None
        for batch in batches(block, rows) if block.num_rows else ():
            found = state_of(batch)
            state = found if state is None else merge(state, found)
        return _told([] if state is None else [packed(state)])

    def of_states(block: pa.Table) -> pa.Table:
        torch.set_num_threads(1)
        state = None
        for told in block.column(COLUMN).to_pylist():
            found = unpacked(kind, told)
            state = found if state is None else merge(state, found)
        return _told([] if state is None else [packed(state)])

    by_block = data.map_batches(of_block, batch_size=None, batch_format="pyarrow")
    by_group = by_block.map_batches(of_states, batch_size=GROUP, batch_format="pyarrow")
    total: S | None = None
    for row in by_group.iter_rows():
        found = unpacked(kind, row[COLUMN])
        total = found if total is None else merge(total, found)
    if total is None:
        checks.refuse("data", OWNER, "at least one row", "none")
    return total


def _told(states: list[bytes]) -> pa.Table:
    return pa.table({COLUMN: pa.array(states, pa.large_binary())})


@dataclass(frozen=True)
class Sampled:
    """Counts of all rows, and those with the smallest keys."""

    counts: SchemaCounts
    keys: Float64[Tensor, " k"]
    rows: UInt8[Tensor, " b"]  # an Arrow stream

    @classmethod
    def of(cls, counts: SchemaCounts, keys: Float64[Tensor, " n"], rows: pa.Table, most: int) -> Sampled:
        """The `most` smallest keys, in their order, and their rows."""
        kept = torch.sort(keys, stable=True).indices[:most]
        sink = pa.BufferOutputStream()
        taken = rows.take(pa.array(kept.numpy()))
        with pa.ipc.new_stream(sink, taken.schema) as writer:
            writer.write_table(taken)
        return cls(counts, keys[kept], torch.from_numpy(np.frombuffer(sink.getvalue(), np.uint8).copy()))

    def table(self) -> pa.Table:
        """The rows."""
        with pa.ipc.open_stream(pa.py_buffer(self.rows.numpy().tobytes())) as reader:
            return reader.read_all()


def survey_on_ray(
    data: Any,  # noqa: ANN401 - Ray may be missing
    *,
    drop: Sequence[str] = (),
    most: int = SAMPLE_ROWS,
    seed: int = 0,
) -> Survey:
    """Counts of all rows, a random sample of them and the frozen schema, gathered where the rows are."""

    def of(batch: pa.Table) -> Sampled:
        for name in drop:
            checks.one_of(name, batch.column_names, "drop", "survey_on_ray")
        whole = Sampled.of(SchemaCounts({}, 0), torch.zeros(len(batch), dtype=torch.float64), batch, len(batch))
        digest = hashlib.sha256(whole.rows.numpy().tobytes()).hexdigest()
        keys = torch.from_numpy(rng.fork_numpy(seed, "batch", digest).random(len(batch)))
        return Sampled.of(SchemaCounts.of(batch, ORIGIN, drop=drop), keys, batch, fitting_sample(batch, most))

    def merge(a: Sampled, b: Sampled) -> Sampled:
        rows = pa.concat_tables([a.table(), b.table()], promote_options="permissive")
        return Sampled.of(a.counts.merge(b.counts), torch.cat([a.keys, b.keys]), rows, fitting_sample(rows, most))

    found = gathered_on_ray(data, of, merge, Sampled)
    sample = found.table()
    schema = Schema.of(sample, drop=drop, origin=ORIGIN, counts=found.counts)
    return Survey(schema, found.counts.rows, sample, torch.empty(0, dtype=torch.int64))
