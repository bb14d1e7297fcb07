"""Chains over many steps, and divergence matrices: what is run, and the rules that judge it."""

import dataclasses
import math

import pytest
import torch

from vestige import runner
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond.matrix import BeyondMatrixConfig, ForgettingStage, tasks_of


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("beyond-chain", ("anchored", "oracle")),  # which its rule needs
        pytest.param("beyond-chain", (), marks=pytest.mark.slow),
        ("beyond-matrix", ()),
    ],
)
def test_smoke_runs_reload_and_are_read(name, methods, tmp_path):
    experiment = EXPERIMENTS[name]
    units = runner.plan(name, tmp_path, preset="smoke", seeds=1)
    units = [unit for unit in units if not methods or unit.config.method in methods]
    records = [finished.record for finished in runner.run(units)]
    again = [unit.finished() for unit in units]
    assert [r.id for r in again] == [r.id for r in records]
    assert str(experiment.lines(again)) == str(experiment.lines(records))
    assert experiment.by_rule(records).word in ("reproduced", "partly", "not", "not judged")
    assert set(experiment.figures(records)) <= {name}
    verdicts = records[-2].details["verdicts"]  # of a chain
    assert all(verdicts.values() if isinstance(verdicts, dict) else verdicts)


# beyond-chain


def planted_chain(found, verdicts):
    """Records of one seed: kl at t = 10, 20, 30 by method; the truth is 1, 2, 4."""
    experiment = EXPERIMENTS["beyond-chain"]
    records = []
    for arm in experiment.arms(experiment.presets["laptop"]):
        kl, true = (torch.full((30,), math.nan, dtype=torch.float64) for _ in range(2))
        kl[[9, 19, 29]] = torch.tensor(found.get(arm.method, (1.0, 2.0, 4.0)), dtype=torch.float64)
        if arm.method == "oracle":
            true[[9, 19, 29]] = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
        said = [verdicts.get(arm.method, "lower estimate: gap")] * 30
        records.append(experiment.record(arm, 0, values={"kl": kl, "kl_true": true}, details={"verdicts": said}))
    return experiment, records


@pytest.mark.parametrize(
    ("word", "found", "verdicts"),
    [
        ("reproduced", {"anchored": (1.0, 1.9, 2.9), "oracle": (1.0, 2.0, 3.0)}, {}),
        ("reproduced", {"anchored": (1.0, 1.9, 3.8)}, {"anchored": "ok"}),  # near enough to be called ok
        ("reproduced", {"keyframe": (math.nan,) * 3}, {"keyframe": "refused: tail"}),
        ("partly", {"anchored": (1.0, 1.5, 2.5), "oracle": (1.0, 2.0, 3.0)}, {}),
        ("not", {"keyframe": (1.0, 1.5, 4.0)}, {"keyframe": "ok"}),
        ("reproduced", {"every-step": (0.1, 0.1, 0.1)}, {"every-step": "ok"}),  # the paper's chain is not ours
    ],
)
def test_beyond_chain_is_judged_by_its_rule(word, found, verdicts):
    experiment, records = planted_chain(found, verdicts)
    assert experiment.by_rule(records).word == word


def test_beyond_chain_names_who_was_too_bold_and_needs_the_oracle():
    experiment, records = planted_chain({"bridged": (1.0, 2.0, 3.0)}, {"bridged": "ok"})
    assert "called ok: bridged at t = 30" in experiment.by_rule(records).why
    assert experiment.by_rule(records[:-1]).word == "not judged"
    lines = {(x.label, x.quantity): x for x in experiment.lines(records)}
    assert (lines["bridged", "kl, t = 30"].ours, lines["bridged", "kl, t = 30"].truth) == (3.0, 4.0)


# beyond-matrix


