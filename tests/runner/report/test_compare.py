"""Differences are paired by seed where seeds match, and say so where they do not."""

import numpy as np
import pytest
import torch
from scipy import stats

from dice import Dice
from runner.report.planted import NAN, bare
from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import compare
from vestige.runner.report.compare import difference, differences, quantities
from vestige.show import Heat


def found(first, second, quantity):
    (one,) = [d for d in differences(first, second) if d.quantity == quantity]
    return one


def test_pairs_are_seed_by_seed():
    one, two = [0.1, 0.5, 0.3], [0.2, 0.7, 0.35]
    first = [bare("a", i, last) for i, last in enumerate(one)]
    second = [bare("b", i, last) for i, last in reversed(list(enumerate(two)))]
    d = found(first, second, "F, single")
    # F is 1 less `last`: the difference is that of the lasts, the other way round.
    test = stats.ttest_rel(two, one)
    assert (d.value, d.n, d.paired) == (pytest.approx(-np.mean(np.subtract(two, one))), 3, True)
    assert d.se == pytest.approx(abs(d.value / test.statistic))
    assert d.clear == (test.pvalue < 0.05)


@pytest.mark.parametrize("shift", [0.1, 0.2, 0.3, 0.5])
def test_clear_is_students(shift):
    noise = np.array([0.0, 0.1, -0.2, 0.15])
    d = difference("", "x", dict(enumerate(noise)), dict(enumerate(noise[::-1] + shift)))
    assert d.clear == (stats.ttest_rel(noise[::-1] + shift, noise).pvalue < 0.05)


def test_without_a_common_seed_it_is_the_difference_of_means():
    one, two = {0: 1.0, 1: 2.0}, {2: 4.0, 3: 8.0, 4: NAN}
    d = difference("", "x", one, two)
    welch = stats.ttest_ind([4.0, 8.0], [1.0, 2.0], equal_var=False)
    assert (d.value, d.paired) == (4.5, False)
    assert d.se == pytest.approx(d.value / welch.statistic)
    assert not d.clear
    alone = difference("", "x", {0: 1.0}, {1: 2.0})
    assert (alone.value, alone.se, alone.clear) == (1.0, None, False)


def test_seeds_that_one_side_lacks_do_not_count():
    d = difference("", "x", {0: 1.0, 1: 2.0, 7: 100.0}, {0: 2.0, 1: 5.0, 9: -100.0})
    assert (d.value, d.n) == (2.0, 2)
    assert d.first.n == 3


def test_every_number_of_a_run_is_a_quantity():
    record = bare(values={"kl": torch.tensor(2.0).double(), "path": torch.tensor([1.0, 3.0]).double()})
    numbers = quantities(record)
    assert numbers["A, single"] == pytest.approx(0.5)
    assert numbers["train (s)"] == 6
    assert numbers["model (MB)"] == 1
    assert numbers["kl"] == 2
    assert numbers["path, last of 2"] == 3


def test_unlike_quantities_and_arms_are_refused():
    with pytest.raises(InputError, match=r"must have the same quantities. Got 'I, single' in the first alone"):
        differences([bare("a")], [bare("b", reference=False)])
    with pytest.raises(InputError, match=r"must have the same arms. Got 'b' in one alone"):
        differences([bare("a"), bare("b")], [bare("a"), bare("c")])


def test_several_arms_are_matched_by_name():
    first = [bare("a", last=0.1), bare("b", last=0.2)]
    second = [bare("b", last=0.6), bare("a", last=0.3)]
    shown = {d.label: d.value for d in differences(first, second) if d.quantity == "F, single"}
    assert shown == {"a": pytest.approx(-0.2), "b": pytest.approx(-0.4)}


def test_experiments_are_compared_by_their_own_lines(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    both = [
        [
            Record({"experiment": "dice", "side": s}, seed, values={"mean": torch.tensor(v).double()})
            for seed in (0, 1)
            for s in (1, 2)
        ]
        for v in (3.0, 3.25)
    ]
    (d,) = differences(*both)
    assert (d.label, d.quantity, d.value, d.n) == ("die", "mean", 0.25, 2)


def test_the_page_subtracts_the_first_from_the_second():
    first, second = ([bare(m, i, last + 0.01 * i) for i in range(3)] for m, last in (("a", 0.2), ("b", 0.6)))
    page = compare(first, second, ("old", "new"))
    assert page.title == "old beside new"
    assert page.answer.endswith("clearly differ (new less old, at 95%).")
    assert page.status.word == "differs"
    assert "F, single -0.4" in page.lead
    assert [heading for heading, _ in page.sections] == [
        "Differences",
        "As tasks go by",
        "Every task after every task",
        "How to get the same numbers",
    ]
    (table,) = page.sections[0][1]
    row = {r[0]: r for r in table.rows}["F, single"]
    assert (row[5], row[7], row[8]) == (pytest.approx(-0.4), "yes", "3 paired")
    (heat,) = page.sections[2][1]
    assert isinstance(heat, Heat)
    assert heat.values[2].tolist() == pytest.approx([0.4, 0.4, 0.0])


def test_chance_is_called_chance():
    alone = compare([bare("a")], [bare("b", last=0.9)])
    assert (alone.status.word, alone.answer) == (
        "cannot be told",
        "A and B cannot be told apart: one of them has one seed.",
    )
    same = [bare("a", i) for i in range(3)]
    page = compare(same, same)
    assert page.answer.endswith("none clearly differ.")
    assert page.status.word == "no clear difference"
    assert page.lead.startswith("Every 95% interval has room")
    other = compare([bare("a", 0), bare("a", 1)], [bare("b", 2), bare("b", 3)])
    assert "unpaired" in other.sections[0][1][0].rows[0][-1]
    assert "where no seed is in both" in other.sections[0][1][0].note
    assert compare(same, same, ("x", "x")).title == "x (first) beside x (second)"
