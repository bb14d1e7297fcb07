"""A monitor by vestiges: incoming data or a generator, tables or arrays, and nothing of a single row in the folder."""

import numpy as np
import pandas as pd
import pytest
import torch

import vestige as vs
from monitor.real_bytes import found_in, marked
from monitor.tiny import contents, essence
from vestige.core.errors import InputError, UnknownName
from vestige.monitor import DEFAULT, Alarm, DriftAlarm, Monitor

pytestmark = pytest.mark.filterwarnings("ignore::vestige.core.errors.VestigeWarning")
CHAIN = {"names": ("kl", "js"), "estimator": "quadratic", "folds": 2, "min_samples": 60}
N = 200


def table(n, seed, shift=0.0):
    g = np.random.default_rng(seed)
    height = g.normal(size=n) + shift
    kind = np.where(g.random(n) < 1 / (1 + np.exp(-height)), "cat", "dog")
    return pd.DataFrame({"height": height, "kind": kind, "name": [f"{seed}-{i}" for i in range(n)]})


def normal(seed, shift=0.0, n=N):
    return shift + torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def incoming(tmp_path_factory):
    """Tables of cats that come in month by month, the third of them different, and arrays of dogs beside them."""
    folder = tmp_path_factory.mktemp("incoming") / "m"
    monitor = Monitor.create(folder, chain=CHAIN)
    monitor.step({"cats": table(N, 0)}, seed=1)
    monitor.step({"dogs": normal(0)}, {"cats": table(N, 1)}, seed=2)
    Monitor.open(folder).step(new={"cats": table(N, 2, 1.5), "dogs": normal(1)}, seed=3)
    return Monitor.open(folder)


def test_a_monitor_of_incoming_data_needs_no_model_and_fires_by_the_drift_test(incoming):
    assert incoming.tasks == {"cats": 1, "dogs": 2}
    assert [[own.task for own in step.report.tasks] for step in incoming.history] == [[], ["cats"], ["cats", "dogs"]]
    assert [len(step.alarms) for step in incoming.history] == [0, 0, 1]
    (fired,) = incoming.alarms
    assert (fired.task, type(fired.alarm)) == ("cats", DriftAlarm)
    assert fired.amount < fired.low == DriftAlarm().share(2)  # two tasks were tested
    drift = incoming.drift()
    assert drift.task.tolist() == ["cats", "cats", "dogs"]
    assert (drift.p_value < 1e-3).tolist() == [False, True, False]
    assert drift.fid[1] > 5 * max(drift.fid[0], drift.fid[2])
    assert incoming.thresholds == DEFAULT
    assert len(incoming.table()) == 4 + 6
    assert incoming.matrix("js").isna().to_numpy().tolist() == [[True, True], [False, True], [False, False]]


def test_the_vestige_of_a_task_answers_what_else_is_asked(incoming):
    kept = incoming.chain.vestige("cats")
    assert kept.n == N
    assert kept.frame.names == ("height", "kind")  # names of their own are left out
    assert vs.compare(kept, table(N, 2, 1.5)).p_value == incoming.drift().p_value[1]


def test_the_page_tells_of_tests_and_of_the_false_alarms(incoming, tmp_path):
    html = incoming.report(tmp_path / "x.html").read_text()
    for text in (
        "of years of 52 steps without change at most 5 % raise an alarm",
        "this watches tasks that came without such samples",
        "drift tests of step 3",
        "within its share of 0.00048 of false alarms",
        "Nor is a row of what was new, or a number of one.",
        "cats: 200",
    ):
        assert text in html, text


def test_the_page_of_a_monitor_that_has_only_kept(tmp_path):
    monitor = Monitor.create(tmp_path / "m", chain=CHAIN)
    monitor.step({"a": normal(0)})
    html = monitor.report(tmp_path / "x.html").read_text()
    assert "it had no samples to judge" in html
    assert monitor.table().empty
    assert str(monitor) == "Step 1, 1 task: no alarm fires."


