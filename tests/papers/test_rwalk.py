"""The tables and figures of RWalk: their units, what is read from them, and the rules that judge them."""

import dataclasses
from pathlib import Path

import pytest
import torch

from smoke import read, run_smoke
from vestige import data, runner
from vestige.continual.record import load_all
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.rwalk import table3 as rwalk_table3
from vestige_papers.rwalk.runs import (
    JOINT,
    WITH,
    WITHOUT,
    RWalkChoice,
    RWalkSetting,
    filled,
    reference_said,
    score,
    shrunk,
)
from vestige_papers.rwalk.search import chosen, tried
from vestige_papers.rwalk.table1 import CHOSEN_CIFAR, CHOSEN_MNIST, PAPER_CIFAR, PAPER_MNIST

NAMES = [name for name in EXPERIMENTS if name.startswith("rwalk-")]


def matrix(single_last, first=1.0, k=5, diagonal=None):
    """A matrix whose last row is `single_last`, and which held `first` everywhere before."""
    R = torch.full((k, k), first, dtype=torch.float64)
    R[-1] = single_last
    if diagonal is not None:
        R[-1, -1] = diagonal
    return R


def planted(experiment, row, *, single, multi=0.99, seed=0, diagonal=None, first=1.0, **fields):
    """A Record of `row` with given last rows of accuracies (a number, or one for each task)."""
    arm = next(a for a in experiment.arms(experiment.presets["smoke"]) if a.row == row and a.replay == "balanced")
    setting = dataclasses.replace(arm, **fields)
    matrices = {"single": matrix(single, first, diagonal=diagonal), "multi": matrix(multi)}
    return experiment.record(setting, seed, head="single", matrices=matrices)


def run_accuracies(name, out, units=None):
    """A smoke run, whose matrices are shares under both heads."""
    records = run_smoke(name, out, units)
    for record in records:
        assert set(record.matrices) == {"single", "multi"}
        assert all(bool(((R >= 0) & (R <= 1)).all()) for R in record.matrices.values())
    return records


@pytest.fixture(scope="module")
def mnist_smoke(tmp_path_factory):
    return run_accuracies("rwalk-table1-mnist", tmp_path_factory.mktemp("runs"))


def test_table1_runs_and_is_read(mnist_smoke):
    lines, figures = read("rwalk-table1-mnist", mnist_smoke)
    assert {x.quantity for x in lines} == {"A5 (%)", "F5", "I5"}
    assert {f"{head}-head {row}" for head in ("multi", "single") for row in CHOSEN_MNIST} <= {x.label for x in lines}
    assert "single-head Vanilla-S, memory beside" in {x.label for x in lines}
    assert set(figures) == {"single-head"}


def test_the_ways_of_a_memory_differ(mnist_smoke):
    ways = {r.config["replay"]: r.R for r in mnist_smoke if r.config["row"] == "Vanilla-S"}
    assert len(ways) == 4
    assert len({tuple(R.flatten().tolist()) for R in ways.values()}) > 1


def test_fig3_reads_the_runs_of_the_table(mnist_smoke):
    rows = EXPERIMENTS["rwalk-fig3"].rows
    mine = [r for r in mnist_smoke if r.config["row"] in rows and r.config["replay"] == "balanced"]
    lines, figures = read("rwalk-fig3", mine)
    assert [x.label for x in lines[::2]] == [row for row in rows if row != JOINT]
    assert set(figures) == {"plane", "plane-paper"}


def test_fig2_reads_the_runs_of_the_table(mnist_smoke):
    mine = [r for r in mnist_smoke if r.config["row"] in (*WITHOUT, *WITH) and r.config["replay"] == "balanced"]
    experiment = EXPERIMENTS["rwalk-fig2"]
    lines = experiment.lines(mine)
    assert len(lines) == 12 * 5  # methods and panels, tasks
    assert [x.paper for x in lines if x.label == "multi-head EWC"] == [None] * 4 + [99.3]


