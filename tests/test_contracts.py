"""What every estimator, metric and method promises: one row each, the same promises for all.

A new method adds its name to `METHODS` in `learners` and its row to `LEARNERS` here; a ratio estimator adds to
`RATIOS`, an accumulator to `ACCUMULATORS`. A test fails until the row is there.
"""

import functools
import gc
import math
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

import pytest
import torch

from toys import blobs
from vestige import metrics, ratios, store
from vestige.continual import protocol
from vestige.continual.learners import METHODS, Learner, Vanilla, build
from vestige.continual.learners.vanilla import VanillaConfig
from vestige.core.errors import InputError, NotFitted, StoreError
from vestige.data.stream import Task
from vestige.data.streams import split
from vestige.metrics.base import Accumulator
from vestige.nets import NETS, ResNet18, Table4


@dataclass(frozen=True)
class Row:
    """A method under contract: small settings, and how many past samples it may hold (None: all, an oracle)."""

    fields: dict = field(default_factory=lambda: {"hidden": (16,)})
    may_hold: int | None = 0
    is_vanilla: bool = False
    pulls: bool = False  # has a penalty that must not be zero once a second task has moved the weights
    without: str = "vanilla"  # what is left of the method when its pull has no strength
    any_net: bool = True  # takes every network of NETS, and a head that grows
    steps: bool = True  # moves its weights while the stream passes


# Three samples for each of six classes; and a total that six does not divide.
THREE_A_CLASS = {"hidden": (16,), "memory": {"per_class": 3}}
TEN_IN_ALL = {"hidden": (16,), "memory": {"per_class": None, "total": 10}}


def three_a_class(**options):
    return {"hidden": (16,), "memory": {"per_class": 3, **options}}


VARIATIONAL = {"hidden": (16,), "train_samples": 2, "test_samples": 3, "fit_steps": 3}
FOUR_A_TASK = VARIATIONAL | {"coreset": 4, "coreset_steps": 2}

# A generator of a few units, taught in a few steps.
TINY_GAN = {
    "replay": {
        "generator": "gan_dense",
        "options": {"widths": (8,), "critic_widths": (8,), "epochs": 2, "batch_size": 20},
        "samples_per_class": 8,
    }
}

TINY_VAE = {"encoder": (8,), "decoder": (8, 8), "codes": 3, "steps": 12, "batch_size": 20, "collapse": 0.0}
TINY_REPLAY = {"hidden": (16,), "replay": {"options": TINY_VAE, "samples_per_class": 8}}
FOLLOWED = {"condition": "task", "resample": True, "min_rows": 40, "chain_samples": 60, "ess": 0.6}

