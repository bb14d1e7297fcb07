"""Time and memory, uncertainty, samples, audit, diagnosis, origin: each says what the Records say, or nothing."""

import dataclasses

import numpy as np
import pytest
import torch

from runner.report.planted import bare, matrix
from vestige.continual.desiderata import QUESTIONS, Answer, Audit
from vestige.continual.record import Record
from vestige.core.plain import plain
from vestige.metrics.uncertainty import unseen_task_roc
from vestige.runner.report.reading import arms
from vestige.runner.report.sections import (
    LONGEST,
    audits,
    bytes_table,
    costs,
    origin,
    ratios,
    samples,
    scalars,
    seconds_table,
    uncertainty,
)
from vestige.show import Heat, Picture, Table, Verbatim


def cells(table, row=0):
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_seconds_are_totals_with_their_growth():
    (table,) = seconds_table(arms([bare(seed=0), bare(seed=1)]))
    found = cells(table)
    assert found["train (s)"] == pytest.approx(6.5)
    assert table.rows[0][2] == pytest.approx(0.5)  # of 6 and 7
    assert found["last task / first"] == pytest.approx(3.5)
    assert found["eval (s)"] == pytest.approx(0.3)


def test_memory_is_what_is_held_at_the_end_and_the_largest_peak():
    (table,) = bytes_table(arms([bare()]))
    found = cells(table)
    assert (found["model (MB)"], found["peak (MB)"]) == (1.0, 9.0)


def test_accuracy_stands_against_time_where_there_are_two():
    assert len(costs(arms([bare("a")]))) == 2
    *_, front = costs(arms([bare("a", last=0.1), bare("b", last=0.4)]))
    assert "a 0.4 in 6 s; b 0.6 in 6 s" in front.alt
    assert costs(arms([bare(seconds={}, bytes={})])) == []


def test_any_value_over_tasks_is_a_matrix():
    mi = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)).double()
    values = {"mutual_information": mi, "ece": mi, "row": mi[0], "wide": mi[:, :2]}
    words, *found, table = uncertainty(arms([bare(values=values), bare(seed=1, values=values | {"ece": mi + 1})]))
    assert "still to come" in words
    assert [(h.title, h.better) for h in found] == [
        ("vanilla: mutual information", "neither"),
        ("vanilla: ece", "down"),
    ]
    assert torch.allclose(found[1].values, mi + 0.5)
    assert isinstance(found[0], Heat)
    assert cells(table)["others"] == pytest.approx(unseen_task_roc(mi, pairs="others").auc)
    assert uncertainty(arms([bare(values={"row": mi[0]})])) == []


def test_stored_samples_are_shown():
    grid = torch.rand(4, 5, 5).double()
    (picture,) = samples(arms([bare(values={"samples_after_3": grid, "kl": torch.zeros(3).double()})]))
    assert isinstance(picture, Picture)
    assert "4 images" in picture.alt
    (beyond,) = samples(arms([bare(values={"samples": 2 * grid - 1})]))
    assert beyond.figure.axes[0].images
    assert samples(arms([bare(values={"samples": grid[0]})])) == []


def test_numbers_of_a_run_are_averaged():
    (table,) = scalars(arms([bare(seed=i, values={"kl": torch.tensor(v).double()}) for i, v in enumerate((1, 2, 6))]))
    label, quantity, mean, se, n = table.rows[0]
    assert (label, quantity, mean, n) == ("vanilla", "kl", 3.0, 3)
    assert se == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert scalars(arms([bare()])) == []


def audited(method, verdict):
    answers = {name: Answer(verdict, f"seen in {method}") for name in QUESTIONS}
    return bare(method, audit=plain(Audit(method, answers)))


def test_audits_stand_side_by_side_with_their_evidence():
    verdicts, first, second = audits(arms([audited("a", "holds"), audited("b", "fails"), bare("c")]))
    assert verdicts.columns[1:] == ("a", "b")
    assert {row[1:] for row in verdicts.rows} == {("holds", "fails")}
    assert first.rows[0][2:] == ("holds", "seen in a")
    assert second.title == "Evidence: b"
    assert len(audits(arms([audited("a", "holds")]))) == 1
    assert audits(arms([bare()])) == []


def test_verdicts_are_counted_and_reasons_told_once():
    chain = bare(
        "a", details={"verdicts": ["ok", "", "lower: the index is 0.81 of Eq. 4", "lower: the index is 0.9 of Eq. 4"]}
    )
    other = bare("b", details={"verdicts": {"1,1": "ok"}, "refused": {"kl": "too few"}})
    words, counts, reasons = ratios(arms([chain, other]))
    assert words == "Of 4 values, 2 have the verdict 'ok'."
    assert cells(counts) == {"": "a", "ok": 1, "lower": 2, "all": 3}
    assert reasons.rows == [("a", "lower", "the index is … of Eq. 4", 2), ("b", "refused", "kl: too few", 1)]
    assert ratios(arms([bare()])) == []


def test_a_refusal_alone_judges_nothing_else():
    (reasons,) = ratios(arms([bare(details={"refused": {"kl": "too few"}})]))
    assert reasons.rows == [("vanilla", "refused", "kl: too few", 1)]


def test_the_origin_is_enough_to_run_again():
    records = [
        bare("a", 0, details={"command": "run x --seeds 2"}, versions={"torch": "1"}, machine={"cores": 2}),
        bare("a", 1, details={"command": "run x --seeds 2"}, versions={"torch": "2"}, machine={"cores": 2}),
        bare("b", 0, versions={"torch": "1", "commit": "abc+"}, machine={"cores": 2}),
    ]
    command, runs, shared, apart, made = origin(arms(records))
    assert command == Verbatim("vestige run x --seeds 2")
    assert runs.rows[0] == ("a", "0, 1", f"{records[0].id}, {records[1].id}")
    assert ("learner.lr", "0.1") in shared.rows
    assert apart.rows == [("a", "a"), ("b", "b")]
    assert ("torch", "1, 2") in made.rows
    assert ("commit", "abc+") in made.rows
    assert ("version of the results", "1") in made.rows


def test_a_search_is_told_with_all_that_was_tried():
    note = {
        "chosen": {"lam": 10},
        "tried": [
            {"set": {"lam": 1}, "scores": [0.1, 0.3], "records": ["a", "b"]},
            {"set": {"lam": 10}, "scores": [0.4], "records": ["c"]},
        ],
    }
    tables = [part for part in origin(arms([bare(details={"search": note})])) if isinstance(part, Table)]
    (table,) = [t for t in tables if "validation" in t.title]
    assert table.columns == ("method", "tried", "mean score", "spread", "seeds", "chosen")
    assert table.rows == [
        ("vanilla", "lam=1", pytest.approx(0.2), pytest.approx(0.02**0.5), 2, "no"),
        ("vanilla", "lam=10", 0.4, None, 1, "yes"),
    ]


def test_a_long_setting_is_cut():
    record = Record({"method": "a", "order": list(range(500))}, 0)
    texts = [cell for part in origin(arms([record])) if isinstance(part, Table) for row in part.rows for cell in row]
    assert max(map(len, texts)) == LONGEST


def test_a_run_without_python_details_has_an_origin_all_the_same():
    first, *_ = origin(arms([dataclasses.replace(bare(), matrices={"single": matrix(0.1)})]))
    assert "from Python" in first
