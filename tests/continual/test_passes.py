"""Passes: counted against what was computed by hand; budgets end a task; tests while training cost none."""

import math

import pytest
import torch

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.passes import Passes
from vestige.core.errors import InputError
from vestige.data.streams import blurred, split

FIELDS = {"hidden": (8,)}
ROWS = 80  # of a task of blobs


def spent(name, stream=None, **options):
    stream = stream or split(blobs(), 2)
    fields = FIELDS | options.pop("fields", {})
    record = protocol.run(stream, build(name, stream, **fields), batch_size=20, **({"budget": math.inf} | options))
    return record.values["passes"]


def test_vanilla_is_a_pass_a_row():
    assert spent("vanilla").tolist() == pytest.approx([ROWS, 2 * ROWS, 3 * ROWS])


def test_a_fisher_is_one_more_pass_over_the_task_and_the_true_one_a_backward_for_each_class():
    assert spent("ewc").tolist() == pytest.approx([2 * ROWS, 4 * ROWS, 6 * ROWS])
    true = spent("ewc", fields={"fisher": "true"})
    assert float(true[0]) == pytest.approx(ROWS + ROWS * (1 + 2 * 2) / 3)  # two outputs train in the first task


def test_replayed_rows_count_and_so_does_the_gradient_of_each_past_task():
    memory = {"memory": {"per_class": None, "total": 12}}
    beside = memory["memory"] | {"replay": "beside"}
    found = spent("vanilla_s", fields={"memory": beside})
    looked_at = ROWS / 3  # a forward at the end of a task, by which samples are chosen
    assert float(found[0]) == pytest.approx(ROWS + looked_at)
    assert float(found[1] - found[0]) == pytest.approx(ROWS + 4 * 12 + looked_at)
    gem = spent("gem", fields=memory)
    assert float(gem[2] - gem[1]) == pytest.approx(ROWS + 4 * 12 + looked_at)


def test_what_a_module_calls_within_itself_is_not_counted_again():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    passes = Passes(net)
    with passes.open():
        loss = net(torch.ones(6, 3)).sum()
        assert passes.total == pytest.approx(6 / 3)
        loss.backward()
        assert passes.total == pytest.approx(6)
        with torch.no_grad():
            net[0](torch.ones(3, 3))
    assert passes.total == pytest.approx(6 + 3 / 3 * 16 / 26)
    net(torch.ones(9, 3)).sum().backward()
    assert passes.total == pytest.approx(6 + 16 / 26)


def test_a_budget_ends_the_training_of_a_task_and_what_its_end_costs_is_taken_from_the_next():
    vanilla = spent("vanilla", budget=200)
    assert vanilla.tolist() == pytest.approx([200, 400, 600])
    ewc = spent("ewc", budget=200)
    assert ewc.tolist() == pytest.approx(
        [280, 480, 680]
    )  # the Fisher of the first task leaves 120 passes to the second
    assert spent("vanilla", budget=40, epochs=3).tolist() == pytest.approx([40, 80, 120])
    assert spent("vanilla", budget=1e9, epochs=3).tolist() == pytest.approx([240, 480, 720])


def test_iterations_are_batches_of_one_size():
    stream = split(blobs(), 2)
    learner, sizes = build("vanilla", stream, **FIELDS), []
    observe = learner.observe
    learner.observe = lambda x, y: sizes.append(len(y)) or observe(x, y)
    seen = []
    protocol.run(stream, learner, iterations=7, batch_size=30, on_progress=lambda p: seen.append((p.done, p.total)))
    assert sizes == [30] * 21  # two whole batches a round; the smaller last one is left out
    assert seen[-1] == (630, 630)
    few = build("vanilla", stream, **FIELDS)
    config = protocol.run(stream, few, iterations=2, batch_size=500).config["protocol"]
    assert config == {"iterations": 2, "batch_size": 500}


def test_contradictions_are_refused():
    stream = split(blobs(), 2)
    learner = build("vanilla", stream, **FIELDS)
    with pytest.raises(InputError, match="left out where 'iterations'"):
        protocol.run(stream, learner, epochs=2, iterations=3)
    with pytest.raises(InputError, match="'budget'"):
        protocol.run(stream, learner, budget=0)
    online = blurred(blobs(), 2)
    with pytest.raises(InputError, match="seen once"):
        protocol.run(online, build("vanilla", online, **FIELDS), iterations=3)


def test_an_online_stream_is_one_pass_with_a_memory_and_a_budget_can_cut_it_short():
    online = blurred(blobs(), 2)
    memory = {"per_class": None, "total": 10, "fill": "reservoir", "replay": "beside", "batch_size": 5}
    whole = spent("vanilla_s", online, fields={"memory": memory})
    rows = sum(online.info(k).n for k in range(3))
    assert rows < float(whole[-1]) <= rows + 5 * math.ceil(rows / 20 + 3)
    assert float(spent("vanilla", online, budget=30)[0]) == pytest.approx(40)
