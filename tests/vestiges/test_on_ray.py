"""States gathered where the rows are equal those of one machine to 1e-10."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest
import torch

from vestige.core.errors import InputError, StoreError
from vestige.metrics.mmd import KID
from vestige.vestiges.batches import batches, survey
from vestige.vestiges.keep import keep
from vestige.vestiges.on_ray import COLUMN, gathered_on_ray, packed, survey_on_ray, unpacked
from vestiges.gathered import State, mixed, state_of

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: the extra 'cluster'")


class InBlocks:
    """A Ray Data set as far as it is asked for here: functions are shipped as Ray does it, blocks come in any order."""

    def __init__(self, blocks):
        self.blocks = blocks

    def map_batches(self, function, *, batch_size, batch_format):
        assert batch_format == "pyarrow"
        shipped = cloudpickle.loads(cloudpickle.dumps(function))
        whole = pa.concat_tables(self.blocks)
        blocks = (
            self.blocks
            if batch_size is None
            else [whole.slice(i, batch_size) for i in range(0, len(whole), batch_size)]
        )
        return InBlocks([shipped(block) for block in reversed(blocks)])

    def iter_batches(self, *, batch_size, batch_format):
        assert batch_format == "pyarrow"
        yield from self.blocks

    def iter_rows(self):
        for block in self.blocks:
            yield from block.to_pylist()


@pytest.fixture
def table():
    return mixed(5000)


def here(table, of):
    states = [of(batch) for batch in batches(table, 1000)]
    total = states[0]
    for state in states[1:]:
        total = total.merge(state)
    return total


def test_states_of_blocks_are_the_state_of_all_rows(table):
    data = InBlocks([table.slice(i, 130) for i in range(0, len(table), 130)] + [table.slice(0, 0)])
    schema = survey(data).schema
    assert schema == survey(table).schema
    of = state_of(schema)
    there = gathered_on_ray(data, of, State.merge, State, rows=50)
    whole = here(table, of)
    assert there.counts == whole.counts
    assert there.moments.n == 5000
    assert there.gap(whole) < 1e-10


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_what_is_kept_on_ray_is_what_one_machine_keeps_under_one_frame():
    first, table = keep(mixed(800, seed=1)), mixed(1000)
    data = InBlocks([table.slice(i, 133) for i in range(0, len(table), 133)])
    there, here = keep(data, like=first, third=True), keep(table, like=first, third=True)
    assert there.n == here.n == there.third.n_ == 1000
    a, b = there.moments.whole(), here.moments.whole()
    spread = b.covariance().diagonal().sqrt()  # halves of the rows are others there, and each is rounded
    assert bool(((a.mean - b.mean).abs() <= 0.02 * spread / 1000**0.5).all())
    assert bool(
        ((a.covariance() - b.covariance()).abs() <= 0.04 * torch.outer(spread, spread) / 1000**0.5 + 1e-12).all()
    )
    new = first.frame.features(first.frame.cells(mixed(200, seed=2)).cells)
    other = KID(groups=1).update(new)
    close(*(torch.tensor(one.third.compute(other).value) for one in (there, here)))
    a, b = there.test.moments, here.test.moments
    assert a.units == a.units_learnt == b.units == b.units_learnt == 1000
    close(a.total, b.total)
    close(a.squares, b.squares)
    with pytest.raises(InputError, match="1 for a Ray Data set, whose rows have no order"):
        keep(data, block=5)


def test_a_survey_there_counts_all_rows_and_draws_the_same_sample_in_any_order(table):
    blocks = [table.slice(i, 130) for i in range(0, len(table), 130)]
    found = survey_on_ray(InBlocks(blocks), most=500, drop=["member"])
    again = survey_on_ray(InBlocks(blocks[::-1]), most=500, drop=["member"])
    assert found.n == again.n == 5000
    assert found.sample.num_rows == 500
    assert found.sample.equals(again.sample)
    assert found.schema == again.schema
    assert found.schema.columns[1] == survey(table, drop=["member"]).schema.columns[1]  # categories are of all rows
    rows = {tuple(row.values()) for row in table.to_pylist()}
    assert {tuple(row.values()) for row in found.sample.to_pylist()} <= rows
    share = sum(x is None for x in found.sample.column("age").to_pylist()) / 500
    assert share == pytest.approx(1 / 9, abs=0.05)
    assert not survey_on_ray(InBlocks(blocks), most=500, seed=1).sample.equals(found.sample)
    with pytest.raises(InputError, match="Did you mean 'member'"):
        survey_on_ray(InBlocks(blocks), drop=["membr"])


def test_only_states_reach_the_caller(table):
    data = InBlocks([table.slice(i, 100) for i in range(0, len(table), 100)])
    told = []

    class Watched(InBlocks):
        def iter_rows(self):
            told.extend(super().iter_rows())
            yield from told

    data.map_batches = lambda f, **k: Watched(InBlocks.map_batches(data, f, **k).blocks)
    Watched.map_batches = lambda self, f, **k: Watched(InBlocks.map_batches(self, f, **k).blocks)
    gathered_on_ray(data, state_of(survey(table).schema), State.merge, State)
    assert len(told) == 4  # 50 blocks in groups of 16
    assert all(set(row) == {COLUMN} and isinstance(row[COLUMN], bytes) for row in told)


def test_a_state_goes_and_comes_back_as_bytes(table):
    state = here(table, state_of(survey(table).schema))
    again = unpacked(State, packed(state))
    assert again.counts == state.counts
    assert torch.equal(again.moments.scatter, state.moments.scatter)
    with pytest.raises(StoreError, match="torn or not safetensors"):
        unpacked(State, packed(state)[:-9])


def test_what_is_no_ray_data_set_or_empty_is_refused(table):
    of = state_of(survey(table).schema)
    with pytest.raises(InputError, match="must be a Ray Data set"):
        gathered_on_ray(table, of, State.merge, State)
    with pytest.raises(InputError, match="at least one row"):
        gathered_on_ray(InBlocks([table.slice(0, 0)]), of, State.merge, State)


@needs_ray
@pytest.mark.cluster
def test_two_machines_find_what_one_finds():
    script = Path(__file__).parent / "two_nodes.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["machines"] == 2
    assert seen["processes"] >= 2
    assert seen["n"] == [20_000, 20_000]
    assert seen["counts"]
    assert seen["gap"] < 1e-10
    assert seen["kept"] < 1e-10
