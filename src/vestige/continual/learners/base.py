"""The contract of every learner, and the few lines that all of them share.

A method writes its own short `observe`, and `set_up` if it begins with more than a network; there are no other hooks.
What it must remember is declared: attributes that the class annotates and whose names end in `_` (tensors, dicts of
them, numbers, random generators) are saved and restored here; dicts begin empty. `state_dict` is a flat dict of tensors
whose names say what they are: `net.` the model, `memory.` kept samples, `optimizer.` its moments, anything else the
method's own.

The network, its first weights and whether its head is whole from the start or grows with the tasks are fields of every
configuration; a network of the user's own (`nets.own_net`) takes the place of the first two. A head that grew gives the
same training as a whole one of which only the seen outputs train: the new rows are those that the whole network would
have begun with.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, get_origin

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from vestige.continual.memory import Memory, testing
from vestige.continual.record import identity
from vestige.core import StoreError
from vestige.core.checks import annotations_of, declared, option, refuse
from vestige.data.stream import Inputs, Labels, Task, TaskInfo
from vestige.nets import INITS, NETS, Classifier, OwnNet, build_net, truncated_normal
from vestige.store import load_into, restore_tensors, to_tensors
from vestige.store.codec import stored_names

PARTS = {"net": "model", "optimizer": "optimizer", "memory": "memory"}  # of a state dict, and what `bytes` calls them


class Info(NamedTuple):
    """What happened in one `observe`."""

    loss: Tensor


@dataclass(frozen=True)
class Spec:
    """What a learner must know of a stream to build its network, and no more."""

    input_shape: tuple[int, ...]
    n_outputs: int


@dataclass(frozen=True)
class TrainConfig:
    """The network and how it is trained; methods add their own fields.

    `net` is one of `vestige.nets.NETS`, `hidden` the widths of the "mlp"; `init` says how the weights begin; `head`
    whether all outputs are there from the start or each task brings its own ("grown"). `optimizer` is "adam" or "sgd",
    the latter without momentum.
    """

    hidden: tuple[int, ...] = option((256, 256), low=1)
    learning_rate: float = option(1e-3, above=0)
    reset_optimizer: bool = option(True)
    net: str = option("mlp", among=NETS)
    init: str = option("torch", among=INITS)
    head: str = option("fixed", among=("fixed", "grown"))
    optimizer: str = option("adam", among=("adam", "sgd"))


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs that compete in a loss.

    Samples of several tasks may meet in one loss. Where the stream trains over "seen" or "all" outputs they all compete
    there; where it trains over "current" ones, a sample competes among the outputs of the task that its class last came
    in. Row c of `by_class` says among which outputs a sample of class c competes; None: `outputs` for all of them.
    """

    outputs: tuple[int, ...]
    n_outputs: int
    by_class: Bool[Tensor, "k k"] | None = None

    @classmethod
    def every(cls, n_outputs: int, *, by_class: bool = False) -> Outputs:
        """All outputs, before the first task."""
        table = torch.ones(n_outputs, n_outputs, dtype=torch.bool) if by_class else None
        return cls(tuple(range(n_outputs)), n_outputs, table)

    def after(self, info: TaskInfo) -> Outputs:
        """Those that compete once the task of `info` has begun."""
        if self.by_class is None:
            return Outputs(info.train_outputs, self.n_outputs)
        table, row = self.by_class.clone(), torch.zeros(self.n_outputs, dtype=torch.bool)
        row[list(info.train_outputs)] = True
        table[list(info.outputs) if info.train_logits == "current" else slice(None)] = row
        return Outputs(info.train_outputs, self.n_outputs, table)

    @cached_property
    def index(self) -> Int64[Tensor, " c"]:
        """The outputs as a tensor."""
        return torch.tensor(self.outputs)

    @cached_property
    def place(self) -> Int64[Tensor, " k"]:
        """The place of each output among those that compete, -1 where it does not."""
        place = torch.full((self.n_outputs,), -1, dtype=torch.int64)
        place[self.index] = torch.arange(len(self.outputs))
        return place

    def competing(self, logits: Float[Tensor, "n k"], y: Labels) -> tuple[Float[Tensor, "n c"], Labels]:
        """The logits that compete, and the place of each label among them; one outside is an error in a loss."""
        if self.by_class is not None:
            return logits.masked_fill(~self.by_class[y], -torch.inf), y
        if self.outputs == tuple(range(self.n_outputs)):
            return logits, y
        return logits[:, self.index], self.place[y]

    def losses(self, logits: Float[Tensor, "n k"], y: Labels) -> Float[Tensor, " n"]:
        """The cross-entropy of each sample."""
        return functional.cross_entropy(*self.competing(logits, y), reduction="none")

    def loss(
        self, logits: Float[Tensor, "n k"], y: Labels, weights: Float[Tensor, " n"] | None = None
    ) -> Float[Tensor, ""]:
        """Mean over samples of weight times cross-entropy. The sum of the weights is not divided by."""
        if weights is None:
            return functional.cross_entropy(*self.competing(logits, y))
        return (weights * self.losses(logits, y)).mean()


