"""The base with a generator so simple that everything can be counted: it draws a normal about its learnt mean."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from vestige import generators, store
from vestige.core.checks import learnt, option
from vestige.core.errors import InputError, NotEstimable, NotFitted, StoreError, VestigeWarning
from vestige.generators.base import ROWS, Generator, spread


class Means(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.register_buffer("mean", torch.zeros(k, d))
        self.dropout = nn.Dropout(0.5)  # whose mode shows


@dataclass(eq=False)
class Toy(Generator):
    """A condition's mean is what it saw of it in the batches of one epoch; samples are that mean plus noise."""

    name: ClassVar[str] = "toy"
    shape: tuple[int, ...] = option((2,), low=1)
    conditions: int = option(3, low=1)
    noise: float = 1.0
    fail: str = ""
    net_: nn.Module = learnt()

    def _build(self, seed):
        self.net_ = Means(self.conditions, 2)
        self.built_ = seed

    def _fit(self, source, seed, on_progress):
        if self.fail == "raise":
            self.net_.mean += 9
            raise NotEstimable("It diverged.")
        x, c = source.epoch(source.size * len(source.conditions), torch.Generator().manual_seed(seed))
        for k in c.unique().tolist():
            self.net_.mean[k] = x[c == k].mean(0) if self.fail != "nan" else torch.nan
        on_progress(1.0, "done")
        return {"steps": 1, "curves": {"seen": [float(len(x))]}, "share": torch.bincount(c).tolist()}

    def _draw(self, conditions, noise):
        modes.append(self.net_.training)
        drawn.append(len(conditions))
        return self.net_.mean[conditions] + self.noise * torch.randn(len(conditions), 2, generator=noise)


modes: list[bool] = []
drawn: list[int] = []
X = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))


def test_it_learns_one_condition_after_another_from_its_own_samples():
    toy = Toy().fit(X + 5, 0)
    torch.testing.assert_close(toy.net_.mean[0], (X + 5).mean(0))
    toy.fit(X - 5, 1)
    assert toy.known_ == (0, 1)
    assert toy.report_["replayed"] == [0]
    assert toy.report_["share"] == [4000, 4000]
    torch.testing.assert_close(toy.net_.mean[0], torch.tensor([5.0, 5.0]), atol=0.1, rtol=0)
    assert not torch.equal(toy.net_.mean[0], (X + 5).mean(0))  # of samples, not of the data
    torch.testing.assert_close(toy.sample(4000, 1).mean(0), torch.tensor([-5.0, -5.0]), atol=0.1, rtol=0)


def test_replay_that_is_given_is_what_is_replayed():
    toy = Toy().fit(X, 0)
    toy.fit(X, 1, {0: torch.full((3, 2), 7.0)})
    assert toy.net_.mean[0].tolist() == [7, 7]
    toy.fit(X, 2, {})
    assert toy.report_["replayed"] == []
    assert toy.net_.mean[0].tolist() == [7, 7]


def test_a_condition_that_comes_again_is_learnt_anew_and_not_replayed():
    toy = Toy().fit(X, 0).fit(X + 3, 0)
    assert toy.report_["replayed"] == []
    torch.testing.assert_close(toy.net_.mean[0], (X + 3).mean(0))
    assert toy.known_ == (0,)


def test_replay_comes_from_the_generator_as_it_was_before_the_call():
    """Training begins by overwriting means; what is replayed must not notice."""

    class Hasty(Toy):
        def _fit(self, source, seed, on_progress):
            self.net_.mean.fill_(100.0)
            return super()._fit(source, seed, on_progress)

    hasty = Hasty().fit(X, 0).fit(X, 1)
    torch.testing.assert_close(hasty.net_.mean[0], torch.zeros(2), atol=0.1, rtol=0)


def test_networks_begin_once_with_a_seed_of_their_own():
    toy = Toy()
    toy.fit(X, 0, seed=4)
    first = toy.built_
    assert first != 0
    assert Toy().fit(X, 0, seed=5).built_ != first
    assert toy.fit(X, 1, seed=6).built_ == first


