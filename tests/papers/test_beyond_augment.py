"""beyond-augment: a smoke run of every case, what its cases do to rows, and what its rule says of numbers put in."""

import dataclasses

import numpy as np
import pytest
import torch

from smoke import read, run_smoke
from vestige.continual.record import Record
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond import augment
from vestige_papers.beyond.augment import CASES, CONTROLS, HARM, TABLES, AugmentSetting

NAME = "beyond-augment"


@pytest.mark.slow
def test_every_case_runs_and_is_read(tmp_path):
    records = run_smoke(NAME, tmp_path)
    assert {r.config["case"] for r in records} == set(CASES)
    lines, figures = read(NAME, records)
    assert set(figures) == {NAME}
    for case in TABLES:
        quantities = [x.quantity for x in lines if x.label == f"{case}, weighted"]
        assert quantities == ["accuracy (%)", *(f"less {other}" for other in CONTROLS)]
    assert any(x.label == f"{HARM}, fixed half" for x in lines)
    assert_chosen(records)


def assert_chosen(records):
    assert records
    for r in records:
        chosen = r.details["choice"]["chosen"]
        assert float(r.values["choose"]) == float(r.values[chosen])
        assert float(r.values[f"chose {chosen}"]) == 1
        assert float(r.values["mass"]) <= 1


def test_what_is_chosen_has_the_accuracy_of_its_arm(tmp_path):
    cases = [next(iter(TABLES)), HARM]  # a table and drawings: the two ways
    records = run_smoke(NAME, tmp_path, only=lambda config: config.case in cases)
    assert [r.config["case"] for r in records] == cases
    assert_chosen(records)


def config(case, **options):
    return dataclasses.replace(EXPERIMENTS[NAME].presets["smoke"], cases=(), case=case, **options)


def test_no_row_is_in_two_sets():
    real, made, test = augment.rows_of(config("electricity-labels", wrong=0.0), 0)
    rows = [tuple(row) for x, _ in (real, made, test) for row in x.tolist()]
    assert [len(x) for x, _ in (real, made, test)] == [100, 200, 200]
    assert len(set(rows)) == len(rows)  # the digits are all different
    other = augment.rows_of(config("electricity-labels"), 1)[0]
    assert not np.array_equal(real[0], other[0])


def test_half_of_the_rows_are_broken_in_half_of_the_columns():
    noise = np.random.default_rng(0)
    x, y = np.arange(80.0).reshape(20, 4), np.arange(20)
    got, labels = augment.broken(x.copy(), y, noise)
    changed = got != x
    assert not changed[10:].any()
    columns = changed.any(0)
    assert columns.sum() == 2
    assert changed[:10][:, columns].mean() > 0.5
    for c in np.flatnonzero(columns):
        assert sorted(got[:10, c]) == sorted(x[:10, c])
    a, b = np.flatnonzero(columns)
    assert np.array_equal(got[:10, a] - x[0, a], got[:10, b] - x[0, b])  # both from the same other row
    assert np.array_equal(labels, y)


def test_wrong_labels_are_other_labels():
    y = np.zeros(4000, dtype=np.int64)
    _, got = augment.mislabelled(np.zeros((4000, 1)), y.copy(), 0.3, 3, np.random.default_rng(0))
    shares = np.bincount(got, minlength=3) / 4000
    assert shares == pytest.approx([0.7, 0.15, 0.15], abs=0.03)


def test_legacy_rows_are_biased_in_class_and_elevation():
    rng = np.random.default_rng(0)
    y, elevation = np.arange(6000) % 3, rng.normal(size=6000)
    first = augment.legacy(elevation, y, AugmentSetting(tilt=1.0, lower=1.0), rng)[:600]
    assert elevation[first].mean() < -0.5
    shares = np.sort(np.bincount(y[first]) / 600)
    assert shares[2] > 1.5 * shares[1] > 2 * shares[0]
    fair = augment.legacy(elevation, y, AugmentSetting(tilt=0.0, lower=0.0), rng)[:600]
    assert abs(elevation[fair].mean()) < 0.15


def record(case, seed, **arms):
    values = {"real only": 0.7, "unweighted": 0.7, "shuffled": 0.7, "same mass": 0.7, "weighted": 0.8, "choose": 0.8}
    values |= {name.replace("_", " "): value for name, value in arms.items()}
    return Record(
        {"experiment": NAME, "case": case}, seed, values={k: torch.tensor(v).double() for k, v in values.items()}
    )


def test_a_gain_counts_over_every_control_and_harm_is_seen():
    judge = EXPERIMENTS[NAME].by_rule

    def runs(**arms):
        return [
            record(case, seed, **{k: v + 0.001 * seed for k, v in arms.items()}) for case in CASES for seed in (0, 1, 2)
        ]

    assert judge(runs()).word == "reproduced"
    for control in CONTROLS[1:]:
        found = judge(runs(**{control.replace(" ", "_"): 0.7995}))
        assert found.word != "reproduced"
        assert f"on every table weighted is above {control}" in found.why.partition("Does not hold:")[2]
    harmed = [
        *(r for r in runs() if r.config["case"] != HARM),
        *(record(HARM, s, weighted=0.65 + s / 1000) for s in (0, 1)),
    ]
    assert "with a DAGAN" in judge(harmed).why.partition("Does not hold:")[2]
    assert judge(runs()[:1]).word == "not judged"
