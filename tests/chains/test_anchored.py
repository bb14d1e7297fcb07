"""The default strategy on drifts whose truth is known, and its fast preset."""

import warnings

import pytest

from vestige.chains import Chain
from vestige.core.errors import InputError, VestigeWarning
from vestige_papers.cdre.drifts import melting, mixture, poor, skewed, still

NAMES = ("kl", "js")


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
    found, _ = walk(bed, 3000, steps=4)
    assert found.estimates["kl"].value == pytest.approx(bed.true("kl", 4), rel=0.15)
    assert found.estimates["js"].value == pytest.approx(bed.true("js", 4), rel=0.06)
    assert found.depth == 2


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
    found, caught = walk(still(n_steps=4), 2000)
    for name in NAMES:
        estimate = found.estimates[name]
        assert estimate.low <= 0 <= estimate.high
        assert abs(estimate.value) < 0.005
    assert found.estimates["kl"].verdict == "ok"
    assert caught == []


def test_a_poor_first_generator_is_warned_of_at_once_and_ever_after():
    found, caught = walk(poor(ess=0.1), 2000, steps=3)
    assert len(caught) == 3
    assert "from the next step on" in caught[0]
    assert "the anchor samples are worth" in caught[-1]
    assert found.anchors_ess < 0.3 * found.anchors
    assert found.estimates["js"].verdict in ("at least", "refused")


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
