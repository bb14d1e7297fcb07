"""Three diagonals that people call the Fisher, each under its own name.

`fisher_empirical`: the mean over samples of the squared gradient of log p(y | x) at the observed label (RWalk Eq. 1).
`fisher_true`: the same with the label drawn from the model, its expectation taken exactly over all classes.
`fisher_batch`: the squared gradient of the batch's mean loss. Many implementations use it; at batch n it is smaller
than the empirical one by a factor between 1 and n, and near an optimum it goes to zero. It is here to be named.

The first two are exact and need no loop over samples. With the inputs a and the output gradients g of a layer, one
sample's gradient of a linear weight is g a', so the sum of squares over samples is (g^2)' (a^2): one more product. A
convolution's is a sum over positions first, taken as one batched product with the unfolded input. The gradients of the
weights themselves are never computed: the backward pass stops at the layers' outputs, so that a Fisher costs what a
training step's forward and backward do. Batch norm in training mode mixes samples and has no per-sample gradient: the
network is evaluated in evaluation mode throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.errors import InputError

Diagonal = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def summed_cross_entropy(logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
    """Sum, not mean, so that the gradient at each output row is that sample's own."""
    return functional.cross_entropy(logits, y, reduction="sum")


def fisher_empirical(
    net: nn.Module, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], *, loss: Loss = summed_cross_entropy
) -> Diagonal:
    """Mean over samples of the squared per-sample gradient of `loss`, by parameter name."""
    with listening(net) as layers:
        value = loss(net(x), y)
    return {name: total / len(x) for name, total in _summed_squares(net, layers, [value]).items()}


def fisher_true(net: nn.Module, x: Float[Tensor, "n *shape"], *, outputs: list[int] | None = None) -> Diagonal:
    """Mean over samples of E_{y ~ model}[squared gradient]: one backward pass for each class among `outputs`."""
    with listening(net) as layers:
        logits = net(x)
    log_p = (logits if outputs is None else logits[:, outputs]).log_softmax(1)
    # A gradient scaled by sqrt(p) is squared to p times the square. One forward pass serves every class.
    values = list((log_p * (log_p.detach() / 2).exp()).sum(0))
    return {name: total / len(x) for name, total in _summed_squares(net, layers, values).items()}


def fisher_batch(
    net: nn.Module, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], *, loss: Loss = summed_cross_entropy
) -> Diagonal:
    """The square of the batch's mean gradient."""
    names, parameters = zip(*_trained(net), strict=True)
    gradients = torch.autograd.grad(loss(net(x), y) / len(x), parameters, allow_unused=True)
    pairs = zip(names, parameters, gradients, strict=True)
    return {n: torch.zeros_like(p) if g is None else g.square() for n, p, g in pairs}


def _trained(net: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in net.named_parameters() if p.requires_grad]


@dataclass(frozen=True)
class Layer:
    """What one layer saw and gave in a forward pass."""

    module: nn.Module
    inputs: Tensor
    output: Tensor


@contextmanager
def listening(net: nn.Module) -> Iterator[list[Layer]]:
    """Within it a forward pass records every layer that has parameters, in evaluation mode.

    The parameters are frozen meanwhile and the first outputs become the leaves of the graph, so that no backward pass
    spends a product on the gradient of a weight.
    """
    layers: list[Layer] = []
    handles, frozen = [], [p for _, p in _trained(net)]

    def listen(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        output = output if output.requires_grad else output.detach().requires_grad_()
        layers.append(Layer(module, inputs[0].detach(), output))
        return output

    for module in net.modules():
        own = list(module.parameters(recurse=False))
        if own and not isinstance(module, nn.Linear | nn.Conv2d | nn.BatchNorm2d):
            raise InputError(
                "The 'net' of fisher must be of Linear, Conv2d and BatchNorm2d layers. "
                f"Got a {type(module).__name__} instead."
            )
        if own:
            handles.append(module.register_forward_hook(listen))
    training = net.training
    net.eval()
    try:
        for p in frozen:
            p.requires_grad_(False)
        yield layers
    finally:
        for p in frozen:
            p.requires_grad_()
        for handle in handles:
            handle.remove()
        net.train(training)


def _summed_squares(net: nn.Module, layers: list[Layer], values: list[Tensor]) -> Diagonal:
    """Sum over samples, and over `values`, of the squared gradient of every parameter."""
    total: Diagonal = {name: torch.zeros_like(p) for name, p in _trained(net)}
    names = {id(p): name for name, p in _trained(net)}
    for i, value in enumerate(values):
        outputs = [layer.output for layer in layers]
        gradients = torch.autograd.grad(value, outputs, allow_unused=True, retain_graph=i < len(values) - 1)
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is not None:
                for name, square in _squares(layer.module, layer.inputs, gradient).items():
                    parameter = getattr(layer.module, name)
                    if parameter is not None and id(parameter) in names:
                        total[names[id(parameter)]] += square
    return total


def _squares(module: nn.Module, a: Tensor, g: Tensor) -> Diagonal:
    """Sum over samples of squared gradients of one layer, from its inputs `a` and output gradients `g`."""
    if isinstance(module, nn.Linear):
        return {"weight": g.square().mT @ a.square(), "bias": g.square().sum(0)}
    if isinstance(module, nn.Conv2d):
        patches = functional.unfold(a, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        n, groups = len(a), module.groups
        out = g.reshape(n, groups, g.shape[1] // groups, -1)
        per_sample = out @ patches.reshape(n, groups, -1, patches.shape[-1]).mT
        weight = per_sample.square().sum(0).reshape(module.weight.shape)
        return {"weight": weight, "bias": g.sum((2, 3)).square().sum(0)}
    assert isinstance(module, nn.BatchNorm2d)
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        raise InputError("The 'net' of fisher must track batch-norm statistics. Got a layer that does not instead.")
    shape = (1, -1, 1, 1)
    normal = (a - mean.view(shape)) / (variance.view(shape) + module.eps).sqrt()
    return {"weight": (g * normal).sum((2, 3)).square().sum(0), "bias": g.sum((2, 3)).square().sum(0)}
