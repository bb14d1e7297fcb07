"""DGR: Eq. 1 by hand, who labels what is replayed, and that replay holds on to what was learnt."""

import pytest
import torch
from torch.nn import functional

import toys
from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.generative_replay import ReplayBatch, mixed
from vestige.core.errors import InputError
from vestige.data import load
from vestige.data.streams import domains, permuted, split

TINY = {"encoder": (8,), "decoder": (8,), "codes": 3, "steps": 10, "batch_size": 20, "collapse": 0.0}
FIELDS = {"hidden": (6,), "replay": {"options": TINY, "samples_per_class": 5}}


def tasks(**options):
    return split(blobs(n_classes=4, per_class=12), 2, **options)


def at_second_task(**fields):
    stream = tasks()
    return toys.at_second_task(build("dgr", stream, **FIELDS | fields), stream)


def test_the_mixture_is_eq_1_and_without_a_share_every_row_counts_the_same():
    new, old = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0, 9.0])
    weights = torch.tensor([1.0, 0.5, 3.0])  # of any mean: they are not divided by it
    assert mixed(new, old, torch.ones(3), 0.25).item() == pytest.approx(0.25 * 2 + 0.75 * 5)
    assert mixed(new, old, torch.ones(3), None).item() == pytest.approx(19 / 5)
    assert mixed(new, old, weights, 0.25).item() == pytest.approx(0.25 * 2 + 0.75 * (2 + 2 + 27) / 3)


@pytest.mark.parametrize("share", [None, 0.3])
def test_the_loss_is_eq_1_over_all_outputs_seen(share):
    learner, task, _ = at_second_task(share=share)
    old = ReplayBatch(torch.rand(7, 6, 6), torch.randint(2, (7,)))
    learner.replay_.beside = lambda n: (old, torch.ones(7))
    with torch.no_grad():
        new_part = functional.cross_entropy(learner.net(task.x), task.y)
        old_part = functional.cross_entropy(learner.net(old.x), old.y)
        found = learner.loss(task.x, task.y)
    r = 24 / 31 if share is None else share
    assert found.item() == pytest.approx((r * new_part + (1 - r) * old_part).item(), rel=1e-5)


def test_the_first_task_is_plain_training():
    plain, learner = (build(name, tasks(), hidden=(6,)) for name in ("vanilla", "dgr"))
    task = next(iter(tasks()))
    for each in (plain, learner):
        each.begin_task(task)
        each.observe(task.x, task.y)
    assert torch.equal(plain.net.head.weight, learner.net.head.weight)


@pytest.mark.parametrize("fresh", ["task", "epoch"])
def test_the_solver_of_before_the_task_labels_whatever_is_drawn_in_it(fresh):
    learner, task, _ = at_second_task(replay=FIELDS["replay"] | {"fresh": fresh})
    with torch.no_grad():
        learner.elder_["head.bias"][:4] = torch.tensor([9.0, 0.0, 99.0, 99.0])
        learner.net.head.bias[:2] = torch.tensor([0.0, 9.0])  # what the new solver says may not count
    for _ in range(2):
        for x, y in zip(task.x.split(8), task.y.split(8), strict=True):
            learner.observe(x, y)
        assert (learner.replay_.pool.y == 0).all(), "among the classes of the first task its favourite"
    assert learner.replay_.turn == (1 if fresh == "epoch" else 0)


def test_labels_by_condition_are_the_classes_that_were_asked_for():
    learner, _, _ = at_second_task(labels="condition")
    assert not learner.elder_
    drawn = learner.replay_.draw(5, "anything")
    assert drawn.y.tolist() == [0] * 5 + [1] * 5
    expected = learner.replay_.generator
    assert drawn.x.shape == (10, 6, 6)
    assert expected.known_ == (0, 1)


def test_a_generator_that_is_told_the_task_draws_for_each_of_its_classes():
    learner, task, passing = at_second_task(condition="task")
    assert learner.replay_.generator.known_ == (0,)
    assert learner.replay_.replayed() == [0, 1]
    assert learner.replay_.draw(5, "anything").x.shape == (10, 6, 6)
    learner.observe(task.x, task.y)
    learner.end_task(task)
    assert not learner.elder_
    assert learner.replay_.generator.known_ == (0, 1)
    assert learner.replay_.replayed() == [0, 1, 2, 3]
    assert learner.replay_.asked(0, 5).tolist() == [0] * 10 + [1] * 10
    next(passing, None)


