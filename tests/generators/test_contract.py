"""What every generator promises: one row each, the same promises for all.

A new generator adds its name to `GENERATORS` in `vestige.generators` and its row to `ROWS` here. A test fails until it
is there.
"""

import functools

import numpy as np
import pandas as pd
import pytest
import torch

from toys import blobs
from vestige import generators, store
from vestige.core.errors import InputError, NotFitted, StoreError, VestigeError
from vestige.generators.base import spread

# so little training may leave samples that hardly differ
pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
GAN = {"hidden": (16, 16), "critic_hidden": (16, 16), "codes": 4, "batch_size": 16, "steps": 10}
PER_CLASS = {"epochs": 2, "batch_size": 16, "learning_rate": 5e-3}
ROWS = {
    "fgan": GAN,
    "copula": {},
    "gan_conv": {**PER_CLASS, "filters": (4, 2)},
    "gan_dense": {**PER_CLASS, "widths": (16, 16), "critic_widths": (16,)},
    "mixture": {},
    "trees": {},
    "vae": {"codes": 3, "encoder": (16,), "decoder": (16, 16), "batch_size": 16, "steps": 30},
    "wgan": GAN,
    "wgan_gp": GAN,
}
# enough to tell conditions apart, and to forget
QUICK = {"steps": 100, "learning_rate": 5e-3, "critic_learning_rate": 5e-3}
LONGER = {
    "fgan": QUICK,
    "gan_conv": {"epochs": 20},
    "gan_dense": {"epochs": 20},
    "vae": {"steps": 150},
    "wgan": QUICK,
    "wgan_gp": QUICK,
}
# a density for each condition: no steps, no pixels, and little chance in the fit
TABULAR = ["copula", "mixture", "trees"]
MOST_KEYS = 12  # of a state that are taken out, one at a time
LONGER |= {name: {} for name in TABULAR}
# one network for each condition: nothing is replayed, and nothing is forgotten
APART = ["gan_conv", "gan_dense", *TABULAR]
SIDE = 4
DATA = blobs(n_classes=3, per_class=60, side=SIDE)
X, Y = DATA.floats(DATA.train_x), DATA.train_y


def make(name, **options):
    return generators.build(name, shape=(SIDE, SIDE), conditions=3, **{**ROWS[name], **options})


@pytest.mark.parametrize("name", ROWS)
def test_a_widened_one_draws_what_it_drew_and_learns_more(name):
    narrow = generators.build(name, shape=(SIDE, SIDE), conditions=2, **ROWS[name])
    narrow.fit(X[Y < 2], Y[Y < 2], seed=1)
    wide = narrow.widened(3, seed=2)
    assert (narrow.conditions, wide.conditions) == (2, 3)
    asked = torch.tensor([0, 1, 1, 0])
    torch.testing.assert_close(wide.sample_each(asked, seed=3), narrow.sample_each(asked, seed=3))
    state = wide.state_dict()
    again = make(name).load_state_dict(state)
    assert torch.equal(again.sample_each(asked, seed=3), wide.sample_each(asked, seed=3))
    wide.fit(X[Y == 2], 2, seed=4)
    assert wide.known_ == (0, 1, 2)
    assert narrow.known_ == (0, 1)
    with pytest.raises(InputError, match="'conditions' of"):
        wide.widened(2)


@functools.cache
def taught(name, upto):
    generator = make(name)
    for c in range(upto):
        generator.fit(X[c == Y], c, seed=c)
    return generator


def learnt(name, upto=2):
    """A generator of the test's own that has learnt `upto` conditions; teaching it is done once."""
    return taught(name, upto).copy()


@functools.cache
def given_both(name):
    """One that has learnt condition 1 and, from what it was given as replay, 0; tests draw from it alone."""
    return make(name, **LONGER[name]).fit(X[Y == 1], 1, {0: X[Y == 0]})


def brief(name):
    """As little training as there is, where only what goes in matters."""
    return make(name, **({} if name in TABULAR else {"epochs": 1} if "epochs" in ROWS[name] else {"steps": 3}))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_every_generator_has_a_row():
    assert ROWS.keys() == generators.GENERATORS.keys()
    assert all(kind.name == name for name, kind in generators.GENERATORS.items())


