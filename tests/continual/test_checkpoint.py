"""A run that was interrupted and went on gives the Record of one that was not, to the bit, and touches no past task."""

import json
import os
import signal
import sys
from importlib import import_module

import pytest

from toys import blobs
from vestige.continual import checkpoint, protocol
from vestige.continual.learners import METHODS, build
from vestige.continual.learners.frozen import FrozenFeatures
from vestige.data.stream import Segment
from vestige.data.streams import blurred, split

SMALL = {"hidden": (8,)}
VARIATIONAL = SMALL | {"train_samples": 2, "test_samples": 3, "fit_steps": 3}
CORESET = VARIATIONAL | {"coreset": 4, "coreset_steps": 2}
MEMORY = SMALL | {"memory": {"per_class": 3}}
GAN = {"replay": {"generator": "gan_dense", "options": {"widths": (8,), "critic_widths": (8,), "epochs": 2}}}
FIELDS = {"vgr": VARIATIONAL | GAN, "vgr_vcl": VARIATIONAL | GAN, "vgr_mc_dropout": SMALL | GAN}
FIELDS |= {"vcl": VARIATIONAL, "vcl_coreset": CORESET, "coreset_only": CORESET}
FIELDS |= dict.fromkeys(("icarl", "icarl_hb1", "gem", *(m for m in METHODS if m.endswith("_s"))), MEMORY)
VAE = {"encoder": (8,), "decoder": (8,), "codes": 3, "steps": 10, "batch_size": 20, "collapse": 0.0}
FIELDS |= {"gdumb": SMALL | {"total": 10, "epochs": 2}}
FIELDS |= {"dgr": SMALL | {"replay": {"options": VAE}}}
FIELDS |= {
    "weighted_replay": SMALL
    | {"replay": {"options": VAE}, "condition": "task", "resample": True, "min_rows": 40, "chain_samples": 60}
}
FIELDS |= {name: {} for name, kind in METHODS.items() if issubclass(kind, FrozenFeatures)}  # no network to be small
OPTIONS = {"seed": 4, "epochs": 2, "batch_size": 32}


def learner_of(method, stream, **fields):
    return build(method, stream, seed=4, **(FIELDS.get(method, SMALL) | fields))


def essence(record):
    """Everything but times and the peak of memory."""
    numbers = {"matrices": record.matrices, "baseline": record.baseline, "values": record.values}
    lists = {what: {k: v.nan_to_num(nan=-9).tolist() for k, v in found.items()} for what, found in numbers.items()}
    sizes = {name: size for name, size in record.bytes.items() if name != "peak"}
    return json.dumps([record.id, record.config, record.seed, record.head, lists, sizes, record.task_names])


