"""The default on drifts whose truth is known; other estimators, the bridge over a far jump, what is stored of both."""

import math
import warnings

import pytest
import torch

from vestige.chains import Chain, anchored
from vestige.chains.anchored import Anchored, Keyframe, bridged
from vestige.core.errors import InputError, UnknownName, VestigeWarning
from vestige.ratios import Logistic, Stack
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige_papers.cdre.drifts import melting, mixture, poor, skewed, still

NAMES = ("kl", "js")
# Settings that a strategy and its stack share.
SHORT = {"folds": 2, "epochs": 4, "min_steps": 40, "decays": (0.5,), "clip": 4.5, "rows_a_product": 100.0, "wide": 0}
quiet = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def walk(bed, n, seed=0, steps=None, **options):
    """A chain over the first `steps` steps of `bed`; its last report and the warnings on the way."""
    chain = Chain(names=NAMES, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VestigeWarning)
        for t in range(1, (steps or bed.n_steps) + 1):
            chain.step({"a": bed.real(1, n, seed)} if t == 1 else {}, {"a": bed.model(t, 1, n, seed)}, seed=seed)
    return chain.report_.tasks[0], [str(w.message) for w in caught]


def test_modes_that_melt_are_followed():
    bed = melting(n_steps=5)
    found, _ = walk(bed, 3000, steps=4, preset="lean")
    assert found.estimates["kl"].value == pytest.approx(bed.true("kl", 4), rel=0.15)
    assert found.estimates["js"].value == pytest.approx(bed.true("js", 4), rel=0.06)
    assert found.depth == 2


def ring(n, seed, filled=0.0):
    """Rows on a thick ring, of which a share lies in its middle."""
    g = torch.Generator().manual_seed(seed)
    angle, noise = torch.rand(n, generator=g) * 2 * math.pi, torch.randn(n, 2, generator=g)
    on = torch.stack([angle.cos(), angle.sin()], 1) * 4 + 0.3 * noise
    inside = torch.rand(n, 1, generator=g) < filled
    return torch.where(inside, 0.5 * noise, on).double()


@quiet
def test_what_the_model_makes_where_the_data_has_nothing_is_at_least():
    chain = Chain(names=("reverse_kl", "js"))
    chain.step({0: ring(800, 0)}, {0: ring(800, 1)})
    assert "lies where the data has no rows" not in chain.report_.tasks[0].estimates["reverse_kl"].reason
    chain.step(model={0: ring(800, 2, filled=0.3)})
    found = chain.report_.tasks[0].estimates["reverse_kl"]
    assert found.verdict == "at least"
    assert "% of the model lies where the data has no rows" in found.reason


def test_the_fast_preset_is_a_set_of_options_and_finds_the_same():
    fast = Chain(preset="fast").strategy
    slow = Chain().strategy
    assert (fast.folds, fast.decays) == (2, (0.5,))
    assert fast.warm_epochs < slow.warm_epochs
    assert Chain(preset="fast", folds=4).strategy.folds == 4
    found, _ = walk(skewed(n_steps=3), 3000, preset="fast")
    assert found.estimates["kl"].value == pytest.approx(skewed(n_steps=3).true("kl", 3), rel=0.12)
    with pytest.raises(InputError, match="'preset' of Chain"):
        Chain(preset="faster")


def test_no_drift_is_no_alarm():
    found, caught = walk(still(n_steps=4), 2000, preset="lean")
    for name in NAMES:
        estimate = found.estimates[name]
        assert estimate.low <= 0 <= estimate.high
        assert abs(estimate.value) < 0.005
    assert found.estimates["kl"].verdict == "ok"
    assert caught == []


def test_a_poor_first_generator_is_warned_of_at_once_and_ever_after():
    found, caught = walk(poor(ess=0.1), 2000, steps=3, preset="lean")
    assert len(caught) == 3
    assert "from the next step on" in caught[0]
    assert "the anchor samples are worth" in caught[-1]
    assert found.anchors_ess < 0.3 * found.anchors
    assert found.estimates["js"].verdict in ("at least", "refused")


