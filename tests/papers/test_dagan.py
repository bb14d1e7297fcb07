"""DAGAN: what of the generators' contract it keeps, and its own promises about examples and noise."""

import json

import numpy as np
import pytest
import torch

from toys import blobs
from vestige import store
from vestige.core.errors import InputError, NotEstimable, NotFitted, StoreError, VestigeWarning
from vestige.generators.base import spread
from vestige.generators.pictures import training_curves
from vestige_papers.lfiw.dagan import DAGAN, Classes

SIDE = 8
DATA = blobs(n_classes=3, per_class=12, side=SIDE)
X, Y = DATA.floats(DATA.train_x), DATA.train_y
TINY = {"filters": (4, 6), "critic_filters": (4, 6), "codes": 3, "batch_size": 8, "steps": 6, "collapse": 0.0}
OUTPUTS = ["moves", "pixels"]


def make(output="moves", **options):
    return DAGAN(shape=(SIDE, SIDE), output=output, **{**TINY, **options})


@pytest.fixture(scope="module", params=OUTPUTS)
def learnt(request):
    return make(request.param).fit(X, Y, seed=1)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("output", OUTPUTS)
def test_same_seed_same_bits_arguments_and_global_generator_untouched(output):
    x, y, state = X.clone(), Y.clone(), torch.random.get_rng_state()
    one, two, other = (make(output).fit(x, y, seed=seed) for seed in (3, 3, 4))
    assert same(one.state_dict(), two.state_dict())
    assert one.report_ == two.report_
    assert torch.equal(one.sample_from(x[:5], seed=5), two.sample_from(x[:5], seed=5))
    assert not torch.equal(one.sample_from(x[:5], seed=5), other.sample_from(x[:5], seed=5))
    assert torch.equal(x, X)
    assert torch.equal(y, Y)
    assert torch.equal(state, torch.random.get_rng_state())


def test_samples_depend_on_their_example_and_on_the_noise(learnt):
    before = learnt.state_dict()
    drawn = learnt.sample_from(X[:4], seed=2)
    assert drawn.shape == (4, SIDE, SIDE)
    assert not drawn.requires_grad
    assert bool(((drawn >= 0) & (drawn <= 1)).all())
    assert not torch.allclose(drawn, learnt.sample_from(X[4:8], seed=2), atol=1e-3)
    assert not torch.equal(drawn, learnt.sample_from(X[:4], seed=3))
    assert same(learnt.state_dict(), before)


def test_each_example_is_drawn_from_as_often_as_asked_in_its_order(learnt):
    many = learnt.sample_from(X[:3], each=2, seed=2)
    assert torch.equal(many, learnt.sample_from(X[[0, 0, 1, 1, 2, 2]], seed=2))
    assert torch.equal(learnt.sample_from(DATA.train_x[:3].numpy(), each=2, seed=2), many)  # bytes are the same image
    assert torch.equal(learnt.sample_from(X[:3].numpy().astype(np.float64), each=2, seed=2), many)


def test_an_example_may_be_of_a_class_that_was_never_seen(learnt):
    assert learnt.sample_from(torch.rand(2, SIDE, SIDE)).shape == (2, SIDE, SIDE)


def test_the_order_of_rows_and_the_names_of_classes_do_not_matter():
    order = torch.argsort(Y, stable=True)
    one, two = make().fit(X, Y), make().fit(X[order], 7 * Y[order] + 2)
    assert same(one.state_dict(), two.state_dict())


def test_it_sees_pairs_of_one_class_and_one_step_of_each_player_is_the_loss_s_own(monkeypatch):
    """The pairs that are dealt are of one class; without any pair, from one class alone, nothing else can be seen."""
    seen = []
    real = Classes.pairs

    def watched(self, n, noise):
        found = real(self, n, noise)
        seen.append((self, found))
        return found

    monkeypatch.setattr(Classes, "pairs", watched)
    make(critic_steps=2).fit(X, Y)
    labels = Y.sort().values
    assert len(seen) == 6 * 2 + 2  # and two to settle and to watch
    for classes, (a, b) in seen:
        assert torch.equal(classes.count, torch.tensor([12, 12, 12]))
        assert torch.equal(labels[a], labels[b])


def test_it_comes_back_from_disk_as_it_was(learnt, tmp_path):
    loaded = DAGAN.load(learnt.save(tmp_path / "dagan.json"))
    assert repr(loaded) == repr(learnt)
    assert loaded.report_ == learnt.report_
    assert same(loaded.state_dict(), learnt.state_dict())
    assert torch.equal(loaded.sample_from(X[:5], seed=3), learnt.sample_from(X[:5], seed=3))
    with pytest.raises(StoreError):
        store.load(tmp_path / "dagan.json", "generator")


def test_a_state_is_a_copy(learnt):
    before = learnt.state_dict()
    for value in learnt.state_dict().values():
        value.zero_()
    assert same(learnt.state_dict(), before)


def test_nothing_of_the_data_is_kept(learnt):
    """No stored tensor has a row of the data in it, and none is as large as one class of it."""
    for value in vars(learnt).values():
        assert not (isinstance(value, torch.Tensor) and value.numel() >= X[0].numel())
    rows = X.flatten(1)
    for value in learnt.state_dict().values():
        flat = value.flatten().float()
        if flat.numel() >= rows.shape[1]:
            windows = flat.unfold(0, rows.shape[1], 1)
            assert float(torch.cdist(windows, rows).min()) > 1e-3


