"""Each limit has its sentence, and none is said without reason."""

import pytest

from vestige.core import Estimate
from vestige.policy.evaluation import TOO_SELDOM, Calibration, disagreements, judge, withdrawal

FINE = {
    "outside": 0.01,
    "clipped": 0.0,
    "terminal": False,
    "episodes": 100,
    "whole": 100,
    "horizon": 50,
}


def estimates(*, lost=0.0, fitted_q=5.0, per_decision=5.2, doubly_robust=5.0, ess=30.0, corrected=5.0):
    """All agree: the corrected value is 5 with an error of 0.3, the others have spreads of 0.4."""
    return {
        "corrected": Estimate(corrected, corrected - 0.6, corrected + 0.6, std_error=0.3),
        "model": Estimate.spread(9.0, 0.1),  # its distance is the calibration's matter
        "fitted_q": Estimate.spread(fitted_q, 0.4, details={"lost": lost}),
        "doubly_robust": Estimate.spread(doubly_robust, 0.4, ess=ess),
        "per_decision": Estimate.spread(per_decision, 0.4, ess=ess),
        "logged": Estimate(1.0, 0.5, 1.5, std_error=0.25),
    }


def calibrated(gap=0.1, replayed=False):
    """The error of the gap is 0.2."""
    logged = Estimate(1.0, 0.5, 1.5, std_error=0.25)
    return Calibration(
        Estimate.spread(1.0 + gap, 0.1), logged, Estimate(gap, gap - 0.4, gap + 0.4, std_error=0.2), replayed
    )


def judged(*, gap=0.1, replayed=False, **found):
    own = {key: found.pop(key) for key in list(found) if key not in {*FINE, "reward_gap"}}
    return judge(estimates(**own), calibration=calibrated(gap, replayed), **(FINE | found))


def test_nothing_speaks_against_it():
    assert judged() == ("good", ())
    at_the_limits = {"whole": 2, "lost": 0.05, "reward_gap": (0.5, -0.1), "gap": 0.4, "fitted_q": 5.99}
    assert judged(**at_the_limits) == ("good", ())


@pytest.mark.parametrize(
    ("found", "verdict", "word"),
    [
        ({"outside": 0.1}, "usable with care", "10% of the simulated steps lie beyond the logs"),
        ({"outside": 0.3}, "unreliable", "30% of the simulated steps"),
        ({"clipped": 0.02}, "unreliable", "2.0% of the simulated states"),
        ({"gap": 0.41}, "usable with care", "The policy that ran earns 1.41 in the learnt model and 1 in the logs"),
        ({"gap": -0.5, "replayed": True}, "usable with care", "The logged actions earn 0.5 in the learnt model"),
        ({"gap": 2.1}, "unreliable", "a gap of +2.1 with an error of 0.2"),  # half of what would change
        ({"fitted_q": 6.01}, "usable with care", "disagree by more than their errors (corrected 5, fitted Q 6.01)"),
        ({"fitted_q": 3.9}, "usable with care", "fitted Q 3.9"),
        ({"per_decision": 7.0}, "usable with care", "(corrected 5, importance sampling 7)"),
        ({"doubly_robust": 7.0, "per_decision": 7.0}, "usable with care", "doubly robust 7, importance sampling 7"),
        ({"terminal": True}, "usable with care", "terminal states"),
        ({"episodes": 3}, "usable with care", "3 logged episodes"),
        ({"whole": 0}, "usable with care", "No logged episode has 50 steps"),
        ({"whole": 1}, "usable with care", "One logged episode has 50 steps"),
        ({"lost": 0.06}, "usable with care", "diverged in 6% of the resamples"),
        ({"reward_gap": (0.6, 0.0)}, "usable with care", "off by 0.6 deviations"),
        ({"reward_gap": (0.2, -0.11)}, "usable with care", "-0.11 on average"),
    ],
)
def test_each_limit_is_said(found, verdict, word):
    given, warnings = judged(**found)
    assert given == verdict
    assert len(warnings) == 1
    assert word in warnings[0]


def test_a_spread_of_one_episode_does_not_disagree():
    assert judged(per_decision=70.0, doubly_robust=70.0, ess=4.9) == ("good", ())
    assert disagreements(estimates(per_decision=70.0, ess=5.0)) == ["per_decision"]


def test_a_refused_estimate_does_not_disagree_and_the_model_leads_without_a_correction():
    found = estimates() | {"corrected": Estimate.refused("none"), "per_decision": Estimate.refused("none")}
    assert disagreements(found) == ["fitted_q", "doubly_robust"]


def test_why_an_interval_is_withdrawn():
    assert withdrawal(estimates(), calibrated(), "good") == TOO_SELDOM
    assert withdrawal(estimates(), calibrated(), "usable with care") == TOO_SELDOM
    assert withdrawal(estimates(), calibrated(0.41), "good") == "no interval: the model does not reproduce the logs"
    assert withdrawal(estimates(fitted_q=7.0), calibrated(), "good") == "no interval: estimates disagree"
    assert withdrawal(estimates(), calibrated(), "unreliable").startswith("no interval: the model leaves")
    assert withdrawal(estimates(), calibrated(replayed=True), "good") == "no interval without the policy that ran"


def test_a_missing_fitted_q_is_said():
    assert "diverged" in judged(fitted_q=float("nan"))[1][0]


def test_where_nothing_can_be_compared_nothing_holds():
    missing = Estimate.refused("no two logged episodes are as long as the horizon")
    bare = Calibration(missing, missing, missing, True)
    assert not bare.holds
    verdict, warnings = judge(estimates(), calibration=bare, **(FINE | {"whole": 0}))
    assert verdict == "usable with care"
    assert "the model cannot be checked" in warnings[0]
