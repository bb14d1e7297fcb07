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
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

from vestige.core import StoreError
from vestige.core.errors import shortened

T = TypeVar("T")
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
TENSOR, CLASS = "tensor", "class"
JSON = "json"  # the name of the tensor whose bytes are the JSON
# Where an annotation says so, JSON of any form is stored and read as it is.
AS_IS = "plain JSON"
Plain: TypeAlias = Annotated[Any, AS_IS]
NEWER = "vestige newer than its files"  # the metadata of a field that older files lack
DEEPEST = 64  # levels of plain JSON within each other
MOST_AXES = 8  # of numbers that are written out
FARTHEST = 1e100  # from zero that a number may be which is written out: beyond it sums of squares, and axes, overflow
SHOWN = 80  # characters of a key or a value in a refusal
LARGEST = 2**64  # whole numbers are below it, and above its negative
UNIONS = (typing.Union, types.UnionType)
_Entry: TypeAlias = tuple[Any, Any, str]  # an annotation, what is to be read by it, and its key
# Annotations are read once a class.
_NAMES: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()


def newer(default: Any) -> Any:  # noqa: ANN401 - a field, typed as its annotation
    """A dataclass field that was added after files had been written: where one lacks it, it has its default."""
    return dataclasses.field(default=default, metadata={NEWER: True})


