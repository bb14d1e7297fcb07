"""Records: they come back as they were, their id says what determined them, and damage is named."""

import json
from dataclasses import replace

import pytest
import torch

from vestige.continual.record import Record, code_version, run_id
from vestige.core.errors import StoreError


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
    assert run_id(example().config, 4) == example().id


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": 5}, False),
        ({"config": {"learner": {"method": "Vanilla", "lr": 2e-3}, "stream": {"data": "toy"}}}, False),
        ({"code": "0123"}, False),
        ({"config": {"stream": {"data": "toy"}, "learner": {"lr": 1e-3, "method": "Vanilla"}}}, True),
        ({"seconds": {"train": [9.0, 9.0], "eval": [9.0, 9.0]}}, True),
        ({"machine": {}}, True),
    ],
)
def test_the_id_depends_on_what_determines_the_outcome_and_nothing_else(change, same):
    assert (example(**change).id == example().id) is same


def test_the_code_version_is_blind_to_words_and_sees_code(tmp_path):
    def version(text):
        code_version.cache_clear()
        (tmp_path / "vestige").mkdir(exist_ok=True)
        (tmp_path / "vestige" / "rng.py").write_text(text)
        return code_version(tmp_path)

    plain = version("def f(x):\n    return x + 1\n")
    assert version('"""Words."""\n\n\ndef f(x):\n    """More words."""\n    return x + 1  # why\n') == plain
    assert version("def f(x):\n    return x + 2\n") != plain
    code_version.cache_clear()


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
    with pytest.raises(StoreError, match="key 'seconds' is missing"):
        Record.load(path)


def test_another_kind_of_file_is_refused(tmp_path):
    from vestige import store

    with pytest.raises(StoreError, match=r"key 'format' must be 'vestige/record'"):
        Record.load(store.save(tmp_path / "x.json", "ratio", {}))


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        example().seed = 3
    assert replace(example(), seed=3).seed == 3