@pytest.mark.parametrize(
    "name",
    ["rwalk-table1-cifar", "rwalk-fig4", "rwalk-fig5", "rwalk-search-mnist", "rwalk-search-cifar", "rwalk-table3"],
)
def test_units_run_and_reload(name, tmp_path):
    assert len(run_accuracies(name, tmp_path, units=2)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_smoke_run_is_read(name, tmp_path):
    lines, figures = read(name, run_accuracies(name, tmp_path))
    assert lines
    assert figures or name in ("rwalk-search-mnist", "rwalk-search-cifar", "rwalk-table2")


def test_print_is_copied_as_printed():
    assert [PAPER_MNIST["multi", row][0] for row in WITHOUT] == [90.3, 99.3, 99.3, 99.3]
    assert [PAPER_MNIST["single", row][0] for row in WITH] == [73.7, 79.7, 78.7, 82.5]
    assert [PAPER_MNIST["single", row] for row in ("Vanilla", "iCaRL-hb1", "iCaRL")] == [
        (38.0, 0.62, 0.29),
        (36.6, 0.68, -0.01),
        (55.8, 0.19, 0.46),
    ]
    assert [PAPER_CIFAR["multi", row][0] for row in WITHOUT] == [44.4, 72.8, 73.2, 74.2]
    assert [PAPER_CIFAR["single", row][0] for row in WITH] == [12.9, 33.6, 33.6, 34.0]
    assert set(PAPER_MNIST) == set(PAPER_CIFAR)
    assert {row for _, row in PAPER_MNIST} | {JOINT} == set(CHOSEN_MNIST)
    assert rwalk_table3.PAPER_MNIST["PI-S", 100.0] == (80.3, 0.15, 0.22)


def test_validation_never_reads_a_test_row():
    digits = data.load("digits")
    held = digits.validation(6)
    together = torch.cat([held.train_x, held.test_x]).flatten(1)
    rows = {tuple(r) for r in digits.train_x.flatten(1).tolist()}
    assert len(held.train_x) + len(held.test_x) == len(digits.train_x)
    assert {tuple(r) for r in together.tolist()} == rows
    counts = held.test_y.bincount()
    assert torch.equal(counts, digits.train_y.bincount() // 6)


def test_a_row_decides_over_which_outputs_training_goes():
    experiment = EXPERIMENTS["rwalk-table1-mnist"]
    for arm in experiment.arms(experiment.presets["smoke"]):
        stream, learner = experiment.parts(arm, 0)
        assert stream.declared.train_logits == ("current" if arm.row in WITHOUT else "seen")
        assert learner.config.init == "truncated_normal"
        if arm.lam is not None:
            assert learner.config.lam == arm.lam
        if arm.row in WITH:
            assert (learner.config.memory.replay, learner.config.memory.per_class) == (arm.replay, 2)
    _, icarl = experiment.parts(RWalkSetting(row="iCaRL", data="digits", epochs=1), 0)
    assert (icarl.config.memory.sampler, icarl.config.memory.replay) == ("herding", "mixed")


def test_table1_has_a_row_for_every_use_of_the_memory():
    experiment = EXPERIMENTS["rwalk-table1-mnist"]
    arms = experiment.arms(experiment.presets["laptop"])
    assert {(a.row, a.replay) for a in arms if a.replay != "balanced"} == {
        ("Vanilla-S", way) for way in ("mixed", "beside", "finetune")
    }
    assert len(arms) == len(CHOSEN_MNIST) + 3
    assert experiment.seeds["laptop"] == 10


def table1_records(experiment, **changed):
    """Every row as printed; `changed` replaces the single-head accuracies of some (in percent)."""
    records = []
    for row in CHOSEN_MNIST:
        a, f, i = PAPER_MNIST.get(("single", row), (95.0, 0.0, 0.0))
        a = changed.get(row.replace("-", "_"), a)
        multi = changed.get("multi_" + row.replace("-", "_"), PAPER_MNIST.get(("multi", row), (99.0,))[0]) / 100
        last = 0.9 - i if row != JOINT else 0.9  # the joint's accuracy on the last task is 0.9
        others = (5 * a / 100 - last) / 4
        first = others + f
        records.append(planted(experiment, row, single=others, multi=multi, diagonal=last, first=first))
    return records


def test_table1_reads_a_f_and_i_and_its_rule_turns():
    experiment = EXPERIMENTS["rwalk-table1-mnist"]
    found = {(x.label, x.quantity): x for x in experiment.lines(table1_records(experiment))}
    for (head, row), (a, f, i) in PAPER_MNIST.items():
        if head == "single":
            for quantity, value in (("A5 (%)", a), ("F5", f), ("I5", i)):
                x = found[f"single-head {row}", quantity]
                assert x.paper == value
                assert x.ours == pytest.approx(value, abs=1e-9)

    def word(**changed):
        return experiment.by_rule(table1_records(experiment, **changed)).word

    assert word() == "reproduced"
    assert word(RWalk_S=82.5 - 4.1) == "partly"  # outside print, and no longer the best
    assert word(multi_EWC=98.2) == "partly"
    assert word(EWC_S=83.0) == "partly"  # still near print, but above RWalk
    assert word(multi_Vanilla=99.4) == "partly"
    assert word(multi_EWC=98.2, RWalk_S=75.0, EWC_S=76.0) == "not"


def test_intransigence_is_judged_on_the_seeds_that_have_a_reference():
    experiment = EXPERIMENTS["rwalk-table1-mnist"]
    records = table1_records(experiment)
    printed = experiment.facts(records).signs["I of PI-S"]
    alone = [dataclasses.replace(r, seed=7) for r in records if r.config["row"] == "PI-S"]
    assert experiment.facts([*records, *alone]).signs["I of PI-S"] == printed
    other = [dataclasses.replace(r, seed=7) if r.config["row"] == "PI-S" else r for r in records]
    assert experiment.by_rule(other).why == "No seed of PI-S has a reference."


def test_the_signs_of_f_and_i_are_judged():
    experiment = EXPERIMENTS["rwalk-table1-mnist"]
    records = table1_records(experiment)
    wrong = [r for r in records if r.config["row"] != "PI-S"]
    wrong.append(planted(experiment, "PI-S", single=0.787, diagonal=0.787, first=0.5))  # F < 0
    assert "signs" in experiment.by_rule(wrong).why.split("Does not hold")[1]


def test_the_search_takes_the_best_mean_and_scores_both_heads_without_samples():
    search = EXPERIMENTS["rwalk-search-mnist"]

    def at(row, lam, single, seed=0, multi=0.99):
        return planted(search, row, single=single, multi=multi, seed=seed, lam=lam)

    assert score(at("EWC", 1.0, 0.5)) == pytest.approx(74.5)
    assert score(at("EWC-S", 1.0, 0.5)) == pytest.approx(50.0)
    records = [
        at("PI-S", lam, a, seed)
        for lam, of in ((1.0, (0.9, 0.5, 0.5)), (2.0, (0.65,) * 3))
        for seed, a in enumerate(of)
    ]
    assert chosen(records) == {"PI-S": RWalkChoice(2.0, 2, False)}
    said = search.by_rule(records).why
    assert "PI-S: lambda 2, 2 epochs of few rows (65.0 +- 0.0 over 3 seeds; by the first 2 tasks:" in said
    one = [record for record in records if record.seed == 0]
    assert "lambda 1, 2 epochs of few rows (90.0; 1 seed, which choose nothing)" in search.by_rule(one).why
    with pytest.raises(InputError, match="'seeds' of search"):
        chosen(one)
    laptop = search.presets["laptop"]
    assert all(arm.validate for arm in search.arms(laptop))
    assert {arm.row for arm in search.arms(laptop) if arm.per_class is None} == {*WITHOUT, "Vanilla-S"}
    assert {"EWC", "EWC-S"} <= {arm.row for arm in search.arms(laptop) if arm.lam == 75000.0}


@pytest.mark.parametrize(("data", "taken"), [("mnist", CHOSEN_MNIST), ("cifar", CHOSEN_CIFAR)])
def test_table1_takes_what_the_kept_search_found(data, taken):
    records = load_all(Path(__file__).parents[2] / "reproductions" / f"rwalk-search-{data}.jsonl")
    assert all(r.config["validate"] for r in records)
    for row, found in tried(records).items():
        lead = max(found, key=lambda each: each.mean)
        assert taken[row] == RWalkChoice(**lead.set)


def test_the_reference_sees_all_rows_and_says_how_it_was_trained():
    for name in ("rwalk-table1-mnist", "rwalk-table1-cifar", "rwalk-table3"):
        experiment = EXPERIMENTS[name]
        (joint,) = (arm for arm in experiment.arms(experiment.presets["laptop"]) if arm.row == JOINT)
        assert joint.per_class is None
    (joint,) = (arm for arm in EXPERIMENTS["rwalk-table1-mnist"].arms(RWalkSetting()) if arm.row == JOINT)
    record = dataclasses.replace(
        planted(EXPERIMENTS["rwalk-table1-mnist"], JOINT, single=0.97), config=dataclasses.asdict(joint)
    )
    assert "4 epochs of all training rows a class, batches of 64, Adam 0.001" in reference_said([record])
    few = dataclasses.replace(record, config=record.config | {"per_class": 500})
    assert "of 500 training rows a class" in reference_said([few])


def test_a_choice_fills_what_is_open_and_no_more():
    open_, choice = RWalkSetting(per_class=500), RWalkChoice(10.0, 8)
    assert filled(open_, "PI", choice) == RWalkSetting(row="PI", lam=10.0, epochs=8, per_class=500)
    assert filled(open_, "PI", RWalkChoice(10.0, 1, whole=True)).per_class is None
    given = RWalkSetting(lam=3.0, epochs=2, per_class=7)
    assert filled(given, "PI", choice) == RWalkSetting(row="PI", lam=3.0, epochs=2, per_class=7)
    assert filled(given, "Vanilla", RWalkChoice(None, 8)).lam is None
    assert str(choice) == "lambda 10, 8 epochs of few rows"


def test_figures_share_the_units_of_their_table(tmp_path):
    table = {u.path.stem for u in runner.plan("rwalk-table1-mnist", tmp_path)}
    for name in ("rwalk-fig2", "rwalk-fig3"):
        assert {u.path.stem for u in runner.plan(name, tmp_path)} <= table
    cifar = {u.path.stem for u in runner.plan("rwalk-table1-cifar", tmp_path)}
    assert {u.path.stem for u in runner.plan("rwalk-fig6", tmp_path)} <= cifar


def test_fig2_rule_turns():
    fig = EXPERIMENTS["rwalk-fig2"]

    def word(*, ewc=0.98, plain=0.4, vanilla_s=0.7):
        records = [planted(fig, "Vanilla", single=0.3, multi=0.9)]
        records += [planted(fig, row, single=plain, multi=ewc) for row in WITHOUT[1:]]
        records += [planted(fig, row, single=vanilla_s if row == "Vanilla-S" else 0.8) for row in WITH]
        return fig.by_rule(records).word

    assert word() == "reproduced"
    assert word(ewc=0.94) == "partly"
    assert word(ewc=0.94, plain=0.85) == "not"
    assert word(vanilla_s=0.81) == "partly"


def test_fig3_rule_turns():
    fig = EXPERIMENTS["rwalk-fig3"]

    def word(rwalk=(0.15, 0.14), vanilla=(0.62, 0.29)):
        records = [planted(fig, JOINT, single=0.9)]
        for row in fig.rows:
            if row != JOINT:
                _, f, i = PAPER_MNIST["single", row]
                f, i = {"RWalk-S": rwalk, "Vanilla": vanilla}.get(row, (f, i))
                records.append(planted(fig, row, single=0.3, first=0.3 + f, diagonal=0.9 - i))
        return fig.by_rule(records).word

    assert word() == "reproduced"
    assert word(rwalk=(0.3, 0.3)) == "partly"
    assert word(vanilla=(0.6, -0.1)) == "partly"
    assert word(rwalk=(0.3, 0.3), vanilla=(0.6, -0.1)) == "not"


@pytest.mark.parametrize(
    ("few", "many", "rwalk", "word"),
    [(0.5, 0.9, 0.80, "reproduced"), (0.9, 0.9, 0.80, "partly"), (0.5, 0.8, 0.80, "partly"), (0.9, 0.8, 0.6, "not")],
)
def test_fig4_rule_turns(few, many, rwalk, word):
    fig = EXPERIMENTS["rwalk-fig4"]
    records = []
    for row in WITH:
        for m in fig.choices:
            a = {"RWalk-S": rwalk, "Vanilla-S": few if m == 2 else many if m == 50 else 0.5}.get(row, 0.7)
            a = {"RWalk-S": 0.9, "Vanilla-S": a}.get(row, 0.89) if m == 50 else a
            records.append(planted(fig, row, single=a, memory_per_class=m))
    assert fig.by_rule(records).word == word


@pytest.mark.parametrize(
    ("mof", "uniform", "vanilla", "word"),
    [(0.8, 0.79, 0.5, "reproduced"), (0.8, 0.7, 0.5, "partly"), (0.7, 0.79, 0.5, "partly"), (0.8, 0.7, 0.79, "not")],
)
def test_fig5_rule_turns(mof, uniform, vanilla, word):
    fig = EXPERIMENTS["rwalk-fig5"]
    records = []
    for row in WITH:
        for s in fig.choices:
            a = {"mean_of_features": mof, "uniform": uniform}.get(s, 0.75)
            a = vanilla if (row, s) == ("Vanilla-S", "entropy") else a
            records.append(planted(fig, row, single=a, sampler=s))
    assert fig.by_rule(records).word == word


@pytest.mark.parametrize(
    ("rwalk", "icarl", "word"), [(0.7, 0.5, "reproduced"), (0.6, 0.5, "partly"), (0.6, 0.66, "not")]
)
def test_table2_rule_turns(rwalk, icarl, word):
    table = EXPERIMENTS["rwalk-table2"]
    means = {"iCaRL": icarl, "GEM": 0.65, "RWalk-S": rwalk}
    records = [planted_replay(table, row, a) for row, a in means.items()]
    assert table.by_rule(records).word == word
    assert [x.paper for x in table.lines(records)] == [50.8, 65.4, 70.1]
    beside = [*records, planted_replay(table, "A-GEM", 0.99)]  # which print does not have
    assert table.by_rule(beside).word == word
    assert {x.label: x.paper for x in table.lines(beside)}["A-GEM"] is None


def test_table2_has_a_second_verdict_for_the_best_lambda():
    table = EXPERIMENTS["rwalk-table2"]
    records = [planted_replay(table, row, a) for row, a in {"iCaRL": 0.5, "GEM": 0.65, "RWalk-S": 0.4}.items()]
    assert "best" not in table.by_rule(records).why
    records += [planted_replay(table, "RWalk-S", a, lam=lam) for lam, a in ((10.0, 0.7), (1.0, 0.3))]
    found = table.by_rule(records)
    assert found.word == "partly"
    assert "RWalk-S 40" in found.why
    assert "With the best of 3 lambdas (lambda 10), chosen by these rows, it is reproduced" in found.why
    assert "RWalk-S, lambda 10" in [x.label for x in table.lines(records)]


def planted_replay(table, row, multi, lam=1000.0):
    arm = next(a for a in table.arms(table.presets["smoke"]) if a.row == row and a.lam == lam)
    return table.record(arm, 0, head="single", matrices={"single": matrix(0.1), "multi": matrix(multi)})


@pytest.mark.parametrize(
    ("spread", "words"),
    [((0.0, 0.0), "reproduced"), ((0.06, 0.0), "not"), ((0.0, 0.4), "not"), ((0.0, 0.15), "partly")],
)
def test_table3_rule_turns(spread, words):
    table = EXPERIMENTS["rwalk-table3"]
    records = [planted(table, JOINT, single=0.9, data="mnist")]
    for row, lambdas in rwalk_table3.LAMBDAS.items():
        for n, lam in enumerate(lambdas):
            f, i = spread if row == "RWalk-S" else (0.03, 0.1)
            records.append(
                planted(table, row, single=0.8 - f * (n % 2), diagonal=0.8 - i * (n % 2), lam=lam, data="mnist")
            )
    assert table.by_rule(records).word == words
    printed = {x.label: x.paper for x in table.lines(records) if x.quantity == "A5 (%)" and x.paper is not None}
    assert printed["RWalk-S, lambda 0.1"] == 82.6
    assert len(printed) == 9


def test_table3_tells_every_reading_of_rwalk():
    table = EXPERIMENTS["rwalk-table3"]
    units = [unit for unit in table.arms(table.presets["smoke"]) if unit.reading]
    assert len(units) == 4 * 3
    assert {unit.lam for unit in units} == {0.1, 100.0, 1e4}
    configs = {unit.reading: table.parts(unit, 0)[1].config for unit in units}
    usual = table.parts(dataclasses.replace(units[0], reading=""), 0)[1].config
    assert len({usual, *configs.values()}) == 5
    assert (configs["authors' code"].average, configs["authors' code"].accumulate) == ("code", "interval")
    assert configs["scaled layer by layer"] == dataclasses.replace(usual, normalise="layer", lam=1e4)
    assert configs["not scaled"] == dataclasses.replace(usual, normalise="none", lam=1e4)
    assert configs["path of the whole loss"] == dataclasses.replace(usual, gradient="total", lam=1e4)
    records = [planted(table, JOINT, single=0.9, data="mnist")]
    for row, lambdas in rwalk_table3.LAMBDAS.items():
        records += [planted(table, row, single=0.8, lam=lam, data="mnist") for lam in lambdas]
    before = table.by_rule(records)
    assert "by reading: as printed 80.0." in before.why
    read = [
        planted(table, "RWalk-S", single=share, lam=lam, data="mnist", reading="not scaled")
        for lam, share in ((0.1, 0.9), (1e4, 0.6))
    ]
    both = table.by_rule([*records, *read])
    assert both.word == before.word, "another reading is told and not judged"
    assert "by reading: as printed 80.0, not scaled 60.0." in both.why
    assert "RWalk-S, lambda 10000, not scaled" in [x.label for x in table.lines([*records, *read])]


def test_fields_that_came_later_change_no_id():
    table = EXPERIMENTS["rwalk-table1-mnist"]
    unit = table.arms(table.presets["laptop"])[0]
    assert not {"size", "reading"} & set(table.config(unit))
    assert table.config(dataclasses.replace(unit, size=16))["size"] == 16


def test_images_are_averaged_down():
    dataset = data.load("digits")
    small = shrunk(dataset, 4)
    squares = dataset.train_x[0].float().reshape(4, 2, 4, 2).mean((1, 3))
    assert small.train_x.dtype == dataset.train_x.dtype
    torch.testing.assert_close(small.train_x[0].float(), squares, rtol=0, atol=0.5)
    assert small.test_x.shape == (len(dataset.test_x), 4, 4)
    with pytest.raises(InputError, match=r"'size' of RWalkSetting must be a divisor of 8\. Got 3 instead"):
        shrunk(dataset, 3)
