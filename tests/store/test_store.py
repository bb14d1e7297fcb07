"""Whole or not at all; damage named by file and key; nothing newer, foreign or outside the folder is read."""

import errno
import hashlib
import io
import json
import math
import os
import random
import socket
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save as dump_tensors

from vestige import store
from vestige.core.errors import InputError, StoreError

FIELDS = {"name": "run", "config": {"lr": 0.1, "sizes": [1, 2]}, "nothing": None, "ünïcode": "é\n\u2028"}
TENSORS = {"w": torch.arange(6.0).reshape(2, 3), "steps": torch.tensor(7), "empty": torch.zeros(0, 2)}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='aé\n"\\0'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3, alphabet="aé.0"), inner, max_size=3)
    ),
    max_leaves=8,
)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.fixture
def stored(tmp_path):
    return store.save(tmp_path / "x.json", "thing", FIELDS, TENSORS)


def canonical(value):
    return store.canonical(value).encode()


def rewrite(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@settings(max_examples=40, deadline=None)
@given(
    fields=st.dictionaries(st.text(max_size=4, alphabet="aé.0 /"), JSON, max_size=4),
    shapes=st.dictionaries(
        st.text(min_size=1, max_size=4, alphabet="ab.é"),
        st.tuples(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES)),
        max_size=3,
    ),
)
def test_what_was_saved_is_what_is_loaded(tmp_path_factory, fields, shapes):
    folder = tmp_path_factory.mktemp("round")
    tensors = {key: torch.ones(shape).to(dtype) for key, (shape, dtype) in shapes.items()}
    got_fields, got_tensors = store.load(store.save(folder / "x.json", "thing", fields, tensors), "thing")
    assert repr(got_fields) == repr(fields)
    assert list(got_fields) == list(fields)
    assert got_tensors.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert got_tensors[key].dtype == tensor.dtype
        assert got_tensors[key].shape == tensor.shape
        assert torch.equal(got_tensors[key], tensor)


def test_bits_survive_and_arguments_are_left_alone(tmp_path):
    odd = torch.tensor([0.1, -0.0, math.nan, math.inf, 5e-324], dtype=torch.float64)
    with_gradient = torch.ones(3, requires_grad=True)
    tensors = {
        "odd": odd,
        "grad": with_gradient,
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "tied": odd,
        "part": odd[1:3],
    }
    _, got = store.load(store.save(tmp_path / "x.json", "thing", {"f": 0.1 + 0.2}, tensors), "thing")
    assert torch.equal(got["odd"].view(torch.int64), odd.view(torch.int64))
    assert torch.equal(got["tied"].view(torch.int64), odd.view(torch.int64))
    assert torch.equal(got["part"].view(torch.int64), odd[1:3].clone().view(torch.int64))
    assert torch.equal(got["turned"], tensors["turned"])
    assert with_gradient.requires_grad
    assert store.load(tmp_path / "x.json", "thing")[0]["f"] == 0.1 + 0.2


def test_keys_that_are_numbers_come_back_as_words(tmp_path):
    path = store.save(tmp_path / "x.json", "thing", {"by_task": {2: "a", 10: "b"}})
    assert store.load(path, "thing")[0] == {"by_task": {"2": "a", "10": "b"}}


@pytest.mark.parametrize(
    "fields",
    [{"x": math.nan}, {"x": [math.inf]}, {"x": object()}, {"x": {1: 0, "1": 1}}, {"x": "\udc80"}, {"x": torch.ones(1)}],
)
def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path, fields):
    with pytest.raises(InputError, match="The 'fields' of thing must be plain JSON without NaN"):
        store.save(tmp_path / "x.json", "thing", fields)
    endless = []
    endless.append(endless)
    with pytest.raises(InputError, match="plain JSON"):
        store.save(tmp_path / "x.json", "thing", {"x": endless})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tensors", [{"a": torch.eye(2).to_sparse()}, {"__metadata__": torch.ones(1)}])
def test_tensors_that_the_format_cannot_hold_are_refused(tmp_path, tensors):
    with pytest.raises(InputError, match="must be dense, each under a name"):
        store.save(tmp_path / "x.json", "thing", {}, tensors)
    with pytest.raises(InputError, match=r"ends in \.json\. Got x\.txt"):
        store.save(tmp_path / "x.txt", "thing", {})
    assert list(tmp_path.iterdir()) == []


# Damage.


@pytest.mark.parametrize("key", FIELDS)
def test_a_field_that_was_altered_is_named(stored, key):
    rewrite(stored, lambda d: d["fields"].update({key: "altered"}))
    with pytest.raises(StoreError, match=rf"x\.json: key '{key}' does not match its digest"):
        store.load(stored, "thing")


