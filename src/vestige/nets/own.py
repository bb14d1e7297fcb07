"""A user's own network as a `Classifier`: its last linear layer is the head, all before it the body.

`own_net` works on a deep copy, in float32 and on the device that tensors are made on; the user's module is left alone.
What it looks at, on a few rows that are made up:
- the shape in which the network wants its rows: as the stream has them, with an axis of one channel, or flat;
- the head: the linear layer that is called last, or the one that is named. What it gives must be what the network
  gives, so that nothing may stand behind it, a softmax for instance: losses here take logits. A head that has another
  number of outputs than the stream is made anew, which the Record says;
- whether it draws in training, as dropout does. Then each pass follows from the seed and from how many passes came
  before, and the count is saved with the network: torch's global generator is left alone, and a training that was saved
  in its middle goes on with the same masks.

Two networks never share the id of a Record: it has the class and the source of every module that is not torch's, the
layers and their plain attributes, and a hash of the weights that it begins with.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vestige.core import rng
from vestige.core.checks import one_of, refuse
from vestige.core.errors import shortened
from vestige.nets.classifier import Classifier
from vestige.nets.training import evaluating

PROBE = (2, 3)  # rows of the two passes that show how a network works


class Shaped(nn.Module):
    """Rows in the shape that a network wants."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *other"]:
        """The same numbers."""
        return x.reshape(len(x), *self.shape)

    def extra_repr(self) -> str:
        """The shape of a row."""
        return str(self.shape)


class OwnNet(Classifier):
    """A user's network; `about` says what it is, for the id of a Record, and `notes` what was done to it."""

    rows_at_once: ClassVar[int] = 256
    plain_layers: ClassVar[bool] = False
    calls: Tensor

    def __init__(
        self, body: nn.Module, head: nn.Linear, about: dict[str, Any], notes: list[str], *, draws: bool, seed: int
    ) -> None:
        super().__init__(body, head)
        self.about, self.notes, self.draws, self.seed = about, notes, draws, seed
        self.normalises = any(isinstance(module, _BatchNorm) for module in body.modules())
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n k"]:
        """Logits."""
        if self.training and self.normalises and len(x) == 1:
            refuse(
                "batch_size", "protocol.run", "one that leaves no batch of one row, for the batch norm", "such a batch"
            )
        if not (self.training and self.draws):
            return super().forward(x)
        with rng.guard(self.seed, "forward", int(self.calls)):
            self.calls += 1
            return super().forward(x)


def own_net(
    module: nn.Module, input_shape: Sequence[int], n_outputs: int, *, head: str | None = None, seed: int = 0
) -> OwnNet:
    """`module` as a network of `n_outputs` logits over rows of `input_shape`; see the top of this file."""
    owner = f"the network {type(module).__name__}"
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    _require_one_input(module, owner)
    net, shape = _accepted(module, tuple(input_shape), owner, seed)
    x = _probe(PROBE[0], shape, seed)
    name = _head_name(net, x, head, owner)
    last = net.get_submodule(name)
    assert isinstance(last, nn.Linear), "looked for among linear layers"
    about, draws = described(net) | {"head": name or "itself"}, _draws(net, shape, seed)
    with evaluating([net]), torch.no_grad(), rng.guard(seed, "look"):
        before, logits = torch.get_rng_state(), net(x)
        if not torch.equal(before, torch.get_rng_state()):
            refuse("net", owner, "without chance in evaluation mode", "one that draws")
        body = _without(net, name)
        if not _ends_with(last, body, x, logits):
            must = f"one that ends with its head ('{name}', unless head=NAME says another) and gives its logits"
            refuse("net", owner, must, "other numbers behind it")
    notes = [f"the head is '{name or 'the network itself'}'"]
    if last.out_features != n_outputs:
        with rng.guard(seed, "head"):
            new = nn.Linear(last.in_features, n_outputs)
        notes.append(f"it was made anew: it had {last.out_features} outputs, the stream has {n_outputs}")
        last = new
    if not any(p.requires_grad for p in [*body.parameters(), *last.parameters()]):
        refuse("net", owner, "one with parameters that learn", "none")
    made = OwnNet(nn.Sequential(Shaped(shape), body), last, about, notes, draws=draws, seed=seed)
    return made.train()


