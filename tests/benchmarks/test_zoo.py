"""The zoo's truth: log-ratios agree with the draws, and stored values with them and with integrals done another way."""

import ast
import dataclasses
import math
import sys
from functools import cache

import numpy as np
import pytest
from benchmarks.zoo import FAMILIES, ZOO, laws, second, truth, unseen
from benchmarks.zoo.drifts import DRIFTS, STEPS
from benchmarks.zoo.maps import asinh, cdf, half_cube, shear, sinh, spiral
from benchmarks.zoo.pair import DIVERGENCES, KEYS, TRUTH, copies, product, stored, swapped
from scipy import special, stats
from scipy.special import expit, log_expit

EVERY = ZOO | {step.name: step for drift in DRIFTS.values() for step in drift.steps}
for kept in (unseen, second):
    EVERY |= kept.PAIRS | {step.name: step for drift in kept.DRIFTS.values() for step in drift.steps}
# A test a family, not a pair: a thousand more tests cost more than what they compute.
IN_FAMILY: dict[str, list[str]] = {}
for each, of in EVERY.items():
    IN_FAMILY.setdefault(of.family, []).append(each)
N = 2000
RARE = ("tails", "contaminated")  # what weighs most is hardly drawn: tails, or on the clean side the other's small part
SIGMAS = 5  # of each of about 4000 comparisons


@cache
def drawn(name):
    """Draws and their log-ratios, of p and of q."""
    return of_pair(EVERY[name])


def of_pair(pair):
    rng = np.random.default_rng(1)
    x, y = pair.draw_p(N, rng), pair.draw_q(N, rng)
    return x, y, pair.log_ratio(x), pair.log_ratio(y)


def apart(over_p, over_q):
    """How many standard errors the two means are apart."""
    error = math.sqrt(over_p.var() / len(over_p) + over_q.var() / len(over_q))
    return abs(over_p.mean() - over_q.mean()) / max(error, 1e-12)


def disagreement(x, y, at_x, at_y):
    """E_p[h q/(p + q)] = E_q[h p/(p + q)] for every h: the most standard errors apart."""
    directions = np.random.default_rng(2).standard_normal((x.shape[1], 4))
    centre, scale = np.median(y, axis=0), np.quantile(np.abs(y - np.median(y, axis=0)), 0.7, axis=0) + 1e-9

    def features(z, log_ratio):
        along = np.arcsinh((z - centre) / scale) @ directions
        return [np.ones(len(z)), np.tanh(log_ratio), *np.cos(along).T, *np.sin(along).T]

    terms_p, terms_q = (
        [h * w for h in features(z, w_of)] for z, w_of, w in ((x, at_x, expit(-at_x)), (y, at_y, expit(at_y)))
    )
    return max(apart(a, b) for a, b in zip(terms_p, terms_q, strict=True))


@pytest.mark.parametrize("family", IN_FAMILY)
def test_draws(family):
    for name in IN_FAMILY[family]:
        pair = EVERY[name]
        x, y, at_x, at_y = drawn(name)
        assert x.shape == y.shape == (N, pair.d), name
        assert x.dtype == y.dtype == np.float64, name
        assert np.isfinite(x).all(), name
        assert np.isfinite(y).all(), name
        assert at_x.shape == at_y.shape == (N,), name
        assert not np.isnan(at_x).any(), name
        assert not np.isnan(at_y).any(), name
        assert name.split("@")[0].endswith(f"d{pair.d}")
        assert np.array_equal(pair.draw_p(5, np.random.default_rng(3)), pair.draw_p(5, np.random.default_rng(3))), name


@pytest.mark.parametrize("family", IN_FAMILY)
def test_log_ratio_agrees_with_the_draws(family):
    apart_by = {name: disagreement(*drawn(name)) for name in IN_FAMILY[family]}
    assert {name: found for name, found in apart_by.items() if not found < SIGMAS} == {}


