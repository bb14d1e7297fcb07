import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.ensemble import RandomForestClassifier

from vestige.core.errors import InputError, StoreError
from vestige.store import decode, encode
from vestige.vestiges.drift_test import Dictionary, DriftTest, trees
from vestige.vestiges.drift_test import test as drift
from vestige.vestiges.drift_test.columns import CodedColumn
from vestige.vestiges.drift_test.narrowing import excesses, narrowed, pool_excess
from vestige.vestiges.drift_test.null import MAX, SMALLEST, SUM, TAIL, Null, Tables, _matched_gamma

pytestmark = pytest.mark.full_training
KINDS = ("number", "number", "number", "category", "number")


def table(n, seed=0):
    """Numbers that depend on each other, a category with rare codes, a column with zeros and missing cells."""
    generator = np.random.default_rng(seed)
    a = generator.normal(size=n)
    b, c = 0.7 * a + generator.normal(size=n), generator.normal(size=n)
    category = np.minimum(generator.geometric(0.4, n) - 1, 9).astype(float)
    sparse = np.where(generator.random(n) < 0.5, 0.0, generator.exponential(size=n))
    sparse[generator.random(n) < 0.1] = np.nan
    return torch.as_tensor(np.stack([a, b, c, category, sparse], 1))


@pytest.fixture(scope="module")
def reference():
    return DriftTest.of(table(2000), KINDS)


# ---- columns and functions


def test_bins_and_atoms_hold_fifty_rows_and_edges_are_rounded():
    x = table(3000)
    for j, kind in enumerate(KINDS):
        column = CodedColumn.fit(x[:, j].contiguous(), kind, 16)
        counts = torch.bincount(column.codes(x[:, j]), minlength=column.size)
        assert int(counts.sum()) == 3000
        assert int(counts[: column.size - 2].min()) >= 50
        if kind == "number":
            assert not bool(torch.isin(column.edges, x[:, j]).any())
            step = 10.0 ** (np.floor(np.log10(column.scale)) - 1)
            assert torch.allclose(column.edges / step, (column.edges / step).round())
    assert int(counts[-1]) == int(x[:, 4].isnan().sum())
    assert column.atoms.tolist() == [0.0]


def test_rare_categories_share_a_code():
    x = torch.tensor([0.0] * 500 + [1.0] * 300 + [2.0] * 40 + [3.0] * 30)
    column = CodedColumn.fit(x.double(), "category", 16)
    assert column.atoms.tolist() == [0.0, 1.0]
    assert column.codes(torch.tensor([2.0, 3.0, 7.0, 1.0]).double()).tolist() == [2, 2, 2, 1]


