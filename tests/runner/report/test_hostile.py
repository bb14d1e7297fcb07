"""A Record that no run has left is refused by file and key where it is asked for, and blocks no report of a folder."""

import json

import pytest
import torch

from runner.report.hostile import GONE, TABLE, WIDE, document
from runner.report.planted import bare
from vestige.cli import main
from vestige.continual.record import Record, load_all
from vestige.core.errors import StoreError, VestigeWarning
from vestige.runner import report
from vestige.runner.registry import EXPERIMENTS

LONGEST = 300  # characters of a sentence, without the name of the file


def test_the_table_is_long_and_the_record_that_it_alters_is_whole(tmp_path):
    assert len(TABLE) >= 150
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document("seed", 0)))
    assert report.gather([path])[0].id == bare().id


@pytest.mark.parametrize(
    "row", TABLE, ids=lambda row: f"{row[0][:9]}-{'gone' if row[1] is GONE else repr(row[1])[:30]}"
)
def test_each_is_one_sentence_that_names_the_file_and_the_key(row, tmp_path):
    field, value, key = (*row, row[0])[:3]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document(field, value)))
    with pytest.raises(StoreError, match=r"bad\.json: ") as refusal:
        report.gather([path])
    said = str(refusal.value).removeprefix(f"{path}: ")
    assert f"'{key}" in said
    assert len(said) < LONGEST
    assert "\n" not in said
    assert WIDE not in said


def test_in_a_file_of_many_the_line_is_named_and_the_others_are_read(tmp_path):
    path = tmp_path / "many.jsonl"
    texts = [json.dumps(document(*row)) for row in (("seed", 0), ("seed", "x"), ("head", 3))]
    path.write_text("\n".join([*texts, "{", '{"format": "vestige/record"}']) + "\n")
    with pytest.raises(
        StoreError, match=r"many\.jsonl, line 2: The key 'seed' must be a whole number\. Got 'x' instead"
    ):
        load_all(path)
    heard = []
    assert [record.id for record in load_all(path, heard.append)] == [bare().id]
    assert [str(error).partition("line ")[2][:1] for error in heard] == ["2", "3", "4", "5"]
    with pytest.raises(StoreError, match="line 2"):
        report.gather([path])
    with pytest.warns(VestigeWarning, match=r"line \d.* This Record is left out"):
        assert len(report.gather([tmp_path])) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_bad_records_are_left_out_of_the_report_of_their_folder_and_named(tmp_path, capsys):
    bare().save(tmp_path / "runs")
    for number, row in enumerate(TABLE):
        (tmp_path / "runs" / f"bad{number:03}.json").write_text(json.dumps(document(*row[:2])))
    argv = ["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out"), "--page-only"]
    assert main(argv) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(TABLE)
    assert all(f"bad{number:03}.json: " in line and "left out" in line for number, line in enumerate(said))
    assert main(["report", str(tmp_path / "runs" / "bad000.json"), "-o", str(tmp_path / "out")]) == 1
    assert "bad000.json: The key 'config' must be an object. Got None instead." in capsys.readouterr().err


D = torch.float64
ODD = {
    "marks of formulas": {"task_names": ["$\\frac{", "$", "_^"]},
    "no names": {"task_names": []},
    "empty names": {"task_names": ["", "", ""]},
    "nothing but a seed": None,
    "an empty stream": {"config": {"stream": {"stream": "", "data": ""}}},
    "no stream": {"config": {"stream": None, "learner": None}},
    "nothing measured": {"matrices": {"single": torch.full((3, 3), torch.nan, dtype=D)}},
    "short lists": {"seconds": {"train": [1.0], "eval": []}, "bytes": {"model": [1], "peak": []}},
    "negative times": {"seconds": {"train": [-1.0, -2.0, -3.0]}},
    "odd values": {"values": {"a": torch.zeros(2, 1, 3, dtype=D), "$x_{": torch.zeros(3, dtype=D)}},
    "an odd machine": {"machine": {"cores": [{}], "a": {"b": None}}},
    "an unknown experiment": {"config": {"experiment": "no such"}},
    "odd details": {"details": {"curves": 3, "pictures": "x", "collapsed": None, "chain": 4}},
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_odd_and_allowed_has_a_page(odd, tmp_path, capsys):
    (Record({}, 0) if odd is None else bare(**odd)).save(tmp_path)
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "out"), "--page-only"]) == 0, capsys.readouterr().err


def test_a_record_of_an_experiment_has_its_configuration_and_its_numbers(tmp_path):
    experiment = EXPERIMENTS["rwalk-table3"]
    (arm, *_) = experiment.arms(experiment.presets["smoke"])
    cases = (
        (Record({"experiment": "rwalk-table3"}, 0), "must have the 'config' of rwalk-table3: The key 'config"),
        (experiment.record(arm, 0), "must have the 'matrices' and 'values' of rwalk-table3: "),
    )
    for record, said in cases:
        with pytest.raises(StoreError, match=said):
            report.gather([record.save(tmp_path)])