def test_no_file_holds_a_value_of_the_data_or_of_what_was_new(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    monitor.step({"a": marked(N, 1)}, {"a": marked(N, 2)}, seed=1)
    before = {name: data for name, data in contents(tmp_path).items() if name.endswith(".safetensors")}
    monitor.step(new={"a": marked(N, 3)}, seed=2)
    after = {name: data for name, data in contents(tmp_path).items() if name.endswith(".safetensors")}
    assert list(before.values()) == list(after.values())  # what is kept is what the first step left
    assert found_in(tmp_path, np.concatenate([marked(N, seed) for seed in (1, 2, 3)])) == []
    told = monitor.kept()
    assert not any(N in shape for shape in told["shape"])
    assert set(told.what) >= {"mean and scatter of the features, in two halves of the rows"}
    assert not told.what.str.contains("generated sample").any()


def test_opened_anew_before_every_step_it_goes_on_with_the_same_bits(tmp_path):
    def steps(monitor):
        monitor.step({"a": normal(0)}, seed=1)
        yield
        monitor.step({"b": normal(1, 2.0)}, {"a": normal(2, 0.2)}, seed=2)
        yield
        monitor.step(new={"b": normal(3, 2.2)}, seed=3)

    never = Monitor.create(tmp_path / "never", chain=CHAIN)
    list(steps(never))
    Monitor.create(tmp_path / "closed", chain=CHAIN)
    for at in range(3):
        monitor = Monitor.open(tmp_path / "closed")
        monitor.step(
            *({"a": normal(0)}, {"b": normal(1, 2.0)}, {})[at : at + 1],
            ({}, {"a": normal(2, 0.2)}, {"b": normal(3, 2.2)})[at],
            seed=at + 1,
        )
    assert essence(Monitor.open(tmp_path / "closed")) == essence(never)


def test_a_model_that_is_watched_from_the_start_fires_by_its_rise(tmp_path):
    monitor = Monitor.create(tmp_path, chain=CHAIN)
    first = monitor.step({"a": normal(0, n=500)}, {"a": normal(1, 0.3, n=500)})
    assert first.report.tasks[0].p_value < 1e-3
    assert first.alarms == ()  # a model is not the data, and need not be
    last = monitor.step(model={"a": normal(2, 2.0, n=500)})
    assert [type(one.alarm) for one in last.alarms] == [Alarm]
    assert "since step 1" in last.alarms[0].why


REFUSED = {
    "a renamed column": ({}, {"cats": table(N, 5).rename(columns={"kind": "species"})}, "no 'kind'"),
    "an array for a table": ({}, {"cats": normal(5)}, "must be a table"),
    "an unknown task": ({}, {"mice": normal(5)}, "known or new tasks"),
    "data that has left": ({"cats": table(N, 0)}, {}, "has left"),
    "nothing": ({}, {}, "given for a known task"),
    "too few rows": ({}, {"cats": table(59, 5)}, "at least 60"),
    "a NaN in an array": ({}, {"dogs": torch.full((N, 2), torch.nan)}, "finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_changes_no_byte(case, incoming):
    real, new, says = REFUSED[case]
    files = contents(incoming.folder)
    with pytest.raises(InputError, match=says):
        incoming.step(real, new)
    assert contents(incoming.folder) == files


def test_columns_are_dropped_on_request(tmp_path):
    monitor = Monitor.create(tmp_path / "a", chain=CHAIN, drop=["kind"])
    monitor.step({"a": table(N, 0)})
    assert monitor.chain.vestige("a").frame.names == ("height",)
    monitor.step(new={"a": table(N, 1).drop(columns="kind")})
    with pytest.raises(UnknownName, match="Did you mean 'kind'"):
        Monitor.create(tmp_path / "b", chain=CHAIN, drop=["kin"]).step({"a": table(N, 0)})
    with pytest.raises(InputError, match="must be tables"):
        Monitor.create(tmp_path / "c", chain=CHAIN, drop=["kind"]).step({"a": normal(0)})


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(InputError, match="made of moments"):
        Monitor.create(tmp_path / "a", chain={"strategy": "vestige"}, keep_moments=False)
    assert Monitor.create(tmp_path / "b", keep_moments=False).chain.strategy.name == "anchored"
    assert Monitor.create(tmp_path / "c").chain.strategy.name == "vestige"
    with pytest.raises(InputError, match="needs the strategy 'vestige'"):
        Monitor.create(tmp_path / "d", chain={"strategy": "anchored"}, alarms=[DriftAlarm()])
    with pytest.raises(InputError, match="'identity' where rows are tables"):
        Monitor.create(tmp_path / "e", chain=CHAIN, features={"map": "pca", "dims": 1}).step({"a": table(N, 0)})
