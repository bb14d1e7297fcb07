import dataclasses
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from vestige.core.errors import InputError, NotEstimable
from vestige.core.estimate import Estimate
from vestige.core.plain import plain
from vestige.ratios import Stack
from vestige.ratios.cross_fit import HeldOut
from vestige.ratios.divergences import Gaussian, estimate, gaussian_divergence
from vestige.ratios.logistic import Logistic
from vestige.ratios.weights import diagnose
from vestige.vestiges import STEPS, compare, two_sets
from vestige.vestiges.pairs import Seen
from vestige.vestiges.two_sets import conclude

QUADRATIC = Logistic(kind="quadratic")
EQUAL = Seen(*(torch.zeros(1, 1, dtype=torch.float64),) * 2, None, None, "")  # no row has a weight of its own


def pair(n=1500, shift=0.0, scale=1.0, d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return p, torch.randn(n, d, generator=generator, dtype=torch.float64) * scale + shift


def test_two_sets_of_one_law():
    found = compare(*pair(), estimator=QUADRATIC)
    assert found.p_value > 0.05
    assert found.conclusion.startswith("No difference between real and fake was found")
    assert found.divergences["js"].high < 0.01
    assert found.diagnosis.ess_fraction > 0.95
    assert found.metrics["kid"].low < 0 < found.metrics["kid"].high


def test_two_gaussians_against_the_closed_form():
    found = compare(*pair(4000, shift=0.5, scale=1.3), estimator=QUADRATIC)
    law_p = Gaussian(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    law_q = Gaussian(torch.full((2,), 0.5, dtype=torch.float64), 1.69 * torch.eye(2, dtype=torch.float64))
    for name in ("kl", "reverse_kl", "hellinger2"):
        value = found.divergences[name]
        assert value.value == pytest.approx(float(gaussian_divergence(name, law_p, law_q)), abs=4 * value.std_error)
    assert found.p_value < 0.02
    assert "differ" in found.conclusion
    truth = 2 * 0.25 + 2 * 0.09  # |m|^2 + sum (1 - 1.3)^2
    assert found.metrics["fid_extrapolated"].low < truth < found.metrics["fid_extrapolated"].high


def test_true_weights_make_the_difference_go_away():
    p, q = pair(3000, shift=0.4, scale=1.2)
    weights = ((((q - 0.4) / 1.2).square() - q.square()).sum(1) / 2).exp()
    bare, weighted = (compare(p, q, q_weights=w, estimator=QUADRATIC) for w in (None, weights))
    assert bare.p_value < 0.02
    assert weighted.p_value > 0.05
    assert weighted.divergences["js"].value < 0.1 * bare.divergences["js"].value
    assert weighted.metrics["fid"].value < 0.1 * bare.metrics["fid"].value


def test_far_apart_is_refused_in_words_and_not_printed():
    found = compare(*pair(300, shift=4.0, scale=0.5), estimator=QUADRATIC)
    assert math.isnan(found.divergences["pearson_chi2"].value)
    for name in ("kl", "reverse_kl", "jeffreys", "pearson_chi2", "neyman_chi2"):
        assert "cannot be estimated" in found.divergences[name].reason
    assert found.divergences["js"].value == pytest.approx(math.log(2), abs=0.05)
    assert "almost entirely" in found.conclusion
    assert "weights cannot correct it" in found.conclusion
    assert found.diagnosis.verdict == "unreliable"


def with_means(fake, real):
    """Held-out log-ratios with these means of r over fake and of 1/r over real rows."""
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 4
    noise -= noise.exp().mean().log()
    return HeldOut(-noise - math.log(real), noise + math.log(fake), None, {}, (), None)


@pytest.mark.parametrize(
    ("name", "ruled_by"),
    [
        ("kl", {"fake"}),
        ("pearson_chi2", {"fake"}),
        ("reverse_kl", {"real"}),
        ("neyman_chi2", {"real"}),
        ("jeffreys", {"fake", "real"}),
        ("js", set()),
    ],
)
def test_an_unbounded_divergence_needs_the_mean_ratio_of_the_side_that_rules_it(name, ruled_by):
    """KL(p || q) grows where p has rows and q hardly any, which E_q[r] tells; the reverse one by E_p[1/r]."""
    assert two_sets._divergences(with_means(1.0, 1.0), EQUAL, 0.95)[name].known
    for off in (0.4, 2.5):
        for side in ("fake", "real"):
            found = two_sets._divergences(with_means(**({"fake": 1.0, "real": 1.0} | {side: off})), EQUAL, 0.95)[name]
            assert found.known == (side not in ruled_by)
            assert found.known or f"{side} rows are too rare" in found.reason


@pytest.mark.parametrize(
    ("gap", "kl", "warns"),
    [(0.09, 0.1, False), (0.11, 0.1, True), (0.3, 2.0, False), (0.41, 2.0, True), (0.11, None, True)],
)
def test_a_gap_is_warned_of_from_a_tenth_of_a_nat_and_a_fifth_of_the_kl(gap, kl, warns):
    held = dataclasses.replace(with_means(1.0, 1.0), report={"gap": gap})
    value = Estimate.refused("No.", name="kl") if kl is None else Estimate.normal(kl, 0.01, name="kl")
    assert bool(two_sets._gap_warning(held, value)) == warns


def test_constant_features_are_left_out_and_said_so():
    p, q = pair(300)
    still = torch.full((300, 1), 7.0, dtype=torch.float64)
    found = compare(torch.cat([p, still], 1), torch.cat([q, still], 1), estimator=QUADRATIC)
    assert found.d == 2
    assert "1 of 3 features are constant" in found.warnings[0]
    with pytest.raises(NotEstimable, match="nothing to compare"):
        compare(still, still)


def test_a_feature_constant_on_one_side_only_is_kept():
    p, q = pair(300)
    p[:, 1] = 0.5
    assert compare(p, q, estimator=Logistic(kind="linear")).d == 2


def test_scales_are_warned_of_or_removed():
    p, q = pair(300)
    stretched = torch.tensor([1.0, 1e4], dtype=torch.float64)
    raw = compare(p * stretched, q * stretched, estimator=QUADRATIC)
    assert any("differ in spread by a factor of" in text for text in raw.warnings)
    standard = compare(p * stretched, q * stretched, estimator=QUADRATIC, standardise=True)
    assert not any("spread" in text for text in standard.warnings)
    units = compare(p, q, estimator=QUADRATIC, standardise=True)
    for a, b in zip(standard.metrics.values(), units.metrics.values(), strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-6)


def test_outliers_of_standardised_features_are_cut_and_counted():
    p, q = pair(400)
    q[:4, 0] = 1e6
    found = compare(p, q, estimator=QUADRATIC, standardise=True)
    assert any("cut at 5 deviations" in text and "1.00% of the fake rows" in text for text in found.warnings)
    assert found.metrics["fid"].value < 1


def test_arrays_and_frames_in():
    p, q = pair(60)
    kinds = [(p, q), (p.numpy(), q.numpy()), (pd.DataFrame(p.numpy()), pd.DataFrame(q.numpy()))]
    values = [compare(a, b, estimator=QUADRATIC).divergences["js"].value for a, b in kinds]
    assert values[0] == values[1] == values[2]


def test_the_whole_is_plain_json():
    steps = []
    found = compare(*pair(100), estimator=QUADRATIC, on_step=steps.append)
    text = json.dumps(plain(found), allow_nan=False)
    assert json.loads(text)["divergences"]["js"]["name"] == "js"
    assert steps == list(STEPS)


def test_fewer_rows_than_features():
    found = compare(*pair(60, d=100), estimator=Logistic(kind="linear"))
    assert {name: e.reason for name, e in found.metrics.items() if not e.known} == {
        "fid_extrapolated": "FID extrapolates poorly from fewer effective samples than features (100)."
    }


@pytest.mark.parametrize(
    ("p", "q", "options", "sentence"),
    [
        (np.ones((5, 2)), np.ones((5, 3)), {}, "as wide as 'p'"),
        (np.ones((1, 2)), np.ones((5, 2)), {}, "at least 2 samples"),
        (np.ones((0, 2)), np.ones((5, 2)), {}, "at least 2 samples"),
        (np.full((5, 2), np.nan), np.ones((5, 2)), {}, "must be finite"),
        (np.eye(9), np.eye(9), {"q_weights": -np.ones(9)}, "0 or larger"),
        (np.eye(9), np.eye(9), {"q_weights": np.zeros(9)}, "positive somewhere"),
        (np.eye(9), np.eye(9), {"q_weights": np.ones(8)}, "9 long"),
        (np.eye(9), np.eye(9), {"level": 1.0}, "'level'"),
        (np.eye(9), np.eye(9), {"rows": -3}, "'rows' of compare must be at least 6"),
        (np.eye(9), np.eye(9), {"pair_rows": 0}, "'pair_rows' of compare must be at least 2"),
    ],
)
def test_bad_input_is_refused(p, q, options, sentence):
    with pytest.raises(InputError, match=sentence):
        compare(p, q, **options)


@pytest.mark.parametrize(
    ("accuracy", "word"), [(0.51, "slightly"), (0.6, "moderately"), (0.7, "clearly"), (0.9, "strongly")]
)
def test_the_words_follow_the_accuracy(accuracy, word):
    generator = torch.Generator().manual_seed(0)
    log_ratio = torch.randn(200, generator=generator, dtype=torch.float64) / 3
    js = estimate("js", log_ratio - 1 / 18, log_ratio + 1 / 18)
    text = conclude(0.01, js, diagnose(log_ratio, accuracy), "a", "b")
    assert text.startswith(f"The rows of b differ {word} from those of a (p = 0.01)")
    assert f"JS {js.value:.2g}" in text
    assert "weights can correct it" in text
    assert conclude(0.2, js, diagnose(log_ratio, accuracy), "a", "b").startswith("No difference between a and b")


def lost_cluster(n=1500):
    """Five clusters, of which the model has four."""
    generator = torch.Generator().manual_seed(1)
    centres = 8 * torch.eye(5, dtype=torch.float64)
    which = torch.randint(5, (n,), generator=generator), torch.randint(4, (n,), generator=generator)
    return [torch.randn(n, 5, generator=generator, dtype=torch.float64) + centres[k] for k in which], which


def test_a_part_that_is_lost_is_said_shown_and_makes_kl_a_lower_bound():
    (p, q), (of_p, _) = lost_cluster()
    found = compare(p, q, pair_rows=200)
    assert re.search("fake does not reach about (19|20|21) % of real[.]$", found.conclusion)
    assert found.diagnosis.verdict == "cannot reach part of the data"
    assert (of_p[found.reach.outside_p] == 4).double().mean() > 0.9
    assert found.divergences["kl"].verdict == "at least"
    assert "does not reach about" in found.divergences["kl"].reason
    assert found.divergences["reverse_kl"].verdict == "ok"
    assert found.divergences["js"].verdict == "ok"
    assert len(plain(found)["reach"]["outside_p"]) <= 1000


def test_the_mirror_is_said_of_the_model():
    (p, q), _ = lost_cluster()
    found = compare(q, p, pair_rows=200, names=("data.csv", "model.csv"))
    assert re.search("About (19|20|21) % of model.csv lies where data.csv has no rows[.]$", found.conclusion)
    assert found.divergences["reverse_kl"].verdict == "at least"
    assert "has no rows" not in found.divergences["kl"].reason  # which is finite
    assert found.diagnosis.verdict == "good"


def test_a_heavy_tail_refuses_kl():
    t2 = torch.from_numpy(np.random.default_rng(0).standard_t(2, (2000, 2)))
    found = compare(t2, pair(2000)[0], estimator=QUADRATIC, pair_rows=200)
    assert "infinite or cannot be told" in found.divergences["kl"].reason or not found.divergences["kl"].known
    assert found.reach.heavy_p
    assert not found.reach.heavy_q


def test_of_very_large_sets_a_part_is_looked_at_and_rows_keep_their_places(monkeypatch):
    monkeypatch.setattr(two_sets, "LOOKED_ROWS", 800)
    p, q = (torch.randn(n, 2, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (3000, 5000))
    p, q = p[p[:, 0].argsort()], q[q[:, 0] < 0]  # the model has lost the second half of the data
    found = compare(p, q, estimator=Stack(**Stack.presets["fast"]), pair_rows=100)
    assert found.divergences["js"].n == 1600
    assert float((found.reach.outside_p >= 1400).double().mean()) > 0.95
    assert int(found.reach.outside_p.max()) > 2800
