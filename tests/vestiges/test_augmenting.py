"""Training tables: what comes in comes out, with weights; labels of every kind; what cannot be joined is refused."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

import vestige as vs
from vestige.core.errors import InputError
from vestige.ratios import Forest

FAST = {"estimator": Forest(trees=30)}


def table(n, seed=0, wrong=0.0):
    """Numbers with missing cells, text with commas, dates, and a label that the number and the text decide."""
    rng = np.random.default_rng(seed)
    size, kind = rng.normal(size=n), rng.choice(["red", "green, or so", 'a "quote"'], n)
    sold = (size + (kind == "red") > 0) ^ (rng.random(n) < wrong)
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 365, n)]
    return pd.DataFrame({
        "size": np.where(rng.random(n) < 0.1, np.nan, size),
        "kind": np.where(rng.random(n) < 0.1, None, kind),
        "day": days,
        "sold": np.where(sold, "yes", "no"),
    })  # fmt: skip


def test_rows_come_out_as_they_came_in():
    real, fake = table(80), table(120, 1)
    fake = fake[["sold", "day", "kind", "size"]]  # in another order
    found = vs.augment(real, fake, label="sold", choose=False, **FAST)
    both = pd.concat([real, fake[real.columns]], ignore_index=True)
    pd.testing.assert_frame_equal(found.table.drop(columns="weight"), both)
    assert np.array_equal(found.table["weight"], found.weights)
    assert np.array_equal(found.weights[:80], np.ones(80))
    assert found.weights[80:].mean() == pytest.approx(found.mass, rel=1e-12)
    assert (found.n_real, found.n_generated, found.arm) == (80, 120, "weighted")
    assert any("stand in another order" in note for note in found.notes)
    assert "nothing was validated" in found.why


def test_arrow_in_arrow_out():
    real, fake = (pa.Table.from_pandas(one, preserve_index=False) for one in (table(80), table(90, 1)))
    found = vs.augment(real, fake, label="sold", choose=False, column="w", **FAST)
    assert isinstance(found.table, pa.Table)
    assert found.table.select(real.column_names).equals(pa.concat_tables([real, fake]))
    assert found.table.column_names[-1] == "w"


def test_wrong_labels_weigh_less():
    real, fake = table(300), table(600, 1)
    wrong = np.arange(600) % 2 == 0
    fake["sold"] = np.where(wrong, np.where(fake["sold"] == "yes", "no", "yes"), fake["sold"])
    found = vs.augment(real, fake, label="sold", choose=False, **FAST)
    w = found.weights[300:]
    assert w[~wrong].mean() > 3 * w[wrong].mean()
    assert found.mass < 0.8
    assert found.reachable.low <= 1 <= found.reachable.high


def test_validation_rows_choose():
    tree = DecisionTreeClassifier(max_depth=4, random_state=0)
    how = {"label": "sold", "model": tree, "folds": 3, **FAST}
    found = vs.augment(table(150), table(400, 1, wrong=1.0), **how)
    assert (found.arm, found.n_generated, len(found.table)) == ("real only", 0, 150)
    assert found.choice.gains["unweighted"].value < -0.2
    assert found.why == found.choice.why
    assert repr(found).startswith("AugmentedTable(real only: rows 150 real and 0 generated, weights ")
    assert "a training table, real only" in found._repr_html_()
    fresh = vs.augment(table(150), table(400, 1, wrong=1.0), validation=table(90, 7), **how)
    assert (fresh.arm, fresh.choice.n) == ("real only", 90)
    told = found.to_json()
    assert (told["arm"], told["choice"]["chosen"], told["real"]) == ("real only", "real only", 150)


@pytest.mark.parametrize(
    ("labels", "score"),
    [
        (lambda x: np.where(x > 0, "b", "a"), "accuracy"),
        (lambda x: x > 0, "accuracy"),
        (lambda x: 7 * (x > 0), "accuracy"),
        (lambda x: (1000 * x).round().astype(int), "R^2"),  # whole numbers of many values are numbers
        (lambda x: x + 0.5, "R^2"),
    ],
)
def test_labels_of_every_kind(labels, score):
    rng = np.random.default_rng(0)
    real, fake = (pd.DataFrame({"x": x, "y": labels(x)}) for x in (rng.normal(size=200), rng.normal(size=60)))
    found = vs.augment(real, fake, label="y", folds=2, **FAST)
    assert found.choice.score == score
    assert found.choice.scores["real only"].value > 0.8


def test_dropped_columns_stay_in_the_table_and_tell_nothing():
    real, fake = table(80), table(90, 1)
    real["id"], fake["id"] = np.arange(80), np.arange(90) + 1000  # which tells them apart
    seen = vs.augment(real, fake, label="sold", choose=False, **FAST)
    found = vs.augment(real, fake, label="sold", choose=False, drop=["id"], **FAST)
    assert seen.diagnosis.accuracy > 0.95
    assert seen.mass < 0.1
    assert found.diagnosis.accuracy < 0.7
    assert found.mass > 0.5
    assert found.table["id"].tolist() == [*range(80), *range(1000, 1090)]


def test_what_cannot_be_joined_is_refused():
    real, fake = table(40), table(40, 1)
    missing = fake.assign(sold=np.where(np.arange(40) == 3, None, fake["sold"]))
    for args, options, told in [
        ((np.zeros((9, 2)), fake), {}, "'real' of augment must be a table, or the name of one; arrays are for"),
        ((real, fake.drop(columns="day")), {}, "must be the same. Got 'day' only in real"),
        ((real, fake), {"label": "prize"}, "'label' of augment must be one of"),
        (
            (real, missing),
            {"label": "sold"},
            "The label 'sold' of fake must be complete. Got a missing value in data row 4",
        ),
        ((real, fake), {"label": "sold", "drop": ["sold"]}, "'drop' of augment must be columns other than the label"),
        ((real, fake), {"label": "sold", "column": "size"}, "'column' of augment must be a name that no column"),
        ((real, fake), {"choose": True}, "'label' of augment must be given, to choose by"),
        ((real, fake), {"validation": fake}, "'validation' of augment must be None where nothing is chosen"),
        ((real[:0], fake), {}, "a table with at least one row"),
        ((real, fake.assign(day=1.5)), {}, "The column 'day' must be of one kind in both tables"),
    ]:
        with pytest.raises(InputError, match=told):
            vs.augment(*args, **options, **FAST)