def test_the_report_is_plain_json_and_draws_its_curves(learnt):
    report = json.loads(json.dumps(learnt.report_))
    assert report["steps"] == 6
    assert {len(curve) for curve in report["curves"].values()} == {6}
    assert set(report["curves"]) == {"generator", "critic", "distance", "penalty"}
    training_curves(learnt.report_, title="a title")


def test_the_spread_is_that_of_samples_of_one_example_beside_that_of_a_class(learnt):
    classes = [X[c == Y].flatten(1) for c in range(3)]
    real = np.sqrt(np.mean([spread(rows) ** 2 for rows in classes]))
    drawn = [spread(learnt.sample_from(x[None], each=400).flatten(1)) ** 2 for x in X]
    assert learnt.report_["spread"] == pytest.approx(np.sqrt(np.mean(drawn)) / real, rel=0.25)


def test_one_that_ignores_the_noise_is_said_to_have_collapsed():
    with pytest.warns(VestigeWarning, match="dagan has collapsed"):
        fallen = make(learning_rate=1e-12, collapse=0.9).fit(X, Y)
    assert fallen.report_["collapsed"] is True
    assert make(collapse=0.0).fit(X, Y).report_["collapsed"] is False


def test_training_that_diverges_is_refused_and_leaves_it_as_it_was(learnt):
    before, report = learnt.state_dict(), learnt.report_
    rate, learnt.critic_learning_rate = learnt.critic_learning_rate, 1e38
    with pytest.raises(NotEstimable, match="diverged"):
        learnt.fit(X, Y)
    learnt.critic_learning_rate = rate
    assert same(learnt.state_dict(), before)
    assert learnt.report_ is report


@pytest.mark.slow
def test_training_brings_what_is_made_of_one_image_nearer_to_its_class():
    """Bumps whose centre lies within 0.7 pixels of their class's: one of them, moved, must become the others."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(4).repeat_interleave(24)
    centre = 2.5 + 3 * torch.stack([y // 2, y % 2], 1) + 0.7 * (2 * torch.rand(len(y), 2, generator=g) - 1)
    rows, columns = ((torch.arange(SIDE) - centre[:, i, None]).square() for i in (0, 1))
    x = torch.exp(-(rows[:, :, None] + columns[:, None, :]) / 2)

    def distance(steps):
        """Energy distance between what is made of one image and the images of its class, mean over images."""
        options = {
            "filters": (8, 16),
            "critic_filters": (16, 32),
            "codes": 4,
            "learning_rate": 2e-3,
            "critic_learning_rate": 2e-3,
        }
        model = make(**options, steps=steps, critic_steps=5, batch_size=16, average=0.9).fit(x, y)
        found = []
        for i in range(0, len(x), 6):
            real, made = x[y == y[i]].flatten(1), model.sample_from(x[i, None], each=32).flatten(1)
            within = torch.cdist(made, made).mean() + torch.cdist(real, real).mean()
            found.append(float(2 * torch.cdist(made, real).mean() - within))
        return np.mean(found)

    assert distance(400) < 0.85 * distance(5)


def test_presets_build_and_differ():
    assert DAGAN(**DAGAN.presets["small"]) is not None
    assert DAGAN.presets["paper"]["critic_steps"] == 5
    assert DAGAN.presets["paper"]["output"] == DAGAN.presets["small_pixels"]["output"] == "pixels"
    assert DAGAN().betas == (0.0, 0.9)
    assert DAGAN().penalty == 10


BAD = [
    ({"output": "move"}, "Did you mean 'moves'"),
    ({"shape": (8,)}, r"\(h, w\) or \(c, h, w\)"),
    ({"filters": ()}, "at least 1 long"),
    ({"critic_filters": (0,)}, "critic_filters"),
    ({"layers": 0}, "layers"),
    ({"codes": 0}, "codes"),
    ({"steps": 0}, "steps"),
    ({"critic_steps": 0}, "critic_steps"),
    ({"batch_size": 1}, "batch_size"),
    ({"betas": (0.5,)}, "at least 2 long"),
    ({"betas": (0.5, 1.0)}, "betas"),
    ({"average": 1.0}, "average"),
    ({"learning_rate": 0.0}, "'learning_rate'"),
    ({"critic_learning_rate": float("inf")}, "critic_learning_rate"),
    ({"penalty": -1.0}, "penalty"),
    ({"collapse": 2.0}, "collapse"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=lambda v: str(v)[:30])
def test_settings_that_cannot_be_used_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        DAGAN(**options)


def test_bad_rows_are_refused_before_any_work(learnt):
    before = learnt.state_dict()
    bad = [
        (lambda: learnt.fit(X * 2, Y), "in \\[0, 1\\]"),
        (lambda: learnt.fit(X.clone().fill_(float("nan")), Y), "finite"),
        (lambda: learnt.fit(X[:, :4], Y), "64"),
        (lambda: learnt.fit(X, Y[:5]), "36 long"),
        (lambda: learnt.fit(X, Y - 1), "0 or larger"),
        (
            lambda: learnt.fit(X[:4], torch.tensor([0, 0, 1, 2])),
            "two images of each class at least. Got one of class 1",
        ),
        (lambda: learnt.sample_from(X[:2] - 1), "in \\[0, 1\\]"),
        (lambda: learnt.sample_from(X[:0]), "examples"),
        (lambda: learnt.sample_from(X[:2], each=0), "each"),
        (lambda: learnt.sample_from(X[:2, :3]), "64"),
    ]
    for call, words in bad:
        with pytest.raises(InputError, match=words):
            call()
    assert same(learnt.state_dict(), before)
    with pytest.raises(NotFitted, match="before fit"):
        make().sample_from(X[:2])
