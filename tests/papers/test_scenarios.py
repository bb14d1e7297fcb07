"""beyond-scenarios: a smoke run of every arm, and what its rule says of numbers that are put in."""

from dataclasses import replace
from statistics import fmean

import pytest
import torch

from smoke import read, run_smoke
from vestige import runner
from vestige.continual import learners
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond.scenarios import EDITIONS, METHODS, SCENARIOS, by_arm, options_of

NAME = "beyond-scenarios"


@pytest.mark.slow
def test_every_arm_runs_and_is_read(tmp_path):
    records = run_smoke(NAME, tmp_path)
    assert len(records) == 3 * 9 - 2 + 4  # iCaRL is for classes alone; four arms have the preprint's settings
    lines, figures = read(NAME, records)
    assert set(figures) == {NAME}
    every = [x for x in lines if x.label == "SI, class-incremental"]
    assert [x.paper for x in every] == [20.04, 19.99, 21.20]
    assert [x.quantity.partition(", ")[2] for x in every] == list(EDITIONS)
    assert [x.paper for x in lines if x.label == "EWC, task-incremental"] == [98.64]
    assert [x.paper for x in lines if x.label == "LwF 2019, class-incremental"] == [24.17, 23.85]
    assert all(x.paper is None for x in lines if x.label == "ER, domain-incremental")


def test_every_arm_has_its_method_on_its_stream(tmp_path):
    planned = runner.plan(NAME, tmp_path, preset="smoke", seeds=1)
    assert len(planned) == 3 * 9 - 2 + 4
    for unit in planned:
        stream, learner = EXPERIMENTS[NAME].parts(unit.config, 0)
        assert (stream.config.get("scenario") == "domain") is (unit.config.scenario == "domain")
        assert type(learner) is learners.METHODS[METHODS[unit.config.row]]


def test_a_scenario_is_what_it_says(tmp_path):
    records = run_smoke(NAME, tmp_path, only=lambda config: config.row == "None")
    ran = {(r.config["row"], r.config["scenario"]): r for r in records}
    assert len(ran) == len(records) == 3
    assert ran["None", "task"].head == "multi"
    assert ran["None", "class"].details["run"]["protocol"] == {"iterations": 4, "batch_size": 16}
    assert not torch.equal(ran["None", "class"].R, ran["None", "domain"].R)
    assert ran["None", "domain"].details["run"]["stream"]["scenario"] == "domain"


def test_the_rule_goes_by_each_edition():
    rule, arms = EXPERIMENTS[NAME].rule, {arm for edition in EDITIONS.values() for arm in edition}
    means = {arm: fmean(edition[arm] for edition in EDITIONS.values() if arm in edition) for arm in arms}
    assert rule.judge(means).word == "reproduced"
    off = means | {("ER", "class"): 84.0}
    assert rule.judge(off).word == "partly"
    assert "not ER class, Nat. Mach. Intell. 2022: 84.0, 88.8 in print" in rule.judge(off).why
    assert rule.judge(means | {("ER", "class"): 50.0}).word == "not"
    assert rule.judge(means | {("EWC 2019", "domain"): 64.0}).word == "reproduced"
    assert rule.judge(means | {("EWC 2019", "domain"): 70.0}).word == "partly"


def test_digits_come_in_their_order_with_the_first_seed_and_in_another_with_each_other():
    experiment = EXPERIMENTS[NAME]
    arm = replace(experiment.presets["smoke"], row="None", scenario="domain")
    orders = [experiment.parts(arm, seed)[0].config["order"] for seed in range(3)]
    assert orders[0] == sorted(orders[1]) == sorted(orders[2]) == list(range(10))
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"row": "EWC-2019"}, "The 'row' of vestige run beyond-scenarios must be one of .* Did you mean 'EWC 2019'"),
        ({"scenario": "nowhere"}, "The 'scenario' of vestige run beyond-scenarios must be one of class, domain, task"),
        ({"row": "iCaRL", "scenario": "task"}, "must be values that leave at least one run. Got .*row=iCaRL"),
    ],
)
def test_a_run_that_is_none_is_refused(tmp_path, given, told):
    with pytest.raises(InputError, match=told):
        runner.plan(NAME, tmp_path, preset="smoke", overrides=given)


def test_settings_are_those_of_the_article_by_scenario():
    experiment = EXPERIMENTS[NAME]
    arms = {(a.row, a.scenario): a for a in experiment.arms(experiment.presets["paper"])}
    assert {s: options_of(arms["EWC", s])["lam"] for s in SCENARIOS} == {"class": 1e9, "domain": 1e10, "task": 1e5}
    assert {s: options_of(arms["SI", s])["lam"] for s in SCENARIOS} == {"class": 5e3, "domain": 5e4, "task": 10.0}
    assert {options_of(arms["SI", s])["gradient"] for s in SCENARIOS} == {"total"}
    assert {options_of(arms["LwF", s])["form"] for s in SCENARIOS} == {"van_de_ven"}
    assert options_of(arms["iCaRL", "class"])["temperature"] == 2
    assert options_of(arms["EWC 2019", "domain"]) == {"lam": 1e6, "fisher": "predicted"}
    assert options_of(arms["SI 2019", "domain"])["lam"] == 500
    assert options_of(arms["LwF 2019", "class"])["form"] == "van_de_ven_2019"
    assert options_of(arms["ER", "domain"])["memory"]["total"] == 1000
    assert set(METHODS) == {row for row, _ in arms}
    assert by_arm([]) == {}
