"""A device that is not there: `with far():` computes on the CPU and refuses what an accelerator would refuse.

Its tensors say that they are on the device "far" and hold one of the CPU inside. An operation on a far tensor and one
of the CPU is an error, as on a GPU, but for those that a GPU allows too: copies, indices from the CPU, and numbers of
no dimension. So are `.numpy()`, a draw of one device with a generator of the other, and float64, which MPS has not.
What is computed comes from the CPU, and from its generators: a run there gives the same bits as a run here.
"""

from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils import _pytree as tree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from vestige.core import rng

# Registered, it would count as an accelerator in every test: outside of `far` there is what this machine has.
_machine_has = torch.accelerator.is_available()
_setup_privateuseone_for_python_backend("far")
torch.accelerator.is_available = lambda: _machine_has
FAR = torch.device("far", 0)
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
_far_seeds = set()  # of generators that were made for it: a subclass does not survive the way through torch


class Far(torch.Tensor):
    """A tensor of the far device, and the one of the CPU that does its work."""

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=FAR, requires_grad=False, **layout)

    def __init__(self, inner):
        if inner.dtype == torch.float64:
            raise TypeError("float64 on the far device")
        self.inner = inner

    def __repr__(self):
        return f"Far({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return carried_out(operation, args, kwargs or {})


def carried_out(operation, args, kwargs):
    """What the operation gives, from the tensors inside; refused where devices are mixed."""
    flat, layout = tree.tree_flatten((args, kwargs))
    far = any(isinstance(x, Far) for x in flat)
    near = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, Far) and x.ndim]
    indices = args[1] if operation in INDEXED and isinstance(args[0], Far) else ()
    strangers = [x for x in near if not any(x is index for index in indices)]
    if far and strangers and operation not in MOVES:
        raise RuntimeError(f"{operation}: expected all tensors to be on the same device.")
    device = kwargs.get("device")
    out_far = far if device is None else torch.device(device).type == "far"
    for x in flat:
        if isinstance(x, torch.Generator) and (x.initial_seed() in _far_seeds) != out_far:
            raise RuntimeError(f"{operation}: expected a generator of the same device.")
    inner = [x.inner if isinstance(x, Far) else x for x in flat]
    args_inside, kwargs_inside = tree.tree_unflatten(inner, layout)
    out = operation(*args_inside, **kwargs_inside | ({} if device is None else {"device": torch.device("cpu")}))
    if not out_far:
        return out
    return return_and_correct_aliasing(operation, args, kwargs, tree.tree_map_only(torch.Tensor, Far, out))


_library = torch.library.Library("_", "IMPL")
_library.fallback(lambda operation, *args, **kwargs: carried_out(operation, args, kwargs), "PrivateUse1")


def _listed(values):
    return torch.tensor(values, device="cpu")


class _Context(DeviceContext):
    """What `torch.device` does as a context, and what torch does not let a backend in Python do: lists in and out."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.Tensor.tolist and isinstance(args[0], Far):
            return args[0].inner.tolist()
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = (args[0], tuple(Far(_listed(i)) if isinstance(i, list) else i for i in index), *args[2:])
        fresh = function is torch.tensor or (function is torch.as_tensor and not isinstance(args[0], torch.Tensor))
        if fresh and kwargs.get("device") is None:
            return Far(function(*args, **kwargs | {"device": "cpu"}))
        return super().__torch_function__(function, types, args, kwargs)


def _fork(seed, *names, device=None):
    """What `rng.fork` gives, with a generator of the CPU that is known to be the far device's."""
    if torch.device(device or torch.get_default_device()).type == "far":
        _far_seeds.add(rng.child_seed(seed, *names))
    return torch.Generator().manual_seed(rng.child_seed(seed, *names))


@contextmanager
def far():
    """Within it tensors and generators are made on the far device; gives the mock that is called to wait for it."""
    with (
        mock.patch.object(rng, "fork", _fork),
        mock.patch.object(torch.accelerator, "synchronize") as waited,
        mock.patch.object(torch.accelerator, "is_available", return_value=True),
        _Context(FAR),
    ):
        yield waited
