"""A grid is searched on validation data alone, and the search is stored with what it chose."""

from dataclasses import replace

import pytest
import torch

from border import Border
from dice import Dice
from vestige import data, runner
from vestige.continual.record import Record
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.trained import Trained


class Told(Border):
    """Its score is known: validation prefers lr 0.02 for vanilla and 0.01 with samples; the test set the reverse."""

    def run(self, config, seed, on_progress):
        best = {"vanilla": 0.02, "ewc_pp_s": 0.01} if config.validate else {"vanilla": 0.01, "ewc_pp_s": 0.02}
        score = 1 - abs(config.lr - best[config.method]) + 0.001 * seed + (0.5 if config.epochs == 7 else 0)
        return self.record(config, seed, values={"score": torch.tensor(score, dtype=torch.float64)})

    def score(self, record):
        return float(record.values["score"])


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "border", Told())
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())


def ran(units):
    return [finished.record for finished in runner.run(units)]


def test_each_unit_gets_what_was_best_on_validation(told, tmp_path):
    search = runner.search("border", tmp_path, {"lr": [0.01, 0.02, 0.04]}, seeds=2)
    tried = ran(search.units())
    assert len(tried) == 2 * 3 * 3  # methods, values, seeds: three at least
    assert all(record.config["validate"] for record in tried)
    assert not list((tmp_path / "border").glob("*.json"))  # where tables look for results
    units = search.winners(tried)
    assert [(u.config.method, u.config.lr, u.config.validate, u.seed) for u in units] == [
        ("vanilla", 0.02, False, 0),
        ("ewc_pp_s", 0.01, False, 0),
        ("vanilla", 0.02, False, 1),
        ("ewc_pp_s", 0.01, False, 1),
    ]
    for record in ran(units):
        search = record.details["search"]
        assert search["chosen"] == {"lr": record.config["lr"]}
        assert [entry["set"]["lr"] for entry in search["tried"]] == [0.01, 0.02, 0.04]
        assert [len(entry["scores"]) for entry in search["tried"]] == [3, 3, 3]
        ids = {i for entry in search["tried"] for i in entry["records"]}
        assert ids <= {path.stem for path in (tmp_path / "border" / "search").glob("*.json")}
        assert record.details["command"] == "run border --preset laptop --seeds 2 --grid lr=0.01,0.02,0.04"


def test_several_fields_give_their_product_and_of_equals_the_first_wins(told, tmp_path):
    search = runner.search("border", tmp_path, {"epochs": [7, 8], "lr": [0.03, 0.01]}, seeds=1)
    assert search.points == [
        {"epochs": 7, "lr": 0.03},
        {"epochs": 7, "lr": 0.01},
        {"epochs": 8, "lr": 0.03},
        {"epochs": 8, "lr": 0.01},
    ]
    vanilla, samples = search.winners(ran(search.units()))
    assert (vanilla.config.epochs, vanilla.config.lr) == (7, 0.03)  # 0.03 and 0.01 are as far from 0.02
    assert (samples.config.epochs, samples.config.lr) == (7, 0.01)


def test_a_choice_may_be_made_by_the_first_tasks_alone(monkeypatch, tmp_path):
    class Turning(Told):
        """One rate is best on the first task, the other on both together."""

        def run(self, config, seed, on_progress):
            first, second = (0.9, 0.0) if config.lr == 0.01 else (0.5, 0.8)
            R = torch.tensor([[first, 0.0], [first, second]], dtype=torch.float64)
            return self.record(config, seed, head="single", matrices={"single": R})

        def score(self, record):
            return float(record.R[-1].mean())

    monkeypatch.setitem(EXPERIMENTS, "border", Turning())
    for tasks, rate in ((None, 0.02), (1, 0.01)):
        search = runner.search("border", tmp_path, {"lr": [0.01, 0.02]}, seeds=1, tasks=tasks)
        units = search.winners(ran(search.units()))
        assert {unit.config.lr for unit in units} == {rate}
        assert all(("first 1 tasks alone" in u.details["search"]["on"]) is (tasks == 1) for u in units)
        assert ("--grid-tasks 1" in units[0].command) is (tasks == 1)


def test_a_score_that_is_not_a_number_cannot_win(told, tmp_path):
    search = runner.search("border", tmp_path, {"lr": [0.02, 0.04]}, seeds=1)
    records = ran(search.units())
    values = {0.02: float("nan"), 0.04: 0.0}
    lost = [replace(r, values={"score": r.values["score"] * 0 + values[r.config["lr"]]}) for r in records]
    assert {unit.config.lr for unit in search.winners(lost)} == {0.04}


