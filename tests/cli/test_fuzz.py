"""Every verb on files and words that were damaged on purpose: one clear sentence, never a traceback, a hang or a theft.

An input is a number: it says which verb runs, which of its files (or words) is damaged, and how. Each runs in a process
of its own, forked after everything was imported, with `SECONDS` on the clock and `BYTES` of memory. Afterwards the exit
code is one of `CODES`, no sentence speaks of a bug or is longer than `LONGEST`, and every file outside of the output
folder is as it was. A failure prints its number; this runs it alone and prints all that was said:

    PYTHONPATH=src:tests python tests/cli/test_fuzz.py 17
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

SECONDS, BYTES = 30, 4 << 30
CODES = (0, 1, 2, 3, 4)
LONGEST = 2000  # characters of a sentence
PARTS, SIZE = 16, 75  # slow: 1200 inputs
FAST = 8


@dataclass(frozen=True)
class Case:
    """A command in which `{i}` is the folder of inputs and `{o}` that of outputs, and the files that may be damaged."""

    argv: str
    files: tuple[str, ...]
    prepared: tuple[str, ...] = ()  # folders of the inputs that are copied to the outputs, where the verb goes on

    def words(self, i: Path, o: Path) -> list[str]:
        return [word.format(i=i, o=o) for word in self.argv.split()]


PAIR = "--estimator ulsif --rows 60 --pair-rows 60"
WEIGHED = "--estimator ulsif --rows 60"
OWN = "run lfiw-table1 --preset smoke --set n=20 --set hidden=5 --workers 0 --out {o}/runs"
POLICY = "--horizon 3 --trajectories 10 --members 1 --classifiers 1 --steps 5"
KINDS = ("npy", "npz", "safetensors", "csv", "parquet")
MONITOR = ("m/monitor.json", "m/*", "m/**/*.json", "m/**/*.safetensors", "m/**/*.json")
CASES = (
    *(Case(f"compare {{i}}/p.{kind} {{i}}/q.{kind} {PAIR}", (f"q.{kind}", f"p.{kind}")) for kind in KINDS),
    Case(f"compare {{i}}/images/p {{i}}/images/q {PAIR} --json", ("images/q/*.png", "images/p/*.png")),
    Case(f"compare {{i}}/stats.npz {{i}}/q.npy {PAIR}", ("stats.npz", "stats.npz", "q.npy")),
    Case("keep {i}/p.npz -o {o}/p.vestige --fid-stats {o}/stats.npz", ("p.npz",)),
    Case(f"compare {{i}}/p.npy {{i}}/q.npy {PAIR} --weights {{i}}/w.npy", ("w.npy",)),
    Case(f"compare {{i}}/p.npy {{i}}/q.npy {PAIR} --weights {{i}}/w.csv", ("w.csv",)),
    *(Case(f"weigh {{i}}/p.{kind} {{i}}/q.{kind} -o {{o}}/w.csv {WEIGHED} --anyway", (f"q.{kind}",)) for kind in KINDS),
    Case("augment {i}/p.csv {i}/q.csv -o {o}/t.parquet --rows 60", ("q.csv", "p.csv")),
    Case("augment {i}/p.parquet {i}/q.parquet -o {o}/t.csv --rows 60", ("q.parquet", "p.parquet")),
    Case("keep {i}/p.csv -o {o}/p.vestige --model {i}/q.csv", ("q.csv", "p.csv")),
    Case("keep {i}/p.npy -o {o}/p.vestige --model {i}/q.npy --allow-copies", ("q.npy",)),
    Case("matrix {i}/R.csv --reference {i}/one.csv --baseline {i}/one.csv", ("R.csv", "R.csv", "one.csv")),
    Case("matrix {i}/R.npy --json", ("R.npy",)),
    Case("matrix {i}/R.json", ("R.json",)),
    Case("matrix {i}/long.csv --records {o}/records", ("long.csv",)),
    Case("matrix {i}/long.parquet --json", ("long.parquet",)),
    Case("matrix {i}/logs.pyd", ("logs.pyd",)),
    Case("matrix {i}/metrics.json --records {o}/records --name x", ("metrics.json",)),
    Case("report {i}/records -o {o}/page --page-only", ("records/a.json", "records/a.json", "records/more.jsonl")),
    Case("report --compare {i}/records/a.json {i}/records/b.json -o {o}/page --page-only", ("records/a.json",)),
    Case("report {i}/records --pack {o}/packed", ("records/more.jsonl", "records/a.json")),
    Case("report --reproductions {i}/records -o {o}/INDEX.md", ("records/more.jsonl",)),
    Case("audit {i}/records/a.json", ("records/a.json",)),
    Case("audit {i}/records --json", ("records/more.jsonl", "records/b.json")),
    Case("keep {i}/p.csv -o {o}/k.vestige --epsilon 1 --bounds {i}/bounds.toml", ("bounds.toml", "p.csv")),
    Case("keep {i}/p.parquet -o {o}/k.vestige --epsilon 1 --public {i}/q.parquet --unit x0 --max-rows 2",
         ("q.parquet", "p.parquet")),
    Case("show {i}/private.vestige", ("private.vestige",)),
    Case(f"compare {{i}}/private.vestige {{i}}/q.csv {PAIR}", ("private.vestige", "q.csv")),
    Case("show {i}/kept.vestige --parts", ("kept.vestige",)),
    Case(f"compare {{i}}/kept.vestige {{i}}/q.csv {PAIR}", ("kept.vestige", "q.csv")),
    Case(f"weigh {{i}}/kept.vestige {{i}}/q.parquet -o {{o}}/w.csv {WEIGHED} --anyway", ("kept.vestige", "q.parquet")),
    Case("keep {i}/q.csv -o {o}/q.vestige --like {i}/kept.vestige", ("kept.vestige", "q.csv")),
    Case("keep {i}/q.parquet -o {o}/v/kept.vestige --append", ("v/kept.vestige", "q.parquet"), ("v",)),
    Case("merge {i}/kept.vestige {i}/v/kept.vestige -o {o}/all.vestige", ("kept.vestige", "v/kept.vestige")),
    Case("audit {i}/e.toml --strict", ("e.toml",)),
    Case("audit {i}/e.toml --paragraph", ("e.toml",)),
    Case("monitor start {o}/m --divergences kl,js --rise js=0.1", MONITOR, ("m",)),
    Case("monitor show {o}/m", MONITOR, ("m",)),
    Case("monitor show {o}/m --json", MONITOR, ("m",)),
    Case("monitor report {o}/m -o {o}/m.html", MONITOR, ("m",)),
    Case("monitor export {o}/m --openmetrics {o}/m.prom", MONITOR, ("m",)),
    Case("monitor step {o}/m --model a={i}/q.npy", MONITOR, ("m",)),
    Case("monitor step {o}/m --model a={i}/q.csv --real b={i}/p.csv --model b={i}/q.csv", ("q.csv", "p.csv"), ("m",)),
    Case("monitor step {o}/m --model a={i}/q.npz --allow-copies", ("q.npz",), ("m",)),
    Case(f"{OWN} --real {{i}}/p.npy --fake {{i}}/q.npy", ("p.npy", "q.npy")),
    Case(f"{OWN} --real {{i}}/p.csv --fake {{i}}/q.parquet", ("p.csv", "q.parquet")),
    Case(f"{OWN} --real {{i}}/p.npy --fake {{i}}/q.npy --features {{i}}/map.json", ("map.json", "map*")),
    Case("run lfiw-table1 --preset smoke --set n=20 --set hidden=5 --workers 0 --out {o}/runs "
         "--real {i}/p.npy --fake {i}/q.npy", ("runs/**/*.json",), ("runs",)),
    Case("data --data {i}/data", ("data/digits.npz", "data/mnist.npz")),
    Case("run cdre-table2 --preset smoke --workers 0 --out {o} --real {i}/p.npz --fake {i}/q.npz", ("p.npz",)),
    *(Case(f"policy evaluate {{i}}/logs.{kind} --policy {{i}}/policy.json {POLICY}", (f"logs.{kind}",))
      for kind in ("npz", "csv", "parquet")),
    Case(f"policy evaluate {{i}}/logs.csv --policy {{i}}/policy.json {POLICY} --out {{o}}/found",
         ("policy.json", "policy*")),
    *(Case(f"policy bandit {{i}}/decisions.{kind} --low 0 --high 1", (f"decisions.{kind}",))
      for kind in ("csv", "parquet")),
)  # fmt: skip
# Commands of which a word is damaged: a name, a number, a value of a configuration.
WORDED = tuple(
    Case(argv, ())
    for argv in (
        f"compare {{i}}/p.npy {{i}}/q.npy {PAIR} --level 0.9 --seed 3 --scale raw",
        f"weigh {{i}}/p.npy {{i}}/q.npy -o {{o}}/w.npy {WEIGHED} --temper 0.1 --bootstrap 0 --anyway --seed 1",
        "matrix {i}/R.csv --better down --labels none",
        "report nowhere {i}/records/a.json -o {o}/page --page-only",
        "monitor start {o}/m --divergences kl,js --rise js=0.1 --above kl@a=0.5 --features pca --dims 1",
        "keep {i}/p.npy -o {o}/k.vestige --epsilon 1 --delta 1e-6 --bounds {i}/bounds.toml --unit row --max-rows 1",
        "keep {i}/p.csv -o {o}/k.vestige --block 2 --third-moments --drop x0 --seed 3",
        "list methods",
        "data list",
        "data fetch digits",
        "audit nowhere --arm x --seed 3 --preset smoke",
        "run lfiw-table1 --preset smoke --set n=20 --set hidden=5 --seeds 1 --workers 0 --out {o}/runs "
        "--real {i}/p.npy --fake {i}/q.npy",
        "run rwalk-table3 --preset smoke --set epochs=1 --grid lambdas=[[1],[2]] --device cpu --out {o} --workers no",
        "policy evaluate {i}/logs.csv --policy {i}/policy.json --out {o}/f " + POLICY,
        "policy bandit {i}/decisions.csv --low 0 --high 1 --level 0.9 --folds 3 --seed 1 --json",
    )
)

# Damage. ---------------------------------------------------------------------------------------------------------

NUMBERS = [
    *"nan inf -inf Infinity NaN 1e39 -1e39 3.5e38 1e308 1e309 1e-400 9007199254740993 1152921504606846976".split(),  # noqa: SIM905
    *"18446744073709551616 -9223372036854775809 1e15 1000000000000000 0 -1 -0 1_000 0x10 \uff10 1,5 true null".split(),  # noqa: SIM905
    *"None [] {} '' 'x' [[]] 1e 2021-02-30 00:00 0.1.2".split(),  # noqa: SIM905
    *("", " ", "9" * 400, "9" * 5000, "1" + "0" * 30, '""', '"x"'),
]
TEXTS = (
    "",
    " ",
    "x" * 5000,
    "é" * 3,
    "\u202eevil",
    "a\nb",
    "\x1b[31mred",
    "..",
    "../../x",
    "/etc/passwd",
    "\ud800",
    "\0",
)
MAGICS = (b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"PAR1", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a",
          b"\x80\x04\x95", b"\x1f\x8b\x08\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"II*\x00", b"BZh9", b"SQLite format 3\0",
          b"\xff" * 8, b"\x00" * 8)  # fmt: skip
SHAPES = ("(1000000000000000, 3)", "(-1, 3)", "(40,)", "()", "(0, 2)", "(120, 0)", "(9223372036854775807,)", "(60, 4)",
          "(" + "1, " * 40 + ")", "(" * 3000 + ")" * 3000, "None", "(18446744073709551617, 1)", "(2.5, 3)")  # fmt: skip
TYPES = (
    "|O",
    "<U1",
    "<c16",
    "<M8[s]",
    ">f8",
    "<f2",
    "|V8",
    "<i8",
    "<u8",
    "|b1",
    "<f16",
    "<f4",
    "garbage",
    "|S4",
    "<i1",
)


def flip(data: bytes, r: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8, 64))):
        at = r.randrange(len(out)) if r.random() < 0.5 else r.randrange(min(len(out), 256))
        out[at] ^= 1 << r.randrange(8)
    return bytes(out)


def truncate(data: bytes, r: random.Random) -> bytes:
    return data[: r.choice((1, 4, 8, len(data) - 1, r.randrange(len(data))))]


def duplicate(data: bytes, r: random.Random) -> bytes:
    a, b = sorted(r.randrange(len(data)) for _ in range(2))
    return data[:b] + data[a:b] * r.choice((1, 2, 50)) + data[b:]


def cut_out(data: bytes, r: random.Random) -> bytes:
    a, b = sorted(r.randrange(len(data)) for _ in range(2))
    return data[:a] + data[b:]


def foreign_magic(data: bytes, r: random.Random) -> bytes:
    magic = r.choice(MAGICS)
    return magic + (data[len(magic) :] if r.random() < 0.5 else data)


def noise(data: bytes, r: random.Random) -> bytes:
    return r.randbytes(r.choice((1, 10, len(data))))


def spliced(data: bytes, r: random.Random) -> bytes:
    """Some of its bytes are noise: sizes and offsets within a format."""
    at = r.randrange(len(data))
    return (
        data[:at] + r.choice((b"\xff", b"\x00", b"\x7f", b"[", b"{", b'"', b"\n")) * r.choice((4, 8)) + data[at + 8 :]
    )


def numbers_replaced(data: bytes, r: random.Random) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    found = list(re.finditer(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text))
    for match in sorted(r.sample(found, min(len(found), r.choice((1, 1, 3)))), key=lambda m: -m.start()):
        text = text[: match.start()] + r.choice(NUMBERS) + text[match.end() :]
    return text.encode("utf-8", "surrogateescape")


def lines_mixed(data: bytes, r: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = r.randrange(len(lines))
    kind = r.randrange(8)
    if kind == 0:
        lines.insert(at, lines[at])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines[at] += b"," + b"x" * 5
    elif kind == 3:
        lines[at] = b'"' + lines[at]
    elif kind == 4:
        lines[0] = lines[0].replace(b"x", b"x\0") + r.choice((b",x0", b",x_1000000000", b",observation_99999999", b","))
    elif kind == 5:
        return b"\n".join(lines).decode("latin1").encode("utf-16")
    elif kind == 6:
        lines[at] = b"a" * 1_000_000
    else:
        return b"\r".join(lines)
    return b"\n".join(lines)


def change_one(document: object, r: random.Random) -> str | None:
    """One value of the document is another kind, another size, or gone; says which."""
    places: list = []

    def walk(node, path):
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((path, node, key))
            walk(node[key], (*path, key))

    walk(document, ())
    if not places:
        return None
    deep = r.choice(sorted({len(path) for path, _, _ in places}))  # each level alike: long lists are not all there is
    path, node, key = r.choice([place for place in places if len(place[0]) == deep])
    kind = r.randrange(4)
    hostile = [None, True, -1, 0, 1e39, float("inf"), float("nan"), 10**30, 10**400, [], {}, [[]], {"a": {"b": 1}},
               [1, "x"], "x" * 100_000, [0] * 10_000, *TEXTS]  # fmt: skip
    told = ".".join(map(str, (*path, key)))
    if kind == 0:
        del node[key]
        return f"{told} is gone"
    if kind == 1 and isinstance(node, dict):
        new = r.choice(TEXTS)
        node[new] = node.pop(key)
        return f"{told} is called {new[:40]!r}"
    node[key] = r.choice(hostile)
    return f"{told} is {repr(node[key])[:40]}"


def json_changed(data: bytes, r: random.Random) -> bytes | None:
    first, newline, rest = data.partition(b"\n") if data.count(b"\n{") else (data, b"", b"")
    try:
        document = json.loads(first)
    except ValueError:
        return None
    return None if change_one(document, r) is None else json.dumps(document).encode() + newline + rest


def resealed(path: Path, r: random.Random) -> str | None:
    """A stored object that somebody changed, with digests that are right: what is wrong is in the fields."""
    from vestige.store import objects

    if path.suffix not in (".json", ".jsonl"):
        return None
    first, newline, rest = (
        path.read_bytes().partition(b"\n") if path.suffix == ".jsonl" else (path.read_bytes(), b"", b"")
    )
    try:
        document = json.loads(first)
        tensors = document["tensors"]
    except (ValueError, TypeError, KeyError):
        return None
    if tensors and r.random() < 0.5:
        told = other_tensor(path.with_name(tensors["file"]), tensors["digests"], r)
    else:
        told = change_one(document["fields"], r)
    try:
        sealed = {key: objects._digest(objects.canonical(value).encode()) for key, value in document["fields"].items()}
    except ValueError:  # a NaN, or half of a letter: it has no digest
        return None
    document |= {"digests": sealed, "tensors_digest": objects._digest(objects.canonical(tensors).encode())}
    path.write_bytes(json.dumps(document).encode() + newline + rest)
    return told


def other_tensor(path: Path, digests: dict[str, str], r: random.Random) -> str:
    """One tensor of the file is another; its digest is right."""
    import torch
    from safetensors.torch import load_file, save_file

    from vestige.store import objects

    tensors = load_file(path)
    key = r.choice(sorted(tensors))
    x = tensors[key]
    changes = {
        "nan": lambda: torch.full_like(x.double(), float("nan")),
        "infinite": lambda: torch.full_like(x.double(), float("inf")),
        "large": lambda: torch.full_like(x.double(), 1e300),
        "zero": lambda: torch.zeros_like(x),
        "negative": lambda: -torch.ones_like(x.double()),
        "empty": lambda: x.reshape(-1)[:0].clone(),
        "flat": lambda: x.reshape(-1).clone(),
        "longer": lambda: torch.cat([x.reshape(-1), x.reshape(-1)]),
        "deeper": lambda: x[None].clone(),
        "whole": lambda: torch.ones(x.shape, dtype=torch.int64),
        "truth": lambda: torch.ones(x.shape, dtype=torch.bool),
        "half": lambda: torch.ones(x.shape, dtype=torch.float16),
    }
    name = r.choice(sorted(changes))
    if r.random() < 0.1:
        del tensors[key], digests[key]
        name = "gone"
    else:
        tensors[key] = changes[name]()
        digests[key] = objects._tensor_digest(tensors[key])
    save_file(tensors, path)
    return f"{key} is {name}"


def nested(data: bytes, r: random.Random) -> bytes:
    depth = r.choice((200, 2000, 200_000))
    opened, closed = r.choice((("[", "]"), ('{"a":', "}"), ("{a=", "}")))
    inner = opened * depth + "1" + closed * depth
    forms = (
        inner,
        f"name = {inner}\n",
        f'{{"format": {inner}}}',
        ".".join(["a"] * depth) + " = 1\n",
        "[" + "a." * depth + "a]\n",
    )
    whole = r.choice(forms).encode()
    return whole if r.random() < 0.6 else data + b"\n" + whole


def header_claims(data: bytes, r: random.Random) -> bytes | None:
    """The header of an .npy, a .safetensors or a .png says another size or type."""
    if data.startswith(b"\x93NUMPY"):
        text = data[10 : 10 + struct.unpack("<H", data[8:10])[0]].decode("latin1")
        if r.random() < 0.6:
            text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {r.choice(SHAPES)}", text)
        else:
            text = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {r.choice(TYPES)!r}", text)
        return data[:8] + struct.pack("<H", len(text) % 65536) + text.encode("latin1") + data[10 + len(text) :]
    if data.startswith(b"\x89PNG"):
        size = struct.pack(">II", *r.choice(((60000, 60000), (0, 0), (2**31 - 1, 1), (9400, 9400), (3, 3))))
        body = b"IHDR" + size + data[24:29]
        return data[:12] + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    if data[8:9] == b"{":
        length = struct.unpack("<Q", data[:8])[0]
        claimed = r.choice((0, 1, length * 2, 2**40, 2**63, 2**64 - 1))
        if r.random() < 0.4:
            return struct.pack("<Q", claimed) + data[8:]
        text = data[8 : 8 + length].decode()
        change = r.choice(
            (("F64", "I64"), ("F64", "BF16"), ("F64", "F99"), ("[0,", "[8,"), ("F32", "BOOL"), ('"', "'"), (",", ""))
        )
        text = text.replace(*change)
        return struct.pack("<Q", len(text)) + text.encode() + data[8 + length :]
    return None


def arrays() -> dict[str, Callable[[np.random.Generator], np.ndarray]]:
    def planted(value):
        def make(g):
            x = g.normal(size=(120, 2))
            x[g.integers(120), g.integers(2)] = value
            return x

        return make

    return {
        **{f"one cell {v:g}": planted(v) for v in (np.nan, np.inf, 1e39, -1e39, 1e300, 1.7e308, 1e-320, 2.0**60)},
        "past 2^53": lambda g: g.integers(0, 2, (120, 2)) + 2**60,
        "unsigned": lambda g: g.integers(0, 2, (120, 2)).astype(np.uint64) + np.uint64(2**64 - 3),
        "words": lambda g: np.array([["a", "b"]] * 120),
        "complex": lambda g: g.normal(size=(120, 2)) * 1j,
        "no rows": lambda g: np.zeros((0, 2)),
        "no columns": lambda g: np.zeros((120, 0)),
        "one row": lambda g: np.zeros((1, 2)),
        "one number": lambda g: np.array(3.0),
        "four axes": lambda g: g.normal(size=(120, 1, 2, 1)),
        "truth": lambda g: g.random((120, 2)) < 0.5,
        "constant": lambda g: np.full((120, 2), 0.1),
        "dates": lambda g: np.full((120, 2), "2020-01-01", "M8[s]"),
        "objects": lambda g: np.array([[{}, 1]] * 120, dtype=object),
        "records": lambda g: np.zeros(120, dtype=[("a", "f8"), ("b", "i4")]),
        "half": lambda g: g.normal(size=(120, 2)).astype(np.float16),
        "wide": lambda g: g.normal(size=(120, 300)),
        "large": lambda g: g.normal(size=(120, 2)) * 1e200,
        "tiny": lambda g: g.normal(size=(120, 2)) * 1e-200,
    }


def other_values(path: Path, r: random.Random) -> str | None:
    """A whole file of the same format whose values are odd."""
    name = r.choice(sorted(arrays()))
    x = arrays()[name](np.random.default_rng(r.randrange(2**32)))
    flat = np.zeros((len(x), x.shape[1])) if not x.size else x.reshape(len(x), -1) if x.ndim else x.reshape(1, 1)
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, x, allow_pickle=True)
    elif path.suffix == ".npz":
        with np.load(path) as old:
            keys = list(old)
            kept = {key: old[key] for key in keys}
        changed = r.choice(keys)
        np.savez(buffer, **(kept | {changed: x}), allow_pickle=True)
        name += f" in {changed}"
    elif path.suffix == ".csv" and x.dtype.kind not in "OV":
        names = path.read_text().partition("\n")[0].split(",")
        wanted = [flat[:, j % max(flat.shape[1], 1)] for j in range(len(names))] if flat.shape[1] else []
        rows = zip(*(column.tolist() for column in wanted), strict=True)
        buffer.write("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]).encode())
    elif path.suffix == ".parquet" and x.dtype.kind not in "OVc":
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = pq.read_schema(path).names
        columns = {n: pa.array(flat[:, j % flat.shape[1]]) for j, n in enumerate(names)} if flat.shape[1] else {}
        kind = r.randrange(4)
        if kind == 1 and columns:
            columns[names[0]] = pa.array([[1, 2]] * len(flat))
        elif kind == 2 and columns:
            columns[names[0]] = pa.array([{"a": 1}] * len(flat))
        elif kind == 3 and columns:
            columns[names[0]] = pa.nulls(len(flat))
        pq.write_table(pa.table(columns), buffer)
        name += f", kind {kind}"
    else:
        return None
    path.write_bytes(buffer.getvalue())
    return name


def bomb(path: Path, r: random.Random) -> str | None:
    """An archive that is small on disk and large in memory, or whose members lie."""
    if path.suffix != ".npz":
        return None
    kind = r.choice(("zeros", "names", "twice", "encrypted"))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (40_000_000, 2)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if kind == "zeros":
            with archive.open("x.npy", "w") as member:
                member.write(header.getvalue())
                for _ in range(640 if r.random() < 0.3 else 10):
                    member.write(bytes(1_000_000))
        elif kind == "names":
            for name in ("../x.npy", "/etc/x.npy", "é\n.npy", "x"):
                archive.writestr(name, header.getvalue() if r.random() < 0.5 else b"")
        elif kind == "twice":
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(2):
                    archive.writestr("x.npy", header.getvalue() + bytes(16))
        else:
            archive.writestr("x.npy", header.getvalue())
    if kind == "encrypted":
        data = bytearray(path.read_bytes())
        data[data.rindex(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(data)
    return kind


def in_its_place(path: Path, r: random.Random) -> str:
    """Something that is no regular file."""
    kind = r.choice(("fifo", "folder", "loop", "dangling", "zeros", "terminal", "gone", "itself in a folder", "socket"))
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    elif kind == "terminal":
        path.symlink_to("/dev/tty")
    elif kind == "itself in a folder":
        path.mkdir()
        (path / "round").symlink_to("..")
    elif kind == "socket":
        import socket

        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            socket.socket(socket.AF_UNIX).bind(path.name)
        finally:
            os.chdir(here)
    return kind


def in_its_folder(path: Path, r: random.Random) -> str:
    """Something odd beside it, which a verb that reads the folder meets."""
    kind = r.choice(("fifo", "loop", "zeros", "name", "empty", "cycle"))
    beside = path.with_name(f"0{path.name}")
    if kind == "fifo":
        os.mkfifo(beside)
    elif kind == "loop":
        beside.symlink_to(beside.name)
    elif kind == "zeros":
        beside.symlink_to("/dev/zero")
    elif kind == "name":
        with contextlib.suppress(OSError):
            shutil.copy(path, os.fsencode(path.parent) + b"/\xff\n\x1b[31m" + os.fsencode(path.suffix))
    elif kind == "empty":
        beside.touch()
    else:
        (path.parent / "cycle").symlink_to(".")
    return kind


BINARY = {f.__name__: f for f in (flip, truncate, duplicate, cut_out, foreign_magic, noise, spliced)}
TEXT = {f.__name__: f for f in (numbers_replaced, lines_mixed, nested)}
ODD = {f.__name__: f for f in (other_values, bomb, in_its_place, in_its_folder)}
SEALED = 0.5  # of stored objects: with digests that are right, so that what reads the fields is met


def damaged(path: Path, r: random.Random) -> str:
    """Damage the file; returns how."""
    if r.random() < SEALED and (told := resealed(path, r)) is not None:
        return f"resealed: {told}"
    for _ in range(50):
        kind = r.choice(("binary", "text", "json", "header", "odd", "odd"))
        if kind == "odd":
            name = r.choice(sorted(ODD))
            if (told := ODD[name](path, r)) is not None:
                return f"{name}: {told}"
            continue
        data, is_text = path.read_bytes(), path.suffix in (".csv", ".json", ".jsonl", ".toml", ".pyd")
        if kind == "text" and not is_text and r.random() < 0.9:
            continue
        by_name = {"binary": BINARY, "text": TEXT, "json": {"json": json_changed}, "header": {"header": header_claims}}[
            kind
        ]
        name = r.choice(sorted(by_name))
        changed = by_name[name](data, r) if data else None
        if changed is not None and (changed != data):
            path.write_bytes(changed)
            return name
    path.write_bytes(b"")
    return "empty"


def worded(words: list[str], r: random.Random) -> str:
    """Damage one word of a command; returns which and how. What it names stays within the folders."""
    able = [i for i in range(1, len(words)) if not words[i].startswith(("-", "/"))]
    at = r.choice(able)
    old = words[at]
    head, equals, _ = old.rpartition("=")
    texts = [text for text in TEXTS if "\0" not in text and "\ud800" not in text and "/" not in text and text != ".."]
    near = old[:-1] + r.choice("xyz")
    new = r.choice([r.choice(NUMBERS), r.choice(NUMBERS), r.choice(texts), near, "[" * 3000, "[" * 100_000])
    words[at] = f"{head}={new}" if equals and r.random() < 0.7 else new
    return f"word {at} ({old}) is {words[at][:80]!r}"


# Running. --------------------------------------------------------------------------------------------------------


def build_rows(folder: Path) -> np.random.Generator:
    """Two sets of rows as files of every kind, and the moments of one: all that the first `FAST` inputs read."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    g = np.random.default_rng(0)
    for name, shift in (("p", 0.0), ("q", 0.2)):
        x = g.normal(shift, 1, (120, 2))
        np.save(folder / f"{name}.npy", x)
        np.savez(folder / f"{name}.npz", x=x)
        save_file({"x": x}, folder / f"{name}.safetensors")
        np.savetxt(folder / f"{name}.csv", x, delimiter=",", header="x0,x1", comments="")
        pq.write_table(pa.table({"x0": x[:, 0], "x1": x[:, 1]}), folder / f"{name}.parquet")
        (folder / "images" / name).mkdir(parents=True)
        for i in range(12):
            Image.fromarray(g.integers(0, 255, (4, 4), dtype=np.uint8)).save(folder / "images" / name / f"{i}.png")
    np.savez(folder / "stats.npz", mu=np.zeros(2), sigma=np.eye(2), n=np.int64(500))
    return g


