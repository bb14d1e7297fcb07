"""Plans: which units there are, which are done, and what is refused."""

import sys
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import pytest

from border import Border
from vestige import runner
from vestige.continual import learners
from vestige.core.errors import InputError, VestigeError
from vestige.runner.plan import _fit, parse
from vestige.runner.registry import EXPERIMENTS


@dataclass(frozen=True)
class Config:
    """One field of each kind."""

    rate: float = 1.0
    steps: int = 3
    data: str = "digits"
    hidden: tuple[int, ...] = (4,)
    limit: int | None = None
    told: bool = True
    head: Literal["single", "multi"] = "single"


@pytest.fixture
def toy(monkeypatch):
    from vestige.runner.experiment import Experiment

    class Toy(Experiment[Config]):
        """A toy."""

        name, item = "toy", "nothing"
        presets: ClassVar = {"smoke": Config(), "laptop": Config(steps=9), "paper": Config(steps=99)}
        seeds: ClassVar = {"smoke": 2, "laptop": 3, "paper": 4}
        runs = 0

        def run(self, config, seed, on_progress):
            type(self).runs += 1
            return self.record(config, seed)

        def lines(self, records):
            return []

    monkeypatch.setitem(EXPERIMENTS, "toy", Toy())
    return EXPERIMENTS["toy"]


def test_a_plan_has_every_seed_of_the_preset(toy, tmp_path):
    assert [u.seed for u in runner.plan("toy", tmp_path)] == [0, 1, 2]
    assert [u.seed for u in runner.plan("toy", tmp_path, preset="smoke", seeds=1)] == [0]
    assert runner.plan("toy", tmp_path)[0].config.steps == 9


def test_a_part_of_the_units_can_be_asked_for(tmp_path):
    def rows(**only):
        units = runner.plan("rwalk-table1-mnist", tmp_path, seeds=2, only=only)
        return [(unit.seed, unit.config.row, unit.config.lam) for unit in units]

    assert rows(row="EWC") == [(0, "EWC", 750000.0), (1, "EWC", 750000.0)]
    assert rows(row=["PI", "EWC"], lam=100.0) == [(0, "PI", 100.0), (1, "PI", 100.0)]
    assert {row for _, row, lam in rows(lam=None)} == {"Vanilla", "iCaRL-hb1", "iCaRL", "Vanilla-S", "joint"}
    assert {row for _, row, _ in rows(hidden=[256, 256])} == {row for _, row, _ in rows()}, "a list that is a value"
    whole = {unit.path for unit in runner.plan("rwalk-table1-mnist", tmp_path, seeds=2)}
    (part,) = runner.plan("rwalk-table1-mnist", tmp_path, seeds=1, only={"row": "iCaRL-hb1"})
    assert part.path in whole, "the same units as when all are run"
    assert part.command == "run rwalk-table1-mnist --preset laptop --seeds 1 --only 'row=\"iCaRL-hb1\"'"


def test_a_part_that_is_empty_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(InputError, match=r"row=\"EWC\".* or row=.*Got row=\"ECW\" instead"):
        runner.plan("rwalk-table1-mnist", tmp_path, only={"row": "ECW"})
    with pytest.raises(InputError, match="'row'"):
        runner.plan("rwalk-table1-mnist", tmp_path, only={"rows": "EWC"})
    with pytest.raises(InputError, match=r"lam=100\.0.*Got lam=1 instead"):
        runner.plan("rwalk-table1-mnist", tmp_path, only={"row": "PI", "lam": 1})