LEARNERS = {
    "agem": Row(TEN_IN_ALL, may_hold=10),
    "coreset_only": Row(FOUR_A_TASK, may_hold=12, any_net=False),
    # with a whole head it holds the logits of outputs to come, which a head that grows does not have
    "der_pp": Row({"hidden": (16,), "total": 10}, may_hold=10, any_net=False),
    "dgr": Row(TINY_REPLAY),
    "ensemble": Row({"hidden": (16,), "members": 3}, any_net=False),
    "er": Row({"hidden": (16,), "memory": {"total": 10}}, may_hold=10),
    "ewc": Row(pulls=True),
    "ewc_huszar": Row(pulls=True),
    "ewc_huszar_s": Row(THREE_A_CLASS, may_hold=18, pulls=True, without="vanilla_s"),
    "ewc_pp": Row(pulls=True),
    "ewc_pp_s": Row(three_a_class(replay="beside"), may_hold=18, pulls=True, without="vanilla_s"),
    "ewc_s": Row(TEN_IN_ALL, may_hold=10, pulls=True, without="vanilla_s"),
    "fecam": Row({}, any_net=False, steps=False),
    "gdumb": Row({"hidden": (16,), "total": 10, "epochs": 2}, may_hold=10, steps=False),
    "gem": Row(TEN_IN_ALL, may_hold=10),
    "icarl": Row(TEN_IN_ALL, may_hold=10),
    "icarl_hb1": Row(THREE_A_CLASS, may_hold=18),
    "joint": Row(may_hold=None),
    "lwf": Row(),
    "mc_dropout": Row({"hidden": (16,), "test_samples": 3}, any_net=False),
    "ncm": Row({}, any_net=False, steps=False),
    "pi": Row(pulls=True),
    "pi_s": Row(three_a_class(replay="mixed"), may_hold=18, pulls=True, without="vanilla_s"),
    "rwalk": Row(pulls=True),
    "rwalk_s": Row(three_a_class(replay="finetune", finetune_epochs=3), may_hold=18, pulls=True, without="vanilla_s"),
    "slda": Row({}, any_net=False, steps=False),
    "vanilla": Row(is_vanilla=True),
    "vanilla_s": Row(TEN_IN_ALL, may_hold=10),
    "vcl": Row(VARIATIONAL, any_net=False),
    "vcl_coreset": Row(FOUR_A_TASK | {"coreset_fit": "per_task"}, may_hold=12, any_net=False),
    "vgr": Row(VARIATIONAL | TINY_GAN, any_net=False),
    "vgr_mc_dropout": Row({"hidden": (16,), "test_samples": 3, **TINY_GAN}, any_net=False),
    "vgr_vcl": Row(VARIATIONAL | TINY_GAN, any_net=False),
    "weighted_replay": Row(TINY_REPLAY | FOLLOWED),
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
    def test_same_seed_same_bits_and_the_global_generator_is_left_alone(self, name):
        before = torch.random.get_rng_state()
        learner = make(name, 3)
        protocol.run(stream(), learner, seed=3)
        a, b = learner.state_dict(), trained(name)
        assert torch.equal(before, torch.random.get_rng_state())
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a)
        other = make(name, 4)
        assert not torch.equal(other.net.state_dict()["head.weight"], make(name, 3).net.state_dict()["head.weight"])

    def test_no_past_data_is_reachable_but_in_the_memory(self, name):
        learner = taught(name)
        past = torch.cat([task.x.flatten(1).clone() for task in stream()])
        allowed = LEARNERS[name].may_hold
        kept = 0 if learner.memory is None else len(learner.memory)
        assert past_rows_held(learner.memory, past) <= (len(past) if allowed is None else allowed)
        if allowed is not None:
            assert kept <= allowed
        memory, learner.memory = learner.memory, None  # what the memory held may stand nowhere else
        held = past_rows_held(learner, past)
        learner.memory = memory
        assert held == 0

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

    def test_one_batch_moves_the_weights_once_and_leaves_the_network_in_training(self, name):
        """Adam's own counter says how often the optimiser stepped; joint owes one step for each batch of the union."""
        learner, counts = make(name), []
        for task in stream():
            learner.begin_task(task)
            assert learner.net.training
            for x, y in zip(task.x.split(20), task.y.split(20), strict=True):
                learner.observe(x, y)
                assert learner.net.training
            counts.append(int(learner.state_dict().get("optimizer.0.step", 0)))
            learner.end_task(task)
            assert learner.net.training
        each = [4, 8, 12] if LEARNERS[name].may_hold is None else [4, 4, 4]
        assert counts == (each if LEARNERS[name].steps else [0, 0, 0])

    def test_saved_in_the_middle_of_a_task_it_goes_on_to_the_same_weights(self, name, tmp_path):
        a, b = stopped_and_gone_on(make(name), make(name), tmp_path)
        assert same_bits(a, b)

    def test_a_state_that_does_not_fit_is_named(self, name):
        learner = make(name)
        state = learner.state_dict()
        state["net.head.weight"] = torch.zeros(3, 3)
        with pytest.raises(StoreError, match=r"head\.weight"):
            learner.load_state_dict(state)

    def test_it_differs_from_vanilla_unless_it_is_vanilla(self, name):
        same = torch.equal(trained(name)["net.head.weight"], vanilla_head())
        assert same is LEARNERS[name].is_vanilla


@functools.cache
def taught(name):
    """A learner after all tasks, which tests look at and none changes."""
    learner = make(name, 3)
    protocol.run(stream(), learner, seed=3)
    return learner


