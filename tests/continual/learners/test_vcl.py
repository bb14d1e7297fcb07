"""VCL: its loss by hand, where the posterior goes, and what a coreset may and may not touch."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from toys import blobs
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.continual.learners.base import Outputs, Spec
from vestige.continual.learners.vcl import (
    VCL,
    CoresetConfig,
    CoresetOnly,
    VCLConfig,
    VCLCoreset,
    expected_loss,
    maximum_likelihood,
)
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data.streams import permuted, split

SMALL = {"hidden": (16,), "train_samples": 3, "test_samples": 20, "fit_steps": 20, "learning_rate": 1e-2}


def stream(**options):
    return split(blobs(), 2, **options)


def make(kind=VCL, seed=0, **fields):
    tasks = stream()
    return kind(Spec(tasks.input_shape, tasks.n_outputs), replace(kind.default_config(), **(SMALL | fields)), seed=seed)


@pytest.mark.parametrize(("kind", "withheld"), [(VCL, {}), (VCLCoreset, {"coreset": 5})])
def test_the_loss_is_the_expected_loss_and_the_kl_over_the_rows_that_train(kind, withheld):
    learner, task = make(kind, **withheld), next(iter(stream(train_logits="all")))
    learner.begin_task(task)
    x, y = task.x[:8], task.y[:8]
    steps = learner.steps_
    logits = learner.net(x, 3, rng.fork(0, "noise", steps + 1)).detach()
    by_hand = -sum(logits[s].log_softmax(1)[range(8), y].mean() for s in range(3)) / 3
    kl = 0.0
    for layer in learner.net.layers():
        for name in ("weight", "bias"):
            mean, log_var = getattr(layer, name).detach(), getattr(layer, f"{name}_log_var").detach()
            kl += float(kl_divergence(Normal(mean, (log_var / 2).exp()), Normal(0.0, 1.0)).sum())
    info = learner.observe(x, y)
    assert float(info.loss) == pytest.approx(float(by_hand) + kl / (len(task) - sum(withheld.values())), rel=1e-5)


def widths(**fields):
    """Quantiles, 1 % and 99 %, of the variances of all weights after the first task."""
    learner, task = make(hidden=(32,), learning_rate=1e-3, **fields), next(iter(stream(train_logits="all")))
    learner.begin_task(task)
    for x, y in zip(task.x.repeat(20, 1, 1).split(20), task.y.repeat(20).split(20), strict=True):
        learner.observe(x, y)
    found = torch.cat([p.detach().flatten() for n, p in learner.net.named_parameters() if n.endswith("log_var")])
    return found.exp().quantile(torch.tensor([0.01, 0.99])).tolist()


def test_variances_differ_after_the_first_task_and_in_the_literal_setting_they_cannot():
    low, high = widths()
    assert high > 2 * low
    low, high = widths(variance_learning_rate=None)
    assert high < 1.2 * low, "80 steps of 1e-3: an isotropic anchor"


def test_weights_begin_as_they_are_asked_to_in_the_first_fit_and_after_it():
    task = next(iter(stream(train_logits="all")))
    learner, config = make(hidden=(64,), init="truncated_normal"), VCLConfig(hidden=(64,), init="truncated_normal")
    outputs = Outputs.every(learner.spec.n_outputs)
    fitted = maximum_likelihood(learner.spec, replace(config, fit_steps=0), outputs, task.x, task.y, seed=0)
    for first in (next(fitted.parameters()).detach(), learner.net.layers()[0].weight.detach()):
        assert 0.08 < float(first.std()) < 0.1  # 0.1, cut at two deviations
        assert float(first.abs().max()) <= 0.2
    begun = make(hidden=(64,)).net.layers()[0].weight.detach()
    assert not torch.equal(begun, first)


def test_the_preset_of_the_paper_has_one_rate_for_all():
    tasks = stream()
    for name in ("vcl", "vcl_coreset", "coreset_only", "vgr", "vgr_vcl"):
        learner = build(name, tasks, preset="paper")
        assert [group["lr"] for group in learner.fresh_optimizer().param_groups] == [1e-3, 1e-3]
        means, log_vars = build(name, tasks).fresh_optimizer().param_groups
        if name == "coreset_only":  # whose rows are too few for a rate of the variances' own
            assert means["lr"] == log_vars["lr"]
        else:
            assert means["lr"] < log_vars["lr"] == VCLConfig().variance_learning_rate
        own = {id(p) for p in learner.fresh_optimizer().param_groups[1]["params"]}
        assert own == {id(p) for n, p in learner.net.named_parameters() if n.endswith("log_var")}


def test_after_a_task_the_prior_is_the_posterior():
    learner = make()
    for task in stream(train_logits="all"):
        learner.begin_task(task)
        learner.observe(task.x, task.y)
        assert float(learner.net.kl().detach()) > 0
        learner.end_task(task)
        assert float(learner.net.kl().detach()) == 0


def test_heads_of_other_tasks_are_not_touched():
    learner = make()
    tasks = iter(stream(head="multi", train_logits="current"))
    first = next(tasks)
    learner.begin_task(first)
    learner.end_task(first)
    second = next(tasks)
    learner.begin_task(second)
    rows = torch.tensor([0, 1])
    before = learner.net.head.weight[rows].detach().clone()
    for _ in range(3):
        learner.observe(second.x, second.y)
    assert torch.equal(learner.net.head.weight[rows], before)
    assert not torch.equal(learner.net.head.weight[list(second.info.outputs)], before)


def test_a_coreset_is_withheld_from_training_and_kept_by_the_memory():
    seen = []

    class Watched(VCLCoreset):
        def observe(self, x, y):
            seen.append(x.clone())
            return super().observe(x, y)

    learner, tasks = make(Watched, coreset=5, coreset_steps=2), stream()
    protocol.run(tasks, learner, epochs=2)
    assert len(learner.memory) == 15
    trained = {row.numpy().tobytes() for x in seen for row in x}
    assert not [row for row in learner.memory.x if row.numpy().tobytes() in trained]


def test_fitting_the_coreset_never_reaches_the_next_prior():
    """With and without coreset steps the handed-on posterior is the same to the bit, and the tested network is not."""
    idle, busy = make(VCLCoreset, coreset=5, coreset_steps=0), make(VCLCoreset, coreset=5, coreset_steps=10)
    for learner in (idle, busy):
        protocol.run(stream(), learner)
    a, b = idle.net.state_dict(), busy.net.state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(busy.tested_[-1]["head.weight"], busy.net.head.weight)
    x = torch.rand(4, 6, 6)
    assert not torch.equal(idle.predict(x), busy.predict(x))


def test_per_task_there_is_a_network_for_each_test():
    learner = make(VCLCoreset, coreset=5, coreset_fit="per_task", coreset_steps=3)
    protocol.run(stream(head="multi", train_logits="current"), learner)
    assert sorted(learner.tested_) == [0, 1, 2]


def test_coreset_only_starts_every_task_from_the_first_prior():
    learner = make(CoresetOnly, coreset=5, coreset_steps=2)
    protocol.run(stream(), learner)
    for layer in learner.net.layers():
        assert bool((layer.prior_weight == 0).all())
        assert bool((layer.prior_weight_log_var == 0).all())


def test_a_fit_from_the_first_prior_is_one_batch_of_all_coresets_held_by_it():
    """To the bit: expected loss over all that is kept, and the KL from N(0, 1) over its size, by Adam."""
    learner = make(VCLCoreset, coreset=4, coreset_steps=3, coreset_prior="first")
    protocol.run(stream(train_logits="all"), learner)
    found, net = learner.fitted([0, 1, 2]), deepcopy(learner.net)
    net.forget_prior()
    x, y, outputs = learner.memory.x, learner.memory.y, Outputs(range(6), 6)
    config, log_vars = learner.config, [p for n, p in net.named_parameters() if n.endswith("log_var")]
    means = [p for n, p in net.named_parameters() if not n.endswith("log_var")]
    rates = [{"params": means}, {"params": log_vars, "lr": config.variance_learning_rate}]
    optimizer = torch.optim.Adam(rates, lr=config.learning_rate, fused=True)
    for step in range(3):
        optimizer.zero_grad()
        generator = rng.fork(0, "coreset fit", 3, 0, 3, step)
        (expected_loss(net, outputs, x, y, 3, generator) + net.kl() / 12).backward()
        optimizer.step()
    assert len(y) == 12
    for a, b in zip(found.layers(), net.layers(), strict=True):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.weight_log_var, b.weight_log_var)
        assert bool((a.prior_weight == 0).all())


def test_from_the_first_prior_each_head_has_the_rows_of_its_own_tasks():
    learner = make(VCLCoreset, coreset=4, coreset_steps=1, coreset_prior="first")
    protocol.run(stream(head="multi", train_logits="current"), learner)
    groups = [(rows.nonzero().flatten().tolist(), outputs.outputs) for rows, outputs in learner.groups([0, 1, 2])]
    assert groups == [([0, 1, 2, 3], (0, 1)), ([4, 5, 6, 7], (2, 3)), ([8, 9, 10, 11], (4, 5))]
    with pytest.raises(InputError, match="coreset_prior"):
        make(VCLCoreset, coreset_prior="last")


@pytest.mark.parametrize(
    "fields",
    [
        {"train_samples": 0},
        {"prior_std": 0.0},
        {"net": "table4"},
        {"head": "grown"},
        {"fit_steps": -1},
        {"optimizer": "sgd"},
    ],
)
def test_settings_that_cannot_be_used_are_refused(fields):
    with pytest.raises(InputError, match=f"'{next(iter(fields))}' of VCL must be"):
        make(**fields)


def test_a_learner_saved_between_tasks_predicts_as_before():
    learner, copy = make(VCLCoreset, coreset=5, coreset_steps=3), make(VCLCoreset, coreset=5, coreset_steps=3)
    protocol.run(stream(), learner)
    copy.load_state_dict(learner.state_dict())
    x = torch.rand(4, 6, 6)
    assert torch.equal(learner.predict(x), copy.predict(x))


def test_a_class_that_comes_back_does_not_fill_a_budget():
    stream = permuted(blobs(), 4)
    learner = VCLCoreset(
        Spec(stream.input_shape, stream.n_outputs), CoresetConfig(**SMALL, coreset=30, coreset_steps=1)
    )
    protocol.run(stream, learner)
    assert len(learner.memory) == 120