def build(folder: Path) -> None:
    """Small valid inputs of every kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from linear_system import System, linear_policy
    from toys import blobs
    from vestige.cli import main
    from vestige.continual.audit import audited_run
    from vestige.continual.learners import build as learner
    from vestige.data.streams import split
    from vestige.features import PCA

    g = build_rows(folder)
    np.save(folder / "w.npy", g.random(120) + 0.5)
    np.savetxt(folder / "w.csv", g.random(120) + 0.5, header="weight", comments="")
    R = np.tril(g.random((4, 4)))
    np.save(folder / "R.npy", R)
    np.savetxt(folder / "R.csv", R, delimiter=",", header="a,b,c,d", comments="")
    np.savetxt(folder / "one.csv", R[3:], delimiter=",")
    (folder / "R.json").write_text(json.dumps(R.tolist()))
    many_seeds(folder, R)
    stream = split(blobs(), 2)
    for seed, name in enumerate("ab"):
        record = audited_run(stream, learner("vanilla", stream, hidden=(8,)), seed=seed)
        shutil.move(record.save(folder / "records"), folder / "records" / f"{name}.json")
    stored = Path(__file__).parents[2] / "reproductions" / "rwalk-table2.jsonl"
    (folder / "records" / "more.jsonl").write_text("".join(stored.read_text().splitlines(keepends=True)[:2]))
    (folder / "e.toml").write_text(
        '[evaluation]\nname = "Mine"\ntasks = 5\nshared_head = true\nlabels_at_test = false\nkept_samples = 0\n'
        "retrains = false\nseconds = [10.0, 10.5, 11.0]\nheld_bytes = [100, 100, 100]\n"
    )
    (folder / "bounds.toml").write_text("x0 = [-4, 4]\nx1 = [-4.5, 5.0]\n")
    promised = ["--epsilon", "30", "--bounds", f"{folder}/bounds.toml"]  # large, so that 120 rows are told about
    assert main(["keep", f"{folder}/p.npy", "-o", f"{folder}/private.vestige", *promised]) == 0
    (folder / "v").mkdir()
    assert main(["keep", f"{folder}/p.csv", "-o", f"{folder}/kept.vestige"]) == 0
    like = ["--like", f"{folder}/kept.vestige"]
    assert main(["keep", f"{folder}/q.csv", "-o", f"{folder}/v/kept.vestige", *like]) == 0
    (folder / "data").mkdir()
    x, y = g.integers(0, 255, (20, 8, 8), dtype=np.uint8), np.arange(20) % 10
    for name in ("digits", "mnist"):
        np.savez(folder / "data" / f"{name}.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    system = System.default()
    for kind in ("npz", "csv", "parquet"):
        system.logs(linear_policy([[0.0, -0.2]], [0.0], 0.5), 12, 5, seed=0).write(folder / f"logs.{kind}")
    linear_policy([[0.1, -0.6]], [0.1], 0.3).save(folder / "policy.json")
    decisions = {"context_x": g.random(40), "action": ["a", "b"] * 20, "reward": g.random(40), "propensity": [0.5] * 40}
    decisions |= {"policy_a": [0.25] * 40, "policy_b": [0.75] * 40}
    pq.write_table(pa.table(decisions), folder / "decisions.parquet")
    told = [",".join(map(str, row)) for row in zip(*decisions.values(), strict=True)]
    (folder / "decisions.csv").write_text("\n".join([",".join(decisions), *told]))
    PCA(dims=1).fit(np.load(folder / "p.npy")).save(folder / "map.json")
    m = str(folder / "m")
    first = ["--real", f"a={folder}/p.npy", "--model", f"a={folder}/q.npy"]
    assert main(["monitor", "start", m, "--strategy", "every-step", "--divergences", "kl,js"]) == 0
    assert main(["monitor", "step", m, *first]) in CODES
    assert main(["monitor", "step", m, "--model", f"a={folder}/q.npy"]) in CODES
    own = f"{OWN} --real {{i}}/p.npy --fake {{i}}/q.npy".format(i=folder, o=folder)
    assert main(own.split()) == 0


def many_seeds(folder: Path, R: np.ndarray) -> None:
    """Two runs of the matrix, as other frameworks write them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [(seed, i, j, float(v)) for seed in (0, 1) for (i, j), v in np.ndenumerate(R)]
    named = dict(zip(("seed", "trained", "tested", "accuracy"), map(list, zip(*cells, strict=True)), strict=True))
    pq.write_table(pa.table(named), folder / "long.parquet")
    (folder / "long.csv").write_text("\n".join([",".join(named), *(",".join(map(str, cell)) for cell in cells)]))
    metric = "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp{:03d}"
    runs = [{metric.format(j): v for j, v in enumerate(row)} for row in R.tolist()]
    (folder / "metrics.json").write_text(json.dumps({"0": runs, "1": runs}))
    logged = {f"accuracy_{j + 1}_task{i + 1}": np.float64(v) for _, i, j, v in cells[:16]}
    lines = [str({"model": "er", "seed": seed, "x": [1, "a'"]} | logged) for seed in (0, 1)]
    (folder / "logs.pyd").write_text("\n".join(lines))


