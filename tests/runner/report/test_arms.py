"""Arms differ in more than the seed, and are named by what sets them apart."""

import numpy as np
import pytest
import torch

from runner.report.planted import bare
from vestige.continual.record import Record
from vestige.runner.report.reading import Arm, arms, flatten, labels


def test_seeds_make_no_arms_and_names_come_in_order():
    found = arms([bare("b", 1), bare("a", 0), bare("b", 0)])
    assert [(arm.label, [r.seed for r in arm.records]) for arm in found] == [("a", [0]), ("b", [0, 1])]


def test_the_order_of_the_experiment_comes_first():
    configs = [{"experiment": "x", "row": row} for row in ("b", "c", "a")]
    found = arms([Record(config, 0) for config in reversed(configs)], order=configs[:2])
    assert [arm.label for arm in found] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        ([{"method": "a", "lr": 1}], ["a"]),
        ([{"method": "a", "lr": 1}, {"method": "b", "lr": 1}], ["a", "b"]),
        # One more field where the name does not tell them apart, and no more than that.
        (
            [
                {"method": "a", "lr": 1.0, "k": 1},
                {"method": "a", "lr": 0.5, "k": 2},
                {"method": "b", "lr": 0.5, "k": 2},
            ],
            ["a, lr=1", "a, lr=0.5", "b, lr=0.5"],
        ),
        # Words tell more than numbers.
        ([{"n": 1, "kind": "x"}, {"n": 2, "kind": "y"}], ["kind=x", "kind=y"]),
        (
            [{"learner": {"method": "a", "lr": [1, 2]}}, {"learner": {"method": "a", "lr": [3]}}],
            ["a, lr=1/2", "a, lr=3"],
        ),
        ([{"experiment": "only", "n": 3}], ["only"]),
        ([{}], ["run"]),
    ],
)
def test_names_are_as_short_as_they_can_be(configs, names):
    assert labels(configs) == names


def test_what_follows_from_the_seed_is_left_out():
    config = {"a": {"seed": 1, "b": 2, "digest": "x"}, "reference": [0.1], "c": None}
    assert flatten(config) == {"a.b": 2, "c": None}


def test_mean_and_standard_error_are_numpys_and_gaps_do_not_count():
    rows = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan], [8.0, 5.0, np.nan]])
    arm = Arm("a", tuple(Record({}, i, values={"v": torch.tensor(row)}) for i, row in enumerate(rows)))
    middle, error = arm.mean(lambda record: record.values["v"])
    assert middle[:2].tolist() == pytest.approx([4.0, 3.5])
    expected = [rows[:, 0].std(ddof=1) / np.sqrt(3), rows[[0, 2], 1].std(ddof=1) / np.sqrt(2)]
    assert error[:2].tolist() == pytest.approx(expected)
    assert middle[2].isnan()
    assert error[2].isnan()
    _, alone = Arm("a", arm.records[:1]).mean(lambda record: record.values["v"])
    assert alone.isnan().all()
