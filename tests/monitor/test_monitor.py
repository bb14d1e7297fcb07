"""The monitor's contract: a bare chain's numbers, from a folder that goes on in another process bit for bit."""

import datetime
import gc
import json
import random
import shutil
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from monitor.tiny import CHAIN, contents, essence, normal, samples, walk
from vestige import features, store
from vestige.chains import Chain, gaussians
from vestige.core.errors import InputError, NotFitted, StoreError, UnknownName, VestigeWarning
from vestige.monitor import Alarm, Monitor
from vestige.monitor.folder import Folder

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def test_the_numbers_are_those_of_a_bare_chain(tmp_path):
    bed = gaussians(2, multi_task=True)
    options = {"strategy": "anchored", "names": ("kl", "js"), "epochs": 1, "warm_epochs": 1, "min_steps": 5}
    monitor, chain = Monitor.create(tmp_path / "m", chain=options), Chain(**options)
    for t in (1, 2, 3):
        real = {t: bed.real(t, 200, 0)} if t < 3 else {}
        model = {i: bed.model(t, i, 200, 0) for i in range(1, min(t, 2) + 1)}
        monitor.step(real, model, seed=t)
        chain.step(real, model, seed=t)
        table = monitor.table()
        now = table[table.step == t].drop(columns="step").reset_index(drop=True)
        pd.testing.assert_frame_equal(now, chain.divergences(), check_exact=True)
    assert list(table.step.unique()) == [1, 2, 3]
    left, right = monitor.chain.state()[1], chain.state()[1]
    assert all(torch.equal(left[key], right[key]) for key in right)


def test_opened_anew_before_every_step_it_goes_on_with_the_same_bits(tmp_path):
    closed = Monitor.create(tmp_path / "closed", features={"map": "pca", "dims": 1}, chain=CHAIN)
    never = walk(Monitor.create(tmp_path / "never", features={"map": "pca", "dims": 1}, chain=CHAIN), 4)
    for _ in range(4):
        closed = walk(Monitor.open(tmp_path / "closed"), 1)
    assert essence(closed) == essence(never) == essence(Monitor.open(tmp_path / "never"))
    assert closed.tasks == {"a": 1, 7: 2}
    when = datetime.datetime.fromisoformat(closed.history[0].when)
    assert when.tzinfo is not None


def test_a_folder_is_opened_or_created(tmp_path):
    with pytest.raises(
        InputError, match=r"^The 'folder' of Monitor must be opened by Monitor\.open, or made by Monitor"
    ):
        Monitor(tmp_path / "judge")


def test_only_the_newest_state_is_kept_and_old_steps_are_never_touched(tmp_path):
    monitor = walk(Monitor.create(tmp_path, chain=CHAIN), 3)
    before = contents(tmp_path)
    walk(monitor, 3)
    after = contents(tmp_path)
    assert [name for name in after if name.startswith("state")] == [
        name.replace("000003", "000006") for name in after if name.startswith("state-000006")
    ]
    steps = {name: data for name, data in before.items() if name.startswith("steps")}
    assert len(steps) == 3
    assert all(after[name] == data for name, data in steps.items())
    head, longer = (json.loads(files["monitor.json"]) for files in (before, after))
    assert len(json.dumps(head)) == len(json.dumps(longer))  # what grows is the number of small files
    assert len([name for name in after if name.startswith("steps")]) == 6


