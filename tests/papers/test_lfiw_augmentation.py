"""Augmentation after LFIW 3.2: training sets, weights, units on Omniglot's like and on tables, lines, rules."""

import dataclasses

import numpy as np
import pytest
import torch

import have
from vestige import runner
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.data import load
from vestige.generators.pictures import unpack
from vestige.nets import MLP
from vestige.ratios import weights
from vestige.runner.experiment import Gap
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.lfiw import augmentation as shared
from vestige_papers.lfiw import table2 as lfiw_omniglot
from vestige_papers.lfiw import table2 as lfiw_table2
from vestige_papers.lfiw import table2_covtype as lfiw_table2_covtype
from vestige_papers.lfiw.table2 import Drawings, OmniglotSetting

TABLE, FIGURE, COVTYPE = (EXPERIMENTS[n] for n in ("lfiw-table2", "lfiw-fig2", "lfiw-table2-covtype"))
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
SMOKE = TABLE.arms(TABLE.presets["smoke"])


def number(value):
    return torch.tensor(value, dtype=torch.float64)


# Smoke


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    out = tmp_path_factory.mktemp("drawn")
    return out, [f.record for f in runner.run(runner.plan("lfiw-table2", out, preset="smoke"))]


@pytest.mark.slow
def test_table_and_figure_read_the_same_records(drawn):
    out, records = drawn
    for experiment in (TABLE, FIGURE):
        again = [unit.finished() for unit in runner.plan(experiment.name, out, preset="smoke")]
        assert [r.id for r in again] == [r.id for r in records]
        assert str(experiment.lines(again)) == str(experiment.lines(records))
        assert experiment.by_rule(records).word == "not judged"
    assert all(path.stat().st_size < 50_000 for path in out.rglob("*.json"))
    assert set(TABLE.figures(records)) == {"lfiw-table2"}
    assert set(FIGURE.figures(records)) == {"lfiw-fig2-small_pixels", "lfiw-fig2-small"}


def test_lines_are_every_row_its_differences_and_the_diagnosis(drawn):
    lines = TABLE.lines(drawn[1])
    for dagan, printed in (("small_pixels", lfiw_table2.PAPER), ("small", {})):
        own = {(x.label, x.quantity): x for x in lines if x.label.startswith(f"DAGAN {dagan},")}
        for row in shared.ROWS:
            assert own[f"DAGAN {dagan}, {row}", "accuracy (%)"].paper == printed.get(row)
        gain = own[f"DAGAN {dagan}, D_cl + D_g + LFIW", "less D_cl + D_g"]
        assert gain.paper == (pytest.approx(2.18) if printed else None)
        for words in shared.FACTS.values():
            assert (f"DAGAN {dagan}, weights", words) in own
    assert {x.label for x in lines if x.quantity.startswith("spread")} == {"DAGAN small_pixels", "DAGAN small"}
    quarters = {x.label for x in FIGURE.lines(drawn[1])}
    assert "DAGAN small, quarter of most weight" in quarters
    assert len(quarters) == 6


def test_both_dagans_of_a_seed_are_held_against_the_same_classifier_of_real_rows(drawn):
    first, second = drawn[1]
    assert first.config["dagan"] != second.config["dagan"]
    assert torch.equal(first.values["D_cl"], second.values["D_cl"])


@pytest.mark.slow
def test_a_table_smoke_runs_reloads_and_is_read(tmp_path):
    units = runner.plan("lfiw-table2-covtype", tmp_path, preset="smoke")
    records = [f.record for f in runner.run(units)]
    assert str(COVTYPE.lines([u.finished() for u in units])) == str(COVTYPE.lines(records))
    assert {x.label for x in COVTYPE.lines(records)} == {
        f"{learner}, {row}" for learner in ("network", "forest") for row in (*shared.ROWS, "weights")
    }
    assert all(x.paper is None for x in COVTYPE.lines(records))
    assert records[0].details["diagnosis"] == records[1].details["diagnosis"]  # one VAE and one ratio for both
    assert all(path.stat().st_size < 50_000 for path in tmp_path.rglob("*.json"))
    assert set(COVTYPE.figures(records)) == {"lfiw-table2-covtype"}


# What is shared


