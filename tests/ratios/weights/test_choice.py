"""The choice between real only, unweighted and weighted: its rule by hand, its folds, and who has seen what."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from vestige.core.errors import InputError
from vestige.ratios import Forest, weights
from vestige.ratios.weights import choice
from vestige.ratios.weights.choice import ARMS, ValidationSplit, choose_arm, decided

FOREST = Forest(trees=40)
TREE = DecisionTreeClassifier(random_state=0)


def rows(n, seed, wrong=0.0):
    """Two columns whose product decides the class, of which some are wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    return x, np.where(rng.random(n) < wrong, 1 - y, y)


def scored(*rights):
    """Scores of 100 rows by arm, of which so many are right; the same rows first."""
    return {arm: (torch.arange(100) < right).double() for arm, right in zip(ARMS, rights, strict=True)}


@pytest.mark.parametrize(
    ("rights", "chosen"),
    [
        ((80, 80, 80), "real only"),  # a tie
        ((80, 81, 81), "real only"),  # one row of a hundred is one standard error, and not more
        ((80, 83, 83), "unweighted"),
        ((80, 83, 84), "unweighted"),
        ((80, 83, 90), "weighted"),
        ((80, 60, 90), "weighted"),
        ((80, 60, 81), "real only"),
        ((80, 20, 10), "real only"),
    ],
)
def test_less_is_chosen_unless_more_is_better_by_a_standard_error(rights, chosen):
    found = decided(scored(*rights), True, "model", 5)
    assert found.chosen == chosen
    assert [found.scores[arm].value for arm in ARMS] == pytest.approx([r / 100 for r in rights])
    gain = (rights[2] - rights[0]) / 100
    d = np.r_[np.full(abs(rights[2] - rights[0]), np.sign(gain)), np.zeros(100 - abs(rights[2] - rights[0]))]
    assert found.gains["weighted"].value == pytest.approx(gain)
    assert found.gains["weighted"].std_error == pytest.approx(d.std(ddof=1) / 10)


def test_it_says_what_it_chose_and_why():
    found = decided(scored(80, 83, 90), True, "Boosting", 5)
    assert found.why.startswith(
        "weighted (best): accuracy of Boosting on 100 held-out real rows: real only 0.800 (se 0.0"
    )
    assert "over real only: unweighted +0.030 (se 0.017), weighted +0.100 (se 0.030)" in found.why
    simpler = decided(scored(80, 81, 80), True, "Boosting", 5)
    assert simpler.why.startswith("real only (within one standard error of unweighted, and simpler)")
    assert len(repr(found)) < 200
    assert repr(found).startswith("Choice(weighted: accuracy on 100 held-out rows: real only 0.800")
    assert "chosen: weighted" in found._repr_html_()
    assert found.to_json()["why"] == found.why


def test_wrong_rows_are_left_out_and_right_ones_taken():
    real = rows(150, 0)
    how = {"choose": True, "estimator": FOREST, "model": TREE, "folds": 3}
    broken = weights.augment(real, rows(600, 1, wrong=1.0), **how)
    assert (broken.arm, broken.n_generated, len(broken.weights)) == ("real only", 0, 150)
    assert broken.choice.gains["unweighted"].value < -0.2
    good = weights.augment(real, rows(1500, 2), **how)
    assert good.arm in ("unweighted", "weighted")
    assert good.n_generated == 1500
    assert good.choice.gains[good.arm].value > good.choice.gains[good.arm].std_error
    if good.arm == "unweighted":
        assert np.array_equal(good.weights, np.ones(1650))


def test_weighted_is_chosen_where_it_helps():
    """30 % of many labels are wrong, and log weights that know which are given."""
    real, (x, y) = rows(100, 0), rows(2000, 1)
    wrong = np.arange(2000) % 10 < 3
    log_w = np.where(wrong, -np.inf, 0.0)
    got = weights.augment(real, (x, np.where(wrong, 1 - y, y)), log_w, choose=True, model=TREE, folds=3)
    assert got.arm == "weighted"
    assert got.mass == pytest.approx(0.7**2, abs=0.01)
    assert got.n_generated == 1400
    assert np.allclose(got.weights[100:], 0.7)


