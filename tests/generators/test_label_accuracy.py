"""Ten digits learnt one after another, each from its own samples once its data is gone: are they still told apart?"""

import warnings

import pytest
import torch

import have
from vestige import data, features
from vestige.core.errors import VestigeWarning
from vestige.generators import build

pytestmark = [pytest.mark.data, pytest.mark.slow]

KEPT = 0.8
GENERATORS = {
    "vae": ("vae", {}),
    "js": ("fgan", {"divergence": "js"}),
    "kl": ("fgan", {"divergence": "kl"}),
    "reverse_kl": ("fgan", {"divergence": "reverse_kl"}),
    "hellinger": ("fgan", {"divergence": "hellinger"}),
    "pearson": ("fgan", {"divergence": "pearson"}),
    "wgan_gp": ("wgan_gp", {}),
}


@pytest.fixture(scope="module")
def digits():
    have.data_set("mnist")
    found = data.load("mnist")
    rows = {c: (found.train_y == c).nonzero().flatten()[:1500] for c in range(10)}
    return {c: found.floats(found.train_x[own]) for c, own in rows.items()}


@pytest.fixture(scope="module")
def judge(digits):
    labels = torch.arange(10).repeat_interleave(1500)
    return features.build("classifier", epochs=3).fit(torch.cat(list(digits.values())), labels)


@pytest.mark.parametrize("name", GENERATORS)
def test_samples_keep_their_labels_over_ten_tasks(name, digits, judge):
    kind, options = GENERATORS[name]
    generator = build(kind, preset="small", conditions=10, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)  # a class that narrows is another matter
        for c, x in digits.items():
            generator.fit(x, c, seed=1)
    called = {c: judge.called(judge.transform(generator.sample(300, c, seed=2))) for c in digits}
    found = {c: float((taken == c).double().mean()) for c, taken in called.items()}
    assert sum(found.values()) / len(found) >= KEPT, found