def padded(value: Tensor, shape: Sequence[int]) -> Tensor:
    """`value` with rows of zeros behind it, as many as `shape` has more; a scalar as it is."""
    if value.ndim == 0 or len(value) == shape[0]:
        return value
    return torch.cat([value, value.new_zeros(shape[0] - len(value), *value.shape[1:])])


class Learner(ABC):
    """Learns task after task; keeps of past data only what its `memory` holds."""

    # Raised when the results of the method change: a part of the ids of its Records.
    version: ClassVar[int] = 1
    # May see what the stream does not tell (borders, past data): a reference, never a contestant.
    oracle: ClassVar[bool] = False
    # Whether `predict` makes use of the task where the stream gives it at test time.
    uses_task: ClassVar[bool] = False
    # Whether the softmax of `predict`'s scores is how sure the learner is, rather than a mere order.
    probabilities: ClassVar[bool] = True
    # Whether `state_dict` is all that the learner is, so that a run may go on from it in another process.
    resumable: ClassVar[bool] = True
    # Why it cannot learn with a user's own network; empty where it can.
    own_layers: ClassVar[str] = ""

    net: Classifier
    memory: Memory | None
    config: TrainConfig  # a child that has settings of its own annotates it with their class
    outputs_: Outputs
    # Rows of the task under way that `begin_task` keeps out of training, such as a coreset; None: all are trained on.
    held_back_: Int64[Tensor, " m"] | None = None

    def __init__(
        self, spec: Spec, config: TrainConfig | None = None, *, seed: int = 0, net: OwnNet | None = None
    ) -> None:
        default, owner = self.default_config(), type(self).__name__
        if config is not None and not isinstance(config, type(default)):
            refuse("config", owner, f"a {type(default).__name__}", f"a {type(config).__name__}")
        self.spec, self.config, self.seed, self.brought = spec, config or default, seed, net
        declared(self.config, owner)
        if net is not None:
            self._check_brought(net, owner)
        for name, part in vars(self.config).items():
            if is_dataclass(part):
                declared(part, f"the {name} of {owner}")
        for name, hint in stored_names(type(self)).items():
            if get_origin(hint) is dict:
                setattr(self, name, {})
        self.outputs_ = Outputs.every(spec.n_outputs)
        self.optimizer: torch.optim.Optimizer | None = None
        self.net = self.whole_net()
        if self.config.head == "grown":
            self.net.hold((), self.net.head.weight[:0], self.net.head.bias[:0])
        self.memory = self.fresh_memory()
        self.set_up()

    @classmethod
    def default_config(cls) -> TrainConfig:
        """The configuration of a learner that was given none: the defaults of the class that annotates `config`."""
        made: TrainConfig = annotations_of(cls)["config"]()
        return made

    def begin_task(self, task: Task) -> None:
        """A task begins, whose data may be looked at while it lasts: its outputs compete, its optimiser is fresh."""
        self.outputs_ = self.outputs_.after(task.info)
        self.grow_head(task.info)
        if self.optimizer is None or self.config.reset_optimizer:
            self.optimizer = self.fresh_optimizer()

    @abstractmethod
    def observe(self, x: Inputs, y: Labels) -> Info:
        """Learn from one batch."""

    def end_task(self, task: Task) -> None:  # noqa: B027 - not every method has something to do
        """The task ends; this is the last look at its data. Nothing is kept, unless a method does."""

    @torch.no_grad()
    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Scores over all outputs, higher is likelier; the protocol decides which outputs compete."""
        with testing(self.net):
            return self.net(x)

    @torch.no_grad()
    def answer_of(self, weights: dict[str, Tensor], x: Inputs) -> Float[Tensor, "n k"]:
        """What the network said when its state was `weights`, as in testing."""
        with testing(self.net):
            logits: Tensor = functional_call(self.net, weights, (x,))
        return logits

    def anew(self) -> Self:
        """One like it, as it was before it learnt anything."""
        return type(self)(self.spec, self.config, seed=self.seed, **({"net": self.brought} if self.brought else {}))

    def _check_brought(self, net: OwnNet, owner: str) -> None:
        """Refuse a network of the user's that the method cannot train as it is asked to."""
        if self.own_layers:
            refuse("net", owner, f"one of {', '.join(NETS)}: {self.own_layers}", f"the user's own {net.about['class']}")
        if net.n_outputs != self.spec.n_outputs:
            refuse("net", owner, f"of {self.spec.n_outputs} outputs, as the stream has", net.n_outputs)
        alone = type(net.head) is torch.nn.Linear and net.head.bias is not None
        shared = {id(p) for p in net.head.parameters()} & {id(p) for p in net.body.parameters()}
        if self.config.head == "grown" and (not alone or shared):
            refuse("head", owner, "'fixed' for a head without a bias or with weights that are shared", "'grown'")

    def whole_net(self) -> Classifier:
        """The network as it begins, with every output."""
        c, spec = self.config, self.spec
        if self.brought is not None:
            net = copy.deepcopy(self.brought)
            if c.init == "truncated_normal":
                truncated_normal(net, seed=self.seed)
            return net
        return build_net(c.net, spec.input_shape, spec.n_outputs, hidden=c.hidden, init=c.init, seed=self.seed)

    def fresh_memory(self) -> Memory | None:
        """What it may keep of past data; None: nothing."""
        return None

    def set_up(self) -> None:  # noqa: B027 - not every method has something to do
        """What a method begins with besides, and asks of its configuration as a whole: the end of the constructor."""

    def grow_head(self, info: TaskInfo) -> None:
        """Outputs that the task brings get their rows; the optimiser, if it goes on, moments of zero for them."""
        if self.config.head == "fixed":
            return
        assert self.net.outputs is not None, "a head that grows knows its outputs"
        held = set(self.net.outputs.tolist())
        new = sorted({*info.outputs, *info.train_outputs} - held)
        if new:
            self.net.grow(new, self.whole_net())
        if new and self.optimizer is not None:
            before, shapes = self.optimizer.state_dict()["state"], [p.shape for p in self.net.parameters()]
            state = {i: {k: padded(v, shapes[i]) for k, v in moments.items()} for i, moments in before.items()}
            self.optimizer = self.fresh_optimizer(state)

    def fresh_optimizer(self, moments: Mapping[int, dict[str, Tensor]] | None = None) -> torch.optim.Optimizer:
        """Over the whole network, with these moments; fused, which does the same sums in one pass over the weights."""
        kind = torch.optim.SGD if self.config.optimizer == "sgd" else torch.optim.Adam
        made = kind(self.net.parameters(), lr=self.config.learning_rate, fused=True)
        if moments is not None:
            made.load_state_dict({"state": moments, "param_groups": made.state_dict()["param_groups"]})
        return made

    def backward(self, loss: Float[Tensor, ""]) -> Info:
        """The gradients of `loss` alone."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                p.grad = None  # what `zero_grad` does, without its bookkeeping
        loss.backward()
        return Info(loss.detach())

    def step(self, loss: Float[Tensor, ""]) -> Info:
        """One optimiser step down `loss`."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        info = self.backward(loss)
        self.optimizer.step()
        return info

    def describe(self) -> dict[str, Any]:
        """The configuration as plain JSON, for the Record."""
        found = {"method": type(self).__name__} | asdict(self.config) | {"seed": self.seed}
        if self.brought is not None:
            del found["hidden"]
            found["net"] = self.brought.about
        return found

    def notes(self) -> dict[str, Any]:
        """What the Record says of the learner besides what determines it, as plain JSON."""
        return {} if self.brought is None else {"net": "; ".join(self.brought.notes)}

    def identity(self) -> dict[str, Any]:
        """What the Record's id has of it besides its configuration: class, structure of the network, version."""
        return identity(type(self), self.net.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """All that is needed to go on, as flat tensors."""
        # A copy, so that training on does not change what was saved.
        return {k: v.detach().clone() for k, v in self._held().items()}

    def _held(self) -> dict[str, Tensor]:
        """The state itself."""
        state = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        if self.memory is not None:
            state |= {f"memory.{k}": v for k, v in self.memory.state_dict().items()}
        if self.optimizer is not None:
            for i, moments in self.optimizer.state_dict()["state"].items():
                state |= {f"optimizer.{i}.{k}": torch.as_tensor(v) for k, v in moments.items()}
        return state | to_tensors(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from `state`; a name, shape or type that does not fit is named."""
        owner, device = type(self).__name__, torch.get_default_device()
        parts: dict[str, dict[str, Tensor]] = {"net": {}, "memory": {}, "optimizer": {}, "": {}}
        for key, value in state.items():
            part, _, rest = key.partition(".")
            # What is held in float64 is held on the CPU, for not every device has it.
            moved = value.cpu() if value.dtype == torch.float64 else value.to(device)
            parts[part if part in PARTS else ""][rest if part in PARTS else key] = moved.clone()
        self._check_net(parts["net"], owner)
        if parts["memory"] and self.memory is None:
            raise StoreError(f"The stored {owner} has a memory; this one has none.")
        if self.config.head == "grown":
            held = parts["net"]
            self.net.hold(held["outputs"].tolist(), held["head.weight"], held["head.bias"])
        restore_tensors(self, parts[""])
        self.net.load_state_dict(parts["net"])
        if self.memory is not None:
            self.memory.load_state_dict(parts["memory"])
        if parts["optimizer"] or self.config.optimizer == "sgd":  # the latter holds nothing that could be stored
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in parts["optimizer"].items():
                i, _, name = key.partition(".")
                moments.setdefault(int(i), {})[name] = value
            self.optimizer = self.fresh_optimizer(moments)

    def _check_net(self, state: dict[str, Tensor], owner: str) -> None:
        """Refuse weights of another network before anything has changed."""
        if self.config.head == "fixed":
            load_into(self.net.state_dict(), state, owner)
            return
        outputs = state.get("outputs", torch.empty(0)).tolist()
        load_into(self.net.state_with(len(outputs)), state, owner)
        if len(set(outputs)) < len(outputs) or not set(outputs) <= set(range(self.spec.n_outputs)):
            raise StoreError(f"The stored {owner} answers for outputs {outputs}; there are {self.spec.n_outputs}.")

    def bytes(self) -> dict[str, int]:
        """What is held in tensors, in bytes: the model, the optimiser, the memory, and the method's own state."""
        held = dict.fromkeys((*PARTS.values(), "method"), 0)
        for key, value in self._held().items():
            if key not in ("json", "memory.json"):  # counters and names
                held[PARTS.get(key.partition(".")[0], "method")] += value.numel() * value.element_size()
        return held