@functools.cache
def trained(name):
    """Its state."""
    return taught(name).state_dict()


@functools.cache
def vanilla_head():
    """The head's weights of vanilla, built by hand, after the same."""
    plain = Vanilla(make("vanilla").spec, VanillaConfig(hidden=(16,)), seed=3)
    protocol.run(stream(), plain, seed=3)
    return plain.net.state_dict()["head.weight"]


def stopped_and_gone_on(learner, copy, tmp_path):
    """Two states: of a learner in the middle of the second task, and of `copy` that took over before, from disk."""
    for k, task in enumerate(stream()):
        learner.begin_task(task)
        for i, (x, y) in enumerate(zip(task.x.split(16), task.y.split(16), strict=True)):
            learner.observe(x, y)
            if (k, i) == (1, 2):
                path = store.save(tmp_path / "learner.json", "learner", {}, learner.state_dict())
                copy.load_state_dict(store.load(path, "learner")[1])
            elif k == 1 and i > 2:
                copy.observe(x, y)
        if k == 1:
            break
        learner.end_task(task)
    return learner.state_dict(), copy.state_dict()


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", [name for name, row in LEARNERS.items() if row.any_net])
class TestGrownHead:
    """A head that gets its outputs when their task arrives."""

    @pytest.mark.parametrize(
        ("logits", "reset"),
        [
            ("seen", False),
            ("current", True),
            pytest.param("seen", True, marks=pytest.mark.slow),
            pytest.param("current", False, marks=pytest.mark.slow),
        ],
    )
    def test_it_learns_what_a_whole_head_learns(self, name, logits, reset, monkeypatch):
        """In double precision and under a weak pull: a product with fewer columns may be summed in another order, and
        where the pull is the only gradient Adam, whose eps is 1e-8, makes rounding larger at every step. One step is
        1e-3, and so is a mistake."""
        whole_net = Learner.whole_net
        monkeypatch.setattr(Learner, "whole_net", lambda self: whole_net(self).double())
        ends, options = [], {"reset_optimizer": reset} | ({"lam": 0.1} if LEARNERS[name].pulls else {})
        for head in ("fixed", "grown"):
            tasks = split(blobs(), 2, train_logits=logits)
            learner, rows = build(name, tasks, head=head, **options, **LEARNERS[name].fields), []
            for task in tasks:
                double = Task(task.info, task.x.double(), task.y, task.val_x.double(), task.val_y)
                learner.begin_task(double)
                for x, y in zip(double.x.split(16), double.y.split(16), strict=True):
                    learner.observe(x, y)
                learner.end_task(double)
                rows.append(len(learner.net.head.weight))
            assert rows == ([6, 6, 6] if head == "fixed" else [2, 4, 6])
            ends.append(learner)
        fixed, grown = (learner.state_dict() for learner in ends)
        assert grown.pop("net.outputs").tolist() == list(range(6))
        for key, value in fixed.items():
            if value.is_floating_point():
                torch.testing.assert_close(grown[key], value, atol=5e-6, rtol=1e-3)
        x = torch.rand(5, 6, 6, dtype=torch.float64)
        torch.testing.assert_close(ends[1].predict(x), ends[0].predict(x), atol=5e-5, rtol=1e-3)

    def test_saved_in_the_middle_of_a_task_it_goes_on_to_the_same_weights(self, name, tmp_path):
        learner, copy = (build(name, stream(), head="grown", **LEARNERS[name].fields) for _ in range(2))
        a, b = stopped_and_gone_on(learner, copy, tmp_path)
        assert a["net.head.weight"].shape[0] == 4
        assert same_bits(a, b)

    def test_a_head_of_another_size_is_named_and_changes_nothing(self, name):
        learner = build(name, stream(), head="grown", **LEARNERS[name].fields)
        learner.begin_task(next(iter(stream())))
        state, before = learner.state_dict(), learner.state_dict()
        for key, value, sentence in (
            ("net.outputs", torch.tensor([0, 1, 2]), r"head\.(weight|bias)"),
            ("net.outputs", torch.tensor([0, 0]), "outputs"),
            ("net.outputs", torch.tensor([0, 9]), "outputs"),
            ("net.head.weight", torch.zeros(3, 3), r"head\.weight"),
        ):
            with pytest.raises(StoreError, match=sentence):
                learner.load_state_dict(state | {key: value})
            assert same_bits(before, learner.state_dict())

    def test_nothing_pulls_at_new_outputs_and_old_ones_keep_their_importance(self, name):
        if not LEARNERS[name].pulls:
            pytest.skip("no pull")
        learner, before = build(name, stream(), head="grown", **LEARNERS[name].fields), None
        for task in stream():
            learner.begin_task(task)
            rows = 2 * task.info.index
            if before is not None:
                for part in ("head.weight", "head.bias"):
                    assert torch.equal(learner.weight_[part][:rows], before[part])
                    assert (learner.weight_[part][:rows] > 0).any()
                    assert (learner.weight_[part][rows:] == 0).all()
                    assert len(learner.weight_[part]) == rows + 2
            for x, y in zip(task.x.split(20), task.y.split(20), strict=True):
                learner.observe(x, y)
            learner.end_task(task)
            before = {key: value.clone() for key, value in learner.weight_.items()}


