"""Keeping with an epsilon: what the file holds, what it costs, what it answers, and what is refused."""

import importlib
import math

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from vestige import store
from vestige.core import InputError, MissingPackage, NotEstimable, StoreError, VestigeWarning
from vestige.ratios.logistic import Logistic
from vestige.vestiges.private import noise, released
from vestige.vestiges.private.statistics import GRID

keeping = importlib.import_module("vestige.vestiges.private.keep")

QUADRATIC = Logistic(kind="quadratic")
D = 3
BOUNDS = {f"x{j}": (-4, 4) for j in range(D)}


def rows(n: int, seed: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D))
    x[:, 1] += 0.5 * x[:, 0]
    x[:, 0] += shift
    return x


@pytest.fixture(scope="module")
def kept() -> vs.PrivateVestige:
    return vs.keep(rows(10_000, 0), epsilon=1, bounds=BOUNDS)


@pytest.fixture
def silent(monkeypatch) -> list[tuple]:
    """The noise is mocked away: what would have been released, and at which scale."""
    seen = []

    def without_noise(sums, scale, delta):
        seen.append((sums, scale, delta))
        return sums

    monkeypatch.setattr(keeping, "released", without_noise)
    return seen


# What is promised. ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "times"), [(0.5, 8.68), (1.0, 4.53), (2.0, 2.38), (8.0, 0.69)])
def test_the_scale_is_the_smallest_that_opendp_accepts(epsilon, times):
    scale = noise.noise_scale(10, GRID, epsilon, 1e-6)
    assert abs(scale / GRID - times) < 0.005  # measured by itself
    assert noise.spent(10, scale, GRID, 1e-6) <= epsilon
    assert noise.spent(10, scale * 0.999, GRID, 1e-6) > epsilon


def test_the_map_is_that_of_a_gaussian_under_zcdp():
    """rho = (sensitivity / scale)^2 / 2, and an independent conversion: the least over orders of Renyi divergence."""
    scale, delta = 4.53, 1e-6
    rho = 1 / (2 * scale**2)
    orders = np.exp(np.linspace(math.log(1.01), math.log(500), 4000))
    # Canonne, Kamath and Steinke 2020, Proposition 12
    bound = rho * orders + (np.log(1 / delta) + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)) / (orders - 1)
    assert abs(noise.spent(1, scale * GRID, GRID, delta) - bound.min()) < 1e-4


def test_the_whole_file_is_one_measurement_of_the_declared_sensitivity(silent):
    kept = vs.keep(rows(300, 0), epsilon=1, bounds=BOUNDS)
    ((sums, scale, delta),) = silent  # one release, of all there is
    assert len(sums) == sum(kept.released.query.sizes.values())
    assert noise.spent(len(sums), scale, GRID, delta) <= 1
    assert kept.released.variance == scale**2


def test_several_rows_of_a_person_cost_that_much_more(silent):
    table = pd.DataFrame(rows(300, 0), columns=list(BOUNDS)).assign(person_id=np.repeat(range(60), 5))
    kept = vs.keep(table, epsilon=1, bounds=BOUNDS, unit="person_id", max_rows=3)
    ((sums, scale, delta),) = silent
    assert kept.n == 180  # three of five rows each
    assert noise.spent(len(sums), scale, 3 * GRID, delta) <= 1 < noise.spent(len(sums), scale, 4 * GRID, delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-9), (0.5, 1e-2), (3.0, 0.1)])
def test_the_bound_of_an_attack_is_the_area_below_the_line(epsilon, delta):
    a = np.linspace(0, 1, 400_001)
    line = np.minimum(1, np.minimum(delta + math.exp(epsilon) * a, 1 - math.exp(-epsilon) * (1 - delta - a)))
    bound = released.Guarantee(epsilon, delta, "row", 1).auc_bound
    assert abs(bound - float(np.trapezoid(line, a))) < 1e-8
    if delta < 1e-6:  # of a pure epsilon: e^epsilon / (1 + e^epsilon)
        assert abs(bound - 1 / (1 + math.exp(-epsilon))) < 1e-8


