"""Farquhar and Gal's settings: as printed, accepted by every method they name, and what the printed variance does."""

import math

import pytest
import torch

from toys import blobs
from vestige import store
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.core import rng
from vestige.core.errors import InputError, UnknownName
from vestige.data.streams import split
from vestige.nets.fisher import fisher_empirical
from vestige_papers.robust.published import PRESETS, PRINTED_LOG_VAR, WHOLE_TASK, printed


def test_the_numbers_in_print():
    permuted, split_mnist, fashion = (PRESETS[n] for n in ("permuted-mnist", "split-mnist", "split-fashion-mnist"))
    b2 = permuted["vcl_coreset"]
    assert (b2.epochs, b2.batch_size, b2.fields["hidden"], b2.fields["coreset"]) == (100, 256, (100, 100), 200)
    assert (b2.fields["coreset_steps"], b2.fields["learning_rate"], b2.fields["prior_std"]) == (100, 1e-3, 1.0)
    b3 = split_mnist["coreset_only"]
    assert (b3.epochs, b3.batch_size, b3.fields["hidden"], b3.fields["coreset"]) == (120, WHOLE_TASK, (256, 256), 40)
    ewc = split_mnist["ewc_huszar"]
    assert (ewc.epochs, ewc.fields["learning_rate"], ewc.fields["fisher_samples"], ewc.fields["lam"]) == (
        20,
        1e-2,
        200,
        10,
    )
    assert fashion["vcl"].fields["hidden"] == (200,) * 4
    assert fashion["ewc_huszar"].fields["hidden"] == (256,) * 4
    fits = {name: preset["vcl_coreset"].fields["coreset_fit"] for name, preset in PRESETS.items()}
    assert {name for name, fit in fits.items() if fit == "per_task"} == {n for n in PRESETS if n.endswith("-multi")}
    assert math.exp(PRINTED_LOG_VAR) == pytest.approx(1e-6)


def agrees(told, given):
    """Whether what was given is told; a part that was given in a dict is told whole."""
    if isinstance(given, dict):
        return all(agrees(told[key], value) for key, value in given.items())
    return told == given


@pytest.mark.parametrize(("name", "method"), [(n, m) for n, methods in PRESETS.items() for m in methods])
def test_every_preset_builds_its_method(name, method):
    fields = printed(name, method).fields
    learner = build(method, split(blobs(), 2), **fields)
    told = learner.describe()
    assert all(agrees(told[key], value) for key, value in fields.items())


def test_a_method_that_the_paper_did_not_run_is_refused():
    with pytest.raises(UnknownName, match="preset 'permuted-mnist'"):
        printed("permuted-mnist", "ewc_huszar")


@pytest.mark.slow
def test_a_variance_as_small_as_printed_learns_nothing_after_the_first_task():
    def diagonal(epochs, **fields):
        stream = split(blobs(per_class=300), 2, train_logits="all")
        settings = {"hidden": (16,), "train_samples": 2, "test_samples": 10, "learning_rate": 1e-2, "fit_steps": 60}
        return protocol.run(stream, build("vcl", stream, **settings, **fields), epochs=epochs).R.diagonal().tolist()

    assert min(diagonal(4, preset="paper")) > 0.8
    first, *later = diagonal(4, preset="paper", log_var=PRINTED_LOG_VAR)
    assert first > 0.8
    assert max(later) < 0.2
    # However long it trains; a rate of its own takes the variances out of there.
    assert max(diagonal(20, preset="paper", log_var=PRINTED_LOG_VAR)[1:]) < 0.2
    assert min(diagonal(20, log_var=PRINTED_LOG_VAR)) > 0.8


def test_a_variance_that_no_float_holds_is_refused():
    with pytest.raises(InputError, match="'log_var' of VCL"):
        build("vcl", split(blobs(), 2), log_var=-200.0)


def test_sgd_goes_down_the_gradient_and_goes_on_from_disk(tmp_path):
    stream = split(blobs(), 2)
    learner, copy = (build("vanilla", stream, hidden=(4,), optimizer="sgd", learning_rate=0.1) for _ in range(2))
    task = next(iter(stream))
    learner.begin_task(task)
    before = [p.detach().clone() for p in learner.net.parameters()]
    slopes = torch.autograd.grad(learner.loss(task.x, task.y), list(learner.net.parameters()))
    learner.observe(task.x, task.y)
    for p, start, slope in zip(learner.net.parameters(), before, slopes, strict=True):
        torch.testing.assert_close(p.detach(), start - 0.1 * slope)
    copy.load_state_dict(store.load(store.save(tmp_path / "s.json", "learner", {}, learner.state_dict()), "learner")[1])
    copy.outputs_ = learner.outputs_
    for each in (learner, copy):
        each.observe(task.x, task.y)
    assert all(torch.equal(a, b) for a, b in zip(learner.net.parameters(), copy.net.parameters(), strict=True))


def test_the_fisher_of_some_samples_is_that_of_the_rows_drawn():
    stream = split(blobs(), 2, train_logits="all")
    learner, task = build("ewc", stream, hidden=(4,), fisher_samples=7, seed=2), next(iter(stream))
    learner.begin_task(task)
    rows = torch.randperm(len(task.y), generator=rng.fork(2, "fisher", 0))[:7]
    by_hand = fisher_empirical(learner.net, task.x[rows], task.y[rows])
    for name, value in learner.fisher_of(task).items():
        torch.testing.assert_close(value, by_hand[name])
    whole = build("ewc", stream, hidden=(4,), fisher_samples=10_000, seed=2)
    whole.begin_task(task)
    every = fisher_empirical(whole.net, task.x, task.y)
    torch.testing.assert_close(whole.fisher_of(task)["head.weight"], every["head.weight"])
    with pytest.raises(InputError, match="'fisher_samples' of EWC"):
        build("ewc", stream, fisher_samples=0)