@pytest.mark.parametrize(
    ("name", "net"),
    [
        *((name, "table4") for name, row in LEARNERS.items() if row.any_net),
        *((name, "resnet18_reduced") for name in ("ewc", "gem", "icarl", "joint", "rwalk_s")),
    ],
)
def test_with_dropout_or_batch_norm_it_keeps_its_promises(name, net, tmp_path, monkeypatch):
    """Same seed same bits also from disk in the middle of a task; no past data; the global generator is left alone."""
    narrow = {
        "table4": lambda shape, hidden, k, seed: Table4(shape, k, seed=seed, filters=(3, 4)),
        "resnet18_reduced": lambda shape, hidden, k, seed: ResNet18(shape, k, seed=seed, width=3),
    }
    monkeypatch.setitem(NETS, net, narrow[net])
    fields = {key: value for key, value in LEARNERS[name].fields.items() if key != "hidden"} | {"net": net}
    generator = torch.random.get_rng_state()
    learner, copy = (build(name, stream(), **fields) for _ in range(2))
    a, b = stopped_and_gone_on(learner, copy, tmp_path)
    assert same_bits(a, b)
    assert learner.net.training
    learner.predict(torch.ones(5, 6, 6))
    assert same_bits(a, learner.state_dict())
    assert torch.equal(generator, torch.random.get_rng_state())
    if learner.memory is not None:
        learner.memory = None
    past = next(iter(stream())).x.flatten(1)
    assert past_rows_held(learner, past) == 0


@pytest.mark.parametrize("name", [name for name, row in LEARNERS.items() if row.pulls])
class TestPull:
    def test_the_penalty_is_zero_in_the_first_task_and_not_in_the_second(self, name):
        learner = make(name)
        for task in stream():
            learner.begin_task(task)
            for x, y in zip(task.x.split(20), task.y.split(20), strict=True):
                learner.observe(x, y)
            assert (learner.penalty() > 0) is (task.info.index > 0)
            learner.end_task(task)

    def test_no_strength_no_difference_from_the_method_without_it(self, name):
        row = LEARNERS[name]
        free = build(name, stream(), **row.fields, lam=0.0)
        plain = build(row.without, stream(), **row.fields)
        for each in (free, plain):
            protocol.run(stream(), each)
        for key, value in plain.net.state_dict().items():
            torch.testing.assert_close(free.net.state_dict()[key], value)

    def test_a_strong_pull_holds_the_weights(self, name):
        moved = {}
        for lam in (0.0, 1e4):
            learner, ends = build(name, stream(), **LEARNERS[name].fields, lam=lam), []
            for task in stream():
                learner.begin_task(task)
                for x, y in zip(task.x.split(20), task.y.split(20), strict=True):
                    learner.observe(x, y)
                learner.end_task(task)
                ends.append({k: v.clone() for k, v in learner.net.state_dict().items()})
            weight = learner.weight_["body.1.weight"]
            moved[lam] = float((weight * (ends[-1]["body.1.weight"] - ends[0]["body.1.weight"]).square()).sum())
        assert moved[1e4] < 0.95 * moved[0.0]

    def test_memory_does_not_grow_with_the_tasks(self, name):
        tasks = split(blobs(per_class=12), 1)
        learner, sizes = build(name, tasks, **LEARNERS[name].fields), []
        for task in tasks:
            learner.begin_task(task)
            learner.observe(task.x, task.y)
            learner.end_task(task)
            # All that is kept but the samples, whose budget is another matter.
            held = learner.bytes()
            sizes.append(sum(held.values()) - held["memory"])
        assert len(sizes) == 6
        assert set(sizes) == {sizes[0]}

    def test_a_negative_strength_is_refused(self, name):
        with pytest.raises(InputError, match=r"'lam' of .* must be in"):
            build(name, stream(), lam=-1.0)


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


