"""Records are found once, and put together by what they are runs of."""

import dataclasses
import json
import os
import shutil

import pytest

from dice import Config, Dice
from runner.report.planted import bare
from vestige import runner
from vestige.continual.record import FIRST_EDITION, Record, save_all
from vestige.core.errors import InputError, StoreError, VestigeWarning
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import gather
from vestige.runner.report.reading import belonging, groups, setting, subject


class Figure(Dice):
    """A figure that shows the runs of the dice."""

    name = "dice-figure"

    def config(self, config):
        return super().config(config) | {"experiment": "dice"}


@pytest.fixture
def dice(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())


def test_every_record_is_found_once_at_any_depth(tmp_path):
    first, second = bare(seed=1), bare(seed=0)
    deep = first.save(tmp_path / "a" / "b")
    second.save(tmp_path)
    shutil.copy(deep, tmp_path / "copy.json")
    (tmp_path / "other.json").write_text(json.dumps({"format": "vestige/chain"}))
    (tmp_path / "list.json").write_text("[1, 2")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    assert [record.id for record in gather([tmp_path, deep])] == [second.id, first.id]


def test_records_of_a_search_are_no_results_unless_asked_for(tmp_path):
    kept, tried = bare(seed=0), bare(seed=1)
    kept.save(tmp_path / "dice")
    tried.save(tmp_path / "dice" / "search")
    assert [r.id for r in gather([tmp_path])] == [kept.id]
    assert [r.id for r in gather([tmp_path / "dice" / "search"])] == [tried.id]