def import_verbs() -> None:
    """All that a verb other than `compare` imports, so that a forked process need not."""
    import vestige.policy
    import vestige.runner.registry
    import vestige.runner.report  # noqa: F401


def warm(folder: Path) -> None:
    """Import and prepare what `compare` does, by running it."""
    from vestige.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        for case in (CASES[0], CASES[4], CASES[5]):
            main(case.words(folder, folder))


def prepared(number: int, inputs: Path, work: Path) -> tuple[list[str], str]:
    """The input of that number, its files in `work`: the command, and what was damaged."""
    r = random.Random(number)
    i, o = work / "in", work / "out"
    shutil.copytree(inputs, i)
    for name in ("out", "cwd"):
        (work / name).mkdir()
    case = r.choice(WORDED) if r.random() < 0.12 else CASES[number % len(CASES)]
    for name in case.prepared:
        shutil.copytree(i / name, o / name)
    words = case.words(i, o)
    if not case.files:
        return words, worded(words, r)
    pattern = r.choice(case.files)
    root = o if pattern.split("/")[0] in case.prepared else i
    found = sorted(p for p in root.glob(pattern) if p.is_file() and "lock" not in p.name)
    path = r.choice(found)
    return words, f"{path.relative_to(root)}: {damaged(path, r)}"


