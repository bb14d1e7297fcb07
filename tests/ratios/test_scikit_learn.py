"""scikit-learn takes ratios and feature maps: `clone`, `Pipeline`, `GridSearchCV`, and the checks of it that apply."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import check_estimator

from vestige import features
from vestige.core.errors import InputError, MissingPackage, NotFitted, UnknownName
from vestige.features import FEATURES
from vestige.ratios import RATIOS, ULSIF, Bootstrap, Logistic

G = np.random.default_rng(0)
P, Q = G.normal(0.8, 1, (150, 3)), G.normal(size=(120, 3))
X, Y = np.concatenate([P, Q]), np.array([1] * 150 + [0] * 120)

# What scikit-learn checks and we do otherwise, by its reason.
OTHERWISE = {
    "errors in the words of this package, where the check asks for those of scikit-learn": {
        "check_complex_data",
        "check_dtype_object",
        "check_estimators_empty_data_messages",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimator_sparse_tag",
        "check_fit2d_1sample",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
        "check_requires_y_none",
        "check_n_features_in_after_fitting",
    },
    "options are refused when they are given, not when they are used": {
        "check_do_not_raise_errors_in_init_or_set_params"
    },
    "what is learnt is a field from the beginning, so that the codec knows it": {"check_no_attributes_set_in_init"},
    "one axis is n samples of one feature here": {"check_fit1d"},
    "lists come out of lists": {"check_transformer_data_not_an_array"},
    "the arguments are called p and q": {"check_fit_score_takes_y"},
}


@pytest.mark.parametrize("estimator", [Logistic(kind="linear"), ULSIF(), features.build("pca", dims=2)], ids=repr)
def test_the_checks_of_scikit_learn_that_apply(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert set(failed) <= set.union(*OTHERWISE.values()), failed
    assert sum(one["status"] == "passed" for one in found) >= 25


@pytest.mark.parametrize("kind", [*RATIOS.values(), *FEATURES.values()], ids=lambda kind: kind.__name__)
def test_a_clone_has_the_options_and_nothing_that_was_learnt(kind):
    try:
        made = kind()
    except (TypeError, MissingPackage):
        pytest.skip("has an option without a default, or a package that is not here")
    options = made.get_params(deep=False)
    assert clone(made).get_params(deep=False).keys() == options.keys()
    assert made.set_params(**options) is made


def test_options_of_options_go_by_two_underscores():
    made = Bootstrap(Logistic(kind="linear"))
    assert made.get_params()["base__kind"] == "linear"
    assert made.set_params(base__kind="quadratic", n=5).base.kind == "quadratic"
    assert clone(made).get_params()["base__kind"] == "quadratic"
    with pytest.raises(UnknownName, match=r"'options' of Logistic.set_params must be one of"):
        Logistic().set_params(kindd="linear")
    pca = features.build("pca", dims=2)
    with pytest.raises(InputError, match="'dims' of PCA"):
        pca.set_params(dims=0)
    assert pca.dims == 2


def test_rows_and_labels_are_rows_of_both_sides():
    by_sides, by_labels = Logistic(kind="linear").fit(P, Q), Logistic(kind="linear").fit(X, Y)
    torch.testing.assert_close(by_sides.log_ratio(torch.from_numpy(X)), by_labels.log_ratio(torch.from_numpy(X)))
    assert by_labels.fit(X, np.where(Y == 1, 7, 3)).report_["n_p"] == 150
    with pytest.raises(InputError, match=r"labels of two classes. Got one class"):
        Logistic().fit(P, np.ones(150))
    fresh = G.normal(0.8, 1, (4000, 3)), G.normal(size=(4000, 3))
    log_ratio = [by_sides.log_ratio(x) for x in fresh]
    loss = np.log1p(np.exp(-log_ratio[0])).mean() / 2 + np.log1p(np.exp(log_ratio[1])).mean() / 2
    assert by_sides.score(*fresh) == pytest.approx(-loss)
    assert -np.log(2) < by_sides.score(*fresh) < 0


def test_a_pipeline_of_a_map_and_a_ratio_is_searched():
    steps = Pipeline([("map", features.build("pca", dims=2)), ("ratio", Logistic(kind="linear"))])
    found = GridSearchCV(steps, {"map__dims": [1, 3], "ratio__kind": ["linear"]}, cv=StratifiedKFold(3)).fit(X, Y)
    assert found.best_params_ == {"map__dims": 3, "ratio__kind": "linear"}
    assert found.best_score_ > -np.log(2)
    with pytest.raises(NotFitted):
        Logistic().score(P, Q)