# Ratio estimators: small settings, where the defaults take long. Each is fitted on 300 rows of two Gaussians.
ESTIMATORS = {
    "bootstrap": lambda: ratios.Bootstrap(ratios.Logistic(kind="linear"), 5),
    "bregman": lambda: ratios.Bregman(steps=60),
    "bridge": lambda: ratios.Bridge(ratios.Logistic(kind="linear"), waymarks=2),
    "fgan": lambda: ratios.FGANRatio(steps=60),
    "forest": lambda: ratios.Forest(trees=30),
    "kliep": lambda: ratios.KLIEP(),
    "kliep_net": lambda: ratios.KLIEPNet(steps=60),
    "lsif": lambda: ratios.LSIF(steps=300),
    "logistic": lambda: ratios.Logistic(steps=60),
    "rulsif": lambda: ratios.RULSIF(),
    "stack": lambda: ratios.Stack(folds=2, max_steps=60, min_steps=1, wide=8, wide_epochs=1),
    "ulsif": lambda: ratios.ULSIF(),
}


def test_every_estimator_has_a_row():
    assert ESTIMATORS.keys() == ratios.RATIOS.keys()


def two_gaussians(n_p=300, n_q=200, d=2, seed=0):
    """p sits at +0.5 in every coordinate, q at -0.5."""
    g = torch.Generator().manual_seed(seed)
    draw = [torch.randn(n, d, generator=g, dtype=torch.float64) for n in (n_p, n_q)]
    return draw[0] + 0.5, draw[1] - 0.5


