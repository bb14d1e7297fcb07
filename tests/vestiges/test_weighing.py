import json
import math

import pytest
import torch

from vestige.core.errors import InputError
from vestige.ratios.logistic import Logistic
from vestige.ratios.weights import expectation
from vestige.vestiges import weigh

QUADRATIC = Logistic(kind="quadratic")


def pair(n=4000, shift=0.5, scale=1.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return p, torch.randn(n, 2, generator=generator, dtype=torch.float64) * scale + shift


def test_weighted_rows_of_the_model_have_the_moments_of_the_data():
    p, q = pair()
    found = weigh(p, q, estimator=QUADRATIC)
    assert found.weights.mean() == pytest.approx(1)
    for f, truth in ((q, 0.0), (q.square(), 1.0)):
        value = expectation(f, found.weights.log())
        assert (torch.as_tensor(value.value) - truth).abs().max() < 5 * torch.as_tensor(value.std_error).max()
        assert (f.mean(0) - truth).abs().min() > 0.4  # without weights they are far off
    assert found.trustworthy
    assert found.diagnosis.verdict == "good"
    assert found.alpha == 1


def test_tempering_reaches_the_share_that_was_asked_for():
    p, q = pair(1000, shift=2.0, scale=1.0)
    plain, tempered = weigh(p, q, estimator=QUADRATIC), weigh(p, q, estimator=QUADRATIC, min_ess=0.5)
    assert plain.final.ess_fraction < 0.3
    assert tempered.final.ess_fraction == pytest.approx(0.5, abs=1e-6)
    assert tempered.diagnosis.ess_fraction == pytest.approx(plain.diagnosis.ess_fraction)
    assert 0 < tempered.alpha < 1
    # Eq. 7, then Eq. 6: w^alpha up to one factor
    flattened = plain.weights**tempered.alpha
    assert torch.allclose(tempered.weights, flattened / flattened.mean(), rtol=1e-9)


def test_intervals_go_with_the_weights():
    p, q = pair(200, scale=1.0)
    found = weigh(p, q, estimator=Logistic(kind="linear"), bootstrap=8, min_ess=0.9)
    low, high = found.interval.unbind(1)
    assert ((low <= found.weights * 1.2) & (found.weights <= high * 1.2)).double().mean() > 0.95
    assert (low > 0).all()
    assert found.alpha < 1


def test_sets_that_do_not_meet_are_called_unreliable():
    p, q = pair(300)
    found = weigh(p, q + 50, estimator=QUADRATIC)
    assert not found.trustworthy
    assert found.final.accuracy > 0.99


def test_large_sets_are_fitted_in_part_and_weighed_whole():
    p, q = pair(3000)
    part, whole = weigh(p, q, estimator=QUADRATIC, rows=1000), weigh(p, q, estimator=QUADRATIC)
    assert len(part.weights) == 3000
    assert part.report["rows_q"] == 1000
    assert torch.corrcoef(torch.stack([part.weights, whole.weights]))[0, 1] > 0.95


def test_json_holds_no_nan():
    found = weigh(*pair(100), estimator=QUADRATIC).to_json()
    assert found["rows"] == 100
    assert found["final"]["verdict"] in ("good", "usable with care")
    assert not any(isinstance(v, float) and math.isnan(v) for v in found["final"].values())


def test_bad_input_is_refused():
    p, q = pair(50)
    with pytest.raises(InputError, match="'q' of weigh"):
        weigh(p, q[:, :1])
    with pytest.raises(InputError, match="'bootstrap' of weigh"):
        weigh(p, q, bootstrap=-1)
    with pytest.raises(InputError, match="'p' of weigh must be finite"):
        weigh(p.clone().fill_(math.nan), q)


def lost_half(n=2000):
    """The data is N(0, I) in three dimensions; the model has lost the side x0 > 0."""
    generator = torch.Generator().manual_seed(3)
    p, q = torch.randn(3 * n, 3, generator=generator, dtype=torch.float64).split([n, 2 * n])
    return p, q[q[:, 0] < 0]


@pytest.mark.full_training
def test_a_model_that_lacks_half_of_the_data_is_never_called_good():
    p, q = lost_half()
    found = weigh(p, q)
    for one in (found.diagnosis, found.final):
        assert one.verdict == "cannot reach part of the data"
        assert "does not reach about 51 % of the data" in one.warnings[0]
    assert not found.trustworthy
    refused = found.expectation(q[:, 0])
    assert not refused.known  # -.80 for 0, with an interval of .02, is what it used to say
    assert "does not reach about 51 % of the data" in refused.reason
    bounded = found.expectation((q[:, 0] > -1).double(), bounds=(0, 1))
    assert bounded.low < 0.841 < bounded.high
    assert json.loads(json.dumps(found.to_json()))["reach"]["missed"]["value"] == pytest.approx(0.5, abs=0.03)


def test_a_model_that_makes_what_the_data_lacks_can_be_weighed():
    q, p = lost_half()
    found = weigh(p, q)
    assert found.final.verdict == "good"
    assert found.reach.made.value == pytest.approx(0.5, abs=0.03)
    value = found.expectation(q[:, 1])
    assert value.low < 0 < value.high
