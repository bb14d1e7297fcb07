"""What the papers leave open: each choice against its formula, and the preset that takes the authors' side in all."""

import pytest
import torch

from toys import blobs
from vestige.continual.learners import AUTHORS, METHODS, PAPER, VCL, build
from vestige.continual.learners.penalty import copied, trained, unit_range
from vestige.core.errors import InputError, UnknownName
from vestige.data.streams import split
from vestige.nets.fisher import fisher_batch, fisher_empirical, fisher_true


def tasks():
    return split(blobs(n_classes=4, per_class=12), 2, train_logits="current")


def batches(task, size=8):
    return list(zip(task.x.split(size), task.y.split(size), strict=True))


def learn(learner):
    for task in tasks():
        learner.begin_task(task)
        for x, y in batches(task):
            learner.observe(x, y)
        learner.end_task(task)
    return learner


def assert_all_close(found, expected, **options):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], **({"atol": 1e-6, "rtol": 1e-4} | options))


@pytest.mark.parametrize("name", ["ewc", "ewc_huszar", "ewc_pp"])
def test_without_the_half_the_strength_is_twice(name):
    with_half, without = (
        build(name, tasks(), hidden=(5,), lam=lam, half_penalty=half) for lam, half in ((6, True), (3, False))
    )
    assert_all_close(copied(learn(with_half).net), copied(learn(without).net), atol=0, rtol=0)
    double = learn(build(name, tasks(), hidden=(5,), lam=6, half_penalty=False))
    assert not torch.equal(double.net.body[1].weight, with_half.net.body[1].weight)


@pytest.mark.parametrize("kind", ["empirical", "true", "predicted", "batch"])
def test_the_fisher_of_a_task_is_the_one_asked_for(kind):
    learner, task = build("ewc", tasks(), hidden=(5,), fisher=kind, fisher_batch_size=7), next(iter(tasks()))
    learner.begin_task(task)
    for x, y in batches(task):
        learner.observe(x, y)
    learner.end_task(task)

    def summed(logits, y):
        return learner.outputs_.loss(logits, y) * len(y)

    if kind == "batch":
        parts = [(len(y), fisher_batch(learner.net, x, y, loss=summed)) for x, y in batches(task, 7)]
        expected = {n: sum(k * part[n] for k, part in parts) / len(task.y) for n in learner.weight_}
    elif kind == "true":
        expected = fisher_true(learner.net, task.x, outputs=[0, 1])
    elif kind == "predicted":
        likeliest = learner.predict(task.x)[:, :2].argmax(1)
        assert (likeliest != task.y).any()  # it is not the empirical one
        expected = fisher_empirical(learner.net, task.x, likeliest, loss=summed)
    else:
        expected = fisher_empirical(learner.net, task.x, task.y, loss=summed)
    assert_all_close(learner.weight_, expected)


@pytest.mark.parametrize("name", ["ewc", "ewc_pp"])
@pytest.mark.parametrize("normalise", ["joint", "layer"])
def test_a_normalised_fisher_is_in_the_unit_range(name, normalise):
    plain, scaled = (build(name, tasks(), hidden=(5,), normalise=n) for n in ("none", normalise))
    task = next(iter(tasks()))
    for learner in (plain, scaled):
        learner.begin_task(task)
        for x, y in batches(task):
            learner.observe(x, y)
        learner.end_task(task)
    if normalise == "joint":
        assert_all_close(scaled.weight_, unit_range(plain.weight_), atol=0, rtol=0)
        assert sum(float(w.max()) == 1 for w in scaled.weight_.values()) == 1
    else:
        assert all(float(w.max()) == 1 and float(w.min()) == 0 for w in scaled.weight_.values())


def assert_running_as_by_hand(learner, kind, alpha=0.8, interval=3):
    """Eq. 6 by hand from the mean over an interval, beside the learner."""
    running = {n: torch.zeros_like(p) for n, p in trained(learner.net).items()}
    gathered = []
    for task in tasks():
        learner.begin_task(task)
        gathered.clear()
        for x, y in batches(task, 4):
            if kind == "batch":
                loss = learner.outputs_.loss(learner.net(x), y)
                found = torch.autograd.grad(loss, list(learner.net.parameters()))
                gathered.append({n: g.square() for n, g in zip(running, found, strict=True)})
            else:
                summed = lambda logits, y, o=learner.outputs_: o.loss(logits, y) * len(y)  # noqa: E731
                gathered.append(fisher_empirical(learner.net, x, y, loss=summed))
            learner.observe(x, y)
            if len(gathered) == interval:
                for n in running:
                    mean = sum(part[n] for part in gathered) / interval
                    running[n] = alpha * mean + (1 - alpha) * running[n]
                gathered.clear()
            assert_all_close(learner.running_, running)
        learner.end_task(task)


@pytest.mark.parametrize("kind", ["batch", "empirical"])
@pytest.mark.parametrize("name", ["ewc_pp", "rwalk"])
def test_the_authors_average_the_fisher_over_an_interval(name, kind):
    fields = {"alpha": 0.8, "interval": 3, "accumulate": "interval", "fisher": kind}
    assert_running_as_by_hand(build(name, tasks(), hidden=(5,), **fields), kind)