@functools.cache
def fitted(name):
    """One fit for all tests that only look at it."""
    return ESTIMATORS[name]().fit(*two_gaussians())


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")  # so few steps and rows earn a warning
@pytest.mark.parametrize("name", ESTIMATORS)
class TestRatio:
    def test_it_tells_p_from_q_and_is_centred_whatever_the_sizes(self, name):
        for sizes in ((300, 200), (150, 600)):
            p, q = two_gaussians(*sizes)
            ratio = ESTIMATORS[name]().fit(p, q)
            far = ratio.log_ratio(torch.tensor([[0.8, 0.8], [-0.8, -0.8]], dtype=torch.float64))
            assert far[0] > 0.4
            assert far[1] < -0.4
            # log r = 0 at the midpoint; log(600/150) = 1.4 would show an uncorrected imbalance.
            assert abs(float(ratio.log_ratio(torch.zeros(1, 2)))) < 0.8

    def test_same_seed_same_bits_and_arguments_untouched(self, name):
        p, q = two_gaussians()
        before = p.clone(), q.clone()
        state = torch.random.get_rng_state()
        one, two = ESTIMATORS[name]().fit(p, q, seed=7), ESTIMATORS[name]().fit(p, q, seed=7)
        assert torch.equal(one.log_ratio(q), two.log_ratio(q))
        assert torch.equal(p, before[0])
        assert torch.equal(q, before[1])
        assert torch.equal(state, torch.random.get_rng_state())

    def test_it_comes_back_from_disk_as_it_was(self, name, tmp_path):
        ratio, x = fitted(name), two_gaussians(seed=1)[0]
        path = ratio.save(tmp_path / "ratio.json")
        loaded = ratios.Ratio.load(path)
        assert type(loaded) is type(ratio)
        assert torch.equal(loaded.log_ratio(x), ratio.log_ratio(x))
        assert store.encode(loaded)[0] == store.encode(ratio)[0]

    def test_a_row_has_one_value_whatever_else_is_in_the_call(self, name):
        ratio, (p, q) = fitted(name), two_gaussians(seed=1)
        together = ratio.log_ratio(torch.cat([p, q * 9]))
        torch.testing.assert_close(together[:3], ratio.log_ratio(p[:3]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together[5:6], ratio.log_ratio(p[5:6]), rtol=1e-4, atol=1e-5)

    def test_weights_count_as_samples_do(self, name):
        """Half of p at no weight is as if it were not there: the answer leans to the other half."""
        p, q = two_gaussians()
        far = torch.cat([p, p + 20])
        weights = torch.cat([torch.ones(300), torch.zeros(300)])
        weighted = ESTIMATORS[name]().fit(far, q, p_weights=weights)
        inside = float(weighted.log_ratio(torch.full((1, 2), 0.8)))
        assert inside > 0.2

    def test_kinds_in_are_kinds_out(self, name):
        import numpy as np
        import pandas as pd

        ratio, x = fitted(name), two_gaussians(seed=1)[0][:4]
        expected = ratio.log_ratio(x)
        frame = pd.DataFrame(x.numpy(), index=list("abcd"))
        assert isinstance(ratio.log_ratio(x.numpy()), np.ndarray)
        assert isinstance(ratio.log_ratio(x.tolist()), list)
        assert ratio.log_ratio(frame).index.tolist() == list("abcd")
        assert ratio.log_ratio(x.float()).dtype == torch.float32
        np.testing.assert_array_equal(ratio.log_ratio(frame).to_numpy(), expected.numpy())

    def test_bad_input_is_refused_before_any_work(self, name):
        p, q = two_gaussians()
        broken = p.clone()
        broken[3, 1] = float("nan")
        for bad_p, bad_q, sentence in (
            (broken, q, "finite"),
            (p, q[:, :1], "as wide as"),
            (p[:0], q, "at least 2 samples"),
            (p[:1], q, "at least 2 samples"),
            ([["a", "b"]] * 3, q, "an array of numbers"),
        ):
            with pytest.raises(InputError, match=sentence):
                ESTIMATORS[name]().fit(bad_p, bad_q)
        for weights, sentence in ((-torch.ones(300), "0 or larger"), (torch.zeros(300), "all zeros")):
            with pytest.raises(InputError, match=sentence):
                ESTIMATORS[name]().fit(p, q, p_weights=weights)
        with pytest.raises(InputError, match="2 features wide"):
            fitted(name).log_ratio(torch.zeros(3, 5))
        with pytest.raises(NotFitted, match="before fit"):
            ESTIMATORS[name]().log_ratio(p)

    @pytest.mark.parametrize("case", ["constant column", "integer images", "more features than rows", "two rows"])
    def test_odd_input_gets_a_finite_answer(self, name, case):
        g = torch.Generator().manual_seed(3)
        p, q = two_gaussians(40, 30)
        if case == "constant column":
            p, q = (torch.cat([x, torch.full((len(x), 1), 7.0)], 1) for x in (p, q))
        elif case == "integer images":
            p, q = (torch.randint(256, (n, 3, 3), generator=g, dtype=torch.uint8) for n in (40, 30))
        elif case == "more features than rows":
            p, q = (torch.randn(n, 50, generator=g) for n in (40, 30))
        else:
            p, q = p[:2], q[:2]
        try:
            ratio = ESTIMATORS[name]().fit(p, q)
        except InputError:  # two rows may be too few to hold any out; every InputError is the one sentence
            if case == "two rows":
                return
            raise
        assert ratio.log_ratio(q).isfinite().all()
        assert ratio.log_ratio(p).isfinite().all()

    def test_the_report_says_what_happened_in_plain_json(self, name):
        report, kind = fitted(name).report_, ratios.RATIOS[name].__name__
        assert {"estimator", "n_p", "n_q", "d", "kept_of_p", "converged"} <= report.keys()
        assert (report["estimator"], report["n_p"], report["n_q"], report["d"]) == (kind, 300, 200, 2)
        assert store.canonical(report)


# Accumulators: how to build one, and what `compute` needs. Rows are features; for the score, probabilities.
CENTRES = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None].repeat(1, 3)
ACCUMULATORS = {
    "FID": lambda: metrics.FID(groups=4),
    "InceptionScore": lambda: metrics.InceptionScore(),
    "KID": lambda: metrics.KID(),
    "MMD": lambda: metrics.MMD(bandwidth=1.5),
    "PRD": lambda: metrics.PRD(CENTRES),
    "PRDC": lambda: metrics.PRDC(),
}


