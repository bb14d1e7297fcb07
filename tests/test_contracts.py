"""What every estimator, metric and method promises: one row each, the same promises for all.

A new method adds its name to `METHODS` in `vestige.methods` and its row to `LEARNERS` here; a test fails until it has.
"""

import gc
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

import pytest
import torch

from toys import blobs
from vestige import protocol
from vestige.data.split import split
from vestige.methods import METHODS, Vanilla, build


@dataclass(frozen=True)
class Row:
    """A method under contract: small settings, and how many past samples it may hold (None: all, an oracle)."""

    fields: dict = field(default_factory=lambda: {"hidden": (16,)})
    may_hold: int | None = 0
    is_vanilla: bool = False


LEARNERS = {
    "joint": Row(may_hold=None),
    "vanilla": Row(is_vanilla=True),
}


def test_every_method_has_a_row():
    assert LEARNERS.keys() == METHODS.keys()


def stream():
    return split(blobs(), 2)


def make(name, seed=0):
    return build(name, stream(), seed=seed, **LEARNERS[name].fields)


def reachable_tensors(root):
    """Every tensor that can be reached from `root` through attributes, containers and closures, but not by globals."""
    seen, stack, found = set(), [root], []
    while stack:
        thing = stack.pop()
        kind = type(thing)
        if id(thing) in seen or issubclass(kind, type | ModuleType | str | int | float):
            continue
        seen.add(id(thing))
        if issubclass(kind, torch.Tensor):
            found.append(thing.detach())
        elif kind is FunctionType:
            stack.extend([*(thing.__closure__ or ()), thing.__defaults__, thing.__kwdefaults__])
        else:
            stack.extend(gc.get_referents(thing))
    return found


def past_rows_held(learner, past):
    """How many rows of `past` (n, d) stand somewhere in what the learner can reach, whatever their shape there."""
    width = past.shape[1]
    wanted = {row.numpy().tobytes() for row in past}
    held = set()
    for tensor in reachable_tensors(learner):
        if tensor.dtype == past.dtype and tensor.numel() and tensor.numel() % width == 0:
            held |= wanted & {row.numpy().tobytes() for row in tensor.reshape(-1, width)}
    return len(held)


@pytest.mark.parametrize("name", LEARNERS)
class TestLearner:
    def test_same_seed_same_bits(self, name):
        one, two = make(name, 3), make(name, 3)
        protocol.run(stream(), one, seed=3)
        protocol.run(stream(), two, seed=3)
        a, b = one.state_dict(), two.state_dict()
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a)
        other = make(name, 4)
        assert not torch.equal(other.net.state_dict()["head.weight"], make(name, 3).net.state_dict()["head.weight"])

    def test_the_global_generator_is_left_alone(self, name):
        before = torch.random.get_rng_state()
        protocol.run(stream(), make(name))
        assert torch.equal(before, torch.random.get_rng_state())

    def test_no_past_data_is_reachable_but_in_the_memory(self, name):
        learner, tasks = make(name), stream()
        past = torch.cat([task.x.flatten(1).clone() for task in tasks])
        protocol.run(tasks, learner)
        allowed = LEARNERS[name].may_hold
        kept = 0 if learner.memory is None else len(learner.memory)
        assert past_rows_held(learner, past) <= (len(past) if allowed is None else allowed)
        if allowed is not None:
            assert kept <= allowed
        if learner.memory is not None:
            learner.memory = None  # what the memory held may stand nowhere else
        assert past_rows_held(learner, past) == 0

    def test_arguments_are_untouched(self, name):
        learner = make(name)
        for task in stream():
            learner.begin_task(task)
            x, y = task.x[:10].clone(), task.y[:10].clone()
            before = x.clone(), y.clone()
            learner.observe(x, y)
            learner.predict(x)
            assert torch.equal(x, before[0])
            assert torch.equal(y, before[1])

    @pytest.mark.parametrize("training", [True, False])
    def test_predict_preserves_the_mode_and_the_weights(self, name, training):
        learner = make(name)
        learner.net.train(training)
        before = learner.state_dict()
        scores = learner.predict(torch.rand(5, 6, 6))
        assert scores.shape == (5, 6)
        assert not scores.requires_grad
        assert learner.net.training is training
        assert all(torch.equal(before[k], v) for k, v in learner.state_dict().items())

    def test_one_batch_moves_the_weights_once(self, name):
        """Adam's own counter says how often the optimiser stepped; joint owes one step for each batch of the union."""
        learner, counts = make(name), []
        for task in stream():
            learner.begin_task(task)
            for x, y in zip(task.x.split(20), task.y.split(20), strict=True):
                learner.observe(x, y)
            counts.append(int(learner.state_dict()["optimizer.0.step"]))
            learner.end_task(task)
        assert counts == ([4, 8, 12] if LEARNERS[name].may_hold is None else [4, 4, 4])

    def test_saved_in_the_middle_of_a_task_it_goes_on_to_the_same_weights(self, name, tmp_path):
        from vestige import store

        learner, copy = make(name), make(name)
        for k, task in enumerate(stream()):
            learner.begin_task(task)
            batches = list(zip(task.x.split(16), task.y.split(16), strict=True))
            for i, (x, y) in enumerate(batches):
                learner.observe(x, y)
                if (k, i) == (1, 2):
                    path = store.save(tmp_path / "learner.json", "learner", {}, learner.state_dict())
                    copy.load_state_dict(store.load(path, "learner")[1])
                elif k == 1 and i > 2:
                    copy.observe(x, y)
            if k == 1:
                break
        a, b = learner.state_dict(), copy.state_dict()
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)

    def test_a_state_that_does_not_fit_is_named(self, name):
        from vestige.errors import StoreError

        learner = make(name)
        state = learner.state_dict()
        state["net.head.weight"] = torch.zeros(3, 3)
        with pytest.raises(StoreError, match=r"head\.weight"):
            learner.load_state_dict(state)

    def test_it_differs_from_vanilla_unless_it_is_vanilla(self, name):
        learner = make(name)
        plain = Vanilla(learner.spec, learner.config)
        for each in (learner, plain):
            protocol.run(stream(), each, epochs=2)
        same = torch.equal(learner.net.state_dict()["head.weight"], plain.net.state_dict()["head.weight"])
        assert same is LEARNERS[name].is_vanilla


def test_the_search_for_past_rows_can_fail():
    """A learner that hides one batch in a closure inside a list is found out."""
    tasks, learner = stream(), make("vanilla")
    hidden = []

    class Hoarder(Vanilla):
        def observe(self, x, y):
            if not hidden:
                kept = x.clone()
                hidden.append(lambda: kept)
                self.secret = hidden
            return super().observe(x, y)

    hoarder = Hoarder(learner.spec, learner.config)
    past = torch.cat([task.x.flatten(1).clone() for task in tasks])
    protocol.run(tasks, hoarder, batch_size=8)
    assert past_rows_held(hoarder, past) == 8


def test_a_batch_that_was_kept_without_a_copy_is_destroyed():
    tasks, learner = stream(), make("vanilla")

    class Keeper(Vanilla):
        kept = None

        def observe(self, x, y):
            self.kept = x if self.kept is None else self.kept
            return super().observe(x, y)

    keeper = Keeper(learner.spec, learner.config)
    protocol.run(tasks, keeper)
    assert keeper.kept.isnan().all()