@pytest.mark.slow
def test_the_best_attack_finds_what_gaussian_noise_allows_and_no_more():
    """Who knows all other rows has the sums but for one row: its vector in noise, or noise alone."""
    own = torch.full((64,), GRID // 8, dtype=torch.int64)  # of length GRID
    scale = noise.noise_scale(64, GRID, 1.0, 1e-6)
    scores = [
        np.array([float(noise.released(own * k, scale, 1e-6).double() @ own.double()) for _ in range(600)])
        for k in (0, 1)
    ]
    auc = float((scores[1][:, None] > scores[0]).mean())
    allowed = math.erf(GRID / scale / 2) / 2 + 0.5  # Phi(1 / (sigma sqrt 2))
    assert abs(allowed - 0.562) < 0.001
    assert abs(auc - allowed) < 4 * 0.0165  # the standard error of an AUC of 600 against 600


def test_noise_does_not_depend_on_the_seed():
    one, two = (vs.keep(rows(300, 0), epsilon=1, bounds=BOUNDS, seed=5) for _ in range(2))
    assert one.released.query.digest() == two.released.query.digest()
    assert float((one.released.sums == two.released.sums).double().mean()) < 0.1


def test_the_noise_has_the_scale_that_is_stated():
    query_size, scale = 4000, 3.0 * GRID
    drawn = noise.released(torch.zeros(query_size, dtype=torch.int64), scale, 1e-6).double()
    assert abs(float(drawn.std()) / scale - 1) < 0.05
    assert abs(float(drawn.mean())) < 5 * scale / math.sqrt(query_size)


# What is in the file. ---------------------------------------------------------------------------------------------


def test_nothing_but_the_sums_depends_on_the_rows(silent):
    """Two neighbouring sets, a wild row more: without noise the files differ in the sums, and in nothing else."""
    x = rows(300, 0)
    one, two = (vs.keep(x[:n], epsilon=1, bounds=BOUNDS) for n in (300, 299))
    wild = vs.keep(np.r_[x, [[3e4, -3e4, 0]]], epsilon=1, bounds=BOUNDS)
    states = [store.encode(each) for each in (one, two, wild)]
    for data, tensors in states[1:]:
        assert data == states[0][0]
        assert [key for key in tensors if not torch.equal(tensors[key], states[0][1][key])] == ["released.sums"]


def test_public_rows_decide_everything_that_is_public(silent):
    public = rows(500, 9)
    one, two = (vs.keep(rows(300, seed), epsilon=1, public=public) for seed in (0, 1))
    assert one.released.query.digest() == two.released.query.digest()
    assert torch.equal(one.base, two.base)
    assert {tuple(row) for row in one.base.tolist()} <= {tuple(row) for row in public.tolist()}


def test_it_comes_back_from_its_file_and_states_its_promise(kept, tmp_path):
    path = kept.save(tmp_path / "a.vestige")
    back = vs.load(path)
    assert isinstance(back, vs.PrivateVestige)
    assert back.guarantee == kept.guarantee
    assert torch.equal(back.released.sums, kept.released.sums)
    told = repr(back)
    for words in ("epsilon 1, delta 1e-06", "for one row, more or less", "covers every number", "a second expense"):
        assert words in told
    with pytest.raises(StoreError, match="private-vestige"):
        vs.Vestige.load(path)
    assert set(kept.kept()["what"]) == {
        "sums over the rows, with noise: count, moments, random features, bins",
        "public: bounds, bins and frequencies",
    }


def test_merging_keeps_epsilon_adds_noise_and_says_what_it_cannot_know(kept):
    other = vs.keep(rows(5000, 3), epsilon=2, bounds=BOUNDS)
    both = kept.merge(other)
    assert both.guarantee == released.Guarantee(2.0, 1e-6, "row", 1, 2)
    assert torch.equal(both.released.sums, kept.released.sums + other.released.sums)
    assert both.released.variance == kept.released.variance + other.released.variance
    assert abs(both.n - 15_000) < 200
    assert "no row is in two of the parts, which a file cannot tell" in repr(both)
    with pytest.raises(InputError, match="one declaration"):
        kept.merge(vs.keep(rows(300, 3), epsilon=1, bounds=dict.fromkeys(BOUNDS, (-5, 5))))
    named = pd.DataFrame(rows(300, 0), columns=list(BOUNDS)).assign(person=range(300))
    with pytest.raises(InputError, match="units of both"):
        kept.merge(vs.keep(named, epsilon=1, like=kept, unit="person", max_rows=1))


# What it answers. -------------------------------------------------------------------------------------------------


def test_means_and_spreads_are_those_of_the_rows_up_to_the_noise(kept):
    values = kept.released.query.values(kept.cells(rows(10_000, 0)).cells).mean(0)
    z = (kept.released.means - values) / kept.released.noise_variance.sqrt()
    assert abs(kept.n - 10_000) < 100
    assert 0.8 < float(z.square().mean()) < 1.25
    drawn = kept.released.noise(4000, torch.Generator().manual_seed(0))
    assert torch.allclose(drawn.var(0), kept.released.noise_variance, rtol=0.15)


@pytest.mark.parametrize(("shift", "found"), [(0.0, False), (0.3, True)])
def test_a_comparison(kept, shift, found):
    got = vs.compare(kept, rows(1500, 1, shift), names=("old", "new"), estimator=QUADRATIC)
    assert (got.p_value < 0.01) == found
    assert got.metrics["mmd2"].known
    assert (got.metrics["mmd2"].low > 0) == found
    assert got.metrics["fid"].known
    assert (got.differences[0].name == "x0") == found
    for name in ("kl", "hellinger2", "total_variation"):
        assert got.divergences[name].reason.startswith("It needs rows or a density of them")
    assert not got.metrics["kid"].known
    assert got.diagnosis is got.reach is None
    assert any("below 20000 the noise" in text for text in got.warnings)
    with pytest.raises(NotEstimable, match="noisy means alone"):
        vs.weigh(kept, rows(300, 1))
    with pytest.raises(InputError, match="'q_weights' of compare"):
        vs.compare(kept, rows(300, 1), q_weights=np.ones(300))


def test_without_noise_fid_and_mmd_are_those_of_the_rows(silent, monkeypatch):
    x, y = rows(4000, 0), rows(3000, 1, 0.5)
    kept = vs.keep(x, epsilon=20, bounds=BOUNDS)
    kept = vs.PrivateVestige(released.Released(kept.released.query, kept.guarantee, kept.released.sums, 0.0), None, 0)
    got = vs.compare(kept, y, estimator=QUADRATIC)
    points = [kept.released.query.points(kept.cells(side).cells) for side in (x, y)]
    want = vs.metrics.fid(*points, std_error=True)
    scale = kept.released.query.radius**2
    assert abs(got.metrics["fid"].value / scale - want.value) < 2e-3 * want.value + 2 / 4000 * want.value
    assert 0.8 < got.metrics["fid"].std_error / scale / want.std_error < 1.25
    exact = vs.metrics.mmd(*points, bandwidth=kept.released.query.bandwidth)
    assert abs(got.metrics["mmd2"].value / exact.value - 1) < 0.25  # 128 frequencies for a kernel
    assert 0.6 < got.metrics["mmd2"].std_error / exact.std_error < 1.6


def test_js_by_balancing_public_rows():
    x, y, public = rows(10_000, 0), rows(4000, 1, 0.7), rows(4000, 2, 0.2)
    got = vs.compare(vs.keep(x, epsilon=1, public=public), y, estimator=QUADRATIC).divergences["js"]
    apart = 0.7 * math.sqrt(1.25)  # standard deviations, along the one direction in which both differ
    t = np.linspace(-9, 9, 20_001)
    p, q = (np.exp(-((t - c) ** 2) / 2) / math.sqrt(2 * math.pi) for c in (0, apart))
    m = (p + q) / 2
    truth = float(np.trapezoid(p * np.log(p / m) + q * np.log(q / m), t)) / 2
    assert abs(got.value - truth) < 0.02
    assert got.low <= truth


def test_js_is_refused_beyond_eight_features_and_where_public_rows_cannot_stand_for_the_data():
    wide = np.random.default_rng(0).normal(size=(6000, 9))
    got = vs.compare(vs.keep(wide, epsilon=1, bounds={f"x{j}": (-4, 4) for j in range(9)}), wide[:500])
    assert got.divergences["js"].reason == "JS is told of at most 8 features with an epsilon, and there are 9."
    far = vs.keep(rows(6000, 0, 4.0), epsilon=1, public=rows(3000, 1))
    assert (
        vs.compare(far, rows(500, 2), estimator=QUADRATIC)
        .divergences["js"]
        .reason.startswith("JS cannot be told: balanc")
    )


def test_below_two_thousand_nothing_is_told():
    got = vs.compare(vs.keep(rows(1000, 0), epsilon=1, bounds=BOUNDS), rows(1000, 1))
    assert got.conclusion.startswith("Not useful: n x epsilon is ")
    assert math.isnan(got.p_value)
    every = [*got.divergences.values(), *got.metrics.values()]
    assert all(one.reason == got.conclusion for one in every)


def test_fid_is_refused_below_five_thousand():
    got = vs.compare(vs.keep(rows(3000, 0), epsilon=1, bounds=BOUNDS), rows(500, 1), estimator=QUADRATIC)
    assert got.metrics["fid"].reason.startswith("FID needs n x epsilon of at least 5000")
    assert got.metrics["mmd2"].known
    assert not math.isnan(got.p_value)


# What is refused. -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "'bounds' of keep must be given with an epsilon"),
        ({"bounds": {}}, "at least one column"),
        ({"bounds": {"x0": (-4, 4), "x1": (-4, 4)}}, "Got none for 'x2' instead"),
        ({"bounds": BOUNDS | {"x3": (0, 1)}}, "no 'x3'"),
        ({"bounds": BOUNDS | {"x0": (4, -4)}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": (1, 1)}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": (0, math.nan)}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": (0, math.inf)}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": (0, 10**400)}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": "cook"}}, "low < high"),
        ({"bounds": BOUNDS | {"x0": ["cook", "cook"]}}, "different categories"),
        ({"bounds": [1, 2]}, "a mapping from columns"),
        ({"bounds": BOUNDS, "epsilon": 0}, "'epsilon' of keep must be in"),
        ({"bounds": BOUNDS, "epsilon": -1}, "'epsilon' of keep must be in"),
        ({"bounds": BOUNDS, "epsilon": math.nan}, "'epsilon' of keep must be in"),
        ({"bounds": BOUNDS, "epsilon": 1e-9}, "large enough"),
        ({"bounds": BOUNDS, "delta": 0}, "'delta' of keep must be in"),
        ({"bounds": BOUNDS, "delta": 1}, "'delta' of keep must be in"),
        ({"bounds": BOUNDS, "max_rows": 3}, "given with a 'unit'"),
        ({"bounds": BOUNDS, "unit": "person"}, "'max_rows' of keep must be given"),
        ({"bounds": BOUNDS, "unit": "person", "max_rows": 0}, "at least 1"),
        ({"bounds": BOUNDS, "unit": "person", "max_rows": 2}, "'unit' of keep"),
        ({"bounds": BOUNDS, "third": True}, "'third' of keep must be left"),
        ({"bounds": BOUNDS, "epsilon": None}, "'bounds' of keep must be given with an 'epsilon'"),
        ({"unit": "person", "epsilon": None}, "'unit' of keep must be 'row'"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, told):
    with pytest.raises(InputError, match=told.replace("(", r"\(").replace("[", r"\[")):
        vs.keep(rows(60, 0), **({"epsilon": 1} | options))


def test_files_of_arrays_have_columns_by_number(tmp_path, silent):
    x = rows(300, 0)
    np.save(tmp_path / "x.npy", x)
    found = [vs.keep(source, epsilon=1, public=source) for source in (x, tmp_path / "x.npy")]
    assert torch.equal(found[0].released.sums, found[1].released.sums)
    with pytest.raises(InputError, match="features of a public map"):
        vs.keep(np.zeros((100, 4, 4)), epsilon=1, bounds=BOUNDS)


def test_rows_that_are_not_numbers_are_refused():
    x = rows(100, 0)
    x[3, 0] = math.nan
    with pytest.raises(InputError):
        vs.keep(x, epsilon=1, bounds=BOUNDS)


def test_a_person_without_a_name_is_refused():
    table = pd.DataFrame(rows(100, 0), columns=list(BOUNDS)).assign(person=["a", None] * 50)
    with pytest.raises(InputError, match="must name a unit in every row"):
        vs.keep(table, epsilon=1, bounds=BOUNDS, unit="person", max_rows=1)


def test_a_delta_that_may_give_a_row_away_is_a_warning():
    with pytest.warns(VestigeWarning, match="not below one over the rows"):
        found = vs.keep(rows(3000, 0), epsilon=1, delta=1e-3, bounds=BOUNDS)
    assert found.guarantee.delta == 1e-3


def test_without_opendp_the_install_line_is_told(monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, "opendp.prelude", None)
    noise._opendp.cache_clear()
    try:
        with pytest.raises(MissingPackage, match=r"pip install 'vestige\[private\]'"):
            vs.keep(rows(60, 0), epsilon=1, bounds=BOUNDS)
    finally:
        noise._opendp.cache_clear()


def test_a_column_that_differs_is_told_by_its_text(silent):
    rng = np.random.default_rng(0)
    old, new = (pd.DataFrame({"job": rng.choice(["cook", "smith"], 4000, p=p)}) for p in ([0.8, 0.2], [0.4, 0.6]))
    found = vs.compare(vs.keep(old, epsilon=1, bounds={"job": ["cook", "smith"]}), new)
    assert found.differences[0].told.startswith(("'cook'", "'smith'"))
    assert found.differences[0].differs
