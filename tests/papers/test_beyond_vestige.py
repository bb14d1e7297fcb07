"""A vestige against data that is kept: what is run, what is read off it, and the rule."""

import dataclasses
import math

import pytest
import torch

from vestige import runner
from vestige.core import rng
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond import image_cells
from vestige_papers.beyond.oracles import components, smoothed_js
from vestige_papers.beyond.vestige_facts import CARRIED, CHAIN, ORACLE, TABLE, VestigeFacts

EXPERIMENT = EXPERIMENTS["beyond-vestige"]


@pytest.mark.slow
def test_smoke_runs_reload_and_are_read(tmp_path):
    units = runner.plan("beyond-vestige", tmp_path, preset="smoke", seeds=1)
    records = [finished.record for finished in runner.run(units)]
    again = [unit.finished() for unit in units]
    assert [r.id for r in again] == [r.id for r in records]
    assert str(EXPERIMENT.lines(again)) == str(EXPERIMENT.lines(records))
    assert EXPERIMENT.by_rule(records).word in ("reproduced", "partly", "not")


@pytest.mark.slow
@pytest.mark.parametrize("part", [CARRIED, ORACLE, TABLE, CHAIN])
def test_a_part_runs(part):
    arms = [arm for arm in EXPERIMENT.arms(EXPERIMENT.presets["smoke"]) if arm.part == part]
    arm = arms[-1]  # of chains that over a vestige
    record = EXPERIMENT.run(dataclasses.replace(arm, paths=(), severities=0), 0, lambda share, words: None)
    key = {CARRIED: "js", ORACLE: "js_more", TABLE: "vestige", CHAIN: "truth"}[part]
    assert bool(record.values[key].isfinite().all())
    assert EXPERIMENT.cost(arm) > 0


def test_a_unit_is_known_by_the_fields_of_its_part_alone():
    arms = EXPERIMENT.arms(EXPERIMENT.presets["laptop"])
    for arm in arms:
        other = dataclasses.replace(arm, **({"chain_n": 77} if arm.part != CHAIN else {"n": 77}))
        assert EXPERIMENT.unit_id(arm, 0) == EXPERIMENT.unit_id(other, 0)
        own = {CARRIED: "n", ORACLE: "n", TABLE: "reference", CHAIN: "chain_n"}[arm.part]
        assert EXPERIMENT.unit_id(arm, 0) != EXPERIMENT.unit_id(dataclasses.replace(arm, **{own: 77}), 0)


def test_a_unit_is_stale_where_something_of_its_part_changed():
    arms = EXPERIMENT.arms(EXPERIMENT.presets["laptop"])
    for arm in arms:
        kinds = {name.partition("/")[0] for name in EXPERIMENT.versions(arm)} - {"experiment"}
        images = {"ClassifierFeatures", "generators", "features"}  # a "vae" may be either
        wanted = {CARRIED: images | {"Vestige"}, ORACLE: images, TABLE: {"DriftTest"}, CHAIN: {"chains"}}
        assert kinds == wanted[arm.part]
        if arm.part == CHAIN:
            assert [name for name in EXPERIMENT.versions(arm) if "/" in name] == [f"chains/{arm.strategy}"]


# images


def test_rows_of_a_class_are_used_once():
    sizes = {"n": 50, "times": 2, "taught": 200}
    rows = image_cells.class_rows("digits", 3, **sizes, seed=0)
    every = torch.cat([rows.kept, rows.more, rows.spare, rows.taught]).flatten(1)
    own = image_cells.every_row("digits", 200)
    assert len(every) == int((own.labels == 3).sum())
    assert len(torch.unique(every, dim=0)) == len(every)
    other = image_cells.class_rows("digits", 3, **sizes, seed=1)
    assert torch.equal(other.taught, rows.taught)  # the classifier's
    assert not torch.equal(other.kept, rows.kept)


def test_corruptions_do_what_their_severity_says():
    x = torch.rand(300, 12, 12, generator=torch.Generator().manual_seed(0))
    grey = torch.full((200, 12, 12), 0.5)
    noise = image_cells.noisy(grey, 0.1, rng.fork(0, "noise"))
    assert float(noise.std()) == pytest.approx(0.1, rel=0.02)
    dot = torch.zeros(1, 15, 15)
    dot[0, 7, 7] = 1.0
    spread = image_cells.blurred(dot, 1.0)[0]
    places = torch.arange(15.0) - 7
    assert float(spread.sum()) == pytest.approx(1.0, abs=1e-3)
    assert float((spread.sum(1) * places**2).sum()) == pytest.approx(1.0, rel=0.02)  # the variance of the filter
    mixed = image_cells.confused(x, torch.ones(200, 12, 12), 0.25)
    assert int((mixed == 1).all((1, 2)).sum()) == 75
    left = [len(image_cells.without_modes(x, x, lost, 0)) for lost in (0, 1, 3, 8)]
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (300, 0)
    fewer, more = (image_cells.without_modes(x, x, lost, 0).flatten(1) for lost in (3, 1))
    assert all(bool((more == row).all(1).any()) for row in fewer)  # clusters once lost stay lost