@pytest.mark.parametrize("family", IN_FAMILY)
def test_reachable_shares(family):
    for name in IN_FAMILY[family]:
        known = EVERY[name].truth()
        _, _, at_x, at_y = drawn(name)
        for log_ratio, key in ((at_y, "reach_p"), (-at_x, "reach_q")):
            ratio = np.exp(np.minimum(log_ratio, 700))
            # A mean whose standard error can be believed: t has no second moment of the ratio.
            if ratio.max() < 0.005 * ratio.sum() and family not in ("student", *RARE):
                assert abs(ratio.mean() - known[key]) <= SIGMAS * ratio.std() / N**0.5 + 1e-9, name
        assert abs(np.isfinite(at_x).mean() - known["reach_p"]) < SIGMAS * 0.5 / N**0.5, name
        assert abs(np.isfinite(at_y).mean() - known["reach_q"]) < SIGMAS * 0.5 / N**0.5, name


def sech(x):
    return 1 / np.cosh(np.clip(x, -700, 700))


@pytest.mark.parametrize("family", IN_FAMILY)
def test_truth_agrees_with_the_draws(family):
    for name in IN_FAMILY[family]:
        _, _, at_x, at_y = drawn(name)
        known = EVERY[name].truth()
        plain = {
            "kl": (at_x, np.zeros(N)),
            "reverse_kl": (np.zeros(N), at_y),
            "js": ((math.log(2) + log_expit(at_x)) / 2, -(math.log(2) + log_expit(-at_y)) / 2),
            "hellinger": ((1 - sech(at_x / 2)) / 2, (sech(at_y / 2) - 1) / 2),
        }
        for key, (a, b) in plain.items():
            if key in ("kl", "reverse_kl") and (family in RARE or not math.isfinite(known[key])):
                continue
            error = math.sqrt((a.var() + b.var()) / N)
            assert abs(a.mean() - b.mean() - known[key]) <= SIGMAS * error + 1e-9, (name, key)


def test_a_wrong_pair_is_found():
    pair = ZOO["gauss-shift-d2"]
    other_constant = dataclasses.replace(pair, log_ratio=lambda x: pair.log_ratio(x) + 0.3)
    other_slope = dataclasses.replace(pair, log_ratio=lambda x: 1.5 * pair.log_ratio(x))
    other_draws = dataclasses.replace(pair, draw_p=lambda n, rng: pair.draw_p(n, rng) + np.array([0.3, 0.0]))
    for wrong in (
        other_constant,
        other_slope,
        other_draws,
        swapped(dataclasses.replace(pair, log_ratio=swapped(pair).log_ratio)),
    ):
        assert disagreement(*of_pair(wrong)) > SIGMAS


def test_truth_has_every_pair_and_no_other():
    assert list(stored()) == list(EVERY)


@pytest.mark.parametrize("family", IN_FAMILY)
def test_truth_is_consistent(family):
    for name in IN_FAMILY[family]:
        known, errors = EVERY[name].truth(), EVERY[name].standard_errors()
        assert set(known) == set(errors) == set(KEYS), name
        for key, value in EVERY[name].exact().items():
            assert known[key] == pytest.approx(value, rel=1e-6, abs=1e-12), (name, key)
            assert errors[key] == 0, (name, key)
        for key in DIVERGENCES:
            assert known[key] >= 0, (name, key)
            assert errors[key] <= 0.005 * known[key] + 1e-12, (name, key)
        # Infinite where mass lies outside of the other's support; js <= log 2 TV, TV^2 <= hellinger (2 - hellinger).
        kl, reverse, js, far = (known[key] for key in ("kl", "reverse_kl", "js", "hellinger"))
        assert known["reach_p"] == 1 or math.isinf(kl), name
        assert known["reach_q"] == 1 or math.isinf(reverse), name
        assert js <= math.log(2) * math.sqrt(far * (2 - far)) + 1e-9, name
        assert far * math.log(2) <= js + 1e-9 <= far + 2e-9, name
        assert min(kl, reverse) >= -2 * math.log1p(-far) - 5 * errors["kl"] - 1e-9, name