@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.parametrize("where", ["fields", "digests"])
def test_a_field_that_is_gone_is_named(stored, where, key):
    rewrite(stored, lambda d: d[where].pop(key))
    with pytest.raises(StoreError, match=rf"x\.json: key '{key}' is missing"):
        store.load(stored, "thing")


@pytest.mark.parametrize("key", ["format", "version", "digests", "fields", "tensors", "tensors_digest"])
@pytest.mark.parametrize("value", ["gone", None, "altered", 3.5, [], {"a": 1}])
def test_every_key_of_the_file_is_guarded(stored, key, value):
    rewrite(stored, lambda d: d.pop(key) if value == "gone" else d.update({key: value}))
    with pytest.raises(StoreError, match=r"x\.json") as refusal:
        store.load(stored, "thing")
    assert f"'{key.removesuffix('_digest')}'" in str(refusal.value) or value == {"a": 1}


@pytest.mark.parametrize("key", TENSORS)
def test_a_tensor_that_was_altered_is_named(stored, key):
    entry = json.loads(stored.read_text())["tensors"]
    file = stored.with_name(entry["file"])
    other = {**TENSORS, key: torch.ones(1)}
    file.write_bytes(dump_tensors(other))
    with pytest.raises(StoreError, match=rf"x\.[0-9a-f]{{16}}\.safetensors: key '{key}' does not match its digest"):
        store.load(stored, "thing")
    del other[key]
    file.write_bytes(dump_tensors({**other, "stranger": torch.ones(1)}))
    with pytest.raises(StoreError, match=rf"safetensors: key '({key}|stranger)' is missing"):
        store.load(stored, "thing")


def test_one_flipped_bit_anywhere_is_noticed(stored):
    dice = random.Random(0)
    file = stored.with_name(json.loads(stored.read_text())["tensors"]["file"])
    for path in (stored, file):
        whole = path.read_bytes()
        for _ in range(150):
            at = dice.randrange(len(whole))
            torn = bytearray(whole)
            torn[at] ^= 1 << dice.randrange(8)
            path.write_bytes(bytes(torn))
            try:
                loaded = store.load(stored, "thing")
            except StoreError as error:
                assert path.stem in str(error)  # noqa: PT017
            else:  # between the keys: white space
                assert loaded[0] == FIELDS
                assert all(torch.equal(loaded[1][key], TENSORS[key]) for key in TENSORS)
        path.write_bytes(whole)


def test_damage_is_blamed_on_the_file_that_has_it(stored):
    tensors = stored.with_name(json.loads(stored.read_text())["tensors"]["file"])
    for path in (stored, tensors):
        whole = path.read_bytes()
        for at in range(0, len(whole), 3):
            for torn in (
                whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
                whole[:at] + b"7" + whole[at + 1 :],
                whole[:at] + whole[at + 5 :],
            ):
                path.write_bytes(torn)
                try:
                    fields, _ = store.load(stored, "thing")
                except StoreError as error:
                    assert str(error).startswith(str(path)), (at, str(error))  # noqa: PT017
                else:  # between the keys: white space
                    assert fields == FIELDS
        path.write_bytes(whole)


@pytest.mark.parametrize("keep", [0, 1, 0.5, -1])
def test_a_torn_file_is_named(stored, keep):
    file = stored.with_name(json.loads(stored.read_text())["tensors"]["file"])
    for path, sentence in ((file, "is torn or not safetensors"), (stored, "is torn or not JSON")):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep - 1 if keep < 0 else keep])
        with pytest.raises(StoreError, match=sentence) as refusal:
            store.load(stored, "thing")
        assert path.name in str(refusal.value)
        path.write_bytes(whole)
    file.unlink()
    with pytest.raises(StoreError, match=r"safetensors, named by x\.json, does not exist"):
        store.load(stored, "thing")