def test_the_oracle_sees_what_keep_sees_and_smooths_it():
    draw = rng.fork(0, "features")
    features = torch.randn(400, 30, generator=draw, dtype=torch.float64) * torch.linspace(3, 0.1, 30)
    mean, directions = components(features)
    assert directions.shape == (16, 30)
    seen = (features - mean) @ directions.mT
    assert float(seen.var(0).sum() / features.var(0).sum()) > 0.8
    # Far apart without noise; with it the two are N(0, 2) and N(8, 2): JS is below log 2.
    p, q = (torch.randn(400, 1, generator=draw, dtype=torch.float64) * 0.01 + at for at in (0.0, 2.0))
    found = smoothed_js(p, q, torch.ones(1, dtype=torch.float64), estimator="logistic", seed=0)
    # JS of N(0, 1) and N(2, 1), by a sum over a fine grid
    grid = torch.linspace(-10, 12, 20001, dtype=torch.float64)
    a, b = (torch.exp(-((grid - at) ** 2) / 2) / math.sqrt(2 * math.pi) for at in (0.0, 2.0))
    truth = 0.5 * float((torch.xlogy(a, 2 * a / (a + b)) + torch.xlogy(b, 2 * b / (a + b))).sum() * (grid[1] - grid[0]))
    assert found.low <= truth <= found.high
    assert found.value == pytest.approx(truth, abs=0.06)


# what is read off the Records


def images(js, low, high, verdicts, oracle, second, severity=(0.0, 0.1, 0.2, 0.4), raw=(0.1, 0.2, 0.66, 0.69)):
    """Records of a class with a path of three severities, carried and by the oracles."""
    arms = [arm for arm in EXPERIMENT.arms(EXPERIMENT.presets["laptop"]) if arm.data == "mnist" and arm.place == 0]
    told = {"class": 0, "paths": ["real", "noise", "noise", "noise"]}

    def numbers(**each):
        return {name: torch.tensor(x, dtype=torch.float64) for name, x in each.items()}

    fid = (1.0, 2.0, 3.0, 4.0)
    own = numbers(js=js, js_low=low, js_high=high, severity=severity, js_raw=raw, fid=fid)
    ends = {"js_low": [x - 0.01 for x in oracle], "js_high": [x + 0.01 for x in oracle]}
    kept = numbers(js=oracle, **ends, js_second=second, js_more=second, severity=severity, fid=fid)
    return [
        EXPERIMENT.record(arms[0], 0, values=own, details=told | {"verdicts": list(verdicts)}),
        EXPERIMENT.record(arms[1], 0, values=kept, details=told | {"verdicts": ["ok"] * 4}),
    ]


def test_images_are_read_by_hand():
    records = images(
        js=(0.0, 0.1, math.nan, 0.2), low=(0.0, 0.05, math.nan, 0.15), high=(0.02, 0.12, math.nan, 0.25),
        verdicts=("ok", "at least", "refused", "ok"), oracle=(0.01, 0.14, 0.3, 0.28), second=(0.02, 0.1, 0.31, 0.2),
    )  # fmt: skip
    facts = VestigeFacts(records)
    assert facts.refused("mnist") == 0.25
    assert facts.off("mnist") == pytest.approx((0.01 + 0.04 + 0.08) / 3)
    assert facts.off("mnist", "js_second", "oracle") == pytest.approx((0.01 + 0.04 + 0.01 + 0.08) / 4)
    # of "at least" the low end counts alone; 0.28 is above 0.25; the refused cell has no interval
    assert facts.holds("mnist", "js") == pytest.approx(2 / 3)
    assert facts.holds("mnist", "js_more") == pytest.approx(1.0)
    assert facts.width("mnist", "carried") == pytest.approx((0.02 + 0.07 + 0.1) / 3)
    assert facts.width("mnist", "oracle") == pytest.approx(0.02)
    assert facts.sure("mnist") == 0.5
    assert facts.severity_tau("mnist") == 1.0
    assert facts.saturated("mnist") == 0.5
    assert facts.fid_tau("mnist", "oracle") == pytest.approx(4 / 6)  # one pair of six in another order
    assert facts.fid_gap("mnist") == 0.0
    assert facts.tau("mnist", "oracle", "js_second") == pytest.approx(1.0)


