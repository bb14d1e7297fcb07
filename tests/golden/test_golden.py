"""The stored numbers of every method, ratio, metric and so on are those that the code gives now."""

import itertools
import json

import pytest

import vestige as vs
from golden import cases
from vestige.continual import versions

STORED = cases.read()
ENTRIES = [(kind, name) for kind, entries in cases.KINDS.items() for name in entries.names]


@pytest.mark.usefixtures("own_errors_of_users")
@pytest.mark.parametrize(("kind", "name"), ENTRIES, ids=[f"{kind}/{name}" for kind, name in ENTRIES])
def test_the_numbers_are_those_that_were_stored(kind, name):
    entry = STORED[kind][name]
    assert entry["version"] == cases.version_of(kind, name), (
        f"'{name}' of {kind} has another version than its stored numbers: run "
        f"`python tests/golden/cases.py --write {kind}/{name}`."
    )
    lines = cases.differences(entry["numbers"], cases.compute(kind, name), cases.tolerance(kind, name))
    if lines:
        pytest.fail(cases.advice(kind, name, lines), pytrace=False)


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("methods", lambda: vs.methods.METHODS),
        ("ratios", lambda: vs.ratios.RATIOS),
        ("generators", lambda: vs.generators.GENERATORS),
        ("chains", lambda: vs.chains.STRATEGIES),
        ("features", lambda: vs.features.FEATURES.keys() - {"pretrained"}),  # an extra package, which may be absent
        ("divergences", lambda: vs.divergences.FAMILY),
        ("metrics", lambda: set(vs.metrics.__all__) - {"MatrixSummary"}),
    ],
)
def test_every_registered_name_has_an_entry(kind, registry):
    whole, first = set(STORED[kind]), {name.split()[0] for name in STORED[kind]}
    missing = set(registry()) - whole - first
    assert not missing, f"{sorted(missing)} of {kind} have no golden numbers: add a case to tests/golden/cases.py."


def test_what_is_stored_is_what_is_computed():
    assert {kind: tuple(entries) for kind, entries in STORED.items()} == {k: v.names for k, v in cases.KINDS.items()}


def test_the_file_is_plain_json_as_it_would_be_written():
    assert cases.as_text(STORED) == cases.FILE.read_text()
    json.dumps(STORED, allow_nan=False)


def test_no_two_methods_have_the_same_numbers():
    """A method whose own part does nothing in its case would pass whatever became of it."""
    for one, other in itertools.combinations(STORED["methods"], 2):
        numbers = (STORED["methods"][name]["numbers"] for name in (one, other))
        assert cases.differences(*numbers), (one, other)


@pytest.mark.parametrize(("kind", "name"), ENTRIES, ids=[f"{kind}/{name}" for kind, name in ENTRIES])
def test_a_change_of_any_number_is_found(kind, name):
    numbers, rtol = STORED[kind][name]["numbers"], cases.tolerance(kind, name)
    assert not cases.differences(numbers, numbers, rtol)

    def moved(value):
        return float(value) + 2 * rtol * abs(float(value)) + 1e-5

    for key, value in numbers.items():
        changed = [moved(v) for v in value] if isinstance(value, list) else moved(value)
        still = str(value) in ("nan", "inf", "-inf") or (isinstance(value, list) and {*value} <= {"nan", "inf", "-inf"})
        assert bool(cases.differences({key: value}, {key: changed}, rtol)) is not still
        assert cases.differences({key: value}, {}, rtol)
    assert cases.differences(numbers, {**numbers, "new": 1.0}, rtol)


def test_a_change_of_a_method_is_found_and_says_what_to_do(monkeypatch):
    monkeypatch.setitem(cases.METHODS, "ewc", cases.METHODS["ewc"] | {"lam": 1050.0})
    lines = cases.differences(STORED["methods"]["ewc"]["numbers"], cases.compute("methods", "ewc"))
    assert any(line.startswith("scores[") for line in lines)
    sentence = cases.advice("methods", "ewc", lines)
    assert sentence.startswith(
        "The results of 'ewc' changed. If that is meant, raise `version` in its file (or `VERSION` in "
        "vestige.continual.protocol, if the loop around all of them changed) and run "
        "`python tests/golden/cases.py --write ewc`."
    )
    assert "VERSIONS" in cases.advice("divergences", "kl", ["f[0]: was 1, is 2"])


def test_other_numbers_are_written_only_under_a_higher_version(tmp_path, monkeypatch):
    path = tmp_path / "numbers.json"

    def write(*names):
        cases.write(names, path, told=lambda line: None)

    write("weights/clip", "divergences/kl")
    first = path.read_text()
    write("weights")  # the same numbers again, and new entries beside them
    kind = cases.KINDS["weights"]
    other = kind._replace(numbers=lambda name: {**kind.numbers(name), "more": 1.0})
    monkeypatch.setitem(cases.KINDS, "weights", other)
    before = path.read_text()
    with pytest.raises(SystemExit, match=r"'clip' of weights has other numbers but still version 1"):
        write("weights/clip")
    assert path.read_text() == before != first
    monkeypatch.setitem(cases.VERSIONS, "weights/clip", 2)
    write("weights/clip")
    assert cases.read(path)["weights"]["clip"]["version"] == 2
    assert cases.read(path)["weights"]["clip"]["numbers"]["more"] == 1.0
    with pytest.raises(SystemExit, match="No entry or kind is called weihgts"):
        write("weihgts")


def test_the_version_of_a_class_is_read(monkeypatch):
    assert cases.version_of("methods", "ewc") == getattr(vs.methods.METHODS["ewc"], "version", 1)
    monkeypatch.setattr(vs.methods.METHODS["ewc"], "version", 7, raising=False)
    assert cases.version_of("methods", "ewc") == 7
    assert cases.version_of("comparison", "weigh") == 1
    monkeypatch.setattr(vs.protocol, "VERSION", 3)
    assert cases.version_of("methods", "ewc") == 9
    assert "raise `VERSION` in vestige.continual.generation and" in cases.advice("generation", "run", [])


@pytest.mark.parametrize("kind", ["methods", "ratios", "generators", "chains", "features"])
def test_what_is_registered_has_a_version_that_is_part_of_ids(kind):
    for name, subject in versions.REGISTRIES[kind].items():
        assert isinstance(subject.version, int), f"'{name}' of {kind} has no `version`"
        assert versions.named({"field": [name]})[f"{kind}/{name}"] == subject.version
