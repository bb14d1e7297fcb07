"""Fig. 10 to 21 of Farquhar and Gal, VGR's side: its units, what is read from them, and the rules that judge them."""

import dataclasses

import pytest
import torch

from smoke import read
from vestige import runner
from vestige.continual import learners as methods
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.robust import replay as robust_replay
from vestige_papers.robust import timed as robust_timed
from vestige_papers.robust.replay import PRESETS, replayed, samples, under
from vestige_papers.robust.runs import (
    CORESET,
    DROPOUT,
    HYBRID,
    VCL,
    VGR,
    Replayed,
    RobustSetting,
    filled,
    learner_of,
    plain,
    stream_of,
)

NAMES = [f"robust-fig{n}" for n in (10, 11, 12, 15, 17, 19, 20, 21)]


def with_mean(mean, k=5):
    """A matrix whose last row has `mean` percent everywhere."""
    return torch.full((k, k), mean / 100).double()


def forgets(new=0.98, k=5):
    return new * torch.eye(k).double()


def planted(name, row, R, *, seed=0, multi=None, values=None, seconds=1.0, **fields):
    """A Record of `row` of an experiment, at its laptop preset."""
    experiment = EXPERIMENTS[name]
    config = experiment.presets["laptop"]
    unit = filled(config if row in (VGR, DROPOUT) else plain(config), row)
    unit = dataclasses.replace(unit, **fields)
    held = {"model": [1], "memory": [1], "method": [1], "optimizer": [9]} | ({"generator": [7]} if row == VGR else {})
    measured = {"matrices": {"single": R, "multi": R if multi is None else multi}, "head": "single", "bytes": held}
    return experiment.record(unit, seed, values=values or {}, seconds={"train_cpu": [seconds]}, **measured)