def test_what_diverges_leaves_the_generator_as_it_was():
    toy = Toy().fit(X, 0)
    before, report = toy.state_dict(), toy.report_
    for fail in ("raise", "nan"):
        toy.fail = fail
        with pytest.raises(NotEstimable, match="diverged"):
            toy.fit(X, 1)
        assert all(torch.equal(value, before[key]) for key, value in toy.state_dict().items() if key != "json")
        assert toy.known_ == (0,)
        assert toy.report_ is report


def test_spread_is_the_root_mean_square_distance_of_a_pixel():
    rows = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    assert spread(rows) == pytest.approx(((1 + 4) / 2) ** 0.5)


@pytest.mark.parametrize(("noise", "fallen"), [(1.0, []), (0.11, []), (0.09, [0]), (0.0, [0])])
def test_a_collapse_is_told_by_the_spread_of_the_data(noise, fallen):
    """The data has deviation 1, and the default share is a tenth."""
    x = (X - X.mean(0)) / X.std(0, correction=0)
    toy = Toy(noise=noise)
    if fallen:
        with pytest.warns(VestigeWarning, match="toy has collapsed: its samples of condition 0 hardly differ"):
            toy.fit(x, 0)
    else:
        toy.fit(x, 0)
    assert toy.report_["collapsed"] == fallen
    assert float(toy.spread_[0]) == pytest.approx(1)


def test_the_collapse_of_an_earlier_condition_is_told_too():
    toy = Toy().fit(X, 0)
    toy.noise = 0.01
    with pytest.warns(VestigeWarning, match="condition 0, 1 hardly"):
        toy.fit(X, 1)
    assert Toy(noise=0.01, collapse=0.0).fit(X, 0).report_["collapsed"] == []


def test_data_that_does_not_vary_has_not_collapsed():
    assert Toy(noise=0.0).fit(torch.ones(5, 2), 0).report_["collapsed"] == []


def test_drawing_is_in_parts_in_testing_mode_and_gives_the_mode_back():
    toy = Toy().fit(X, 0)
    assert toy.net_.training
    modes.clear()
    drawn.clear()
    assert toy.sample(ROWS + 5, 0).shape == (ROWS + 5, 2)
    assert drawn == [ROWS, 5]
    assert modes == [False, False]
    assert toy.net_.training
    toy.net_.eval()
    toy.sample(2, 0)
    assert not toy.net_.training


def test_each_sample_is_of_the_condition_asked_for():
    toy = Toy(noise=0.01, collapse=0.0).fit(X + 5, 0).fit(X - 5, 2)
    tasks = [0, 2, 2, 0, 2]
    assert (toy.sample_each(tasks).mean(1) > 0).tolist() == [task == 0 for task in tasks]


def test_rows_of_several_conditions_come_in_any_order():
    y = torch.arange(4000) % 2
    toy = Toy().fit(X + 10 * y[:, None], y)
    torch.testing.assert_close(toy.net_.mean[1], X[y == 1].mean(0) + 10)
    assert toy.report_["learnt"] == [0, 1]


def test_settings_that_cannot_be_used_are_refused():
    for options, match in (
        ({"shape": (0,)}, "'shape' of Toy"),
        ({"conditions": 0}, "'conditions' of Toy"),
        ({"collapse": -0.1}, "'collapse' of Toy"),
        ({"collapse": 1.5}, "'collapse' of Toy"),
    ):
        with pytest.raises(InputError, match=match):
            Toy(**options)


def test_before_fit_nothing_can_be_drawn():
    with pytest.raises(NotFitted, match=r"Toy.sample was asked for condition 1"):
        Toy().sample(3, 1)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = store.save(tmp_path / "x.json", "generator", {"config": {"generator": "toy"}, "report": {}}, {})
    with pytest.raises(StoreError, match="earlier version of Vestige: write it anew"):
        generators.load(path)
    other = store.save(tmp_path / "y.json", "features", {"config": {}}, {})
    with pytest.raises(StoreError):
        generators.load(other)


def test_a_generator_of_another_kind_is_refused(tmp_path):
    saved = generators.build("vae", shape=(2, 2), encoder=(4,), decoder=(4,)).save(tmp_path / "vae.json")
    assert isinstance(generators.VAE.load(saved), generators.VAE)
    with pytest.raises(StoreError, match=r"must be a Toy. Got 'VAE' instead"):
        Toy.load(saved)
