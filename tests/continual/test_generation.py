"""The loop with a generator that knows the truth: numbers recomputed from outside, and views that see a drift."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from toys import blobs
from vestige import metrics
from vestige.continual import generation
from vestige.continual.generation import spread_over
from vestige.continual.record import Record
from vestige.core import Estimate, rng
from vestige.core.errors import InputError, NotEstimable
from vestige.data import split
from vestige.features import CVAE, PCA, ClassifierFeatures, VAEFeatures
from vestige.generators import Generator, build
from vestige.generators.pictures import unpack

DATA = blobs(n_classes=4, per_class=200)
SAMPLES = 200
FAST = {"estimator": "quadratic", "folds": 2, "names": ("js", "kl")}


class Level(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.zeros(()))


@dataclass(eq=False)
class Fading(Generator):
    """Draws real training rows of a class, with `fade` more noise at every step after it was learnt."""

    name: ClassVar[str] = "fading"
    shape: tuple[int, ...] = (6, 6)
    conditions: int = 4
    fade: float = 0.0
    diverge_at: int = 99

    def _build(self, seed):
        self.net_, self.rows_, self.born_ = Level(), {}, {}

    def _fit(self, source, seed, on_progress):
        if len(self.known_) >= self.diverge_at:
            raise NotEstimable("It diverged.")
        self.net_.level += 1
        for c, rows in source.real.items():
            self.rows_[c], self.born_[c] = rows.clone(), int(self.net_.level)
        on_progress(0.5, "half")
        return {"steps": 1, "curves": {"loss": [0.0]}}

    def _draw(self, conditions, noise):
        drawn = torch.empty(len(conditions), 36)
        for c in conditions.unique().tolist():
            at = conditions == c
            rows = self.rows_[c][torch.randint(len(self.rows_[c]), (int(at.sum()),), generator=noise)]
            age = int(self.net_.level) - self.born_[c]
            wild = torch.randn(rows.shape, generator=noise)
            drawn[at] = (rows + self.fade * age * wild).clamp(0, 1)
        return drawn


@pytest.fixture(scope="module")
def classifier():
    return ClassifierFeatures(dims=8, epochs=10, batch_size=40).fit(DATA.floats(DATA.train_x), DATA.train_y)


def stream(tasks=4):
    return split(DATA, 4 // tasks)


def made(classifier, fade=0.15, tasks=4, **options):
    settings = {"samples": SAMPLES, "features": PCA(dims=2), "chain": FAST} | options
    return generation.run(stream(tasks), Fading(fade=fade), classifier, **settings)


@pytest.fixture(scope="module")
def faded(classifier):
    return made(classifier, pictures=2)


def test_matrices_are_filled_below_the_diagonal_alone(faded):
    assert set(faded.matrices) == {"fid", "kid", "labels", "variety", "js", "kl"}
    for name in ("fid", "kid", "labels", "variety", "js"):
        assert torch.equal(faded.matrices[name].isfinite(), torch.ones(4, 4, dtype=torch.bool).tril()), name
    assert faded.task_names == [stream().info(k).name for k in range(4)]


def test_the_evaluator_s_numbers_are_those_of_the_metrics(faded, classifier):
    """The last row, drawn again and compared from outside."""
    tests, generator = stream().test_sets(), Fading(fade=0.15)
    for t, task in enumerate(stream()):
        generator.fit(task.x, task.y, seed=rng.child_seed(0, "fit", t))
    pooled = []
    for j in range(4):
        drawn = generator.sample(SAMPLES, j, seed=rng.child_seed(0, "sample", 3, j))
        p, q = classifier(tests[j].x).double(), classifier(drawn).double()
        pooled.append((p, q))
        assert float(faded.matrices["fid"][3, j]) == pytest.approx(metrics.fid(p, q).value, rel=1e-6)
        assert float(faded.matrices["kid"][3, j]) == pytest.approx(metrics.kid(p, q).value, rel=1e-6)
        share = (classifier.net_.head(classifier(drawn)).argmax(1) == j).double().mean()
        assert float(faded.matrices["labels"][3, j]) == float(share)
    p, q = (torch.cat(side) for side in zip(*pooled, strict=True))
    assert float(faded.values["fid.pooled"][3]) == pytest.approx(metrics.fid(p, q).value, rel=1e-6)
    assert float(faded.values["kid.pooled"][3]) == pytest.approx(metrics.kid(p, q).value, rel=1e-6)


def test_both_views_see_what_fades_and_agree(faded, classifier):
    still = made(classifier, fade=0.0)
    for name in ("fid", "js"):
        assert generation.forgetting(faded, name) > 5 * abs(generation.forgetting(still, name))
    assert generation.forgetting(faded, "js") > 0.1
    assert generation.agreement(faded, "fid", "js") > 0.5
    assert abs(generation.intransigence(still, "js")) < 0.05


def test_what_real_rows_get_is_the_reference(faded):
    """The generator draws real rows when a task is new: the diagonal is near what real rows get."""
    assert bool(faded.values["fid.real"].isfinite().all())
    off = faded.matrices["fid"].diagonal() - faded.values["fid.real"]
    assert float(off.abs().max()) < 0.3 * float(faded.matrices["fid"].nan_to_num().max())
    assert torch.equal(faded.values["labels.real"] > 0.9, torch.ones(4, dtype=torch.bool))


def test_two_classes_a_task_have_equal_shares(classifier):
    assert torch.bincount(spread_over((1, 3), 7)).tolist() == [0, 4, 0, 3]
    found = made(classifier, tasks=2)
    assert found.matrices["fid"].shape == (2, 2)
    assert float(found.matrices["labels"][0, 0]) > 0.9


def test_a_map_that_changes_keeps_samples_and_none_of_the_data(classifier):
    small = CVAE(dims=2, encoder=(16,), decoder=(16,), noise=0.01, epochs=5, batch_size=30, learning_rate=1e-2)
    found = made(classifier, features=small)
    assert small.shape_ is None  # the argument is as it was
    assert bool(found.matrices["js"].diagonal().isfinite().all())
    assert generation.forgetting(found, "js") > 0.1
    assert found.bytes["anchor samples"] == [SAMPLES * 36 * 4 * k for k in (1, 2, 3, 4)]


def test_a_map_that_is_learnt_anew_at_each_step_shows_no_drift_of_its_own(classifier):
    restless = VAEFeatures(
        dims=2, encoder=(16,), decoder=(16,), noise=0.01, epochs=5, batch_size=30, learning_rate=1e-2, warm=False
    )
    js = made(classifier, fade=0.0, tasks=2, features=restless).matrices["js"]
    assert 0 <= float(js[1, 0]) < 0.1


def test_same_seed_same_numbers_and_the_generator_is_left_alone(faded, classifier):
    generator = Fading(fade=0.15)
    options = {"samples": SAMPLES, "features": PCA(dims=2), "chain": FAST, "pictures": 2}
    again = generation.run(stream(), generator, classifier, **options)
    assert generator.known_ == ()
    for name, matrix in faded.matrices.items():
        torch.testing.assert_close(matrix, again.matrices[name], rtol=0, atol=0, equal_nan=True)
    other = generation.run(stream(), generator, classifier, **options, seed=1)
    assert not torch.equal(other.matrices["fid"].nan_to_num(), faded.matrices["fid"].nan_to_num())


def test_the_record_comes_back_with_its_pictures(faded, tmp_path):
    loaded = Record.load(faded.save(tmp_path))
    torch.testing.assert_close(loaded.matrices["js"], faded.matrices["js"], equal_nan=True)
    assert [unpack(p).shape for p in loaded.details["pictures"]] == [(2 * k, 6, 6) for k in (1, 2, 3, 4)]
    assert loaded.details["verdicts"].keys() == {f"{t},{j}" for t in range(4) for j in range(t + 1)}
    assert loaded.details["diverged"] == ""


def test_a_generator_that_diverges_ends_the_run_and_is_said(classifier):
    options = {"samples": SAMPLES, "features": PCA(dims=2), "chain": FAST}
    found = generation.run(stream(), Fading(diverge_at=2), classifier, **options)
    assert found.details["diverged"].startswith("task 3 of 4: It diverged")
    assert bool(found.matrices["fid"][2:].isnan().all())
    assert bool(found.matrices["fid"][1, :2].isfinite().all())
    assert math.isfinite(generation.forgetting(found, "fid"))


def test_a_chain_that_fails_says_no_more_while_the_evaluator_goes_on(classifier):
    wild = CVAE(dims=2, encoder=(8,), decoder=(8,), noise=0.01, epochs=20, batch_size=10, learning_rate=1e12)
    found = made(classifier, tasks=2, features=wild)
    assert found.details["chain"].startswith("task 1 of 2: The training of CVAE diverged")
    assert bool(found.matrices["js"].isnan().all())
    assert bool(found.matrices["fid"][1].isfinite().all())
    assert made(classifier, tasks=2).details["chain"] == ""


def test_a_view_of_ones_own_stands_beside_the_others(classifier):
    seen = []

    def watch(t, real, drawn):
        seen.append((t, tuple(real.shape), [tuple(x.shape) for x in drawn.values()]))
        told = {j: Estimate(10.0 * t + j, 0.0, 99.0) for j in drawn}
        return {"mine": told | ({0: Estimate.refused("no")} if t == 1 else {})}

    record = made(classifier, tasks=2, watch=watch)
    rows = (200, 6, 6)
    assert seen == [(0, seen[0][1], [rows]), (1, seen[1][1], [rows, rows])]
    assert seen[0][1][1:] == (6, 6)
    found = record.matrices["mine"]
    assert (float(found[0, 0]), float(found[1, 1])) == (0.0, 11.0)
    assert bool(found[0, 1].isnan() & found[1, 0].isnan())
    assert record.details["verdicts.mine"] == {"0,0": "ok", "1,0": "refused", "1,1": "ok"}
    assert bool((record.matrices["fid"] == made(classifier, tasks=2).matrices["fid"])[1].all())


def test_progress_is_told_in_order(classifier):
    told = []
    made(classifier, tasks=2, on_progress=lambda share, words: told.append((share, words)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] < 1
    assert told[-1][1] == "task 2 of 2: evaluated"


def test_what_cannot_be_classifierd_is_refused_first(classifier):
    for options, match in (({"samples": 50}, "'samples'"), ({"pictures": -1}, "'pictures'")):
        with pytest.raises(InputError, match=match):
            made(classifier, **options)
    with pytest.raises(InputError, match=r"'generator' of generation.run must be of at least 4 conditions"):
        generation.run(stream(), build("vae", shape=(6, 6), conditions=3), classifier)
    with pytest.raises(InputError, match=r"'classifier' of generation.run"):
        generation.run(split(blobs(side=7)), Fading(), classifier)
