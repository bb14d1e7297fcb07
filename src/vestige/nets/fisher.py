"""Three diagonals that people call the Fisher, each under its own name.

`fisher_empirical`: the mean over samples of the squared gradient of log p(y | x) at the observed label (RWalk Eq. 1).
`fisher_true`: the same with the label drawn from the model, its expectation taken exactly over all classes.
`fisher_batch`: the squared gradient of the batch's mean loss. Many implementations use it; at batch n it is smaller
than the empirical one by a factor between 1 and n, and near an optimum it goes to zero. It is here to be named.

The first two are exact, and for the layers that are known (linear ones, 2-d convolutions and batch norm, each called
once, with parameters that no other layer shares) they need no loop over samples. With the inputs a and the output
gradients g of a layer, one sample's gradient of a linear weight is g a', so the sum of squares over samples is
(g^2)' (a^2): one more product. A convolution's is a sum over positions first, taken as one batched product with the
unfolded input, a few samples at a time. The gradients of the weights themselves are never computed: the backward pass
stops at the layers' outputs, so that a Fisher costs what a training step's forward and backward do. Batch norm in
training mode mixes samples and has no per-sample gradient, and dropout would give another network for each: the network
is in evaluation mode throughout.

For the parameters of all other layers the gradient of each sample is taken by itself: of a few at a time by
`torch.func` (vmap of grad), one after the other where a layer has no rule for that. The numbers are the same; `ways`
says which layer goes which way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from vestige.core import InputError
from vestige.nets.classifier import Dropout
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
    return _mean_squares(net, x, y, rows, lambda logits, labels: [loss(logits, labels)])


def fisher_true(
    net: nn.Module, x: Float[Tensor, "n *shape"], *, outputs: list[int] | None = None, rows: int | None = None
) -> Diagonal:
    """Mean over samples of E_{y ~ model}[squared gradient]: one backward pass for each class among `outputs`."""

    def values(logits: Tensor, _: Tensor) -> list[Tensor]:
        log_p = (logits if outputs is None else logits[:, outputs]).log_softmax(1)
        # A gradient scaled by sqrt(p) is squared to p times the square. One forward pass serves every class.
        return list((log_p * (log_p.detach() / 2).exp()).sum(0))

    return _mean_squares(net, x, torch.zeros(len(x), dtype=torch.int64), rows, values)


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


def _owned(net: nn.Module) -> dict[str, nn.Module]:
    """The modules that have parameters of their own, by their paths."""
    return {path: module for path, module in net.named_modules() if list(module.parameters(recurse=False))}


def known_layers(net: nn.Module, x: Float[Tensor, "n *shape"]) -> set[str]:
    """The paths of the layers whose squares are known in closed form, as the network treats `x`.

    Of a network that is not ours each is tried on two rows: the layer is called once, on rows, and what goes through
    that call is the whole gradient of its parameters.
    """
    owned = _owned(net)
    if _is_ours(net):
        return {path for path, module in owned.items() if type(module) in _SQUARES}
    calls: dict[str, list[tuple[Any, Any]]] = {path: [] for path in owned}

    def note(path: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:  # noqa: ANN401
        plain = len(inputs) == 1 and isinstance(inputs[0], Tensor) and isinstance(output, Tensor)
        calls[path].append((inputs[0].detach().clone(), output) if plain else (None, None))
        return output.clone() if plain else output  # what comes next may write over it

    handles = [module.register_forward_hook(partial(note, path)) for path, module in owned.items()]
    x = x[:2]
    try:
        with evaluating([net]), torch.enable_grad():
            logits = net(x)
    finally:
        for handle in handles:
            handle.remove()
    value = (logits * torch.linspace(1, 2, logits.numel()).reshape(logits.shape)).sum()
    found = set()
    with evaluating([net]):
        for path, module in owned.items():
            inputs, output = calls[path][0] if len(calls[path]) == 1 else (None, None)
            if inputs is None or output is None or inputs.ndim != _AXES.get(type(module), 0):
                continue
            if len(inputs) == len(x) and _is_plain(module) and _goes_through(module, inputs, output, value):
                found.add(path)
    return found


def _goes_through(module: nn.Module, inputs: Tensor, output: Tensor, value: Tensor) -> bool:
    """Whether the gradient of `value` at the layer's parameters is the one that comes through this call of it."""
    learning = [p for p in module.parameters(recurse=False) if p.requires_grad]
    if not learning:
        return True
    whole = torch.autograd.grad(value, [output, *learning], allow_unused=True, retain_graph=True)
    if any(part is None for part in whole):
        return False
    with torch.enable_grad():
        through = torch.autograd.grad(module.forward(inputs), learning, whole[0])
    return all(torch.allclose(a, b, 1e-4, 1e-6) for a, b in zip(whole[1:], through, strict=True))