REFUSED = {
    "a wrong width": ({}, samples(3)[1] | {"a": normal(40, 0, d=3)}, "2 features wide"),
    "an unknown task": ({}, samples(3)[1] | {"b": normal(40, 0)}, "known or new tasks"),
    "a task without samples": ({}, {"a": normal(40, 0)}, "none for 7"),
    "data of a task that has left": ({"a": normal(40, 0)}, samples(3)[1], "was seen at step 1 and has left"),
    "too few samples": ({}, samples(3)[1] | {7: normal(19, 0)}, "at least 20 samples"),
    "too little data": ({"b": normal(5, 0)}, samples(3)[1] | {"b": normal(40, 0)}, "at least 20 samples"),
    "a NaN": ({}, samples(3)[1] | {7: torch.full((40, 2), torch.nan)}, "finite"),
    "infinite data": ({"b": torch.full((40, 2), torch.inf)}, samples(3)[1] | {"b": normal(40, 0)}, "finite"),
    "nothing": ({}, {}, "none for 'a', 7"),
    "words": ({}, samples(3)[1] | {7: [["x", "y"]] * 40}, "numbers"),
    "a file that is not there": ({}, samples(3)[1] | {7: "nowhere.csv"}, "no such file"),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    return walk(Monitor.create(folder, chain=CHAIN), 2)


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_sentence_and_changes_no_byte(case, begun):
    real, model, says = REFUSED[case]
    files, known = contents(begun.folder), essence(begun)
    with pytest.raises(InputError, match=says) as refusal:
        begun.step(real, model)
    assert str(refusal.value).endswith("instead.")
    assert contents(begun.folder) == files
    assert essence(begun) == known


@pytest.mark.parametrize("side", ["real", "model"])
def test_a_refused_first_step_fits_no_map(side, tmp_path):
    monitor = Monitor.create(tmp_path, features={"map": "pca", "dims": 1}, chain=CHAIN)
    files = contents(tmp_path)
    with pytest.raises(InputError):
        monitor.step(**({"real": {"a": normal(40, 0)}} | {side: {"a": torch.full((40, 2), torch.nan)}}))
    assert contents(tmp_path) == files
    assert walk(monitor, 1).steps == 1


def test_a_disk_that_fails_leaves_the_step_before(tmp_path, monkeypatch):
    monitor = walk(Monitor.create(tmp_path / "a", chain=CHAIN), 2)
    other = walk(Monitor.create(tmp_path / "b", chain=CHAIN), 3)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    for place in ("vestige.store.save", "vestige.store.objects.write_bytes", "os.replace"):
        with monkeypatch.context() as m:
            m.setattr(place, full)
            with pytest.raises(OSError, match="No space"):
                walk(monitor, 1)
        assert Monitor.open(tmp_path / "a").steps == monitor.steps == monitor.chain.steps == 2
    assert essence(walk(monitor, 1)) == essence(other)


def test_a_step_waits_for_another_process_or_is_refused(begun):
    files = contents(begun.folder)
    folder = Folder(begun.folder)
    with folder.locked(0):
        with pytest.raises(StoreError, match="in use by another process"):
            begun.step(*samples(3), wait=0.05)
        assert contents(begun.folder) == files
        assert Monitor.open(begun.folder).steps == begun.steps  # readers need no lock
    held, freed = threading.Event(), threading.Event()

    def hold():
        with folder.locked(0):
            held.set()
            freed.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    threading.Timer(0.2, freed.set).start()
    assert walk(begun, 1).steps == 3
    assert freed.is_set()
    holder.join()


def test_what_another_process_did_is_taken_over_first(tmp_path):
    one = walk(Monitor.create(tmp_path / "m", chain=CHAIN), 1)
    two = Monitor.open(tmp_path / "m")
    walk(two, 1)
    assert one.steps == 1
    walk_on = walk(Monitor.create(tmp_path / "alone", chain=CHAIN), 3)
    one.step(*samples(3), seed=3)
    assert essence(one) == essence(walk_on)
    assert two.chain.steps == 2  # what it has in memory; its folder has gone on
    assert essence(Monitor.open(tmp_path / "m")) == essence(walk_on)


def test_a_reader_whose_state_was_removed_finds_the_newer_one(tmp_path):
    walk(Monitor.create(tmp_path, chain=CHAIN), 1)
    reader = Monitor.open(tmp_path)
    walk(Monitor.open(tmp_path), 1)
    assert reader.chain.steps == 2
    assert reader.steps == 2


def test_a_chain_that_was_stepped_behind_the_monitors_back_is_left_out(tmp_path):
    monitor = walk(Monitor.create(tmp_path / "m", chain=CHAIN), 2)
    monitor.chain.step(*samples(3), seed=9)
    other = walk(Monitor.create(tmp_path / "o", chain=CHAIN), 3)
    assert essence(walk(monitor, 1)) == essence(other)


def test_a_warning_that_is_made_an_error_does_not_undo_the_step(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    x = normal(40, 0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "40 samples")
        with pytest.raises(VestigeWarning, match="40 samples of step 1 repeat rows of the data"):
            monitor.step({"a": x}, {"a": torch.cat([x.flip(0), normal(40, 1)])}, allow_copies=True)
    assert monitor.steps == Monitor.open(tmp_path).steps == 1
    assert monitor.history[0].copies == 40
    monitor.step(model={"a": x})  # the data is gone; nothing can be compared with it
    assert monitor.history[1].copies == 0


def test_no_array_in_memory_holds_the_data_after_its_step(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    p = np.random.default_rng(5).normal(size=(40, 2))
    monitor.step({"a": p}, {"a": normal(40, 1)})
    gc.collect()
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.numel() == p.size and thing.is_floating_point():
            assert not np.allclose(thing.detach().double().numpy().ravel(), p.ravel())


def test_a_fitted_map_is_used_as_it_is_and_stays_ours(tmp_path):
    seen = features.build("pca", dims=1).fit(normal(100, 3, scale=torch.tensor([1.0, 5.0])))
    direction = seen.directions_.clone()
    monitor = walk(Monitor.create(tmp_path, features=seen, chain=CHAIN), 1)
    seen.directions_.zero_()
    walk(Monitor.open(tmp_path), 1)
    files = [name for name in contents(tmp_path) if name.startswith("features")]
    assert {name.split("/")[0] for name in files} == {"features-000000"}
    kept = Monitor.open(tmp_path)._features()
    assert torch.equal(kept.directions_, direction)
    assert monitor.chain._width == 1


def test_a_map_is_fitted_on_the_data_of_the_first_step_and_then_left(tmp_path):
    monitor = walk(Monitor.create(tmp_path / "m", features={"map": "pca", "dims": 2}, chain=CHAIN), 3)
    real, model = samples(1)
    torch.testing.assert_close(monitor._features().mean_, real["a"].mean(0), rtol=0, atol=2e-3)  # rounded
    without = Monitor.create(tmp_path / "n", features={"map": "pca", "dims": 2}, chain=CHAIN, keep_moments=False)
    torch.testing.assert_close(walk(without, 3)._features().mean_, model["a"].mean(0), rtol=0, atol=2e-3)


def test_images_keep_their_shape_and_their_scale(tmp_path):
    g = np.random.default_rng(0)
    real, model = g.random((30, 4, 4)), g.random((30, 4, 4))
    options = CHAIN | {"min_samples": 20}
    monitor = Monitor.create(tmp_path / "m", chain=options)
    with pytest.raises(InputError, match="on the scale of the pixels"):
        monitor.step({"a": real}, {"a": 255 * model})
    monitor.step({"a": real}, {"a": (255 * model).astype(np.uint8)})
    with pytest.raises(InputError, match="samples of shape"):
        monitor.step(model={"a": g.random((30, 2, 8))})
    assert Monitor.open(tmp_path / "m")._features().shape_ == (4, 4)


def test_creation_refuses_what_it_cannot_use(tmp_path, begun):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for folder, says in ((tmp_path / "full", "thesis.tex"), (begun.folder, "holds a monitor")):
        files = contents(folder)
        with pytest.raises(InputError, match=f"new or empty folder.*{says}"):
            Monitor.create(folder)
        assert contents(folder) == files
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="new or empty folder"):
        Monitor.create(file)
    bad = [
        ({"features": "pcaa"}, UnknownName, "Did you mean 'pca'"),
        ({"features": {"dims": 2}}, InputError, "configuration with 'map'"),
        ({"chain": {"strategy": "anchord"}}, UnknownName, "anchored"),
        ({"chain": begun.chain}, InputError, "not begun"),
        ({"alarms": [Alarm("js", above=1)], "chain": {"names": ["kl"]}}, UnknownName, "alarms"),
        ({"alarms": [Alarm("jss", above=1)]}, UnknownName, "js"),
    ]
    for options, error, says in bad:
        with pytest.raises(error, match=says):
            Monitor.create(tmp_path / "new", **options)
        assert not (tmp_path / "new").exists()


USERS = [
    "steps/000001.json",
    "steps/notes.txt",
    "state-000000/chain.json",
    "state-000001/weights.pt",
    "state-of-the-art.txt",
    "features-000000/features.json",
    "lock",
    ".monitor.json.abcd1234.part",
    "monitor.json",
]


def put(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"my {name}")


@pytest.mark.parametrize("names", [[name] for name in USERS] + [USERS], ids=lambda names: names[0] * (len(names) < 2))
def test_a_folder_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path, names):
    put(tmp_path, names)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*")), contents(tmp_path)
    with pytest.raises(InputError, match=r"new or empty folder\. Got .* which holds .* Name another folder"):
        Monitor.create(tmp_path, chain=CHAIN)
    with pytest.raises((InputError, StoreError), match=r"monitor\.json"):
        Monitor.open(tmp_path)
    assert (sorted(tmp_path.rglob("*")), contents(tmp_path)) == before


def test_what_a_killed_start_left_is_used_unless_somebody_added_to_it(tmp_path):
    def killed(name):
        folder = tmp_path / name
        Monitor.create(folder, chain=CHAIN)
        (folder / "monitor.json").rename(folder / ".monitor.json.abcd1234.part")  # killed before the last rename
        return folder

    assert walk(Monitor.create(killed("again"), chain=CHAIN), 1).steps == 1
    for name in (name for name in USERS if name not in ("lock", ".monitor.json.abcd1234.part")):
        folder = killed(name.replace("/", "-"))
        if name.partition("/")[0] in ("state-000000", "features-000000"):
            name = f"{name}.mine"
        put(folder, [name])
        before = contents(folder)
        if name.endswith(".mine"):  # in a folder that is ours, beside what is ours
            Monitor.create(folder, chain=CHAIN)
        else:
            with pytest.raises(InputError, match="which holds"):
                Monitor.create(folder, chain=CHAIN)
            assert contents(folder) == before
        assert (folder / name).read_text() == f"my {name}"


def test_files_of_others_in_the_folder_of_a_monitor_stay(tmp_path):
    walk(Monitor.create(tmp_path, features={"map": "pca", "dims": 1}, chain=CHAIN), 1)
    mine = [
        "steps/notes.txt",
        "steps/notes.json",
        "steps/.notes.part",
        "steps/000012.json",
        "state-of-the-art.txt",
        "state-000009/weights.pt",
        "state-000001/notes.txt",
        "state-000002/notes.txt",
        "features-000007/x",
        ".notes.json.abcd1234.part",
    ]
    put(tmp_path, mine)
    walk(Monitor.open(tmp_path), 2)
    assert walk(Monitor.open(tmp_path), 1).steps == 4
    assert [(tmp_path / name).read_text() for name in mine] == [f"my {name}" for name in mine]
    ours = {"chain.json"} | {path.name for path in tmp_path.glob("state-*/chain.*.safetensors")}
    assert {path.parent.name for path in tmp_path.rglob("*") if path.name in ours} == {"state-000004"}


def test_a_folder_from_before_there_was_a_marker_goes_on(tmp_path):
    walk(Monitor.create(tmp_path, chain=CHAIN), 1)
    (tmp_path / ".vestige-monitor").unlink()
    assert walk(Monitor.open(tmp_path), 1).steps == 2
    with pytest.raises(InputError, match="holds a monitor"):
        Monitor.create(tmp_path)


def test_before_the_first_step(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    for call in (monitor.table, monitor.matrix, monitor.forgetting, lambda: monitor.report(tmp_path / "x.html")):
        with pytest.raises(NotFitted):
            call()
    assert (monitor.steps, monitor.tasks, monitor.alarms, str(monitor)) == (0, {}, (), "No step has been taken yet.")
    with pytest.raises(InputError, match="must hold a monitor"):
        Monitor.open(tmp_path / "nowhere")
    with pytest.raises(UnknownName):
        walk(monitor, 1).matrix("hellinger2")


def test_a_folder_of_the_first_edition_is_refused_with_a_sentence_and_left_as_it_is(tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(Path(__file__).parent / "first_edition", folder)
    files = contents(folder)
    with pytest.raises(StoreError, match=r"monitor\.json was written by Vestige 0\.1\.0.*or begin anew"):
        Monitor.open(folder)
    assert contents(folder) == files


def frame(n, seed):
    g = np.random.default_rng(seed)
    return pd.DataFrame({"height": np.round(g.normal(size=n), 2), "kind": g.choice(["cat", "dog"], n)})


@pytest.mark.full_training
@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_a_folder_of_before_vestiges_goes_on_as_it_was(kind, tmp_path):
    """Its files are of the version before; the same steps are taken anew beside it."""
    shutil.copytree(Path(__file__).parent / "second_edition" / kind, tmp_path / "old")
    options = {"strategy": "anchored", "names": ("kl", "js"), "estimator": "quadratic", "folds": 2, "min_samples": 20}
    old = Monitor.open(tmp_path / "old")
    if kind == "arrays":
        anew = Monitor.create(tmp_path / "new", features={"map": "pca", "dims": 1}, chain=options)
        anew.step({"a": normal(40, 0)}, {"a": normal(40, 11, 0.1)}, seed=1)
        anew.step({7: normal(40, 1, 3.0)}, {"a": normal(40, 12, 0.2), 7: normal(40, 22, 3.2)}, seed=2)
        newer = {"a": normal(40, 13, 0.4), 7: normal(40, 23, 3.3)}
        assert old.thresholds == (Alarm("js", rise=0.05),)
    else:
        anew = Monitor.create(tmp_path / "new", chain=options, alarms=[Alarm("js", above=0.1)])
        anew.step({"a": frame(40, 0)}, {"a": frame(40, 1)}, seed=1)
        newer = {"a": frame(40, 2)}
    for monitor in (old, anew):
        monitor.step(model=newer, seed=3)
    again = Monitor.open(tmp_path / "old")
    assert again.thresholds == anew.thresholds
    assert again.tasks == anew.tasks
    assert again.chain.strategy == anew.chain.strategy
    table = again.table()
    if kind == "arrays":  # what is kept anew is rounded
        figures, fresh = (t.drop(columns="reason") for t in (table, anew.table()))  # reasons have digits in them
        pd.testing.assert_frame_equal(figures, fresh, rtol=0.05, atol=5e-3)
    else:  # of 40 rows no category is kept anew
        assert len(table) == len(anew.table())
        assert table["value"].notna().all()
    assert again.drift().empty
    with pytest.raises(InputError, match="given for every known and new task"):
        again.step(model={})


def test_a_refusal_that_was_stored_as_an_alarm_is_none(tmp_path):
    """As it was until refusals were told from alarms."""
    walk(Monitor.create(tmp_path, chain=CHAIN, alarms=[Alarm("js", above=-9.0)]), 1)
    fields, _ = store.load(tmp_path / "steps" / "000001.json", "monitor-step")
    fields["alarms"] += [fields["alarms"][0] | {"amount": "nan", "low": "nan"}]
    store.save(tmp_path / "steps" / "000001.json", "monitor-step", fields)
    assert len(Monitor.open(tmp_path).alarms) == 1


def test_damage_is_named(tmp_path):
    walk(Monitor.create(tmp_path, chain=CHAIN), 2)
    step = tmp_path / "steps" / "000001.json"
    whole = step.read_bytes()
    step.unlink()
    with pytest.raises(StoreError, match=r"000001\.json does not exist"):
        Monitor.open(tmp_path)
    step.write_bytes(whole.replace(b'"seed": 1', b'"seed": 2'))
    with pytest.raises(StoreError, match="key 'seed' does not match its digest"):
        Monitor.open(tmp_path)
    step.write_bytes(whole)
    for file in (tmp_path / "state-000002").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-4])
    monitor = Monitor.open(tmp_path)
    assert len(monitor.table()) > 0  # the history stands
    with pytest.raises(StoreError, match="torn"):
        walk(monitor, 1)


def test_damage_is_blamed_on_the_file_that_has_it(tmp_path):
    walk(Monitor.create(tmp_path, features={"map": "pca", "dims": 1}, chain=CHAIN), 2)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.suffix in (".json", ".safetensors")]
    assert len(files) == 7
    dice = random.Random(0)
    for path in files:
        whole = path.read_bytes()
        for at in [dice.randrange(len(whole)) for _ in range(25)]:
            path.write_bytes(whole[:at] + dice.choice([b"", b"7", bytes([whole[at] ^ 1])]) + whole[at + 1 :])
            try:
                monitor = Monitor.open(tmp_path)
                monitor.chain, monitor._features()  # what the next step would read
            except StoreError as error:
                assert str(error).startswith(str(path)), (at, str(error))  # noqa: PT017
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("monitor.json", lambda d: d["parts"].clear(), "key 'parts' must name the 'state'"),
        ("monitor.json", lambda d: d["parts"].update(state="last"), "'parts.state' must be a whole number"),
        ("monitor.json", lambda d: d.pop("settings"), "key 'settings' of the stored MonitorHead is missing"),
        ("monitor.json", lambda d: d["settings"]["alarms"][0].update(above=1.0), "'above' of Alarm"),
        ("steps/000001.json", lambda d: d["report"].update(step=2), "must be that of step 1. Got step 2"),
        ("steps/000001.json", lambda d: d["report"]["tasks"].clear(), "key 'report.tasks' must hold tasks"),
        (
            "steps/000001.json",
            lambda d: d["report"]["tasks"][0]["estimates"].clear(),
            "tasks with the same divergences",
        ),
        ("steps/000001.json", lambda d: d.pop("alarms"), "key 'alarms' of the stored MonitorStep is missing"),
    ],
)
def test_what_does_not_fit_is_named_by_file_and_key(tmp_path, name, change, says):
    walk(Monitor.create(tmp_path, chain=CHAIN), 1)
    kind = "monitor" if name == "monitor.json" else "monitor-step"
    fields, _ = store.load(tmp_path / name, kind)
    change(fields)
    store.save(tmp_path / name, kind, fields)
    with pytest.raises(StoreError, match=f"{name}.*{says}"):
        Monitor.open(tmp_path)