def _require_one_input(module: nn.Module, owner: str) -> None:
    try:
        wanted = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return
    asked = [p.name for p in wanted if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(asked) > 1:
        refuse("net", owner, "one that takes one input, the rows; wrap it in a module that does", " and ".join(asked))


def _probe(rows: int, shape: Sequence[int], seed: int) -> Tensor:
    return torch.rand(rows, *shape, generator=rng.fork(seed, "probe"))


def _shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """How rows of `shape` may be handed over, in the order of what is likelier."""
    if len(shape) == 2:  # a grey image
        yield (1, *shape)
    yield shape
    if len(shape) > 1:
        yield (torch.Size(shape).numel(),)
    else:
        yield (1, *shape)


def _accepted(
    module: nn.Module, input_shape: tuple[int, ...], owner: str, seed: int
) -> tuple[nn.Module, tuple[int, ...]]:
    """A copy of the network, and the shape in which it takes rows and gives a row of numbers for each."""
    said = ""
    for shape in _shapes(input_shape):
        try:  # a copy for each shape, since a lazy layer takes its size from the first rows that it sees
            copied = copy.deepcopy(module).to(device=torch.get_default_device(), dtype=torch.float32)
        except Exception as error:  # whatever a user's class does in a copy
            refuse("net", owner, "one that can be copied", shortened(error, 120))
        try:
            with evaluating([copied]), torch.no_grad(), rng.guard(seed, "look"):
                found = [copied(_probe(rows, shape, seed)) for rows in PROBE]
        except Exception as error:  # whatever it says of rows of another shape
            said = said or f"{type(error).__name__}: {shortened(str(error).splitlines()[0] if str(error) else '', 120)}"
            continue
        if all(
            isinstance(out, Tensor) and out.ndim == 2 and len(out) == n for out, n in zip(found, PROBE, strict=True)
        ):
            return copied, shape
        gave = f"shape {tuple(found[0].shape)}" if isinstance(found[0], Tensor) else f"a {type(found[0]).__name__}"
        said = said or f"{gave} for {PROBE[0]} rows"
    refuse("net", owner, f"one that turns rows of shape {input_shape} into a row of logits each", said)


def _head_name(net: nn.Module, x: Tensor, head: str | None, owner: str) -> str:
    """The linear layer that is called last, or the one that is named; it must be called once."""
    calls: list[str] = []
    linear = {path: module for path, module in net.named_modules() if isinstance(module, nn.Linear)}
    if not linear:
        refuse("net", owner, "one with a linear layer to be its head", "none")
    if head is not None:
        one_of(head, linear, "head", owner)

    def note(path: str) -> Callable[..., None]:
        return lambda *_: calls.append(path)

    handles = [module.register_forward_hook(note(path)) for path, module in linear.items()]
    try:
        with evaluating([net]), torch.no_grad():
            net(x)
    finally:
        for handle in handles:
            handle.remove()
    name = head if head is not None else calls[-1] if calls else ""
    if calls.count(name) != 1:
        refuse("head", owner, "a layer that is called once", f"'{name}', which is called {calls.count(name)} times")
    return name


def _without(net: nn.Module, name: str) -> nn.Module:
    """`net` itself, whose head does nothing from now on."""
    if not name:
        return nn.Identity()
    parent, _, leaf = name.rpartition(".")
    setattr(net.get_submodule(parent), leaf, nn.Identity())
    return net


def _ends_with(head: nn.Linear, body: nn.Module, x: Tensor, logits: Tensor) -> bool:
    """Whether what the head makes of the features is what the network gave."""
    try:
        features = body.eval()(x)
        return features.ndim == 2 and torch.allclose(head(features), logits)
    except Exception:  # it asks its head for what only a linear layer has
        return False


def _draws(net: nn.Module, shape: Sequence[int], seed: int) -> bool:
    """Whether a pass in training takes from torch's generator."""
    copied = copy.deepcopy(net).train()
    with rng.guard(seed, "look"), torch.no_grad():
        before = torch.get_rng_state()
        copied(_probe(PROBE[0], shape, seed))
        return not torch.equal(before, torch.get_rng_state())


def described(module: nn.Module) -> dict[str, Any]:
    """What tells a network from every other, as plain JSON: its class, its layers, their code, and its weights."""
    code, layers, weights = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    kinds = {type(part) for part in module.modules()}
    for kind in sorted(kinds, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"):
        code.update(f"{kind.__module__}.{kind.__qualname__}\n{_code_of(kind)}".encode())
    for path, part in module.named_modules():
        plain = {key: _plainly(value) for key, value in vars(part).items() if not key.startswith("_")}
        layers.update(f"{path} {type(part).__qualname__} {part.extra_repr()} {sorted(plain.items())}\n".encode())
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            weights.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            weights.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    learns = [name for name, p in module.named_parameters() if p.requires_grad]
    layers.update(" ".join(learns).encode())
    found = {"layers": layers, "code": code, "weights": weights}
    kind = type(module)
    return {"class": f"{kind.__module__}.{kind.__qualname__}"} | {k: v.hexdigest()[:16] for k, v in found.items()}


def _code_of(kind: type) -> str:
    """The source of a class that is not torch's; of one without source, its compiled methods."""
    if kind.__module__.partition(".")[0] == "torch":
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        methods = {k: getattr(v, "__code__", None) for k, v in vars(kind).items()}
        return str([(k, c.co_code.hex(), c.co_names, _plainly(c.co_consts)) for k, c in methods.items() if c])


def _plainly(value: object) -> str:
    """An attribute as text that is the same in every process: numbers, words, functions by their code."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return str([_plainly(v) for v in value])
    if isinstance(value, dict):
        return str([(_plainly(k), _plainly(v)) for k, v in value.items()])
    code = getattr(value, "__code__", None) or (value if inspect.iscode(value) else None)
    if code is not None:
        return f"{code.co_name} {code.co_code.hex()} {code.co_names} {_plainly(code.co_consts)}"
    return f"{type(value).__qualname__} {getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
