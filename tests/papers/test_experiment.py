"""The frame: lines, ids and configurations of experiments."""

import math
from pathlib import Path

import pytest
import torch

from dice import Config, Dice
from vestige.continual.record import Record, latest, load_all
from vestige.ratios import Logistic
from vestige.runner.experiment import PRESETS, line
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report.reading import belonging, gather
from vestige.runner.report.reproductions import MISSES


def test_a_line_has_mean_and_standard_error():
    found = line("a", "b", [1.0, 2.0, 4.0, math.nan], paper=2.0, scale=10)
    assert found.ours == pytest.approx(70 / 3)
    # sd of 10, 20, 40 by hand: mean 23.33, squares 177.8 + 11.1 + 277.8 = 466.7, / 2, root 15.28; over root 3
    assert found.se == pytest.approx(15.2753 / math.sqrt(3), rel=1e-4)
    assert (found.n, found.paper) == (3, 2.0)
    assert line("a", "b", [1.0]).se is None
    assert math.isnan(line("a", "b", []).ours)


def test_the_id_is_known_before_the_run_and_depends_on_configuration_and_seed():
    dice = Dice()
    record = dice.run(Config(), 3, lambda share, words: None)
    assert record.id == dice.unit_id(Config(), 3)
    assert dice.unit_id(Config(), 4) != record.id
    assert dice.unit_id(Config(bias=0.1), 3) != record.id
    assert record.config == {"experiment": "dice", "throws": 100, "sides": [6], "bias": 0.0}


def test_a_record_of_the_protocol_is_adopted_with_what_ran_in_its_details():
    dice = Dice()
    inner = Record({"stream": {"data": "toy"}}, 3, matrices={"single": torch.ones(2, 2).double()}, head="single")
    adopted = dice.adopt(inner, Config(), values={"extra": torch.tensor(1.0).double()})
    assert adopted.id == dice.unit_id(Config(), 3)
    assert adopted.details == {"run": {"stream": {"data": "toy"}}}
    assert torch.equal(adopted.R, inner.R)
    assert "extra" in adopted.values


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_what_it_must(name):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert experiment.item
    assert experiment.rule
    assert (type(experiment).__doc__ or "").strip()
    assert set(experiment.presets) == set(experiment.seeds) == set(PRESETS)
    assert {"smoke", "laptop"} <= set(experiment.cut) | {"laptop"}, "what smoke leaves out is said"
    for words in experiment.cut.values():
        assert not words.endswith("."), "phrases that can follow 'with'"
        assert "seed" not in words.replace("a seed", "").replace("the seed", "").replace("--seeds 1", ""), "are counted"
    for preset in PRESETS:
        arms = experiment.arms(experiment.presets[preset])
        ids = {experiment.unit_id(arm, 0) for arm in arms}
        assert arms
        assert len(ids) == len(arms), "no two units are the same"
        for arm in arms:
            home = EXPERIMENTS[experiment.config(arm)["experiment"]]
            assert home.unit_id(arm, 0) == experiment.unit_id(arm, 0), (
                f"{name} shows the runs of {home.name}: raise `version` in the class that they share"
            )


def test_the_version_of_what_is_used_without_being_named_counts(monkeypatch):
    class Loaded(Dice):
        """A die that uses a ratio."""

        uses = (Logistic,)

    before = Loaded().unit_id(Config(), 0)
    assert before == Dice().unit_id(Config(), 0)
    monkeypatch.setattr(Logistic, "version", 2)
    assert Loaded().unit_id(Config(), 0) != before
    assert Loaded().versions(Config()) == {"experiment": 1, "Logistic": 2}


def test_what_is_kept_is_whole_and_lies_under_its_experiment():
    files = sorted((Path(__file__).parents[2] / "reproductions").glob("*.jsonl"))
    assert files
    for file in files:
        records = load_all(file)
        assert {record.config["experiment"] for record in records} == {file.stem}
        assert file.stem in EXPERIMENTS
        assert [record.id for record in latest(records)] == [record.id for record in records], "each run once, in order"


def test_every_miss_among_what_is_kept_says_what_it_rests_on():
    kept = gather([Path(__file__).parents[2] / "reproductions"])
    for name, experiment in EXPERIMENTS.items():
        for runs in belonging(name, kept).values():
            assert experiment.grounds or experiment.verdict(runs).word not in MISSES, name
