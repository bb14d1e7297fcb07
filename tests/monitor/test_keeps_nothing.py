"""No file of a monitor holds a real sample; without moments, none holds an average over real rows either."""

import numpy as np
import pytest
import torch

from monitor.real_bytes import KINDS, found_in, marked
from monitor.tiny import CHAIN
from vestige.monitor import Monitor

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
ANCHORED = {"strategy": "anchored", "names": ("kl", "js"), "epochs": 1, "warm_epochs": 1, "min_samples": 20}
CHAINS = {"anchored": ANCHORED, "keyframe": ANCHORED | {"strategy": "keyframe", "threshold": 1e-3}, "every-step": CHAIN}
N = 60


def generated(t, seed=0):
    """In single precision, as generators give them."""
    return (1000 + 0.02 * t + 1.1 * np.random.default_rng([t, seed]).normal(size=(N, 2))).astype(np.float32)


def walked(folder, **options):
    """Two steps, and a second task in the second."""
    monitor = Monitor.create(folder, **options)
    for t in (1, 2):
        tasks = ["a", "b"][:t]
        model = {task: generated(t, i) for i, task in enumerate(tasks)}
        monitor.step({tasks[-1]: marked(N, t)}, model, seed=10 + t)
    return monitor


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keep_moments"), [("anchored", False), ("keyframe", True), ("every-step", True)])
def test_no_file_holds_a_real_value(name, keep_moments, tmp_path):
    monitor = walked(tmp_path, chain=CHAINS[name], keep_moments=keep_moments)
    real = np.concatenate([marked(N, 1), marked(N, 2)])
    assert found_in(tmp_path, real) == []
    assert found_in(tmp_path, np.concatenate([generated(1), generated(2)])) != []  # what may be kept is found
    for x in monitor.chain.state()[1].values():  # nor in coordinates of their own
        if x.ndim == 2 and x.shape[1] == 2:
            assert float(torch.cdist(x.double(), torch.tensor(real)).min()) > 1e-3


@pytest.mark.parametrize("features", [{"map": "pca", "dims": 2}, {"map": "pca", "dims": 1, "whiten": True}])
def test_no_file_holds_a_feature_of_a_real_sample(features, tmp_path):
    monitor = walked(tmp_path, features=features, chain=CHAIN)
    real = np.concatenate([marked(N, 1), marked(N, 2)])
    codes = monitor._features().transform(real)
    assert found_in(tmp_path, real) == []
    assert found_in(tmp_path, codes, kinds=("<f8", ">f8")) == []
    assert found_in(tmp_path, monitor._features().transform(generated(2).astype(float)), kinds=("<f8",)) != []


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_value_is_found(kind, tmp_path):
    real = marked(5, 0)
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / ".000001.json.abcdefgh.part").write_bytes(b"abc" + real[3:4, 1].astype(kind).tobytes() + b"z")
    assert found_in(tmp_path, real) == [(".000001.json.abcdefgh.part", kind)]


def test_a_planted_number_in_words_is_found(tmp_path):
    real = marked(5, 0)
    (tmp_path / "x.json").write_text(f'{{"x": {float(real[2, 0])!r}}}')
    assert found_in(tmp_path, real) == [("x.json", "text")]


def averages(tensors):
    return [x.double() for key, x in tensors.items() if key.rpartition(".")[2] in ("shift", "scale")]


@pytest.mark.parametrize(("name", "keep_moments"), [("anchored", False), ("every-step", False), ("every-step", True)])
def test_without_moments_nothing_moves_with_the_mean_of_the_data(name, keep_moments, tmp_path):
    """Coordinates come from generated samples alone, so they are the same whatever the data was."""

    def chain_after(shift):
        monitor = Monitor.create(tmp_path / str(shift), chain=CHAINS[name], keep_moments=keep_moments)
        monitor.step({"a": marked(N, 1) + shift}, {"a": generated(1)}, seed=1)
        return monitor.chain

    here, there = (averages(chain_after(shift).state()[1]) for shift in (0.0, 0.3))
    assert len(here) == 2
    assert all(torch.equal(x, y) for x, y in zip(here, there, strict=True)) == (not keep_moments)


def test_without_moments_the_weights_are_the_ratios_own(tmp_path):
    """Balanced weights would give the means of the data away: under them the anchor samples have just these means."""
    off = {}
    for keep_moments in (True, False):
        monitor = Monitor.create(tmp_path / str(keep_moments), chain=ANCHORED, keep_moments=keep_moments)
        p, q = marked(300, 1), np.concatenate([generated(t) for t in range(5)])  # wider than the data
        monitor.step({"a": p}, {"a": q}, seed=1)
        samples, weights = monitor.chain.anchor_samples("a")
        off[keep_moments] = float((weights @ samples - torch.tensor(p).mean(0)).abs().max())
        w = monitor.chain.weights("a")
        assert torch.allclose(weights, w / w.sum()) == (not keep_moments)
    assert off[True] < 0.01 < off[False]


def test_what_is_kept_is_told(tmp_path):
    told = walked(tmp_path / "a", chain=CHAIN).kept()
    assert set(told.columns) == {"part", "name", "shape", "what", "gives away"}
    assert set(told[told.name.str.endswith(".samples")].what) == {"generated samples, and centres of them"}
    assert set(told[told.name.str.endswith("weights")].what) == {"a number for each generated sample"}
    moments = told[told.name.str.endswith(("shift", "scale"))].what
    assert set(moments) == {"mean and deviation of real and generated samples together"}
    told = walked(tmp_path / "b", chain=CHAIN, keep_moments=False).kept()
    assert not told.what.str.contains("real").any()
    told = walked(tmp_path / "c", features={"map": "pca", "dims": 2}, chain=CHAIN).kept()
    assert told[told.part == "features"].what.str.contains("principal directions").all()
