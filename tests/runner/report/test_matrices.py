"""What stands in the page is what the matrices sum up to."""

import numpy as np
import pytest
import torch

from runner.report.planted import NAN, bare, matrix
from vestige.runner.report.matrices import MOST_MATRICES, better, final, having, heat, heats, summary_table, task_names
from vestige.runner.report.reading import arms
from vestige.show import Heat


def test_the_summary_is_that_of_the_matrices():
    (arm,) = arms([bare(seed=0, last=0.2), bare(seed=1, last=0.4)])
    found = final(arm, "single")
    # Row 3 is (last, last, 1): A is its mean; old tasks fell from 1 to last; the new one is 0.1 above its reference.
    assert found["average"].ours == pytest.approx((1.4 / 3 + 1.8 / 3) / 2)
    assert found["average"].se == pytest.approx(np.std([1.4 / 3, 1.8 / 3], ddof=1) / np.sqrt(2))
    assert found["forgetting"].ours == pytest.approx(0.7)
    assert found["intransigence"].ours == pytest.approx(-0.1)
    assert found["forward_transfer"].ours == pytest.approx(0.0)
    assert "intransigence" not in final(arm, "multi")  # the reference is of the declared head

    (table,) = summary_table([arm])
    assert [row[:2] for row in table.rows] == [("vanilla", "single"), ("vanilla", "multi")]
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["A"] == found["average"].ours
    assert table.rows[0][3] == found["average"].se
    assert cells["seeds"] == 2


def test_standard_errors_are_left_out_where_there_are_none():
    (table,) = summary_table(arms([bare()]))
    assert "se" not in table.columns
    assert summary_table(arms([bare(matrices={})])) == []
    assert summary_table(arms([bare(matrices={"single": matrix(NAN) * NAN}, baseline={})])) == []


def test_a_heat_is_the_mean_over_seeds():
    (arm,) = arms([bare(seed=0, last=0.2), bare(seed=1, last=0.4)])
    shown = heat(arm, "single")
    assert torch.equal(shown.values, (matrix(0.2) + matrix(0.4)) / 2)
    assert (shown.rows, shown.better, shown.limits) == (["one", "two", "three"], "up", (0.0, 1.0))
    assert "Mean of 2 seeds; the largest standard error of a cell is 0.1." in shown.note


def test_what_is_no_accuracy_is_better_when_smaller():
    record = bare(head="chain", matrices={"chain": matrix(2.0)}, baseline={})
    assert better(record, "chain") == "down"
    assert better(bare(head="x", details={"better": "up"}), "x") == "up"
    assert [better(record, name) for name in ("labels", "variety", "fid", "js")] == ["up", "up", "down", "down"]
    assert heat(arms([record])[0], "chain").limits is None
    assert final(arms([record])[0], "chain")["forgetting"].ours == pytest.approx(1.45)  # to 2, from 1 and from 0.1


def test_declared_heads_come_first_and_what_is_left_out_is_said():
    found = heats(arms([bare(f"m{i:02}") for i in range(MOST_MATRICES)]))
    assert f"{MOST_MATRICES} more are left out" in found[0]
    titles = [part.title for part in found if isinstance(part, Heat)]
    assert titles == [f"m{i:02}, single-head" for i in range(MOST_MATRICES)]
    assert heats(arms([bare(matrices={})])) == []


def test_a_run_without_the_matrix_or_of_another_size_does_not_count():
    whole, broken, other = (
        bare(seed=0),
        bare(seed=1, matrices={}),
        bare(seed=2, reference=False, baseline={}, matrices={"single": matrix(0.1, 4)}),
    )
    (arm,) = arms([whole, broken, other])
    assert having(arm, "single").records == (whole,)
    assert having(arm, "third") is None


def test_names_of_tasks_are_made_different():
    assert task_names(bare(task_names=["a", "b", "a"]), 3) == ["a (1)", "b", "a (3)"]
    assert task_names(bare(task_names=[]), 2) == ["1", "2"]
