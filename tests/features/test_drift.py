"""The drift of codes: its closed form, and that Eq. 15's tie keeps it small, which is what the tie is for."""

import os

import pytest
import torch

from vestige import data, features
from vestige.core.errors import InputError
from vestige.data import SOURCES, loading
from vestige.features.base import relative_drift


def test_the_drift_of_a_known_movement():
    g = torch.Generator().manual_seed(0)
    before = torch.randn(4000, 3, generator=g, dtype=torch.float64) * torch.tensor([1.0, 2.0, 0.5])
    spread = float(before.var(0, correction=0).sum())
    assert relative_drift(before, before) == 0
    assert relative_drift(before, before + torch.tensor([0.3, 0.0, -0.4])) == pytest.approx(0.25 / spread)
    centred = before - before.mean(0)
    assert relative_drift(centred, 1.5 * centred) == pytest.approx(0.25)
    shuffled = before[torch.randperm(4000, generator=g)]
    assert relative_drift(before, shuffled) == pytest.approx(2, rel=0.05)
    with pytest.raises(InputError, match="the same code for all"):
        relative_drift(torch.ones(5, 2), before[:5, :2])


def digits():
    """Four classes, one a task: rows to learn from, others in place of a generator's, and rows never seen."""
    found = data.load("digits")
    x, y, test = found.floats(found.train_x), found.train_y, found.floats(found.test_x)
    by_class = {c: x[y == c] for c in range(4)}
    real, generated = ({c: rows[part] for c, rows in by_class.items()} for part in (slice(70), slice(70, None)))
    return real, generated, {c: test[found.test_y == c] for c in range(4)}


SMALL = {
    "dims": 16,
    "encoder": (64,),
    "decoder": (64,),
    "noise": 0.01,
    "epochs": 12,
    "batch_size": 35,
    "learning_rate": 2e-3,
}


def test_the_tie_keeps_codes_in_place():
    """From the second update on: one class of digits alone gives codes too poor to divide by their variance."""
    drifts = [
        features.drift_by_step(features.build(kind, **SMALL, **options), *digits())[1:]
        for kind, options in (("cvae", {}), ("vae", {}), ("vae", {"warm": False}))
    ]
    for tied, free, anew in zip(*drifts, strict=True):
        assert tied < 0.6 * free
        assert free < 0.5 * anew


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("VESTIGE_DATA"), reason="VESTIGE_DATA is not set")
def test_the_tie_keeps_codes_in_place_on_mnist():
    if loading.find_npz(SOURCES["mnist"], None) is None:
        pytest.skip("mnist is not in VESTIGE_DATA")
    found = data.load("mnist", download=False)
    by_class = {c: found.train_x[found.train_y == c] for c in range(4)}
    real, generated = ({c: rows[part] for c, rows in by_class.items()} for part in (slice(500), slice(500, 1000)))
    held = {c: found.test_x[found.test_y == c][:500] for c in range(4)}
    maps = [features.build(name) for name in ("cvae", "vae")]
    tied, free = (features.drift_by_step(each, real, generated, held) for each in maps)
    for a, b in zip(tied, free, strict=True):
        assert a < 0.6 * b


def test_refusals():
    real, generated, held = digits()
    pca = features.build("pca", dims=2)
    with pytest.raises(InputError, match="at least 2 tasks"):
        features.drift_by_step(pca, {0: real[0]}, generated, held)
    pca.fit(real[0])
    with pytest.raises(InputError, match=r"as wide as 'before' \(2 features\)"):
        features.code_drift(pca, features.build("pca", dims=3).fit(real[0]), held[0])


def test_a_consistent_map_does_not_drift():
    assert features.drift_by_step(features.build("pca", dims=4), *digits()) == [0, 0, 0]


def gaussian_kl(a, b):
    """KL of two Gaussians with the moments of `a` and of `b`."""
    mean, cov = [z.mean(0) for z in (a, b)], [torch.cov(z.T) for z in (a, b)]
    gap, inverse = mean[1] - mean[0], torch.linalg.inv(cov[1])
    log_det = torch.logdet(cov[1]) - torch.logdet(cov[0])
    return float(0.5 * (torch.trace(inverse @ cov[0]) + gap @ inverse @ gap - len(gap) + log_det))


def test_samples_kept_raw_and_encoded_anew_show_no_drift_where_kept_codes_do():
    """Two draws of one law, so the truth is 0: codes of an older map against the newest show the map's movement."""
    real, generated, _ = digits()
    small = SMALL | {"dims": 3, "noise": 0.005}
    feature_map = features.build("vae", **small).fit({0: real[0]})
    kept = {0: generated[0]}  # what a chain keeps: generated samples of the first step
    old_codes = feature_map.transform_each(kept)[0]
    feature_map.update({1: real[1]}, kept)
    today = feature_map(real[0].double())  # the model has not moved
    encoded_anew, kept_as_codes = (gaussian_kl(z, today) for z in (feature_map.transform_each(kept)[0], old_codes))
    assert encoded_anew < 1  # 70 rows a side
    assert kept_as_codes > 10
