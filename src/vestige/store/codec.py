"""The one codec: dataclasses and fitted objects become JSON and tensors, and come back by their annotations.

What is stored of an object are its dataclass fields, and the attributes that `fit` learnt: those whose annotated name
ends in "_". Nested objects, lists, tuples, dicts and tensors follow. A file names classes only for the reader to check:
what is built is decided by the annotations, or by a name from the `classes` that the caller allows. Nothing in a file
is run or imported.

    fields, tensors = encode(thing)
    same = decode(Thing, fields, tensors)

`to_tensors`, `from_tensors` and `restore_tensors` do the same with tensors alone, the JSON being one of them, for what
is kept in a state dict. A network is stored by its weights and named by an annotation; who has networks that only
follow from what was learnt writes `_rebuild`, which is called when all else is back and makes them, so that they can
take their weights.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

from vestige.core import StoreError

T = TypeVar("T")
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
TENSOR, CLASS = "tensor", "class"
JSON = "json"  # the name of the tensor whose bytes are the JSON
# Annotations are read once a class.
_NAMES: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()


def stored_names(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    """The names that are stored of an object of `kind`, and their annotations."""
    if kind not in _NAMES:
        _NAMES[kind] = _stored_names(kind)
    return _NAMES[kind]


def _stored_names(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    hints = typing.get_type_hints(kind)
    made = {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init} if dataclasses.is_dataclass(kind) else {}
    constant = {name for name, hint in hints.items() if typing.get_origin(hint) is ClassVar}
    learnt = {name: hint for name, hint in hints.items() if name.endswith("_") and name not in constant}
    settable = {
        name: typing.get_type_hints(value.fget)["return"]
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if name.endswith("_") and isinstance(value, property) and value.fset is not None
    }
    return {**made, **{name: hint for name, hint in (learnt | settable).items() if not name.startswith("_")}}


def encode(value: object) -> tuple[Any, dict[str, Tensor]]:
    """`value` as plain JSON, in which {"tensor": key} stands for a tensor, and the tensors by key."""
    tensors: dict[str, Tensor] = {}
    whole: list[Any] = [None]
    todo: list[tuple[Any, Any, Any, str]] = [(whole, 0, value, "")]  # where it goes, what it is, and its path
    while todo:
        into, place, entry, path = todo.pop()
        into[place], inside = _plain(entry, path, tensors)
        at = f"{path}." if path else ""
        todo += [(into[place], key, inner, f"{at}{key}") for key, inner in reversed(inside)]
    return whole[0], tensors


def _plain(value: Any, path: str, tensors: dict[str, Tensor]) -> tuple[Any, list[tuple[Any, Any]]]:  # noqa: ANN401
    """A stored value, or the empty container of one and what is to be put in it, by key."""
    if value is None or isinstance(value, bool | int | str):
        return value, []
    if isinstance(value, float):
        return (value if math.isfinite(value) else str(value)), []
    if isinstance(value, torch.Generator):
        value = value.get_state()
    if isinstance(value, Tensor):
        tensors[path] = value.detach()
        return {TENSOR: path}, []
    if isinstance(value, Path):
        return str(value), []
    if isinstance(value, list | tuple | set | frozenset):
        entries = sorted(value) if isinstance(value, set | frozenset) else value
        return [None] * len(entries), list(enumerate(entries))
    if isinstance(value, Mapping):
        return {}, [(str(key), entry) for key, entry in value.items()]
    head = {CLASS: type(value).__name__}
    if isinstance(value, nn.Module):
        return head, list(value.state_dict().items())
    names = stored_names(type(value))
    if not names and not dataclasses.is_dataclass(value):
        raise TypeError(f"The codec has no way to store a {type(value).__name__} (at '{path}').")
    return head, [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def decode(
    kind: Any,  # noqa: ANN401 - a class or an annotation
    data: Any,  # noqa: ANN401 - plain JSON
    tensors: Mapping[str, Tensor] | None = None,
    *,
    classes: Mapping[str, type] | None = None,
) -> Any:  # noqa: ANN401 - what `kind` says
    """The inverse of `encode`; `classes` are those that may stand where the annotation names a base of theirs.

    A value that does not fit its annotation is refused with the key at which it stands.
    """
    return _Reader(tensors or {}, classes or {}).read(kind, data, "")


def to_tensors(value: object) -> dict[str, Tensor]:
    """`encode` in tensors alone: the JSON stands among them as its bytes."""
    data, tensors = encode(value)
    return tensors | {JSON: torch.tensor(list(json.dumps(data).encode()), dtype=torch.uint8, device="cpu")}


def from_tensors(kind: Any, tensors: Mapping[str, Tensor], *, classes: Mapping[str, type] | None = None) -> Any:  # noqa: ANN401
    """The inverse of `to_tensors`."""
    return decode(kind, _json(tensors, kind.__name__), tensors, classes=classes)


def _json(tensors: Mapping[str, Tensor], owner: str) -> Any:  # noqa: ANN401 - plain JSON
    if JSON not in tensors:
        raise StoreError(f"The tensor '{JSON}' of the stored {owner} is missing.")
    try:
        return json.loads(bytes(tensors[JSON].tolist()))
    except ValueError as error:
        raise StoreError(f"The tensor '{JSON}' of the stored {owner} is no JSON: {error}.") from None


def restore(thing: object, data: Any, tensors: Mapping[str, Tensor]) -> None:  # noqa: ANN401 - plain JSON
    """Give `thing`, built from its configuration, what an object like it had learnt; networks load their weights."""
    _Reader(tensors, {}).into(thing, data, "")


def restore_tensors(thing: object, state: Mapping[str, Tensor]) -> None:
    """`restore` from what `to_tensors` gave; a tensor too many is refused as well."""
    restore(thing, _json(state, type(thing).__name__), state)
    unknown = sorted(state.keys() - encode(thing)[1].keys() - {JSON})
    if unknown:
        raise StoreError(f"The tensor '{unknown[0]}' of the stored {type(thing).__name__} is unknown.")


def _like(present: object, data: Any) -> bool:  # noqa: ANN401
    """Whether `data` is of an object that was built by its owner, and only takes over what another had learnt."""
    told = isinstance(data, dict) and data.get(CLASS) == type(present).__name__
    return told and not dataclasses.is_dataclass(present) and not isinstance(present, nn.Module)


def _holds_nets(hint: Any) -> bool:  # noqa: ANN401 - an annotation
    """Whether it is that of a network, or of a dict of them."""
    base, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if base in (typing.Union, types.UnionType):
        return any(map(_holds_nets, args))
    if isinstance(base, type) and issubclass(base, Mapping):
        return len(args) == 2 and _holds_nets(args[1])
    return isinstance(base, type) and issubclass(base, nn.Module)


@dataclasses.dataclass(frozen=True)
class _Reader:
    tensors: Mapping[str, Tensor]
    classes: Mapping[str, type]

    def read(self, hint: Any, data: Any, path: str) -> Any:  # noqa: ANN401
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.either(args, data, path)
        if origin is Literal:
            return data if data in args else self.refuse(path, f"one of {args}", data)
        if origin is typing.Annotated:
            return self.read(args[0], data, path)
        if hint is Any or hint is object or isinstance(hint, TypeVar):
            return self.anything(data, path)
        base = origin or hint
        if isinstance(base, type) and (issubclass(base, Tensor | AbstractArray)):
            return self.tensor(data, path)
        if base is float:
            return self.real(data, path)
        if base in (bool, int, str, type(None)):
            if (data is None) if base is type(None) else (type(data) is base):
                return data
            self.refuse(path, f"a {base.__name__}", data)
        if base is Path:
            return Path(self.read(str, data, path))
        if isinstance(base, type) and issubclass(base, Mapping):
            return self.mapping(args or (str, Any), data, path)
        if isinstance(base, type) and issubclass(base, Sequence | set | frozenset):
            return self.sequence(base, args, data, path)
        if isinstance(base, type):
            return self.thing(base, data, path)
        raise TypeError(f"The codec has no way to read a {hint} (at '{path}').")

    def refuse(self, path: str, must: str, data: Any) -> NoReturn:  # noqa: ANN401
        got = type(data).__name__ if isinstance(data, dict | list) else repr(data)
        raise StoreError(f"The key '{path}' must be {must}. Got {got} instead.")

    def either(self, arms: tuple[Any, ...], data: Any, path: str) -> Any:  # noqa: ANN401
        if data is None and type(None) in arms:
            return None
        problem: StoreError | None = None
        for arm in (a for a in arms if a is not type(None)):
            try:
                return self.read(arm, data, path)
            except StoreError as error:
                problem = error
        raise problem or StoreError(f"The key '{path}' has no value.")

    def anything(self, data: Any, path: str) -> Any:  # noqa: ANN401
        if isinstance(data, dict):
            if set(data) == {TENSOR}:
                return self.tensor(data, path)
            return {key: self.anything(entry, f"{path}.{key}") for key, entry in data.items()}
        if isinstance(data, list):
            return [self.anything(entry, f"{path}.{i}") for i, entry in enumerate(data)]
        return NOT_FINITE.get(data, data) if isinstance(data, str) else data

    def tensor(self, data: Any, path: str) -> Tensor:  # noqa: ANN401
        if not (isinstance(data, dict) and set(data) == {TENSOR} and isinstance(data[TENSOR], str)):
            self.refuse(path, "a tensor", data)
        if data[TENSOR] not in self.tensors:
            raise StoreError(f"The tensor '{data[TENSOR]}' is missing.")
        return self.tensors[data[TENSOR]]

    def real(self, data: Any, path: str) -> float:  # noqa: ANN401
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.refuse(path, "a number", data)
        return float(data)

    def mapping(self, args: tuple[Any, ...], data: Any, path: str) -> dict[Any, Any]:  # noqa: ANN401
        if not isinstance(data, dict):
            self.refuse(path, "an object", data)
        read = {}
        for key, entry in data.items():
            try:
                name = int(key) if args[0] is int else key
            except ValueError:
                self.refuse(path, "an object with whole numbers for names", key)
            read[name] = self.read(args[1], entry, f"{path}.{key}" if path else key)
        return read

    def sequence(self, base: type, args: tuple[Any, ...], data: Any, path: str) -> Any:  # noqa: ANN401
        if not isinstance(data, list):
            self.refuse(path, "a list", data)
        fixed = base is tuple and args and args[-1] is not Ellipsis
        if fixed and len(args) != len(data):
            self.refuse(path, f"{len(args)} long", data)
        hints = args if fixed else [args[0] if args else Any] * len(data)
        at = f"{path}." if path else ""
        read = [self.read(hint, entry, f"{at}{i}") for i, (hint, entry) in enumerate(zip(hints, data, strict=True))]
        return base(read) if base in (tuple, set, frozenset) else read

    def thing(self, base: type, data: Any, path: str) -> Any:  # noqa: ANN401
        unnamed = base.__name__ if dataclasses.is_dataclass(base) else None  # as `core.plain` writes it
        name = data.get(CLASS, unnamed) if isinstance(data, dict) else None
        if not isinstance(name, str):
            self.refuse(path, f"a {base.__name__}", data)
        kind = base if name == base.__name__ else self.classes.get(name)
        if kind is None or not issubclass(kind, base):
            self.refuse(path, f"a {base.__name__}", name)
        names = stored_names(kind)
        at = f"{path}." if path else ""
        init = {f.name for f in dataclasses.fields(kind) if f.init} if dataclasses.is_dataclass(kind) else set()
        missing = [n for n in init if n not in data]
        unknown = [n for n in data if n != CLASS and n not in names]
        if missing or unknown:
            which, said = (missing[0], "is missing") if missing else (unknown[0], "is unknown")
            raise StoreError(f"The key '{at}{which}' of the stored {name} {said}.")
        made = kind(**{n: self.read(names[n], data[n], f"{at}{n}") for n in init})
        self.into(made, data, path)
        return made

    def into(self, thing: object, data: Any, path: str) -> None:  # noqa: ANN401
        at = f"{path}." if path else ""
        names = {n: h for n, h in stored_names(type(thing)).items() if n in data and n[-1] == "_"}
        for name, hint in names.items():
            present = getattr(thing, name, None)
            if isinstance(present, torch.Generator):
                present.set_state(self.tensor(data[name], f"{at}{name}").cpu())
            elif _like(present, data[name]):
                self.into(present, data[name], f"{at}{name}")
            elif not _holds_nets(hint):
                object.__setattr__(thing, name, self.read(hint, data[name], f"{at}{name}"))
        if hasattr(thing, "_rebuild"):
            thing._rebuild()
        for name, hint in names.items():
            if _holds_nets(hint):
                self.nets(getattr(thing, name, None), data[name], f"{at}{name}")

    def nets(self, present: Any, data: Any, path: str) -> None:  # noqa: ANN401
        if isinstance(present, Mapping):
            if not isinstance(data, dict) or set(data) != set(map(str, present)):
                self.refuse(path, f"networks called {', '.join(map(str, present))}", data)
            for key, net in present.items():
                self.nets(net, data[str(key)], f"{path}.{key}")
        elif isinstance(present, nn.Module) and isinstance(data, dict):
            self.weights(present, self.anything({k: v for k, v in data.items() if k != CLASS}, path), path)
        elif present is not None or data is not None:
            self.refuse(path, "the weights of a network", data)

    def weights(self, net: nn.Module, state: dict[str, Tensor], path: str) -> None:
        have = {k: tuple(v.shape) for k, v in state.items()}
        want = {k: tuple(v.shape) for k, v in net.state_dict().items()}
        for key in sorted(have.keys() | want.keys()):
            if have.get(key) != want.get(key):
                self.refuse(f"{path}.{key}", f"of shape {want.get(key)}", have.get(key))
        with torch.no_grad():
            net.load_state_dict(state)
