"""Every task has the same say: the weights of CDRE Eq. 15's average over tasks, against a sum task by task."""

import pytest
import torch

from vestige import features
from vestige.core.errors import InputError
from vestige.features.rows import Argument, gather


def group(n, seed=0):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))


def test_a_weighted_mean_of_rows_is_the_mean_of_task_means():
    tasks = {"a": group(5, 1), "b": group(50, 2), "c": group(7, 3)}
    rows, total = gather([Argument("x", tasks, None, 1)], "test", (3,), dtype=torch.float64)
    assert total == 3
    expected = torch.stack([x.double().mean(0) for x in tasks.values()]).mean(0)
    torch.testing.assert_close((rows.weights[:, None] * rows.x).mean(0), expected)
    assert float(rows.weights.mean()) == pytest.approx(1)


def test_one_array_of_generated_samples_stands_for_all_old_tasks():
    """Eq. 15 at t = 4: the new task weighs 1/4, the three old ones together 3/4."""
    new, old = group(10, 1), group(90, 2)
    parts = [Argument("x_new", new, None, 1), Argument("x_generated", old, None, 3)]
    rows, total = gather(parts, "test", (3,), dtype=torch.float64)
    assert total == 4
    assert float(rows.weights[:10].sum() / rows.weights.sum()) == pytest.approx(1 / 4)
    torch.testing.assert_close(
        (rows.weights[:, None] * rows.x).mean(0), new.double().mean(0) / 4 + 3 * old.double().mean(0) / 4
    )


def test_update_counts_tasks():
    feature_map = features.build("pca", dims=2).fit({"a": group(9), "b": group(9, 1)})
    assert feature_map.tasks_ == 2
    assert feature_map.update(group(5)).tasks_ == 3
    assert feature_map.update({"d": group(5), "e": group(5)}, {"a": group(4)}).tasks_ == 5


def test_labels_go_with_their_tasks():
    x = {"a": group(3), "b": group(2)}
    rows, _ = gather([Argument("x", x, {"a": [0, 1, 0], "b": [2, 2]}, 1)], "test", (3,), dtype=torch.float32)
    assert rows.y.tolist() == [0, 1, 0, 2, 2]
    for labels, sentence in (
        ({"a": [0, 1, 0]}, "for the same tasks"),
        ({"a": [0, 1], "b": [2, 2]}, "3 long"),
        ({"a": [0, 1, -1], "b": [2, 2]}, "0 or larger"),
    ):
        with pytest.raises(InputError, match=sentence):
            gather([Argument("x", x, labels, 1)], "test", (3,), dtype=torch.float32)
    with pytest.raises(InputError, match="for all samples or for none"):
        gather(
            [Argument("x", group(2), [0, 1], 1), Argument("z", group(2), None, 1)], "test", (3,), dtype=torch.float32
        )


def test_bytes_and_floats_stand_side_by_side():
    parts = [Argument("x", {0: torch.full((2, 3), 255, dtype=torch.uint8), 1: torch.ones(2, 3)}, None, 1)]
    rows, _ = gather(parts, "test", (3,), dtype=torch.float32)
    assert torch.equal(rows.x, torch.ones(4, 3))
