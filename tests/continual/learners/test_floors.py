"""ER, DER++, A-GEM, LwF and GDumb, each against its formula by hand."""

from collections import Counter

import pytest
import torch
from torch.nn import functional

from toys import at_second_task, blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.agem import projected_on
from vestige.continual.learners.er import weighed
from vestige.continual.learners.gdumb import BalancedMemory
from vestige.continual.learners.lwf import distilled
from vestige.continual.memory import Memory
from vestige.core import rng
from vestige.data.streams import blurred, split

HIDDEN = {"hidden": (8,)}


class TestReservoir:
    def test_each_sample_is_kept_with_the_same_chance(self):
        """40 samples, 8 places, 1500 streams: each is kept 300 times, give or take 5 standard deviations (15.5)."""
        kept = torch.zeros(40)
        x, y = torch.arange(40.0)[:, None], torch.zeros(40, dtype=torch.int64)
        for seed in range(1500):
            memory = Memory(8)
            for i, part in enumerate(torch.arange(40).split(7)):
                memory.offer(x[part], y[part], 0, generator=rng.fork(seed, i, device="cpu"))
            kept[memory.x[:, 0].long()] += 1
        assert float((kept - 300).abs().max()) < 5 * (1500 * 0.2 * 0.8) ** 0.5
        chi2 = float(((kept - 300) ** 2 / 240).sum())
        assert chi2 < 39 + 5 * (2 * 39) ** 0.5

    def test_what_was_let_in_is_said_place_by_place(self):
        memory, x = Memory(5), torch.arange(30.0)[:, None]
        mirror = torch.empty(0, 1)
        for i, part in enumerate(torch.arange(30).split(4)):
            free, taken, rows = memory.offer(x[part], part, 0, generator=rng.fork(1, i, device="cpu"))
            mirror = torch.cat([mirror, x[part][:free]])
            mirror[taken] = x[part][rows]
        assert torch.equal(mirror, memory.x)


class TestER:
    def test_the_loss_is_the_mean_over_the_batch_and_the_draw(self):
        learner, task, _ = at_second_task(build("er", split(blobs(), 2), **HIDDEN), split(blobs(), 2))
        x, y = task.x[:20], task.y[:20]
        drawn = torch.randperm(80, generator=rng.fork(0, "replay", 1, 20))[:20]
        old = learner.memory.x[drawn].clone(), learner.memory.y[drawn].clone()
        loss = learner.loss(x, y)
        logits = learner.net(torch.cat([x, old[0]]))[:, :4]
        torch.testing.assert_close(loss, functional.cross_entropy(logits, torch.cat([y, old[1]])))

    def test_by_tasks_the_batch_of_the_third_has_a_third(self):
        losses = torch.tensor([1.0, 2.0, 10.0, 20.0, 30.0])
        assert float(weighed(losses, 2, 3)) == pytest.approx(1.5 / 3 + 2 / 3 * 20)
        assert float(weighed(losses, 2, None)) == pytest.approx(63 / 5)

    def test_it_needs_no_borders(self):
        stream = blurred(blobs(), 2)
        learner = build("er", stream, **HIDDEN, memory={"total": 12})
        protocol.run(stream, learner, batch_size=10)
        assert len(learner.memory) == 12
        assert len(learner.memory.y.unique()) >= 4


class TestAGEM:
    def test_the_projection_is_the_nearest_that_does_not_object(self):
        g = torch.Generator().manual_seed(0)
        gradient, reference = torch.randn(2, 9, generator=g, dtype=torch.float64)
        reference = reference - 2 * gradient
        found = projected_on(gradient, reference)
        assert float(found @ reference) == pytest.approx(0, abs=1e-12)
        # The nearest point of the half-space is the gradient plus a multiple of its normal.
        torch.testing.assert_close(gradient - found, (gradient @ reference) / (reference @ reference) * reference)
        for _ in range(200):
            other = torch.randn(9, generator=g, dtype=torch.float64)
            other = other - min(float(other @ reference), 0.0) / float(reference @ reference) * reference
            assert float((other - gradient).norm()) >= float((found - gradient).norm()) - 1e-12
        assert torch.equal(projected_on(gradient, gradient), gradient)

    def test_one_step_by_hand(self):
        stream = split(blobs(), 2)
        fields = HIDDEN | {"optimizer": "sgd", "learning_rate": 0.1, "memory": {"per_class": 6}}
        learner, task, _ = at_second_task(build("agem", stream, **fields), stream)
        before = torch.cat([p.detach().flatten().clone() for p in learner.net.parameters()])
        drawn = torch.randperm(12, generator=rng.fork(0, "reference", learner.steps_))[:12]
        x, y = learner.memory.x[drawn], learner.memory.y[drawn]

        def gradient(inputs, labels):
            loss = functional.cross_entropy(learner.net(inputs)[:, :4], labels)
            return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner.net.parameters()))])

        own, past = gradient(task.x, task.y), gradient(x, y)
        assert float(own @ past) < 0  # else the step shows nothing
        learner.observe(task.x, task.y)
        after = torch.cat([p.detach().flatten() for p in learner.net.parameters()])
        torch.testing.assert_close(after, before - 0.1 * projected_on(own, past), atol=1e-6, rtol=1e-4)