def test_what_is_not_there_or_damaged_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere' must be a Record or a folder"):
        gather([tmp_path / "nowhere"])
    path = bare().save(tmp_path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(StoreError, match=path.name):
        gather([path])
    whole = bare(seed=1).save(tmp_path)
    with pytest.warns(VestigeWarning, match=rf"{path.name} is torn.* This Record is left out\."):
        assert [record.id for record in gather([tmp_path])] == [whole.stem]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(StoreError, match="format"):
        gather([tmp_path / "other.json"])
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(StoreError, match=r"pipe\.json' must be a regular file"):
        gather([tmp_path / "pipe.json"])


def test_two_presets_are_two_groups(dice, tmp_path):
    for given in ({"preset": "laptop"}, {"preset": "laptop", "seeds": 3}, {"preset": "smoke"}):
        list(runner.run(runner.plan("dice", tmp_path, **given)))
    list(runner.run(runner.plan("dice", tmp_path, preset="smoke", overrides={"bias": 2.0})))
    found = groups(gather([tmp_path]))
    assert [group.title for group in found] == [
        "dice: Table 0 (preset laptop)",
        "dice: Table 0 (preset smoke)",
        "dice: Table 0 (preset smoke, bias=2.0)",
    ]
    assert [len(group.records) for group in found] == [3, 1, 1]


def test_the_highest_version_counts_where_several_ran_the_same(dice, tmp_path):
    list(runner.run(runner.plan("dice", tmp_path, preset="smoke")))
    (record,) = gather([tmp_path])
    zero = dataclasses.replace(record, version=FIRST_EDITION, versions={"code": "0" * 16})
    two = dataclasses.replace(record, version={"experiment": 2}, values={"mean": record.values["mean"] + 1})
    zero.save(tmp_path)
    assert gather([tmp_path])[0].id == record.id
    two.save(tmp_path)
    (found,) = gather([tmp_path])
    assert found.id == two.id
    assert setting(found) == "preset smoke, version experiment 2"


def test_the_first_edition_is_shown_as_such_and_never_averaged_with_version_1(dice, tmp_path):
    list(runner.run(runner.plan("dice", tmp_path, seeds=3)))
    records = gather([tmp_path])
    old = [dataclasses.replace(r, version=FIRST_EDITION, versions={"code": "0" * 16}) for r in records]
    (group,) = groups(old)
    assert group.title == "dice: Table 0 (first edition)"
    save_all(old, tmp_path / "old" / "dice.jsonl")
    assert [r.id for r in gather([tmp_path / "old"])] == [r.id for r in gather([tmp_path / "old" / "dice.jsonl"])]
    records[0].save(tmp_path / "old")
    zero, one = sorted(groups(gather([tmp_path / "old"])), key=lambda group: -len(group.records))
    assert [group.title for group in (zero, one)] == [
        "dice: Table 0 (preset laptop, first edition)",
        "dice: Table 0 (preset laptop)",
    ]
    assert [[r.seed for r in group.records] for group in (zero, one)] == [[1, 2], [0]]
    assert all(unit.finished() is None for unit in runner.plan("dice", tmp_path / "old", seeds=3)), (
        "for a plan it is none"
    )


def test_units_of_one_experiment_may_use_parts_of_several_versions(dice, monkeypatch, tmp_path):
    monkeypatch.setattr(
        Dice, "versions", lambda self, config: {"experiment": 1} | ({"eight": 2} if config.sides == (8,) else {})
    )
    records = [Dice().run(Config(sides=(n,)), 0, lambda share, words: None) for n in (6, 8)]
    (group,) = groups(records)
    assert group.title == "dice: Table 0"
    assert len(group.records) == 2
    before = dataclasses.replace(records[1], version={"experiment": 1})  # not today's, though it is 1
    assert {group.title: len(group.records) for group in groups([records[0], before])} == {
        "dice: Table 0": 1,
        "dice: Table 0 (version 1)": 1,
    }


def test_a_verdict_is_found_once(dice, monkeypatch, tmp_path):
    list(runner.run(runner.plan("dice", tmp_path, preset="paper")))
    (group,) = groups(gather([tmp_path]))
    first = group.verdict
    monkeypatch.setattr(Dice, "verdict", lambda self, records: pytest.fail("found again"))
    assert group.verdict is first
    (bare_runs,) = groups([bare()])
    assert bare_runs.verdict is None


def test_a_figure_takes_the_runs_of_its_table(dice, monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice-figure", Figure())
    list(runner.run(runner.plan("dice", tmp_path, seeds=4)))
    records = gather([tmp_path])
    own, shown = groups(records)
    assert (own.borrowed, shown.borrowed) == (False, True)
    assert shown.title.startswith("dice-figure")
    (mine,) = belonging("dice-figure", records).values()
    assert [r.seed for r in mine] == [r.seed for r in shown.records] == [0, 1]
    list(runner.run(runner.plan("dice", tmp_path, preset="smoke")))
    *_, large, small = groups(gather([tmp_path]))
    assert [group.title.partition(" (")[2] for group in (large, small)] == ["preset laptop)", "preset smoke)"]
    assert [len(group.records) for group in (large, small)] == [2, 1]


class TwoDice(Figure):
    """A figure of two dice, one of which the table throws for itself."""

    name = "two-dice"

    def arms(self, config):
        return [dataclasses.replace(config, sides=(n,)) for n in (6, 8)]


def test_a_figure_is_not_shown_before_all_its_runs_are_there(dice, monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "two-dice", TwoDice())
    list(runner.run(runner.plan("dice", tmp_path)))
    assert belonging("two-dice", gather([tmp_path])) == {}
    list(runner.run(runner.plan("dice", tmp_path, overrides={"sides": [8]})))
    assert sum(len(runs) for runs in belonging("two-dice", gather([tmp_path])).values()) == 4


def test_bare_runs_are_grouped_by_what_they_were_made_on():
    split = bare()
    permuted = bare(config={"stream": {"stream": "permuted", "data": "mnist"}, "learner": {"method": "ewc"}})
    found = groups([split, permuted])
    assert [group.title for group in found] == ["permuted mnist, single-head", "split digits, single-head"]
    assert subject(Record({}, 0)) == "Runs"
    assert subject(Record({"experiment": "of my own"}, 0)) == "of my own"
    assert setting(split) == ""


def test_a_change_that_only_says_which_units_run_is_none():
    table = EXPERIMENTS["lfiw-table2"]
    for options, words in (({}, "preset smoke"), ({"classes": 4}, 'preset smoke, dagans="small"')):
        arm = table.arms(dataclasses.replace(table.presets["smoke"], dagans=("small",), **options))[0]
        record = table.record(arm, 0, details={"command": 'run lfiw-table2 --preset smoke --set dagans="small"'})
        assert setting(record) == words
