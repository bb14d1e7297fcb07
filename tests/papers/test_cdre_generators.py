"""CDRE's generators on classes: smoke runs through the runner, shared Records, and verdicts on planted ones."""

import math

import pytest
import torch

from vestige.continual.record import Record
from vestige.generators.pictures import pack
from vestige.runner import plan, run
from vestige.runner.registry import EXPERIMENTS
from vestige_papers.beyond.matrix_images import over_generators
from vestige_papers.cdre.generators import (
    GANS,
    ROWS,
    SMOKE,
    CDREFig3,
    CDREGeneratorConfig,
    generator_of,
    means,
)

NAN = math.nan
MEASURES = ("fid", "kid", "kl", "reverse_kl", "js", "hellinger2")


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
        assert bool(record.matrices["fid"].isfinite().tril().sum() == 3)
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


def planted(row, *, fid=1.0, kid=1.0, js=0.1, labels=(0.9, 0.9, 0.9, 0.9), data="fashion_mnist", seed=0, **matrices):
    """Four classes; distances that are the same in every cell, labels by step."""
    lower = torch.ones(4, 4, dtype=torch.float64).tril().masked_fill(torch.ones(4, 4).triu(1) > 0, NAN)
    found = {name: lower * {"fid": fid, "kid": kid, "js": js}.get(name, 0.2) for name in MEASURES}
    found["labels"] = lower * torch.tensor(labels, dtype=torch.float64)[:, None]
    nothing = {f"{name}.real": torch.zeros(4, dtype=torch.float64) for name in ("fid", "kid", "labels")}
    details = {"verdicts": {"0,0": "ok", "1,0": "refused"}, "pictures": [pack(torch.zeros(t, 2, 2)) for t in (1, 2)]}
    values = nothing | {"fid.pooled": torch.ones(4, dtype=torch.float64)}
    config = {"data": data, "row": row}
    return Record(config, seed, matrices=found | matrices, values=values, details=details, task_names=list("abcd"))


def all_rows(**worst):
    """Every row alike, with what `worst` says for reverse KL."""
    return [planted(row, **(worst if row == "f-GAN-rvKL" else {})) for row in ROWS]


@pytest.mark.parametrize(
    ("worst", "word"),
    [
        ({"fid": 9.0, "kid": 9.0, "js": 0.5}, "reproduced"),
        ({"fid": 9.0, "kid": 9.0, "js": 0.05}, "partly"),
        ({"fid": 0.5, "kid": 9.0, "js": 0.05}, "not"),
        ({"fid": 0.5, "kid": 0.5, "js": 0.05}, "not"),
    ],
)
def test_the_rule_of_the_measures(worst, word):
    assert EXPERIMENTS["cdre-fig3"].by_rule(all_rows(**worst)).word == word


def test_the_vae_is_no_gan_and_five_gans_are_needed():
    records = [planted(row, fid=9.0 if row == "VAE" else 3.0 if row == "f-GAN-rvKL" else 1.0) for row in ROWS]
    assert (
        "by FID, mean over classes after the last, the worst of the five GANs is f-GAN-rvKL"
        in EXPERIMENTS["cdre-fig3"].by_rule(records).why.partition("not hold")[0]
    )
    assert EXPERIMENTS["cdre-fig3"].by_rule(records[1:]).word == "not judged"


def test_one_that_diverged_is_the_worst():
    gone = torch.full((4, 4), NAN, dtype=torch.float64)
    records = [planted(row, **(dict.fromkeys(("fid", "kid", "js"), gone) if row == "WGAN" else {})) for row in ROWS]
    lost = [r for r in records if r.config["row"] == "WGAN"]
    for record in lost:
        record.details["diverged"] = "task 1: no number"
    why = EXPERIMENTS["cdre-fig3"].by_rule(records).why
    assert why.count("(it is WGAN)") == 3


def test_one_that_the_chain_refused_is_not_called_the_worst():
    gone = torch.full((4, 4), NAN, dtype=torch.float64)
    worst = {"fid": 9.0, "kid": 9.0, "js": 0.5}
    records = [planted(r, **(worst if r == "f-GAN-rvKL" else {"js": gone} if r == "WGAN" else {})) for r in ROWS]
    found = EXPERIMENTS["cdre-fig3"].by_rule(records)
    assert found.word == "partly"
    assert "it is f-GAN-rvKL, without WGAN, which the chain refused" in found.why


FALLS, STAYS = (0.9, 0.9, 0.9, 0.5), (0.9, 0.9, 0.8, 0.9)


@pytest.mark.parametrize(
    ("wgan", "gp", "word"),
    [(FALLS, FALLS, "reproduced"), (FALLS, STAYS, "partly"), (STAYS, FALLS, "partly"), (STAYS, STAYS, "not")],
)
def test_the_rule_of_the_samples(wgan, gp, word):
    records = [planted("WGAN", labels=wgan), planted("WGAN-GP", labels=gp)]
    assert EXPERIMENTS["cdre-fig4"].by_rule(records).word == word
    assert EXPERIMENTS["cdre-fig7"].by_rule(records[:1]).word == "not judged"


def ranked(order, *, cells=1.0, data="mnist"):
    """Rows with rising FID; js rises over rows in `order` and, for positive `cells`, with FID over the steps."""
    out = []
    steps = torch.arange(1.0, 5, dtype=torch.float64)[:, None] * torch.ones(4, 4, dtype=torch.float64)
    lower = steps.masked_fill(torch.ones(4, 4).triu(1) > 0, NAN)
    for i, row in enumerate(ROWS):
        js = order[i] + 0.1 * (cells * lower)
        out.append(planted(row, data=data, fid=1.0, js=1.0))
        out[-1].matrices.update(fid=10 * i + lower, js=js)
    return out


@pytest.mark.parametrize(
    ("records", "word"),
    [
        (ranked([1, 2, 3, 4, 5, 6]), "reproduced"),
        (ranked([6, 5, 4, 3, 2, 1]), "partly"),
        (ranked([1, 2, 3, 4, 5, 6], cells=-1.0), "partly"),
        (ranked([6, 5, 4, 3, 2, 1], cells=-1.0), "not"),
        (ranked([1, 2, 3, 4, 5, 6]) + ranked([6, 5, 4, 3, 2, 1], cells=-1.0, data="fashion_mnist"), "partly"),
        (ranked([1, 2, 3, 4, 5, 6])[1:], "not judged"),
    ],
)
def test_the_rule_of_agreement(records, word):
    experiment = EXPERIMENTS["beyond-matrix-images"]
    assert experiment.by_rule(records).word == word
    assert experiment.lines(records)


def test_agreement_over_generators_is_tau_of_their_ends():
    assert over_generators(ranked([1, 2, 3, 4, 5, 6]), "mnist", "fid") == [pytest.approx(1)]
    assert over_generators(ranked([2, 1, 3, 4, 5, 6]), "mnist", "fid") == [pytest.approx(13 / 15)]


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
