"""The first batches of a new task, watched: Farquhar and Gal, sections 4.1 and 6.1 and Appendix B.1.

A learner that trusts its prior loses an old task early in the next one, if it is sure of what it sees and wrong. Three
readings of each batch, taken on it before it trains:

    entropy      of the predicted probabilities (6.1.1), and again after the batch has trained
    likelihood   mean absolute value of the gradient of the likelihood term of Eq. 1 by the final layer (6.1.2)
    ratio        the same of the likelihood term over that of the prior term (B.1: each run's ratio is one of averages)

What the paper leaves open is an argument, with what we take it to mean as the default:
- `kind` of entropy: "predictive", of the mean probability over posterior samples, which is the model's output;
  "expected", the mean entropy of the samples; "mean", of the network whose weights are the posterior means.
- `of` the final layer: "weight" ("the final weight layer", 6.1.2) is the means of its weights; "means" adds those of
  its biases, "all" the log-variances too. Rows of outputs that do not train are left out.
- `scale` of the ratio: "task" takes the sum in Eq. 1 over the whole task, of which the batch's mean times N is the
  estimate; "batch" takes it over the batch alone. They differ by a factor of batch size over N.

Before the first batch of a task the posterior is the prior, and the gradient of the prior term (here of the KL, which
stands in VCL where Eq. 1 has a quadratic form) is exactly zero: there is no ratio, and it is NaN.
Watching draws from generators of its own, so that a watched run ends with the same weights as one that is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor

from vestige.continual.learners import VCL, Outputs, expected_loss
from vestige.core import checks, rng
from vestige.metrics.uncertainty import Uncertainty, entropy
from vestige.nets.bayesian import BayesNet

KINDS = ("predictive", "expected", "mean")
PARTS = {
    "weight": ("weight",),
    "means": ("weight", "bias"),
    "all": ("weight", "bias", "weight_log_var", "bias_log_var"),
}
SCALES = ("task", "batch")


@dataclass(frozen=True)
class Early:
    """Readings of b batches of n rows. `before` and `after` are entropies by kind, in nats, means over the rows.

    `likelihood` and `prior` are mean absolute gradients of the two terms of the mean loss, E_q[-log p] and KL / N.
    """

    before: dict[str, Float64[Tensor, " b"]]
    after: dict[str, Float64[Tensor, " b"]]
    likelihood: Float64[Tensor, " b"]
    prior: Float64[Tensor, " b"]
    rows: int  # n, of a batch
    task_rows: int  # N, of the task

    def ratio(self, scale: str = "task") -> Float64[Tensor, " b"]:
        """Likelihood over prior; NaN where the posterior has not left the prior."""
        ratio = gradient_ratio(self.likelihood, self.prior)
        return ratio if checks.one_of(scale, SCALES, "scale", "ratio") == "task" else ratio * self.rows / self.task_rows


def gradient_ratio(likelihood: Float[Tensor, " b"], prior: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """likelihood / prior, NaN where the prior has no gradient."""
    return torch.where(prior > 0, likelihood / prior, torch.nan)


def mean_absolute_gradient(loss: Float[Tensor, ""], parameters: Sequence[Tensor], rows: Tensor) -> Float64[Tensor, ""]:
    """Mean |d loss / d w| over all entries of `rows` of `parameters` (B.1); zero where the loss does not reach."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([g[rows].flatten() for g in found]).abs().mean(dtype=torch.float64)


def final_layer_gradients(
    net: BayesNet,
    outputs: Outputs,
    x: Float[Tensor, "n *shape"],
    y: Int64[Tensor, " n"],
    task_rows: int,
    *,
    of: str = "weight",
    samples: int = 10,
    generator: Generator,
) -> tuple[Float64[Tensor, ""], Float64[Tensor, ""]]:
    """Mean absolute gradients of E_q[-log p(y | x, w)] and of KL / N by the final layer."""
    parts = PARTS[checks.one_of(of, PARTS, "of", "final_layer_gradients")]
    parameters = [getattr(net.head, part) for part in parts]
    likelihood = expected_loss(net, outputs, x, y, samples, generator)
    prior = net.head.kl(outputs.index) / task_rows  # what other layers add to the KL has no gradient here
    return (
        mean_absolute_gradient(likelihood, parameters, outputs.index),
        mean_absolute_gradient(prior, parameters, outputs.index),
    )


@torch.no_grad()
def prediction_entropies(
    net: BayesNet, outputs: Outputs, x: Float[Tensor, "n *shape"], *, samples: int = 100, generator: Generator
) -> dict[str, Float64[Tensor, " n"]]:
    """Entropy of each row's prediction over `outputs`, of every kind, in nats (6.1.1)."""
    drawn = Uncertainty()
    for logits in net.draw(x, samples, generator):
        drawn.update(logits[..., outputs.index].log_softmax(-1))
    found, h = drawn.compute(), x
    for index, layer in enumerate(net.layers()):
        h = layer.along(net.enter(index, h), layer.weight, layer.bias)
    at_mean = h.reshape(len(x), -1)[:, outputs.index].log_softmax(-1)
    return {kind: found[kind] for kind in ("predictive", "expected")} | {"mean": entropy(at_mean).double()}


def watch(
    learner: VCL, x: Float[Tensor, "..."], y: Int64[Tensor, "..."], *, of: str = "weight", seed: int = 0
) -> Early:
    """Let `learner`, whose task has begun, observe batch after batch, and read it around each."""
    if x.ndim < 3 or y.shape != x.shape[:2] or 0 in y.shape:
        checks.refuse("x", "watch", "(batches, rows, ...) beside 'y' of (batches, rows), not empty", tuple(x.shape))
    if not bool(torch.isfinite(x).all()):
        checks.refuse("x", "watch", "finite", f"{int((~torch.isfinite(x)).sum())} NaN or infinite values")
    net, outputs, c = learner.net, learner.outputs_, learner.config

    def entropies(b: int, when: str) -> dict[str, Tensor]:
        noise = rng.fork(seed, "entropy", when, b)
        found = prediction_entropies(net, outputs, x[b], samples=c.test_samples, generator=noise)
        return {kind: values.mean() for kind, values in found.items()}

    before, after, gradients = [], [], []
    for b in range(len(x)):
        before.append(entropies(b, "before"))
        noise = rng.fork(seed, "gradient", b)
        pair = final_layer_gradients(
            net, outputs, x[b], y[b], learner.rows_, of=of, samples=c.train_samples, generator=noise
        )
        gradients.append(torch.stack(pair))
        learner.observe(x[b], y[b])
        after.append(entropies(b, "after"))
    likelihood, prior = torch.stack(gradients).unbind(1)
    return Early(_stacked(before), _stacked(after), likelihood, prior, y.shape[1], learner.rows_)


def _stacked(readings: Sequence[dict[str, Tensor]]) -> dict[str, Float64[Tensor, " b"]]:
    return {kind: torch.stack([r[kind] for r in readings]) for kind in KINDS}