def test_a_batch_fisher_of_the_moment_is_the_square_of_the_gradient_at_hand_without_the_pull():
    learner = build("ewc_pp", tasks(), hidden=(5,), interval=1, alpha=1.0, fisher="batch", lam=1e4)
    for task in tasks():
        learner.begin_task(task)
        for x, y in batches(task):
            found = torch.autograd.grad(learner.outputs_.loss(learner.net(x), y), list(learner.net.parameters()))
            learner.observe(x, y)
            assert_all_close(
                learner.running_, {n: g.square() for n, g in zip(trained(learner.net), found, strict=True)}
            )
        assert (learner.penalty() > 0) is (task.info.index > 0)
        learner.end_task(task)


@pytest.mark.parametrize("accumulate", ["batch", "interval"])
@pytest.mark.parametrize("half", [True, False])
def test_rwalks_half_is_that_of_the_distance_and_its_fisher_that_of_before(half, accumulate):
    """With "batch" the Fisher was renewed when the interval began, with "interval" it will be when the score is in."""
    learner = build(
        "rwalk",
        tasks(),
        hidden=(5,),
        interval=2,
        learning_rate=0.05,
        eps=1e-4,
        half_distance=half,
        accumulate=accumulate,
    )
    task = next(iter(tasks()))
    learner.begin_task(task)
    score = {n: torch.zeros_like(p) for n, p in trained(learner.net).items()}
    start, fall = copied(learner.net), {n: torch.zeros_like(v) for n, v in score.items()}
    for i, (x, y) in enumerate(batches(task, 4)):
        before, fisher = copied(learner.net), {n: v.clone() for n, v in learner.running_.items()}
        found = torch.autograd.grad(learner.outputs_.loss(learner.net(x), y), list(learner.net.parameters()))
        learner.observe(x, y)
        now = copied(learner.net)
        for n, g in zip(score, found, strict=True):
            fall[n] -= g * (now[n] - before[n])
            if i % 2:
                far = (0.5 if half else 1.0) * fisher[n] * (now[n] - start[n]).square() + 1e-4
                score[n] += (fall[n] / far).clamp_min(0)
                fall[n] = torch.zeros_like(fall[n])
        start = now if i % 2 else start
    assert_all_close(learner.walked_, score, atol=1e-5, rtol=2e-3)


@pytest.mark.parametrize("gradient", ["task", "total"])
def test_pi_takes_the_pull_along_only_on_request(gradient):
    learner, path = build("pi", tasks(), hidden=(5,), lam=20.0, gradient=gradient), {}
    for task in tasks():
        learner.begin_task(task)
        path = {n: torch.zeros_like(p) for n, p in trained(learner.net).items()}
        for x, y in batches(task):
            before = copied(learner.net)
            value = learner.outputs_.loss(learner.net(x), y)
            if gradient == "total" and learner.anchor_:
                gaps = {n: p - learner.anchor_[n] for n, p in trained(learner.net).items()}
                value = value + 20.0 * sum((learner.weight_[n] * gap.square()).sum() for n, gap in gaps.items())
            found = torch.autograd.grad(value, list(learner.net.parameters()))
            learner.observe(x, y)
            for (n, p), g in zip(trained(learner.net).items(), found, strict=True):
                path[n] -= g * (p.detach() - before[n])
        assert_all_close(learner.path_, path, atol=1e-7, rtol=1e-3)
        learner.end_task(task)


class TestPresets:
    @pytest.mark.parametrize("name", METHODS)
    def test_every_method_can_be_had_as_in_the_paper(self, name):
        learner = build(name, tasks(), preset="paper")
        said = next((own for kind, own in PAPER.items() if issubclass(METHODS[name], kind)), {})
        assert learner.config == build(name, tasks(), **said).config
        assert bool(said) is issubclass(METHODS[name], VCL)

    @pytest.mark.parametrize("name", ["ewc_pp", "ewc_pp_s", "pi", "pi_s", "rwalk", "rwalk_s"])
    def test_the_authors_side_is_taken_in_all_choices_and_differs(self, name):
        learner, paper = (build(name, tasks(), preset=preset, hidden=(5,)) for preset in ("authors", "paper"))
        assert all(getattr(learner.config, field) == value for field, value in AUTHORS[METHODS[name]].items())
        assert learner.config.init == "truncated_normal"
        assert (learner.net.head.bias == 0.1).all()
        assert not torch.equal(learn(learner).weight_["head.weight"], learn(paper).weight_["head.weight"])

    def test_methods_that_their_code_lacks_get_their_training(self):
        assert build("gem", tasks(), preset="authors").config.init == "truncated_normal"
        assert build("ewc", tasks(), preset="authors").config.half_penalty is True

    def test_fields_beside_a_preset_win(self):
        learner = build("rwalk", tasks(), preset="authors", init="torch", average="mean")
        assert (learner.config.init, learner.config.average, learner.config.half_distance) == ("torch", "mean", False)

    def test_what_is_not_known_is_refused(self):
        with pytest.raises(UnknownName, match=r"'preset' of methods\.build must be one of authors, paper"):
            build("rwalk", tasks(), preset="author's")
        bad = {
            "ewc": {"normalise": "all", "fisher": "some"},
            "ewc_pp": {"accumulate": "epoch", "fisher": "true", "normalise": "all"},
            "pi": {"gradient": "both"},
            "rwalk": {"gradient": "both", "average": "sum"},
            "vanilla": {"net": "alexnet", "init": "ones", "head": "growing"},
        }
        for name, fields in bad.items():
            for field, value in fields.items():
                with pytest.raises(UnknownName, match=f"'{field}' of {METHODS[name].__name__} must be one of"):
                    build(name, tasks(), **{field: value})
        with pytest.raises(InputError, match="'fisher_batch_size' of EWC must be a whole number"):
            build("ewc", tasks(), fisher="batch")