def test_a_file_from_the_future_or_of_another_kind_is_refused_by_name(stored):
    with pytest.raises(StoreError, match=r"key 'format' must be 'vestige/chain'\. Got 'vestige/thing' instead"):
        store.load(stored, "chain")
    rewrite(stored, lambda d: d.update(version=store.FORMAT + 1))
    with pytest.raises(StoreError, match=r"x\.json was written in format 2 by a newer Vestige.*Upgrade"):
        store.load(stored, "thing")
    for version in (0, -1, True, "1"):
        rewrite(stored, lambda d, version=version: d.update(version=version))
        with pytest.raises(StoreError, match=r"x\.json: key 'version' must be a whole number"):
            store.load(stored, "thing")


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", "x.pt", None, 3, "x.safetensors/"]
)
def test_tensors_are_read_from_the_same_folder_alone(stored, name):
    rewrite(stored, lambda d: d["tensors"].update(file=name))
    with pytest.raises(StoreError, match=r"x\.json: key 'tensors' does not match its digest"):
        store.load(stored, "thing")
    # by somebody who knows how digests are made
    rewrite(stored, lambda d: d.update(tensors_digest=hashlib.sha256(canonical(d["tensors"])).hexdigest()[:32]))
    with pytest.raises(StoreError, match=r"x\.json: key 'tensors\.file' must be a plain file name"):
        store.load(stored, "thing")


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere\.json does not exist"):
        store.load(tmp_path / "nowhere.json", "thing")
    with pytest.raises(StoreError, match=r"must be a regular file\. Got a folder instead"):
        store.load(tmp_path, "thing")
    for text in ("[1]", "3", "[" * 100_000, '{"format": NaN}', "\x00"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(StoreError, match=r"x\.json"):
            store.load(tmp_path / "x.json", "thing")


def test_what_is_no_regular_file_is_refused_before_it_is_opened(tmp_path, stored):
    os.mkfifo(tmp_path / "pipe.json")
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(str(tmp_path / "socket.json"))
    (tmp_path / "link.json").symlink_to(stored)
    (tmp_path / "stuck.json").symlink_to("pipe.json")
    names = {"pipe.json": "a pipe", "stuck.json": "a pipe", "socket.json": "a socket", ".": "a folder"}
    for path, got in [(tmp_path / name, got) for name, got in names.items()] + [("/dev/zero", "a device")]:
        with pytest.raises(InputError, match=rf"must be a regular file\. Got {got}.* instead"):
            store.regular(path)
    assert store.regular(tmp_path / "link.json").samefile(stored)
    with pytest.raises(InputError, match="zero bytes"):
        store.regular("a\0b")
    with pytest.raises(FileNotFoundError):
        store.regular(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"pipe\.json' must be a regular file"):
        store.load(tmp_path / "pipe.json", "thing")


def test_tensors_in_a_pipe_are_refused(stored):
    tensors = stored.with_name(json.loads(stored.read_text())["tensors"]["file"])
    tensors.unlink()
    os.mkfifo(tensors)
    with pytest.raises(StoreError, match=r"safetensors' must be a regular file\. Got a pipe"):
        store.load(stored, "thing")


# Atomicity.


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(stored, monkeypatch):
    before = sorted(p.name for p in stored.parent.iterdir())

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.save(stored, "thing", {"new": 1}, {"w": torch.zeros(9)})
    assert sorted(p.name for p in stored.parent.iterdir()) == before
    assert store.load(stored, "thing")[0] == FIELDS


@pytest.mark.parametrize("place", ["fsync", "replace", "open", "write"])
def test_a_full_disk_is_named_by_the_file_and_leaves_the_old_pair(stored, monkeypatch, place):
    before = {path: path.read_bytes() for path in stored.parent.iterdir()}
    real, counted = getattr(os, place), iter(range(100))

    def full(*args, **options):
        # The JSON, which comes after the tensors, is what does not fit: two operations a write, or one.
        if next(counted) < {"fsync": 2, "replace": 1, "open": 3}[place]:
            return real(*args, **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        if place == "write":
            m.setattr("vestige.store.objects.open", lambda *_: Full(), raising=False)
        else:
            m.setattr(os, place, full)
        with pytest.raises(OSError, match="No space left") as failure:
            store.save(stored, "thing", {"new": 1}, {"w": torch.zeros(9)})
    assert str(failure.value.filename).startswith(str(stored.with_suffix("")))
    assert ".part" not in failure.value.filename
    assert {path: path.read_bytes() for path in stored.parent.iterdir()} == before
    assert store.load(stored, "thing")[0] == FIELDS


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def umask():
    before = os.umask(0o077)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0o027, 0o640)])
def test_a_new_file_has_the_mode_that_the_umask_gives_and_an_old_one_keeps_its_own(tmp_path, umask, mask, mode):
    umask(mask)
    path = store.save(tmp_path / "x.json", "thing", FIELDS, TENSORS)
    (tmp_path / "plain").touch()
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {oct(mode)}
    path.chmod(0o604)
    umask(0o022)
    store.save(path, "thing", {})
    assert oct(path.stat().st_mode & 0o777) == oct(0o604)


def test_a_file_is_replaced_and_never_overwritten(stored):
    names = list(stored.parent.iterdir())
    old = {p: p.read_bytes() for p in names}
    for p in names:
        os.link(p, p.with_suffix(".link"))
    store.save(stored, "thing", {"new": 1}, {"w": torch.zeros(9)})
    store.write_bytes(names[0], b"")
    for p in names:  # a reader who had the old file open still reads the old file, whole
        assert p.with_suffix(".link").read_bytes() == old[p]


def test_bytes_reach_the_disk_before_the_name_and_the_tensors_before_the_json(tmp_path, monkeypatch):
    fsync, replace, calls = os.fsync, os.replace, []
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(b.suffix), replace(a, b)))
    store.save(tmp_path / "x.json", "thing", FIELDS, TENSORS)
    assert calls == ["fsync", ".safetensors", "fsync", "fsync", ".json", "fsync"]