def stored_names(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    """The names that are stored of an object of `kind`, and their annotations."""
    if kind not in _NAMES:
        _NAMES[kind] = _stored_names(kind)
    return _NAMES[kind]


def _stored_names(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    hints = typing.get_type_hints(kind, include_extras=True)
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
    at: str = "",
) -> Any:  # noqa: ANN401 - what `kind` says
    """The inverse of `encode`; `classes` are those that may stand where the annotation names a base of theirs.

    Without `tensors` their numbers are written out in `data` as nested lists, as `core.plain` does: null is NaN, and
    shapes are those of the annotation. A value that does not fit its annotation is refused with the key at which it
    stands, which is `at` for `data` itself.
    """
    try:
        return _Reader(tensors, classes or {}).read(kind, data, at)
    except RecursionError:
        raise StoreError(f"The key '{at}' is nested too deep.") from None


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
    if base in UNIONS:
        return any(map(_holds_nets, args))
    if isinstance(base, type) and issubclass(base, Mapping):
        return len(args) == 2 and _holds_nets(args[1])
    return isinstance(base, type) and issubclass(base, nn.Module)


def _has_inside(data: Any) -> bool:  # noqa: ANN401
    return isinstance(data, dict | list)


@dataclasses.dataclass(frozen=True)
class _Reader:
    tensors: Mapping[str, Tensor] | None
    classes: Mapping[str, type]

    def read(self, hint: Any, data: Any, path: str) -> Any:  # noqa: ANN401
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in UNIONS:
            arms = [arm for arm in args if arm is not type(None)]
            if data is None and len(arms) < len(args):
                return None
            return self.read(arms[0], data, path) if len(arms) == 1 else self.either(arms, data, path)
        if origin is Literal:
            return data if data in args else self.refuse(path, f"one of {args}", data)
        if origin is typing.Annotated:
            return self.as_is(data, path) if AS_IS in args[1:] else self.read(args[0], data, path)
        if hint is Any or hint is object or isinstance(hint, TypeVar):
            return self.anything(data, path)
        base = origin or hint
        if isinstance(base, type) and (issubclass(base, Tensor | AbstractArray)):
            return self.numbers(base, data, path) if self.tensors is None else self.tensor(data, path)
        if base is float:
            return self.real(data, path)
        if base is str:
            return self.text(data, path)
        if base is int:
            return self.whole(data, path)
        if base in (bool, type(None)):
            must = "true or false" if base is bool else "null"
            return data if isinstance(data, base) else self.refuse(path, must, data)
        if base is Path:
            return Path(self.read(str, data, path))
        if not isinstance(base, type):
            raise TypeError(f"The codec has no way to read a {hint} (at '{path}').")
        if issubclass(base, Mapping):
            inside = self.in_mapping(args or (str, Any), data, path)
            return {name: self.read(*entry) for name, entry in inside.items()}
        if issubclass(base, Sequence | set | frozenset):
            entries = [self.read(*entry) for entry in self.in_sequence(base, args, data, path)]
            return base(entries) if base in (tuple, set, frozenset) else entries
        kind = self.kind(base, data, path)
        made = kind(**{name: self.read(*entry) for name, entry in self.in_thing(kind, data, path).items()})
        self.into(made, data, path)
        return made

    def refuse(self, path: str, must: str, data: Any) -> NoReturn:  # noqa: ANN401
        got = "an object" if isinstance(data, dict) else "a list" if isinstance(data, list) else repr(data)
        raise StoreError(f"The key '{shortened(path, SHOWN)}' must be {must}. Got {shortened(got, SHOWN)} instead.")

    def text(self, data: Any, path: str) -> str:  # noqa: ANN401
        if not isinstance(data, str):
            self.refuse(path, "a text", data)
        try:
            data.encode()
        except UnicodeEncodeError:  # half of a pair, which JSON can say and no file can hold
            self.refuse(path, "a text of whole letters", data)
        return data

    def whole(self, data: Any, path: str) -> int:  # noqa: ANN401
        if isinstance(data, bool) or not isinstance(data, int):
            self.refuse(path, "a whole number", data)
        return data if abs(data) < LARGEST else self.refuse(path, "a whole number within 64 bits", data)

    def as_is(self, data: Any, path: str) -> Any:  # noqa: ANN401
        level, depth = [data], 0
        while level:
            if depth > DEEPEST:
                self.refuse(path, f"nested at most {DEEPEST} deep", data)
            for entry in level:
                for word in entry if isinstance(entry, dict) else [entry] if isinstance(entry, str) else []:
                    self.text(word, path)
                if isinstance(entry, int):  # of a number too large no digits can be written
                    self.whole(int(entry), path)
            inside = [entry.values() if isinstance(entry, dict) else entry for entry in level if _has_inside(entry)]
            level, depth = [value for values in inside for value in values], depth + 1
        return data

    def numbers(self, hint: Any, data: Any, path: str) -> Tensor:  # noqa: ANN401
        shape: list[int] = []
        rows = [data]
        while rows and all(isinstance(row, list) for row in rows):
            if len({len(row) for row in rows}) > 1:
                self.refuse(path, "a rectangular array of numbers", "rows of unequal length")
            if len(shape) == MOST_AXES:
                self.refuse(path, f"numbers with at most {MOST_AXES} axes", "more")
            shape.append(len(rows[0]))
            rows = [entry for row in rows for entry in row]
        for entry in rows:
            if isinstance(entry, bool) or not isinstance(entry, int | float | None):
                self.refuse(path, "numbers, or null where nothing was measured", entry)
            if entry is not None and abs(entry) > FARTHEST:
                self.refuse(path, f"numbers from {-FARTHEST:g} to {FARTHEST:g}", entry)
        flat = [math.nan if entry is None else float(entry) for entry in rows]
        read = torch.tensor(flat, dtype=torch.float64, device="cpu").reshape(shape)
        if issubclass(hint, AbstractArray) and not isinstance(read, hint):
            self.refuse(path, f"numbers of the shape [{', '.join(hint.dim_str.split())}]", tuple(shape))
        return read

    def either(self, arms: Sequence[Any], data: Any, path: str) -> Any:  # noqa: ANN401
        problem: StoreError | None = None
        for arm in arms:
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
        if data[TENSOR] not in (self.tensors or {}):
            raise StoreError(f"The tensor '{shortened(data[TENSOR], SHOWN)}' is missing.")
        return (self.tensors or {})[data[TENSOR]]

    def real(self, data: Any, path: str) -> float:  # noqa: ANN401
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.refuse(path, "a number", data)
        try:
            return float(data)
        except OverflowError:
            self.refuse(path, "a number that a float can hold", "a larger one")

    def in_mapping(self, args: tuple[Any, ...], data: Any, path: str) -> dict[Any, _Entry]:  # noqa: ANN401
        if not isinstance(data, dict):
            self.refuse(path, "an object", data)
        inside = {}
        for key, entry in data.items():
            try:
                name = int(key) if args[0] is int else key
            except ValueError:
                self.refuse(path, "an object with whole numbers for names", key)
            inside[name] = (args[1], entry, f"{path}.{self.text(key, path)}" if path else key)
        return inside

    def in_sequence(self, base: type, args: tuple[Any, ...], data: Any, path: str) -> list[_Entry]:  # noqa: ANN401
        if not isinstance(data, list):
            self.refuse(path, "a list", data)
        fixed = base is tuple and args and args[-1] is not Ellipsis
        if fixed and len(args) != len(data):
            self.refuse(path, f"{len(args)} long", data)
        hints = args if fixed else [args[0] if args else Any] * len(data)
        at = f"{path}." if path else ""
        return [(hint, entry, f"{at}{i}") for i, (hint, entry) in enumerate(zip(hints, data, strict=True))]

    def kind(self, base: type, data: Any, path: str) -> type:  # noqa: ANN401
        unnamed = base.__name__ if dataclasses.is_dataclass(base) else None  # as `core.plain` writes it
        name = data.get(CLASS, unnamed) if isinstance(data, dict) else None
        if not isinstance(name, str):
            self.refuse(path, f"a {base.__name__}", data)
        kind = base if name == base.__name__ else self.classes.get(name)
        if kind is None or not issubclass(kind, base):
            self.refuse(path, f"a {base.__name__}", name)
        return kind

    def in_thing(self, kind: Any, data: dict[str, Any], path: str) -> dict[str, _Entry]:  # noqa: ANN401
        names = stored_names(kind)
        at = f"{path}." if path else ""
        init = {f.name: f for f in dataclasses.fields(kind) if f.init} if dataclasses.is_dataclass(kind) else {}
        missing = [n for n, field in init.items() if n not in data and NEWER not in field.metadata]
        unknown = [n for n in data if n != CLASS and n not in names]
        if missing or unknown:
            which, said = (missing[0], "is missing") if missing else (unknown[0], "is unknown")
            raise StoreError(f"The key '{shortened(at + which, SHOWN)}' of the stored {kind.__name__} {said}.")
        return {n: (names[n], data[n], f"{at}{n}") for n in init if n in data}

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
