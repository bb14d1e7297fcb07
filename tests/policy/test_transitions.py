"""The ratio of transitions against the exact one: a linear system, and a model of it that is wrong in a known way."""

import pytest
import torch

from linear_system import System, linear_policy
from vestige.core.errors import InputError, NotFitted
from vestige.policy import TransitionRatio
from vestige.policy.dynamics import assign_folds

SYSTEM = System.default()
WRONG = SYSTEM.biased([0.05, 0.0], 0.12)  # half a deviation off in one coordinate, too wide in both
POLICY = linear_policy([[0.0, -0.2]], [0.0], 0.5)


@pytest.fixture(scope="module")
def setting():
    """Logs of the true system, the wrong dynamics, and simulated transitions with their exact log-ratios."""
    logs = SYSTEM.logs(POLICY, 100, 40, seed=0)
    dynamics = WRONG.dynamics(members=5)
    s, u, _ = WRONG.trajectories(POLICY, 60, 20, seed=1)
    triples = s[:, :-1].flatten(0, 1), u.flatten(0, 1), s[:, 1:].flatten(0, 1)
    exact = SYSTEM.log_density(*triples) - WRONG.log_density(*triples)
    members = torch.arange(len(exact)) % 5
    return logs, dynamics, triples, members, exact


def fitted(setting, sees, classifiers=2, seed=0):
    logs, dynamics, *_ = setting
    folds = assign_folds(logs, 5, torch.Generator().manual_seed(0))
    return TransitionRatio(classifiers, sees=sees, hidden=(32,)).fit(dynamics, logs, folds, seed=seed)


@pytest.mark.full_training
@pytest.mark.parametrize(("sees", "near", "off"), [("residual", 0.93, 0.25), ("state", 0.8, 0.5)])
def test_it_is_the_exact_ratio(setting, sees, near, off):
    _, _, triples, members, exact = setting
    ratio = fitted(setting, sees)
    log_ratio = ratio.log_ratio(*triples, members)
    assert log_ratio.shape == (2, len(exact))
    for one in log_ratio:
        assert float(torch.corrcoef(torch.stack([one, exact]))[0, 1]) > near
        slope = float(((one - one.mean()) * (exact - exact.mean())).mean() / exact.var())
        assert slope == pytest.approx(1, abs=off)
        assert float((one - exact).square().mean()) < 2 * (1 - near**2) * float(exact.square().mean())
    assert ratio.report_["mean_weight"] == pytest.approx([1, 1], abs=0.15)
    assert ratio.report_["rows"] == 4000


def test_within_keeps_what_the_middle_of_the_real_rows_have(setting):
    logs, dynamics, triples, members, _ = setting
    folds = assign_folds(logs, 5, torch.Generator().manual_seed(0))
    ratio = TransitionRatio(2, hidden=(8,), epochs=2, cut=0.1).fit(dynamics, logs, folds)
    own = ratio.log_ratio(logs.observations, logs.actions, logs.next_observations, folds)
    ends = own.quantile(torch.tensor([0.1, 0.9], dtype=own.dtype), dim=1)
    torch.testing.assert_close(ratio.limits_, ends, atol=1e-2, rtol=1e-2)
    found = ratio.log_ratio(*triples, members).reshape(2, 60, 20)
    cut = ratio.within(found)
    assert cut.shape == found.shape
    for one, whole, low, high in zip(cut, found, *ratio.limits_, strict=True):
        assert (float(one.min()), float(one.max())) == (float(low), float(high))
        inside = (whole > low) & (whole < high)
        assert torch.equal(one[inside], whole[inside])
    with pytest.raises(NotFitted, match="before fit"):
        TransitionRatio().within(found)
    with pytest.raises(InputError, match="'cut' of TransitionRatio"):
        TransitionRatio(cut=0.5)


def test_classifiers_differ_and_a_seed_repeats(setting):
    logs, dynamics, triples, members, _ = setting
    folds = assign_folds(logs, 5, torch.Generator().manual_seed(0))
    values = [
        TransitionRatio(2, hidden=(8,), rows=500).fit(dynamics, logs, folds, seed=seed).log_ratio(*triples, members)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])
    assert not torch.equal(values[0][0], values[0][1])


def test_a_true_model_has_a_ratio_of_one(setting):
    logs = setting[0]
    ratio = fitted((logs, SYSTEM.dynamics(5)), "residual", classifiers=1)
    log_ratio = ratio.log_ratio(*setting[2], setting[3])
    assert float(log_ratio.abs().max()) < 0.3
    assert ratio.report_["accuracy"][0] < 0.55


def test_only_rows_that_a_member_left_aside_are_used(setting):
    logs = setting[0]
    folds = assign_folds(logs, 5, torch.Generator().manual_seed(0))
    two = TransitionRatio(1, hidden=(8,), epochs=1).fit(WRONG.dynamics(2), logs, folds)
    assert two.report_["rows"] == int((folds < 2).sum())
    few = TransitionRatio(1, hidden=(8,), epochs=1, rows=500).fit(WRONG.dynamics(5), logs, folds)
    assert few.report_["rows"] == 500


def test_what_is_refused(setting):
    with pytest.raises(InputError, match="'sees' of TransitionRatio must be one of residual, state"):
        TransitionRatio(sees="nothing")
    with pytest.raises(InputError, match="'classifiers' of TransitionRatio must be at least 1"):
        TransitionRatio(0)
    with pytest.raises(NotFitted, match="before fit"):
        TransitionRatio().log_ratio(*setting[2], setting[3])
