"""How a memory is filled, and how it enters the loss: each way against the sum that it stands for."""

from typing import ClassVar

import pytest
import torch
from torch.nn import functional

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import METHODS, build
from vestige.continual.learners.base import Outputs
from vestige.continual.memory import batched, class_weights, look_at
from vestige.continual.samplers import SAMPLERS
from vestige.core.errors import InputError, UnknownName
from vestige.data.streams import blurred, permuted, split


def tasks(**options):
    return split(blobs(n_classes=6, per_class=13), 2, **options)


def learn(learner, task, size=8):
    learner.begin_task(task)
    for x, y in zip(task.x.split(size), task.y.split(size), strict=True):
        learner.observe(x, y)
    learner.end_task(task)


def in_second_task(name="vanilla_s", stream=None, **fields):
    """A learner that has learnt the first task and begun the second, and that second."""
    stream = stream or tasks()
    learner = build(name, stream, hidden=(8,), memory={"per_class": 3} | fields)
    passing = iter(stream)
    learn(learner, next(passing))
    task = next(passing)
    learner.begin_task(task)
    return learner, task, passing


def cross_entropies(learner, x, y, outputs=range(4)):
    logits = learner.predict(x)[:, list(outputs)]
    place = torch.tensor([list(outputs).index(int(label)) for label in y])
    return functional.cross_entropy(logits, place, reduction="none")


class TestLoss:
    def test_balanced_is_the_mean_over_classes_of_their_means(self):
        """Over a whole task and memory, and by hand: sum of l_i / n_c(i) over samples."""
        learner, task, _ = in_second_task(replay="balanced", balance="mean")
        x, y = torch.cat([task.x, learner.memory.x]), torch.cat([task.y, learner.memory.y])
        losses = cross_entropies(learner, x, y)
        by_class = torch.stack([losses[y == c].mean() for c in range(4)])
        torch.testing.assert_close(learner.loss(task.x, task.y).detach(), by_class.mean())

    def test_balanced_by_hand_in_one_batch_with_the_lightest_at_one(self):
        learner, task, _ = in_second_task(replay="balanced")
        # 26 samples and 6 in memory: 13 in each new class, 3 in each old; a batch of 9 brings 6 * 9 // 26 = 2.
        x, y = task.x[:9], task.y[:9]
        old = batched(6, 0, 2, 0, "replay", 1)
        x_all, y_all = torch.cat([x, learner.memory.x[old]]), torch.cat([y, learner.memory.y[old]])
        weights = [1.0] * 9 + [13 / 3] * 2
        losses = cross_entropies(learner, x_all, y_all).tolist()
        expected = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / 11
        assert float(learner.loss(x, y).detach()) == pytest.approx(expected, rel=1e-5)

    def test_mixed_is_the_plain_mean(self):
        learner, task, _ = in_second_task(replay="mixed")
        x, y = torch.cat([task.x, learner.memory.x]), torch.cat([task.y, learner.memory.y])
        torch.testing.assert_close(learner.loss(task.x, task.y).detach(), cross_entropies(learner, x, y).mean())

    @pytest.mark.parametrize(("batch", "size"), [(None, 6), (4, 4), (50, 6)])
    def test_beside_gives_each_side_half(self, batch, size):
        learner, task, _ = in_second_task(replay="beside", batch_size=batch)
        old = batched(6, 0, size, 0, "replay", 1)
        new = cross_entropies(learner, task.x[:9], task.y[:9]).mean()
        kept = cross_entropies(learner, learner.memory.x[old], learner.memory.y[old]).mean()
        torch.testing.assert_close(learner.loss(task.x[:9], task.y[:9]).detach(), (new + kept) / 2)
        assert learner.memory.drawn_ == size

    def test_finetune_leaves_the_memory_out_until_the_task_ends(self):
        learner, task, _ = in_second_task(replay="finetune", finetune_epochs=3, finetune_batch_size=5)
        torch.testing.assert_close(
            learner.loss(task.x, task.y).detach(), cross_entropies(learner, task.x, task.y).mean()
        )
        batches, plain = [], learner.observe
        learner.observe = lambda x, y: (batches.append(y.clone()), plain(x, y))[1]
        learner.end_task(task)
        assert [len(b) for b in batches] == [5, 5, 2] * 3
        for epoch in range(3):
            labels = torch.cat(batches[3 * epoch : 3 * epoch + 3])
            assert labels.bincount().tolist() == [3, 3, 3, 3]

    def test_the_anchor_is_where_fine_tuning_ended(self):
        learner, task, _ = in_second_task("ewc_pp_s", replay="finetune")
        before = learner.net.head.weight.detach().clone()
        learner.end_task(task)
        assert not torch.equal(learner.net.head.weight, before)
        assert all(torch.equal(learner.anchor_[name], p) for name, p in learner.net.named_parameters())

    @pytest.mark.parametrize("replay", ["mixed", "balanced", "beside", "finetune"])
    def test_samples_of_a_past_task_compete_among_its_own_outputs_where_the_stream_says_current(self, replay):
        learner, task, _ = in_second_task(stream=tasks(train_logits="current"), replay=replay)
        held = learner.memory
        losses = torch.cat(
            [cross_entropies(learner, task.x, task.y, (2, 3)), cross_entropies(learner, held.x, held.y, (0, 1))]
        )
        n, m = len(task.y), len(held)
        expected = {
            "mixed": losses.mean(),
            "balanced": torch.cat([losses[:n], losses[n:] * 13 / 3]).mean(),
            "beside": (losses[:n].mean() + losses[n:].mean()) / 2,
            "finetune": losses[:n].mean(),
        }
        assert m == 6
        torch.testing.assert_close(learner.loss(task.x, task.y).detach(), expected[replay])
        learner.end_task(task)  # fine-tuning too knows the outputs of each class