def interrupt(task):
    """Like a person at the keyboard, once `task` is under way."""

    def heard(progress):
        if progress.task == task:
            raise KeyboardInterrupt

    return heard


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"joint"}))
def test_every_method_goes_on_to_the_same_bits(method, tmp_path):
    stream = split(blobs(per_class=20), 2)
    whole_learner, learner = (learner_of(method, stream) for _ in range(2))
    whole = protocol.run(stream, whole_learner, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        protocol.run(stream, learner, on_progress=interrupt(2), checkpoint=tmp_path, **OPTIONS)
    again, heard = learner_of(method, stream), []
    record = protocol.run(stream, again, on_progress=heard.append, checkpoint=tmp_path, **OPTIONS)
    assert {p.task for p in heard} == {2}
    assert heard[-1].done == heard[-1].total
    assert essence(record) == essence(whole)
    assert {k: v.tolist() for k, v in again.state_dict().items()} == {
        k: v.tolist() for k, v in whole_learner.state_dict().items()
    }
    assert [len(times) for times in record.seconds.values()] == [3, 3, 3]


def test_without_borders_it_goes_on_too(tmp_path):
    stream = blurred(blobs(), 2)
    options = {"seed": 1, "batch_size": 16}
    whole = protocol.run(stream, learner_of("ewc_pp_s", stream), **options)
    with pytest.raises(KeyboardInterrupt):
        protocol.run(stream, learner_of("ewc_pp_s", stream), on_progress=interrupt(1), checkpoint=tmp_path, **options)
    record = protocol.run(stream, learner_of("ewc_pp_s", stream), checkpoint=tmp_path, **options)
    assert essence(record) == essence(whole)


def test_a_second_interruption_is_as_good_as_the_first(tmp_path):
    stream = split(blobs(), 2)
    whole = protocol.run(stream, learner_of("rwalk_s", stream), **OPTIONS)
    for task in (0, 1, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            protocol.run(
                stream, learner_of("rwalk_s", stream), on_progress=interrupt(task), checkpoint=tmp_path, **OPTIONS
            )
    assert essence(protocol.run(stream, learner_of("rwalk_s", stream), checkpoint=tmp_path, **OPTIONS)) == essence(
        whole
    )
    assert len(list(tmp_path.iterdir())) == 2  # one JSON, one safetensors


def test_tasks_that_are_over_are_not_built_again(tmp_path, monkeypatch):
    stream, built = split(blobs(), 2), []
    with pytest.raises(KeyboardInterrupt):
        protocol.run(stream, learner_of("vanilla", stream), on_progress=interrupt(2), checkpoint=tmp_path, **OPTIONS)
    rows = Segment.rows

    def watched(self, part):
        if part != "test":
            built.append(self.name)
        return rows(self, part)

    monkeypatch.setattr(Segment, "rows", watched)
    protocol.run(stream, learner_of("vanilla", stream), checkpoint=tmp_path, **OPTIONS)
    assert set(built) == {stream.info(2).name}


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 5},
        {"epochs": 3},
        {"batch_size": 16},
        {"fields": {"learning_rate": 2e-3}},
        {"version": 2},
        {"software": {"torch": "0"}},
        {"torn": True},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_checkpoint_of_another_run_or_a_torn_one_is_not_taken(other, tmp_path, monkeypatch):
    stream = split(blobs(), 2)
    with pytest.raises(KeyboardInterrupt):
        protocol.run(stream, learner_of("vanilla", stream), on_progress=interrupt(2), checkpoint=tmp_path, **OPTIONS)
    if "version" in other:
        monkeypatch.setattr(METHODS["vanilla"], "version", other["version"])
    if "software" in other:
        monkeypatch.setattr(checkpoint.machine, "software", lambda: other["software"])
    for path in tmp_path.glob("*.safetensors") if "torn" in other else []:
        path.write_bytes(path.read_bytes()[:-8])
    options = OPTIONS | {key: value for key, value in other.items() if key in OPTIONS}
    tasks = []
    learner = learner_of("vanilla", stream, **other.get("fields", {}))
    protocol.run(stream, learner, on_progress=lambda p: tasks.append(p.task), checkpoint=tmp_path, **options)
    assert set(tasks) == {0, 1, 2}


def test_a_users_own_code_counts(tmp_path, monkeypatch):
    spec, paths = learner_of("vanilla", split(blobs(), 2)).spec, []
    for i, factor in enumerate((1, 1, 2)):
        text = f"from vestige.continual.learners import Vanilla\n\nclass Mine(Vanilla):\n    factor = {factor}\n"
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "own_method.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / str(i))
        monkeypatch.delitem(sys.modules, "own_method", raising=False)
        mine = import_module("own_method").Mine(spec)
        paths.append(checkpoint.Checkpoint(tmp_path, mine, {}, 0).path)
    assert paths[0] == paths[1] != paths[2]


def test_an_oracle_and_one_that_cannot_keep_nothing(tmp_path):
    stream = split(blobs(), 2)
    protocol.run(stream, learner_of("joint", stream), checkpoint=tmp_path, **OPTIONS)
    unable = learner_of("vanilla", stream)
    unable.resumable = False
    protocol.run(stream, unable, checkpoint=tmp_path, **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_of_past_data_it_holds_what_the_memory_holds(tmp_path):
    stream, learner = split(blobs(), 2), None
    learner = learner_of("vanilla_s", stream)
    with checkpoint.kept_in(tmp_path):
        protocol.run(stream, learner, **OPTIONS)
    assert checkpoint._folder.get() is None
    from safetensors.torch import load_file

    (path,) = tmp_path.glob("*.safetensors")
    kept = load_file(path)
    assert kept["learner/memory.x"].shape[0] == 18
    wide = [key for key, value in kept.items() if value.shape[1:] == learner.memory.x.shape[1:]]
    assert wide == ["learner/memory.x"]


def test_a_write_is_finished_before_an_interrupt_is_heeded():
    # A shell that runs this in the background has it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []
    try:
        with pytest.raises(KeyboardInterrupt), checkpoint.unbroken():
            done += [os.kill(os.getpid(), signal.SIGINT), "written"]
        assert done == [None, "written"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
