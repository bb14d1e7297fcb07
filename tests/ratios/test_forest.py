"""Forest: against scikit-learn's own votes, out-of-bag values by brute force, and ratios that are known."""

import math

import numpy as np
import pytest
import torch

from vestige import store
from vestige.core.errors import InputError, StoreError, VestigeWarning
from vestige.ratios import Forest, Logistic, Ratio
from vestige.ratios import forest as module
from vestige.ratios.base import known_ratios
from vestige.ratios.calibration import platt


def rows(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussians(n_p, n_q, d=2, seed=0):
    """N(0.5, I) and N(-0.5, I): log r = sum of x, and KL = d / 2."""
    return rows(n_p, d, 2 * seed) + 0.5, rows(n_q, d, 2 * seed + 1) - 0.5


@pytest.fixture
def grown(monkeypatch):
    """The forests that scikit-learn grew."""
    forests, grow = [], module.grow

    def keep(*args, **options):
        forests.append(grow(*args, **options))
        return forests[-1]

    monkeypatch.setattr(module, "grow", keep)
    return forests


@pytest.mark.parametrize("cells", [module.CELLS, 100])
def test_votes_are_those_of_scikit_learn(grown, monkeypatch, cells):
    monkeypatch.setattr(module, "CELLS", cells)
    p, q = gaussians(120, 90, d=5)
    p[:, 3:], q[:, 3:] = (p[:, 3:] > 0).double(), (q[:, 3:] > 0).double()
    ratio = Forest(trees=17, min_samples_leaf=2).fit(p, q)
    x = torch.cat([p, 3 * q])
    expected = grown[0].predict_proba(x.float().numpy())[:, 1]
    found = module.mean_share(ratio.trees_, x)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-14)
    shares = torch.from_numpy(expected).clamp(0.01, 0.99)
    slope, offset = ratio.report_["calibration"].values()
    torch.testing.assert_close(ratio.log_ratio(x), slope * shares.logit() + offset, rtol=0, atol=1e-12)


def test_features_are_compared_in_single_precision_with_double_thresholds(grown):
    p, q = gaussians(60, 60, d=1)
    trees = Forest(trees=30).fit(p, q).trees_
    inner = trees["threshold"][trees["left"] != trees["right"]]
    near = torch.cat([inner, inner.float().double(), torch.nextafter(inner, inner + 1)])[:, None]
    expected = grown[0].predict_proba(near.float().numpy())[:, 1]
    np.testing.assert_allclose(module.mean_share(trees, near).numpy(), expected, rtol=0, atol=1e-14)


def test_a_value_at_the_threshold_goes_left():
    table = {"left": [[1, 1, 2]], "right": [[2, 1, 2]], "feature": [[0, 0, 0]], "threshold": [[0.5, 0.0, 0.0]]}
    trees = {name: torch.tensor(value) for name, value in table.items()}
    trees |= {"share": torch.tensor([[0.6, 0.2, 0.9]]).double(), "depth": torch.tensor(4)}
    x = torch.tensor([[0.5], [0.5 + 1e-12], [0.6]], dtype=torch.float64)  # the second is 0.5 in single precision
    assert module.mean_share(trees, x).tolist() == pytest.approx([0.2, 0.2, 0.9])