def test_unknown_names_presets_and_options_are_refused():
    with pytest.raises(InputError, match=r"Did you mean 'wgan_gp'\?"):
        generators.build("wgan_pg")
    with pytest.raises(InputError, match="'options' of generators 'vae' must be one of"):
        generators.build("vae", code=3)
    with pytest.raises(InputError, match="'preset' of generators 'vae' must be one of"):
        generators.build("vae", preset="smal")


@pytest.mark.parametrize("name", ROWS)
class TestGenerator:
    def test_a_small_preset_for_experiments_and_one_of_the_paper_s_size(self, name):
        if name in TABULAR:
            assert not generators.GENERATORS[name].presets
            return
        small, paper = (generators.GENERATORS[name].presets[preset] for preset in ("small", "paper"))
        assert generators.build(name, preset="small", shape=[SIDE, SIDE]).shape == (SIDE, SIDE)
        assert small != paper

    def test_same_seed_same_bits_arguments_and_global_generator_untouched(self, name):
        x, y, state = X.clone(), Y.clone(), torch.random.get_rng_state()
        replay = {2: X[Y == 2].clone()}
        one, two = (make(name).fit(x[y < 1], 0, seed=3).fit(x[y == 1], 1, replay, seed=4) for _ in range(2))
        assert same(one.state_dict(), two.state_dict())
        assert one.report_ == two.report_
        assert torch.equal(one.sample(9, 0, seed=5), two.sample(9, 0, seed=5))
        assert torch.equal(x, X)
        assert torch.equal(y, Y)
        assert torch.equal(replay[2], X[Y == 2])
        assert torch.equal(state, torch.random.get_rng_state())

    def test_seeds_matter(self, name):
        one, other = (brief(name).fit(X[Y == 0], 0, seed=seed) for seed in (0, 1))
        assert torch.equal(one.sample(5, 0), other.sample(5, 0)) is (name in TABULAR)
        assert not torch.equal(one.sample(5, 0, seed=0), one.sample(5, 0, seed=1))

    def test_samples_have_the_shape_of_the_data_and_sampling_changes_nothing(self, name):
        generator = learnt(name)
        before, modes = generator.state_dict(), [net.training for net in generator._nets()]
        drawn = generator.sample(7, 1, seed=2)
        assert drawn.shape == (7, SIDE, SIDE)
        assert drawn.dtype == torch.float32
        assert not drawn.requires_grad
        assert torch.equal(generator.sample(7, 1, seed=2), drawn)
        assert same(generator.state_dict(), before)
        assert [net.training for net in generator._nets()] == modes
        each = generator.sample_each([0, 1, 0, 1], seed=2)
        assert torch.equal(generator.sample_each(np.array([0, 1, 0, 1]), seed=2), each)

    def test_conditions_differ(self, name):
        """What it draws differs between conditions in the direction in which the data does."""
        generator = given_both(name)
        real, drawn = (torch.stack([x.mean(0) for x in (a, b)]).flatten(1) for a, b in (
            (X[Y == 0], X[Y == 1]), (generator.sample(200, 0), generator.sample(200, 1))
        ))  # fmt: skip
        apart, drawn_apart = real[0] - real[1], drawn[0] - drawn[1]
        assert float(apart @ drawn_apart) > 0.1 * float(apart.square().sum())

    def test_many_conditions_at_once_are_each_learnt(self, name):
        generator = make(name).fit(X, Y)
        assert generator.known_ == (0, 1, 2)
        assert generator.report_["learnt"] == [0, 1, 2]
        assert generator.report_["replayed"] == []
        assert generator.sample_each([0, 1, 2]).shape == (3, SIDE, SIDE)

    @pytest.mark.slow
    def test_replay_is_its_own_samples_unless_given(self, name):
        """Without replay it forgets; what it draws itself holds it; one network a condition needs neither."""
        # gates protect a condition as well, so they are open here
        options = {} if name in APART else {**LONGER[name], "keep": 1.0}
        first = make(name, **options).fit(X[Y == 0], 0)
        kept, forgot = (first.copy().fit(X[Y == 1], 1, replay) for replay in (None, {}))
        assert kept.report_["replayed"] == ([] if name in APART else [0])
        assert forgot.report_["replayed"] == []
        if name in APART:
            assert torch.equal(kept.sample(9, 0), first.sample(9, 0))
            assert torch.equal(forgot.sample(9, 0), first.sample(9, 0))
            return
        one, other = X[Y == 0].mean(0), X[Y == 1].mean(0)
        # where samples of condition 0 lie between the data of 1 (0) and their own (1)
        at = [float(((g.sample(300, 0).mean(0) - other) * (one - other)).sum()) for g in (kept, forgot)]
        at = [value / float((one - other).square().sum()) for value in at]
        assert at[0] > at[1] + 0.2

    def test_a_condition_that_was_given_as_replay_alone_is_known(self, name):
        """CDRE Fig. 1 taken by the letter: a new generator learns what the one before has drawn."""
        generator = given_both(name)
        assert generator.known_ == (0, 1)
        assert float(generator.spread_[0]) == pytest.approx(spread(X[Y == 0].flatten(1)))
        drawn, one, other = generator.sample(200, 0).mean(0), X[Y == 0].mean(0), X[Y == 1].mean(0)
        assert float((drawn - one).norm()) < float((drawn - other).norm())

    def test_it_comes_back_from_disk_as_it_was_and_goes_on_alike(self, name, tmp_path):
        generator = learnt(name)
        loaded = generators.load(generator.save(tmp_path / "generator.json"))
        assert type(loaded) is type(generator)
        assert loaded.config() == generator.config()
        assert loaded.report_ == generator.report_
        assert loaded.known_ == generator.known_
        assert same(loaded.state_dict(), generator.state_dict())
        assert torch.equal(loaded.sample(5, 1, seed=3), generator.sample(5, 1, seed=3))
        on, off = (g.fit(X[Y == 2], 2, seed=9).state_dict() for g in (loaded, generator))
        assert same(on, off)
        kind = type(generator)
        assert isinstance(kind.load(tmp_path / "generator.json"), kind)

    def test_a_state_that_does_not_fit_is_named_and_changes_nothing(self, name):
        generator = learnt(name, upto=1)
        before = generator.state_dict()
        with pytest.raises(StoreError, match="stray"):
            generator.load_state_dict(generator.state_dict() | {"stray": torch.zeros(1)})
        step = -(-len(before) // MOST_KEYS)  # trees have hundreds
        for key in list(before)[::step]:
            state = generator.state_dict()
            del state[key]
            with pytest.raises(StoreError, match=key):
                generator.load_state_dict(state)
        other = learnt(name, upto=1)
        other.known_ = (7,)
        with pytest.raises(StoreError, match="knows conditions"):
            generator.load_state_dict(store.to_tensors(other))
        assert same(generator.state_dict(), before)

    def test_a_state_is_a_copy_and_its_bytes_are_counted(self, name):
        generator = learnt(name, upto=1)
        before = generator.sample(4, 0)
        state = generator.state_dict()
        assert generator.bytes() == sum(value.nbytes for key, value in state.items() if key != "json")
        for value in state.values():
            value.zero_()
        assert torch.equal(generator.sample(4, 0), before)

    def test_a_copy_is_its_own(self, name):
        generator = learnt(name, upto=1)
        other, before = generator.copy(), generator.sample(4, 0)
        other.fit(X[Y == 1], 1)
        assert torch.equal(generator.sample(4, 0), before)
        assert generator.known_ == (0,)

    def test_unknown_conditions_are_refused(self, name):
        generator = learnt(name, upto=1)
        with pytest.raises(NotFitted, match="condition 1, which has not been learnt"):
            generator.sample(3, 1)
        with pytest.raises(NotFitted, match="condition 2, which has not been learnt"):
            generator.sample_each([0, 2])
        for call in (
            lambda: generator.sample(3, 3),
            lambda: generator.sample(3, -1),
            lambda: generator.sample(0, 0),
            lambda: generator.sample_each([0, 3]),
            lambda: generator.fit(X[:5], 3),
        ):
            with pytest.raises(InputError):
                call()

    def test_bad_input_is_refused_before_any_work(self, name):
        generator = learnt(name, upto=1)
        before, broken = generator.state_dict(), X[Y == 1].clone()
        broken[3, 1, 1] = float("nan")
        for bad, sentence in (
            (broken, "finite"),
            (X[:0], "at least"),
            (X[:1], "at least"),
            (torch.zeros(3, SIDE**2 - 1), f"{SIDE**2} features wide"),
            (torch.zeros(3, 2, 8), r"samples of shape \(4, 4\)"),
            ([["a", "b"]] * 3, "an array of numbers"),
        ):
            for call in (lambda x: generator.fit(x, 1), lambda x: generator.fit(X[Y == 1], 1, {0: x})):
                with pytest.raises(InputError, match=sentence):
                    call(bad)
        for call in (
            lambda: generator.fit(X[Y == 1], Y[Y == 1][1:]),
            lambda: generator.fit(X[Y == 1], 1, {1: X[Y == 1]}),
            lambda: generator.fit(X[Y == 1], 1, {5: X[Y == 1]}),
            *([] if name in TABULAR else [lambda: generator.fit(X[Y == 1] * 3 - 1, 1)]),
        ):
            with pytest.raises(InputError):
                call()
        assert same(before, generator.state_dict())
        assert generator.known_ == (0,)

    def test_kinds_of_rows(self, name):
        """Bytes, numpy arrays, flat rows and data frames are the same images as tensors of floats."""
        expected = brief(name).fit(X[Y == 0], 0).state_dict()
        rows = X[Y == 0]
        for x in (DATA.train_x[Y == 0], rows.numpy(), pd.DataFrame(rows.flatten(1).numpy())):
            assert same(brief(name).fit(x, 0).state_dict(), expected)

    def test_the_report_says_what_happened(self, name):
        told = []
        generator = make(name)
        generator.fit(X[Y == 0], 0, on_progress=lambda share, words: told.append((share, words)))
        report = generator.report_
        assert report["generator"] == name
        assert report["steps"] >= 1
        lengths = {len(curve) for curve in report["curves"].values()}
        assert len(lengths) == 1
        assert lengths.pop() >= 1
        assert all(np.isfinite(curve).all() for curve in report["curves"].values())
        assert report["collapsed"] in ([], [0])
        assert told
        assert all(0 <= share <= 1 for share, _ in told)
        assert store.canonical(report)

    def test_no_sample_is_kept(self, name):
        generator = learnt(name)
        rows = {row.numpy().tobytes() for row in X.flatten(1)}
        for tensor in generator.state_dict().values():
            if tensor.is_floating_point() and tensor.numel() % SIDE**2 == 0:
                assert not rows & {row.numpy().tobytes() for row in tensor.float().reshape(-1, SIDE**2)}

    def test_a_constant_output_is_said_to_have_collapsed(self, name):
        """Weights of zero draw one image again and again."""
        generator = learnt(name, upto=1)
        state = generator.state_dict()
        keep = ("json", "spread_")
        if name in TABULAR:  # such a density is refused when it is read
            with pytest.raises(StoreError, match="do not go together"):
                generator.load_state_dict({k: v if k in keep else torch.zeros_like(v) for k, v in state.items()})
            return
        generator.load_state_dict({k: v if k in keep else torch.zeros_like(v) for k, v in state.items()})
        assert spread(generator.sample(50, 0).flatten(1)) < 1e-4
        with pytest.warns(UserWarning, match="collapsed: its samples of condition 0"):
            generator._watch(0)
        assert generator.report_["collapsed"] == [0]

    def test_samples_that_are_no_numbers_are_refused(self, name):
        generator = learnt(name, upto=1)
        state = generator.state_dict()
        bad = {k: torch.full_like(v, float("nan")) if v.is_floating_point() and k != "spread_" else v
               for k, v in state.items()}  # fmt: skip
        if name in TABULAR:
            with pytest.raises(StoreError, match="do not go together"):
                generator.load_state_dict(bad)
            return
        generator.load_state_dict(bad)
        with pytest.raises(VestigeError, match="not finite"):
            generator._watch(0)
