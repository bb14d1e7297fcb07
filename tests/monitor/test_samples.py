"""Tables at every step in the coding of the first, which has seen generated rows alone."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from monitor.tiny import CHAIN, contents
from vestige.core.errors import InputError
from vestige.data import readers as files
from vestige.monitor import Monitor
from vestige.monitor.samples import TableCoding as Coding
from vestige.store import decode, encode
from vestige.vestiges.rare import scale_of

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")


def frame(n, seed, words=("private", "state")):
    g = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": g.normal(40, 10, n),
            "work": g.choice(list(words), n),
            "joined": (np.datetime64("2020-01-01") + g.integers(0, 900, n)).astype(str),
            "member": g.random(n) < 0.5,
            "name": [f"person {seed}-{i}" for i in range(n)],
        }
    )


def arrow(table):
    return pa.Table.from_pandas(table, preserve_index=False)


def test_numbers_dates_and_booleans_are_coded_as_files_are():
    table = arrow(frame(50, 0).drop(columns=["work", "name"]))
    (want,), _ = files.encode([table], ["here"])
    torch.testing.assert_close(Coding.of([table], []).encode(table, "here"), want, rtol=0, atol=0)


def test_one_coding_for_every_table():
    coding = decode(Coding, *encode(Coding.of([arrow(frame(200, 0))], [arrow(frame(200, 1))])))
    kinds = {code.name: code.kind for code in coding.columns}
    assert kinds == {"age": "number", "work": "text", "joined": "date", "member": "boolean", "name": "left out"}
    other = frame(40, 2, words=("state", "self"))
    shuffled = other[["member", "name", "work", "age", "joined"]]
    x = coding.encode(arrow(shuffled), "there")
    assert x.shape == (40, 1 + 4 + 1 + 1)
    one_hot = x[:, 1:5]
    assert torch.equal(one_hot[:, 1].bool(), torch.tensor((other.work == "state").to_numpy()))
    assert torch.equal(one_hot[:, 2].bool(), torch.tensor((other.work == "self").to_numpy()))  # as "other"
    assert torch.equal(one_hot.sum(1), torch.ones(40))
    torch.testing.assert_close(x[:, 0], torch.tensor(other.age.to_numpy()))


def test_what_is_missing_is_filled_by_the_models_median_and_marked():
    model, real = frame(200, 0), frame(200, 1)
    real.loc[:59, "age"] = np.nan
    real.loc[:4, "work"] = None
    coding = Coding.of([arrow(model)], [arrow(real)])
    x = coding.encode(arrow(real), "there")
    fill = scale_of(model.age.to_numpy())[0]  # the median, rounded
    assert abs(fill - model.age.median()) < 1
    assert x[:60, 0].tolist() == [fill] * 60
    assert x[:, 1].tolist() == [1.0] * 60 + [0.0] * 140
    assert x[:5, 5].tolist() == [1.0] * 5  # private, state, other, missing
    later = frame(200, 2)
    later.loc[0, "joined"] = None  # so few are filled, and whether there were any at the first step is not told
    assert coding == Coding.of([arrow(model)], [arrow(real.assign(joined=later["joined"]))])
    assert coding.encode(arrow(later), "there").isfinite().all()
    later.loc[:60, "joined"] = None
    with pytest.raises(InputError, match="'joined' must be complete, as at the first step"):
        coding.encode(arrow(later), "there")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop(columns="age"), "'age' in some tables alone"),
        (lambda t: t.assign(extra=1.0), "'extra' in some tables alone"),
        (lambda t: t.assign(age="old"), "'age' must be number"),
        (lambda t: t.assign(work=1.0), "'work' must be text"),
        (lambda t: t.assign(age=np.inf), "'age' of there must be finite"),
    ],
)
def test_another_table_is_refused_by_its_column(change, says):
    coding = Coding.of([arrow(frame(50, 0))], [])
    with pytest.raises(InputError, match=says):
        coding.encode(arrow(change(frame(30, 1))), "there")


def test_a_column_that_is_not_there_cannot_be_dropped():
    with pytest.raises(InputError, match="'agee'"):
        Coding.of([arrow(frame(50, 0))], [], drop=["agee"])
    with pytest.raises(InputError, match="something to compare"):
        Coding.of([arrow(frame(50, 0)[["age"]])], [], drop=["age"])
    assert Coding.of([arrow(frame(200, 0))], [], drop=["age"]).encode(arrow(frame(9, 1)), "x").shape == (9, 6)


def test_a_monitor_of_tables_goes_on_and_keeps_no_word_of_the_data(tmp_path):
    real, model = frame(60, 0, words=("private", "state", "SECRETWORD")), frame(200, 1)
    model.loc[0, "work"] = "Jane Roe"  # which the generator has repeated
    real["age"] = 1000.123456789 + np.arange(60)
    monitor = Monitor.create(tmp_path / "m", chain=CHAIN)
    monitor.step({"a": real}, {"a": model})
    for name in ("b.csv", "b.parquet"):
        path = tmp_path / name
        frame(60, 2).to_csv(path, index=False) if name.endswith("csv") else frame(60, 2).to_parquet(path)
        Monitor.open(tmp_path / "m").step(model={"a": path})
    history = Monitor.open(tmp_path / "m").history
    assert [dict(step.model_rows)["a"] for step in history] == [200, 60, 60]
    everything = b"".join(contents(tmp_path / "m").values())
    assert b"private" in everything  # the model generated it
    for word in (b"SECRETWORD", b"person 0", b"1000.123", b"person", b"Jane Roe"):
        assert word not in everything
    with pytest.raises(InputError, match="drops 'age' must be tables"):
        Monitor.create(tmp_path / "d", chain=CHAIN, drop=["age"]).step({"a": np.ones((60, 2))}, {"a": np.ones((60, 2))})
    with pytest.raises(InputError, match="must be tables where 'real' is"):
        Monitor.create(tmp_path / "n", chain=CHAIN).step({"a": real}, {"a": np.ones((60, 5))})
