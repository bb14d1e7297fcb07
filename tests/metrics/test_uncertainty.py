"""Uncertainty against sums by hand, scikit-learn's ROC, and bins in a loop."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import roc_auc_score

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.metrics.uncertainty import THETAS, Uncertainty, expected_calibration_error, reliability, unseen_task_roc


def draws(s=7, n=5, k=3, name="draws"):
    return torch.randn(s, n, k, generator=rng.fork(0, name)).mul(3).log_softmax(-1)


def test_each_number_is_what_scipy_says():
    log_p = draws()
    found = Uncertainty().update(log_p).compute()
    p = log_p.exp().double().numpy()
    predictive = scipy_entropy(p.mean(0), axis=-1)
    expected = scipy_entropy(p, axis=-1).mean(0)
    np.testing.assert_allclose(found["predictive"], predictive, rtol=1e-5)
    np.testing.assert_allclose(found["expected"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["mutual"], predictive - expected, rtol=1e-4)


def test_sure_samples_that_disagree_have_all_the_information_and_equal_ones_none():
    sure = torch.full((2, 1, 2), -torch.inf)
    sure[0, 0, 0] = sure[1, 0, 1] = 0.0
    found = Uncertainty().update(sure).compute()
    assert float(found["mutual"]) == pytest.approx(np.log(2))
    assert float(found["expected"]) == 0
    same = torch.full((4, 1, 2), 0.5).log()
    assert float(Uncertainty().update(same).compute()["mutual"]) == pytest.approx(0, abs=1e-7)


def test_chunks_and_merges_give_what_one_call_gives():
    log_p = draws(9)
    whole = Uncertainty().update(log_p).compute()
    parts = Uncertainty().update(log_p[:2]).update(log_p[2:5]).merge(Uncertainty().update(log_p[5:])).compute()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (torch.zeros(3, 4), "samples, n, k"),
        (torch.zeros(0, 4, 2), "samples, n, k"),
        (torch.zeros(2, 4, 2), "normalised"),
        (torch.full((2, 4, 2), torch.nan), "normalised"),
    ],
)
def test_what_is_no_log_probability_is_refused(bad, words):
    with pytest.raises(InputError, match=words):
        Uncertainty().update(bad)


def test_other_inputs_are_refused_and_nothing_gives_nothing():
    with pytest.raises(InputError, match="same inputs"):
        Uncertainty().update(draws()).update(draws(n=6))
    with pytest.raises(InputError, match="of shape"):
        Uncertainty().update(draws()).merge(Uncertainty().update(draws(n=6)))
    with pytest.raises(InputError, match="before 'compute'"):
        Uncertainty().compute()


@pytest.mark.parametrize("pairs", ["others", "all"])
def test_the_area_is_that_of_scikit_learn_where_the_grid_of_theta_is_fine_enough(pairs):
    """Ratios on a coarse grid inside [1, 10], so that thresholding at each theta loses nothing."""
    ratio = torch.randint(10, 100, (5, 5), generator=rng.fork(3, "mi")).double() / 10 + 0.05
    ratio.fill_diagonal_(1.0)
    mi = ratio * torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0]).double()[:, None]
    model, task = np.meshgrid(range(5), range(5), indexing="ij")
    counted = np.ones((5, 5), bool) if pairs == "all" else model != task
    theirs = roc_auc_score((task > model)[counted], ratio.numpy()[counted])
    assert unseen_task_roc(mi, pairs=pairs).auc == pytest.approx(theirs)


def test_a_detector_that_is_always_right_and_one_that_knows_nothing():
    right = torch.where(torch.ones(4, 4).triu(1) > 0, 5.0, 0.5).double()
    right.fill_diagonal_(1.0)
    assert unseen_task_roc(right).auc == 1.0
    assert unseen_task_roc(torch.ones(4, 4).double()).auc == 0.5
    assert THETAS[0] == 1.0
    assert THETAS[-1] == 10.0
    assert len(THETAS) == 91


def test_a_matrix_that_is_none_is_refused():
    for bad in (torch.ones(2, 3), torch.ones(1, 1), torch.full((3, 3), torch.nan), -torch.ones(3, 3)):
        with pytest.raises(InputError, match="'mi' of unseen_task_roc"):
            unseen_task_roc(bad)


def test_bins_by_a_loop():
    confidence = torch.rand(200, generator=rng.fork(0, "c"))
    right = torch.rand(200, generator=rng.fork(0, "r")) < confidence
    found, error = reliability(confidence, right), 0.0
    for b in range(10):
        rows = [i for i in range(200) if b / 10 <= float(confidence[i]) < (b + 1) / 10]
        c, a = np.mean([float(confidence[i]) for i in rows]), np.mean([bool(right[i]) for i in rows])
        assert float(found["confidence"][b]) == pytest.approx(c)
        assert float(found["accuracy"][b]) == pytest.approx(a)
        error += len(rows) / 200 * abs(c - a)
    assert expected_calibration_error(confidence, right) == pytest.approx(error)
    assert float(found["count"].sum()) == 200


def test_confidence_of_one_falls_into_the_last_bin():
    assert float(reliability(torch.ones(3), torch.tensor([True, True, False]))["count"][-1]) == 3
    assert expected_calibration_error(torch.ones(2), torch.tensor([True, False])) == pytest.approx(0.5)


def test_accumulators_of_other_inputs_stand_side_by_side():
    log_p = draws(n=6)
    whole = Uncertainty().update(log_p)
    joined = Uncertainty.beside([Uncertainty().update(log_p[:, :4]), Uncertainty().update(log_p[:, 4:])])
    for name, value in whole.compute().items():
        torch.testing.assert_close(joined.compute()[name], value)
    torch.testing.assert_close(joined.mean_p(), log_p.exp().double().mean(0))
    for parts in ([], [Uncertainty()], [Uncertainty().update(log_p), Uncertainty().update(log_p[:2])]):
        with pytest.raises(InputError, match="equally many samples"):
            Uncertainty.beside(parts)
    with pytest.raises(InputError, match="before 'mean_p'"):
        Uncertainty().mean_p()


def test_the_summary_holds_means_and_the_calibration_of_the_mean_prediction():
    log_p, y = draws(n=50, k=4), torch.arange(50) % 5 - 1
    one = Uncertainty().update(log_p)
    found, each = one.summary(y, bins=5), one.compute()
    confidence, guess = log_p.exp().double().mean(0).max(1)
    assert float(found["ece"]) == pytest.approx(expected_calibration_error(confidence, guess == y, 5), abs=1e-6)
    assert float(found["mutual_information"]) == pytest.approx(float(each["mutual"].mean()))
    assert float(found["expected_entropy"]) == pytest.approx(float(each["expected"].mean()))
    right = (found["reliability_accuracy"] * found["reliability_count"]).nansum()
    assert float(right) == pytest.approx(int((guess == y).sum()))