def test_weights_are_by_inverse_class_count():
    counts = torch.tensor([500, 500, 10, 0, 20])
    assert class_weights(counts, "minimum").tolist() == [1, 1, 50, 1, 25]
    mean = class_weights(counts, "mean")
    assert float((mean * counts).sum() / counts.sum()) == pytest.approx(1)
    torch.testing.assert_close((mean * counts)[[0, 1, 2, 4]], torch.full((4,), 1030 / 4))
    assert class_weights(torch.zeros(3, dtype=torch.int64), "minimum").tolist() == [1, 1, 1]
    assert class_weights(torch.zeros(3, dtype=torch.int64), "mean").tolist() == [1, 1, 1]


class TestDeal:
    def test_every_round_deals_every_card_once(self):
        cards = torch.cat([batched(7, a, a + 3, 0, "x") for a in range(0, 21, 3)])
        assert torch.equal(cards, batched(7, 0, 21, 0, "x"))
        rounds = cards.reshape(3, 7)
        assert all(sorted(r.tolist()) == list(range(7)) for r in rounds)
        assert not torch.equal(rounds[0], rounds[1])
        assert len(batched(7, 14, 14, 0, "x")) == 0

    @pytest.mark.parametrize("size", [1, 5, 8, 26])
    def test_an_epoch_over_the_task_is_an_epoch_over_the_memory(self, size):
        learner, task, _ = in_second_task(replay="mixed")
        for _ in range(2):
            drawn = [learner.memory.draw(len(y)) for y in task.y.split(size)]
            assert sorted(torch.cat(drawn).tolist()) == list(range(6))


class TestRemember:
    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_what_is_kept_is_of_the_task_that_ended_and_within_the_budget(self, sampler):
        stream = tasks()
        learner = build("vanilla_s", stream, hidden=(8,), memory={"per_class": None, "total": 10, "sampler": sampler})
        rows = []
        for task in stream:
            rows.append({row.numpy().tobytes(): int(y) for row, y in zip(task.x, task.y, strict=True)})
            learn(learner, task)
            assert len(learner.memory) == 10
            for x, y, k in zip(learner.memory.x, learner.memory.y, learner.memory.task, strict=True):
                assert rows[int(k)][x.numpy().tobytes()] == int(y)

    def test_the_sampler_sees_one_class_of_the_ending_task_through_the_network_of_now(self, monkeypatch):
        learner, task, _ = in_second_task(sampler="uniform")
        seen = []
        monkeypatch.setitem(SAMPLERS, "uniform", lambda view, m, *, generator: (seen.append(view), torch.arange(m))[1])
        learner.end_task(task)
        for view, label in zip(seen, (2, 3), strict=True):
            x = task.x[task.y == label]
            with torch.no_grad():
                features = learner.net.body(x)
                torch.testing.assert_close(view.features, features)
                torch.testing.assert_close(view.distance, features @ learner.net.head.weight[label])
                torch.testing.assert_close(view.log_p, learner.net(x)[:, :4].log_softmax(1))

    def test_looking_is_in_evaluation_mode_and_leaves_the_mode(self):
        learner, task, _ = in_second_task()
        learner.net.body.append(torch.nn.Dropout(0.9))
        learner.net.train()
        one, two = (look_at(learner.net, task.x, task.y, (0, 1)) for _ in range(2))
        assert torch.equal(one.features, two.features)
        assert learner.net.training

    def test_a_class_in_every_task_shares_its_budget(self):
        stream = permuted(blobs(n_classes=3, per_class=8), 3)
        learner = build("vanilla_s", stream, hidden=(8,), memory={"per_class": 4})
        protocol.run(stream, learner)
        assert learner.memory.y.bincount().tolist() == [4, 4, 4]
        assert learner.memory.task[learner.memory.y == 0].tolist() == [0, 0, 1, 2]

    def test_no_budget_no_memory_and_none_given_is_refused(self):
        learner, task, _ = in_second_task(per_class=0)
        torch.testing.assert_close(
            learner.loss(task.x, task.y).detach(), cross_entropies(learner, task.x, task.y).mean()
        )
        assert len(learner.memory) == 0
        with pytest.raises(InputError, match="given where 'total' is not"):
            build("vanilla_s", tasks(), memory={"per_class": None})
        for field, value in (("total", -1), ("batch_size", 0), ("finetune_batch_size", 0), ("finetune_epochs", -1)):
            with pytest.raises(InputError, match=f"'{field}' of the memory of Vanilla must be at least"):
                build("vanilla_s", tasks(), memory={field: value})
        for field in ("sampler", "replay", "balance"):
            with pytest.raises(UnknownName, match=f"'{field}' of the memory of Vanilla must be one of"):
                build("vanilla_s", tasks(), memory={field: "none such"})


