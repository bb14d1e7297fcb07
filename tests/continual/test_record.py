"""Records: they come back as they were, their id says what determined them, and damage is named."""

import json
import sys
from dataclasses import replace

import pytest
import torch

import vestige as vs
from toys import blobs
from vestige import store
from vestige.continual.learners import Vanilla, build
from vestige.continual.record import FIRST_EDITION, Record, latest, load_all, run_id, save_all
from vestige.core.errors import InputError, StoreError
from vestige.data.streams import split
from vestige.nets import build_net


def example(**changes):
    matrix = torch.tensor([[0.9, float("nan")], [0.1, 0.8]], dtype=torch.float64)
    fields = {
        "config": {"learner": {"method": "Vanilla", "lr": 1e-3}, "stream": {"data": "toy"}},
        "seed": 4,
        "head": "single",
        "matrices": {"single": matrix, "multi": matrix / 3},
        "reference": torch.tensor([0.95, 0.9], dtype=torch.float64),
        "baseline": {"single": torch.tensor([0.5, 0.4], dtype=torch.float64)},
        "seconds": {"train": [0.5, 0.25], "eval": [0.1, 0.1]},
        "bytes": {"model": [100, 100]},
        "task_names": ["a/b", "c/d"],
        "values": {"kl": torch.tensor([0.3, float("nan")], dtype=torch.float64), "truth": torch.tensor(2.5).double()},
    }
    return Record(**(fields | changes))


def test_a_record_comes_back_as_it_was(tmp_path):
    one = example()
    two = Record.load(one.save(tmp_path))
    for name in Record.__dataclass_fields__:
        a, b = getattr(one, name), getattr(two, name)
        if name in ("matrices", "baseline", "values"):
            assert a.keys() == b.keys()
            assert all(torch.equal(a[k].nan_to_num(7), b[k].nan_to_num(7)) for k in a)  # to the last bit
        elif name == "reference":
            assert torch.equal(a, b)
        else:
            assert a == b
    assert two.id == one.id
    assert Record.load(example(reference=None).save(tmp_path / "bare.json")).reference is None


def test_the_summary_is_of_the_declared_head():
    last = example().summary().last()
    assert last["average"] == pytest.approx(0.45)
    assert last["forgetting"] == pytest.approx(0.8)
    assert last["intransigence"] == pytest.approx(0.1)


def test_a_folder_names_the_file_by_the_id(tmp_path):
    assert example().save(tmp_path).name == f"{example().id}.json"
    assert run_id(example().config, 4, {}) == example().id


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": 5}, False),
        ({"config": {"learner": {"method": "Vanilla", "lr": 2e-3}, "stream": {"data": "toy"}}}, False),
        ({"version": {"learner": 2}}, False),
        ({"learner": "Other"}, False),
        ({"structure": ["weight 4x2"]}, False),
        ({"version": {"learner": 1, "protocol": 1}}, True),  # where nothing was raised nothing is said
        ({"config": {"stream": {"data": "toy"}, "learner": {"lr": 1e-3, "method": "Vanilla"}}}, True),
        ({"seconds": {"train": [9.0, 9.0], "eval": [9.0, 9.0]}}, True),
        ({"machine": {}}, True),
    ],
)
def test_the_id_depends_on_what_determines_the_outcome_and_nothing_else(change, same):
    assert (example(**change).id == example().id) is same


def test_of_a_unit_learner_and_structure_are_told_but_not_part_of_the_id():
    unit = {"config": {"experiment": "dice", "throws": 3}}
    assert example(**unit, learner="A", structure=["w 1"]).id == example(**unit).id
    assert example(**unit, version={"experiment": 2}).id != example(**unit).id


def of_width(n):
    class Wide(Vanilla):
        def whole_net(self):
            return build_net("mlp", self.spec.input_shape, self.spec.n_outputs, hidden=(n,), init="torch", seed=0)

    return Wide


def test_two_learners_that_differ_never_share_an_id(tmp_path):
    stream = split(blobs(), 2)
    spec = build("vanilla", stream).spec
    records = [vs.run(stream, kind(spec)) for kind in (of_width(4), of_width(128), Vanilla)]
    assert len({record.id for record in records}) == 3
    assert records[0].config == records[1].config
    assert len({record.save(tmp_path) for record in records}) == 3
    assert records[0].structure[0] == "body.1.weight 4x36"
    assert records[2].learner == "Vanilla"
    assert records[0].learner == f"{__name__}.of_width.<locals>.Wide"


def test_a_raised_version_makes_another_record_and_moved_code_does_not(monkeypatch):
    stream = split(blobs(), 2)
    first = vs.run(stream, build("vanilla", stream))
    monkeypatch.setitem(sys.modules, "vestige.somewhere.else", sys.modules[Vanilla.__module__])
    monkeypatch.setattr(Vanilla, "__module__", "vestige.somewhere.else")
    assert vs.run(stream, build("vanilla", stream)).id == first.id
    monkeypatch.setattr(Vanilla, "version", 2)
    second = vs.run(stream, build("vanilla", stream))
    assert second.id != first.id
    assert (first.edition, second.edition) == ("1", "learner 2")
    replayed = build("dgr", stream)
    assert replayed.describe()["generator_fields"]["steps"] == replayed.replay_.fresh_generator(1).steps


