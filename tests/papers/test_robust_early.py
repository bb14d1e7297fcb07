"""Farquhar and Gal Fig. 2 to 4: runs on task B from one network, what is read from them, and the rules that judge."""

import dataclasses
import math

import pytest
import torch

from vestige import runner
from vestige.core import rng
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.robust import early as robust_early_runs
from vestige_papers.robust.early import (
    PAPER,
    EarlySetting,
    early_values,
    gathered,
    learner_of,
    mean_and_se,
    stream_of,
    watched,
)
from vestige_papers.robust.first_batches import KINDS, Early, watch

NAMES = ("robust-fig2", "robust-fig3", "robust-fig4")
SMOKE = EXPERIMENTS["robust-fig2"].presets["smoke"]
BATCHES = 3


def early(entropy, likelihood, prior, rows=16, task_rows=800):
    """A run with the same reading at every batch, but for the first, which has no prior gradient."""
    curve = torch.full((BATCHES,), 1.0, dtype=torch.float64)
    before = dict.fromkeys(KINDS, entropy * curve)
    after = {kind: 2 * v for kind, v in before.items()}
    first_without = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    return Early(before, after, likelihood * curve, prior * first_without, rows, task_rows)


def planted(name, split, permuted, networks=2, spread=0.02):
    """Records of a quantity: networks at +-spread of `split` or `permuted`, and four runs at +-spread of each."""
    experiment, quantity = EXPERIMENTS[name], EXPERIMENTS[name].quantity
    records = []
    for tasks, level in (("split", split), ("permuted", permuted)):
        for seed in range(networks):
            at = level * (1 + (spread if seed % 2 else -spread)) if networks > 1 else level
            runs = [at * (1 + s * spread) for s in (-1, 1, -1, 1)]
            found = [early(v, v, 1.0) if quantity != "ratio" else early(1.0, v, 1.0) for v in runs]
            extra = {"accuracy_a": torch.tensor(0.9).double()}
            extra |= {f"entropy_on_{k}": torch.tensor([0.1, 0.05]).double() for k in "ab"}
            setting = dataclasses.replace(SMOKE, tasks=tasks)
            records.append(experiment.record(setting, seed, values=gathered(found) | extra))
    return records


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The units of a smoke run and where they are."""
    out = tmp_path_factory.mktemp("early")
    units = runner.plan("robust-fig2", out, preset="smoke", seeds=1)
    assert all(finished.fresh for finished in runner.run(units))
    return out, [unit.finished() for unit in units]


# Runs


@pytest.mark.slow
def test_records_reload_and_the_three_figures_share_them(smoke):
    out, records = smoke
    assert [r.config["tasks"] for r in records] == ["split", "permuted"]
    for name in NAMES:
        units = runner.plan(name, out, preset="smoke", seeds=1)
        assert [u.path.stem for u in units] == [r.id for r in records]
        assert not any(finished.fresh for finished in runner.run(units))
        assert all(u.path.stat().st_size < 50_000 for u in units)


def test_a_record_holds_every_batch_of_every_run(smoke):
    for record in smoke[1]:
        values = record.values
        assert all(v.shape == (2, SMOKE.batches) for n, v in values.items() if n in ("likelihood", "prior", "ratio"))
        assert values["likelihood_runs"].shape == (SMOKE.runs,)
        assert float(values["likelihood"][0].mean()) == pytest.approx(float(values["likelihood_runs"].mean()))
        # Every run begins where task A ended: the posterior is the prior.
        assert values["prior"][:, 0].tolist() == [0, 0]
        assert bool((values["prior"][0, 1:] > 0).all())
        assert values["ratio"][0].isnan().tolist() == [True] + [False] * (SMOKE.batches - 1)
        assert float(values["accuracy_a"]) > 0.7
        assert 0 < float(values["entropy_on_a"][0]) < float(values["entropy_on_b"][0]) < math.log(10)


def test_the_smoke_run_shows_the_direction_of_print(smoke):
    split, permuted = smoke[1]
    assert float(split.values["entropy_predictive"][0, 0]) < float(permuted.values["entropy_predictive"][0, 0])
    assert float(split.values["likelihood"][0].mean()) > float(permuted.values["likelihood"][0].mean())


@pytest.fixture
def batches_of(monkeypatch):
    """What a run of `tasks` with `seed` would show to the learner, and task B whole."""
    seen = []

    def noted(learner, x, y, **options):
        seen.append((x.clone(), y.clone()))
        return watch(learner, x[:1], y[:1], **options)

    monkeypatch.setattr(robust_early_runs, "watch", noted)

    def shown(tasks, *seeds):
        setting = dataclasses.replace(SMOKE, tasks=tasks, fit_steps=0)
        stream = stream_of(setting, 0)
        learner = learner_of(setting, stream, 1, 0)
        first, task = iter(stream), None
        learner.begin_task(next(first))
        state, task = learner.state_dict(), next(first)
        for seed in seeds:
            watched(setting, stream, state, task, seed)
        found = [seen.pop(0) for _ in seeds]
        return found, task.x.clone(), task.y.clone()

    return shown


def rows_of(x):
    return {tuple(row) for row in x.flatten(0, 1).flatten(1).tolist()}


def test_split_runs_see_rows_of_task_b(batches_of):
    (one, two), x, y = batches_of("split", 1, 2)
    assert one[0].shape[:2] == (SMOKE.batches, SMOKE.early_batch_size)
    whole = {tuple(row) for row in x.flatten(1).tolist()}
    assert rows_of(one[0]) <= whole
    assert rows_of(two[0]) <= whole
    assert set(one[1].flatten().tolist()) == set(range(5, 10)) == set(y.tolist())
    assert not torch.equal(one[0], two[0])


def test_permuted_runs_see_them_in_an_order_of_their_own(batches_of):
    found, x, y = batches_of("permuted", 1, 2, 1)
    assert torch.equal(found[0][0], found[2][0])
    orders = []
    for (shown, labels), seed in zip(found[:2], (1, 2), strict=True):
        rows = torch.randperm(len(x), generator=rng.fork(seed, "rows"))[: labels.numel()]
        assert torch.equal(labels.flatten(), y[rows])
        # One order for the whole run: each column is some column of the source.
        source = [tuple(c) for c in x[rows].flatten(1).T.tolist()]
        orders.append([source.index(tuple(c)) for c in shown.flatten(0, 1).flatten(1).T.tolist()])
        assert orders[-1] != [source.index(c) for c in source]
    assert orders[0] != orders[1]


def test_readings_that_the_setting_offers():
    stream = stream_of(dataclasses.replace(SMOKE, tasks="split"), 0)
    assert [stream.info(k).outputs for k in (0, 1)] == [tuple(range(5)), tuple(range(5, 10))]
    assert stream.info(0).train_outputs == tuple(range(10))
    multi = dataclasses.replace(SMOKE, tasks="split", head="multi", train_logits="current")
    assert stream_of(multi, 0).info(1).train_outputs == tuple(range(5, 10))
    plain, scaled = (
        next(iter(stream_of(dataclasses.replace(SMOKE, tasks="split", pixels=p), 0))).x for p in (1.0, 8.0)
    )
    assert torch.equal(8 * plain, scaled)


@pytest.mark.parametrize(("field", "value"), [("tasks", "rotated"), ("runs", 1)])
def test_refusals(field, value):
    setting = dataclasses.replace(SMOKE, **({"tasks": "split"} | {field: value}))
    with pytest.raises(InputError, match=f"'{field}' of robust-fig2"):
        EXPERIMENTS["robust-fig2"].run(setting, 0, lambda share, words: None)


# What is read


def test_means_and_deviations_are_over_runs():
    values = gathered([early(1.0, 2.0, 0.5), early(3.0, 6.0, 0.5)])
    assert values["entropy_predictive"].tolist() == [[2.0] * BATCHES, pytest.approx([math.sqrt(2)] * BATCHES)]
    assert values["entropy_mean_after"][0].tolist() == [4.0] * BATCHES
    assert values["ratio"][0, 1:].tolist() == [8.0, 8.0]  # the mean of ratios: (4 + 12) / 2
    assert values["ratio_batch"][0, 1:].tolist() == pytest.approx([8 * 16 / 800] * 2)
    assert values["ratio_runs"].tolist() == [4.0, 12.0]
    assert values["entropy_predictive_runs"].tolist() == [1.0, 3.0]


def test_the_error_is_over_networks_and_over_runs_where_there_is_one():
    records = planted("robust-fig2", 1.0, 2.0, networks=2, spread=0.1)[:2]
    mean, se = mean_and_se(early_values(records, "entropy_predictive"))
    assert (mean, se) == pytest.approx((1.0, 0.1))  # 0.9 and 1.1
    mean, se = mean_and_se(early_values(records[:1], "entropy_predictive"))
    assert (mean, se) == pytest.approx((0.9, 0.09 * math.sqrt(4 / 3) / 2))


def test_the_printed_numbers_stand_beside_the_reading_they_belong_to(smoke):
    assert PAPER == {"split": 0.003, "permuted": 0.453}
    lines = EXPERIMENTS["robust-fig2"].lines(smoke[1])
    printed = {line.label: (line.quantity, line.paper) for line in lines if line.paper is not None}
    words = "entropy, mean over batches, by run"
    assert printed == {"split": (words, 0.003), "permuted": (words, 0.453)}
    for line, record in ((lines[0], smoke[1][0]), (lines[len(lines) // 2], smoke[1][1])):
        assert line.ours == pytest.approx(float(record.values["entropy_predictive_runs"].mean()))
        assert line.n == SMOKE.runs  # one network: the error is over its runs


def test_gradient_lines_skip_the_batch_without_a_ratio():
    found = {
        (line.label, line.quantity): line.ours
        for line in EXPERIMENTS["robust-fig4"].lines(planted("robust-fig4", 4.0, 2.0))
    }
    assert found["split", "ratio, first"] == pytest.approx(4.0)
    assert found["split", "likelihood over prior, mean over batches"] == pytest.approx(4.0)
    assert found["permuted", "ratio, sum over the batch, last"] == pytest.approx(2.0 * 16 / 800)


# Verdicts


@pytest.mark.parametrize("networks", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "split", "permuted", "word"),
    [
        ("robust-fig2", 0.004, 0.41, "reproduced"),
        ("robust-fig2", 0.0042, 0.41, "partly"),
        ("robust-fig2", 0.3, 0.45, "partly"),
        ("robust-fig2", 0.3, 0.3, "not"),
        ("robust-fig2", 0.45, 0.3, "not"),
        ("robust-fig3", 0.41, 0.2, "reproduced"),
        ("robust-fig3", 0.3, 0.2, "reproduced"),
        ("robust-fig3", 0.2, 0.2, "not"),
        ("robust-fig3", 0.2, 0.5, "not"),
        ("robust-fig4", 410.0, 200.0, "reproduced"),
        ("robust-fig4", 300.0, 200.0, "reproduced"),
        ("robust-fig4", 200.0, 500.0, "not"),
    ],
)
def test_the_rule_turns_to_each_of_its_words(name, split, permuted, word, networks):
    assert EXPERIMENTS[name].by_rule(planted(name, split, permuted, networks)).word == word


@pytest.mark.parametrize(("split", "word"), [(0.41, "reproduced"), (0.39, "partly"), (0.2, "not")])
def test_the_earlier_rule_of_a_factor_of_two_is_told_too(split, word):
    for name in ("robust-fig3", "robust-fig4"):
        assert EXPERIMENTS[name].by_rule(planted(name, split, 0.2)).why.endswith(f"By the earlier rule: {word}.")
        assert "since print has no factor and the 2 was ours" in str(EXPERIMENTS[name].rule)


def test_a_difference_within_two_standard_errors_does_not_count():
    # Two networks at +-10 %: errors of .1 and .13, so the difference must exceed .33.
    assert EXPERIMENTS["robust-fig2"].by_rule(planted("robust-fig2", 1.0, 1.3, spread=0.1)).word == "not"
    assert EXPERIMENTS["robust-fig2"].by_rule(planted("robust-fig2", 1.0, 1.5, spread=0.1)).word == "partly"


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_and_its_words(name, smoke):
    experiment = EXPERIMENTS[name]
    assert set(experiment.figures(smoke[1])) == {experiment.quantity}
    assert set(experiment.seeds) == set(experiment.presets) == {"smoke", "laptop", "paper"}
    paper = experiment.presets["paper"]
    assert (paper.hidden, paper.epochs, paper.batch_size, paper.lr) == ((100, 100), 120, 256, 1e-3)
    assert (paper.runs, paper.batches, paper.early_batch_size) == (100, 15, 16)
    assert isinstance(paper, EarlySetting)
    _, learner = experiment.parts(dataclasses.replace(SMOKE, tasks="split"), 0)
    assert learner.config.variance_learning_rate is None  # one rate for means and variances, as in print


@pytest.mark.parametrize("name", ["robust-fig2", "robust-fig3", "robust-fig4"])
def test_the_rule_says_what_its_errors_are_over(name):
    assert "where there is one, over its runs" in str(EXPERIMENTS[name].rule)