def test_every_accumulator_has_a_row():
    def leaves(kind):
        below = kind.__subclasses__()
        return {kind.__name__} if not below else set().union(*map(leaves, below))

    assert leaves(Accumulator) == ACCUMULATORS.keys()


def feature_rows(name, n, seed):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.softmax(1) if name == "InceptionScore" else x


def numbers(result):
    """Every number of a result, flat: values, standard errors, curves, details."""
    if isinstance(result, torch.Tensor):
        return result.flatten().tolist()
    if isinstance(result, bool | str) or result is None:
        return []
    if isinstance(result, int | float):
        return [] if math.isnan(result) else [float(result)]  # what was not asked for
    if isinstance(result, dict):
        return [v for key in sorted(result) for v in numbers(result[key])]
    if isinstance(result, list | tuple):
        return [v for item in result for v in numbers(item)]
    return numbers({k: getattr(result, k) for k in result.__dataclass_fields__})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ACCUMULATORS)
class TestAccumulator:
    def sides(self, name, weighted):
        rows = feature_rows(name, 120, 0), feature_rows(name, 90, 1)
        weights = [torch.rand(len(r), generator=torch.Generator().manual_seed(5)) + 0.1 for r in rows]
        return [(r, w if weighted else None) for r, w in zip(rows, weights, strict=True)]

    def compute(self, name, sides):
        return numbers(sides[0].compute() if name == "InceptionScore" else sides[0].compute(sides[1]))

    def test_chunks_and_merges_give_what_one_pass_gives(self, name, weighted):
        whole, parts = [], []
        for rows, weights in self.sides(name, weighted):
            whole.append(ACCUMULATORS[name]().update(rows, weights))
            merged = ACCUMULATORS[name]()
            for start, stop in ((0, 40), (40, 41), (41, 80)):
                merged.update(rows[start:stop], None if weights is None else weights[start:stop])
            # A worker's share is dealt from the start of the groups, so it begins where a round of them ends.
            merged.merge(ACCUMULATORS[name]().update(rows[80:], None if weights is None else weights[80:]))
            parts.append(merged)
        assert self.compute(name, parts) == pytest.approx(self.compute(name, whole), rel=1e-9, abs=1e-12)

    def test_it_comes_back_from_disk_as_it_was(self, name, weighted, tmp_path):
        before, after = [], []
        for i, (rows, weights) in enumerate(self.sides(name, weighted)):
            side = ACCUMULATORS[name]().update(rows, weights)
            before.append(side)
            after.append(type(side).load(side.save(tmp_path / f"{i}.json")))
        assert self.compute(name, after) == self.compute(name, before)

    def test_arguments_are_untouched_and_bad_ones_refused(self, name, weighted):
        rows, weights = self.sides(name, weighted)[0]
        kept = rows.clone()
        side = ACCUMULATORS[name]().update(rows, weights)
        assert torch.equal(rows, kept)
        rows[0, 0] = float("inf")
        with pytest.raises(InputError):
            side.update(rows, weights)
        with pytest.raises(InputError):
            side.update(kept[:, :2], weights)
        with pytest.raises(InputError):
            side.update(kept, -torch.ones(len(kept)))
        assert side.n == len(kept)  # a refused chunk leaves no trace