def test_early_seeds_are_whole_before_late_ones_begin(tmp_path):
    units = runner.plan("rwalk-table1-mnist", tmp_path, seeds=2)
    first, second = units[: len(units) // 2], units[len(units) // 2 :]
    assert {unit.seed for unit in first} == {0}
    assert {unit.seed for unit in second} == {1}
    assert [unit.config for unit in first] == [unit.config for unit in second]


def test_a_finished_unit_is_never_run_again_and_a_damaged_one_is(toy, tmp_path):
    units = runner.plan("toy", tmp_path)
    assert [f.fresh for f in runner.run(units)] == [True] * 3
    assert [f.fresh for f in runner.run(units)] == [False] * 3
    assert toy.runs == 3
    units[1].path.write_text(units[1].path.read_text()[:40])
    again = list(runner.run(units))
    assert sorted(f.unit.seed for f in again if f.fresh) == [1]
    assert toy.runs == 4
    assert all(f.fresh is False for f in runner.run(units))


@pytest.fixture
def trained(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "border", Border())


def moved(monkeypatch):
    """The code of vanilla stands in another module."""
    monkeypatch.setitem(sys.modules, "vestige.moved", sys.modules[learners.Vanilla.__module__])
    monkeypatch.setattr(learners.Vanilla, "__module__", "vestige.moved")


@pytest.mark.parametrize(
    ("edited", "again"),
    [
        (lambda m: m.setattr(learners.Vanilla, "observe", lambda self, x, y: None), []),  # any edit of the source
        (moved, []),
        (lambda m: m.setattr(learners.METHODS["vanilla"], "version", 2), ["vanilla", "ewc_pp_s"]),  # a child of vanilla
        (lambda m: m.setattr(learners.METHODS["ewc_pp_s"], "version", 2), ["ewc_pp_s"]),
        (lambda m: m.setattr(Border, "version", 2), ["vanilla", "ewc_pp_s"]),
    ],
    ids=["edited", "moved", "version of vanilla", "version of ewc_pp_s", "version of the experiment"],
)
def test_a_finished_unit_stays_finished_until_a_version_is_raised(edited, again, trained, monkeypatch, tmp_path):
    list(runner.run(runner.plan("border", tmp_path, preset="smoke", seeds=1)))
    edited(monkeypatch)
    found = [unit for unit in runner.plan("border", tmp_path, preset="smoke", seeds=1) if unit.finished() is None]
    assert [unit.config.method for unit in found] == again


def test_a_unit_tells_what_ran(trained, tmp_path):
    for finished in runner.run(runner.plan("border", tmp_path, preset="smoke", seeds=1)):
        record = finished.record
        kind = learners.METHODS[finished.unit.config.method]
        assert record.learner == kind.__qualname__
        assert record.structure == ["body.1.weight 8x36", "body.1.bias 8", "head.weight 6x8", "head.bias 6"]
        assert record.version["experiment"] == 1
        assert record.version[f"methods/{finished.unit.config.method}"] == 1


def test_other_versions_than_it_was_planned_with_are_refused_before_it_runs(toy, tmp_path):
    (unit,) = runner.plan("toy", tmp_path, seeds=1)
    other = replace(unit, path=unit.path.with_name("0123456789abcdef.json"))
    with pytest.raises(VestigeError, match="toy seed 0 was planned with other versions"):
        list(runner.run([other]))
    assert toy.runs == 0


def test_a_unit_that_is_asked_for_twice_is_run_once(toy, tmp_path):
    units = runner.plan("toy", tmp_path, seeds=1)
    assert len(list(runner.run([*units, *units]))) == 1
    assert toy.runs == 1


def test_labels_name_what_sets_units_apart(toy, tmp_path):
    units = runner.plan("rwalk-table1-mnist", tmp_path, seeds=1)
    assert str(units[0]).startswith("rwalk-table1-mnist row=Vanilla, ")
    assert str(units[0]).endswith(" seed 0")
    assert len({str(unit) for unit in units}) == len(units)
    assert str(runner.plan("toy", tmp_path, seeds=2)[1]) == "toy seed 1"


def test_an_interrupted_run_keeps_what_was_finished(toy, tmp_path):
    run = runner.run(runner.plan("toy", tmp_path))
    next(run)
    run.close()
    assert len(list(tmp_path.rglob("*.json"))) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("a", "a"),
        ("[1, 2]", [1, 2]),
        ("1,2", [1, 2]),
        ("a,b", ["a", "b"]),
        ("9" * 5000, "9" * 5000),  # Python reads no number of so many digits
    ],
)
def test_values_from_the_shell(text, value):
    assert parse(text) == value


def test_a_value_of_too_many_levels_is_refused():
    with pytest.raises(InputError, match=r"fewer levels of lists\. Got \[\[\[.{,300} instead\.$"):
        parse("[" * 100_000)


@pytest.mark.parametrize(
    ("field", "value", "fitted"),
    [
        ("rate", 2, 2.0),
        ("hidden", [3, 5], (3, 5)),
        ("hidden", 3, (3,)),
        ("limit", None, None),
        ("limit", 4, 4),
        ("head", "multi", "multi"),
        ("told", False, False),
    ],
)
def test_a_value_that_fits_is_taken(toy, field, value, fitted):
    found = getattr(runner.configured(toy, "smoke", {field: value}), field)
    assert found == fitted
    assert type(found) is type(fitted)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate", "fast"),
        ("rate", True),
        ("steps", 1.5),
        ("hidden", ["a"]),
        ("limit", "x"),
        ("head", "both"),
        ("told", 1),
        ("data", 3),
    ],
)
def test_a_value_that_does_not_fit_is_refused(toy, field, value):
    with pytest.raises(InputError, match=f"toy --set {field} must be"):
        runner.configured(toy, "smoke", {field: value})


def test_unknown_names_are_refused_with_the_nearest(toy, tmp_path):
    with pytest.raises(InputError, match="toy"):
        runner.plan("tay", tmp_path)
    with pytest.raises(InputError, match="steps"):
        runner.plan("toy", tmp_path, overrides={"stepz": 3})
    with pytest.raises(InputError, match="preset"):
        runner.plan("toy", tmp_path, preset="huge")


def test_fit_names_what_it_wants():
    with pytest.raises(InputError, match="must be int"):
        _fit("x", int, "field")
