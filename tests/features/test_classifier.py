"""Features that tell classes apart, a head that grows, and labels that must be there."""

import pytest
import torch

from toys import blobs
from vestige import features
from vestige.core.errors import InputError

DATA = blobs(n_classes=4, per_class=30)
X, Y = DATA.floats(DATA.train_x), DATA.train_y
TEST, TEST_Y = DATA.floats(DATA.test_x), DATA.test_y


@pytest.fixture(scope="module")
def grown():
    """Fitted on two classes, then two more with some of the old in place of generated samples."""
    old = Y < 2
    feature_map = features.build("classifier", epochs=3, batch_size=20).fit(X[old], Y[old])
    first = feature_map.copy()
    new = ~old
    feature_map.update(X[new], X[old], y_new=Y[new], y_generated=Y[old])
    return first, feature_map


def test_it_learns_the_classes_and_keeps_the_old_ones(grown):
    first, feature_map = grown
    assert first.report_["classes"] == 2
    assert feature_map.report_["classes"] == 4
    with torch.no_grad():
        right = feature_map.net_(TEST[:, None]).argmax(1) == TEST_Y
    assert float(right.float().mean()) > 0.9


def test_features_are_the_last_hidden_layer(grown):
    feature_map = grown[1]
    codes = feature_map(TEST)
    assert codes.shape == (len(TEST), 64)
    with torch.no_grad():
        torch.testing.assert_close(feature_map.net_.head(codes), feature_map.net_(TEST[:, None]))


def test_flat_rows_need_the_shape_of_an_image():
    flat = X.flatten(1)
    with pytest.raises(InputError, match="option 'image'"):
        features.build("classifier").fit(flat, Y)
    small = {"epochs": 1, "dims": 4}
    one = features.build("classifier", image=(6, 6), **small).fit(flat, Y)
    assert torch.equal(one(flat), features.build("classifier", **small).fit(X, Y)(X))


def test_refusals():
    make = features.build
    with pytest.raises(InputError, match="learns from labels"):
        make("classifier").fit(X)
    with pytest.raises(InputError, match="at least 2 classes"):
        make("classifier").fit(X, torch.zeros(len(X)))
    with pytest.raises(InputError, match="120 long"):
        make("classifier").fit(X, Y[:5])
    with pytest.raises(InputError, match="'dims' of Classifier"):
        make("classifier", dims=0)
    with pytest.raises(InputError, match="'hidden' of Classifier"):
        make("classifier", hidden=(0,))


def test_an_update_without_labels_is_refused(grown):
    with pytest.raises(InputError, match=r"ClassifierFeatures\.update must be given"):
        grown[0].copy().update(X)


def test_the_presets_have_the_settings_of_the_appendix():
    paper, literal = (features.build("classifier", preset=name) for name in ("paper", "literal"))
    assert (paper.dims, paper.epochs, paper.batch_size, paper.learning_rate, paper.weight_decay) == (
        64,
        100,
        100,
        1e-3,
        0.0,
    )
    assert (paper.hidden, literal.hidden) == ((), (6272,))
