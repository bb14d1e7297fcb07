"""What every density promises: one row each, the same promises for all.

A new density adds its name to `DENSITIES` in `vestige.densities` and its row to `ROWS` here. A test fails until it is
there.
"""

import functools

import numpy as np
import pandas as pd
import pytest
import torch

from vestige import densities
from vestige.core.errors import InputError, NotFitted, StoreError
from vestige.densities.base import ROWS_TOGETHER

ROWS = {"copula": {}, "mixture": {"components": (1, 2)}, "trees": {}}
N = 1500
TABLES = ["copula", "trees"]  # those that take categories and missing values
KINDS = ("number", "category", "number", "number")


def numbers(n=N, seed=0):
    """Three dependent columns of numbers, on different scales."""
    noise = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    a = noise[:, 0]
    return torch.stack([100 + 20 * a, a + 0.8 * noise[:, 1], 0.01 * (noise[:, 2] - a)], 1)


def table(n=N, seed=0):
    """Numbers, a category, a column with many zeros, one with missing values."""
    x, g = numbers(n, seed).numpy(), np.random.default_rng(seed)
    code = np.clip(np.floor(1.5 + x[:, 1]), 0, 3)
    zero = np.where(g.random(n) < 0.4, 0.0, np.exp(x[:, 1]))
    gone = np.where(g.random(n) < 0.15, np.nan, x[:, 2])
    return torch.from_numpy(np.stack([x[:, 0], code, zero, gone], 1))


@functools.cache
def learnt(name):
    return densities.build(name, **ROWS[name]).fit(numbers(), seed=3)


@functools.cache
def learnt_table(name):
    return densities.build(name, **ROWS[name]).fit(table(), KINDS, seed=3)


def test_every_density_has_a_row():
    assert ROWS.keys() == densities.DENSITIES.keys()
    assert [name for name, kind in densities.DENSITIES.items() if kind.takes_missing] == TABLES
    assert [name for name, kind in densities.DENSITIES.items() if "category" in kind.takes] == TABLES


@pytest.mark.parametrize("name", ROWS)
class TestDensity:
    def test_same_seed_same_bits_and_the_global_generators_are_left_alone(self, name):
        before, theirs = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        again = densities.build(name, **ROWS[name]).fit(numbers(), seed=3)
        a, b = learnt(name).state_dict(), again.state_dict()
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
        assert torch.equal(again.draw(40, seed=5), learnt(name).draw(40, seed=5))
        assert not torch.equal(again.draw(40, seed=6), again.draw(40, seed=5))
        assert torch.equal(before, torch.random.get_rng_state())
        assert (theirs == np.random.get_state()[1]).all()  # noqa: NPY002

    def test_what_is_stored_draws_the_same(self, name, tmp_path):
        path = learnt(name).save(tmp_path / "density.json")
        loaded = densities.load(path)
        assert type(loaded) is type(learnt(name))
        assert loaded.config() == learnt(name).config()
        assert loaded.kinds_ == learnt(name).kinds_
        assert torch.equal(loaded.draw(30, seed=1), learnt(name).draw(30, seed=1))
        with pytest.raises(StoreError):
            densities.load(path.with_name("nothing.json"))

    def test_a_state_taken_over_draws_the_same(self, name):
        other = densities.build(name, **ROWS[name]).load_state_dict(learnt(name).state_dict())
        assert torch.equal(other.draw(30), learnt(name).draw(30))

    def test_a_stored_density_whose_parts_do_not_go_together_is_refused(self, name):
        state = learnt(name).state_dict()
        for key, value in state.items():
            if key != "json" and value.numel() and value.dtype != torch.bool:
                broken = torch.full_like(value, torch.nan if value.is_floating_point() else 9)
                if not torch.equal(broken, value):
                    with pytest.raises(StoreError):
                        learnt(name).copy().load_state_dict(state | {key: broken})

    def test_arguments_are_untouched_and_every_kind_of_array_is_read(self, name):
        x = numbers()
        for given in (x.clone(), x.numpy().copy(), pd.DataFrame(x.numpy()), x.tolist()):
            density = densities.build(name, **ROWS[name]).fit(given, ["number"] * 3, seed=3)
            kept = given.to_numpy() if isinstance(given, pd.DataFrame) else np.asarray(given)
            assert (kept == x.numpy()).all()
            assert torch.equal(density.draw(20), learnt(name).draw(20))

    def test_a_refusal_changes_nothing(self, name):
        density = learnt(name).copy()
        before = density.state_dict()
        with pytest.raises(InputError):
            density.fit(numbers() * torch.inf)
        assert all(torch.equal(before[key], value) for key, value in density.state_dict().items())

    def test_what_cannot_be_learnt_is_refused(self, name):
        density, owner = densities.build(name, **ROWS[name]), type(learnt(name)).__name__
        x = numbers()
        infinite = x.clone()
        infinite[3, 1] = torch.inf
        for given, kinds, sentence in (
            (x[: ROWS_TOGETHER - 1], None, f"'cells' of {owner}.fit must be at least 50 rows. Got 49"),
            (infinite, None, "finite"),
            (x[:, :0], None, "at least one column"),
            (x, ["number"] * 2, "'kinds' of .* must be one for each of 3 columns"),
            (x, ["number", "numbers", "number"], "Did you mean 'number'"),
            (x, ["number", "category", "number"], "column"),
        ):
            with pytest.raises(InputError, match=sentence):
                density.fit(given, kinds)
        with pytest.raises(NotFitted, match="draw was called before fit"):
            density.draw(3)
        for n in (0, -1, 2.5):
            with pytest.raises(InputError, match=r"'n' of .*\.draw"):
                learnt(name).draw(n)

    def test_fifty_rows_are_enough(self, name):
        drawn = densities.build(name, **ROWS[name]).fit(numbers(50)).draw(2000)
        assert drawn.shape == (2000, 3)
        assert drawn.dtype == torch.float64
        assert bool(drawn.isfinite().all())
        assert bool(((drawn.mean(0) - numbers(50).mean(0)).abs() < 0.35 * numbers(50).std(0)).all())

    @pytest.mark.parametrize("n", [50, 173, N])
    def test_nothing_is_kept_row_by_row_and_no_value_of_a_row(self, name, n):
        x = numbers(n)
        density = densities.build(name, **ROWS[name]).fit(x)
        values = set(x.flatten().tolist())
        for key, tensor in density.state_dict().items():
            if key != "json":
                assert n not in tensor.shape, key
                if tensor.is_floating_point():
                    assert not values & set(tensor.flatten().tolist()), key

    def test_draws_are_like_the_rows(self, name):
        x, drawn = numbers(4000, seed=1), densities.build(name, **ROWS[name]).fit(numbers(4000, seed=1)).draw(20_000)
        assert bool(((drawn.mean(0) - x.mean(0)).abs() < 0.04 * x.std(0)).all())
        assert bool((drawn.std(0) / x.std(0) - 1).abs().max() < 0.08)
        assert float((torch.corrcoef(drawn.T) - torch.corrcoef(x.T)).abs().max()) < 0.06
        levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
        apart = (drawn.quantile(levels, 0) - x.quantile(levels, 0)) / x.std(0)
        assert float(apart.abs().max()) < 0.1

    def test_columns_that_do_not_vary_stay_as_they_are(self, name):
        x = torch.cat([numbers(300), torch.full((300, 1), 7.0)], 1)
        drawn = densities.build(name, **ROWS[name]).fit(x).draw(500)
        torch.testing.assert_close(drawn[:, 3], torch.full((500,), 7.0, dtype=torch.float64), atol=0.02, rtol=0)

    def test_images_are_rows_of_numbers(self, name):
        x = torch.rand(120, 2, 3, generator=torch.Generator().manual_seed(0))
        assert densities.build(name, **ROWS[name]).fit(x).draw(5).shape == (5, 6)

    def test_settings_that_cannot_be_used_are_refused(self, name):
        with pytest.raises(InputError):
            densities.build(name, nonsense=1)
        fewest = {"mixture": "rows_a_component"}.get(name, "rows_a_bin")
        with pytest.raises(InputError, match=f"'{fewest}' of .* must be at least 50"):
            densities.build(name, **{fewest: 49})


