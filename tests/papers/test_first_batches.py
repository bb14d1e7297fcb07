"""The first batches of a task: entropies and gradients against closed forms, and watching that disturbs nothing."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from toys import blobs
from vestige.continual.learners.base import Outputs, Spec
from vestige.continual.learners.vcl import VCL, VCLConfig, expected_loss
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data.streams import split
from vestige.nets import MLP
from vestige.nets.bayesian import BayesNet
from vestige_papers.robust.first_batches import (
    Early,
    final_layer_gradients,
    gradient_ratio,
    prediction_entropies,
    watch,
)

SURE = -60.0  # a log-variance that leaves nothing to draw
N = 500  # rows of the task


def net_and_batch(log_var=SURE, k=4, n=7, d=3, hidden=(5,)):
    net = BayesNet(MLP((d,), hidden, k, seed=1), log_var=log_var).double()
    x = torch.randn(n, d, generator=rng.fork(0, "x"), dtype=torch.float64)
    return net, x, torch.randint(k, (n,), generator=rng.fork(0, "y"))


def by_hand(net, x):
    """Features and probabilities of the network at its means, without torch's layers."""
    h = x.numpy()
    for layer in net.body:
        h = np.maximum(h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    logits = h @ net.head.weight.detach().numpy().T + net.head.bias.detach().numpy()
    p = np.exp(logits - logits.max(1, keepdims=True))
    return h, p / p.sum(1, keepdims=True)


def all_outputs(net):
    k = len(net.head.weight)
    return Outputs(tuple(range(k)), k)


def gradients(net, x, y, outputs=None, seed=0, **options):
    outputs = outputs or all_outputs(net)
    generator = rng.fork(seed, "noise")
    return [float(g) for g in final_layer_gradients(net, outputs, x, y, N, generator=generator, **options)]


# Entropy


def test_without_variance_every_entropy_is_that_of_the_softmax():
    net, x, _ = net_and_batch()
    _, p = by_hand(net, x)
    found = prediction_entropies(net, all_outputs(net), x, samples=3, generator=rng.fork(0))
    for kind in ("predictive", "expected", "mean"):
        np.testing.assert_allclose(found[kind].numpy(), -(p * np.log(p)).sum(1), rtol=1e-9)


def test_with_variance_the_kinds_are_the_integrals_that_they_name():
    net, x, _ = net_and_batch(k=2, n=1)
    m, s = 0.8, 3.0  # of the difference of two logits, which is Gaussian
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias.copy_(torch.tensor([m, 0.0]))
        net.head.bias_log_var[0] = 2 * math.log(s)

    def h(p):
        return -sum(v * math.log(v) for v in (p, 1 - p) if v > 0)

    def average(f):
        return quad(lambda z: f(1 / (1 + math.exp(-z))) * norm.pdf(z, m, s), m - 9 * s, m + 9 * s)[0]

    found = prediction_entropies(net, all_outputs(net), x, samples=200_000, generator=rng.fork(0))
    assert float(found["predictive"][0]) == pytest.approx(h(average(lambda p: p)), abs=3e-3)
    assert float(found["expected"][0]) == pytest.approx(average(h), abs=3e-3)
    assert float(found["mean"][0]) == pytest.approx(h(1 / (1 + math.exp(-m))), abs=1e-6)


def test_only_the_outputs_that_train_share_the_probability():
    net, x, _ = net_and_batch()
    _, p = by_hand(net, x)
    kept = p[:, [1, 3]] / p[:, [1, 3]].sum(1, keepdims=True)
    found = prediction_entropies(net, Outputs((1, 3), 4), x, samples=2, generator=rng.fork(0))
    np.testing.assert_allclose(found["predictive"].numpy(), -(kept * np.log(kept)).sum(1), rtol=1e-9)


# Gradients


def test_the_likelihood_gradient_is_the_error_times_the_features():
    net, x, y = net_and_batch()
    h, p = by_hand(net, x)
    error = p - np.eye(4)[y.numpy()]  # section 4.1: p_k - y_k
    weight, bias = error.T @ h / len(x), error.mean(0)
    assert gradients(net, x, y)[0] == pytest.approx(np.abs(weight).mean(), rel=1e-9)
    both = np.concatenate([weight.ravel(), bias])
    assert gradients(net, x, y, of="means")[0] == pytest.approx(np.abs(both).mean(), rel=1e-9)


def test_the_prior_gradient_is_the_way_gone_over_the_prior_variance():
    net, x, y = net_and_batch(log_var=-2.0)
    net.advance()
    assert gradients(net, x, y)[1] == 0  # the posterior is the prior
    moved = torch.linspace(-1, 1, net.head.weight.numel(), dtype=torch.float64).reshape(net.head.weight.shape)
    with torch.no_grad():
        net.head.weight += moved
        net.head.weight_log_var += 0.5
        net.head.bias -= 0.3
    mean = (moved / math.exp(-2)).abs()
    bias = torch.full((4,), 0.3 / math.exp(-2), dtype=torch.float64)
    spread = torch.full_like(mean, (math.exp(0.5) - 1) / 2)
    assert gradients(net, x, y)[1] == pytest.approx(float(mean.mean()) / N, rel=1e-9)
    whole = torch.cat([mean.flatten(), bias, spread.flatten(), torch.zeros(4, dtype=torch.float64)])
    assert gradients(net, x, y, of="all")[1] == pytest.approx(float(whole.mean()) / N, rel=1e-9)


def test_with_variance_the_likelihood_gradient_is_the_finite_difference():
    net, x, y = net_and_batch(log_var=-1.0, k=2, d=2, hidden=(3,))
    outputs, eps, found = all_outputs(net), 1e-6, []

    def loss():
        return float(expected_loss(net, outputs, x, y, 6, rng.fork(5, "noise")).detach())

    for name in ("weight", "bias", "weight_log_var", "bias_log_var"):
        flat = getattr(net.head, name).data.view(-1)
        for i in range(len(flat)):
            flat[i] += eps
            up = loss()
            flat[i] -= 2 * eps
            found.append(abs(up - loss()) / (2 * eps))
            flat[i] += eps
    assert gradients(net, x, y, of="all", samples=6, seed=5)[0] == pytest.approx(np.mean(found), rel=1e-6)
    assert gradients(net, x, y, of="weight", samples=6, seed=5)[0] == pytest.approx(np.mean(found[:6]), rel=1e-6)


def test_rows_that_do_not_train_are_left_out_of_the_mean():
    net, x, _ = net_and_batch()
    h, p = by_hand(net, x)
    y = torch.tensor([1, 3, 1, 1, 3, 3, 1])
    kept = p[:, [1, 3]] / p[:, [1, 3]].sum(1, keepdims=True)
    error = kept - np.eye(4)[y.numpy()][:, [1, 3]]
    found = gradients(net, x, y, outputs=Outputs((1, 3), 4))[0]
    assert found == pytest.approx(np.abs(error.T @ h / len(x)).mean(), rel=1e-9)


def test_the_ratio_and_its_scales():
    likelihood, prior = torch.tensor([2.0, 3.0]).double(), torch.tensor([0.0, 0.5]).double()
    assert gradient_ratio(likelihood, prior).isnan().tolist() == [True, False]
    early = Early({}, {}, likelihood, prior, rows=16, task_rows=400)
    assert float(early.ratio()[1]) == 6
    assert float(early.ratio("batch")[1]) == pytest.approx(6 * 16 / 400)
    with pytest.raises(InputError, match="'scale' of ratio"):
        early.ratio("whole")


# Watching


@pytest.fixture
def at_task_b():
    """A function that makes a learner at the beginning of its second task, and the task."""
    stream = split(blobs(), 3, train_logits="all")
    spec, config = Spec(stream.input_shape, stream.n_outputs), VCLConfig(hidden=(8,), train_samples=3, test_samples=20)

    def make():
        learner, tasks = VCL(spec, config, seed=0), iter(stream)
        first = next(tasks)
        learner.begin_task(first)
        learner.end_task(first)
        second = next(tasks)
        learner.begin_task(second)
        return learner, second.x[:24].unflatten(0, (4, 6)), second.y[:24].unflatten(0, (4, 6))

    return make


def test_watching_does_not_change_what_is_learnt(at_task_b):
    learner, x, y = at_task_b()
    other, _, _ = at_task_b()
    watch(learner, x, y, seed=3)
    for b in range(len(x)):
        other.observe(x[b], y[b])
    for name, value in learner.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_each_batch_is_read_before_and_after_it_trains(at_task_b):
    learner, x, y = at_task_b()
    other, _, _ = at_task_b()
    found = watch(learner, x, y)
    assert (found.rows, found.task_rows) == (6, other.rows_)
    for b in range(len(x)):
        for when, readings in (("before", found.before), ("after", found.after)):
            expected = prediction_entropies(other.net, other.outputs_, x[b], samples=20, generator=rng.fork(9))["mean"]
            assert float(readings["mean"][b]) == pytest.approx(float(expected.mean()), rel=1e-6)
            if when == "before":
                noise = rng.fork(0, "gradient", b)
                pair = final_layer_gradients(
                    other.net, other.outputs_, x[b], y[b], other.rows_, samples=3, generator=noise
                )
                assert [float(found.likelihood[b]), float(found.prior[b])] == pytest.approx([float(g) for g in pair])
                other.observe(x[b], y[b])
    assert found.ratio().isnan().tolist() == [True, False, False, False]


@pytest.mark.slow
def test_the_same_seed_reads_the_same(at_task_b):
    first, second, third = (watch(*at_task_b(), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.before["predictive"], second.before["predictive"])
    assert torch.equal(first.likelihood, second.likelihood)
    assert not torch.equal(first.before["predictive"], third.before["predictive"])


def test_refusals(at_task_b):
    learner, x, y = at_task_b()
    before = learner.state_dict()
    with pytest.raises(InputError, match="'x' of watch"):
        watch(learner, x, y[:, :3])
    with pytest.raises(InputError, match="'x' of watch"):
        watch(learner, x[:0], y[:0])
    with pytest.raises(InputError, match="finite"):
        watch(learner, x.log().log(), y)
    with pytest.raises(InputError, match="'of' of final_layer_gradients"):
        watch(learner, x, y, of="weights")
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