def word(name, records):
    return EXPERIMENTS[name].by_rule(records).word


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The run of VGR in Fig. 11, reloaded from disk."""
    unit = runner.plan("robust-fig11", tmp_path_factory.mktemp("runs"), preset="smoke", seeds=1)[-1]
    list(runner.run([unit]))
    return unit.finished()


@pytest.mark.slow
def test_vgr_runs_and_is_read_by_every_figure(smoke):
    assert smoke.config["experiment"] == "robust-fig11"
    assert set(smoke.matrices) == {"single", "multi"}
    assert bool((robust_replay.under("multi", [smoke])[0].R >= smoke.R - 1e-9).all()), "fewer outputs compete"
    assert smoke.bytes["generator"][0] > 0
    assert smoke.bytes["generator"] == [k * smoke.bytes["generator"][0] for k in range(1, 6)]
    for name in ("robust-fig11", "robust-fig12", "robust-fig15", "robust-fig17", "robust-fig20", "robust-fig21"):
        lines, figures = read(name, [smoke])
        assert lines
        assert figures
    lines, _ = read("robust-fig11", [smoke])
    assert [x.paper for x in lines] == [96.0, None, None]
    lines, _ = read("robust-fig17", [smoke])
    assert [x.paper for x in lines] == [1.0] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_smoke_run_is_read(name, tmp_path):
    planned = runner.plan(name, tmp_path, preset="smoke", seeds=1)
    list(runner.run(planned))
    lines, figures = read(name, [unit.finished() for unit in planned])
    assert lines
    assert figures


def test_units_are_shared_between_figures(tmp_path):
    of = {name: {u.path for u in runner.plan(name, tmp_path)} for name in (*NAMES, "robust-fig9", "robust-fig5")}
    of |= {name: {u.path for u in runner.plan(name, tmp_path)} for name in ("robust-fig6", "robust-fig13")}
    seeds = EXPERIMENTS["robust-fig11"].seeds["laptop"]
    replays = {path for path in of["robust-fig11"] if path.parent.name == "robust-fig11"}
    assert len(replays) == seeds
    assert of["robust-fig11"] - replays <= of["robust-fig6"]
    assert of["robust-fig15"] == of["robust-fig17"] == replays
    assert of["robust-fig12"] - of["robust-fig5"] == replays
    assert len(of["robust-fig10"] - of["robust-fig9"]) == 2 * EXPERIMENTS["robust-fig10"].seeds["laptop"]
    assert len(of["robust-fig13"] & replays) == EXPERIMENTS["robust-fig13"].seeds["laptop"]
    assert len(of["robust-fig19"] & replays) == EXPERIMENTS["robust-fig19"].seeds["laptop"]
    ends = {EXPERIMENTS[f"robust-fig{n}"].arms(PRESETS["paper"])[-1] for n in (11, 20, 21)}
    assert len(ends) == 1, "what is whole in a sweep is the usual run"


def test_vgr_has_steps_of_its_own_and_vcl_those_of_its_figure():
    of = {
        n: {u.row: (u.epochs, u.batch_size) for u in figure.arms(figure.presets["laptop"])}
        for n, figure in ((n, EXPERIMENTS[f"robust-fig{n}"]) for n in (11, 12, 19))
    }
    assert (of[11][VGR], of[11][VCL]) == ((4, 100), (1, 100))
    assert (of[12][VGR], of[12][VCL]) == ((4, 100), (3, 256))
    assert of[19][VGR] == of[19][DROPOUT] == (4, 100)


def test_the_best_generators_are_the_usual_ones():
    records = [planted("robust-fig11", VGR, with_mean(a), generator_epochs=n) for a, n in ((80.0, 2), (90.0, 10))]
    assert EXPERIMENTS["robust-fig11"].ends(records) == pytest.approx({VGR: 90.0})


def test_units_without_generators_are_as_they_were():
    """A unit of VCL has none of the fields of a run that replays, so that its id does not change."""
    for name in ("robust-fig11", "robust-fig13"):
        units = EXPERIMENTS[name].arms(PRESETS["laptop"])
        assert {type(u) for u in units if u.row != VGR} == {RobustSetting}
    fig6 = EXPERIMENTS["robust-fig6"]
    assert EXPERIMENTS["robust-fig11"].arms(PRESETS["laptop"])[0] == fig6.arms(fig6.presets["laptop"])[0]
    assert EXPERIMENTS["robust-fig11"].config(fig6.arms(fig6.presets["laptop"])[0])["experiment"] == "robust-fig6"


def test_what_is_open_is_as_printed():
    """C.4, C.5, C.8.1."""
    split, mc = (filled(Replayed(), row) for row in (VGR, DROPOUT))
    assert (split.generator, split.generator_preset, split.samples_per_class) == ("gan_conv", "paper", 6000)
    assert (split.epochs, split.batch_cap, split.hidden) == (120, 30_000, (256, 256))
    assert split.batch_size >= 12_700
    assert (mc.epochs, mc.net, mc.generator, mc.train_samples, mc.log_var) == (25, "conv", "gan_conv", None, None)
    fig10 = EXPERIMENTS["robust-fig10"]
    unit = fig10.arms(fig10.presets["paper"])[-1]
    assert (unit.row, unit.epochs, unit.batch_size, unit.hidden) == (VGR, 120, 256, (100, 100))
    assert (unit.generator, unit.samples_per_class, unit.batch_cap) == ("gan_dense", 6000, None)
    shares = [u.epochs for u in EXPERIMENTS["robust-fig20"].arms(PRESETS["paper"])]
    assert shares == [5, 20, 40, 80, 120]
    assert [u.samples_per_class for u in EXPERIMENTS["robust-fig21"].arms(PRESETS["paper"])] == [500, 1000, 2000, 6000]
    quick = robust_timed.quicker(split)
    assert (quick.epochs, quick.samples_per_class, quick.generator_epochs) == (20, 2000, 10)  # footnote 7


@pytest.mark.parametrize("row", [VGR, DROPOUT])
def test_a_unit_reaches_its_learner_whole(row):
    start = replayed(
        RobustSetting(data="digits", tasks=2), generator_preset="small", generator_epochs=3, samples_per_class=9
    )
    unit = filled(start, row, hidden=(8,))
    learner = learner_of(unit, stream_of(unit, 0), 0)
    c = learner.config
    assert isinstance(learner, methods.METHODS["vgr" if row == VGR else "vgr_mc_dropout"])
    r = c.replay
    assert (r.generator, r.preset, r.samples_per_class, c.batch_cap) == ("gan_conv", "small", 9, 30_000)
    assert learner.replay_.fresh_generator(2).epochs == 3
    assert (c.net, c.hidden) == ("mlp" if row == VGR else "conv", (8,))
    if row == DROPOUT:
        assert (c.dropout, c.l2) == (0.25, 0.01)


def test_a_run_is_read_under_either_head():
    record = planted("robust-fig12", VGR, with_mean(40.0), multi=with_mean(97.0))
    assert EXPERIMENTS["robust-fig12"].lines([record])[0].ours == pytest.approx(97.0)
    assert EXPERIMENTS["robust-fig12"].lines([record])[0].paper is None
    assert EXPERIMENTS["robust-fig11"].lines([record])[0].ours == pytest.approx(40.0)
    assert under("multi", [record])[0].head == "multi"


def test_runs_of_sweeps_do_not_count_in_the_figure():
    usual = planted("robust-fig11", VGR, with_mean(90.0))
    fewer = planted("robust-fig21", VGR, with_mean(10.0), samples_per_class=500)
    shorter = planted("robust-fig20", VGR, with_mean(20.0), batch_size=600)
    assert samples(fewer) == 500
    assert EXPERIMENTS["robust-fig11"].lines([fewer, usual, shorter])[0].ours == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("vgr", "hybrid", "vcl", "expected"),
    [
        (91.0, 60.0, forgets(), "reproduced"),
        (90.9, 60.0, forgets(), "partly"),  # far from print
        (91.0, 81.1, forgets(), "partly"),  # not far above a coreset
        (91.0, 60.0, with_mean(19.0), "partly"),  # VCL keeps something
        (80.0, 75.0, forgets(), "not"),
    ],
)
def test_fig11_rule_turns(vgr, hybrid, vcl, expected):
    records = [planted("robust-fig11", row, with_mean(a)) for row, a in ((VGR, vgr), (HYBRID, hybrid))]
    records.append(planted("robust-fig11", VCL, vcl))
    assert word("robust-fig11", records) == expected
    assert word("robust-fig11", records[1:]) == "not judged"


@pytest.mark.parametrize(
    ("vgr", "vcl", "expected"),
    [(96.0, 98.0, "reproduced"), (94.0, 96.0, "partly"), (99.5, 96.0, "partly"), (90, 96, "not")],
)
def test_fig12_rule_turns(vgr, vcl, expected):
    records = [planted("robust-fig12", row, with_mean(1.0), multi=with_mean(a)) for row, a in ((VGR, vgr), (VCL, vcl))]
    assert word("robust-fig12", records) == expected
    assert word("robust-fig12", records[:1]) == "not judged"


@pytest.mark.parametrize(
    ("vgr", "vcl", "hybrid", "expected"),
    [(91.0, 90.0, 89.0, "reproduced"), (89.5, 89.0, 90.0, "not"), (96.0, 90.0, 90.5, "partly")],
)
def test_fig10_rule_turns(vgr, vcl, hybrid, expected):
    ends = {VGR: vgr, VCL: vcl, HYBRID: hybrid, CORESET: 70.0}
    records = [planted("robust-fig10", row, with_mean(a, 10)) for row, a in ends.items()]
    assert word("robust-fig10", records) == expected
    assert word("robust-fig10", records[1:]) == "not judged"


def test_fig10_has_a_second_verdict_with_as_many_steps_as_vcl():
    fig = EXPERIMENTS["robust-fig10"]
    vcl, hybrid, _, vgr, as_vcl = fig.arms(fig.presets["laptop"])
    assert (vgr.epochs / vgr.batch_size, as_vcl.epochs) == (4 * vcl.epochs / vcl.batch_size, vcl.epochs)
    ends = ((vcl, 90.0), (hybrid, 92.0), (vgr, 80.0), (as_vcl, 93.0))
    records = [dataclasses.replace(planted(fig.name, u.row, with_mean(a, 10)), config=fig.config(u)) for u, a in ends]
    found = fig.by_rule(records)
    assert found.word == "not"
    assert "By the earlier rule: partly." in found.why
    assert "lead -12" in found.why
    assert "With as many steps as VCL it is reproduced, 2 of 2 claims hold." in found.why
    assert "VGR, as many steps as VCL" in [x.label for x in fig.lines(records)]
    assert "as many steps" not in fig.by_rule(records[:3]).why


def unsure(old, new):
    """MI of five models: 1 on the current task, `old` on those before, `new` on those to come."""
    ones = torch.ones(5, 5).double()
    return old * ones.tril(-1) + new * ones.triu(1) + torch.eye(5)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(1.5, 2.0, "reproduced"), (2.5, 2.0, "partly"), (0.5, 0.9, "not")],
)
def test_fig15_rule_turns(old, new, expected):
    record = planted("robust-fig15", VGR, with_mean(90.0), values={"mutual_information": unsure(old, new)})
    assert word("robust-fig15", [record]) == expected
    lines = {x.quantity: x.ours for x in EXPERIMENTS["robust-fig15"].lines([record])}
    assert f"By the earlier rule: {expected}." in EXPERIMENTS["robust-fig15"].by_rule([record]).why
    # Models 2 to 4 have an old task; model 1 has only the current one to divide from those to come.
    share = {"reproduced": 1.0, "partly": 0.25, "not": 0.0}[expected]
    assert lines["models that divide seen from unseen"] == pytest.approx(share)


def test_fig15_asks_for_most_models_and_says_what_the_earlier_share_would():
    mi = unsure(1.5, 2.0)
    mi[3, 0] = 3.0  # three of four models divide
    found = EXPERIMENTS["robust-fig15"].by_rule(
        [planted("robust-fig15", VGR, with_mean(90.0), values={"mutual_information": mi})]
    )
    assert found.word == "reproduced"
    assert found.why.endswith("By the earlier rule: partly.")


def test_fig17_rule_turns():
    def at(mi):
        return word("robust-fig17", [planted("robust-fig17", VGR, with_mean(90.0), values={"mutual_information": mi})])

    assert at(unsure(1.0, 20.0)) == "reproduced"
    assert at(unsure(20.0, 3.0)) == "not"
    last = unsure(1.0, 20.0)
    last[4, :4] = 30.0  # the last model alone is unsure of what it has seen
    assert at(last) == "not"  # .73, and print has 1
    record = planted("robust-fig17", VGR, with_mean(90.0), values={"mutual_information": last})
    assert EXPERIMENTS["robust-fig17"].by_rule([record]).why.endswith("By the earlier rule: partly.")


@pytest.mark.parametrize(
    ("mean_field", "dropout", "expected"), [(93.0, 91.0, "reproduced"), (95.0, 91.5, "partly"), (95.0, 85.0, "not")]
)
def test_fig19_rule_turns(mean_field, dropout, expected):
    ends = {VGR: mean_field, DROPOUT: dropout}
    records = [planted("robust-fig19", row, with_mean(a)) for row, a in ends.items()]
    assert word("robust-fig19", records) == expected
    assert word("robust-fig19", records[:1]) == "not judged"


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((40, 88, 89, 90, 90), "reproduced"),  # what less than print's least gives is told, not judged
        ((40, 80, 89, 90, 90), "partly"),
        ((40, 80, 85, 90, 90), "not"),
        ((88, 89, 90, 90), "reproduced"),
        ((1, 2, 3), "not judged"),
    ],
)
def test_fig20_rule_turns(means, expected):
    batches = (600, 150, 75, 38, 25)[-len(means) :]
    records = [
        planted("robust-fig20", VGR, with_mean(a), epochs=1, batch_size=b) for a, b in zip(means, batches, strict=True)
    ]
    verdict = EXPERIMENTS["robust-fig20"].by_rule(records)
    assert verdict.word == expected
    assert (f"24th of the training it ends {means[-1] - means[0]:.1f} points below" in verdict.why) == (len(means) == 5)
    labels = [x.label for x in EXPERIMENTS["robust-fig20"].lines(records[::-1])]
    assert labels == [f"VGR, {n} batches a task" for n in (20, 80, 160, 316, 480)[-len(means) :]]


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((80, 85, 88, 90), "reproduced"),
        ((88, 85, 88, 90), "partly"),
        ((80, 85, 86, 90), "partly"),
        ((86, 85, 86, 90), "not"),
    ],
)
def test_fig21_rule_turns(means, expected):
    sizes = (500, 1000, 2000, 6000)
    records = [
        planted("robust-fig21", VGR, with_mean(a), samples_per_class=n) for a, n in zip(means, sizes, strict=True)
    ]
    assert word("robust-fig21", records) == expected
    assert word("robust-fig21", records[1:]) == "not judged"
    assert [x.label for x in EXPERIMENTS["robust-fig21"].lines(records)] == [f"VGR, {n} samples a class" for n in sizes]


@pytest.mark.parametrize(("name", "least"), [("robust-fig13", 90.0), ("robust-fig14", 95.0)])
def test_timed_figures_judge_vgr_where_it_was_run(name, least):
    def at(vgr, seconds):
        return EXPERIMENTS[name].by_rule(
            [
                planted(name, VCL, with_mean(20.0), multi=with_mean(96.0), seconds=9.0),
                planted(name, VCL, with_mean(20.0), multi=with_mean(90.0), seconds=3.0, batch_size=300),
                planted(name, HYBRID, with_mean(60.0), multi=with_mean(96.0), seconds=10.0),
                planted(name, CORESET, with_mean(60.0), multi=with_mean(96.0), seconds=10.0),
                planted(name, CORESET, with_mean(50.0), multi=with_mean(96.0), seconds=5.0, batch_size=300),
                planted(name, VGR, with_mean(vgr), seconds=seconds),
            ]
        )

    assert at(least + 0.1, 11.0).word == "reproduced"
    assert at(least - 0.1, 11.0).word == "partly"
    assert "Does not hold: VGR is slower" in at(least + 0.1, 9.0).why
    record = planted(name, VGR, with_mean(90.0), seconds=11.0)
    lines = {x.quantity: x for x in EXPERIMENTS[name].lines([record])}
    assert lines["megabytes held"].ours == pytest.approx(10e-6), "generators are carried on, the optimiser is not"
    assert "6000 samples a class" in lines["megabytes held"].label
    whole = dataclasses.replace(record, config=record.config | {"epochs": 120})
    printed = {x.quantity: x.paper for x in EXPERIMENTS[name].lines([whole])}["CPU seconds of training"]
    assert printed == (3120.0 if name == "robust-fig13" else None)


def test_print_is_copied_as_printed():
    assert robust_replay.PAPER == {"VGR": 96.0, "quick": 90.0}
    assert robust_timed.PAPER == {"VCL + coreset": 7 * 60.0, "VGR": (18 + 34) * 60.0}
