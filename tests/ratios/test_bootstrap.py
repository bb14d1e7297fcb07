"""Bootstrap ensembles: resamples, members against single fits, coverage, intervals, files."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from vestige import store
from vestige.core import rng
from vestige.core.errors import InputError, NotFitted
from vestige.ratios.bootstrap import Bootstrap, bootstrap, counts, resample
from vestige.ratios.logistic import Logistic
from vestige.ratios.nets import KLIEPNet

FAST = {"hidden": (8,), "steps": 40, "tolerance": 1.0}


def normal(n, mean=0.0, seed=0, d=1):
    return mean + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sampler(n, seed):
    return normal(n, 0.5, seed % 2**31)


def even(n):
    return torch.full((n,), 1 / n, dtype=torch.float64)


def test_counts_are_n_draws_and_their_variance_is_multinomial():
    drawn = torch.stack([counts(50, rng.fork(0, i)) for i in range(400)])
    assert (drawn.sum(1) == 50).all()
    assert float(drawn.var(0).mean()) == pytest.approx(1 - 1 / 50, abs=0.05)


def test_a_resample_of_weighted_rows_keeps_their_weights():
    weights = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    for i in range(20):  # a draw of the first three rows alone would hold no data
        assert resample(weights, rng.fork(0, i)).tolist() == [0.0, 0.0, 0.0, 1.0]
    torch.testing.assert_close(resample(even(9), rng.fork(1)), counts(9, rng.fork(1)) / 9)


@pytest.mark.parametrize("estimator", [Logistic(**FAST), KLIEPNet(**FAST), Logistic(calibration="platt", **FAST)])
@pytest.mark.parametrize("parametric", [False, True])
def test_every_member_is_the_single_fit_on_its_resample(estimator, parametric, monkeypatch):
    monkeypatch.setattr("vestige.ratios.training.BLOCK_CELLS", 2 * 8 * 100)  # two members a block, so that blocks join
    p, q, x = normal(50, 0.0, 1), normal(60, 0.5, 2), normal(20, 0.2, 3)
    ensemble = bootstrap(estimator, p, q, 5, q_sampler=sampler if parametric else None, seed=7)
    together = ensemble.members(x)
    for i in range(5):
        w_p = resample(even(50), rng.fork(7, "resample", "p", i))
        w_q = None if parametric else resample(even(60), rng.fork(7, "resample", "q", i))
        q_i = sampler(60, rng.child_seed(7, "draw", i)) if parametric else q
        single = dataclasses.replace(estimator)
        single.fit(p, q_i, p_weights=w_p, q_weights=w_q, seed=rng.child_seed(7, "member", i))
        torch.testing.assert_close(together[:, i], single.log_ratio(x), atol=1e-4, rtol=1e-4)
    assert float(together.std(1).mean()) > 0.02  # members differ


@pytest.mark.slow
def test_the_interval_of_a_linear_classifier_covers_the_closed_form():
    covered, x = 0, torch.tensor([[0.0]], dtype=torch.float64)
    for trial in range(20):
        p, q = normal(100, 0.0, 2 * trial), normal(100, 1.0, 2 * trial + 1)
        low, high = bootstrap(Logistic("linear", ridge=1e-6), p, q, 40, seed=trial).interval(x, 0.9)
        covered += int(low[0] <= 0.5 <= high[0])  # log r(0) = 1/2
    assert covered >= 14  # 18 expected; fewer than 14 has chance 0.01


def test_the_interval_holds_the_stated_share_of_members_and_the_centre_is_their_mean():
    p, q, x = normal(80, 0.0, 1), normal(80, 0.5, 2), normal(10, 0.2, 3)
    ensemble = bootstrap(Logistic("linear"), p, q, 21)
    members = ensemble.members(x)
    low, high = ensemble.interval(x, 0.8)
    inside = ((members >= low[:, None]) & (members <= high[:, None])).double().mean(1)
    assert ((inside - 0.8).abs() < 0.06).all()
    torch.testing.assert_close(ensemble.log_ratio(x), members.mean(1))
    wide = ensemble.interval(x, 0.99)
    assert (wide[0] <= low).all()
    assert (wide[1] >= high).all()


def test_more_data_gives_narrower_intervals():
    x = torch.zeros(1, 1)
    width = {}
    for n in (50, 800):
        low, high = bootstrap(Logistic("linear"), normal(n, 0.0, 1), normal(n, 0.5, 2), 20).interval(x)
        width[n] = float(high - low)
    assert width[800] < width[50] / 2  # a quarter is expected
    assert low[0] < 0.125 < high[0]  # log r(0) = 1/8


def test_kinds_go_in_and_out():
    p, q = normal(30, 0.0, 1).numpy(), normal(30, 0.5, 2).numpy()
    ensemble = bootstrap(Logistic("linear"), p, q, 3)
    low, high = ensemble.interval(p[:4])
    assert isinstance(low, np.ndarray)
    assert low.shape == high.shape == (4,)
    assert ensemble.members(p[:4]).shape == (4, 3)


@pytest.mark.parametrize("base", [Logistic("linear"), Logistic(**FAST)])
def test_an_ensemble_is_stored_and_read_back(base, tmp_path):

    p, q, x = normal(30, 0.0, 1), normal(30, 0.5, 2), normal(10, 0.2, 3)
    ensemble = bootstrap(base, p, q, 3, q_sampler=sampler)
    back = Bootstrap.load(ensemble.save(tmp_path / "ratio.json"))
    assert torch.equal(back.members(x), ensemble.members(x))
    assert back.report_ == ensemble.report_
    assert back.report_["q"] == "drawn afresh"


def test_no_row_of_p_is_stored_and_the_estimator_handed_over_is_left_alone():
    p, q = normal(40, 0.0, 1), normal(40, 0.5, 2)
    base = Logistic(**FAST)
    before = p.clone()
    ensemble = bootstrap(base, p, q, 3)
    assert torch.equal(p, before)
    assert base.width_ is None
    assert base.members_ == {}
    rows = set(p.flatten().tolist())
    assert all(not rows & set(t.double().flatten().tolist()) for t in store.to_tensors(ensemble).values())


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    p, q, x = normal(40, 0.0, 1), normal(40, 0.5, 2), normal(10, 0.2, 3)
    one, two, other = (bootstrap(Logistic(**FAST), p, q, 3, seed=s).members(x) for s in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_what_cannot_be_used_is_refused():
    p, q = normal(20, 0.0, 1), normal(20, 0.5, 2)
    with pytest.raises(InputError, match="'n' of Bootstrap must be at least 2"):
        bootstrap(Logistic("linear"), p, q, 1)
    with pytest.raises(InputError, match=r"'q_weights' of Bootstrap\.fit must be None"):
        bootstrap(Logistic("linear"), p, q, 2, q_sampler=sampler, q_weights=torch.ones(20))
    with pytest.raises(InputError, match="a function that returns 20 samples"):
        bootstrap(Logistic("linear"), p, q, 2, q_sampler=lambda n, seed: sampler(n + 1, seed))
    with pytest.raises(InputError, match=r"'q_sampler' of Bootstrap\.fit must be 1 features wide"):
        bootstrap(Logistic("linear"), p, q, 2, q_sampler=lambda n, seed: torch.ones(n, 2))
    with pytest.raises(NotFitted, match=r"Bootstrap\.interval"):
        Bootstrap(Logistic()).interval(p)
    with pytest.raises(InputError, match=r"'level' of Bootstrap\.interval"):
        bootstrap(Logistic("linear"), p, q, 2).interval(p, 1.0)
    assert math.isfinite(float(bootstrap(Logistic("linear"), p, q, 2).log_ratio(p).sum()))
