"""Atomic, versioned, pickle-free save and load: a JSON file, and a safetensors file beside it when there are tensors.

`save("x.json", "record", {...}, {...})` writes the tensors first, under a name that carries their hash, and the JSON
last, by rename. A process killed at any moment leaves either the old pair or the new one; the worst it leaves behind
is an orphan that the next save removes. Saves into one folder come one after another, whichever process they are of.
Each field and each tensor has its own digest, so damage is named by file and key.

`save_file("x.vestige", "vestige", thing)` writes one object as one file: safetensors, whose header holds the same JSON
document. Such a file can be handed on by itself; any reader of safetensors can look into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from vestige.core import InputError, StoreError
from vestige.store.codec import decode, encode
from vestige.store.locks import one_at_a_time

T = TypeVar("T")

HEADER = "vestige"  # the name under which the JSON of `save_file` stands in the header
# Raised when the layout of the files changes; a file with a larger one is refused by name.
FORMAT = 1
# The same of kinds whose fields have changed since 0.1.0: of these an older file is refused, too.
FORMATS = {"chain": 2, "monitor": 2, "monitor-step": 2}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def canonical(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, no NaN. Equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def content_id(value: object) -> str:
    """A short hash of what `value` says, for names of files and Records."""
    return _digest(canonical(value).encode())[:16]


KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular(path: str | os.PathLike[str]) -> Path:
    """`path`, if a regular file is there or a link to one; whatever else it is is refused before it is opened.

    Every file of a user goes through here: to open a pipe or a device may wait for ever. What is not there, or cannot
    be looked at, is the OSError that opening it would have been.
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError:  # a zero byte in the name
        raise InputError(f"The name of a file must be without zero bytes. Got {os.fspath(path)!r} instead.") from None
    if not stat.S_ISREG(mode):
        got = KINDS.get(stat.S_IFMT(mode), "something else")
        raise InputError(f"The file '{path}' must be a regular file. Got {got} instead.")
    return Path(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole or not at all: temporary file, fsync, rename, fsync of the folder.

    The file has the mode of the one whose place it takes, or that of any new file under the user's umask. A failure,
    such as a full disk, is an OSError that names `path`, and leaves what was there.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    sync(path.parent)  # the rename itself must reach the disk


def sync(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk; a failure is an OSError that names it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        error.filename = str(folder)
        raise
    finally:
        os.close(handle)


def save(path: str | Path, kind: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> Path:
    """Store `fields` (JSON) and `tensors` as one object of `kind` at `path`, which ends in .json."""
    path = Path(path)
    if path.suffix != ".json":
        raise InputError(f"The 'path' of store.save must be a name that ends in .json. Got {path.name} instead.")
    tensor_path, entry = None, None
    if tensors:
        flat = _flat(tensors, kind)
        data = dump_tensors(flat)
        tensor_path = path.with_name(f"{path.stem}.{_digest(data)[:16]}.safetensors")
        entry = {"file": tensor_path.name, "digests": {key: _tensor_digest(value) for key, value in flat.items()}}
    document = _document(kind, fields, entry)
    with one_at_a_time(path.parent):
        fresh = tensor_path is not None and not tensor_path.exists()
        if tensor_path is not None:
            write_bytes(tensor_path, data)
        try:
            write_bytes(path, (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())
        except OSError:
            if fresh and tensor_path is not None:  # named by nothing, on a disk that may be full
                tensor_path.unlink(missing_ok=True)
            raise
        _sweep(path, tensor_path)
    return path


def save_lines(path: str | Path, kind: str, objects: Iterable[Mapping[str, Any]]) -> Path:
    """Store the fields of many objects of `kind`, without tensors, at `path`: a line each, checked as a file is."""
    documents = [_document(kind, fields, None) for fields in objects]
    lines = [json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n" for document in documents]
    write_bytes(Path(path), "".join(lines).encode())
    return Path(path)


def load_lines(
    path: str | Path, kind: str, on_damage: Callable[[StoreError], None] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each object of `save_lines` stands, as "FILE, line 3", and its fields; damage is named by line and key.

    Where `on_damage` is given it hears what is wrong with a line, which is passed over.
    """
    for number, text in enumerate(_read(Path(path)).split(b"\n"), 1):
        where = f"{path}, line {number}"
        with passing_over(on_damage):
            if text:
                yield where, _checked(_parsed(text, where), kind, where)


@contextlib.contextmanager
def passing_over(on_damage: Callable[[StoreError], None] | None) -> Iterator[None]:
    """A StoreError that is raised in the block is handed to `on_damage`, if there is one, and ends the block alone."""
    try:
        yield
    except StoreError as error:
        if on_damage is None:
            raise
        on_damage(error)


def _document(kind: str, fields: Mapping[str, Any], tensors: dict[str, Any] | None) -> dict[str, Any]:
    """What is written: the fields, with a digest of each."""
    try:
        canonical(dict(fields))  # refuses keys of mixed types, of which two could become one
        # As it will be read back, in its order: keys that were numbers are words by now.
        plain = json.loads(json.dumps(dict(fields), allow_nan=False, ensure_ascii=False))
        digests = {key: _digest(canonical(value).encode()) for key, value in plain.items()}
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The 'fields' of {kind} must be plain JSON without NaN. Got {error} instead.") from None
    head = {"format": f"vestige/{kind}", "version": FORMATS.get(kind, FORMAT), "digests": digests, "tensors": tensors}
    return head | {"tensors_digest": _digest(canonical(tensors).encode()), "fields": plain}


def _flat(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Tensors as safetensors takes them: on the CPU, contiguous, no two in the same memory."""
    flat: dict[str, Tensor] = {}
    taken: set[int] = set()
    for key, value in tensors.items():
        if not isinstance(key, str) or key == "__metadata__" or value.layout != torch.strided:
            raise InputError(f"The 'tensors' of {kind} must be dense, each under a name. Got {key!r} instead.")
        tensor = value.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        flat[key] = tensor.clone() if memory in taken else tensor
        taken.add(memory)
    return flat


def _sweep(path: Path, keep: Path | None) -> None:
    """Remove what earlier saves of `path` left behind: tensors no longer named, parts of writes that were killed."""
    tensors = rf"{re.escape(path.stem)}\.[0-9a-f]{{16}}\.safetensors"
    orphans = re.compile(rf"{tensors}|\.({tensors}|{re.escape(path.name)})\.\w{{8}}\.part")
    for entry in os.scandir(path.parent):
        if orphans.fullmatch(entry.name) and (keep is None or entry.name != keep.name):
            Path(entry.path).unlink(missing_ok=True)


def _tensor_digest(value: Tensor) -> str:
    head = f"{value.dtype}{tuple(value.shape)}".encode()
    # a single number counts as contiguous whatever its stride, and bytes need one of 1
    flat = value.reshape(-1).clone(memory_format=torch.contiguous_format)
    return _digest(head + flat.view(torch.uint8).numpy().tobytes() if value.numel() else head)


def load(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields and tensors stored at `path`; every digest is checked, and damage is named by file and key."""
    path = Path(path)
    document = _parsed(_read(path), path)
    return _checked(document, kind, path), _load_tensors(path, document)


def _read(path: Path, named: str = "") -> bytes:
    try:
        return regular(path).read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path}{named} does not exist.") from None
    except InputError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None


def _parsed(text: bytes, where: str | Path) -> Any:  # noqa: ANN401 - whatever JSON says
    try:
        return json.loads(text)
    except RecursionError:
        raise StoreError(f"{where} has lists or objects nested too deep to be read; it was altered.") from None
    except ValueError:
        raise StoreError(f"{where} is torn or not JSON; restore it from a copy or run again.") from None


def _checked(document: Any, kind: str, path: str | Path) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a document, each checked against its digest."""
    if not isinstance(document, dict) or document.get("format") != f"vestige/{kind}":
        found = document.get("format") if isinstance(document, dict) else None
        raise StoreError(f"{path}: key 'format' must be 'vestige/{kind}'. Got {found!r} instead.")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"{path}: key 'version' must be a whole number. Got {version!r} instead.")
    ours = FORMATS.get(kind, FORMAT)
    if version > ours:
        raise StoreError(
            f"{path} was written in format {version} by a newer Vestige; this one reads up to {ours}. Upgrade Vestige."
        )
    if version < ours:
        raise StoreError(
            f"{path} was written by Vestige 0.1.0, in a format that this version does not read: "
            "go on with it in vestige==0.1.0, or begin anew with this version."
        )
    fields, digests = _mapping(document, "fields", path), _mapping(document, "digests", path)
    for key in sorted(fields.keys() | digests.keys()):
        if key not in fields or key not in digests:
            raise StoreError(f"{path}: key '{key}' is missing from the file; it was altered or torn.")
        _compare(fields[key], digests[key], key, path)
    return fields


def _compare(value: object, digest: object, key: str, path: str | Path) -> None:
    """Refuse a value that is not the one of which `digest` was taken."""
    try:
        text = canonical(value)
    except (ValueError, RecursionError):
        raise StoreError(f"{path}: key '{key}' holds a NaN or is nested too deep; it was altered.") from None
    if _digest(text.encode("utf-8", "surrogatepass")) != digest:
        raise StoreError(f"{path}: key '{key}' does not match its digest; it was altered or torn.")


def _mapping(document: dict[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise StoreError(f"{path}: key '{key}' must be an object. Got {type(value).__name__} instead.")
    return value


def _load_tensors(path: Path, document: dict[str, Any]) -> dict[str, Tensor]:
    if "tensors" not in document:
        raise StoreError(f"{path}: key 'tensors' is missing from the file; it was altered or torn.")
    # What the JSON says of its tensors is checked before they are held against it, or they would bear the blame.
    _compare(document["tensors"], document.get("tensors_digest"), "tensors", path)
    if document["tensors"] is None:
        return {}
    entry = _mapping(document, "tensors", path)
    name, digests = entry.get("file"), _mapping(entry, "digests", path)
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
        raise StoreError(f"{path}: key 'tensors.file' must be a plain file name. Got {name!r} instead.")
    tensor_path = path.with_name(name)
    return _tensors_of(_read(tensor_path, f", named by {path.name},"), digests, tensor_path)


def save_file(path: str | Path, kind: str, thing: object) -> Path:
    """Store `thing` by the codec as one object of `kind` in the one file `path`, whole or not at all."""
    fields, tensors = encode(thing)
    flat = _flat(tensors, kind)
    document = _document(kind, {"object": fields}, {"digests": {k: _tensor_digest(v) for k, v in flat.items()}})
    write_bytes(Path(path), dump_tensors(flat, {HEADER: json.dumps(document, allow_nan=False, ensure_ascii=False)}))
    return Path(path)


def load_file(cls: type[T], path: str | Path, kind: str, classes: Mapping[str, type] | None = None) -> T:
    """What `save_file` stored at `path`: a `cls`, in which any of `classes` (by their names) may stand for their base.

    Every digest is checked, and damage is named by key.
    """
    path = Path(path)
    data = _read(path)
    document = _parsed(_header(data, path).encode(), path)
    fields = _checked(document, kind, path)
    _compare(document.get("tensors"), document.get("tensors_digest"), "tensors", path)
    digests = _mapping(_mapping(document, "tensors", path), "digests", path)
    return decode_from(path, cls, fields.get("object"), _tensors_of(data, digests, path), classes)


def kind_of_file(path: str | Path) -> str:
    """The kind of object that `save_file` stored at `path`; empty where it says none."""
    path = Path(path)
    document = _parsed(_header(_read(path), path).encode(), path)
    named = document.get("format") if isinstance(document, dict) else None
    return named.removeprefix("vestige/") if isinstance(named, str) else ""


def _header(data: bytes, path: Path) -> str:
    """The text that `save_file` put into the header of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    try:
        told = json.loads(data[8 : 8 + size]) if 0 < size <= len(data) - 8 else None
        text = told["__metadata__"][HEADER]  # type: ignore[index]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise StoreError(f"{path} is torn, or no file that Vestige wrote.")
    return text


def _tensors_of(data: bytes, digests: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, each checked against its digest."""
    try:
        tensors: dict[str, Tensor] = load_tensors(data)
    except (SafetensorError, ValueError, KeyError):
        raise StoreError(f"{path} is torn or not safetensors; restore it or run again.") from None
    for key in sorted(tensors.keys() | digests.keys()):
        if key not in tensors or key not in digests:
            raise StoreError(f"{path}: key '{key}' is missing; it was altered or torn.")
        if _tensor_digest(tensors[key]) != digests[key]:
            raise StoreError(f"{path}: key '{key}' does not match its digest; it was altered or torn.")
    return tensors


def load_into(skeleton: Mapping[str, Tensor], tensors: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """`tensors`, once names, shapes and types agree with `skeleton`; a mismatch names the key."""
    for key in sorted(skeleton.keys() | tensors.keys()):
        if key not in tensors:
            raise StoreError(f"The stored {owner} lacks the key '{key}'.")
        if key not in skeleton:
            raise StoreError(f"The stored {owner} has a key '{key}' that this configuration does not know.")
        have, want = tensors[key], skeleton[key]
        if have.shape != want.shape or have.dtype != want.dtype:
            raise StoreError(
                f"The key '{key}' of the stored {owner} must be {want.dtype} {tuple(want.shape)}. "
                f"Got {have.dtype} {tuple(have.shape)} instead."
            )
    return dict(tensors)


def save_object(path: str | Path, kind: str, thing: object) -> Path:
    """Store `thing` by the codec as one object of `kind` at `path`, which ends in .json."""
    fields, tensors = encode(thing)
    return save(path, kind, {"object": fields}, tensors)


def load_object(cls: type[T], path: str | Path, kind: str, classes: Mapping[str, type] | None = None) -> T:
    """What `save_object` stored at `path`: a `cls`, or one of `classes` (by their names) that is one."""
    fields, tensors = load(path, kind)
    if "object" not in fields:
        raise StoreError(
            f"{path} was written by an earlier version of Vestige: write it anew with this one, or read it with 0.1.0."
        )
    return decode_from(path, cls, fields["object"], tensors, classes)


def decode_from(
    path: str | Path,
    cls: type[T],
    data: Any,  # noqa: ANN401 - plain JSON
    tensors: Mapping[str, Tensor] | None = None,
    classes: Mapping[str, type] | None = None,
) -> T:
    """`decode` of what was stored at `path`; a refusal names that file, and the key."""
    try:
        loaded: T = decode(cls, data, tensors, classes=classes)
    except (TypeError, AttributeError, InputError, StoreError) as error:
        raise StoreError(f"{path} does not hold a {cls.__name__} that this version can read: {error}") from None
    return loaded