def test_the_table_is_as_printed():
    """Section 3.2: 0.6603 0.4431 0.4481 0.6600 0.6818."""
    assert list(lfiw_table2.PAPER.values()) == [66.03, 44.31, 44.81, 66.00, 68.18]
    assert list(lfiw_table2.PAPER) == ["D_cl", "D_g", "D_g + LFIW", "D_cl + D_g", "D_cl + D_g + LFIW"]


def rows(n, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=g), torch.randint(2, (n,), generator=g)


def test_training_sets_differ_in_what_their_names_say():
    real, made = rows(10, 0), rows(25, 1)
    log_w = torch.linspace(-2, 2, 25, dtype=torch.float64)
    sets = shared.training_sets(real, made, log_w, 0.4, 3)
    assert tuple(sets) == shared.ROWS
    sizes = {name: (s.n_real, s.n_generated) for name, s in sets.items()}
    assert sizes == {name: (10 * ("D_cl" in name), 25 * ("D_g" in name)) for name in shared.ROWS}
    own = log_w.exp() / log_w.exp().mean()
    assert torch.allclose(sets["D_g + LFIW"].weights, own)
    assert torch.allclose(sets["D_g"].weights, torch.ones(25, dtype=torch.float64))
    both = sets["D_cl + D_g + LFIW"].weights
    assert torch.allclose(both[10:], own * (0.6 / 0.4 * 10 / 25))
    for name in ("D_g", "D_cl + D_g"):
        weighted, shuffled = (sets[f"{name} + {kind}"].weights for kind in ("LFIW", "shuffled"))
        assert torch.allclose(weighted.sort().values, shuffled.sort().values)
        assert not torch.allclose(weighted, shuffled)


