"""The Inception Score against its definition in loops, closed forms, and the spread over repeated data sets."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from vestige.core.errors import InputError
from vestige.metrics.inception import InceptionScore, inception_score


def by_definition(probabilities, w=None):
    w = np.full(len(probabilities), 1 / len(probabilities)) if w is None else w / w.sum()
    marginal = w @ probabilities
    total = 0.0
    for weight, row in zip(w, probabilities, strict=True):
        total += weight * sum(a * math.log(a / b) for a, b in zip(row, marginal, strict=True) if a > 0)
    return math.exp(total)


def logits(n=60, k=7, seed=0):
    return 2 * np.random.default_rng(seed).normal(size=(n, k))


def test_agrees_with_the_definition():
    x, w = logits(), np.random.default_rng(1).random(60)
    rows = softmax(x, axis=1)
    assert inception_score(rows).value == pytest.approx(by_definition(rows), rel=1e-10)
    assert inception_score(x, kind="logits").value == pytest.approx(by_definition(rows), rel=1e-10)
    assert inception_score(x, kind="logits", weights=w).value == pytest.approx(by_definition(rows, w), rel=1e-10)
    assert InceptionScore().update(rows, w).compute().value == pytest.approx(by_definition(rows, w), rel=1e-10)


def test_closed_forms():
    assert inception_score(np.eye(5)).value == pytest.approx(5)  # sure, and every class alike
    assert inception_score(np.full((4, 5), 0.2)).value == pytest.approx(1)  # knows nothing
    assert inception_score(np.tile([1.0, 0.0, 0.0], (4, 1))).value == pytest.approx(1)  # one mode
    huge = np.array([[1e4, 0.0], [0.0, 1e4]])
    assert inception_score(huge, kind="logits").value == pytest.approx(2)
    assert InceptionScore(kind="logits").update(huge).compute().value == pytest.approx(2)


def test_whole_weights_are_repeated_rows():
    rows, w = softmax(logits(), axis=1), np.random.default_rng(2).integers(0, 4, 60)
    repeated = inception_score(np.repeat(rows, w, axis=0))
    assert inception_score(rows, weights=w).value == pytest.approx(repeated.value, rel=1e-10)


def test_splits_are_the_published_form():
    rows = softmax(logits(), axis=1)
    scores = [by_definition(rows[s::6]) for s in range(6)]
    result = inception_score(rows, splits=6)
    assert result.value == pytest.approx(np.mean(scores), rel=1e-10)
    assert result.details["split_std"] == pytest.approx(np.std(scores), rel=1e-8)
    assert result.details["whole"] == pytest.approx(by_definition(rows), rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_error_is_the_spread_over_data_sets(weighted):
    values, errors, streamed = [], [], []
    for seed in range(80):
        x = logits(200, 5, seed)
        w = np.exp(0.5 * log_softmax(x, axis=1)[:, 0]) if weighted else None
        result = inception_score(x, kind="logits", weights=w)
        values.append(result.value)
        errors.append(result.std_error)
        if seed < 20:
            streamed.append(InceptionScore(kind="logits").update(x, w).compute().std_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.25)
    assert np.mean(streamed) == pytest.approx(np.std(values), rel=0.35)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[0.5, 0.5], [0.5, math.nan]], "finite"),
        ([[0.5, 0.6], [0.5, 0.5]], "sum to one"),
        ([[1.5, -0.5], [0.5, 0.5]], "sum to one"),
        ([[0.5, 0.5]], "at least 2"),
    ],
)
def test_bad_input(rows, said):
    with pytest.raises(InputError, match=said):
        inception_score(rows)


def test_bad_options():
    rows = np.eye(4)
    with pytest.raises(InputError, match="splits"):
        inception_score(rows, splits=3)
    with pytest.raises(LookupError, match="Did you mean 'logits'"):
        inception_score(rows, kind="logit")
    with pytest.raises(InputError, match="sum to one"):
        InceptionScore().update(5 * rows)