def test_leaves_are_those_of_the_forest():
    x = torch.randn(5, 800, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[1] += x[0]
    grown = trees.grow(x, torch.arange(5), trees=4, leaves=8, depth=5, seed=0)
    member = grown.leaves(x)
    assert int(member.sum(1).min()) >= 50
    for t in range(4):  # leaves of one tree exclude each other
        assert int(member[grown.tree == t].sum(0).max()) <= 1
    model = RandomForestClassifier(1, max_leaf_nodes=6, random_state=0).fit(x.T.float(), (x[0] * x[1] > 0).long())
    tree = model.estimators_[0].tree_
    leaves = torch.tensor(np.flatnonzero(tree.children_left < 0))
    tensors = [
        torch.tensor(getattr(tree, k))[None] for k in ("feature", "threshold", "children_left", "children_right")
    ]
    tensors[0] = tensors[0].clamp_min(-1)
    ours = trees.Trees(*tensors, torch.zeros_like(leaves), leaves, 6).leaves(x)
    assert ours.T.argmax(1).tolist() == [leaves.tolist().index(k) for k in tree.apply(x.T.float().numpy())]


def test_functions_are_what_they_say(reference):
    dictionary, x = reference.dictionary, table(200, seed=3)
    values, spans = dictionary.evaluate(x), dictionary.spans
    assert len(values) == sum(dictionary.sizes.values())
    missing = next(
        k for k in range(spans["columns"].stop) if dictionary.what(k) == "missing" and dictionary.owner[k] == 4
    )
    assert torch.equal(values[missing], x[:, 4].isnan().double())
    ranks = [dictionary.columns[j].linear[dictionary.columns[j].codes(x[:, j])] for j in range(3)]
    mean, scale = dictionary.unit_mean, dictionary.unit_scale
    raw = {(j, -1): r for j, r in enumerate(ranks)} | {(j, -3): r.sign() * r.abs() ** 0.5 for j, r in enumerate(ranks)}

    def unit(u):
        key = int(dictionary.unit_column[u]), int(dictionary.unit_code[u])
        return (raw[key] - mean[u]) / scale[u] if key in raw else None

    checked = 0
    for name, index in (("pairs", dictionary.pairs), ("triples", dictionary.triples)):
        for k, parts in enumerate(index.T.tolist()):
            factors = [unit(u) for u in parts]
            if all(f is not None for f in factors):
                assert torch.allclose(values[spans[name].start + k], torch.stack(factors).prod(0))
                checked += 1
    assert checked == 4


# ---- z and p-values


def test_z_is_students_t_with_pooled_variance():
    x, y = np.random.default_rng(0).normal(size=(50, 3)), np.random.default_rng(1).normal(0.3, 2, size=(20, 3))
    p, q = torch.as_tensor(x), torch.as_tensor(y)
    sizes = torch.tensor(50.0), torch.tensor(20.0)
    z2 = drift.squared_z(
        p.mean(0), p.square().mean(0), sizes[0], q.mean(0), q.square().mean(0), sizes[1], torch.tensor(0.0)
    )
    assert np.allclose(z2, stats.ttest_ind(x, y).statistic ** 2)


@pytest.mark.parametrize(
    ("kind", "draw", "quantile"),
    [
        (SUM, lambda g, b: g.chisquare(7, b), lambda p: stats.chi2(7).isf(p)),
        (MAX, lambda g, b: (g.normal(size=(b, 40)) ** 2).max(1), lambda p: stats.chi2(1).isf(1 - (1 - p) ** (1 / 40))),
    ],
)
def test_p_values_hold_far_into_the_tail(kind, draw, quantile):
    draws = torch.as_tensor(draw(np.random.default_rng(0), 5 * 1000).reshape(5, 1000, 1))
    tables = Tables.fit(draws, [kind])
    for p, factor in ((0.5, 1.1), (0.05, 1.25), (1e-3, 1.8), (1e-4, 2.5)):
        q = torch.tensor([[float(quantile(p))]])
        found = np.exp([float(tables.log_p(q, g)) for g in range(5)])
        assert p / factor < np.median(found) < p * factor


def test_the_smallest_p_is_corrected_for_how_many_there_are():
    generator = np.random.default_rng(0)
    draws = torch.as_tensor(generator.chisquare(1, size=(2, 2000, 3)))
    null = Null.fit(draws, (100, 1000), ("a", "b", "c"), (SUM,) * 3)
    fresh = torch.as_tensor(generator.chisquare(1, size=(4000, 3)))
    whole, families, _ = null.p_values(fresh, 300)
    assert abs(float((whole < 0.05).double().mean()) - 0.05) < 0.015
    assert float((families.amin(1) < 0.05).double().mean()) > 0.12
    assert bool((families.amin(1) <= whole + 1e-9).all())


def test_a_matched_gamma_has_the_moments_of_the_draws():
    q = 1 + np.random.default_rng(0).gamma([[[3.0]], [[8.0]]], 2.0, size=(2, 3, 2000))
    shape, scale, start = np.moveaxis(_matched_gamma(q), -1, 0)
    mean, variance, skewness = stats.gamma.stats(shape, start, scale, moments="mvs")
    np.testing.assert_allclose(mean, q.mean(-1))
    np.testing.assert_allclose(variance, q.var(-1))
    np.testing.assert_allclose(skewness, stats.skew(q, axis=-1))
    assert _matched_gamma(np.full(9, 2.0)).tolist() == [1.0, 1.0, 2.0]


def test_beyond_the_last_quantile_the_tail_has_the_mean_of_the_draws():
    q = 2 * np.random.default_rng(0).exponential(size=1000)  # each -log p, if it were the only one
    k = np.log(0.5) / np.log1p(-np.exp(-np.median(q)))
    surprise = -np.log(-np.expm1(k * np.log1p(-np.exp(-q))))
    last = np.quantile(surprise, 1 - TAIL)
    tables = Tables.fit(torch.as_tensor(q)[None, :, None], [SMALLEST])
    assert float(tables.quantiles[0, 0, -1]) == pytest.approx(last, rel=1e-3)  # quantiles are between two draws
    assert float(tables.tail[0, 0]) == pytest.approx((surprise[surprise > last] - last).mean(), rel=1e-2)
    assert float(tables.tail[0, 0]) > 1.5


def test_tables_of_many_statistics_are_those_of_each_and_one_that_never_moves_says_nothing():
    z2 = torch.randn(2, 300, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).square()
    draws = torch.stack([z2[:, :, 0].sum(-1), z2[:, :, 1].amax(-1), z2[:, :, 2].sum(-1), 0 * z2[:, :, 3, 0]], 2)
    kinds = ["sum", "max", "sum", "max"]
    together = Tables.fit(draws, kinds)
    for g in range(2):
        for s, kind in enumerate(kinds):
            alone = Tables.fit(draws[g : g + 1, :, [s]], [kind])
            assert torch.equal(together.matched[g, s], alone.matched[0, 0])
            assert torch.equal(together.quantiles[g, s], alone.quantiles[0, 0])
    assert together.matched[:, 3].tolist() == [[1.0, 1.0, 0.0]] * 2
    assert torch.equal(together.tail[:, 3], torch.ones(2, dtype=torch.float64))
    assert float(together.log_p(draws[0, :1] * 0, 0)[0, 3]) == pytest.approx(0, abs=1e-9)


def test_between_two_sizes_log_p_is_interpolated():
    generator = np.random.default_rng(0)
    draws = torch.as_tensor(np.stack([generator.chisquare(1, (1000, 1)), 2 * generator.chisquare(1, (1000, 1))]))
    null, q = Null.fit(draws, (100, 10_000), ("a",), (SUM,)), torch.tensor([[5.0]])
    low, middle, high = (float(null.p_values(q, m)[2].log()) for m in (100, 1000, 10_000))
    assert middle == pytest.approx((low + high) / 2)
    assert low < high - 0.5
    assert float(null.p_values(q, 50)[2].log()) == low


def test_the_smallest_of_many_p_values_has_its_level():
    generator, found = np.random.default_rng(0), []
    names = [name for name in "abcde" for _ in range(2)][:9]
    for _ in range(12):  # independent statistics and few draws, where what is learnt of the tables counts most
        null = Null.fit(torch.as_tensor(generator.chisquare(20, (1, 300, 9))), (100,), names, (SUM,) * 9)
        whole, _, _ = null.p_values(torch.as_tensor(generator.chisquare(20, (2000, 9))), 100)
        found.append(float((whole < 0.05).double().mean()))
    assert np.mean(found) == pytest.approx(0.05, abs=0.011)  # by tables of halves, twice: .022


def volatile(generator, pool, k):
    """Independent given a common scale: squares grow together, correlations are 0."""
    scale = torch.randn(pool, 1, generator=generator, dtype=torch.float64).mul(0.35).exp()
    return scale * torch.randn(pool, k, generator=generator, dtype=torch.float64)


def common(generator, pool, k):
    """All correlations .9."""
    own, shared = (torch.randn(pool, j, generator=generator, dtype=torch.float64) for j in (k, 1))
    return 0.1**0.5 * own + 0.9**0.5 * shared


@pytest.mark.parametrize(
    ("drawn", "k", "pool", "square"),
    [
        (lambda g, n, k: torch.randn(n, k, generator=g, dtype=torch.float64), 80, 200, 80),
        (volatile, 80, 300, 80),
        (common, 200, 100, 200 + 200 * 199 * 0.81),
    ],
    ids=["independent", "volatile", "common"],
)
def test_draws_from_a_small_pool_are_as_wide_as_the_sum(drawn, k, pool, square):
    """`square` is tr R^2; the variance of the sum is twice that."""
    generator = torch.Generator().manual_seed(0)
    spread, spans = [], {"pairs": slice(0, k)}
    for _ in range(12):
        x = drawn(generator, pool, k)
        x = (x - x.mean(0)) / x.std(0, correction=0)
        z = torch.randn(2000, pool, generator=generator, dtype=torch.float64) @ x / pool**0.5
        draws = (z**2).sum(1)[:, None]
        draws = torch.cat([draws, draws], 1)  # the largest of a family is left alone
        excess = excesses(x.mT, spans, torch.ones(k))
        found = narrowed(draws, ["pairs", "pairs"], [SUM, MAX], excess)
        assert torch.equal(found[:, 1], draws[:, 1])
        spread.append([float(draws[:, 0].var()), float(found[:, 0].var()), 2 * excess["pairs"]])
    wide, right, added = np.mean(spread, 0)
    assert right == pytest.approx(2 * square, rel=0.06)
    assert wide - added == pytest.approx(right, rel=1e-6)
    assert abs(added - 2 * k**2 / pool) > 0.1 * added or drawn not in (volatile, common)


def test_what_is_not_drawn_from_the_pool_adds_nothing():
    x = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    of_two, of_all = pool_excess(x[:2], torch.ones(2)), pool_excess(x, torch.ones(3))
    assert pool_excess(x, torch.tensor([1.0, 1.0, 0.0])) == pytest.approx(of_two)
    assert pool_excess(x, torch.full((3,), 0.5)) == pytest.approx(of_all / 4)
    pairs = [pool_excess(x[[i, j]], torch.ones(2)) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert sum(pairs) == pytest.approx(of_all)
    resampled = [np.corrcoef(x[:2, torch.randint(500, (500,))].numpy())[0, 1] for _ in range(2000)]
    assert np.var(resampled) == pytest.approx(of_two / 2, rel=0.15)  # both orders count


# ---- the test


@pytest.mark.slow
def test_no_difference_is_rarely_found():
    found = []
    for seed in range(8):  # of few rows, so that it is fast; `test_level_of_redrawn_references` has more
        test = DriftTest.of(table(250, seed=100 + seed), KINDS, seed=seed)
        found += [test.test(table(80, seed=1000 + 20 * seed + k)).p_value < 0.05 for k in range(15)]
    assert sum(found) <= 14  # 6 are expected; 15 have a chance of .001


def test_a_shift_is_found_and_its_column_named(reference):
    new = table(500, seed=9)
    new[:, 2] += 0.4
    found = reference.test(new)
    assert found.p_value < 1e-4
    assert found.families["columns"] < 1e-4
    strongest = min(found.columns, key=lambda shift: shift.p_value)
    assert strongest.column == 2
    assert strongest.z > 4
    assert all(shift.p_value > 0.01 for shift in found.columns if shift.column != 2)


def test_parity_of_three_columns_is_seen_by_triples_alone(reference):
    new = table(8000, seed=10)
    zero = (new[:, 3] == 0).double()
    parity = new[:, 1].sign() * new[:, 2].sign() * (zero - zero.mean())
    keep = torch.rand(len(new), generator=torch.Generator().manual_seed(0)) < (1 + parity) / 1.6
    found = reference.test(new[keep][:2000])
    assert found.families["triples"] < 1e-6
    assert found.families["columns"] > 1e-3
    assert found.families["pairs"] > 1e-3
    assert found.p_value < 1e-5


def test_a_broken_correlation_is_found(reference):
    new = table(1000, seed=11)
    new[:, 0] = new[torch.randperm(1000, generator=torch.Generator().manual_seed(0)), 0]
    found = reference.test(new)
    assert found.families["pairs"] < 1e-6
    assert found.families["leaves"] < 1e-6
    assert found.families["columns"] > 1e-3


def test_a_new_category_and_a_first_missing_cell_are_found(reference):
    new = table(400, seed=12)
    new[:60, 1] = np.nan
    found = reference.test(new)
    assert min(found.columns, key=lambda s: s.p_value).what == "missing"
    assert found.p_value < 1e-3
    once = table(400, seed=12)
    once[0, 1] = np.nan  # one cell is no proof
    assert reference.test(once).p_value > 1e-3


def test_shards_give_the_moments_of_the_whole(reference):
    dictionary, x = reference.dictionary, table(1000, seed=5)
    whole = DriftTest.of(x, KINDS, dictionary=dictionary)
    shards = [DriftTest.of(part, KINDS, dictionary=dictionary) for part in x.split(250)]
    merged = shards[0]
    for shard in shards[1:]:
        merged = merged.merge(shard)
    streamed = shards[0].updated(x[250:730]).updated(x[730:])
    for other in (merged, streamed):
        assert other.moments.units == other.moments.units_learnt == 1000
        assert torch.allclose(other.moments.total, whole.moments.total, rtol=1e-10, atol=1e-10)
        assert torch.allclose(other.moments.squares, whole.moments.squares, rtol=1e-10, atol=1e-10)
    tails = torch.stack([shard.null.whole.tail for shard in shards]).mean(0)
    assert torch.allclose(merged.null.whole.tail, tails)


def test_learnt_families_count_other_rows_than_they_were_learnt_on(reference):
    x = table(2000)
    assert reference.moments.units == 2000
    assert reference.moments.units_learnt == 1400
    whole = drift.moments(reference.dictionary, x, 1)
    learnt = reference.dictionary.learnt
    fixed = torch.ones(len(whole.total), dtype=torch.bool)
    fixed[learnt] = False
    assert torch.allclose(whole.total[fixed], reference.moments.total[fixed])
    leaves = reference.dictionary.spans["leaves"]
    assert float((reference.moments.total[leaves] / whole.total[leaves]).mean()) == pytest.approx(0.7, abs=0.03)


def test_blocks_are_means_of_neighbours():
    x = table(1200, seed=6)
    test = DriftTest.of(x, KINDS, block=20)
    assert test.n == 1200
    values = test.dictionary.evaluate(x).reshape(-1, 60, 20).mean(2)
    span = test.dictionary.spans["columns"]
    assert torch.allclose(test.moments.squares[span], values[span].square().sum(1))


def test_what_is_stored_comes_back_and_is_small(reference):
    fields, tensors = encode(reference)
    back = decode(DriftTest, fields, tensors)
    new = table(100, seed=7)
    assert back.test(new) == reference.test(new)
    assert back.merge(reference).n == 4000
    assert max(tensor.shape[-1] for tensor in tensors.values() if tensor.ndim) < 1000  # nothing has a number a row
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) < 100_000
    with pytest.raises(StoreError, match="block"):
        decode(DriftTest, {**fields, "block": "two"}, tensors)


def test_same_seed_same_bits_and_arguments_are_left_alone():
    x = table(400)
    before = x.clone()
    one, same, other = (DriftTest.of(x, KINDS, seed=seed) for seed in (0, 0, 1))
    new = table(100, seed=1)
    assert one.test(new) == same.test(new) != other.test(new)
    assert torch.equal(x.nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize("odd", ["constant", "missing", "binary", "huge"])
def test_odd_columns_are_no_obstacle(odd):
    x, y = table(300), table(100, seed=1)
    for side in (x, y):
        fill = {"constant": 3.0, "missing": np.nan, "binary": side[:, 0] > 0, "huge": 1e30 * side[:, 0]}[odd]
        side[:, 2] = fill
    found = DriftTest.of(x, KINDS).test(y)
    assert 1e-4 < found.p_value <= 1


def test_categories_alone_are_enough():
    x, y = table(400)[:, [3, 3]], table(300, seed=2)[:, [3, 3]]
    test = DriftTest.of(x, ("category", "category"))
    assert test.test(y).p_value > 1e-3
    y[:60, 0] = 4.0
    found = test.test(y)
    assert found.p_value < 1e-4
    assert min(found.columns, key=lambda s: s.p_value).what == "rare or new categories"


def test_a_single_column_is_enough():
    x = table(400)[:, :1]
    found = DriftTest.of(x).test(table(200, seed=2)[:, :1] + 1)
    assert found.p_value < 1e-6


def test_refusals(reference):
    x = table(100)
    with pytest.raises(InputError, match="at least 50 rows"):
        DriftTest.of(x[:49], KINDS)
    with pytest.raises(InputError, match=r"at least 500 rows \(50 blocks of 10\)"):
        DriftTest.of(x, KINDS, block=10)
    with pytest.raises(InputError, match="at least 30 rows"):
        reference.test(x[:29])
    with pytest.raises(InputError, match="5 columns wide"):
        reference.test(x[:, :4])
    with pytest.raises(InputError, match="one of category, number"):
        DriftTest.of(x, ("text", *KINDS[1:]))
    with pytest.raises(InputError, match="finite, or NaN"):
        reference.test(x / 0)
    with pytest.raises(InputError, match="same kinds"):
        DriftTest.of(x, ("number",) * 5, dictionary=reference.dictionary)
    with pytest.raises(InputError, match="merge only under one dictionary"):
        reference.merge(DriftTest.of(x, KINDS))
    with pytest.raises(InputError, match="merge only under one dictionary"):
        reference.merge(DriftTest.of(table(500), KINDS, dictionary=reference.dictionary, block=2))


def test_a_dictionary_stands_alone():
    dictionary = Dictionary.fit(table(500), KINDS, seed=3)
    assert dictionary.sizes["leaves"] > 10
    assert Dictionary.fit(table(200), KINDS, seed=3).sizes["leaves"] == 0


# ---- level, at length


@pytest.mark.slow
def test_level_of_redrawn_references():
    found = []
    for seed in range(40):
        test = DriftTest.of(table(1200, seed=5000 + seed), KINDS, seed=seed)
        sizes = itertools.cycle((40, 150, 600))
        found += [test.test(table(next(sizes), seed=10**6 + 100 * seed + k)).p_value < 0.05 for k in range(18)]
    assert 0.02 < np.mean(found) < 0.08


def walk(n, seed):
    """AR(1) rows."""
    noise = np.random.default_rng(seed).normal(size=(n + 50, 3))
    x = np.zeros_like(noise)
    for t in range(1, len(x)):
        x[t] = 0.8 * x[t - 1] + noise[t]
    return torch.as_tensor(x[50:])


@pytest.mark.slow
def test_blocks_hold_the_level_of_autocorrelated_rows():
    found = {1: [], 40: []}
    for seed in range(12):
        for block, results in found.items():
            test = DriftTest.of(walk(4000, seed), block=block, seed=seed)
            results += [test.test(walk(1200, 1000 + 20 * seed + k)).p_value < 0.05 for k in range(8)]
    assert np.mean(found[1]) > 0.5
    assert np.mean(found[40]) < 0.14
