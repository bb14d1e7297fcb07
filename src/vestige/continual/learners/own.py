"""Learners that users bring: any object with `observe(x, y)` and `predict(x)`, or a bare network.

The whole contract, of which only the first two are asked for:

    observe(x, y)      learn from one batch: inputs (n, ...), labels (n,); what it returns, if anything, is the loss
    predict(x)         scores (n, outputs) for all outputs of the stream, higher is likelier
    begin_task(task)   a task begins; `task.info.outputs` are its outputs. Told only where the stream tells borders
    end_task(task)     its data goes away after this; what is to be kept must be copied
    describe()         its settings as plain JSON. Without it: its attributes that are numbers, words or truth values
    bytes()            {name: bytes} that it holds. Without it: the tensors that are its attributes

`probabilities = True` says that the softmax of the scores is how sure it is; `uses_task = True` that `predict(x, task)`
wants the task where the stream gives it at test time; `version`, an integer, is a part of the Record's id.

The object itself is trained. A bare network is not: `vanilla` trains a copy of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.continual.learners.base import Info, Learner, Spec
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.record import identity
from vestige.core.checks import as_tensor, refuse
from vestige.core.errors import InputError
from vestige.data.stream import Inputs, Labels, Stream, Task, TaskInfo
from vestige.nets import own_net
from vestige.nets.own import described
from vestige.store import content_id

NEEDED = ("observe", "predict")


def as_learner(brought: Any, stream: Stream, seed: int, owner: str) -> Learner:  # noqa: ANN401 - whatever a user has
    """`brought` as a learner for `stream`; what has not the methods of one is refused by the first that is missing."""
    if isinstance(brought, Learner):
        return brought
    spec = Spec(stream.input_shape, stream.n_outputs)
    missing = [name for name in NEEDED if not callable(getattr(brought, name, None))]
    if isinstance(brought, nn.Module) and missing:
        return OwnNetwork(spec, seed=seed, net=own_net(brought, *vars(spec).values(), seed=seed))
    if isinstance(brought, type):
        refuse("learner", owner, "an object", f"the class {brought.__name__}; call it")
    if missing:
        must = "a learner of methods.build, an nn.Module, or an object with the methods observe(x, y) and predict(x)"
        refuse("learner", owner, must, f"a {type(brought).__name__} without '{missing[0]}'")
    return OwnLearner(brought, spec, seed=seed)


class OwnNetwork(Vanilla):
    """`vanilla` for a network that came without a method."""

    def describe(self) -> dict[str, Any]:
        """As `vanilla`, which it is."""
        return super().describe() | {"method": "Vanilla"}

    def identity(self) -> dict[str, Any]:
        """That of `vanilla`."""
        return identity(Vanilla, self.net.named_parameters())

    def notes(self) -> dict[str, Any]:
        """And that nobody chose the method."""
        return super().notes() | {"learner": "a bare network was given: it was trained as vanilla is"}


class OwnLearner(Learner):
    """Passes on to an object that learns."""

    resumable = False  # nobody knows its state
    probabilities = False

    def __init__(self, learns: Any, spec: Spec, *, seed: int) -> None:  # noqa: ANN401
        self.learns, self.spec, self.seed, self.memory, self.brought = learns, spec, seed, None, None
        self.owner = type(learns).__name__
        self.probabilities = bool(getattr(learns, "probabilities", False))  # type: ignore[misc]
        self.uses_task = bool(getattr(learns, "uses_task", False))  # type: ignore[misc]
        self.settings = self._settings()
        self.own_identity = identity(type(learns), self._parameters())

    def anew(self) -> OwnLearner:
        """A copy of it as it is now."""
        return OwnLearner(copy.deepcopy(self.learns), self.spec, seed=self.seed)

    def begin_task(self, task: Task) -> None:
        """Passed on, where it is wanted."""
        if callable(begin := getattr(self.learns, "begin_task", None)):
            begin(task)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """Passed on; a loss that is not told counts as zero."""
        told = self.learns.observe(x, y)
        loss = getattr(told, "loss", told)
        return Info(torch.as_tensor(0.0 if loss is None else loss).detach().float().mean())

    def end_task(self, task: Task) -> None:
        """Passed on, where it is wanted."""
        if callable(end := getattr(self.learns, "end_task", None)):
            end(task)

    @torch.no_grad()
    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Its scores."""
        told = self.learns.predict(x, task) if self.uses_task else self.learns.predict(x)
        scores = as_tensor(told, "predict(x)", self.owner).to(torch.get_default_device())
        if scores.shape != (len(x), self.spec.n_outputs):
            must = f"scores of shape ({len(x)}, {self.spec.n_outputs}), one for each output"
            refuse("predict(x)", self.owner, must, f"shape {tuple(scores.shape)}")
        if bool(scores.isnan().any()):
            refuse("predict(x)", self.owner, "numbers", "NaN")
        return scores.float()

    def describe(self) -> dict[str, Any]:
        """As it was before it learnt anything."""
        return self.settings

    def identity(self) -> dict[str, Any]:
        """That of the object's class and networks."""
        return self.own_identity

    def notes(self) -> dict[str, Any]:
        """Whose it is."""
        return {"learner": f"an object of the user's class {self.own_identity['learner']}"}

    def bytes(self) -> dict[str, int]:
        """What it says, or the tensors that are its attributes and its networks."""
        if callable(said := getattr(self.learns, "bytes", None)):
            return {str(name): int(size) for name, size in said().items()}
        held = {"model": sum(t.numel() * t.element_size() for net in self._nets() for t in net.state_dict().values())}
        loose = (
            [v for v in vars(self.learns).values() if isinstance(v, Tensor)] if hasattr(self.learns, "__dict__") else []
        )
        return held | {"method": sum(t.numel() * t.element_size() for t in loose)}

    def _nets(self) -> Iterator[nn.Module]:
        if isinstance(self.learns, nn.Module):
            yield self.learns
        else:
            yield from (v for v in getattr(self.learns, "__dict__", {}).values() if isinstance(v, nn.Module))

    def _parameters(self) -> Iterator[tuple[str, Tensor]]:
        for i, net in enumerate(self._nets()):
            yield from ((f"{i}.{name}", p) for name, p in net.named_parameters())

    def _settings(self) -> dict[str, Any]:
        """Plain JSON: what it says, or its plain attributes; and what its networks are."""
        if callable(said := getattr(self.learns, "describe", None)):
            found = dict(said())
            try:
                content_id(found)
            except (TypeError, ValueError):
                raise InputError(
                    f"The 'describe()' of {self.owner} must be plain JSON. Got other values instead."
                ) from None
        else:
            own = getattr(self.learns, "__dict__", {})
            found = {k: v for k, v in own.items() if k[0] != "_" and isinstance(v, bool | int | float | str | None)}
            found = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}
        nets = [described(net) for net in self._nets()]
        return {"method": self.owner} | found | ({"nets": nets} if nets else {})