@pytest.mark.slow
def test_bias_in_many_dimensions_is_called_at_least():
    bed = mixture(n_steps=2)
    found, _ = walk(bed, 1000, preset="fast")
    assert found.estimates["kl"].verdict == "at least"
    assert "more samples would help" in found.estimates["kl"].reason
    assert found.estimates["kl"].value < bed.true("kl", 2)


@pytest.mark.parametrize("options", [{"min_steps": 0}, {"folds": 1}, {"epochs": 0}, {"clip": 0.0}])
def test_senseless_settings_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        Chain(**options)


def normal(n, seed, shift=0.0, scale=1.0, d=2):
    return shift + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted(p, q, weights=None, *, estimator="stack", above=1e9, start=None, seed=0):
    return Anchored(**SHORT, estimator=estimator, bridge_above=above, waymarks=4).fit_step(p, q, weights, start, seed)


@quiet
@pytest.mark.parametrize(
    ("strategy", "estimator"),
    [
        ("anchored", "quadratic"),
        pytest.param("anchored", "kliep", marks=pytest.mark.slow),
        ("anchored", "ulsif"),
        ("keyframe", "quadratic"),
    ],
)
def test_other_estimators_learn_the_steps_and_are_stored(strategy, estimator, tmp_path):
    chain = Chain(strategy, estimator=estimator, folds=2, names=["kl", "js"])
    chain.step({0: normal(800, 0)}, {0: normal(800, 1, 0.1)})
    chain.step(model={0: normal(800, 2, 0.4, 0.9)})
    p, q = Gaussian.isotropic(0.0, 1.0, 2), Gaussian.isotropic(0.4, 0.9, 2)
    for row in chain.divergences().iloc[:2].itertuples():
        assert abs(row.value - gaussian_divergence(row.divergence, p, q)) < 3.5 * row.std_error, row
    chain.save(tmp_path)
    again = Chain.load(tmp_path)
    x = normal(50, 3)
    assert again.strategy.estimator == estimator
    assert torch.equal(again.log_ratio(x, 0), chain.log_ratio(x, 0))


@quiet
def test_a_first_generator_of_which_one_sample_has_all_the_weight_ends_in_a_refusal():
    chain = Chain(estimator="quadratic", names=["kl", "js"])
    chain.step({0: normal(400, 0, scale=0.1)}, {0: normal(400, 1, 6.0, 0.1)})
    chain.step(model={0: normal(400, 2, 6.1, 0.1)})
    table = chain.divergences()
    assert table.value.isna().all()
    assert (table.verdict == "refused").all()


def test_every_name_is_an_estimator_that_takes_weights():
    p, q, w = normal(120, 0), normal(120, 1, 0.2), torch.softmax(normal(120, 2)[:, 0], 0)
    for name in ("logistic", "lsif", "fgan"):  # the others are fitted above
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VestigeWarning)
            found = fitted(p, q, w, estimator=name)
        assert found.log_ratio_p.shape == found.log_ratio_q.shape == (120,)
        assert bool(torch.isfinite(found.ratio.log_ratio(q)).all())