def test_a_unit_that_the_grid_leaves_alone_has_nothing_to_choose(tmp_path):
    grid = {"lam": [1.0, 10.0]}
    search = runner.search("rwalk-table1-mnist", tmp_path, grid, preset="smoke", seeds=1)
    rows = {unit.config.row for unit in search.units()}
    assert rows == {"EWC", "PI", "RWalk", "EWC-S", "PI-S", "RWalk-S"}
    assert all(unit.config.validate for unit in search.units())
    assert len(search.units()) == 12 * 3


SEARCHES = ("robust-search", "rwalk-search-mnist", "rwalk-search-cifar")  # whose units are on held-out rows already
ABLE = [name for name, e in EXPERIMENTS.items() if isinstance(e, runner.Validated)]


def test_what_trains_a_learner_to_its_end_can_be_searched_and_nothing_else():
    trained = {name for name, e in EXPERIMENTS.items() if isinstance(e, Trained) and type(e).run is Trained.run}
    assert trained <= set(ABLE)
    assert not {"cdre-fig2a", "robust-audit", "robust-fig2", "robust-fig3", "robust-fig4"} & set(ABLE)


@pytest.mark.parametrize("name", [name for name in ABLE if hasattr(EXPERIMENTS[name].presets["smoke"], "lr")])
def test_a_search_reads_held_out_rows_alone(name, tmp_path):
    def grid():
        return runner.search(name, tmp_path, {"lr": [0.011, 0.013]}, preset="smoke", seeds=1)

    if name in SEARCHES:
        with pytest.raises(InputError, match="held-out training rows already"):
            grid()
        return
    units = grid().units()
    assert {unit.config.lr for unit in units} == {0.011, 0.013}
    assert all(unit.config.validate for unit in units)
    assert {unit.path.parent.name for unit in units} == {"search"}


@pytest.mark.parametrize("name", ["robust-fig5", "rwalk-table2"])
def test_the_rows_that_a_search_tests_on_are_of_the_training_set(name, tmp_path):
    (unit, *_) = runner.search(name, tmp_path, {"lr": [0.01, 0.02]}, preset="smoke", seeds=1).units()
    stream, _ = EXPERIMENTS[name].parts(unit.config, 0)
    dataset = data.load(unit.config.data)
    known = {row.numpy().tobytes() for row in dataset.floats(dataset.train_x)}
    tested = [row.numpy().tobytes() for test in stream.test_sets() for row in test.x]
    trained = {row.numpy().tobytes() for task in stream for row in task.x}
    assert set(tested) <= known
    assert not set(tested) & trained


def test_a_finished_record_gets_the_search_without_being_run_again(told, tmp_path):
    (plain, _) = runner.plan("border", tmp_path, seeds=1, overrides={"lr": 0.02})
    before = runner.run_unit(plain, lambda share, words: None)
    assert "search" not in before.details
    search = runner.search("border", tmp_path, {"lr": [0.02, 0.04]}, seeds=1)
    units = search.winners(ran(search.units()))
    fresh = {f.unit.path: f.fresh for f in runner.run(units)}
    assert fresh[plain.path] is False
    after = Record.load(plain.path)
    assert after.details["search"]["chosen"] == {"lr": 0.02}
    assert after.seconds == before.seconds


@pytest.mark.parametrize(
    ("name", "grid", "more", "words"),
    [
        ("dice", {"bias": [0, 1]}, {}, "must be for an experiment with a validation score: .*border.*Got dice"),
        ("border", {"lr": [1, 2]}, {"overrides": {"lr": 3}}, "not 'set' too. Got lr"),
        ("border", {"lr": []}, {}, "must give each field a value"),
        ("border", {"rate": [1]}, {}, "lr"),
        ("border", {"lr": ["fast"]}, {}, "must be float"),
        ("border", {"methods": [["vanilla"], ["vanilla", "ewc_pp_s"]]}, {}, "change how many there are"),
        ("border", {"lr": [0.5]}, {}, "must change a unit of border. Got lr"),
    ],
)
def test_what_cannot_be_searched_is_refused(told, tmp_path, name, grid, more, words):
    with pytest.raises(InputError, match=words):
        runner.search(name, tmp_path, grid, **more)


def test_a_preset_that_tests_on_validation_rows_already_is_refused(tmp_path):
    with pytest.raises(InputError, match="held-out training rows already"):
        runner.search("rwalk-table2", tmp_path, {"lam": [1.0, 10.0]}, preset="laptop", seeds=1)