def test_what_is_held_out_trains_neither_model_nor_ratio():
    """Every real row is marked by its number; no weigher and no model meets the rows that it is asked about."""
    n, folds = 40, 4
    x, y = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n) % 2
    weighed, met = [], []

    class Model(DecisionTreeClassifier):
        def fit(self, x, y, sample_weight=None):
            self.seen_ = set(x[:, 0].tolist())
            return super().fit(x, y, sample_weight)

        def predict(self, x):
            met.append((self.seen_, set(x[:, 0].tolist())))
            return super().predict(x)

    def weigh(real, seed):
        weighed.append(set(real[0][:, 0].tolist()))
        return torch.ones(5, dtype=torch.float64)

    made = torch.full((5, 1), -1.0, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0])
    found = choose_arm(ValidationSplit.of((x, y), None, folds), made, weigh, model=Model())
    assert found.n == n
    assert len(weighed) == folds
    assert len(met) == 3 * folds
    for i, (seen, asked) in enumerate(met):
        assert not seen & asked
        assert not weighed[i // 3] & asked
        assert weighed[i // 3] == seen - {-1.0}
    assert set.union(*(asked for _, asked in met)) == set(range(n))


def test_classes_are_alike_in_every_fold():
    y = torch.tensor([0] * 30 + [1] * 10)
    split = ValidationSplit.of((torch.zeros(40, 1), y), None, 5, seed=3)
    for k in range(5):
        (_, learnt), (_, held) = split.parts(k)
        assert held.bincount().tolist() == [6, 2]
        assert learnt.bincount().tolist() == [24, 8]


def test_rows_of_its_own_may_validate():
    real, made, fresh = rows(150, 0), rows(900, 1, wrong=1.0), rows(200, 5)
    got = weights.augment(real, made, choose=True, estimator=FOREST, model=TREE, validation=fresh)
    assert (got.arm, got.choice.n, got.choice.folds) == ("real only", 200, 1)
    by_hand = (TREE.fit(*real).predict(fresh[0]) == fresh[1]).mean()
    assert got.choice.scores["real only"].value == pytest.approx(by_hand)


def test_numbers_are_scored_by_r_squared():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    real = x, 2 * x[:, 0] + rng.normal(0, 0.1, 60)
    made = rng.normal(size=(200, 1)), rng.normal(0, 9, 200)
    got = weights.augment(real, made, np.zeros(200), choose=True, model=LinearRegression())
    assert (got.arm, got.choice.score) == ("real only", "R^2")
    assert got.choice.scores["real only"].value > 0.98
    whole = weights.augment(
        (x, (4 * x[:, 0]).round().astype(int)), made, np.zeros(200), choose=True, model=LinearRegression()
    )
    assert whole.choice.score == "R^2"  # a regressor is asked for numbers, whatever the labels are


def test_boosting_is_the_default(monkeypatch):
    asked = []
    monkeypatch.setattr(choice, "predicted", lambda model, x, y, w, held: asked.append(model) or torch.zeros(len(held)))
    weights.augment(rows(40, 0), rows(40, 1), np.zeros(40), choose=True, folds=2)
    assert {type(model).__name__ for model in asked} == {"HistGradientBoostingClassifier"}


def test_what_cannot_be_validated_is_refused():
    real, made = rows(40, 0), rows(40, 1)
    pipeline = make_pipeline(LogisticRegression())
    for bad, told in [
        ({"model": pipeline}, "'model' of weights.augment must be a model with 'predict' and a 'fit' that takes"),
        ({"model": 3}, "'model' of weights.augment must be a model"),
        ({"folds": 1}, "'folds'"),
        ({"folds": 21}, "at least 42 rows for 21 folds"),
        ({"real": (real[0], np.zeros(40, int))}, "at least two classes of two rows"),
        ({"validation": (real[0][:, :1], real[1])}, "'validation' of weights.augment must be rows of shape"),
        ({"validation": real[0]}, "'validation' of weights.augment must be a pair"),
    ]:
        with pytest.raises(InputError, match=told):
            weights.augment(**({"real": real, "generated": made, "log_weights": np.zeros(40), "choose": True} | bad))