def test_training_minimises_the_weighted_loss():
    """A row of weight zero but for rounding has no say: labels of half of the generated rows are wrong."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=g)
    right = (x[:, 0] > 0).long()
    wrong = torch.arange(400) % 2 == 0
    y = torch.where(wrong, 1 - right, right)
    log_w = torch.where(wrong, -30.0, 0.0).double()
    found = {}
    for name, log_weights in (("weighted", log_w), ("equal", "equal")):
        net = MLP((2,), (8,), 2, seed=0)
        trained = shared.train(net, weights.augment(None, (x, y), log_weights), batch=32, steps=150, lr=1e-2, seed=0)
        assert not trained.training
        found[name] = float((shared.outputs(trained, x, 64).argmax(1) == right).double().mean())
    assert found["weighted"] > 0.95
    assert found["equal"] < 0.85


def test_weights_are_diagnosed_on_rows_of_both_sides_and_tempered():
    g = torch.Generator().manual_seed(0)
    log_q, log_p = (torch.randn(n, dtype=torch.float64, generator=g) * 3 + m for n, m in ((500, -4), (300, 4)))
    weighed = shared.weigh(log_q, log_p, 0.3)
    right = (float((log_p > 0).double().mean()) + float((log_q < 0).double().mean())) / 2
    assert float(weighed.facts["told_apart"]) == pytest.approx(right)
    w = log_q.exp().numpy()
    assert float(weighed.facts["ess"]) == pytest.approx(w.sum() ** 2 / (w**2).sum() / 500)
    assert float(weighed.facts["mean_weight"]) == pytest.approx(w.mean())
    assert torch.allclose(weighed.log_weights, float(weighed.facts["alpha"]) * log_q)
    assert weights.ess(weighed.log_weights) / 500 == pytest.approx(0.3, rel=1e-6)
    assert float(weighed.facts["unreliable"]) == 1.0
    assert weighed.diagnosis["verdict"] == "unreliable"
    assert float(shared.weigh(log_q * 0.01, log_p * 0.01, 0.1).facts["unreliable"]) == 0.0


# Rules


def planted(experiment, changes, unreliable=1.0, idle=0.0):
    """Records of three seeds and every arm; `changes` move a row by so many points, with a little noise each seed."""
    records = []
    for arm in experiment.arms(experiment.presets["laptop"]):
        for seed, off in enumerate((-0.002, 0.0, 0.002)):
            values = {row: number(0.5 + 0.1 * seed) for row in shared.ROWS}
            for row, points in changes.items():
                values[row] = values[row] + points / 100 + off
            values |= {fact: number(0.5) for fact in shared.FACTS}
            values |= {"unreliable": number(unreliable), "idle": number(idle)}
            records.append(experiment.record(arm, seed, values=values, details={"dagan": {"spread": 0.5}}))
    return records


W, S = "D_cl + D_g + LFIW", "D_cl + D_g + shuffled"


@pytest.mark.parametrize("experiment", [TABLE, COVTYPE], ids=lambda e: e.name)
@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("reproduced", {W: 2}),
        ("partly", {W: 2, "D_cl": 3}),  # above the other two alone
        ("partly", {"D_g + LFIW": 2}),
        ("not", {"D_g + LFIW": 2, "D_g": 3}),
        ("not", {"D_g + LFIW": 2, "D_g + shuffled": 3}),
        ("not", {W: 2, S: 2}),  # what noise of the same size does too
        ("not", {W: 2, "D_cl + D_g": 3}),
        ("not", {W: 0.1}),  # within two standard errors
        ("not", {}),
    ],
)
def test_it_is_judged_by_its_rule(experiment, word, changes):
    records = planted(experiment, changes)
    assert experiment.by_rule(records).word == word
    assert "unreliable in 3 of 3 seeds" in experiment.by_rule(records).why
    assert experiment.by_rule([r for r in records if r.seed == 0]).word == "not judged"


def test_arms_that_disagree_are_partly():
    good, bad = planted(COVTYPE, {W: 2}), planted(COVTYPE, {})
    mixed = [r for r in good if r.config["learner"] == "forest"] + [r for r in bad if r.config["learner"] == "network"]
    assert COVTYPE.by_rule(mixed).word == "partly"
    assert COVTYPE.by_rule(good).word == "reproduced"


def test_the_end_of_the_interval_is_where_it_begins():
    assert Gap(2.263, 1.0, 10).above  # Student's with 9 is 2.262
    assert not Gap(2.261, 1.0, 10).above


@pytest.mark.parametrize("experiment", [TABLE, COVTYPE], ids=lambda e: e.name)
def test_weights_that_are_all_equal_are_not_judged(experiment):
    found = experiment.by_rule(planted(experiment, {W: 2}, idle=1.0))
    assert found.word == "not judged"
    assert "all equal in 3" in found.why
    flat = shared.weigh(torch.zeros(50).double(), torch.zeros(50).double(), 0.1)
    assert float(flat.facts["idle"]) == 1.0
    assert float(shared.weigh(torch.arange(50) / 50.0, torch.ones(50), 0.1).facts["idle"]) == 0.0


def ranked(tops, bottoms):
    records = []
    for arm, top, bottom in zip(FIGURE.arms(FIGURE.presets["laptop"]), tops, bottoms, strict=True):
        for seed, off in enumerate((-0.01, 0.0, 0.01)):
            values = {"label.top": number(top + off), "label.bottom": number(bottom), "label.all": number(0.5)}
            records.append(FIGURE.record(arm, seed, values=values))
    return records


@pytest.mark.parametrize(
    ("word", "tops", "bottoms"),
    [
        ("reproduced", (0.6, 0.7), (0.5, 0.6)),
        ("partly", (0.6, 0.5), (0.5, 0.6)),
        ("partly", (0.505, 0.505), (0.5, 0.5)),
        ("not", (0.505, 0.4), (0.5, 0.5)),
        ("not", (0.4, 0.4), (0.5, 0.5)),
    ],
)
def test_the_ranking_is_judged_by_its_rule(word, tops, bottoms):
    records = ranked(tops, bottoms)
    assert FIGURE.by_rule(records).word == word
    assert FIGURE.by_rule(records[:1]).word == "not judged"
    assert f"{100 * (tops[0] - bottoms[0]):+.1f}" in FIGURE.by_rule(records).why


# Drawings


def test_drawings_are_split_by_class_without_a_row_twice():
    setting = dataclasses.replace(SMOKE[0], classes=4, split=(6, 3, 2))
    parts = lfiw_omniglot.drawings(setting, 0)
    assert [len(part.x) for part in parts] == [24, 12, 8]
    for part, each in zip(parts, setting.split, strict=True):
        assert torch.equal(part.y, torch.arange(4).repeat_interleave(each))
    together = torch.cat([part.x.flatten(1) for part in parts])
    assert len(together.unique(dim=0)) == len(together)
    digits = load("digits")
    x, y = torch.cat([digits.train_x, digits.test_x]), torch.cat([digits.train_y, digits.test_y])
    pool = {tuple(row): int(c) for row, c in zip(digits.floats(x).flatten(1).tolist(), y, strict=True)}
    named = [pool[tuple(x.tolist())] for x in together]
    labels = torch.cat([part.y for part in parts])
    assert len({(int(a), b) for a, b in zip(labels, named, strict=True)}) == 4  # one digit each, and never another
    again, other = (lfiw_omniglot.drawings(setting, seed)[0].x for seed in (0, 1))
    assert torch.equal(again, parts[0].x)
    assert not torch.equal(other, parts[0].x)


def test_drawings_are_shrunk_by_area():
    setting = dataclasses.replace(SMOKE[0], side=4)
    small, whole = (lfiw_omniglot.drawings(s, 0)[0].x for s in (setting, SMOKE[0]))
    assert torch.allclose(small, whole.unflatten(2, (4, 2)).unflatten(1, (4, 2)).mean((2, 4)), atol=1e-6)


def test_too_many_classes_or_drawings_are_refused():
    with pytest.raises(InputError, match="'classes' of lfiw-table2 must be at most 10"):
        lfiw_omniglot.drawings(dataclasses.replace(SMOKE[0], classes=11), 0)
    with pytest.raises(InputError, match="at most 0, those with 1000 drawings"):
        lfiw_omniglot.drawings(dataclasses.replace(SMOKE[0], split=(990, 5, 5)), 0)
    with pytest.raises(InputError, match="Did you mean 'small'"):
        lfiw_omniglot.measure(dataclasses.replace(SMOKE[0], dagan="smal"), 0, lambda share, words: None)


def test_the_judge_finds_the_ratio_of_two_kinds_of_images_whose_shares_are_known():
    """Images are dark or light; p has 80 % light ones and q 20 %: log r is log 4 or -log 4."""
    g = torch.Generator().manual_seed(0)

    def images(n, light):
        kind = torch.rand(n, generator=g) < light
        return torch.where(kind, 0.8, 0.2)[:, None, None] + 0.05 * torch.rand(n, 8, 8, generator=g), kind

    setting = dataclasses.replace(SMOKE[0], batch=32, judge_epochs=4)
    (p, _), (q, _), (held_p, _), (held_q, _) = (images(n, s) for n, s in ((400, 0.8), (800, 0.2)) * 2)
    judge = lfiw_omniglot.fit_critic(p, q, (held_p, held_q), setting, 0)
    x, kind = images(200, 0.5)
    log_ratio = judge.log_ratio(x)
    assert float(log_ratio[kind].mean()) == pytest.approx(np.log(4), abs=0.35)
    assert float(log_ratio[~kind].mean()) == pytest.approx(-np.log(4), abs=0.35)
    assert len(judge.log_losses) == 4
    raw = lfiw_omniglot.logits(judge.net, held_p[::2]), lfiw_omniglot.logits(judge.net, held_q[::2])
    kept = float(torch.nn.functional.softplus(-raw[0]).mean() + torch.nn.functional.softplus(raw[1]).mean()) / 2
    assert kept == pytest.approx(min(judge.log_losses))


def weighed(log_weights):
    return shared.Weighed(log_weights, {}, {})


def test_quarters_are_taken_within_each_class():
    setting = OmniglotSetting(classes=2)
    log_w = torch.tensor([8, 7, 6, 5, 4, 3, 2, 1, 15, 16, 13, 14, 11, 12, 9, 10], dtype=torch.float64)
    right = torch.zeros(16, dtype=torch.bool)
    right[[0, 1, 8, 7]] = True  # both of the first top quarter, one of the second, one of the first bottom quarter
    found = lfiw_omniglot.ranking(right, weighed(log_w), setting)
    assert {k: float(v) for k, v in found.items()} == {"label.all": 0.25, "label.top": 0.75, "label.bottom": 0.25}


def test_the_grid_has_held_out_drawings_above_generated_ones_by_weight():
    setting = OmniglotSetting(classes=2)
    held = torch.stack([torch.full((3, 2, 2), v) for v in (0.2, 0.4)])
    made = torch.arange(10.0)[:, None, None].expand(10, 2, 2) / 15
    log_w = torch.tensor([1, 3, 2, 5, 4, 1, 2, 3, 4, 5], dtype=torch.float64)
    packed = lfiw_omniglot.grid(held, Drawings(made, torch.zeros(10).long()), weighed(log_w), setting)
    x = unpack(packed)[:, 0, 0].reshape(2, 2, 3)
    assert torch.allclose(x[:, 0], torch.tensor([[0.2], [0.4]]).expand(2, 3), atol=0.04)
    assert torch.allclose(x[0, 1] * 15, torch.tensor([3.0, 1.0, 0.0]), atol=1e-4)
    assert torch.allclose(x[1, 1] * 15, torch.tensor([9.0, 7.0, 5.0]), atol=1e-4)


# Tables


def test_tables_are_few_rows_of_each_class_and_others_to_test():
    config = dataclasses.replace(COVTYPE.presets["smoke"], rows=7, test_rows=11)
    (x, y), (test_x, test_y) = lfiw_table2_covtype.tables(config, 0)
    assert torch.equal(y.bincount(), torch.full((10,), 7))
    assert torch.equal(test_y.bincount(), torch.full((10,), 11))
    assert not bool((torch.cdist(x, test_x) == 0).any())
    with pytest.raises(InputError, match="'rows' of lfiw-table2-covtype must be fewer than"):
        lfiw_table2_covtype.tables(dataclasses.replace(config, rows=5000), 0)


def test_a_choice_is_the_largest_of_its_columns_and_the_rest_stays():
    x = torch.tensor([[0.3, 0.2, 0.9, -1.0, 5.0], [7.0, 0.6, 0.1, 2.0, 1.0]])
    chosen = lfiw_table2_covtype.choose(x, [(1, 3), (3, 5)])
    assert chosen.tolist() == [[pytest.approx(0.3), 0, 1, 0, 1], [7, 1, 0, 1, 0]]
    assert float(x[0, 2]) == pytest.approx(0.9)


def test_class_stands_beside_the_columns():
    found = lfiw_table2_covtype.with_class(torch.ones(2, 3), torch.tensor([1, 0]), 2)
    assert found.tolist() == [[1, 1, 1, 0, 1], [1, 1, 1, 1, 0]]


@pytest.mark.parametrize("learner", ["network", "forest"])
def test_both_learners_heed_weights(learner):
    """Half of the generated rows have the wrong label and no weight."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(600, 2, generator=g)
    right = (x[:, 0] > 0).long()
    wrong = torch.arange(600) % 2 == 0
    y = torch.where(wrong, 1 - right, right)
    config = lfiw_table2_covtype.CovtypeConfig(learner=learner, rows=100, epochs=30, hidden=(8,), trees=20)
    test = torch.randn(300, 2, generator=rng.fork(0, "test"))
    found = []
    for log_w in (torch.where(wrong, -40.0, 0.0).double(), "equal"):
        called = lfiw_table2_covtype.learnt(config, weights.augment(None, (x, y), log_w), test, 2, 0)
        found.append(float((called == (test[:, 0] > 0)).double().mean()))
    assert found[0] > 0.9
    assert found[1] < 0.8


def test_arms_are_dagans_and_learners_and_unknown_ones_are_refused():
    assert [arm.dagan for arm in TABLE.arms(TABLE.presets["paper"])] == ["paper"]
    assert TABLE.arms(SMOKE[0]) == [SMOKE[0]]
    laptop = COVTYPE.arms(COVTYPE.presets["laptop"])
    assert [arm.learner for arm in laptop] == ["network", "forest"]
    with pytest.raises(InputError, match="Did you mean 'forest'"):
        COVTYPE.arms(dataclasses.replace(COVTYPE.presets["laptop"], learners=("forrest",)))


@pytest.mark.data
def test_omniglot_has_what_the_paper_preset_asks_for():
    have.data_set("omniglot")
    setting = dataclasses.replace(TABLE.presets["laptop"], classes=3, dagan="small")
    real, validate, test = lfiw_omniglot.drawings(setting, 0)
    assert [len(part.x) for part in (real, validate, test)] == [30, 15, 15]
    assert real.x.shape[1:] == (28, 28)
    assert 0.02 < float(real.x.mean()) < 0.3
    assert len(load("omniglot").names) == TABLE.presets["paper"].classes