def test_the_zoo_is_wide():
    assert len(ZOO) >= 70
    assert len(FAMILIES) >= 12
    assert {name for names in FAMILIES.values() for name in names} == set(ZOO)
    assert {1, 2, 3, 5, 8, 10, 20, 30, 50} <= {pair.d for pair in ZOO.values()}
    finite = [
        pair.truth()["kl"] for pair in ZOO.values() if math.isfinite(pair.truth()["kl"]) and pair.family != "near"
    ]
    assert np.mean([0.05 <= kl <= 3 for kl in finite]) > 0.9
    assert all(ZOO[name].truth()["kl"] <= 0.01 for name in FAMILIES["near"])
    assert any(ZOO[name].truth()["kl"] == 0 for name in FAMILIES["near"])
    assert {math.inf} < {ZOO[name].truth()["kl"] for name in FAMILIES["tails"]}


LINES = {
    "gauss-scale-d1": (stats.norm(0, 1), stats.norm(0, 2), -12, 12),
    "t5-shift-d1": (stats.t(5, 1), stats.t(5), -200, 200),
    "tails-t3-normal-d1": (stats.t(3), stats.norm(), -1000, 1000),
    "skew-normal-d1": (stats.skewnorm(3), stats.norm(), -10, 10),
    "skew-gumbel-d1": (stats.gumbel_r(0.8), stats.gumbel_r(), -6, 40),
    "laplace-shift-d1": (stats.laplace(0.7), stats.laplace(), -40, 40),
    "beta-uniform-d1": (stats.beta(2, 2), stats.uniform(), 0, 1),
}


@pytest.mark.parametrize("name", LINES)
def test_js_on_the_line_by_trapezoids(name):
    p, q, low, high = LINES[name]

    x = np.linspace(low, high, 200_001)
    a, b = p.pdf(x), q.pdf(x)
    value = np.trapezoid(special.rel_entr(a, (a + b) / 2) + special.rel_entr(b, (a + b) / 2), x) / 2
    assert ZOO[name].truth()["js"] == pytest.approx(value, abs=2e-6)


def gauss_2d(rho):
    return stats.multivariate_normal(np.zeros(2), [[1, rho], [rho, 1]])


def test_js_in_the_plane_by_a_grid():
    axis = np.linspace(-9, 9, 361)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    means = 2.0 * np.random.default_rng(2).standard_normal((3, 2))
    blobs = np.stack([stats.multivariate_normal(mean).pdf(grid) for mean in means])
    densities = {
        "gauss-corr-d2": (gauss_2d(0.8).pdf(grid), gauss_2d(0.0).pdf(grid)),
        "copula-gauss-uniform-d2": (gauss_2d(0.7).pdf(grid), gauss_2d(0.0).pdf(grid)),
        "mix-weights-d2": (np.array([5, 2, 1]) / 8 @ blobs, np.array([1, 2, 5]) / 8 @ blobs),
    }
    for name, (a, b) in densities.items():
        known, errors = ZOO[name].truth(), ZOO[name].standard_errors()
        area = (axis[1] - axis[0]) ** 2
        js = (special.rel_entr(a, (a + b) / 2) + special.rel_entr(b, (a + b) / 2)).sum() * area / 2
        assert js == pytest.approx(known["js"], abs=SIGMAS * errors["js"] + 1e-7)
        assert special.rel_entr(a, b).sum() * area == pytest.approx(known["kl"], abs=SIGMAS * errors["kl"] + 1e-6)


@pytest.mark.parametrize(
    "through", [lambda pair: spiral(pair, 0.5), lambda pair: shear(pair, 0.5), cdf, sinh, asinh, half_cube]
)
def test_maps_keep_the_log_ratio(through):
    base = ZOO["gauss-shift-d3"]
    pair = through(base)
    x, before = pair.draw_q(500, np.random.default_rng(4)), base.draw_q(500, np.random.default_rng(4))
    assert not np.allclose(x, before)
    assert pair.log_ratio(x) == pytest.approx(base.log_ratio(before), abs=1e-6)
    assert pair.exact() == base.exact()