def test_tasks_that_share_their_classes_are_replayed_by_task_however_many_there_are():
    stream = permuted(blobs(n_classes=2, per_class=12), 4)
    learner = build("dgr", stream, condition="task", **FIELDS)
    protocol.run(stream, learner)
    assert learner.replay_.replayed() == [0, 1] * 4
    assert learner.replay_.generator.known_ == (0, 1, 2, 3)
    assert learner.replay_.generator.conditions == 4, "widened beyond the two outputs"


def test_a_class_that_returns_is_a_condition_of_its_own():
    stream = permuted(blobs(n_classes=2, per_class=12), 3)
    learner = build("dgr", stream, labels="condition", **FIELDS)
    states = []
    for task in stream:
        learner.begin_task(task)
        learner.observe(task.x, task.y)
        assert learner.replay_.conditions(task).unique().tolist() == [2 * task.info.index, 2 * task.info.index + 1]
        learner.end_task(task)
        states.append(learner.state_dict())
    assert learner.replay_.classes_ == {0: ((0,), (1,)) * 3}
    assert learner.replay_.draw(2, "all").y.tolist() == [0, 0, 1, 1] * 3
    again = build("dgr", stream, labels="condition", **FIELDS)
    again.load_state_dict(states[1])
    assert again.replay_.generator.conditions == 4
    assert torch.equal(again.state_dict()["json"], states[1]["json"])


def test_the_earlier_domains_of_a_class_that_returns_survive():
    options = TINY | {"encoder": (32,), "decoder": (64,), "codes": 6, "steps": 150, "learning_rate": 1e-2}
    found = {}
    for name, fields in (("vanilla", {}), ("dgr", {"replay": {"options": options}})):
        stream = domains(load("digits"), 3, order=(2, 3, 0, 1, 4, 5), per_class=60)  # even or odd
        found[name] = protocol.run(stream, build(name, stream, hidden=(64,), **fields), epochs=25, batch_size=30).R
    assert found["vanilla"][-1, 0] < 0.7
    assert found["dgr"][-1].min() > 0.85  # 0.63 where the class is learnt anew


def test_replay_holds_what_plain_training_loses():
    options = TINY | {"encoder": (32,), "decoder": (32, 32), "steps": 200, "learning_rate": 1e-2}
    found = {}
    for name, fields in (("vanilla", {}), ("dgr", {"replay": {"options": options}, "labels": "condition"})):
        stream = split(blobs(n_classes=4), 2)
        found[name] = protocol.run(stream, build(name, stream, hidden=(32,), **fields), epochs=15, batch_size=20).R
    assert found["vanilla"][1, 0] < 0.1
    assert found["dgr"][1, 0] > 0.6
    assert found["dgr"][1, 1] > 0.6


def test_classes_that_are_yet_to_come_take_no_part_in_the_loss():
    stream = split(blobs(n_classes=6, per_class=12), 2)
    learner, task, _ = toys.at_second_task(build("dgr", stream, **FIELDS), stream)
    with torch.no_grad():
        before = learner.loss(task.x, task.y)
        learner.replay_.seen_ = learner.replay_.drawn_ = 0
        learner.net.head.bias[4:] += 99.0
        assert learner.loss(task.x, task.y).item() == pytest.approx(before.item())


def test_each_name_has_samples_of_its_own_and_the_solver_of_before_labels_them_as_in_testing():
    learner, _, _ = at_second_task()
    one, same, other = (learner.replay_.draw(5, name) for name in ("one", "one", "other"))
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.x, other.x)
    learner.net.train()
    learner.net.body.append(torch.nn.Dropout(0.9))
    assert torch.equal(learner.named(one.x, [0, 1]), learner.named(one.x, [0, 1]))
    assert learner.net.training


def test_bad_settings_are_refused():
    for field, value in (("labels", "nobody"), ("condition", "world"), ("share", 1.5), ("share", -0.1)):
        with pytest.raises(InputError, match=f"'{field}' of DGR"):
            build("dgr", tasks(), **{field: value})
    with pytest.raises(InputError, match="'labels' of DGR must be 'solver' where"):
        build("dgr", tasks(), condition="task", labels="condition")
