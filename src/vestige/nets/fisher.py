"""Three diagonals that people call the Fisher, each under its own name.

`fisher_empirical`: the mean over samples of the squared gradient of log p(y | x) at the observed label (RWalk Eq. 1).
`fisher_true`: the same with the label drawn from the model, its expectation taken exactly over all classes.
`fisher_batch`: the squared gradient of the batch's mean loss. Many implementations use it; at batch n it is smaller
than the empirical one by a factor between 1 and n, and near an optimum it goes to zero. It is here to be named.

The first two are exact and need no loop over samples. With the inputs a and the output gradients g of a layer, one
sample's gradient of a linear weight is g a', so the sum of squares over samples is (g^2)' (a^2): one more product. A
convolution's is a sum over positions first, taken as one batched product with the unfolded input, a few samples at a
time. The gradients of the weights themselves are never computed: the backward pass stops at the layers' outputs, so
that a Fisher costs what a training step's forward and backward do. Batch norm in training mode mixes samples and has no
per-sample gradient, and dropout would give another network for each: the network is in evaluation mode throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import InputError
from vestige.nets.training import evaluating

Diagonal = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

# Numbers that the patches and per-sample gradients of a convolution may take at once; bounds memory, changes nothing.
PATCH_NUMBERS = 2**22


def summed_cross_entropy(logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
    """Sum, not mean, so that the gradient at each output row is that sample's own."""
    return functional.cross_entropy(logits, y, reduction="sum")


def fisher_empirical(
    net: nn.Module,
    x: Float[Tensor, "n *shape"],
    y: Int64[Tensor, " n"],
    *,
    loss: Loss = summed_cross_entropy,
    rows: int | None = None,
) -> Diagonal:
    """Mean over samples of the squared per-sample gradient of `loss`, by parameter name.

    `rows` pass at once, all if None: it bounds memory and changes nothing.
    """
    return _mean_squares(net, x, rows, lambda logits, at: [loss(logits, y[at])])


def fisher_true(
    net: nn.Module, x: Float[Tensor, "n *shape"], *, outputs: list[int] | None = None, rows: int | None = None
) -> Diagonal:
    """Mean over samples of E_{y ~ model}[squared gradient]: one backward pass for each class among `outputs`."""

    def values(logits: Tensor, _: slice) -> list[Tensor]:
        log_p = (logits if outputs is None else logits[:, outputs]).log_softmax(1)
        # A gradient scaled by sqrt(p) is squared to p times the square. One forward pass serves every class.
        return list((log_p * (log_p.detach() / 2).exp()).sum(0))

    return _mean_squares(net, x, rows, values)


def fisher_batch(
    net: nn.Module, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], *, loss: Loss = summed_cross_entropy
) -> Diagonal:
    """The square of the batch's mean gradient."""
    names, parameters = zip(*_trained(net), strict=True)
    with evaluating([net]):  # a look at the network must not move its running statistics
        gradients = torch.autograd.grad(loss(net(x), y) / len(x), parameters, allow_unused=True)
    pairs = zip(names, parameters, gradients, strict=True)
    return {n: torch.zeros_like(p) if g is None else g.square() for n, p, g in pairs}


def _trained(net: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in net.named_parameters() if p.requires_grad]


@dataclass(frozen=True)
class Layer:
    """What one layer saw and gave in a forward pass."""

    module: nn.Module
    names: tuple[str, str]  # of its weight and bias in the network
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

    def listen(names: tuple[str, str], module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        output = output if output.requires_grad else output.detach().requires_grad_()
        layers.append(Layer(module, names, inputs[0].detach(), output))
        return output

    for path, module in net.named_modules():
        own = list(module.parameters(recurse=False))
        if own and type(module) not in _SQUARES:
            raise InputError(
                "The 'net' of fisher must be of Linear, Conv2d and BatchNorm2d layers. "
                f"Got a {type(module).__name__} instead."
            )
        if own:
            weight, bias = (f"{path}.{part}".lstrip(".") for part in ("weight", "bias"))
            handles.append(module.register_forward_hook(partial(listen, (weight, bias))))
    try:
        for p in frozen:
            p.requires_grad_(False)
        with evaluating([net]):
            yield layers
    finally:
        for p in frozen:
            p.requires_grad_()
        for handle in handles:
            handle.remove()


def _mean_squares(
    net: nn.Module, x: Tensor, rows: int | None, values: Callable[[Tensor, slice], list[Tensor]]
) -> Diagonal:
    """Mean over samples of the squared gradients of what `values` makes of the logits of a slice of them."""
    total, rows = {name: torch.zeros_like(p) for name, p in _trained(net)}, rows or len(x)
    with listening(net) as layers:
        for start in range(0, len(x), rows):
            layers.clear()
            at = slice(start, start + rows)
            _add_squares(total, layers, values(net(x[at]), at))
    torch._foreach_div_(list(total.values()), len(x))
    return total


def _add_squares(total: Diagonal, layers: list[Layer], values: list[Tensor]) -> None:
    """Add to `total` the sum over samples, and over `values`, of the squared gradient of every parameter."""
    for i, value in enumerate(values):
        outputs = [layer.output for layer in layers]
        gradients = torch.autograd.grad(value, outputs, allow_unused=True, retain_graph=i < len(values) - 1)
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is not None:
                found = _SQUARES[type(layer.module)](layer.module, layer.inputs, gradient)
                for name, squares in zip(layer.names, found, strict=True):
                    if name in total:
                        total[name] += squares


def _linear(module: nn.Module, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    squares = g.square()
    return squares.mT @ a.square(), squares.sum(0)


def _convolution(module: nn.Module, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(module, nn.Conv2d)
    weight, places, groups = torch.zeros_like(module.weight), g[0, 0].numel(), module.groups
    size = places * weight[0].numel() * groups + weight.numel()  # numbers for one sample: patches and a gradient
    rows = max(1, PATCH_NUMBERS // size)
    for a_part, g_part in zip(a.split(rows), g.split(rows), strict=True):
        patches = functional.unfold(a_part, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        n = len(a_part)
        out = g_part.reshape(n, groups, -1, places)
        per_sample = out @ patches.reshape(n, groups, -1, places).mT
        weight += per_sample.square_().sum(0).reshape(weight.shape)
    return weight, g.sum((2, 3)).square_().sum(0)


def _batch_norm(module: nn.Module, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(module, nn.BatchNorm2d)
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        raise InputError("The 'net' of fisher must track batch-norm statistics. Got a layer that does not instead.")
    normal = (a - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + module.eps).sqrt()
    weight, bias = (part.sum((2, 3)).square_().sum(0) for part in (g * normal, g))
    return weight, bias


# Sums over samples of squared gradients of a layer's weight and bias, from its inputs `a` and output gradients `g`.
_SQUARES = {nn.Linear: _linear, nn.Conv2d: _convolution, nn.BatchNorm2d: _batch_norm}
