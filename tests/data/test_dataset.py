import dataclasses

import pytest
import torch

from vestige.core.errors import InputError
from vestige.data.dataset import DataSet, every_nth


def images(**changes):
    fields = {
        "name": "toy",
        "train_x": torch.arange(6 * 4, dtype=torch.uint8).reshape(6, 2, 2),
        "train_y": torch.tensor([0, 1, 0, 1, 0, 1]),
        "test_x": torch.full((2, 2, 2), 255, dtype=torch.uint8),
        "test_y": torch.tensor([0, 1]),
        "names": ("a", "b"),
        "licence": "none",
        "origin": "here",
    }
    return DataSet(**(fields | changes))


def table(**changes):
    return images(train_x=torch.randn(6, 3), test_x=torch.randn(2, 3), **changes)


def test_every_nth_marks_the_nth_of_each_class():
    y = torch.tensor([2, 0, 0, 2, 0, 2, 2, 0, 1, 2, 0])
    seen, expected = {}, []
    for label in y.tolist():
        seen[label] = seen.get(label, 0) + 1
        expected.append(seen[label] % 2 == 0)
    assert every_nth(y, 2).tolist() == expected


def test_images_become_floats_in_0_1_and_tables_stay_as_they_are():
    data = images()
    x = data.floats(data.train_x)
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.arange(24).reshape(6, 2, 2) / 255)
    assert data.floats(data.test_x).unique().tolist() == [1.0]
    assert data.train_x.dtype == torch.uint8  # and the rows themselves are untouched
    rows = table()
    assert torch.equal(rows.floats(rows.test_x), rows.test_x)


def test_floats_refuses_rows_of_another_set():
    with pytest.raises(InputError, match="uint8 rows of shape"):
        images().floats(torch.rand(3, 2, 2))
    with pytest.raises(InputError, match="uint8 rows of shape"):
        images().floats(torch.zeros(3, 3, 3, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_y": torch.tensor([0, 1])}, "'train_y' .* must be 6 int64 labels"),
        ({"test_y": torch.tensor([0, 2])}, "'test_y' .* must be in 0..1. Got 0..2"),
        ({"test_y": torch.tensor([-1, 0])}, "'test_y' .* must be in 0..1"),
        ({"test_y": torch.tensor([0.0, 1.0])}, "'test_y' .* int64 labels"),
        ({"test_x": torch.zeros(2, 3, 3, dtype=torch.uint8)}, "'test_x' .* samples of shape"),
        ({"test_x": torch.zeros(2, 2, 2)}, "'test_x' .* the same in both splits"),
        ({"train_x": torch.zeros(6, 2, 2, dtype=torch.float64)}, "'train_x' .* uint8 or float32"),
        ({"train_x": torch.zeros(0, 2, 2, dtype=torch.uint8)}, "'train_x' .* at least one feature"),
        ({"names": ()}, "'names' .* at least one"),
        ({"groups": ("g",)}, "'groups' .* one for each of 2"),
    ],
)
def test_a_data_set_that_does_not_hang_together_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        images(**changes)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_table_must_be_finite(bad):
    rows = table()
    broken = rows.test_x.clone()
    broken[1, 2] = bad
    with pytest.raises(InputError, match=r"'test_x' .* finite. Got 1 NaN or infinite"):
        dataclasses.replace(rows, test_x=broken)
