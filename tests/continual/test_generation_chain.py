"""The chain with a map that tells what it was shown: data once, generated samples ever after, nothing of the data."""

import pytest
import torch

from vestige.chains import Chain
from vestige.continual.generation import FeatureChain
from vestige.features import Identity

N = 150
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")  # few rows


class Told(Identity):
    """Two numbers as they are, `scale` times as far with each step that it learnt from."""

    consistent = False

    def fit(self, x, y=None, **_):
        self.shown, self.scale = [dict(x)], 1.0
        return self

    def update(self, x, generated=None, **_):
        self.shown.append((dict(x), dict(generated)))
        self.scale *= 2.0
        return self

    def codes(self, x):
        return self.scale * x


def rows(task, seed):
    return 3.0 * task + torch.randn(N, 2, generator=torch.Generator().manual_seed(seed))


def feature_chain():
    return FeatureChain(Told(), Chain(estimator="quadratic", folds=2, names=("js",), min_samples=100))


@pytest.fixture
def gone():
    """A chain after two steps, and what there was: real rows by task, samples by step and task."""
    seen, real = feature_chain(), {j: rows(j, 10 + j) for j in (0, 1)}
    drawn = [{0: rows(0, 20)}, {0: rows(0, 21), 1: rows(1, 22)}]
    reports = [seen.step(t, real[t], drawn[t], seed=t) for t in (0, 1)]
    return seen, real, drawn, reports


def test_the_map_sees_the_new_task_s_data_and_samples_of_the_others(gone):
    seen, real, drawn, _ = gone
    first, (new, old) = seen.seen.shown
    assert first.keys() == {0}
    assert torch.equal(first[0], real[0])
    assert (new.keys(), old.keys()) == ({1}, {0})
    assert torch.equal(new[1], real[1])
    assert torch.equal(old[0], drawn[1][0])


def test_what_is_kept_are_the_samples_of_each_task_s_first_step(gone):
    seen, real, drawn, _ = gone
    assert seen.first.keys() == {0, 1}
    assert torch.equal(seen.first[0], drawn[0][0])
    assert torch.equal(seen.first[1], drawn[1][1])
    assert seen.bytes() == 2 * N * 2 * 4
    drawn[0][0].zero_()
    assert not (seen.first[0] == 0).any()
    held = [value.float() for value in seen.chain.state()[1].values() if value.ndim == 2 and value.shape[1] == 2]
    assert held, "the chain keeps samples"
    for scale in (1.0, 2.0):
        for own in real.values():
            assert all(float(torch.cdist(value, scale * own).min()) > 0 for value in held)


def test_a_map_that_moves_is_no_drift_and_a_generator_that_does_is(gone):
    seen, _, _, reports = gone
    assert [sorted(report) for report in reports] == [[0], [0, 1]]
    assert reports[1][0].estimates["js"].value < 0.05
    moved = seen.step(2, rows(2, 12), {0: rows(0, 30) + 1.5, 1: rows(1, 31), 2: rows(2, 32)}, seed=2)
    assert moved[0].estimates["js"].value > 0.1
    assert moved[1].estimates["js"].value < 0.05


def test_a_map_that_stays_keeps_nothing():
    seen = feature_chain()
    seen.seen.consistent = True
    seen.step(0, rows(0, 10), {0: rows(0, 20)}, seed=0)
    assert seen.first == {}
    assert seen.bytes() == 0