@pytest.mark.parametrize("name", TABLES)
class TestTable:
    def test_categories_stay_within_their_codes_and_have_their_shares(self, name):
        x, drawn = table(), learnt_table(name).draw(20_000)
        shares = [(drawn[:, 1] == c).double().mean() for c in range(4)]
        assert sum(shares) == pytest.approx(1)
        assert shares == pytest.approx([float((x[:, 1] == c).double().mean()) for c in range(4)], abs=0.02)

    def test_missing_values_are_missing_as_often_and_nowhere_else(self, name):
        gone = learnt_table(name).draw(20_000).isnan().double().mean(0)
        assert gone[:3].tolist() == [0, 0, 0]
        assert float(gone[3]) == pytest.approx(float(table()[:, 3].isnan().double().mean()), abs=0.02)

    def test_an_atom_is_drawn_as_itself(self, name):
        x, drawn = table(), learnt_table(name).draw(20_000)
        assert float((drawn[:, 2] == 0).double().mean()) == pytest.approx(
            float((x[:, 2] == 0).double().mean()), abs=0.02
        )
        assert float(drawn[:, 2].min()) == 0

    def test_a_category_goes_with_the_number_that_it_depends_on(self, name):
        x, drawn = table(), learnt_table(name).draw(20_000)
        for c in range(4):
            mine, theirs = drawn[drawn[:, 1] == c, 0].mean(), x[x[:, 1] == c, 0].mean()
            assert abs(float(mine - theirs)) < 0.35 * float(x[:, 0].std())

    def test_categories_of_few_rows_are_counted_with_the_last_code(self, name):
        g = np.random.default_rng(0)
        codes = g.choice(5, 1000, p=[0.5, 0.3, 0.02, 0.02, 0.16])
        drawn = densities.build(name).fit(codes[:, None].astype(float), ["category"]).draw(5000).flatten()
        assert set(drawn.tolist()) == {0, 1, 4}
        assert float((drawn == 4).double().mean()) == pytest.approx(0.2, abs=0.04)

    def test_a_column_of_few_values_is_drawn_as_missing(self, name):
        x = numbers(400).clone()
        x[:360, 1] = torch.nan
        drawn = densities.build(name).fit(x).draw(300)
        assert bool(drawn[:, 1].isnan().all())
        assert not bool(drawn[:, [0, 2]].isnan().any())

    def test_what_is_stored_draws_the_same(self, name, tmp_path):
        loaded = densities.load(learnt_table(name).save(tmp_path / "density.json"))
        assert torch.equal(loaded.draw(50, seed=1).nan_to_num(-9), learnt_table(name).draw(50, seed=1).nan_to_num(-9))

    @pytest.mark.parametrize("bad", [-1.0, 0.5])
    def test_codes_that_are_none_are_refused(self, name, bad):
        x = table()
        x[7, 1] = bad
        with pytest.raises(InputError, match="codes 0"):
            densities.build(name).fit(x, KINDS)


def test_the_mixture_takes_neither_categories_nor_missing_values():
    with pytest.raises(InputError, match="'number' in every column"):
        densities.build("mixture").fit(table().nan_to_num(), KINDS)
    with pytest.raises(InputError, match="without missing values"):
        densities.build("mixture").fit(table())