def test_held_out_values_are_out_of_bag(grown):
    """Tree by tree and row by row, from the stored trees and the rows that scikit-learn drew."""
    p, q = gaussians(25, 15)
    clip = 0.1
    ratio = Forest(trees=7, min_samples_leaf=2, clip=clip)
    with pytest.warns(VestigeWarning, match="in the bag of every tree"):
        ratio.fit(p, q)
    trees, never, raw = {k: v.tolist() for k, v in ratio.trees_.items()}, 0, []
    for i, row in enumerate(torch.cat([p, q]).float()):
        votes = []
        for t, drawn in enumerate(grown[0].estimators_samples_):
            if i in drawn.tolist():
                continue
            node = 0
            while trees["left"][t][node] != node:
                below = float(row[trees["feature"][t][node]]) <= trees["threshold"][t][node]
                node = trees["left" if below else "right"][t][node]
            votes.append(trees["share"][t][node])
        never += not votes
        share = min(max(sum(votes) / len(votes) if votes else 0.5, clip), 1 - clip)
        raw.append(math.log(share / (1 - share)))
    raw = torch.tensor(raw, dtype=torch.float64)
    even = torch.full((25,), 1 / 25).double(), torch.full((15,), 1 / 15).double()
    found = platt(raw[:25], raw[25:], *even)
    assert found.slope > 0
    assert ratio.report_["calibration"]["slope"] == pytest.approx(found.slope, rel=1e-9)
    assert ratio.report_["calibration"]["offset"] == pytest.approx(found.offset, rel=1e-9)
    assert ratio.report_["never_out_of_bag"] == never > 0
    assert ratio.report_["clip"] == clip
    raw_loss = (torch.nn.functional.softplus(-raw[:25]).mean() + torch.nn.functional.softplus(raw[25:]).mean()) / 2
    assert ratio.report_["held_out"]["raw"]["log_loss"] == pytest.approx(float(raw_loss), rel=1e-9)
    # Two maps, each fitted on one half: the held-out values lie on two lines of the raw ones, half of the rows on each.
    mapped, on_a_line = torch.cat([ratio.held_out_p_, ratio.held_out_q_]), 0
    halves = [torch.randperm(n, generator=module.rng.fork(0, "halves", i)) for i, n in enumerate((25, 15))]
    for fit, judge in ((0, 1), (1, 0)):
        (a, b), (c, d) = ([(h[k::2], h[k::2] + 25)[i] for i, h in enumerate(halves)] for k in (fit, judge))
        line = platt(raw[a], raw[b], even[0][: len(a)], even[1][: len(b)])
        for judged in (c, d):
            torch.testing.assert_close(mapped[judged], line(raw[judged]), rtol=0, atol=1e-9)
            on_a_line += len(judged)
    assert on_a_line == 40


def test_gaussians_with_a_known_ratio():
    p, q = gaussians(500, 500)
    ratio = Forest(trees=150).fit(p, q)
    x = torch.cat(gaussians(1000, 1000, seed=5))
    found, true = ratio.log_ratio(x), x.sum(1)
    assert float(torch.corrcoef(torch.stack([found, true]))[0, 1]) > 0.93
    assert float((found * true).mean() / (true * true).mean()) == pytest.approx(1, abs=0.2)
    assert float(ratio.held_out_p_.mean()) == pytest.approx(1, abs=0.2)  # KL = 1; the sample's own is within 0.07
    figures = ratio.report_["held_out"]
    assert figures["accuracy"] == pytest.approx(0.76, abs=0.04)  # Phi(sqrt(2) / 2)
    assert figures["ece"] < 0.06
    assert figures["log_loss"] < 0.55 < math.log(2)


@pytest.mark.parametrize("sizes", [(1200, 150), (150, 1200)])
def test_unequal_sides_do_not_shift_the_ratio(sizes):
    """log(1200 / 150) = 2.1 would show."""
    ratio = Forest(trees=150).fit(*gaussians(*sizes))
    x = rows(1000, 2, 9)  # its mean log-ratio is 0
    assert abs(float(ratio.log_ratio(x).mean())) < 0.25
    assert ratio.report_["draws"] == 300
    assert ratio.report_["never_out_of_bag"] == 0
    assert float(ratio.log_ratio(x).std()) == pytest.approx(math.sqrt(2), rel=0.35)


def test_weights_change_the_law_of_either_side():
    """Rows of N(0, 1) weighted by exp(x) are rows of N(1, 1) up to a constant."""
    a, b = rows(700, 1, 0), rows(700, 1, 1)
    x = torch.linspace(-1.5, 1.5, 200, dtype=torch.float64)[:, None]
    for side, sign in (("p_weights", 1), ("q_weights", -1)):
        ratio = Forest(trees=100).fit(a, b, **{side: a[:, 0].exp() if sign > 0 else b[:, 0].exp()})
        found, true = ratio.log_ratio(x), sign * (x[:, 0] - 0.5)
        assert float(torch.corrcoef(torch.stack([found, true]))[0, 1]) > 0.9
        assert float((found - true).mean()) == pytest.approx(0, abs=0.3)
    plain = Forest(trees=100).fit(a, b).log_ratio(x)
    assert float(plain.abs().mean()) < 0.15


def test_rows_without_weight_leave_no_trace():
    p, q = gaussians(200, 200)
    far = torch.cat([p, p + 20])
    weights = torch.cat([torch.ones(200), torch.zeros(200)])
    with_far, without = Forest(trees=60).fit(far, q, p_weights=weights), Forest(trees=60).fit(p, q)
    assert float(with_far.trees_["threshold"].max()) < float(p.max())
    x = rows(500, 2, 9)
    assert float((with_far.log_ratio(x) - without.log_ratio(x)).abs().mean()) < 0.25