def test_the_next_save_sweeps_its_own_orphans_and_nothing_else(tmp_path):
    (tmp_path / "x[1].0123456789abcdef.safetensors").touch()
    (tmp_path / ".x[1].json.abcd_123.part").touch()
    (tmp_path / ".x[1].0123456789abcdef.safetensors.abcd_123.part").touch()
    others = ["x1.0123456789abcdef.safetensors", "x[1].y.0123456789abcdef.safetensors", "x[1].best.safetensors"]
    others += [".x[1].y.json.abcd_123.part", "x[1].y.json"]
    for name in others:
        (tmp_path / name).touch()
    path = store.save(tmp_path / "x[1].json", "thing", {}, {"w": torch.ones(1)})
    ours = {"x[1].json", json.loads(path.read_text())["tensors"]["file"]}
    assert {p.name for p in tmp_path.iterdir()} == ours | set(others)
    store.save(path, "thing", {})  # no tensors any more
    assert {p.name for p in tmp_path.iterdir()} == {"x[1].json"} | set(others)


# One process imports torch and forks a saver for each kill; it prints how often files of an unfinished save were left.
KILLING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from vestige import store

path, dice, interrupted = Path(sys.argv[1]), random.Random(0), 0
store.save(path, "thing", {"i": -1}, {"w": torch.full((5000,), -1.0)})
for _ in range(25):
    saver = os.fork()
    if not saver:
        for i in range(10**9):
            store.save(path, "thing", {"i": i, "text": "x" * 20000}, {"w": torch.full((5000,), float(i))})
    time.sleep(0.01 + 0.05 * dice.random())
    os.kill(saver, signal.SIGKILL)
    os.waitpid(saver, 0)
    fields, tensors = store.load(path, "thing")
    assert torch.equal(tensors["w"], torch.full((5000,), float(fields["i"]))), fields["i"]
    interrupted += len(os.listdir(path.parent)) > 2
store.save(path, "thing", {})
print(interrupted, os.listdir(path.parent))
"""


def test_a_process_killed_while_saving_never_leaves_a_torn_file(tmp_path):
    argv = [sys.executable, "-c", KILLING, str(tmp_path / "x.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    interrupted, left = done.stdout.split(maxsplit=1)
    assert int(interrupted) > 0  # else it was never killed in the middle, and nothing was shown
    assert left == "['x.json']\n"  # and what the killed left behind is swept up


def test_killed_at_each_step_of_a_save_the_file_is_the_old_or_the_new(tmp_path, monkeypatch):
    """The same without luck: stop at the n-th call to the system, for every n."""

    class Killed(BaseException):
        pass

    calls = {name: getattr(os, name) for name in ("fsync", "replace", "chmod", "open", "scandir")}
    outcomes = []
    for n in range(40):
        path = tmp_path / str(n) / "x.json"
        store.save(path, "thing", {"v": "old"}, {"w": torch.zeros(3)})
        left = [n]

        def dying(name, left=left):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return calls[name](*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, dying(name))
            try:
                store.save(path, "thing", {"v": "new"}, {"w": torch.ones(3)})
                finished = True
            except Killed:
                finished = False
        fields, tensors = store.load(path, "thing")
        assert tensors["w"].tolist() == ([0.0] * 3 if fields["v"] == "old" else [1.0] * 3)
        outcomes.append((fields["v"], finished))
        if finished:
            break
    assert outcomes[0] == ("old", False)
    assert ("new", False) in outcomes
    assert outcomes[-1] == ("new", True)


# Small parts.


def test_the_canonical_text_is_one_for_equal_values():
    assert store.canonical({"b": 1, "a": [1.0, "é"]}) == '{"a":[1.0,"é"],"b":1}'
    assert store.content_id({"b": 1, "a": 2}) == store.content_id({"a": 2, "b": 1})
    assert store.content_id({"a": 2}) != store.content_id({"a": 3})
    assert len(store.content_id({})) == 16
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.canonical(math.nan)


def test_load_into_names_the_key_that_does_not_fit():
    skeleton = {"w": torch.zeros(2)}
    assert store.load_into(skeleton, {"w": torch.ones(2)}, "net")["w"].tolist() == [1, 1]
    for tensors, sentence in (
        ({}, "The stored net lacks the key 'w'"),
        ({"w": torch.ones(2), "b": torch.ones(1)}, "has a key 'b' that this configuration does not know"),
        ({"w": torch.ones(3)}, r"key 'w' of the stored net must be torch.float32 \(2,\)\. Got torch.float32 \(3,\)"),
        ({"w": torch.ones(2).double()}, r"Got torch.float64 \(2,\) instead"),
    ):
        with pytest.raises(StoreError, match=sentence):
            store.load_into(skeleton, tensors, "net")
