"""beyond-replay: its rows differ in what they say they differ in, and its rule can turn to each of its words."""

import dataclasses

import pytest
import torch
from scipy.stats import ttest_1samp

from toys import at_second_task, blobs
from vestige import data, runner
from vestige.data.streams import split
from vestige.runner.experiment import Gap, gap
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond.replay import (
    BOTH,
    CONTROL,
    DGR,
    GOOD,
    POOL,
    POOR,
    REAL,
    ROWS,
    SHUFFLED,
    SHUFFLED_SOLVER,
    SKEWED,
    SOLVER,
    VGR,
    learner_of,
    stream_of,
)
from vestige_papers.beyond.replay_rows import KeepingFollower, Study, skewed

EXPERIMENT = EXPERIMENTS["beyond-replay"]
TINY = dataclasses.replace(
    EXPERIMENT.presets["smoke"], data="blobs", min_rows=40, chain_samples=40, steps=6, width=8, codes=2
)


@pytest.mark.slow
def test_a_smoke_run_reloads_and_is_read(tmp_path):
    smaller = {"data": "digits", "generator": SKEWED, "epochs": 1, "steps": 8, "per_class": 50}
    units = runner.plan("beyond-replay", tmp_path, preset="smoke", seeds=1, overrides=smaller)
    (record,) = [finished.record for finished in runner.run(units)]
    assert units[0].finished().id == record.id
    assert set(record.values) == {*ROWS, VGR}
    assert all(R.shape == (3, 3) for R in record.values.values())
    labels = {(line.label, line.quantity) for line in EXPERIMENT.lines([record])}
    assert {f"digits, skewed, {row}" for row in record.values} == {label for label, _ in labels}
    for row, control in CONTROL.items():
        assert (f"digits, skewed, {row}", f"less {control}") in labels
    assert EXPERIMENT.by_rule([record]).word == "not judged"
    assert record.details["bytes"][BOTH]["method"] > record.details["bytes"][DGR]["method"]
    assert set(EXPERIMENT.figures([record])) == {"beyond-replay"}


def test_every_data_set_and_generator_has_a_unit():
    arms = EXPERIMENT.arms(EXPERIMENT.presets["laptop"])
    assert {(a.data, a.generator) for a in arms} == {
        (d, g) for d in ("mnist", "fashion_mnist") for g in (GOOD, POOR, SKEWED)
    }
    assert EXPERIMENT.validation(arms[0]).validate > 0
    assert EXPERIMENT.seeds["paper"] == 10


def after_one_task(row, study, config=TINY):
    stream = split(blobs(n_classes=4), 2)
    return at_second_task(learner_of(config, row, stream, 0, study), stream)


def test_rows_that_teach_the_same_share_the_fit_and_no_other():
    study = Study()
    state = {}
    for row in (DGR, BOTH, POOL):
        learner, second, _ = after_one_task(row, study)
        state[row, 0] = learner.replay_.generators[0].state_dict()
        learner.observe(second.x, second.y)
        learner.end_task(second)
        state[row, 1] = learner.replay_.generators[0].state_dict()
    assert len(study.shelf) == 4, "one first task, three second ones"
    for key in state[DGR, 0]:
        assert torch.equal(state[DGR, 0][key], state[BOTH, 0][key])
    alone, _, _ = after_one_task(DGR, Study())
    assert all(torch.equal(v, state[DGR, 0][k]) for k, v in alone.replay_.generators[0].state_dict().items())
    assert any(not torch.equal(v, state[POOL, 1][k]) for k, v in state[BOTH, 1].items())


def test_a_skewed_generator_learns_from_fewer_rows_and_the_last_task_teaches_nobody():
    assert skewed(torch.tensor([0, 1, 1, 0, 1, 1]), 1, 2).tolist() == [0, 1, 3, 4]
    whole, rare = (after_one_task(DGR, Study(skew))[0].replay_.generators[0] for skew in (1, 10))
    assert not torch.equal(whole.spread_, rare.spread_)
    learner, second, _ = after_one_task(DGR, Study(last=1))
    learner.end_task(second)
    assert learner.replay_.generators[0].known_ == (0,)


@pytest.mark.slow
def test_the_controls_have_the_weights_that_they_say():
    told = {}
    x = torch.rand(200, 6, 6)
    for row in (BOTH, SHUFFLED, POOL):
        learner, _, _ = after_one_task(row, Study())
        told[row] = learner.replay_.weigh(x, 0, 7)[0]
    assert (told[POOL] == 1).all()
    assert told[BOTH].std() > 0
    torch.testing.assert_close(told[SHUFFLED].sort().values, told[BOTH].sort().values)
    assert not torch.equal(told[SHUFFLED], told[BOTH])
    oracle, _, _ = after_one_task("oracle both", Study())
    assert oracle.bytes()["memory"] == 80 * 36 * 4
    assert isinstance(oracle.replay_.follower_, KeepingFollower)
    assert oracle.replay_.follower_.data[0].shape == (80, 6, 6)
    assert oracle.oracle


