"""Matrices of many seeds, as other frameworks write them; what is no such file is refused in a sentence."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.data.readers.runs import read_runs

R = {3: [[0.9, 0.1], [0.6, 0.8]], 5: [[0.7, 0.2], [0.5, 0.9]]}


def rows_of(matrices, first=0):
    return [
        (seed, i + first, j + first, value)
        for seed, matrix in matrices.items()
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
    ]


@pytest.mark.parametrize("first", [0, 1, 7])
@pytest.mark.parametrize(
    "header",
    ["seed,trained,tested,accuracy", "Run;Train Task;Test_Task;ACC", "seed\ttrained_up_to\ttested_on\tvalue"],
)
def test_long_tables_with_the_names_that_people_give(tmp_path, header, first):
    delimiter = next(d for d in ",;\t" if d in header)
    body = "\n".join(delimiter.join(map(str, row)) for row in rows_of(R, first))
    (tmp_path / "long.csv").write_text(f"{header}\n{body}\n")
    found = read_runs([tmp_path / "long.csv"])
    assert found.matrices == R
    assert found.tasks == [str(first), str(first + 1)]
    assert found.baseline == {}


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_long_tables_of_arrow(tmp_path, ending):
    frame = pd.DataFrame(rows_of(R), columns=["seed", "trained", "tested", "accuracy"])
    getattr(frame, f"to_{ending}")(tmp_path / f"long.{ending}")
    assert read_runs([tmp_path / f"long.{ending}"]).matrices == R


def test_a_row_from_before_training_is_the_baseline(tmp_path):
    for told in ("0", "", "None"):
        (tmp_path / "R.csv").write_text(
            "trained,tested,accuracy\n"
            + "".join(f"{told},{j},0.5\n" for j in (1, 2))
            + "".join(f"{i},{j},{0.1 * i + j}\n" for i in (1, 2) for j in (1, 2))
        )
        found = read_runs([tmp_path / "R.csv"])
        assert found.baseline == {0: [0.5, 0.5]}
        assert found.matrices == {0: [[1.1, 2.1], [1.2, 2.2]]}


def test_tasks_by_name_come_in_their_order(tmp_path):
    lines = ["cat,cat,.9", "dog,cat,.8", "dog,dog,.7"]
    (tmp_path / "R.csv").write_text("after,on,accuracy\n" + "\n".join(lines))
    found = read_runs([tmp_path / "R.csv"])
    assert found.tasks == ["cat", "dog"]
    assert found.matrices[0][1] == [0.8, 0.7]
    assert math.isnan(found.matrices[0][0][1])


# As the CSVLogger of Avalanche writes it: an evaluation before training, then one after each experience.
AVALANCHE = """eval_exp,training_exp,eval_accuracy,eval_loss,forgetting
0,None,0.1000,2.3000,0
1,None,0.1100,2.3000,0
0,0,0.9900,0.0300,0
1,0,0.0000,4.0000,0
0,1,0.6000,1.0000,0.3900
1,1,0.9700,0.1000,0
"""


def test_the_csv_log_of_avalanche_and_a_file_a_seed(tmp_path):
    for seed in range(2):
        (tmp_path / f"seed{seed}").mkdir()
        (tmp_path / f"seed{seed}" / "eval_results.csv").write_text(AVALANCHE.replace("0.9700", f"0.97{seed}0"))
    found = read_runs([tmp_path / f"seed{seed}" / "eval_results.csv" for seed in range(2)])
    assert found.matrices == {0: [[0.99, 0.0], [0.6, 0.97]], 1: [[0.99, 0.0], [0.6, 0.971]]}
    assert found.baseline == {0: [0.1, 0.11], 1: [0.1, 0.11]}


def named(task, experience):
    """A data set without task labels has no task in the name."""
    told = "" if task is None else f"/Task{task:03d}"
    return f"Top1_Acc_Exp/eval_phase/test_stream{told}/Exp{experience:03d}"


@pytest.mark.parametrize("by_task", [None, False, True])
def test_the_metrics_of_avalanche(tmp_path, by_task):
    def metrics(row):
        other = {"Loss_Exp/eval_phase/test_stream/Task000/Exp000": 3.0, "Top1_Acc_Stream/eval_phase/test_stream": 0.4}
        return {
            named(None if by_task is None else j if by_task else 0, j): value for j, value in enumerate(row)
        } | other

    evaluations = [metrics(row) for row in ([0.5, 0.5], *R[3])]
    files = {"each": evaluations, "without": evaluations[1:]}
    files["all"] = {key: [[0, 1], [row[key] for row in evaluations[1:]]] for key in evaluations[0]}
    files["seeds"] = {str(seed): [metrics(row) for row in matrix] for seed, matrix in R.items()}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        found = read_runs([tmp_path / f"{name}.json"])
        assert found.matrices == (R if name == "seeds" else {0: R[3]})
        assert found.baseline == ({0: [0.5, 0.5]} if name == "each" else {})
        assert found.tasks == ["0", "1"]


# As the logger of Mammoth writes it: a dict a line, numpy's numbers among the values.
def mammoth(seed, matrix, lr=0.1, spell=str):
    told = {"dataset": "seq-cifar10", "model": "er", "lr": lr, "seed": seed, "conf_jobnum": f"j{seed}", "x": [1, "a'}"]}
    text = str(told)[:-1] + ", 'device': device(type='cuda', index=0), 'accmean_task1': 50.0"
    cells = {f"accuracy_{j + 1}_task{i + 1}": v for i, row in enumerate(matrix) for j, v in enumerate(row) if j <= i}
    return text + "".join(f", '{name}': {spell(value)}" for name, value in cells.items()) + ", 'forgetting': None}\n"


@pytest.mark.parametrize("spell", [str, lambda v: f"np.float64({v})"])
def test_the_log_of_mammoth(tmp_path, spell):
    (tmp_path / "logs.pyd").write_text("".join(mammoth(seed, matrix, spell=spell) for seed, matrix in R.items()))
    found = read_runs([tmp_path / "logs.pyd"])
    assert list(found.matrices) == [3, 5]
    for seed, matrix in found.matrices.items():
        assert matrix[1] == R[seed][1]
        assert math.isnan(matrix[0][1])
    (tmp_path / "unseeded.pyd").write_text("".join(mammoth(None, matrix) for matrix in R.values()))
    assert list(read_runs([tmp_path / "unseeded.pyd"]).matrices) == [0, 1]


def test_stacks(tmp_path):
    np.save(tmp_path / "R.npy", np.array(list(R.values())))
    (tmp_path / "R.json").write_text(json.dumps(list(R.values())))
    (tmp_path / "seeds.json").write_text(json.dumps({f"seed_{seed}": matrix for seed, matrix in R.items()}))
    for name, seeds in {"R.npy": [0, 1], "R.json": [0, 1], "seeds.json": [3, 5]}.items():
        found = read_runs([tmp_path / name])
        assert list(found.matrices) == seeds
        assert list(found.matrices.values()) == list(R.values())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_long_table_in_any_order_is_the_stack(tmp_path_factory, data):
    seeds, tasks = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    stack = data.draw(st.lists(st.floats(0, 1, width=32), min_size=seeds * tasks**2, max_size=seeds * tasks**2))
    stack = np.array(stack).reshape(seeds, tasks, tasks)
    rows = data.draw(st.permutations(rows_of(dict(enumerate(stack.tolist())))))
    path = tmp_path_factory.mktemp("long") / "long.csv"
    path.write_text("tested,seed,trained,accuracy\n" + "".join(f"{j},{s},{i},{v!r}\n" for s, i, j, v in rows))
    assert list(read_runs([path]).matrices.values()) == stack.tolist()


LONG = "seed,trained,tested,accuracy\n"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", LONG + "0,1,1,.5\n0,1,1,.6\n", "a cell that was not there before. Got task 1 after 1 again"),
        ("a.csv", LONG + "0,1,1,x\n", "Data row 1, column accuracy of .* must be a finite number"),
        ("a.csv", LONG + "0,5,1,.5\n0,1,1,.5\n", "trained .* must be among those that were tested. Got '5'"),
        ("a.csv", LONG + "0,1,,.5\n", "must name a task. Got nothing"),
        ("a.csv", LONG + "0,1,1.5,.5\n", "column tested of .* must be a task. Got '1.5'"),
        ("a.csv", LONG + "0,1,1\n", "Line 2 of .* must have 4 cells. Got 3"),
        ("a.csv", LONG, "must hold a row for each cell"),
        ("a.csv", "trained,tested,accuracy\n,1,.5\n", "must hold accuracies after training"),
        ("a.json", '[{"x": 1}]', "must have metrics called Top1_Acc_Exp"),
        ("a.json", '{"x": [[1]]}', "a key 'R' or 'matrix', matrices by seed, or Avalanche's metrics. Got the keys 'x'"),
        ("a.json", "[[[1]], [[1, 2], [3, 4]]]", "must be of the same tasks. Got 1 x 1 and 2 x 2"),
        ("a.json", json.dumps([{named(0, 0): 1.0}] * 3), "one evaluation of each of 1 experiences.* Got 3"),
        ("a.json", json.dumps([{named(0, 0): "x"}]), "Evaluation 1, experience 0 of .* must be a finite number"),
        ("a.json", "[" * 100000, "plain nested lists|must be JSON"),
        ("a.pyd", "{'seed': 0, 'accuracy_1_task1': 5", "Line 1 of .* must be a dict of numbers and words"),
        ("a.pyd", "{'seed': __import__('os').system('x')}", "must have numbers called accuracy_1_task1"),
        ("a.pyd", "{'accuracy_1_task1': __import__('os')}", "must be a finite number"),
        ("a.pyd", "{'a': " + "[" * 1000 + "]" * 1000 + "}", "must be a dict of numbers and words"),
        ("a.pyd", "{'a': (1]}", "must be a dict of numbers and words"),
        ("a.pyd", mammoth(0, R[3]) + mammoth(1, R[5], lr=0.3), "of one setting. Got lr = 0.1 and 0.3"),
        ("a.pyd", mammoth(0, R[3]) + mammoth(0, R[5]), "a cell that was not there before"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused_in_a_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_runs([tmp_path / name])


def test_files_that_say_the_same_seed_are_refused(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(LONG + "4,1,1,.5\n")
    with pytest.raises(InputError, match=r"different seeds. Got seed 4 again in .*b.csv"):
        read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_a_columnar_table_of_something_else_is_refused(tmp_path):
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"must be those of a long table \(seed: seed, run.* Got a instead"):
        read_runs([tmp_path / "x.parquet"])