def test_an_estimator_that_a_strategy_cannot_use_is_refused_in_one_sentence():
    with pytest.raises(UnknownName, match=r"'estimator' of Chain\('every-step'\) must be one of fgan, kliep"):
        Chain("every-step", estimator="stack")
    with pytest.raises(UnknownName, match=r"'estimator' of Chain\('keyframe'\) must be one of"):
        Chain("keyframe", estimator="stak")
    with pytest.raises(UnknownName, match="'critic'"):
        Chain("every-step", estimator="fgan", critic="tv")
    with pytest.raises(InputError, match="moments=False"):
        Chain(estimator="logistic", moments=False)
    for bad in ({"bridge_above": 0.0}, {"waymarks": 0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            Chain(**bad)
    for bad in ({"members": 0}, {"held_out": 0.7}):
        with pytest.raises(InputError, match=next(iter(bad))):
            Chain("every-step", **bad)


def test_a_far_jump_is_bridged_and_ordinary_steps_are_plain_stacks(monkeypatch):
    monkeypatch.setattr(anchored, "JUMP", Logistic(kind="quadratic"))
    p = normal(1500, 0, d=4)
    near, far = normal(1500, 1, 0.2, 0.9, d=4), normal(1500, 2, 1.7, 0.7, d=4)
    law = Gaussian.isotropic(0.0, 1.0, 4)
    truth = gaussian_divergence("kl", law, Gaussian.isotropic(1.7, 0.7, 4))  # 12.7 nats
    plain = Stack(**SHORT, gap_warning=math.inf).fit(p, near, seed=3)
    first = fitted(p, near, above=5.0, seed=3)
    assert not bridged(first.ratio)
    assert torch.equal(first.log_ratio_p, plain.held_out_p_)  # a stack, bit for bit
    assert not hasattr(first.ratio, "held_out_p_")  # no number for a single row stays in it
    direct = Stack(**SHORT, gap_warning=math.inf).fit(p, far, seed=4)
    after = fitted(p, far, above=5.0, start=first.ratio, seed=4)
    assert bridged(after.ratio)
    assert abs(float(after.log_ratio_p.mean()) / truth - 1) < 0.1
    assert float(direct.held_out_p_.mean()) < 0.85 * truth  # which is what there was to correct
    back = fitted(p, near, above=5.0, start=after.ratio, seed=3)  # from a bridge one starts anew
    assert torch.equal(back.log_ratio_p, plain.held_out_p_)


@quiet
@pytest.mark.parametrize("strategy", ["anchored", pytest.param("keyframe", marks=pytest.mark.slow)])
def test_the_report_says_that_a_step_was_bridged_and_the_chain_goes_on(strategy, tmp_path):
    chain = Chain(strategy, estimator="quadratic", bridge_above=2.0, waymarks=2, names=["kl"], folds=2)
    first = chain.step({0: normal(400, 0)}, {0: normal(400, 1, 0.1)})
    with pytest.warns(VestigeWarning, match="too far for a direct fit"):
        second = chain.step(model={0: normal(400, 2, 2.5)})
    assert (first.tasks[0].bridged, second.tasks[0].bridged) == (False, True)
    truth = gaussian_divergence("kl", *(Gaussian.isotropic(m, 1.0, 2) for m in (0.0, 2.5)))
    assert abs(chain.divergences().value[0] / truth - 1) < 0.4
    chain.save(tmp_path)
    again = Chain.load(tmp_path)
    for own in (chain, again):
        own.step(model={0: normal(400, 3, 0.2)})
    assert torch.equal(again.log_ratio(normal(9, 4), 0), chain.log_ratio(normal(9, 4), 0))
    assert not chain.report_.tasks[0].bridged
    assert abs(chain.divergences().value[0]) < 0.2  # what stands for the data did not jump along


@pytest.mark.slow
@pytest.mark.full_training
@quiet
def test_a_jump_of_eighteen_nats_inside_a_chain():
    chain = Chain(names=["kl", "js"])
    chain.step({0: normal(10_000, 0, d=10)}, {0: normal(10_000, 1, 0.05, d=10)})
    chain.step(model={0: normal(10_000, 2, 1.0, 0.6, d=10)})
    assert chain.report_.tasks[0].bridged
    laws = Gaussian.isotropic(0.0, 1.0, 10), Gaussian.isotropic(1.0, 0.6, 10)
    assert abs(chain.divergences(["kl"]).value[0] / gaussian_divergence("kl", *laws) - 1) < 0.08


def test_a_key_that_moves_inherits_the_error_of_the_key_before_it():
    strategy = Keyframe(estimator="quadratic", folds=2, threshold=0.005)
    first, _ = strategy.arrive(normal(400, 0), normal(400, 1, 0.1), 0)
    assert first.anchors.inherited == 1 / 400
    second, found = strategy.advance(first, normal(400, 2, 0.5), 1)
    assert found.moved
    assert found.inherited == 1 / 400
    assert second.anchors.inherited == pytest.approx(1 / 400 + 1 / first.anchors.ess)


@pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
def test_what_was_not_learnt_at_arrival_stays_with_the_anchor_samples():
    for options, moved in (({"wide": 0}, True), ({"preset": "lean"}, False)):
        chain = Chain(names=("kl",), epochs=1, min_steps=20, **options)
        chain.step({0: normal(300, 0)}, {0: normal(300, 1, 0.3)})
        assert (chain._state[0].anchors.unlearnt > 0) == moved
