"""Whatever rows come as, on either side, the answer is the one of the arrays; what was drawn or coded is said."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import vestige as vs
from vestige.core.errors import InputError
from vestige.ratios import Logistic
from vestige.vestiges.batches import sample_of

QUADRATIC = Logistic(kind="quadratic")
G = np.random.default_rng(0)
P, Q = G.normal(size=(120, 2)), G.normal(0.5, 1, size=(100, 2))


class Stream:
    """A table that only knows how to hand itself over, as polars' do."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Model:
    def __init__(self, rows):
        self.rows = rows

    def sample(self, n, seed=0):
        return self.rows[:n]


def in_kinds(x, folder, name):
    np.save(folder / f"{name}.npy", x)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.zeros(len(x))), batch_size=32)
    yield from (x, torch.from_numpy(x), x.tolist(), str(folder / f"{name}.npy"), folder / f"{name}.npy", loader)
    yield from (Model(x), Model(x).sample, lambda n: x[:n], iter([x[:50], x[50:]]), [x[:50], x[50:]])


def answer(p, q, **options):
    found = vs.compare(p, q, estimator=QUADRATIC, n=100, **options)
    return found.divergences["js"].value, found.metrics["fid"].value, found.n_p, found.n_q


@pytest.mark.slow
def test_every_kind_beside_every_kind(tmp_path):
    p = P[:100]
    want = answer(p, Q)
    for real, fake in zip(in_kinds(p, tmp_path, "p"), reversed(list(in_kinds(Q, tmp_path, "q"))), strict=True):
        assert answer(real, fake) == pytest.approx(want)


def test_views_of_text_as_polars_hands_them_over_can_be_sampled():
    texts = pa.array(["cook", "smith", None] * 50, pa.string_view())
    codes = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0] * 50, pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    seen = sample_of(Stream(pa.table({"t": texts, "c": codes})), 60)
    assert seen.num_rows == 60
    assert set(seen["t"].to_pylist()) == {"cook", "smith", None}
    assert set(seen["c"].to_pylist()) == {"a", "b"}


def test_frames_of_polars_itself():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    columns = {"a": P[:, 0], "job": ["cook" if v > 0 else "smith" for v in P[:, 1]]}
    seen = sample_of(polars.DataFrame(columns).with_columns(polars.col("job").cast(polars.Categorical).alias("c")), 60)
    assert (seen.num_rows, seen.column_names) == (60, ["a", "job", "c"])


class Lazy:
    """A query that has not been run, with what polars' LazyFrame has of it."""

    def collect(self):
        return pa.table({"a": P[:, 0]})

    def collect_schema(self):
        return {"a": float}


@pytest.mark.parametrize("made_by", ["polars", "another"])
def test_a_query_that_was_not_run_is_refused_with_what_to_do(made_by):
    if made_by == "polars":
        polars = pytest.importorskip("polars", reason="polars is not installed")
        query = polars.DataFrame({"a": P[:, 0]}).lazy()
    else:
        query = Lazy()
    got = rf"run the query first, with '\.collect\(\)'\. Got a {type(query).__name__} instead"
    for refused in (
        lambda: answer(P, query),
        lambda: vs.keep(query),
        lambda: vs.data.as_dataset(query, label="a"),
        lambda: vs.data.as_dataset((P, P[:, 0] > 0), test=query),
    ):
        with pytest.raises(InputError, match=got):
            refused()
    assert sample_of(query.collect(), 60).num_rows == 60


def tables(n=150):
    made = []
    for seed, shift in ((0, 0.0), (1, 0.6)):
        g = np.random.default_rng(seed)
        day = np.datetime64("2024-01-01") + g.integers(0, 300, n)
        frame = pd.DataFrame(
            {"age": g.normal(40 + 9 * shift, 9, n), "job": g.choice(["smith", "cook"], n), "day": day.astype(str)}
        )
        frame.loc[::7, "age"] = np.nan
        frame.loc[::9, "job"] = None
        made.append(frame)
    return made


@pytest.mark.slow
def test_mixed_tables_answer_as_their_files_do(tmp_path):
    p, q = tables()
    paths = tmp_path / "p.parquet", tmp_path / "q.parquet"
    for frame, path in zip((p, q), paths, strict=True):
        frame.to_parquet(path)
    found, read = vs.compare(p, q, estimator=QUADRATIC), vs.compare(*paths, estimator=QUADRATIC)
    assert found.divergences["js"].value == read.divergences["js"].value
    assert found.metrics["fid"].value == read.metrics["fid"].value
    assert found.columns.features == ("age", "age is missing", "job = cook", "job = smith", "job is missing", "day")
    assert "missing" in found.columns.columns[0].treatment
    for other in (Stream(pa.Table.from_pandas(q)), iter([q[:60], q[60:]]), lambda n: q, paths[1]):
        assert vs.compare(p, other, estimator=QUADRATIC, n=150).metrics["fid"].value == found.metrics["fid"].value
    raw = vs.compare(p, q, estimator=QUADRATIC, standardise=False)
    assert raw.metrics["fid"].value > 5 * found.metrics["fid"].value  # ages and days have units
    assert vs.compare(p, q, estimator=QUADRATIC, drop=["day"]).d == found.d - 1


