"""`vestige matrix` from the file to the figure, for people and for machines."""

import json
import os

import numpy as np
import pytest

from vestige.cli import main

EXAMPLE = "0.7,0.2,,\n0.8,0.9,0.3,\n0.6,0.8,0.7,0.1\n0.5,0.9,0.4,0.6\n"


@pytest.fixture
def file(tmp_path):
    def write(text, name="R.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def answer(argv, capsys):
    assert main(["matrix", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_example_of_the_paper_as_json(file, capsys):
    found = answer(
        [file(EXAMPLE), "--reference", file("0.9,0.9,0.9,0.9", "s"), "--baseline", file("0,.1,.1,.1", "b")], capsys
    )
    assert found["tasks"] == ["1", "2", "3", "4"]
    assert found["trained"] == 4
    assert found["matrix"][0] == [0.7, 0.2, None, None]
    assert found["per_task"][0]["forgetting"] == pytest.approx(0.3)
    assert found["per_task"][0]["backward_transfer"] == pytest.approx(-0.2)
    assert found["per_task"][3] == {
        "task": 4,
        "forgetting": None,
        "intransigence": pytest.approx(0.3),
        "backward_transfer": None,
        "forward_transfer": 0,
    }
    assert found["at"][0] == {
        "k": 1,
        "average": 0.7,
        "forgetting": None,
        "intransigence": pytest.approx(0.2),
        "backward_transfer": None,
        "forward_transfer": None,
    }
    assert found["last"] == {name: value for name, value in found["at"][3].items() if name != "k"}
    assert found["last"]["forgetting"] == pytest.approx(0.2)
    assert found["last"]["forward_transfer"] == pytest.approx((0.1 + 0.2 + 0) / 3)


def test_tables_for_people(file, capsys):
    assert main(["matrix", file("97.5,\n80,99\n")]) == 0
    out, err = capsys.readouterr()
    assert "larger is better" in out
    assert "97.50" in out
    assert "17.50" in out  # F and, negative, BWT
    assert "-17.50" in out
    assert "needs --reference" in err
    assert "needs --baseline" in err
    assert "FWT" not in out


def test_a_file_of_losses(file, capsys):
    found = answer([file("0.1,\n2.6,0.2\n"), "--better", "down"], capsys)
    assert found["better"] == "down"
    assert found["last"]["forgetting"] == pytest.approx(2.5)
    assert found["last"]["average"] == pytest.approx(1.4)


def test_a_reference_may_be_the_whole_matrix_of_the_joint_model(file, capsys):
    whole = np.full((4, 4), 0.5) + np.diag([0.4, 0.4, 0.4, 0.4])
    joint = file("", "joint.npy")
    np.save(joint, whole)
    found = answer([file(EXAMPLE), "--reference", joint], capsys)
    assert found["last"]["intransigence"] == pytest.approx(0.3)


def test_labels_name_the_tasks(file, capsys):
    assert main(["matrix", file("step,cats,dogs\na,0.9,\nb,0.7,0.8\n")]) == 0
    assert "cats" in capsys.readouterr().out
    found = answer([file(",cats,dogs\na,0.9,\nb,0.7,0.8\n")], capsys)
    assert found["tasks"] == ["cats", "dogs"]
    assert found["read"]["header"] is True
    assert found["read"]["index"] is True


def test_a_transposed_matrix_is_noticed_and_turned(file, capsys):
    turned = file(",step 1,step 2\ncats,0.9,0.7\ndogs,,0.8\n")
    assert main(["matrix", turned]) == 0
    assert "Try --transpose" in capsys.readouterr().err
    found = answer([turned, "--transpose"], capsys)
    assert found["tasks"] == ["cats", "dogs"]
    assert found["last"]["forgetting"] == pytest.approx(0.2)


def test_its_own_json_is_read_back(file, capsys):
    found = answer([file(EXAMPLE)], capsys)
    again = answer([file(json.dumps(found), "R.json")], capsys)
    assert again["at"] == found["at"]


def test_a_run_in_progress_and_a_run_of_one_task(file, capsys):
    assert answer([file("0.9,0.1,0.2\n0.8,0.9,0.3\n")], capsys)["trained"] == 2
    assert answer([file("0.9\n")], capsys)["last"]["forgetting"] is None
    assert main(["matrix", file("0.9\n")]) == 0


@pytest.mark.parametrize(
    ("text", "extra", "sentence"),
    [
        ("0.1\n0.9\n", [], "at most as many rows as columns (1)"),
        ("0.1,0.1\n0.9,0.1\n0.8,0.9\n", [], "a row from before any training is a 'baseline'"),
        (",\n,\n", [], "measured somewhere"),
        ("0.9,\n0.7,=A1\n", [], "Line 2, column 2"),
        (EXAMPLE, ["--reference", "0.9,0.9"], "'reference' of intransigence must be 4 long"),
        (EXAMPLE, ["--baseline", "0.9,x"], "Line 1, column 2"),
    ],
)
def test_what_cannot_be_used_is_misuse_with_one_sentence(text, extra, sentence, file, capsys):
    extra = [extra[0], file(extra[1], "other.csv")] if extra else []
    assert main(["matrix", file(text), *extra]) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert out == ""


def test_a_hundred_tasks_are_answered_without_repeating_the_matrix(file, capsys):
    text = "\n".join(",".join("0.5" for _ in range(100)) for _ in range(100))
    assert main(["matrix", file(text)]) == 0
    out = capsys.readouterr().out
    assert "R[trained up to" not in out
    assert "after k tasks" in out


def test_fractions_among_percentages_are_refused_by_file_and_cell(file, capsys):
    mixed = file("97,\n0.8,99\n")
    assert main(["matrix", mixed]) == 2
    assert "R.csv: The 'R' of vestige matrix must be" in (told := capsys.readouterr().err)
    assert "0.8 in row 2, column 1 beside 97 in row 1, column 1" in told
    assert main(["matrix", mixed, "--better", "down"]) == 0
    assert main(["matrix", file("97%,\n0.8%,99%\n")]) == 0  # no doubt


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "R.csv")
    assert main(["matrix", str(tmp_path / "R.csv")]) == 2
    assert "must be a regular file. Got a pipe" in capsys.readouterr().err