class TestLwF:
    def test_distillation_by_hand(self):
        logits, old = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))
        p = torch.softmax(old[:, :4], 1) ** (1 / 2)
        p = p / p.sum(1, keepdim=True)  # Eq. 3
        q = torch.softmax(logits[:, :4], 1) ** (1 / 2)
        q = q / q.sum(1, keepdim=True)
        by_hand = -(p * q.log()).sum(1).mean()
        torch.testing.assert_close(distilled(logits, old, (0, 1, 2, 3), (0, 1, 2, 3), 2.0), by_hand)
        wide = torch.softmax(logits[:, :6] / 2, 1)[:, :4]
        zero = -(p * wide.log()).sum(1).mean()
        torch.testing.assert_close(distilled(logits, old, (0, 1, 2, 3), tuple(range(6)), 2.0), zero)

    @pytest.mark.parametrize("form", ["li_hoiem", "van_de_ven", "van_de_ven_2019"])
    @pytest.mark.parametrize("scenario", ["class", "task", "domain"])
    def test_which_outputs_are_old_and_what_they_weigh(self, form, scenario):
        """At the third of three tasks, so that the number of old ones is not one."""
        stream = split(blobs(), 2, scenario=scenario)
        learner = build("lwf", stream, **HIDDEN, form=form)
        for task in stream:
            learner.begin_task(task)
            learner.observe(task.x, task.y)
            if task.info.index == 2:
                break
            learner.end_task(task)
        with torch.no_grad():
            logits, old = learner.net(task.x), learner.answer_of(learner.old_, task.x)
        new_space = {"class": list(range(6)), "task": [4, 5], "domain": [0, 1]}[scenario]
        places = torch.tensor([new_space.index(int(c)) for c in task.y])
        new = functional.cross_entropy(logits[:, new_space], places)
        groups = {"class": [(0, 1, 2, 3)], "task": [(0, 1), (2, 3)], "domain": [(0, 1)]}[scenario]
        wide = scenario == "class" and form != "li_hoiem"
        parts = [distilled(logits, old, group, tuple(range(6)) if wide else group, 2.0) for group in groups]
        mean = sum(parts) / len(parts)
        expected = {
            "li_hoiem": new + sum(parts),
            "van_de_ven": new + mean * (1 if scenario == "class" else 2),
            "van_de_ven_2019": new / 3 + 4 * mean * 2 / 3,
        }[form]
        torch.testing.assert_close(learner.loss(task.x, task.y), expected)

    def test_each_old_task_is_a_group_where_heads_are_apart(self):
        stream = split(blobs(), 2, scenario="task")
        learner = build("lwf", stream, **HIDDEN)
        protocol.run(stream, learner)
        assert learner.groups_ == {0: (0, 1), 1: (2, 3)}


class TestDERPP:
    def test_the_loss_by_hand(self, monkeypatch):
        stream = split(blobs(), 2)
        learner, task, _ = at_second_task(build("der_pp", stream, **HIDDEN, alpha=0.7, beta=0.3), stream)
        held, n = learner.memory, 10
        assert torch.equal(held.z.isfinite(), torch.ones(80, 6, dtype=torch.bool))
        dark, light = learner.drawn(n, "logits"), learner.drawn(n, "labels")
        assert not torch.equal(dark, light)
        x, y = task.x[:n], task.y[:n]
        with torch.no_grad():
            own = functional.cross_entropy(learner.net(x)[:, :4], y)
            mse = (learner.net(held.x[dark]) - held.z[dark]).square().mean()
            ce = functional.cross_entropy(learner.net(held.x[light])[:, :4], held.y[light])
        info = learner.observe(x, y)
        torch.testing.assert_close(info.loss, own + 0.7 * mse + 0.3 * ce)

    def test_logits_stand_beside_their_rows_and_are_counted(self):
        stream = split(blobs(), 2)
        learner = build("der_pp", stream, **HIDDEN, total=9)
        seen = {}
        observe = learner.observe

        def noted(x, y):
            with torch.no_grad():
                seen.update({tuple(row.flatten().tolist()): z for row, z in zip(x, learner.net(x), strict=True)})
            return observe(x, y)

        learner.observe = noted
        protocol.run(stream, learner, batch_size=16)
        held = learner.memory
        assert len(held) == 9
        for row, z in zip(held.x, held.z, strict=True):
            torch.testing.assert_close(seen[tuple(row.flatten().tolist())], z)
        assert held.bytes == 9 * (36 * 4 + 8 + 8 + 6 * 4)


class TestGDumb:
    def test_the_memory_is_greedy_and_balanced(self):
        memory, counts = BalancedMemory(12), []
        labels = torch.tensor([0] * 30 + [1] * 30 + [0, 2] * 15 + [3] * 9)
        rows = torch.arange(len(labels), dtype=torch.float32)[:, None]
        for i, part in enumerate(torch.arange(len(labels)).split(10)):
            memory.take(rows[part], labels[part], 0, generator=rng.fork(0, i, device="cpu"))
            counts.append(Counter(memory.y.tolist()))
            assert torch.equal(labels[memory.x[:, 0].long()], memory.y)  # rows keep their labels
        assert counts[2] == {0: 12}
        assert counts[5] == {0: 6, 1: 6}
        assert counts[8] == {0: 4, 1: 4, 2: 4}
        assert counts[-1] == {0: 3, 1: 3, 2: 3, 3: 3}

    def test_it_learns_from_the_memory_alone_and_anew(self):
        stream = split(blobs(), 2)
        learner = build("gdumb", stream, **HIDDEN, total=60, epochs=20, learning_rate=0.02)
        before = {k: v.clone() for k, v in learner.net.state_dict().items()}
        record = protocol.run(stream, learner)
        assert all(torch.equal(before[k], v) for k, v in learner.net.state_dict().items())
        assert float(record.R[-1].mean()) > 0.8
        net = learner.learnt()
        assert learner.learnt() is net  # not trained again while the memory is the same
        other = build("gdumb", stream, **HIDDEN, total=60, epochs=20, learning_rate=0.02)
        other.load_state_dict(learner.state_dict())
        torch.testing.assert_close(other.predict(stream.test_sets()[0].x), learner.predict(stream.test_sets()[0].x))