def planted_matrix(forgotten, said="lower estimate: gap"):
    """Records of one seed: forgetting by chain and oracle for each generator, and the chain's word on cell (3, 1)."""
    experiment = EXPERIMENTS["beyond-matrix"]
    records = []
    arms = experiment.arms(experiment.presets["laptop"])
    for arm, (by_chain, by_oracle) in zip(arms, forgotten, strict=True):
        matrices = {}
        for side, loss in (("chain", by_chain), ("oracle", by_oracle)):
            D = torch.full((3, 3), math.nan, dtype=torch.float64)
            D[0, 0] = D[1, 1] = D[2, 2] = D[1, 0] = 0.5
            D[2, :2] = 0.5 + loss
            matrices[side] = D
        alone = torch.full((3,), 0.2, dtype=torch.float64)
        own = {"head": "chain", "matrices": matrices, "values": {"alone": alone}}
        told = {"1,1": "ok", "2,1": "lower estimate: gap", "3,1": said}
        records.append(experiment.record(arm, 0, **own, details={"verdicts": told}))
    return experiment, records


SAME = [(0.1, 0.1), (1.0, 1.1), (2.0, 2.2)]


@pytest.mark.parametrize(
    ("word", "forgotten", "said"),
    [
        ("reproduced", [*SAME, *SAME], "ok"),
        ("partly", [*SAME, (0.1, 0.1), (1.0, 1.1), (2.0, 2.5)], "lower estimate: gap"),
        ("not", [*SAME, (0.1, 0.1), (1.0, 1.1), (2.0, 2.5)], "ok"),  # far off, and called ok
        ("not", [*SAME, (0.1, 0.1), (1.0, 1.0), (0.95, 1.05)], "lower estimate: gap"),  # close, but in another order
        ("partly", [*SAME, (0.1, 0.1), (1.0, 1.1), (math.nan, 2.2)], "refused: tail"),
        ("not judged", [*SAME, (0.1, 0.1), (1.0, 1.1), (1.0, math.nan)], "ok"),
    ],
)
def test_beyond_matrix_is_judged_by_its_rule(word, forgotten, said):
    experiment, records = planted_matrix(forgotten, said)
    assert experiment.by_rule(records).word == word


def test_forgetting_and_intransigence_are_losses_of_divergences():
    experiment, records = planted_matrix([*SAME, *SAME])
    lines = {(x.label, x.quantity): x.ours for x in experiment.lines(records)}
    assert lines["drift 0.08", "F, chain (nats)"] == pytest.approx(2.0)  # positive: the divergence rose
    assert lines["drift 0.08", "F, oracle (nats)"] == pytest.approx(2.2)
    assert lines["40 components", "I, both (nats)"] == pytest.approx(0.3)  # 0.5 at arrival, 0.2 alone


def test_the_mixtures_share_their_budget_and_forget():
    config = BeyondMatrixConfig(stream="mixtures", generator=12.0, tasks=2, n=200, data="digits", dims=3)
    stage = ForgettingStage(config, 0)
    stage.train(1)
    before = stage.models[1]
    assert len(before.weights_) == 10  # the budget, or one for each 20 rows
    first = stage.sample(1, 1)
    assert torch.equal(first, stage.sample(1, 1))  # drawing leaves no trace
    stage.train(2)
    assert [len(stage.models[k].weights_) for k in (1, 2)] == [6, 6]
    real = stage.data[1]
    # Old tasks are refitted to the generator's own samples: the data of task 1 is less likely under the new model.
    assert stage.models[1].score(real.numpy()) < before.score(real.numpy())
    assert stage.reference(2).shape == stage.data[2].shape


def test_gaussians_follow_the_drift_of_the_arm_and_are_their_own_reference():
    stage = ForgettingStage(BeyondMatrixConfig(stream="gaussians", generator=0.1, tasks=3, n=4000), 1)
    stage.train(3)
    found = stage.sample(3, 1)  # three steps after its data: mean 2 + 0.3, deviation 0.7
    assert found.mean(0).tolist() == pytest.approx([2.3, 2.3], abs=0.05)
    assert found.std(0).tolist() == pytest.approx([0.7, 0.7], abs=0.05)
    assert stage.reference(1) is None


def test_tasks_are_classes_in_order():
    config = BeyondMatrixConfig(stream="mixtures", tasks=5, n=30, data="digits", dims=2)
    tasks = tasks_of(config, 0)
    assert list(tasks) == [1, 2, 3, 4, 5]
    assert all(x.shape == (30, 2) for x in tasks.values())
    assert not torch.equal(tasks[1], tasks_of(dataclasses.replace(config), 1)[1])