def test_real_replay_replays_what_was_there():
    learner, _, _ = after_one_task(REAL, Study())
    drawn = learner.replay_.draw(3, "x")
    assert drawn.y.tolist() == [0, 0, 0, 1, 1, 1]
    first = next(iter(split(blobs(n_classes=4), 2)))
    same = (drawn.x.flatten(1)[:, None] == first.x.flatten(1)).all(2)
    assert same.any(1).all()
    assert torch.equal(first.y[same.int().argmax(1)], drawn.y)
    assert learner.oracle
    assert learner.bytes()["memory"] == first.x.numel() * 4


def test_vgr_learns_from_the_skewed_rows_as_all_do():
    whole, rare = (after_one_task(VGR, Study(skew))[0].replay_.generators[0] for skew in (1, 10))
    assert torch.equal(whole.spread_[0], rare.spread_[0])
    assert not torch.equal(whole.spread_[1], rare.spread_[1])


def test_current_classes_come_from_the_generator_too_under_the_label_of_their_nearest_row():
    learner, second, _ = after_one_task("current classes too", Study())
    assert learner.replay_.generators[0].known_ == (0, 1)
    assert learner.replay_.old == [0, 1]
    drawn = learner.replay_.draw(6, "x")
    nearest = torch.cdist(drawn.x[12:].flatten(1), second.x.flatten(1)).argmin(1)
    assert torch.equal(drawn.y[12:], second.y[nearest])
    assert set(drawn.y[:12].tolist()) <= {0, 1}


def test_paired_differences():
    found = gap([1.0, 2.0, 3.0])
    assert (found.mean, found.se) == pytest.approx((2.0, 3**-0.5))
    interval = ttest_1samp([1.0, 2.0, 3.0], 0.0).confidence_interval(0.95)
    assert found.mean - found.reach == pytest.approx(interval.low)
    assert (found.above, found.below) == (False, False), "two standard errors are not enough with three seeds"
    ten = gap([1.0, 2.0, 3.0] * 3 + [2.0])
    assert (ten.above, ten.below) == (True, False)
    assert gap([-1.0, -1.1, -0.9]).below
    assert (Gap(0.0, 0.0, 3).above, Gap(0.0, 0.0, 3).below) == (False, False)


def planted(gains, harm=0.0, seeds=3):
    """Records in which weights gain so many points over plain replay and over the control, by data set."""
    records = []
    for arm in EXPERIMENT.arms(EXPERIMENT.presets["laptop"]):
        for seed in range(seeds):
            over_plain, over_control = gains[arm.data] if arm.generator == SKEWED else (-harm, 0.0)
            noise = 0.01 * seed
            level = {DGR: 0.5, SOLVER: 0.5 + over_plain / 100 + noise / 100}
            level[SHUFFLED_SOLVER] = level[SOLVER] - over_control / 100 + noise / 100
            values = {row: torch.full((5, 5), a, dtype=torch.float64) for row, a in level.items()}
            records.append(EXPERIMENT.record(arm, seed, values=values))
    return records


@pytest.mark.parametrize(
    ("word", "gains", "harm"),
    [
        ("reproduced", {"mnist": (3, 2), "fashion_mnist": (1, 1)}, 0.0),
        ("partly", {"mnist": (3, 2), "fashion_mnist": (1, 1)}, 1.0),
        ("partly", {"mnist": (3, 2), "fashion_mnist": (1, 0)}, 0.0),
        ("not", {"mnist": (3, 0), "fashion_mnist": (1, 0)}, 0.0),
        ("not", {"mnist": (0, 2), "fashion_mnist": (-1, 2)}, 0.0),
    ],
)
def test_it_is_judged_by_its_rule(word, gains, harm):
    assert EXPERIMENT.by_rule(planted(gains, harm)).word == word
    assert EXPERIMENT.by_rule(planted(gains, harm, seeds=1)).word == "not judged"


def test_tasks_are_split_at_every_second_pixel_and_validation_leaves_the_test_rows_alone():
    config = dataclasses.replace(EXPERIMENT.presets["smoke"], data="digits", stride=2, classes=6)
    stream = stream_of(config, 0)
    assert (len(stream), stream.input_shape, stream.n_outputs) == (3, (4, 4), 6)
    tested, held = (
        set(map(bytes, s.test_sets()[0].x.numpy())) for s in (stream, stream_of(EXPERIMENT.validation(config), 0))
    )
    digits = data.load("digits")
    train = {bytes(x) for x in digits.floats(digits.train_x)[:, ::2, ::2].contiguous().numpy()}
    assert held <= train
    assert not tested <= train
