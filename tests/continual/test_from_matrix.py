"""Records from what other frameworks measured: saved, compared seed by seed, reported and audited."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from vestige.cli import main
from vestige.continual.audit import from_record
from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.metrics.matrix import over_seeds
from vestige.runner.report.compare import differences

STACK = np.array([[[0.9, 0.1], [0.6, 0.8]], [[0.7, 0.2], [0.5, 0.9]], [[0.8, 0.2], [0.7, 0.9]]])
FRAME = pd.DataFrame(
    [(seed, i, j, value) for (seed, i, j), value in np.ndenumerate(STACK)],
    columns=["seed", "trained", "tested", "accuracy"],
)
HEADS = {None: "not measured", "single": "holds", "multi": "fails"}
METRICS = [
    {f"Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp00{j}": value for j, value in enumerate(row)} for row in STACK[1]
]


@pytest.mark.parametrize(
    "results",
    [STACK, torch.tensor(STACK), STACK.tolist(), FRAME, {str(i): one for i, one in enumerate(STACK.tolist())}],
)
def test_every_kind_gives_a_record_a_seed(results, tmp_path):
    found = Record.from_matrix(results, name="er", data="cifar")
    assert [record.seed for record in found] == [0, 1, 2]
    for record, expected in zip(found, STACK, strict=True):
        assert np.array_equal(record.R.numpy(), expected)
        assert Record.load(record.save(tmp_path)).id == record.id
    assert len({record.id for record in found}) == 3
    assert str(found[0]).startswith(f"Record {found[0].id[:12]}: er, seed 0")


def test_one_matrix_is_one_record_with_its_seed():
    for results in (STACK[1], METRICS):
        (only,) = Record.from_matrix(results, seed=7)
        assert only.seed == 7
        assert only.summary().last()["forgetting"] == pytest.approx(0.2)
    assert only.task_names == ["0", "1"]


def test_percentages_are_divided_and_it_is_said():
    (only,) = Record.from_matrix(STACK[0] * 100, reference=[95, 95], baseline=[50, 50])
    torch.testing.assert_close(only.R, torch.tensor(STACK[0]))
    assert only.details["scale"] == "percentages, divided by 100"
    last = only.summary().last()
    assert last["intransigence"] == pytest.approx(0.15)
    assert last["forward_transfer"] == pytest.approx(-0.4)


def test_losses_are_the_other_way_round():
    (only,) = Record.from_matrix([[0.1, 3.0], [0.5, 0.2]], better="down")
    assert only.summary().last()["forgetting"] == pytest.approx(0.4)


def test_another_matrix_under_the_same_name_is_another_record():
    assert Record.from_matrix(STACK[0])[0].id != Record.from_matrix(STACK[1], seed=0)[0].id


def test_what_is_compared_is_paired_by_seed():
    first, second = Record.from_matrix(STACK, name="a"), Record.from_matrix(STACK + 0.05, name="b")
    average = next(d for d in differences(first, second) if d.quantity.startswith("A,"))
    assert (average.n, average.value) == (3, pytest.approx(0.05))
    assert average.se == pytest.approx(0, abs=1e-12)


def test_the_audit_says_what_is_not_known():
    told = {name: from_record(Record.from_matrix(STACK[0], head=name)[0])["shared_head"] for name in HEADS}
    assert {name: answer.verdict for name, answer in told.items()} == HEADS


def test_intervals_over_seeds_are_those_of_student():
    found = over_seeds([record.summary() for record in Record.from_matrix(STACK)])["average"]
    values = STACK[:, 1].mean(1)
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert np.isnan(over_seeds([Record.from_matrix(STACK[0])[0].summary()])["average"].low)


@pytest.mark.parametrize(
    ("results", "more", "sentence"),
    [
        (np.zeros((2, 2, 2, 2)), {}, "of shape .tasks, tasks. or .seeds, tasks, tasks."),
        (np.zeros((3, 2)), {}, "at most as many rows as columns"),
        ([[0.5, 60], [70, 80]], {}, "fractions in every cell or percentages"),
        (STACK, {"seed": 1}, "None for several runs"),
        (STACK, {"head": "both"}, "'head' of Record.from_matrix must be one of multi, single"),
        (STACK, {"reference": [1, 2, 3]}, "'reference' of Record.from_matrix must be at most 2 long"),
        (FRAME.drop(columns="tested"), {}, "those of a long table"),
        ("nowhere.csv", {}, "nowhere.csv must be one that can be read"),
    ],
)
def test_what_is_no_matrix_is_refused(results, more, sentence):
    with pytest.raises(InputError, match=sentence):
        Record.from_matrix(results, **more)


def test_the_verb_writes_records_that_report_and_audit_take(tmp_path, capsys):
    for name, shift in (("a", 0), ("b", 0.05)):
        np.save(tmp_path / f"{name}.npy", STACK + shift)
        assert main(["matrix", str(tmp_path / f"{name}.npy"), "--records", str(tmp_path / name), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.split("}\n{")[-1].join(["{", ""]))
    assert found["last"]["average"]["seeds"] == 3
    assert found["matrix"][1] == pytest.approx((STACK[:, 1].mean(0) + 0.05).tolist())
    assert len(found["records"]) == 3
    compare = [
        "report",
        "--compare",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "-o",
        str(tmp_path / "c"),
        "--page-only",
    ]
    assert main(compare) == 0
    assert "clearly differ" in capsys.readouterr().out
    assert main(["audit", str(tmp_path / "a")]) == 0


def test_the_verb_prints_means_with_intervals(tmp_path, capsys):
    FRAME.to_csv(tmp_path / "long.csv", index=False)
    assert main(["matrix", str(tmp_path / "long.csv")]) == 0
    out = capsys.readouterr().out
    assert "of 3 seeds" in out
    assert "95 % from" in out
    assert "seed by seed" in out
    assert main(["matrix", str(tmp_path / "long.csv"), "--name", "x"]) == 2