def test_blocks_add_and_swapping_swaps():
    one, two = ZOO["gauss-scale-d1"], ZOO["counts-poisson-d1"]
    both = product(one, two)
    assert both.exact()["kl"] == pytest.approx(one.exact()["kl"] + two.exact()["kl"])
    assert "js" not in both.exact()
    assert swapped(both).exact()["reverse_kl"] == both.exact()["kl"]
    # Three equal shifts of 1/sqrt(3) are one shift of 1.
    line = ZOO["gauss-shift-d1"].exact()
    thirds = dataclasses.replace(ZOO["gauss-shift-d1"], name="thirds")
    assert copies(thirds, 3).exact()["hellinger"] == pytest.approx(1 - (1 - line["hellinger"]) ** 3)


def test_monte_carlo_gives_the_exact_values_with_honest_errors():
    pair = ZOO["gauss-scale-d10"]
    exact = pair.exact()
    z = []
    for seed in range(20):
        values, errors = truth.by_draws(*truth.log_ratios(pair, 2000, np.random.default_rng(seed)))
        z += [(values[key] - exact[key]) / errors[key] for key in ("kl", "reverse_kl", "hellinger")]
    assert np.abs(z).max() < SIGMAS
    assert 0.7 < np.std(z) < 1.4


def test_the_zoo_needs_numpy_and_scipy_alone():
    allowed = {"numpy", "scipy", "benchmarks", *sys.stdlib_module_names}
    for path in TRUTH.parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            more = {"sklearn"} if path.name == "unseen.py" else set()  # the tables that it smooths
            assert all(name.split(".")[0] in allowed | more for name in names), path.name
            assert all(name.startswith("benchmarks.zoo") for name in names if name.startswith("benchmarks")), path.name


@pytest.mark.parametrize("name", DRIFTS)
def test_drifts(name):
    drift = DRIFTS[name]
    assert len(drift.steps) >= 6
    first = drift.draw_p(50, np.random.default_rng(5))
    for t, step in enumerate(drift.steps, start=1):
        assert np.array_equal(step.draw_p(50, np.random.default_rng(5)), first)
        x = drift.draw_q(t, 50, np.random.default_rng(6))
        assert x.shape == (50, drift.d)
        assert np.array_equal(x, step.draw_q(50, np.random.default_rng(6)))
        assert np.array_equal(drift.log_ratio(t, x), step.log_ratio(x))
        assert drift.truth(t) == step.truth()
    js = [drift.truth(t)["js"] for t in range(1, 7)]
    if name == "none-d8":
        assert js == [0] * 6
    elif name == "there-and-back-d10":
        assert js == pytest.approx(js[::-1])
        assert js[2] > js[1] > js[0]
    else:
        assert js == sorted(set(js))


def test_the_unseen_set_is_wide_and_no_part_of_the_zoo():
    assert not set(unseen.PAIRS) & set(ZOO)
    assert not set(unseen.DRIFTS) & set(DRIFTS)
    assert all(name.startswith("unseen-") for name in (*unseen.PAIRS, *unseen.DRIFTS))
    kinds = {pair.family for pair in unseen.PAIRS.values()}
    assert len(kinds) >= 10
    assert not kinds & set(FAMILIES)
    known = [pair.truth()["kl"] for pair in unseen.PAIRS.values()]
    assert 2 * len(known) + 6 * len(unseen.DRIFTS) >= 100  # cells
    assert {0.0, math.inf} < set(known)
    assert max(filter(math.isfinite, known)) > 1.5
    errors = [(pair.standard_errors()[key], pair.truth()[key]) for pair in unseen.PAIRS.values() for key in DIVERGENCES]
    assert all(error <= 0.003 * value for error, value in errors)