def test_a_folder_that_cannot_be_written_can_be_read(tmp_path, monkeypatch):
    walk(Monitor.create(tmp_path, chain=CHAIN), 1)
    (tmp_path / "state-000002").mkdir()
    (tmp_path / "state-000002" / "chain.json").touch()
    asked = []

    def locked_up(*_, **__):
        asked.append(True)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.unlink", locked_up)
    assert Monitor.open(tmp_path).steps == 1
    assert asked


def test_a_task_named_by_the_shell_is_found_under_its_number(tmp_path):
    monitor = Monitor.create(tmp_path / "m", chain=CHAIN, alarms=[Alarm("js", above=-1.0, by="value", task="1")])
    step = monitor.step({1: normal(40, 0)}, {1: normal(40, 1)})
    assert [alarm.task for alarm in step.alarms] == [1]


def test_a_step_whose_samples_repeat_the_data_is_refused_with_their_places(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    x = normal(40, 0)
    with pytest.raises(InputError, match=r"samples of task 'a' .* Got 2 that do, rows 3, 5, instead"):
        monitor.step({"a": x}, {"a": torch.cat([normal(3, 1), x[7:8], normal(1, 2), x[9:10], normal(40, 3)])})
    assert monitor.steps == 0
    monitor.step({"a": x}, {"a": normal(40, 1)})
    assert monitor.history[0].copies == 0
