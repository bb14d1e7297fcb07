"""A run computes on the device that it is made on, and mixes nothing of the CPU in: to the same bits, seen from far."""

import pytest
import torch

from far import Far, far
from generators.test_contract import ROWS, TABULAR, X, Y, make
from test_contracts import LEARNERS
from toys import blobs
from vestige import data, generators
from vestige.continual import protocol
from vestige.continual.learners import METHODS, Vanilla, build
from vestige.core import rng
from vestige.core.checks import samples
from vestige.features.fixed import projection

# Other methods with a memory or a network that others have too.
ALIKE = {name for name in LEARNERS if name.endswith("_s")} - {"vanilla_s"}
ALIKE |= {"coreset_only", "ewc_huszar", "icarl_hb1", "vgr_mc_dropout", "vgr_vcl"}


def two_tasks():
    return data.split(blobs(n_classes=4, per_class=16), 2)


def numbers(record):
    return {key: str(x.tolist()) for key, x in (record.matrices | record.values | record.baseline).items()}


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")  # so little training may leave poor samples
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in LEARNERS])
def test_a_method_learns_far_away_to_the_same_bits(name):
    stream, fields = two_tasks(), LEARNERS[name].fields
    sure = METHODS[name].probabilities
    here = protocol.run(stream, build(name, stream, **fields), uncertainty=sure)
    with far() as waited:
        learner = build(name, stream, **fields)
        there = protocol.run(stream, learner, uncertainty=sure)
        assert all(isinstance(value, Far) for value in learner.net.state_dict().values())
    assert numbers(there) == numbers(here)
    assert {type(x) for x in (there.matrices | there.values | there.baseline).values()} == {torch.Tensor}
    assert (here.machine["device"], there.machine["device"]) == ("cpu", "far")
    assert waited.call_count == 2  # once a task, before the clock is read


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")  # an epoch leaves codes that say little
@pytest.mark.parametrize("name", ["pca", "random", "classifier", "vae"])
def test_features_of_every_kind_serve_far_away_to_the_same_bits(name):
    stream, options = two_tasks(), {"dims": 4} | ({"epochs": 1} if name in ("classifier", "vae") else {})
    here = protocol.run(stream, build("slda", stream, features=name, options=options))
    projection.cache_clear()  # of random directions, which are drawn here and there
    with far():
        there = protocol.run(stream, build("slda", stream, features=name, options=options))
    assert numbers(there) == numbers(here)


def taught(name, **options):
    """A generator that has learnt a condition, two more with its own replay, and one anew with replay that is given."""
    short = {} if name in TABULAR else {"epochs": 1} if "epochs" in ROWS[name] else {"steps": 3}
    generator = make(name, **options, **short)
    every = 1 if name in TABULAR else 4  # a far step takes far longer; a density wants its rows
    x, y = X[::every], Y[::every]
    generator.fit(x[y == 0], 0, seed=0)
    generator.fit(x[y != 0], y[y != 0], seed=1)
    return generator.fit(x[y == 2], 2, {0: x[y == 0]}, seed=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vae", {}),
        ("fgan", {"net": "conv"}),
        *(pytest.param(name, {}, marks=pytest.mark.slow) for name in ROWS if name != "vae"),
        pytest.param("vae", {"likelihood": "gaussian"}, marks=pytest.mark.slow),
    ],
)
def test_a_generator_learns_and_draws_far_away_to_the_same_bits(name, options, tmp_path):
    here = taught(name, **options)
    with far():
        there = taught(name, **options)
        drawn = there.sample(5, 1, seed=3)
        assert isinstance(drawn, Far)
        assert all(isinstance(v, Far) for net in there._nets() for v in net.state_dict().values())
        loaded = generators.load(there.save(tmp_path / "far.json"))
        assert torch.equal(loaded.sample(5, 1, seed=3).cpu(), drawn.cpu())
    assert torch.equal(drawn.cpu(), here.sample(5, 1, seed=3))
    assert there.report_ == here.report_
    near = {key: value.cpu() for key, value in there.state_dict().items()}
    assert near.keys() == here.state_dict().keys()
    assert all(torch.equal(near[key], value) for key, value in here.state_dict().items())


