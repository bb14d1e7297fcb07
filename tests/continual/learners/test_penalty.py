"""EWC, EWC++, PI and RWalk against slow references that follow their formulas step by step."""

import pytest
import torch

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.penalty import Scratch, add_pull, copied, pull_value, trained, unit_range
from vestige.data import load
from vestige.data.streams import split
from vestige.nets.fisher import fisher_empirical


def tasks():
    return split(blobs(n_classes=4, per_class=12), 2, train_logits="current")


def batches(task, size=8):
    return list(zip(task.x.split(size), task.y.split(size), strict=True))


def walk(learner):
    """Train task after task; yields after each one, before it is withdrawn."""
    for task in tasks():
        learner.begin_task(task)
        for x, y in batches(task):
            learner.observe(x, y)
        before = {k: v.clone() for k, v in learner.net.state_dict().items()}
        learner.end_task(task)
        yield task, before


def test_the_pull_is_the_gradient_of_its_value():
    learner = build("vanilla", tasks(), hidden=(5,))
    net, g = learner.net, torch.Generator().manual_seed(0)
    anchor = {n: torch.randn(p.shape, generator=g) for n, p in trained(net).items()}
    weight = {n: torch.rand(p.shape, generator=g) for n, p in trained(net).items()}
    del anchor["head.bias"]  # a head that grew: nothing pulls at it
    value = 0.7 * sum((weight[n] * (p - anchor[n]).square()).sum() for n, p in trained(net).items() if n in anchor)
    expected = torch.autograd.grad(value, list(trained(net).values()), allow_unused=True)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    add_pull(trained(net), weight, anchor, 0.7, Scratch())
    for p, e in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, torch.zeros_like(p) if e is None else e)
    assert 0.7 * pull_value(net, weight, anchor) == pytest.approx(float(value.detach()), rel=1e-5)


def test_the_unit_range_is_joint():
    found = unit_range({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([5.0])})
    assert found["a"].tolist() == [0.0, 0.5]
    assert found["b"].tolist() == [1.0]
    assert unit_range({"a": torch.ones(2)})["a"].tolist() == [0.0, 0.0]


def test_two_sums_are_the_same_penalty_as_a_fisher_for_every_task():
    """The gradient of Kirkpatrick's sum over tasks, from Fishers and anchors stored one by one."""
    learner, fishers, anchors = build("ewc", tasks(), hidden=(5,), lam=3.0), [], []
    for task, _ in walk(learner):
        outputs = learner.outputs_
        loss = lambda logits, y, o=outputs: o.loss(logits, y) * len(y)  # noqa: E731
        fishers.append(fisher_empirical(learner.net, task.x, task.y, loss=loss))
        anchors.append(copied(learner.net))
    with torch.no_grad():
        for p in learner.net.parameters():
            p.add_(0.3)
    value = 1.5 * sum(
        (f[n] * (p - a[n]).square()).sum()
        for f, a in zip(fishers, anchors, strict=True)
        for n, p in trained(learner.net).items()
    )
    expected = torch.autograd.grad(value, list(learner.net.parameters()))
    for p in learner.net.parameters():
        p.grad = torch.zeros_like(p)
    add_pull(trained(learner.net), learner.weight_, learner.anchor_, learner.config.lam / 2, Scratch())
    for p, e in zip(learner.net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e, atol=1e-5, rtol=1e-4)


def test_huszar_sums_the_fishers_and_keeps_the_last_anchor():
    learner, total = build("ewc_huszar", tasks(), hidden=(5,)), None
    for task, _ in walk(learner):
        outputs = learner.outputs_
        new = fisher_empirical(learner.net, task.x, task.y, loss=lambda a, y, o=outputs: o.loss(a, y) * len(y))
        total = new if total is None else {n: total[n] + new[n] for n in new}
        for n in new:
            torch.testing.assert_close(learner.weight_[n], total[n], atol=1e-7, rtol=1e-4)
            assert torch.equal(learner.anchor_[n], trained(learner.net)[n])


def reference_fisher(learner, x, y):
    """Per-sample squares in a loop over samples."""
    total = {n: torch.zeros_like(p) for n, p in trained(learner.net).items()}
    for i in range(len(y)):
        loss = learner.outputs_.loss(learner.net(x[i : i + 1]), y[i : i + 1])
        for n, g in zip(total, torch.autograd.grad(loss, list(learner.net.parameters())), strict=True):
            total[n] += g.square() / len(y)
    return total


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_the_riemannian_distance_of_rwalk_never_exceeds_eps(preset, monkeypatch):
    stream, found = split(load("digits"), 2), []
    learner = build("rwalk", stream, preset=preset, hidden=(32,))
    take, half = learner.take_score, 0.5 if preset == "paper" else 1.0

    def measured():
        far = {
            n: learner.running_[n] * (p.detach() - learner.start_[n]).square() for n, p in trained(learner.net).items()
        }
        path = sum(float(fall.clamp_min(0).sum()) for fall in learner.fall_.values())
        before = sum(float(value.sum()) for value in learner.walked_.values())
        take()
        added = sum(float(value.sum()) for value in learner.walked_.values()) - before
        found.append((half * max(float(d.max()) for d in far.values()), added, path / learner.config.eps))

    monkeypatch.setattr(learner, "take_score", measured)
    protocol.run(stream, learner, epochs=3)
    largest, scores, paths = (torch.tensor(part) for part in zip(*found, strict=True))
    assert 0 < largest.max() < learner.config.eps
    assert scores.sum() == pytest.approx(float(paths.sum()), rel=0.1), "the score is the plain path integral"