def test_the_second_set_is_wide_and_new():
    assert not set(second.PAIRS) & (set(ZOO) | set(unseen.PAIRS))
    assert all(name.startswith("second-") for name in (*second.PAIRS, *second.DRIFTS))
    kinds = {pair.family for pair in second.PAIRS.values()}
    assert len(kinds) >= 12
    assert not kinds & (set(FAMILIES) | {pair.family for pair in unseen.PAIRS.values()})
    assert {drift.family for drift in second.DRIFTS.values()} <= kinds
    assert {1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 49} <= {pair.d for pair in second.PAIRS.values()}
    known = [pair.truth() for pair in second.PAIRS.values()]
    assert 30 <= len(known) <= 40
    assert 0.15 < np.mean([each["kl"] < 0.02 for each in known]) < 0.25
    assert sum(each["reach_p"] <= 0.9 for each in known) >= 3
    assert sum(each["reach_q"] <= 0.9 for each in known) >= 1
    assert max(each["kl"] for each in known if math.isfinite(each["kl"])) > 2


def mass_in_the_plane(law, low, high, points):
    """The mass of a density in the plane, by trapezoids on [low, high]^2."""
    line, step = np.linspace(low, high, points, retstep=True)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.exp(law.log_density(grid)).sum() * step**2


def test_second_densities_integrate_to_one():
    assert mass_in_the_plane(second.one_factor([0.9, 0.2], 0.7, 5), -40, 40, 401) == pytest.approx(1, abs=2e-4)
    assert mass_in_the_plane(
        second.skew_t(6, [2.0, -1.5], np.array([[1, 0.3], [0.3, 1]])), -40, 40, 401
    ) == pytest.approx(1, abs=1e-4)
    base = laws.Law(2, None, lambda x: stats.logistic.logpdf(x).sum(1))
    assert mass_in_the_plane(second.flow(2, 5).of(base), -40, 40, 401) == pytest.approx(1, abs=1e-4)
    # Gaps on the logarithmic scale: a factor x for each.
    gaps = second.hawkes(2, 0.5, 1.2, 2.0)
    logged = laws.Law(2, None, lambda t: gaps.log_density(np.exp(t)) + t.sum(1))
    assert mass_in_the_plane(logged, -16, 5, 401) == pytest.approx(1, abs=1e-6)


def test_second_matrices_are_wishart():
    (df, scale), (other_df, other) = (8.0, np.array([[1, 0.5], [0.5, 2]])), (6.0, 1.4 * np.eye(2))
    x = second.wisharts((df, scale), (other_df, other)).draw_p(50, np.random.default_rng(7))
    for row, value in zip(x, second.wisharts((df, scale), (other_df, other)).log_ratio(x), strict=True):
        C = np.array([[np.exp(row[0]), 0], [row[2], np.exp(row[1])]])
        expected = stats.wishart(df, scale).logpdf(C @ C.T) - stats.wishart(other_df, other).logpdf(C @ C.T)
        assert value == pytest.approx(expected, abs=1e-9)


def test_second_counts_by_sums_of_another_kind():
    # Tweedie: the series over the number of claims. Frailties: the integral over the frailty.
    y, k = np.array([[0.1], [1.0], [7.0]]), np.arange(1, 80)
    p, q = (
        (stats.poisson(rate).pmf(k) * stats.gamma(k, scale=mean).pdf(y)).sum(1)
        for rate, mean in ((1.5, 1.0), (0.9, 1.8))
    )
    pair = second.tweedie((1.5, 1.0), (0.9, 1.8))
    assert pair.log_ratio(y) == pytest.approx(np.log(p / q), abs=1e-10)
    assert pair.log_ratio(np.zeros((1, 1))) == pytest.approx(0.9 - 1.5)
    rates, row, g = np.array([1.0, 2.0]), np.array([[3.0, 1.0]]), np.linspace(1e-6, 30, 300_001)
    p, q = (
        np.trapezoid(
            stats.poisson(g * rates[0]).pmf(3)
            * stats.poisson(g * rates[1]).pmf(1)
            * stats.gamma(a, scale=m / a).pdf(g),
            g,
        )
        for a, m in ((1.2, 1.0), (5.0, 1.3))
    )
    assert second.frailties(rates, (1.2, 1.0), (5.0, 1.3)).log_ratio(row) == pytest.approx(np.log(p / q), abs=1e-5)