@pytest.mark.parametrize("seed", range(3))
def test_one_law_gives_a_ratio_near_one(seed):
    p, q = rows(300, 5, 2 * seed), rows(300, 5, 2 * seed + 1)
    ratio = Forest(trees=80).fit(p, q, seed=seed)
    assert float(ratio.log_ratio(rows(500, 5, 99)).abs().mean()) < 0.12
    assert float(ratio.held_out_p_.mean()) < 0.03
    assert ratio.report_["held_out"]["log_loss"] == pytest.approx(math.log(2), abs=0.02)


def test_without_a_positive_slope_the_ratio_is_constant():
    """The same rows on both sides: a row that stays outside leaves its twin, so that votes point the wrong way."""
    p = rows(100, 2, 0)
    ratio = Forest(trees=50, min_samples_leaf=1).fit(p, p.clone())
    assert ratio.report_["calibration"] == {"slope": 0.0, "offset": 0.0}
    assert not ratio.log_ratio(p).any()
    assert ratio.report_["held_out"]["raw"]["log_loss"] > math.log(2)


def test_it_sees_what_a_network_misses_in_a_table():
    """Covertype's columns: 10 numbers, one of 4 areas, one of 40 soils. In p the area moves three of the numbers; q has
    the same columns, each drawn by itself."""
    centres = torch.linspace(-2, 2, 4, dtype=torch.float64)

    def table(n, seed, *, joint):
        g = torch.Generator().manual_seed(seed)
        area, *others = torch.randint(4, (4, n), generator=g)
        x = torch.randn(n, 10, generator=g, dtype=torch.float64)
        x[:, :3] += torch.stack([centres[area if joint else other] for other in others], 1)
        soil = torch.randint(40, (n,), generator=g)
        return torch.cat([x, torch.eye(4, dtype=x.dtype)[area], torch.eye(40, dtype=x.dtype)[soil]], 1)

    def log_ratio(x):
        log_phi = -(x[:, :3, None] - centres).square() / 2
        return (log_phi * x[:, None, 10:14]).sum((1, 2)) - (log_phi.logsumexp(2) - math.log(4)).sum(1)

    p, q = table(300, 0, joint=True), table(300, 1, joint=False)
    fresh = torch.cat([table(1000, 2, joint=True), table(1000, 3, joint=False)])

    def agreement(ratio):
        both = torch.stack([ratio.fit(p, q).log_ratio(fresh), log_ratio(fresh)]).clamp(-5, 5)
        return 0.0 if both[0].std() < 1e-9 else float(torch.corrcoef(both)[0, 1])

    ratio = Forest(trees=100)
    assert agreement(ratio) > 0.8
    assert ratio.report_["held_out"]["accuracy"] > 0.75
    assert agreement(Logistic()) < 0.2


def test_a_state_that_lacks_a_table_is_named_and_a_loaded_one_has_no_rows(tmp_path):
    p, q = gaussians(60, 50)
    ratio = Forest(trees=20).fit(p, q)
    data, tensors = store.encode(ratio)
    assert not torch.isin(tensors.pop("trees_.threshold").float(), torch.cat([p, q]).float()).any()
    with pytest.raises(StoreError, match="threshold"):
        store.decode(Ratio, data, tensors, classes=known_ratios())
    loaded = Ratio.load(ratio.save(tmp_path / "ratio.json"))
    assert torch.equal(loaded.log_ratio(q), ratio.log_ratio(q))
    assert not hasattr(loaded, "held_out_p_")
    assert not torch.equal(Forest(trees=20).fit(p, q, seed=1).log_ratio(q), ratio.log_ratio(q))


@pytest.mark.parametrize(
    ("ratio", "name"),
    [
        (Forest(trees=0), "trees"),
        (Forest(min_samples_leaf=0), "min_samples_leaf"),
        (Forest(columns=0.0), "columns"),
        (Forest(columns=1.5), "columns"),
        (Forest(clip=0.0), "clip"),
        (Forest(clip=0.5), "clip"),
    ],
)
def test_bad_settings_are_refused(ratio, name):
    with pytest.raises(InputError, match=f"The '{name}' of Forest"):
        ratio.fit(*gaussians(20, 20))


def test_numbers_beyond_single_precision_are_refused():
    p, q = gaussians(20, 20)
    q[3, 1] = -1e300
    with pytest.raises(
        InputError, match=r"The 'q' of Forest\.fit must be no larger than 3\.4e\+38, which single precision"
    ):
        Forest().fit(p, q)