def tables(ours, theirs):
    """One Record of a table: shares of drifts found at 500 and at 2000 new rows."""
    arm = next(arm for arm in EXPERIMENT.arms(EXPERIMENT.presets["laptop"]) if arm.part == TABLE)
    shape = (arm.references, 2, 6, 2)

    def planted(shares):
        p = torch.ones(shape, dtype=torch.float64)
        for i, share in enumerate(shares):
            p[:, i].flatten(1)[:, : round(12 * share)] = 0.01
        return p

    none = torch.linspace(0.001, 1, 100, dtype=torch.float64).reshape(1, 2, 50)
    values = {"vestige": planted(ours), "boosting": planted(theirs), "no drift": none}
    drifts = ["shift", "scale", "broken correlation", "category shares", "lost modes", "three-way"]
    return [EXPERIMENT.record(arm, 0, values=values, details={"drifts": drifts})]


def test_power_is_read_by_rows_and_drift():
    facts = VestigeFacts(tables((0.5, 1.0), (0.25, 0.75)))
    assert facts.power("electricity", "vestige", 500) == 0.5
    assert facts.power("electricity", "boosting") == 0.5
    assert facts.power("electricity", "vestige", 500, "shift") == 1.0
    assert facts.power("electricity", "vestige", 500, "three-way") == 0.0
    assert facts.level("electricity") == pytest.approx(0.05, abs=0.01)


def chains(off):
    """Records of both strategies on one drift: the share by which each is off, and its word."""
    records = []
    arms = [arm for arm in EXPERIMENT.arms(EXPERIMENT.presets["laptop"]) if arm.bed == "fig2a"]
    for arm in arms:
        share, width, verdict = off[arm.strategy]
        truth = torch.tensor([0.01, 0.1, 0.5]).double()[:, None].expand(3, 2)
        value = truth * (1 + share)
        values = {"value": value, "low": value - width, "high": value + width, "truth": truth}
        verdicts = [verdict] * value.numel()
        records.append(EXPERIMENT.record(arm, 0, values=values, details={"verdicts": verdicts, "steps": [1, 5, 10]}))
    return records


def test_chains_are_held_against_the_anchored_one():
    facts = VestigeFacts(chains({"anchored": (0.1, 0.02, "ok"), "vestige": (0.04, 0.002, "ok")}))
    assert facts.chain_off("vestige", "fig2a", "kl") == pytest.approx(0.04)
    assert facts.chain_holds("anchored", "fig2a", "js") == 0.5  # at 0.1 and not at 0.5; the first step is not judged
    assert facts.chain_holds("vestige", "fig2a", "js") == 0.0
    assert VestigeFacts(chains({"anchored": (0.1, 0.0, "at least"), "vestige": (-0.1, 0.0, "at least")})).chain_holds(
        "vestige", "fig2a", "kl"
    )
    assert (
        VestigeFacts(chains(dict.fromkeys(("anchored", "vestige"), (0.0, 1.0, "refused")))).chain_holds(
            "vestige", "fig2a", "kl"
        )
        == 0.0
    )


GOOD = {
    "js": (0.0, 0.1, 0.2, 0.3), "low": (0.0, 0.05, 0.15, 0.2), "high": (0.1, 0.2, 0.3, 0.4), "verdicts": ("ok",) * 4,
    "oracle": (0.01, 0.11, 0.21, 0.31), "second": (0.02, 0.1, 0.22, 0.3),
}  # fmt: skip
LEVEL = {"anchored": (0.1, 0.2, "ok"), "vestige": (0.1, 0.2, "ok")}


@pytest.mark.parametrize(
    ("word", "cells", "power", "chain"),
    [
        ("reproduced", {}, ((0.5, 1.0), (0.5, 1.0)), LEVEL),
        ("partly", {"js": (0.05, 0.15, 0.25, 0.35)}, ((0.5, 1.0), (0.5, 1.0)), LEVEL),  # off by .04
        ("partly", {}, ((0.25, 1.0), (0.5, 1.0)), LEVEL),  # power
        ("partly", {}, ((0.5, 1.0), (0.5, 1.0)), LEVEL | {"vestige": (0.2, 0.2, "ok")}),
        ("partly", {"verdicts": ("refused", "ok", "ok", "ok")}, ((0.5, 1.0), (0.5, 1.0)), LEVEL),
        (
            "not",
            {"js": (0.3, 0.2, 0.1, 0.0), "low": (0.9,) * 4, "high": (1.0,) * 4},
            ((0.0, 0.0), (0.5, 1.0)),
            LEVEL | {"vestige": (0.5, 0.01, "ok")},
        ),
    ],
)
def test_the_rule(word, cells, power, chain):
    records = [*images(**GOOD | cells), *tables(*power), *chains(chain)]
    assert EXPERIMENT.by_rule(records).word == word


def test_what_was_not_run_is_not_judged():
    assert EXPERIMENT.by_rule(images(**GOOD)[:1]).word == "not judged"
    told = EXPERIMENT.by_rule(images(**GOOD))
    assert told.word == "reproduced"
    assert "Not measured" in told.why