def state(work: Path) -> dict[str, object]:
    """Every file outside of the outputs: its kind, its time and what it holds."""
    found = {}
    for at, folders, files in os.walk(work):
        if Path(at) == work:
            folders.remove("out")
        for name in (*folders, *files):
            path = os.path.join(at, name)
            told = os.lstat(path)
            regular = (told.st_mode & 0o170000) == 0o100000
            held = hashlib.sha256(Path(path).read_bytes()).hexdigest() if regular else None
            found[path] = (told.st_mode, told.st_mtime_ns if regular else None, held)
    return found


@dataclass
class Told:
    """How an input ended."""

    number: int
    argv: list[str]
    damage: str
    code: int  # -n: ended by signal n
    seconds: float
    said: str
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"{self.number}: {'; '.join(self.wrong) or 'well'} ({self.code}, {self.seconds:.1f} s)"
        return "\n    ".join((head, " ".join(self.argv)[:600], self.damage, self.said[-900:]))


def faults(code: int, said: str, damage: str, left: list[str], changed: list[str]) -> list[str]:
    """What is wrong with an end: `left` are parts of files in the output folder, `changed` files outside of it."""
    wrong = []
    if code not in CODES:
        wrong.append(f"over {SECONDS} s" if code == -signal.SIGALRM else f"exit code {code}")
    # A small file must not ask for all of the memory. One that holds 640 MB of numbers may be told that it is too much:
    # a chain takes several times that.
    greedy = [] if "bomb: zeros" in damage else ["does not suffice"]
    wrong += [words for words in ("this should not happen", "Traceback (most recent", *greedy) if words in said]
    if code in (1, 2) and not re.search("error: |╭", said):
        wrong.append("no sentence")
    if (longest := max((len(line) for line in said.splitlines()), default=0)) > LONGEST:
        wrong.append(f"a line of {longest} characters")
    if code in CODES and left:
        wrong.append(f"a part of a file is left: {left[:3]}")
    if changed:
        wrong.append(f"changed outside of the output folder: {changed[:3]}")
    return wrong