def _is_ours(net: nn.Module) -> bool:
    """Whether every layer is called once and none works in place, as in the networks of this package."""
    return bool(getattr(net, "plain_layers", False))


def _is_plain(module: nn.Module) -> bool:
    """Whether a layer of a known type is used as that type alone would be."""
    if isinstance(module, nn.Conv2d):
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return True


def ways(net: nn.Module, x: Float[Tensor, "n *shape"]) -> dict[str, list[str]]:
    """Which layers' Fisher is "exact", and which comes of per-sample gradients, by "torch.func" or one "by one"."""
    known = known_layers(net, x)
    layers = {path: f"{path or 'the network'} ({type(module).__name__})" for path, module in _owned(net).items()}
    names = _left_over(net, known)
    rest = [layer for path, layer in layers.items() if path not in known]
    y = torch.zeros(len(x[:2]), dtype=torch.int64)
    way = "torch.func" if not names or _vectorises(net, names, x[:2], y, _first_logit) else "by one"
    found = {"exact": [layer for path, layer in layers.items() if path in known], way: rest}
    return {way: layers for way, layers in found.items() if layers}


def _first_logit(logits: Tensor, _: Tensor) -> list[Tensor]:
    return [logits[:, 0].sum()]


@contextmanager
def listening(net: nn.Module, known: set[str]) -> Iterator[list[Layer]]:
    """Within it a forward pass records every known layer, in evaluation mode.

    The parameters are frozen meanwhile and the first outputs become the leaves of the graph, so that no backward pass
    spends a product on the gradient of a weight.
    """
    layers: list[Layer] = []
    handles, frozen, in_place = [], [p for _, p in _trained(net)], not _is_ours(net)

    def listen(names: tuple[str, str], module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        output = output if output.requires_grad else output.detach().requires_grad_()
        seen = inputs[0].detach()
        layers.append(Layer(module, names, seen.clone() if in_place else seen, output))
        return output.clone() if in_place else output  # what comes next may write over it

    for path in known:
        weight, bias = (f"{path}.{part}".lstrip(".") for part in ("weight", "bias"))
        handles.append(net.get_submodule(path).register_forward_hook(partial(listen, (weight, bias))))
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


@dataclass(frozen=True)
class Followed:
    """What a training pass showed of every layer: its names, its inputs, the gradient at its output."""

    seen: list[tuple[nn.Module, tuple[str, str], Tensor, Tensor]]

    @torch.no_grad()
    def fisher(self) -> Diagonal:
        """`fisher_empirical` of the rows that passed, whose mean loss was followed.

        With a mean over n rows the gradient at row i is 1/n of that of its own loss.
        """
        total = Diagonal()
        for module, names, a, g in self.seen:
            squares = _SQUARES[type(module)](module, a, g * math.sqrt(len(a)))
            total |= dict(zip(names, squares, strict=True))
        return total


def can_follow(net: nn.Module) -> bool:
    """Whether a training pass shows all that the Fisher takes: layers known, all of them learn, none is another
    function in training than in evaluation."""
    moody = (Dropout, nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return (
        _is_ours(net)
        and all(type(module) in _SQUARES for module in _owned(net).values())
        and all(p.requires_grad for p in net.parameters())
        and not any(isinstance(module, moody) for module in net.modules())
    )


@contextmanager
def following(net: nn.Module) -> Iterator[Followed]:
    """Within it one training pass of a mean loss is followed, forward and backward, at the price of a few references.

    For networks that `can_follow`.
    """
    seen: list[tuple[nn.Module, tuple[str, str], Tensor, Tensor]] = []

    def listen(names: tuple[str, str], module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        output.register_hook(lambda g: seen.append((module, names, inputs[0].detach(), g)))

    handles = [
        module.register_forward_hook(partial(listen, (f"{path}.weight", f"{path}.bias")))
        for path, module in _owned(net).items()
    ]
    try:
        yield Followed(seen)
    finally:
        for handle in handles:
            handle.remove()


Values = Callable[[Tensor, Tensor], list[Tensor]]


def _mean_squares(net: nn.Module, x: Tensor, y: Tensor, rows: int | None, values: Values) -> Diagonal:
    """Mean over samples of the squared gradients of what `values` makes of the logits and labels of some of them."""
    total, rows = Diagonal(), rows or len(x)
    known = known_layers(net, x)
    rest = _left_over(net, known)
    if known:
        with listening(net, known) as layers:
            for x_part, y_part in zip(x.split(rows), y.split(rows), strict=True):
                layers.clear()
                _add_squares(total, layers, values(net(x_part), y_part))
    if rest:
        with evaluating([net]):
            _add_per_sample(total, net, rest, x, y, values)
    torch._foreach_div_(list(total.values()), len(x))
    return {name: total[name] if name in total else torch.zeros_like(p) for name, p in _trained(net)}


def _add(total: Diagonal, name: str, squares: Tensor) -> None:
    """Add to what is there, without a sum where nothing is."""
    total[name] = total[name].add_(squares) if name in total else squares


def _left_over(net: nn.Module, known: set[str]) -> list[str]:
    """The parameters that train and belong to no known layer."""
    covered = {f"{path}.{part}".lstrip(".") for path in known for part in ("weight", "bias")}
    return [name for name, _ in _trained(net) if name not in covered]


def _vectorises(net: nn.Module, names: list[str], x: Tensor, y: Tensor, values: Values) -> bool:
    """Whether `torch.func` can take the gradients of several samples of this network at once."""
    try:
        with evaluating([net]):
            _gradients(net, names, x, y, values, 0)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    return True


def _gradients(net: nn.Module, names: list[str], x: Tensor, y: Tensor, values: Values, i: int) -> dict[str, Tensor]:
    """Of each sample, the gradient of the `i`-th of its values."""
    here = dict(net.named_parameters())

    def value(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        logits: Tensor = functional_call(net, parameters, (row[None],))
        return values(logits, label[None])[i]

    at = {name: here[name].detach() for name in names}
    found: dict[str, Tensor] = vmap(grad(value), in_dims=(None, 0, 0))(at, x, y)
    return found


def _add_per_sample(total: Diagonal, net: nn.Module, names: list[str], x: Tensor, y: Tensor, values: Values) -> None:
    """Add to `total` the squared gradients of the parameters `names`, taken sample by sample."""
    here = dict(net.named_parameters())
    rows = max(1, PATCH_NUMBERS // sum(here[name].numel() for name in names))
    with torch.no_grad():
        count = len(values(net(x[:1]), y[:1]))
    if _vectorises(net, names, x[:2], y[:2], values):
        for x_part, y_part in zip(x.split(rows), y.split(rows), strict=True):
            for i in range(count):
                for name, each in _gradients(net, names, x_part, y_part, values, i).items():
                    _add(total, name, each.square_().sum(0))
        return
    for x_one, y_one in zip(x.split(1), y.split(1), strict=True):
        found = values(net(x_one), y_one)
        for i, value in enumerate(found):
            each_one = torch.autograd.grad(
                value, [here[name] for name in names], allow_unused=True, retain_graph=i < len(found) - 1
            )
            for name, one in zip(names, each_one, strict=True):
                if one is not None:
                    _add(total, name, one.square())


def _add_squares(total: Diagonal, layers: list[Layer], values: list[Tensor]) -> None:
    """Add to `total` the sum over samples, and over `values`, of the squared gradient of every parameter."""
    for i, value in enumerate(values):
        outputs = [layer.output for layer in layers]
        gradients = torch.autograd.grad(value, outputs, allow_unused=True, retain_graph=i < len(values) - 1)
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is not None:
                found = _SQUARES[type(layer.module)](layer.module, layer.inputs, gradient)
                for name, squares in zip(layer.names, found, strict=True):
                    _add(total, name, squares)


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
_AXES: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv2d: 4, nn.BatchNorm2d: 4}  # of what they must be called with
