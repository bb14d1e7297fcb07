"""Each limit has its sentence, and none is said without reason."""

import pytest

from vestige.core import Estimate
from vestige.policy.evaluation import judge

FINE = {
    "trajectories": 1000,
    "outside": 0.01,
    "clipped": 0.0,
    "accuracy": 0.6,
    "terminal": False,
    "episodes": 100,
    "whole": 100,
    "horizon": 50,
}


def judged(*, raw_ess=400.0, alpha=1.0, lost=0.0, shuffled=(3.0, 2.5, 3.5), fitted_q=(5.0, 4.0, 6.0), **found):
    estimates = {
        "lfiw": Estimate(5.0, 4.0, 6.0, ess=raw_ess),
        "lfiw_tempered": Estimate(5.0, 4.0, 6.0, details={"alpha": alpha}),
        "shuffled": Estimate(*shuffled),
        "fitted_q": Estimate(*fitted_q, details={"lost": lost}),
    }
    return judge(estimates, **(FINE | found))


def test_nothing_speaks_against_it():
    assert judged() == ("good", ())
    at_the_limits = {"whole": 2, "lost": 0.05, "reward_gap": (0.5, -0.1)}
    assert judged(**at_the_limits) == ("good", ())


@pytest.mark.parametrize(
    ("found", "verdict", "word"),
    [
        ({"outside": 0.1}, "usable with care", "10% of the simulated steps lie beyond the logs"),
        ({"outside": 0.3}, "unreliable", "30% of the simulated steps"),
        ({"clipped": 0.02}, "unreliable", "2.0% of the simulated states"),
        ({"accuracy": 0.97}, "unreliable", "accuracy 0.970"),
        ({"alpha": 0.01, "raw_ess": 1.2}, "usable with care", "worth 1.2 trajectories"),
        ({"terminal": True}, "usable with care", "terminal states"),
        ({"episodes": 3}, "usable with care", "3 logged episodes"),
        ({"whole": 0}, "usable with care", "No logged episode has 50 steps"),
        ({"whole": 1}, "usable with care", "One logged episode has 50 steps"),
        ({"lost": 0.06}, "usable with care", "ran away in 6% of the resamples"),
        ({"reward_gap": (0.6, 0.0)}, "usable with care", "off by 0.6 deviations"),
        ({"reward_gap": (0.2, -0.11)}, "usable with care", "-0.11 on average"),
    ],
)
def test_each_limit_is_said(found, verdict, word):
    given, warnings = judged(**found)
    assert given == verdict
    assert len(warnings) == 1
    assert word in warnings[0]


def test_the_control_speaks():
    inside = (5.0, 4.0, 6.0)
    assert "is no correction" in judged(shuffled=inside)[1][0]
    # Weights that are all equal correct nothing because nothing is wrong.
    assert judged(shuffled=inside, raw_ess=999.0) == ("good", ())


def test_a_missing_fitted_q_is_said():
    nan = float("nan")
    assert "ran away" in judged(fitted_q=(nan, nan, nan))[1][0]
