"""CDRE's generators on classes: smoke runs through the runner, shared Records, and verdicts on planted ones."""

import math

import pytest
import torch

from vestige import data, ratios
from vestige.continual.record import Record
from vestige.generators.pictures import pack
from vestige.runner import plan, run
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond.matrix_images import over_generators, within_classes
from vestige_papers.cdre.generators import (
    GANS,
    KEPT,
    ORACLE,
    ROWS,
    SMOKE,
    CDREFig3,
    CDREGeneratorConfig,
    KeptClasses,
    classifier_of,
    generator_of,
    means,
)

NAN = math.nan
MEASURES = ("fid", "kid", KEPT, ORACLE, "kl", "reverse_kl", "js", "hellinger2")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Two rows of Fig. 3, really run."""
    out = tmp_path_factory.mktemp("runs")
    units = [unit for unit in plan("cdre-fig3", out, preset="smoke") if unit.config.row in ("f-GAN-rvKL", "VAE")]
    assert len(list(run(units))) == 2
    return [unit.finished() for unit in units], out


def test_a_unit_runs_and_its_record_comes_back(smoke):
    records, _ = smoke
    for record in records:
        assert record.config["experiment"] == "cdre-fig3"
        for name in ("fid", KEPT, ORACLE):
            assert bool(record.matrices[name].isfinite().tril().sum() == 3)
        assert set(record.details[f"verdicts.{KEPT}"]) == {"0,0", "1,0", "1,1"}
        assert len(record.details["pictures"]) == 2
    lines = CDREFig3().lines(records)
    for row in ("f-GAN-rvKL", "VAE"):
        quantities = {x.quantity for x in lines if x.label == row}
        assert {"FID, mean over classes", "FID, pooled", "label accuracy (%)", "F, FID", "I, js"} <= quantities
        assert {"FID, class 0", "FID, class 1"} <= quantities
    assert all(x.paper is None for x in lines)  # curves without numbers


def test_figures_of_one_data_set_share_their_runs(smoke):
    records, out = smoke
    for name in ("cdre-fig4", "cdre-fig7"):
        units = [unit for unit in plan(name, out, preset="smoke") if unit.config.row in ("f-GAN-rvKL", "VAE")]
        assert all(unit.finished() is not None for unit in units)
    figures = EXPERIMENTS["cdre-fig4"].figures(records)
    assert set(figures) == {"f-gan-rvkl", "vae"}
    assert set(EXPERIMENTS["cdre-fig3"].figures(records)) == {*MEASURES, "labels", "variety", "fid-pooled"}


def test_homes_and_arms():
    fashion, mnist = (EXPERIMENTS[name] for name in ("cdre-fig3", "cdre-fig6"))
    assert fashion.config(CDREGeneratorConfig())["experiment"] == "cdre-fig3"
    assert mnist.config(mnist.presets["laptop"])["experiment"] == "cdre-fig6"
    images = EXPERIMENTS["beyond-matrix-images"]
    arms = images.arms(images.presets["laptop"])
    assert len(arms) == 2 * len(ROWS)
    ids = {images.unit_id(arm, 0) for arm in arms}
    shown = [figure.unit_id(arm, 0) for figure in (fashion, mnist) for arm in figure.arms(figure.presets["laptop"])]
    assert ids == set(shown)


def test_rows_are_the_generators_they_say():
    for row, (name, options) in ROWS.items():
        made = generator_of(CDREGeneratorConfig(row=row, steps=7), (28, 28))
        assert made.name == name
        assert made.steps == 7
        assert all(getattr(made, key) == value for key, value in options.items())
    paper = CDREFig3.presets["paper"]
    assert generator_of(CDREGeneratorConfig(row="f-GAN-rvKL", preset=paper.preset), (28, 28)).epochs == 6
    assert generator_of(CDREGeneratorConfig(row="f-GAN-KL", preset=paper.preset), (28, 28)).epochs == 15
    assert list(GANS) == ["WGAN", "WGAN-GP", "f-GAN-JS", "f-GAN-KL", "f-GAN-rvKL"]
    assert SMOKE.data == "digits"


def planted(
    row, *, fid=1.0, kid=1.0, js=0.1, kept=0.1, labels=(0.9, 0.9, 0.9, 0.9), data="fashion_mnist", seed=0, **matrices
):
    """Four classes; distances that are the same in every cell, labels by step."""
    lower = torch.ones(4, 4, dtype=torch.float64).tril().masked_fill(torch.ones(4, 4).triu(1) > 0, NAN)
    found = {name: lower * {"fid": fid, "kid": kid, "js": js, KEPT: kept}.get(name, 0.2) for name in MEASURES}
    found["labels"] = lower * torch.tensor(labels, dtype=torch.float64)[:, None]
    nothing = {f"{name}.real": torch.zeros(4, dtype=torch.float64) for name in ("fid", "kid", "labels")}
    said = {"verdicts": {"0,0": "ok", "1,0": "refused"}, f"verdicts.{KEPT}": {"0,0": "ok"}}
    details = said | {"pictures": [pack(torch.zeros(t, 2, 2)) for t in (1, 2)]}
    values = nothing | {"fid.pooled": torch.ones(4, dtype=torch.float64)}
    config = {"data": data, "row": row}
    return Record(config, seed, matrices=found | matrices, values=values, details=details, task_names=list("abcd"))


def all_rows(**worst):
    """Every row alike, with what `worst` says for reverse KL."""
    return [planted(row, **(worst if row == "f-GAN-rvKL" else {})) for row in ROWS]


@pytest.mark.parametrize(
    ("worst", "word"),
    [
        ({"fid": 9.0, "kid": 9.0, "kept": 0.5}, "reproduced"),
        ({"fid": 9.0, "kid": 9.0, "kept": 0.05}, "partly"),
        ({"fid": 0.5, "kid": 9.0, "kept": 0.05}, "not"),
        ({"fid": 0.5, "kid": 0.5, "kept": 0.05}, "not"),
    ],
)
def test_the_rule_of_the_measures(worst, word):
    assert EXPERIMENTS["cdre-fig3"].by_rule(all_rows(**worst)).word == word


def test_what_the_rule_said_by_the_papers_chain_stays_visible():
    found = EXPERIMENTS["cdre-fig3"].by_rule(all_rows(fid=9.0, kid=9.0, kept=0.5, js=0.05))
    assert found.word == "reproduced"
    assert found.why.endswith("By the earlier rule: partly.")


def test_runs_from_before_vestiges_were_asked_are_shown_and_not_judged():
    records = all_rows()
    for record in records:
        del record.matrices[KEPT], record.matrices[ORACLE]
    assert EXPERIMENTS["cdre-fig3"].lines(records)
    assert EXPERIMENTS["cdre-fig3"].by_rule(records).word == "not judged"


def test_the_vae_is_no_gan_and_five_gans_are_needed():
    records = [planted(row, fid=9.0 if row == "VAE" else 3.0 if row == "f-GAN-rvKL" else 1.0) for row in ROWS]
    assert (
        "by FID, mean over classes after the last, the worst of the five GANs is f-GAN-rvKL"
        in EXPERIMENTS["cdre-fig3"].by_rule(records).why.partition("not hold")[0]
    )
    assert EXPERIMENTS["cdre-fig3"].by_rule(records[1:]).word == "not judged"


def test_one_that_diverged_is_the_worst():
    gone = torch.full((4, 4), NAN, dtype=torch.float64)
    records = [planted(row, **(dict.fromkeys(("fid", "kid", KEPT), gone) if row == "WGAN" else {})) for row in ROWS]
    lost = [r for r in records if r.config["row"] == "WGAN"]
    for record in lost:
        record.details["diverged"] = "task 1: no number"
    why = EXPERIMENTS["cdre-fig3"].by_rule(records).why
    assert why.partition("cannot see")[0].count("(it is WGAN)") >= 3


def test_one_that_was_refused_is_not_called_the_worst():
    gone = torch.full((4, 4), NAN, dtype=torch.float64)
    worst = {"fid": 9.0, "kid": 9.0, "kept": 0.5}
    records = [planted(r, **(worst if r == "f-GAN-rvKL" else {KEPT: gone} if r == "WGAN" else {})) for r in ROWS]
    found = EXPERIMENTS["cdre-fig3"].by_rule(records)
    assert found.word == "partly"
    assert "it is f-GAN-rvKL, without WGAN, which were refused" in found.why


FALLS, STAYS = (0.9, 0.9, 0.9, 0.5), (0.9, 0.9, 0.8, 0.9)


@pytest.mark.parametrize(
    ("wgan", "gp", "word"),
    [(FALLS, FALLS, "reproduced"), (FALLS, STAYS, "partly"), (STAYS, FALLS, "partly"), (STAYS, STAYS, "not")],
)
def test_the_rule_of_the_samples(wgan, gp, word):
    records = [planted("WGAN", labels=wgan), planted("WGAN-GP", labels=gp)]
    assert EXPERIMENTS["cdre-fig4"].by_rule(records).word == word
    assert EXPERIMENTS["cdre-fig7"].by_rule(records[:1]).word == "not judged"


def ranked(order, *, cells=1.0, data="mnist", js=None):
    """Rows with rising FID; the vestige's JS rises over rows in `order` and, for positive `cells`, with the steps.

    The oracle's rises with FID, and so does the chain's unless `js` says otherwise.
    """
    out = []
    steps = torch.arange(1.0, 5, dtype=torch.float64)[:, None] * torch.ones(4, 4, dtype=torch.float64)
    lower = steps.masked_fill(torch.ones(4, 4).triu(1) > 0, NAN)
    for i, row in enumerate(ROWS):
        out.append(planted(row, data=data))
        perfect = 10 * i + lower
        changed = {
            KEPT: order[i] + 0.1 * (cells * lower),
            ORACLE: perfect,
            "js": perfect if js is None else js * perfect,
        }
        out[-1].matrices.update({"fid": perfect} | changed)
    return out


AS_FID = [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("records", "word"),
    [
        (ranked(AS_FID), "reproduced"),
        (ranked(AS_FID, cells=-1.0), "partly"),  # within a class tau falls short of the oracle's
        (ranked(AS_FID[::-1]), "not"),
        (ranked(AS_FID) + ranked(AS_FID[::-1], data="fashion_mnist"), "partly"),
        (ranked(AS_FID)[1:], "not judged"),
    ],
)
def test_the_rule_of_agreement(records, word):
    experiment = EXPERIMENTS["beyond-matrix-images"]
    assert experiment.by_rule(records).word == word
    assert experiment.lines(records)


def test_agreement_by_the_papers_chain_stays_visible():
    found = EXPERIMENTS["beyond-matrix-images"].by_rule(ranked(AS_FID, js=-1.0))
    assert (found.word, found.why.endswith("By the earlier rule: not.")) == ("reproduced", True)


def test_tau_within_a_class_is_over_generators_and_steps_of_that_class():
    runs = ranked(AS_FID)
    assert within_classes(runs, "fid", KEPT) == pytest.approx(1)
    for record in runs:  # what is far for one class is near for another: no order of all cells
        record.matrices["fid"][:, 0] += 1000
    assert within_classes(runs, "fid", KEPT) == pytest.approx(1)
    # class 3 has one cell a run: six pairs of which one neighbour swap costs 2 of 15
    runs[0].matrices[KEPT][3, 3], runs[1].matrices[KEPT][3, 3] = 2.4, 1.4
    assert within_classes(runs, "fid", KEPT) == pytest.approx((3 + 13 / 15) / 4)


def test_agreement_over_generators_is_tau_of_their_ends():
    assert over_generators(ranked(AS_FID), "mnist", "fid", KEPT) == [pytest.approx(1)]
    assert over_generators(ranked([2, 1, 3, 4, 5, 6]), "mnist", "fid", KEPT) == [pytest.approx(13 / 15)]


@pytest.mark.slow
def test_vestiges_of_classes_and_the_oracle_tell_classes_apart():
    digits = data.load("digits")
    x, y = digits.floats(digits.train_x), digits.train_y
    own, other = x[y == 0], x[y == 1]
    watch = KeptClasses(classifier_of("digits", 600, 3), ratios.build("stack", preset="fast"), 0)
    kept = watch(0, own[:100], {0: own[100:]})
    again = watch(1, other[:100], {0: other[100:], 1: other[100:]})
    for name in (KEPT, ORACLE):
        assert set(again[name]) == {0, 1}
        assert again[name][0].value > 3 * max(kept[name][0].value, 0.02)
        assert again[name][1].value < again[name][0].value / 3
    assert list(watch.vestiges) == [0, 1]


def test_means_are_over_what_was_measured():
    record = planted("VAE", js=0.4)
    record.matrices["js"][3, 1] = NAN
    record.matrices["js"][3, 0] = 1.0
    assert float(means(record, "js")[3]) == pytest.approx((1.0 + 0.4 + 0.4) / 3)
    told = {x.quantity: x.ours for x in CDREFig3().lines([record])}
    assert told["refused by the chain (%)"] == 50


def test_variety_stands_beside_label_accuracy_and_records_without_it_are_read():
    varied = 0.5 * torch.ones(4, 4, dtype=torch.float64).tril().masked_fill(torch.ones(4, 4).triu(1) > 0, NAN)
    varied[3, 0] = 0.1
    old, new = planted("VAE"), planted("VAE", variety=varied, seed=1)
    new.values["variety.real"] = torch.ones(4, dtype=torch.float64)
    told = {x.quantity: x.ours for x in CDREFig3().lines([new])}
    assert told["variety (% of the data's)"] == pytest.approx(100 * (0.1 + 3 * 0.5) / 4)
    assert told["F, variety (% of the data's)"] == pytest.approx(100 * (0.5 - 0.1) / 3)
    assert told["I, variety (% of the data's)"] == pytest.approx(100 * (1 - 0.5))
    assert "variety" in CDREFig3().figures([new])
    for records in ([old], [old, new]):
        assert not any("variety" in x.quantity for x in CDREFig3().lines(records))
        assert "variety" not in CDREFig3().figures(records)