def test_a_column_that_one_side_has_alone_is_named():
    p, q = tables()
    with pytest.raises(InputError, match=r"The columns of real and fake must be the same. Got 'day' only in real"):
        vs.compare(p, q.drop(columns="day"))
    with pytest.raises(InputError, match="'drop' of compare must be given for tables alone"):
        vs.compare(P, Q, drop=["day"])


def test_what_was_drawn_is_said_and_the_two_sides_draw_with_seeds_of_their_own():
    seeds = []

    def draw(n, seed):
        seeds.append(seed)
        return np.random.default_rng(seed).normal(size=(n, 2))

    found = vs.compare(draw, draw, n=80, estimator=QUADRATIC, seed=3)
    assert len(set(seeds)) == 2
    assert found.notes == tuple(f"{side}: 80 rows were drawn of a function with seed {seed}"
                                for side, seed in zip(("real", "fake"), seeds, strict=True))  # fmt: skip
    assert vs.compare(draw, draw, n=80, estimator=QUADRATIC, seed=3).p_value == found.p_value
    kept = vs.keep(draw, n=80)
    assert kept.n == 80
    judged = vs.compare(kept, draw, n=60, estimator=QUADRATIC)
    assert (judged.n_q, judged.notes) == (60, (f"60 rows were drawn of a function with seed {seeds[-1]}",))


def test_a_function_that_gives_too_few_rows_is_refused_by_its_side():
    with pytest.raises(InputError, match="The 'q' of compare must be a function that returns as many rows as it is "):
        vs.compare(P, lambda n: Q[: n // 2], n=60)
    with pytest.raises(InputError, match="The 'p' of weigh must be at least one row"):
        vs.weigh(iter([]), Q)
    with pytest.raises(InputError, match="'q' of compare must be rows: a vestige stands for the data"):
        vs.compare(P, vs.keep(P))


def test_weights_are_of_the_kind_that_came_in():
    want = vs.weigh(P, Q, estimator=QUADRATIC).weights
    assert isinstance(want, np.ndarray)
    frame = pd.DataFrame(Q, index=np.arange(100) + 7)
    found = vs.weigh(pd.DataFrame(P), frame, estimator=QUADRATIC)
    assert isinstance(found.weights, pd.Series)
    assert found.weights.index.equals(frame.index)
    assert found.expectation(frame[0]).value == pytest.approx(
        vs.weigh(P, Q, estimator=QUADRATIC).expectation(Q[:, 0]).value
    )
    assert isinstance(vs.weigh(P, Q.tolist(), estimator=QUADRATIC).weights, list)
    loader = DataLoader(TensorDataset(torch.from_numpy(Q)), batch_size=32)
    found = vs.weigh(P, loader, estimator=QUADRATIC)
    assert isinstance(found.weights, torch.Tensor)
    assert np.allclose(found.weights.numpy(), want)
    assert torch.equal(found.drawn, torch.from_numpy(Q))  # the rows that they are of
    assert vs.weigh(P, Q, estimator=QUADRATIC).drawn is None
    kept = vs.keep(P)
    assert isinstance(kept.weigh(lambda n: Q, n=100, estimator=QUADRATIC).drawn, np.ndarray)


def test_bytes_of_images_are_pixels_on_both_sides():
    g = np.random.default_rng(0)
    images = g.integers(0, 256, (60, 2, 2)).astype(np.uint8)
    found = vs.compare(images, images.astype(np.float32) / 255, estimator=QUADRATIC)
    assert found.metrics["fid"].value == pytest.approx(0, abs=1e-9)
    assert found.notes == ("real: bytes of images were divided by 255",)


def test_a_monitor_takes_them_too(tmp_path):
    made = vs.Monitor.create(tmp_path / "m")
    step = made.step(real={"a": iter([P, P + 0.01])})
    assert step.real_rows == (("a", 240),)
    loader = DataLoader(TensorDataset(torch.from_numpy(Q)), batch_size=32)
    step = made.step(new={"a": loader})
    assert step.model_rows == (("a", 100),)
    again = made.step(new={"a": lambda n: np.concatenate([Q, Q])[:n]}, n=120)
    assert again.model_rows == (("a", 120),)
    with pytest.raises(
        InputError, match=r"The 'new\['a'\]' of Monitor.step must be a function that returns as many rows"
    ):
        made.step(new={"a": lambda n: Q[:n]}, n=200)