@pytest.mark.parametrize("name", ["ewc_pp", "rwalk"])
def test_the_moving_average_puts_alpha_on_the_new_term(name):
    learner = build(name, tasks(), hidden=(5,), alpha=0.8, interval=2)
    expected = {n: torch.zeros_like(p) for n, p in trained(learner.net).items()}
    for task in tasks():
        learner.begin_task(task)
        for i, (x, y) in enumerate(batches(task)):
            if i % 2 == 0:
                new = reference_fisher(learner, x, y)
                expected = {n: 0.8 * new[n] + 0.2 * expected[n] for n in expected}
            learner.observe(x, y)
            for n, value in expected.items():
                torch.testing.assert_close(learner.running_[n], value, atol=1e-6, rtol=1e-4)
        learner.end_task(task)


def path_by_hand(learner, gradient="task"):
    """(gradient, change) of every weight at every step, by re-running each step's loss outside the learner."""
    steps = []
    for task in tasks():
        learner.begin_task(task)
        for x, y in batches(task):
            before = copied(learner.net)
            value = learner.outputs_.loss(learner.net(x), y)
            if gradient == "total" and learner.anchor_:
                pull = sum(
                    (learner.weight_[n] * (p - learner.anchor_[n]).square()).sum()
                    for n, p in trained(learner.net).items()
                )
                value = value + learner.config.lam * pull
            found = torch.autograd.grad(value, list(learner.net.parameters()))
            g = dict(zip(before, found, strict=True))
            learner.observe(x, y)
            now = copied(learner.net)
            steps.append((task.info.index, g, {n: now[n] - before[n] for n in now}, dict(learner_fisher(learner))))
        learner.end_task(task)
    return steps


def learner_fisher(learner):
    return {n: v.clone() for n, v in getattr(learner, "running_", {}).items()}


def test_pi_follows_its_formula_and_leaves_the_pull_out_of_the_gradient():
    # Steps so long that the loss rises along some weights, which then count as zero.
    learner = build("pi", tasks(), hidden=(5,), lam=5.0, damping=0.02, learning_rate=0.1)
    steps = path_by_hand(learner)
    lowest = 0.0
    for n in learner.weight_:
        expected = 0
        for k in (0, 1):
            mine = [(g[n], d[n]) for t, g, d, _ in steps if t == k]
            fall = -sum(g * d for g, d in mine)
            far = sum(d for _, d in mine).square() + 0.02
            expected = expected + fall.clamp_min(0) / far
            lowest = min(lowest, float((fall / far).min()))
        torch.testing.assert_close(learner.weight_[n], expected, atol=1e-5, rtol=1e-3)
    assert lowest < -1e-2


@pytest.mark.parametrize("gradient", ["task", "total"])
@pytest.mark.parametrize(("average", "old"), [("mean", 0.5), ("code", 1.5)])
def test_rwalk_follows_its_formula(gradient, average, old):
    # Steps so long and an eps so small that the Fisher's part of the denominator counts.
    fields = {"hidden": (5,), "interval": 2, "lam": 5.0, "learning_rate": 0.05, "eps": 1e-4}
    learner = build("rwalk", tasks(), **fields, gradient=gradient, average=average)
    steps = path_by_hand(learner, gradient)
    scores = []
    for k in (0, 1):
        mine = [s for s in steps if s[0] == k]
        score = {n: torch.zeros_like(v) for n, v in learner.running_.items()}
        for i in range(0, len(mine), 2):
            pair = mine[i : i + 2]
            for n in score:
                fall = -sum(g[n] * d[n] for _, g, d, _ in pair)
                far = sum(d[n] for _, _, d, _ in pair)
                score[n] += (fall / (0.5 * pair[-1][3][n] * far.square() + 1e-4)).clamp_min(0)
        scores.append(score)
    final = {n: old * scores[0][n] + 0.5 * scores[1][n] for n in scores[0]}
    for n, value in final.items():
        torch.testing.assert_close(learner.score_[n], value, atol=1e-5, rtol=2e-3)
    fisher, score = unit_range(learner.running_), unit_range(final)
    for n in final:
        torch.testing.assert_close(learner.weight_[n], fisher[n] + score[n], atol=1e-5, rtol=2e-3)
    assert max(float(w.max()) for w in learner.weight_.values()) <= 2.0