def test_competing_classes_follow_the_stream():
    stream = tasks(train_logits="current")
    outputs = Outputs.every(6, by_class=True)
    for k in range(2):
        outputs = outputs.after(stream.info(k))
    table = outputs.by_class
    assert table[0].tolist() == table[1].tolist() == [True, True, False, False, False, False]
    assert table[2].tolist() == [False, False, True, True, False, False]
    seen = outputs.after(tasks().info(1)).by_class
    assert seen.tolist() == [[True] * 4 + [False] * 2] * 6
    logits, y = torch.randn(2, 6), torch.tensor([0, 3])
    expected = [functional.cross_entropy(logits[:1, :2], y[:1]), functional.cross_entropy(logits[1:, 2:4], y[1:] - 2)]
    torch.testing.assert_close(outputs.loss(logits, y), torch.stack(expected).mean())
    weighted = outputs.loss(logits, y, torch.tensor([4.0, 1.0]))
    torch.testing.assert_close(weighted, (4 * expected[0] + expected[1]) / 2)


@pytest.mark.parametrize("name", ["ewc_pp_s", "rwalk_s"])
def test_the_running_fisher_is_that_of_the_tasks_own_batch(name):
    learner, task, _ = in_second_task(name, replay="beside")
    fisher = {k: v.clone() for k, v in learner.running_.items()}
    plain = build(name.removesuffix("_s"), tasks(), hidden=(8,))
    plain.begin_task(task)
    plain.net.load_state_dict(learner.net.state_dict())
    plain.running_ = fisher
    x, y = task.x[:8], task.y[:8]
    plain.observe(x, y)
    learner.observe(x, y)
    for k, value in plain.running_.items():
        torch.testing.assert_close(learner.running_[k], value)


@pytest.mark.parametrize("replay", ["mixed", "balanced", "beside", "finetune"])
def test_a_memory_helps(replay):
    stream = split(blobs(), 2)
    options = {"epochs": 4, "batch_size": 16}
    plain = protocol.run(stream, build("vanilla", stream, hidden=(16,), learning_rate=5e-3), **options)
    helped = protocol.run(
        stream, build("vanilla_s", stream, hidden=(16,), learning_rate=5e-3, memory={"replay": replay}), **options
    )
    assert helped.R[-1].mean() > plain.R[-1].mean() + 0.2


class TestReservoir:
    """A memory on a stream that tells no borders."""

    FIELDS: ClassVar = {
        "per_class": None, "total": 7, "fill": "reservoir", "replay": "beside",
    }  # fmt: skip

    @pytest.mark.parametrize("name", [name for name in METHODS if name.endswith("_s")] + ["icarl", "gem"])
    def test_without_borders_it_is_full_and_never_over_budget(self, name):
        stream = blurred(blobs(n_classes=4, per_class=13), 2)
        assert not stream.declared.boundaries_told
        fields = {k: v for k, v in self.FIELDS.items() if name != "gem" or k != "replay"}
        learner, sizes = build(name, stream, hidden=(8,), memory=fields), []
        plain = learner.observe
        learner.observe = lambda x, y: (plain(x, y), sizes.append(len(learner.memory)))[0]
        protocol.run(stream, learner, batch_size=3)
        seen = sum(stream.info(k).n for k in range(len(stream)))
        assert learner.memory.offered_ == seen
        assert sizes[:3] == [3, 6, 7]
        assert set(sizes[2:]) == {7}

    def test_each_batch_trains_beside_samples_that_came_before_it(self):
        learner, task = build("vanilla_s", tasks(), hidden=(8,), memory=self.FIELDS), next(iter(tasks()))
        learner.begin_task(task)
        learner.observe(task.x[:5], task.y[:5])
        old = learner.memory.x.clone(), learner.memory.y.clone()
        new = cross_entropies(learner, task.x[5:9], task.y[5:9], range(2)).mean()
        drawn = learner.memory.draw(4)
        learner.memory.seen_ -= 4
        assert len(drawn) == len(drawn.unique()) == 4
        kept = cross_entropies(learner, old[0][drawn], old[1][drawn], range(2)).mean()
        torch.testing.assert_close(learner.loss(task.x[5:9], task.y[5:9]).detach(), (new + kept) / 2)

    def test_what_makes_no_sense_is_refused(self):
        for change, sentence in (
            ({"replay": "mixed"}, "'replay' of the memory of Vanilla must be 'beside' with a reservoir"),
            ({"total": None, "per_class": 5}, "'total' of the memory of Vanilla must be the only budget"),
            ({"per_class": 5}, "'total' of the memory of Vanilla must be the only budget"),
            ({"fill": "often"}, "'fill' of the memory of Vanilla must be one of"),
        ):
            with pytest.raises(InputError, match=sentence):
                build("vanilla_s", tasks(), memory=self.FIELDS | change)