def test_second_defaults_and_rankings_by_hand():
    # Two defaults: the orthant of two correlated assets. Three items: the choices one after the other.
    edge = special.ndtri(0.1)
    both = [stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([edge, edge]) for rho in (0.4, 0.2)]
    pair = second.defaults(2, (0.1, 0.4), (0.1, 0.2))
    assert pair.log_ratio(np.ones((1, 2))) == pytest.approx(math.log(both[0] / both[1]), abs=1e-4)
    assert second.plackett([3, 2, 1])(np.array([[2.0, 1.0, 3.0]])) == pytest.approx(math.log(2 / 6 * 3 / 4))
    assert np.exp(second.plackett([6, 4, 3, 2])(second.rankings(4))).sum() == pytest.approx(1)
    assert second.mallows([1, 2, 3], 0.5)(np.array([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0]])) == pytest.approx([-1.5, -0.5])


def test_second_contaminated_parts():
    clean = stats.multivariate_normal(np.zeros(6), np.full((6, 6), 0.4) + 0.6 * np.eye(6))
    fraud = stats.multivariate_normal([2.5, 2.0, 0, 0, 0, -1.5], 0.2)
    pair = second.PAIRS["second-contaminated-fraud-d6"]
    x = pair.draw_p(2000, np.random.default_rng(8))
    expected = np.logaddexp(np.log(0.96), np.log(0.04) + fraud.logpdf(np.log(x)) - clean.logpdf(np.log(x)))
    assert pair.log_ratio(x) == pytest.approx(expected, abs=1e-8)
    # Equal covariances: the distance of the two means holds every divergence.
    cov = 0.3 * 0.6 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    apart = math.log(10) * np.linalg.inv(cov)[0, 0] ** 0.5
    line = laws.mixture([0.98, 0.02], [laws.normal(0.0, 1.0), laws.normal(apart, 1.0)])
    units = second.PAIRS["second-contaminated-units-d3"]
    for key, value in laws.pair_of(laws.normal(0.0, 1.0), line).exact().items():
        assert units.truth()[key] == pytest.approx(value, abs=SIGMAS * units.standard_errors()[key] + 1e-9)
    # E_q[p/q] = 1 for blots that are faint enough to be met among q's draws.
    faint = second.blots(4, 0.05, 0.5)
    ratio = np.exp(faint.log_ratio(faint.draw_q(20_000, np.random.default_rng(9))))
    assert abs(ratio.mean() - 1) < SIGMAS * ratio.std() / 20_000**0.5


def test_second_vine_maps_back():
    u = np.random.default_rng(10).random((2000, 5))
    thetas = np.array([2.0, 0.8, 1.5, 3.0])
    leaves = second.clayton_back(u[:, :-1], u[:, -1:], thetas)
    assert second.clayton_given(leaves, u[:, -1:], thetas) == pytest.approx(u[:, :-1], abs=1e-9)
    # Kendall's tau of Clayton's copula is theta / (theta + 2).
    tau = [stats.kendalltau(leaf, u[:, -1]).statistic for leaf in leaves.T]
    assert tau == pytest.approx(thetas / (thetas + 2), abs=0.06)
    step = 1e-6  # the conditional distribution is the derivative of (u^-theta + v^-theta - 1)^(-1/theta)
    C = lambda a, b: (a**-2.0 + b**-2.0 - 1) ** -0.5  # noqa: E731
    slope = (C(0.3 + step, 0.6) - C(0.3 - step, 0.6)) / (2 * step)
    assert second.clayton_given(0.6, 0.3, 2.0) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", [*unseen.DRIFTS, *second.DRIFTS])
def test_unseen_drifts_keep_p(name):
    drift = (unseen.DRIFTS | second.DRIFTS)[name]
    assert len(drift.steps) == STEPS
    first = drift.draw_p(20, np.random.default_rng(5))
    assert all(np.array_equal(step.draw_p(20, np.random.default_rng(5)), first) for step in drift.steps)
    assert all(drift.truth(t) == step.truth() for t, step in enumerate(drift.steps, start=1))