def run(number: int, inputs: Path) -> Told:
    """The input of that number in a process of its own; what is wrong with how it ended."""
    from vestige.cli import main

    work = Path(tempfile.mkdtemp(prefix=f"fuzz-{number}-"))
    try:
        argv, damage = prepared(number, inputs, work)
        before, began = state(work), time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                os.chdir(work / "cwd")
                for fd, name in ((0, os.devnull), (1, work / "out" / ".stdout"), (2, work / "out" / ".stderr")):
                    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), fd)
                signal.alarm(SECONDS)
                code = main(argv)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                code = 99
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        seconds = time.monotonic() - began
        said = (work / "out" / ".stderr").read_text(errors="replace")
        told = Told(number, argv, damage, code, seconds, said)
        after = state(work)
        changed = sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))
        left = sorted(str(p.name) for p in (work / "out").rglob("*.part"))
        told.wrong.extend(faults(code, said, damage, left, changed))
        return told
    finally:
        shutil.rmtree(work, ignore_errors=True)


def together(numbers: range, folder: Path, kind: str = "inputs") -> list[Told]:
    """These inputs, in a process without the type checks of the tests, as users have it; "rows" are enough for some."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    argv = [sys.executable, __file__, "--json", "--inputs", str(folder / kind), "--kind", kind, *map(str, numbers)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    told = [Told(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one.number for one in told] == list(numbers), done.stderr[-3000:]
    return told


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def wrong_ends(told: list[Told]) -> str:
    return "\n".join(str(one) for one in told if one.wrong)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.argv.split(" {")[0])
def test_undamaged_commands_are_understood(case):
    """One that is refused for an option that the verb does not have never reads its files."""
    from vestige.cli import _verb

    assert _verb(case.words(Path("in"), Path("out"))) is not None  # misuse would have raised


def test_damaged_inputs_end_in_a_sentence(folder):
    told = together(range(FAST), folder, "rows")
    assert not wrong_ends(told)
    assert sum(one.code == 2 for one in told) > FAST / 4  # most of the damage is met, and called misuse


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_damaged_inputs_end_in_a_sentence(part, folder):
    first = FAST + part * SIZE
    told = together(range(first, first + SIZE), folder)
    assert not wrong_ends(told)
    assert any(one.code == 2 for one in told)


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ({}, None),
        ({"code": 0, "said": ""}, None),
        ({"code": 99}, "exit code 99"),
        ({"code": -signal.SIGALRM}, f"over {SECONDS} s"),
        ({"code": -signal.SIGSEGV}, f"exit code {-signal.SIGSEGV}"),
        ({"said": "error: this should not happen"}, "this should not happen"),
        ({"said": "Traceback (most recent call last):\nerror: a"}, "Traceback (most recent"),
        ({"said": "error: the memory does not suffice"}, "does not suffice"),
        ({"said": "error: the memory does not suffice", "damage": "bomb: zeros"}, None),
        ({"said": "a"}, "no sentence"),
        ({"said": "error: " + "a" * LONGEST}, f"a line of {LONGEST + 7} characters"),
        ({"left": ["a.part"]}, "a part of a file is left: ['a.part']"),
        ({"changed": ["a"]}, "changed outside of the output folder: ['a']"),
    ],
)
def test_a_wrong_end_is_told(end, fault):
    found = faults(**{"code": 2, "said": "error: a", "damage": "cut", "left": [], "changed": []} | end)
    assert found == ([] if fault is None else [fault])
    assert fault is None or fault in wrong_ends([Told(1, [], "cut", 2, 0.1, "", found)])


if __name__ == "__main__":
    import argparse
    import dataclasses

    parser = argparse.ArgumentParser(description="Run inputs by their numbers.")
    parser.add_argument("numbers", nargs="+", type=int)
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--kind", choices=("inputs", "rows"), default="inputs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    inputs = given.inputs or Path(tempfile.mkdtemp(prefix="fuzz-")) / given.kind
    with contextlib.redirect_stdout(sys.stderr):
        if not inputs.exists():
            (build_rows if given.kind == "rows" else build)(inputs)
        if given.kind != "rows":
            import_verbs()
        warm(inputs)
    for number in given.numbers:
        found = run(number, inputs)
        print(json.dumps(dataclasses.asdict(found)) if given.json else found, flush=True)