@pytest.mark.parametrize(
    "change",
    [
        {"matrices": {"single": torch.eye(2).double(), "multi": torch.eye(2).double()}},
        {"matrices": {}},
        {"values": {"kl": torch.tensor([0.3, 0.2]).double(), "truth": torch.tensor(2.5).double()}},
        {"baseline": {"single": torch.tensor([0.5, 0.41], dtype=torch.float64)}},
        {"reference": None},
    ],
    ids=["matrices", "no matrices", "values", "baseline", "reference"],
)
def test_saving_over_other_numbers_is_refused(change, tmp_path):
    path = example().save(tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"{example().id}.*another '{next(iter(change))}'.*raise the `version`"):
        example(**change).save(tmp_path)
    assert path.read_bytes() == before


def test_saving_over_another_learner_of_one_unit_is_refused(tmp_path):
    unit = {"config": {"experiment": "dice"}}
    example(**unit, learner="A").save(tmp_path)
    with pytest.raises(InputError, match="another 'learner'"):
        example(**unit, learner="B").save(tmp_path)


def test_the_same_numbers_with_other_times_may_take_its_place_and_so_may_any_where_it_is_damaged(tmp_path):
    inf = {"values": {"kl": torch.tensor([0.3, float("inf")]).double()}}  # which is stored as a NaN
    path = example(**inf).save(tmp_path)
    again = example(**inf, seconds={"train": [9.0, 9.0]})
    assert Record.load(again.save(tmp_path)).seconds == {"train": [9.0, 9.0]}
    near = {"values": {"kl": torch.tensor([0.3 + 1e-9, float("nan")]).double()}}
    example(**near).save(tmp_path)
    path.write_text(path.read_text()[:50])
    example(values={}).save(tmp_path)
    assert Record.load(path).values == {}
    example(seed=5).save(path)  # a file of one's own name


def test_many_records_lie_in_one_file(tmp_path):
    records = [example(seed=seed) for seed in (2, 0, 1)]
    path = save_all(records[:2], tmp_path / "mine.jsonl")
    save_all(records[2:], path)
    assert [record.seed for record in load_all(path)] == [0, 1, 2]
    assert len(path.read_text().splitlines()) == 3
    assert {record.id for record in load_all(path)} == {record.id for record in records}
    with pytest.raises(InputError, match=r"mine\.jsonl has another 'values'"):
        save_all([example(seed=1, values={})], path)
    newer = example(seed=1, values={}, version={"learner": 2})
    save_all([newer], path)
    assert [record.edition for record in load_all(path)] == ["1", "learner 2", "1"]
    assert [record.id for record in load_all(records[0].save(tmp_path))] == [records[0].id]


def test_damage_in_a_file_of_many_is_named_by_line_and_key(tmp_path):
    path = save_all([example(seed=seed) for seed in range(3)], tmp_path / "mine.jsonl")
    lines = path.read_text().splitlines()
    document = json.loads(lines[1])
    document["fields"]["matrices"]["single"][1][1] = 0.99
    path.write_text("\n".join([lines[0], json.dumps(document), lines[2]]) + "\n")
    with pytest.raises(StoreError, match=r"mine.jsonl, line 2: key 'matrices' does not match its digest"):
        load_all(path)
    path.write_text("\n".join([*lines[:2], lines[2][:80]]))
    with pytest.raises(StoreError, match=r"mine.jsonl, line 3 is torn"):
        load_all(path)


def first_edition(tmp_path, **changes):
    """A file as version 0.1.0 wrote it."""
    record = example(config={"experiment": "dice"}, **changes)
    fields = record._fields() | {"code": "0123456789abcdef"}
    for new in ("learner", "structure", "version"):
        del fields[new]
    fields["id"] = store.content_id({"config": record.config, "seed": record.seed, "code": fields["code"]})
    return store.save(tmp_path / f"{fields['id']}.json", "record", fields)


def test_a_record_of_the_first_edition_is_version_0_and_gives_way_to_version_1(tmp_path):
    path = first_edition(tmp_path)
    old = Record.load(path)
    assert old.first_edition
    assert old.version == FIRST_EDITION == {"experiment": 0}
    assert old.edition == "first edition"
    assert old.versions["code"] == "0123456789abcdef"
    assert old.id == path.stem
    new = example(config={"experiment": "dice"}, version={"experiment": 1})
    assert new.id != old.id
    for order in ([old, new], [new, old]):
        assert [record.id for record in latest(order)] == [new.id]
    packed = save_all([old], tmp_path / "dice.jsonl")
    assert [record.id for record in load_all(packed)] == [old.id]  # comes back as what it was
    save_all([new], packed)
    assert [record.id for record in load_all(packed)] == [new.id]
    document = json.loads(path.read_text())
    document["fields"]["seed"], document["digests"]["seed"] = 9, store.objects._digest(b"9")
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="key 'id' does not match"):
        Record.load(path)


def test_a_changed_number_is_named(tmp_path):
    path = example().save(tmp_path)
    document = json.loads(path.read_text())
    document["fields"]["matrices"]["single"][1][1] = 0.99
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match=rf"{path.name}.*'matrices' does not match its digest"):
        Record.load(path)


def test_a_missing_field_is_named(tmp_path):
    path = example().save(tmp_path)
    document = json.loads(path.read_text())
    del document["fields"]["seconds"], document["digests"]["seconds"]
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="key 'seconds' of the stored Record is missing"):
        Record.load(path)


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"key 'format' must be 'vestige/record'"):
        Record.load(store.save(tmp_path / "x.json", "ratio", {}))


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        example().seed = 3
    assert replace(example(), seed=3).seed == 3
