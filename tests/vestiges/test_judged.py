"""New rows against a vestige: what moments give exactly, and what reference draws give, against the rows themselves."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core import Estimate, InputError
from vestige.metrics import fid, kid, mmd
from vestige.ratios import Stack
from vestige.ratios.cross_fit import held_out
from vestige.ratios.divergences import Gaussian, gaussian_divergence, learnt
from vestige.ratios.logistic import Logistic
from vestige.vestiges import Vestige, compare, judged, keep, weigh
from vestige.vestiges.reference import OwnErrors, smoothed, smoothing_scale

QUADRATIC = Logistic(kind="quadratic")
FAST = Stack(**Stack.presets["fast"])
NEEDS_ROWS = {"prd_f8_recall", "prd_f1_8_precision", "precision", "recall", "density", "coverage"}


def normal(n, seed, d=2, shift=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale + shift


REAL, NEW = normal(1500, 0), normal(1200, 1, shift=0.4, scale=1.2)


@pytest.fixture(scope="module")
def kept():
    return keep(REAL, density="mixture", third=True)


@pytest.fixture(scope="module")
def found(kept):
    return compare(kept, NEW, estimator=QUADRATIC)


@pytest.fixture(scope="module")
def with_rows():
    return compare(REAL, NEW, estimator=QUADRATIC)


@pytest.mark.parametrize("name", ["fid", "fid_extrapolated", "kid"])
def test_moments_give_what_rows_give(found, with_rows, name):
    mine, truth = found.metrics[name], with_rows.metrics[name]
    assert mine.value == pytest.approx(truth.value, abs=0.05 * truth.std_error)  # moments are rounded
    assert mine.std_error == pytest.approx(truth.std_error, rel=0.15)
    assert mine.details["same"] == truth.details["same"]
    assert "own_error" not in mine.details  # nothing rests on draws but the error


def test_moments_give_what_rows_give_under_weights(kept):
    weights = torch.rand(len(NEW), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mine = compare(kept, NEW, q_weights=weights, estimator=QUADRATIC).metrics
    for name, truth in (("fid", fid(REAL, NEW, q_weights=weights)), ("kid", kid(REAL, NEW, q_weights=weights))):
        assert mine[name].value == pytest.approx(truth.value, abs=0.02 * mine[name].std_error)


def test_the_standard_error_of_fid_is_that_of_as_many_rows_as_there_were(kept):
    """Not of as many as there are draws: the part of the data falls with the rows, whatever stands for them."""
    rows = judged.WeightedRows(*kept.feature_points()), judged.WeightedRows(NEW, torch.ones(len(NEW)).double())
    new = judged.FID(groups=2).update(NEW)
    small = kept.moments.compute(new, std_error=True, rows=rows).std_error
    many = dataclasses.replace(kept.moments)
    many.summaries_, many.n_, many.width_ = kept.moments.summaries_, 100 * kept.n, kept.moments.width_
    of_new = many.compute(new, std_error=True, rows=rows).std_error
    of_data = math.sqrt(small**2 - of_new**2) * math.sqrt(100 / 99)
    truth = fid(REAL, NEW, std_error=True).std_error
    assert of_data == pytest.approx(math.sqrt(truth**2 - of_new**2), rel=0.15)


def test_without_third_moments_kid_is_that_of_draws_and_widened(kept, with_rows):
    """The same vestige as if nobody had asked for them."""
    less = dataclasses.replace(kept, sketch=dataclasses.replace(kept.sketch, third=None))
    found = compare(less, NEW, estimator=QUADRATIC, pair_rows=1000).metrics
    for name in ("kid", "mmd2"):
        e = kept.errors.limit(name)
        assert found[name].details["own_error"] == e
        low, high = found[name].details["from_draws"]
        assert math.sqrt(found[name].high) == pytest.approx(math.sqrt(high) + math.sqrt(e))
        assert found[name].low == pytest.approx(max(math.sqrt(low) - math.sqrt(e), 0) ** 2)
        assert found[name].low <= with_rows.metrics[name].value <= found[name].high


def test_mmd_has_the_bandwidth_of_arrival(kept, found):
    draws, weights = kept.feature_points()
    bandwidth = kept.errors.estimates["mmd2"].details["bandwidth"]
    rows = judged.some_rows(len(draws), math.ceil(len(draws) * kept.n * float(weights.square().sum())), 0, "p")
    truth = mmd(draws[rows], NEW, p_weights=weights[rows], bandwidth=bandwidth)
    assert found.metrics["mmd2"].value == pytest.approx(truth.value, rel=1e-9)


def test_metrics_of_neighbours_are_refused(found):
    assert {name for name, one in found.metrics.items() if not one.known} == NEEDS_ROWS
    assert all(found.metrics[name].reason == judged.NEEDS_ROWS for name in NEEDS_ROWS)


def test_divergences_are_those_of_rows_and_wider(kept, found, with_rows):
    law_p = Gaussian(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    law_q = Gaussian(torch.full((2,), 0.4, dtype=torch.float64), 1.44 * torch.eye(2, dtype=torch.float64))
    for name, one in found.divergences.items():
        truth = with_rows.divergences[name]
        assert one.value == pytest.approx(truth.value, abs=5 * truth.std_error), name
        if name in ("js", "hellinger2", "total_variation"):
            assert one.low < truth.low < truth.high < one.high
            assert one.verdict == "ok"
        else:
            assert one.verdict == "at least"
            assert 0 < one.low < truth.low
    exact = float(gaussian_divergence("hellinger2", law_p, law_q))
    assert found.divergences["hellinger2"].low < exact < found.divergences["hellinger2"].high
    assert "js_smoothed" not in found.divergences


def test_the_weights_of_the_draws_decide_what_they_stand_for(kept):
    """Draws of N(0, 1) under weights exp(x / 2) stand for N(1/2, 1)."""
    draws, _ = kept.draws
    tilted = dataclasses.replace(kept.reference.parts[0], weights=torch.softmax(draws[:, 0] / 2, 0))
    other = dataclasses.replace(kept, reference=dataclasses.replace(kept.reference, parts=(tilted,)))
    new = normal(1500, 7)
    new[:, 0] += 0.5
    plain, moved = (compare(one, new, estimator=QUADRATIC, pair_rows=2000) for one in (kept, other))
    assert plain.divergences["js"].value > 0.02
    assert moved.divergences["js"].value < 0.01
    assert plain.metrics["mmd2"].value > 0.01 > 0.003 > moved.metrics["mmd2"].value
    assert plain.diagnosis.ess_fraction < 0.9 < 0.95 < moved.diagnosis.ess_fraction
    weights = [weigh(one, new, estimator=QUADRATIC).weights for one in (kept, other)]
    assert float(weights[0].std()) > 0.3 > 0.2 > float(weights[1].std())


def test_the_p_value_is_that_of_the_drift_test(kept, found):
    assert found.drift == kept.test.test(NEW)
    assert found.p_value == found.drift.p_value
    assert found.p_value < 0.001
    assert {one.name for one in found.differences} == {"x0", "x1"}
    assert "Columns that differ by themselves: x" in found.conclusion
    assert "a classifier tells its rows from reference draws" in found.conclusion


def test_rows_of_one_distribution(kept):
    same = compare(kept, normal(1000, 3), estimator=QUADRATIC)
    assert same.p_value > 0.05
    assert same.divergences["js"].low == pytest.approx(0, abs=1e-9) or same.divergences["js"].low < 0
    assert same.conclusion.startswith("No difference between real and fake was found")
    assert "Columns that differ" not in same.conclusion


def test_weighted_rows_are_tested_by_draws_of_their_weights(kept):
    exact = (((NEW - 0.4) / 1.2).square() - NEW.square()).sum(1) / 2
    weighted = compare(kept, NEW, q_weights=exact.exp(), estimator=QUADRATIC)
    assert weighted.p_value > 0.01
    assert weighted.divergences["js"].value < 0.01
    few, options = torch.full((len(NEW),), 1e-9, dtype=torch.float64), {"estimator": QUADRATIC, "pair_rows": 100}
    few[:15] = 1.0
    assert (
        "was not tested: its weights are worth too few rows" in compare(kept, NEW, q_weights=few, **options).conclusion
    )


def test_few_new_rows_are_not_tested(kept):
    found = compare(kept, NEW[:20], estimator=QUADRATIC)
    assert math.isnan(found.p_value)
    assert found.conclusion.startswith("Whether fake differs from real was not tested: there are too few rows.")


def test_a_js_without_room_says_that_it_is_saturated(kept):
    far = compare(kept, NEW + 20, estimator=QUADRATIC, pair_rows=200).divergences["js"]
    assert far.reason.startswith("saturated: ")
    assert not compare(kept, NEW, estimator=QUADRATIC, pair_rows=200).divergences["js"].reason


def test_what_was_not_promised_at_arrival_is_said(kept):
    unsure = {k: one.but(verdict="at least", reason="few rows") for k, one in kept.errors.estimates.items()}
    found = compare(dataclasses.replace(kept, errors=OwnErrors(unsure, 100)), NEW, estimator=QUADRATIC, pair_rows=200)
    assert any("could not be told when it was kept" in text for text in found.warnings)
    assert (found.divergences["js"].low, found.divergences["js"].verdict) == (0.0, "at least")
    nothing = compare(dataclasses.replace(kept, errors=OwnErrors({}, 0)), NEW, estimator=QUADRATIC, pair_rows=200)
    for one in (nothing.divergences["js"], nothing.divergences["total_variation"], nothing.metrics["mmd2"]):
        assert (one.low, one.verdict) == (0.0, "at least")
    assert nothing.metrics["fid"].verdict == "ok"


def test_a_stored_vestige_gives_the_same_comparison(kept, found, tmp_path):
    again = compare(Vestige.load(kept.save(tmp_path / "a.vestige")), NEW.numpy(), estimator=QUADRATIC)
    assert again.divergences == found.divergences
    assert {k: v.value for k, v in again.metrics.items() if v.known} == pytest.approx(
        {k: v.value for k, v in found.metrics.items() if v.known}, rel=1e-12
    )


def test_a_vestige_compares_and_weighs_by_itself(kept, found):
    assert kept.compare(NEW, estimator=QUADRATIC).divergences == found.divergences
    weights = [one.weights for one in (kept.weigh(NEW, estimator=QUADRATIC), weigh(kept, NEW, estimator=QUADRATIC))]
    assert torch.equal(*weights)


def test_what_belongs_to_rows_is_refused(kept):
    with pytest.raises(InputError, match="must be False with a vestige"):
        compare(kept, NEW, standardise=True)
    with pytest.raises(InputError, match="q_weights"):
        compare(kept, NEW, q_weights=torch.ones(3))
    with pytest.raises(InputError):
        compare(kept, normal(100, 0, d=3))


@pytest.fixture(scope="module")
def halves():
    """Data of two clusters, and its vestige."""
    rows = normal(1600, 4) * 0.5
    rows[:800, 0] += 8
    return keep(rows, density="mixture"), rows


def errors_of(js):
    """The same limit for JS and squared Hellinger."""
    return OwnErrors({name: Estimate(js / 2, 0, js, name=name) for name in ("js", "hellinger2", "mmd2", "kid")}, 400)


@pytest.mark.parametrize(("js", "doubted"), [(0.01, False), (0.3, True)])
def test_a_lost_cluster_is_out_of_reach_as_far_as_the_draws_are_right(halves, js, doubted):
    kept, _ = halves
    new = normal(800, 5) * 0.5
    found = compare(dataclasses.replace(kept, errors=errors_of(js)), new, estimator=FAST, pair_rows=100)
    assert found.reach.missed.low < 0.5 < found.reach.missed.high
    assert found.by_draws
    assert float((kept.points()[0][found.reach.outside_p, 0] > 4).double().mean()) > 0.95
    assert ("is judged by reference draws, which may be off by up to" in found.conclusion) == doubted
    assert "fake does not reach about " in found.conclusion
    assert found.diagnosis.verdict == "cannot reach part of the data"


def test_weights_for_new_rows(kept):
    exact = (((NEW - 0.4) / 1.2).square() - NEW.square()).sum(1) / 2
    found, with_rows = (weigh(p, NEW, estimator=QUADRATIC) for p in (kept, REAL))
    assert (found.weights.log() - exact + math.log(float(exact.exp().mean()))).abs().median() < 0.15
    assert found.final.ess == pytest.approx(with_rows.final.ess, rel=0.1)
    assert found.final.verdict == with_rows.final.verdict == "good"
    assert float(found.weights.mean()) == pytest.approx(1)
    assert 0 < found.apart < 0.3
    assert with_rows.apart == 0
    assert found.to_json()["apart"] == found.apart


def test_averages_by_these_weights_hold_the_error_of_the_draws(kept):
    found = weigh(kept, NEW, estimator=QUADRATIC)
    f = (NEW[:, 0] > 0).double()
    free, bounded = found.expectation(f), found.expectation(f, bounds=(0.0, 1.0))
    assert "does not hold the error of the reference draws" in free.notes[0]
    assert bounded.low == pytest.approx(max(free.low - found.apart, 0))
    assert bounded.high == pytest.approx(min(free.high + found.apart, 1))
    several = found.expectation(torch.stack([f, f], 1), bounds=(0.0, 1.0))
    assert several.low.tolist() == pytest.approx([bounded.low] * 2)
    exact = dataclasses.replace(found, apart=0.0)
    assert exact.expectation(f, bounds=(0.0, 1.0)).low == free.low


def pictures(n, seed, noise=0.0):
    """Images of 6 x 6 dots that vary in four ways."""
    generator = torch.Generator().manual_seed(seed)
    ways = torch.randn(4, 36, generator=torch.Generator().manual_seed(9))
    x = torch.randn(n, 4, generator=generator) @ ways + 0.1 * torch.randn(n, 36, generator=generator)
    return (x + noise * torch.randn(n, 36, generator=generator)).reshape(n, 6, 6)


@pytest.fixture(scope="module")
def images():
    return keep(pictures(900, 0)), pictures(900, 0)


def test_images_have_a_smoothed_js_that_is_that_of_smoothed_rows(images):
    kept, rows = images
    new = pictures(900, 1, noise=0.1)
    found = compare(kept, new, estimator=FAST, pair_rows=100).divergences
    points, weights = kept.points()
    scale = smoothing_scale(points, weights)
    cells = [kept.frame.seen(kept.cells(x).cells) for x in (rows, new)]
    both = [smoothed(x, scale, 5, side) for x, side in zip(cells, ("a", "b"), strict=True)]
    oracle = held_out(*both, estimator=FAST)
    truth = learnt(["js"], *oracle.sides(), oracle.refit())["js"]
    smooth = found["js_smoothed"]
    assert smooth.name == "js_smoothed"
    assert smooth.low <= truth.value <= smooth.high
    assert smooth.value == pytest.approx(truth.value, abs=0.05)
    assert smooth.details["own_error"] == kept.errors.limit("js_smoothed")
    assert found["js"].value > smooth.value + 0.05  # which noise on both sides has brought nearer


def frame(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({"age": rng.normal(40 + shift, 10, n).round(), "work": rng.choice(["a", "b", "c"], n)})
    made.loc[rng.random(n) < 0.1, "age"] = np.nan
    return made


@pytest.fixture(scope="module")
def table():
    return keep(frame(800, 0))


def test_new_tables_are_brought_into_the_frame_and_notes_say_how(table):
    new = frame(600, 1, shift=8)[["work", "age"]].rename(columns={"age": "Age"}).assign(more=1)
    found = compare(table, new, estimator=FAST, pair_rows=100, names=("old", "march"))
    assert any("'Age' of march was taken for 'age'" in note for note in found.notes)
    assert any("'more'" in note for note in found.notes)
    by_name = {one.name: one.p_value for one in found.differences}
    assert by_name["age"] < 0.001 < 0.05 < by_name["work"]
    assert "Columns that differ by themselves: age, mean " in found.conclusion
    assert found.n_p == 800
    cells = table.cells(new).cells
    old = table.cells(frame(800, 0)).cells
    truth = fid(table.frame.features(old), table.frame.features(cells)).value
    assert found.metrics["fid"].value == pytest.approx(truth, abs=0.1 * found.metrics["fid"].std_error)
    assert [note.replace("new", "march") for note in weigh(table, new, estimator=FAST).notes] == list(found.notes)
    with pytest.raises(InputError, match="age"):
        compare(table, new[["work"]])


def test_shards_have_one_bandwidth_and_errors_by_their_shares(kept):
    more = keep(normal(300, 8), like=kept, density="mixture", third=True)
    assert more.errors.bandwidth == kept.errors.bandwidth
    both = kept.merge(more)
    for name in ("js", "mmd2"):
        a, b = kept.errors.estimates[name].high, more.errors.estimates[name].high
        assert both.errors.estimates[name].high == pytest.approx((1500 * a + 300 * b) / 1800)
    other = {"mmd2": more.errors.estimates["mmd2"].but(details={"bandwidth": 9.0})}
    assert "mmd2" not in kept.errors.merge(OwnErrors(other, 100), (0.5, 0.5)).estimates


def test_a_density_that_is_fitted_to_draws_passes_their_error_on(kept, monkeypatch):
    monkeypatch.setattr("vestige.vestiges.reference.PARTS_MOST", 1)
    both = kept.merge(kept)
    assert len(both.reference.parts) == 1
    before, after = kept.errors.limit("js"), both.errors.limit("js")
    again = held_out(kept.points()[0], both.points()[0], p_weights=kept.points()[1], estimator=QUADRATIC)
    moved = learnt(["js"], *again.sides(None, kept.points()[1]), again.refit(None, kept.points()[1]))["js"]
    assert before < after < (math.sqrt(before) + math.sqrt(moved.high + 0.03)) ** 2
    assert not both.errors.sure("mmd2")
    assert compare(both, NEW, estimator=QUADRATIC, pair_rows=200).metrics["mmd2"].verdict == "at least"
