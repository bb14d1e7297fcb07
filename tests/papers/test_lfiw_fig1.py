"""LFIW Fig. 1: the densities in closed form, what is measured, the rule, and the panels."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import torch

from vestige import runner
from vestige.core import rng
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.lfiw import fig1 as lfiw_fig1

EXPERIMENT = EXPERIMENTS["lfiw-fig1"]


def quiet(share, words):
    """Nobody listens."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
def test_smoke_runs_reload_and_are_read(tmp_path):
    units = runner.plan("lfiw-fig1", tmp_path, preset="smoke")
    records = [finished.record for finished in runner.run(units)]
    again = [unit.finished() for unit in units]
    assert str(EXPERIMENT.lines(again)) == str(EXPERIMENT.lines(records))
    assert [x.label for x in EXPERIMENT.lines(records)] == ["n = 50"] * 2 + ["n = 400"] * 2
    assert set(EXPERIMENT.figures(records)) == {"lfiw-fig1-densities", "lfiw-fig1-n50", "lfiw-fig1-n400"}
    assert all(path.stat().st_size < 50_000 for path in tmp_path.rglob("*.json"))
    widths = [float(r.values["width"]) for r in records]
    assert 0.02 < widths[1] < widths[0] < 0.9
    for r in records:
        v = r.values
        assert bool((v["low"] <= v["centre"]).all() and (v["centre"] <= v["high"]).all())
        mass = v["p"] + v["q"]
        by_hand = (mass * (v["high"] - v["low"])).sum() / mass.sum()
        assert float(v["width"]) == pytest.approx(float(by_hand))
        assert float(v["gap"]) == pytest.approx(float((mass * (v["centre"] - v["optimum"]).abs()).sum() / mass.sum()))
        assert torch.allclose(v["optimum"], v["p"] / mass)


def test_the_mixture_and_the_model_fitted_to_it_in_closed_form():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    normal = scipy.stats.norm
    by_hand = 0.5 * normal.pdf(x.numpy(), -2, 1) + 0.5 * normal.pdf(x.numpy(), 2, 1)
    assert np.allclose(lfiw_fig1.log_mixture(x).exp().numpy(), by_hand)
    assert np.allclose(lfiw_fig1.log_normal(x, 0.3, 1.7).numpy(), normal.logpdf(x.numpy(), 0.3, 1.7))
    drawn = lfiw_fig1.draw_mixture(100_000, rng.fork(0, "test"))[:, 0].numpy()
    assert drawn.mean() == pytest.approx(0, abs=0.03)
    assert drawn.var() == pytest.approx(5, abs=0.05)  # 1 + 2^2
    assert np.mean(np.abs(drawn) < 1) == pytest.approx(normal.cdf(-1) - normal.cdf(-3), abs=0.005)


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
def test_the_model_has_the_moments_of_its_points_and_is_drawn_afresh(monkeypatch):
    seen = {}
    real = lfiw_fig1.bootstrap

    def watched(base, p, q, n, *, q_sampler, seed):
        seen.update(p=p, q=q, draws=[q_sampler(2000, s) for s in (1, 2)], base=base, n=n)
        return real(base, p, q, n, q_sampler=q_sampler, seed=seed)

    monkeypatch.setattr(lfiw_fig1, "bootstrap", watched)
    config = lfiw_fig1.LFIWFig1Config(sizes=(), n=60, members=3, hidden=7, steps=20)
    record = EXPERIMENT.run(config, 0, quiet)
    assert (len(seen["p"]), len(seen["q"]), seen["n"], tuple(seen["base"].hidden)) == (60, 60, 3, (7,))
    first, second = seen["draws"]
    assert not torch.equal(first, second)
    assert float(first.mean()) == pytest.approx(float(seen["p"].mean()), abs=0.2)
    assert float(first.std()) == pytest.approx(float(seen["p"].std()), rel=0.06)
    q = scipy.stats.norm.pdf(record.values["x"].numpy(), float(seen["p"].mean()), float(seen["p"].std(correction=0)))
    assert np.allclose(record.values["q"].numpy(), q)


def planted(widths, gaps):
    records = []
    for arm, width, gap in zip(EXPERIMENT.arms(EXPERIMENT.presets["laptop"]), widths, gaps, strict=True):
        for seed, off in ((0, -0.01), (1, 0.01)):
            values = {"width": torch.tensor(width + off).double(), "gap": torch.tensor(gap - off).double()}
            records.append(EXPERIMENT.record(arm, seed, values=values))
    return records


FALLING, RISING, BENT = (0.4, 0.3, 0.1), (0.1, 0.3, 0.4), (0.3, 0.4, 0.1)


@pytest.mark.parametrize(
    ("word", "widths", "gaps"),
    [
        ("reproduced", FALLING, FALLING),
        ("partly", FALLING, RISING),
        ("partly", RISING, FALLING),
        ("partly", BENT, BENT),
        ("not", BENT, RISING),
        ("not", RISING, RISING),
    ],
)
def test_it_is_judged_by_its_rule(word, widths, gaps):
    assert EXPERIMENT.by_rule(planted(widths, gaps)).word == word


def test_one_n_alone_is_not_judged():
    alone = [r for r in planted(FALLING, FALLING) if r.config["n"] == 50]
    assert EXPERIMENT.by_rule(alone).word == "not judged"
    (line, _) = EXPERIMENT.lines(alone)
    assert (line.ours, line.n) == (pytest.approx(0.4), 2)


def test_arms_are_the_three_sizes_of_the_figure():
    arms = EXPERIMENT.arms(EXPERIMENT.presets["paper"])
    assert [(arm.n, arm.members, arm.hidden) for arm in arms] == [(n, 1000, 100) for n in (50, 100, 1000)]
    assert EXPERIMENT.arms(arms[0]) == [dataclasses.replace(arms[0])]
