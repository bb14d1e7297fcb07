"""The contract of every learner, and the few lines that all of them share.

A method writes its own short `observe`; there are no hooks. State that must survive a save is a flat dict of tensors
whose names say what they are: `net.` the model, `memory.` kept samples, `optimizer.` its moments, anything else the
method's own.

The network, its first weights and whether its head is whole from the start or grows with the tasks are fields of every
configuration. A head that grew gives the same training as a whole one of which only the seen outputs train: the new
rows are those that the whole network would have begun with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.outputs import Outputs as Outputs
from vestige.continual.memory import Memory
from vestige.continual.record import identity
from vestige.core.checks import one_of
from vestige.core.errors import StoreError
from vestige.data.task import Task, TaskInfo
from vestige.nets import INITS, NETS, Classifier, build_net
from vestige.store import load_into

HEADS = ("fixed", "grown")
OPTIMIZERS = ("adam", "sgd")


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

    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    reset_optimizer: bool = True
    net: str = "mlp"
    init: str = "torch"
    head: str = "fixed"
    optimizer: str = "adam"


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
    # Rows of the task under way that `begin_task` keeps out of training, such as a coreset; None: all are trained on.
    held_back: Int64[Tensor, " m"] | None = None

    net: Classifier
    config: TrainConfig

    def __init__(self, spec: Spec, config: TrainConfig | None = None, *, seed: int = 0) -> None:
        self.spec, self.config, self.seed = spec, config or self.default_config(), seed
        for name, options in (("net", NETS), ("init", INITS), ("head", HEADS), ("optimizer", OPTIMIZERS)):
            one_of(getattr(self.config, name), options, name, type(self).__name__)
        self.memory: Memory | None = None
        self.optimizer: torch.optim.Optimizer | None = None

    @classmethod
    def default_config(cls) -> TrainConfig:
        """The configuration of a learner that was given none."""
        return TrainConfig()

    @abstractmethod
    def begin_task(self, task: Task) -> None:
        """A task begins; its data may be looked at while it lasts."""

    @abstractmethod
    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """Learn from one batch."""

    @abstractmethod
    def end_task(self, task: Task) -> None:
        """The task ends; this is the last look at its data."""

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "n *shape"], task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Scores over all outputs, higher is likelier; the protocol decides which outputs compete."""
        training = self.net.training
        self.net.eval()
        try:
            return self.net(x)
        finally:
            self.net.train(training)

    def whole_net(self) -> Classifier:
        """The network as it begins, with every output."""
        c, spec = self.config, self.spec
        return build_net(c.net, spec.input_shape, spec.n_outputs, hidden=c.hidden, init=c.init, seed=self.seed)

    def fresh_net(self) -> Classifier:
        """The network as it begins: with no output yet where the head grows."""
        net = self.whole_net()
        if self.config.head == "grown":
            net.hold((), net.head.weight[:0], net.head.bias[:0])
        return net

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
            before, self.optimizer = self.optimizer.state_dict()["state"], self.fresh_optimizer()
            shapes = [p.shape for p in self.net.parameters()]
            state = {i: {k: padded(v, shapes[i]) for k, v in moments.items()} for i, moments in before.items()}
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def fresh_optimizer(self) -> torch.optim.Optimizer:
        """Over the whole network; fused, which does the same sums in one pass over the weights."""
        kind = torch.optim.SGD if self.config.optimizer == "sgd" else torch.optim.Adam
        return kind(self.net.parameters(), lr=self.config.lr, fused=True)

    def step(self, loss: Float[Tensor, ""]) -> Info:
        """One optimiser step down `loss`."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return Info(loss.detach())

    def describe(self) -> dict[str, Any]:
        """The configuration as plain JSON, for the Record."""
        return {"method": type(self).__name__} | asdict(self.config) | {"seed": self.seed}

    def identity(self) -> dict[str, Any]:
        """What the Record's id has of it besides its configuration: class, structure of the network, version."""
        return identity(type(self), self.net.named_parameters())

    def method_state(self) -> dict[str, Tensor]:
        """What the method itself must remember (importances, anchors, generator states); none by default."""
        return {}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of `method_state`; the base takes only none."""
        load_into({}, state, type(self).__name__)

    def state_dict(self) -> dict[str, Tensor]:
        """All that is needed to go on, as flat tensors."""
        state = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        if self.memory is not None:
            state |= {f"memory.{k}": v for k, v in self.memory.state_dict().items()}
        if self.optimizer is not None:
            for i, moments in self.optimizer.state_dict()["state"].items():
                state |= {f"optimizer.{i}.{k}": torch.as_tensor(v) for k, v in moments.items()}
        # A copy, so that training on does not change what was saved.
        return {k: v.detach().clone() for k, v in (state | self.method_state()).items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from `state`; a name, shape or type that does not fit is named."""
        owner, device = type(self).__name__, torch.get_default_device()
        parts: dict[str, dict[str, Tensor]] = {"net": {}, "memory": {}, "optimizer": {}, "": {}}
        for key, value in state.items():
            room, _, rest = key.partition(".")
            # What is held in float64 is held on the CPU, for not every device has it.
            moved = value.cpu() if value.dtype == torch.float64 else value.to(device)
            parts[room if room in parts else ""][rest if room in parts else key] = moved
        self._check_net(parts["net"], owner)
        if parts["memory"] and self.memory is None:
            raise StoreError(f"The stored {owner} has a memory; this one has none.")
        if self.config.head == "grown":
            held = parts["net"]
            self.net.hold(held["outputs"].tolist(), held["head.weight"], held["head.bias"])
        self.load_method_state(parts[""])
        self.net.load_state_dict(parts["net"])
        if self.memory is not None:
            self.memory.load_state_dict(parts["memory"])
        if parts["optimizer"] or self.config.optimizer == "sgd":  # the latter holds nothing that could be stored
            self.optimizer = self.fresh_optimizer()
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in parts["optimizer"].items():
                i, _, name = key.partition(".")
                moments.setdefault(int(i), {})[name] = value.clone()
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

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
        """What is held, in bytes: the model, the optimiser, the memory, and the method's own state."""
        held = dict.fromkeys(("model", "optimizer", "memory", "method"), 0)
        rooms = {"net": "model", "optimizer": "optimizer", "memory": "memory"}
        for key, value in self.state_dict().items():
            held[rooms.get(key.partition(".")[0], "method")] += value.numel() * value.element_size()
        return held