class Mixed(Vanilla):
    """Vanilla with something of the CPU in one of its ways."""

    plant = "observe"

    def observe(self, x, y):
        return super().observe(x + torch.zeros(x.shape, device="cpu") if self.plant == "observe" else x, y)

    def end_task(self, task):
        if self.plant == "draw":
            torch.randperm(3, generator=rng.fork(0, "planted", device="cpu"))
        elif self.plant == "numpy":
            self.net.head.weight.detach().numpy()
        elif self.plant == "float64":
            self.net.head.weight.double()
        super().end_task(task)


@pytest.mark.parametrize("plant", ["observe", "draw", "numpy", "float64", "nothing"])
def test_what_an_accelerator_would_refuse_is_seen(plant, monkeypatch):
    monkeypatch.setattr(Mixed, "plant", plant)
    stream = two_tasks()
    with far():
        learner = Mixed(build("vanilla", stream).spec)
        if plant == "nothing":
            protocol.run(stream, learner)
            return
        with pytest.raises((RuntimeError, TypeError), match=r"same device|not supported for tensor sub|float64"):
            protocol.run(stream, learner)


def test_tasks_are_handed_out_far_away_and_their_rows_are_those_of_here():
    stream = two_tasks()
    here = [(task.x.clone(), task.y.clone()) for task in stream]
    with far():
        again = data.split(blobs_near(), 2)
        for task, (x, y) in zip(again, here, strict=True):
            assert isinstance(task.x, Far)
            assert torch.equal(task.x.cpu(), x)
            assert torch.equal(task.y.cpu(), y)
        assert isinstance(again.test_sets()[0].x, Far)


def blobs_near():
    with torch.device("cpu"):
        return blobs(n_classes=4, per_class=16)


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
@pytest.mark.parametrize(
    "name",
    ["ewc_pp_s", "vcl_coreset", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vgr", "weighted_replay"))],
)
def test_a_run_goes_on_far_away_from_its_checkpoint(name, tmp_path):
    stream, fields = two_tasks(), LEARNERS[name].fields
    with far():
        whole = protocol.run(stream, build(name, stream, **fields))
        stopped = build(name, stream, **fields)
        with pytest.raises(KeyboardInterrupt):
            protocol.run(stream, stopped, checkpoint=tmp_path, on_progress=interrupt_in_second)
        trained = []
        again = protocol.run(
            stream, build(name, stream, **fields), checkpoint=tmp_path, on_progress=lambda p: trained.append(p.task)
        )
    assert trained == [1]
    assert numbers(again) == numbers(whole)
    trained.clear()
    protocol.run(
        stream, build(name, stream, **fields), checkpoint=tmp_path, on_progress=lambda p: trained.append(p.task)
    )
    assert trained == [0, 1]  # a checkpoint of another device is not taken up


def interrupt_in_second(progress):
    if progress.task == 1:
        raise KeyboardInterrupt


def test_a_generator_is_made_where_tensors_are_made(monkeypatch):
    made = []
    true = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device: made.append(torch.device(device)) or true())
    with torch.device("meta"):
        rng.fork(0, "x")
        rng.fork(0, "x", device="cpu")
    rng.fork(0, "x")
    assert [device.type for device in made] == ["meta", "cpu", "cpu"]


def test_a_data_set_is_held_on_the_cpu():
    with far():
        near = blobs_near()
        moved = data.DataSet(
            "far", near.train_x.to("far"), near.train_y.to("far"), near.test_x, near.test_y, near.names, "none", "made"
        )
    assert type(moved.train_x) is torch.Tensor
    assert moved.digest == near.digest
    assert samples(moved.train_x.flatten(1).float(), "x", "test").shape[0] == len(near.train_x)
