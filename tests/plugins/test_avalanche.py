"""The plugin of Avalanche beside a small copy of the protocol that it is called by, and in Avalanche itself.

Avalanche needs torchvision, of which there is no build for every machine that these tests run on. The first tests have
the events, and the names and the order in which they come, of its SupervisedTemplate, and nothing of Avalanche runs in
them. The last one is Avalanche's own, with empty modules for what it imports and is not installed; it needs `pip
install --no-deps avalanche-lib`, which `make test-frameworks` does.
"""

import importlib
import importlib.util
import sys
import types

import pytest
import torch
from benchmarks.absent import OF_AVALANCHE, Absent
from torch import nn

from vestige.continual.record import Record
from vestige.core.errors import InputError

EVENTS = ("before_training", "after_training_exp", "after_training", "before_eval", "after_eval")


class FakePlugin:
    """A plugin that hears of every event and does nothing."""

    def __getattr__(self, name):
        if name.startswith(("before_", "after_")):
            return lambda strategy, *args, **kwargs: None
        raise AttributeError(name)


class FakeStrategy:
    """Trains on experiences and evaluates streams of them: the metrics are a table."""

    def __init__(self, plugins, table):
        self.plugins, self.table, self.done, self.metrics = plugins, table, 0, {}
        self.evaluator = types.SimpleNamespace(get_last_metrics=lambda: dict(self.metrics))

    def tell(self, event):
        for plugin in self.plugins:
            getattr(plugin, event)(self)

    def train(self, experience, eval_every=False):
        self.tell("before_training")
        self.experience = types.SimpleNamespace(current_experience=experience)
        if eval_every:
            self.eval([experience], worth=0.0)
        self.done = experience + 1
        self.tell("after_training_exp")
        self.tell("after_training")

    def eval(self, stream, worth=1.0):
        self.tell("before_eval")
        for j in stream:
            name = f"Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp{j:03d}"
            self.metrics |= {name: worth * self.table[self.done][j], name.replace("Top1_Acc", "Loss"): 9.0}
        self.metrics["Top1_Acc_Stream/eval_phase/test_stream/Task000"] = 0.5
        self.tell("after_eval")


@pytest.fixture
def plugin_class(monkeypatch):
    fake = types.ModuleType("avalanche.training.plugins")
    fake.SupervisedPlugin = FakePlugin
    for name in ("avalanche", "avalanche.training"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.delitem(sys.modules, "vestige.plugins.avalanche", raising=False)
    yield importlib.import_module("vestige.plugins.avalanche").AvalancheRecord
    sys.modules.pop("vestige.plugins.avalanche", None)


TABLE = [[0.1, 0.2], [0.9, 0.3], [0.6, 0.8]]  # before training, after each experience


@pytest.mark.parametrize("first", [True, False])
def test_what_is_evaluated_after_each_experience_is_the_record(plugin_class, first, tmp_path):
    plugin = plugin_class("er", seed=4)
    strategy = FakeStrategy([plugin], TABLE)
    if first:
        strategy.eval(range(2))
    for experience in range(2):
        strategy.train(experience, eval_every=True)
        strategy.eval(range(2))
    record = Record.load(plugin.save(tmp_path))
    assert record.R.tolist() == TABLE[1:]
    assert (record.seed, record.config["learner"]["method"]) == (4, "er")
    assert {head: row.tolist() for head, row in record.baseline.items()} == ({"accuracy": TABLE[0]} if first else {})
    assert record.summary().last()["forgetting"] == pytest.approx(0.3)


def test_without_an_evaluation_there_is_no_record(plugin_class):
    with pytest.raises(InputError, match="must be after a task was trained"):
        plugin_class().record()


def rows_of(task, n, generator):
    y = torch.randint(0, 2, (n,), generator=generator) + 2 * task
    return torch.randn(n, 8, generator=generator) + 3 * torch.eye(8)[y], y


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")  # what it warns of is not ours
def test_a_strategy_of_avalanche_itself():
    if importlib.util.find_spec("avalanche") is None or importlib.util.find_spec("dill") is None:
        pytest.skip("Avalanche is not installed, or dill, which it calls when it is imported")
    torch.manual_seed(0)  # Avalanche shuffles by the global generator
    generator = torch.Generator().manual_seed(0)
    train, test = [rows_of(k, 120, generator) for k in (0, 1)], [rows_of(k, 60, generator) for k in (0, 1)]
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    with Absent(OF_AVALANCHE):
        from avalanche.benchmarks.scenarios.deprecated.generators import tensors_benchmark
        from avalanche.evaluation.metrics import accuracy_metrics
        from avalanche.training.plugins import EvaluationPlugin
        from avalanche.training.supervised import Naive

        from vestige.plugins.avalanche import AvalancheRecord

        plugin = AvalancheRecord("naive", seed=3)
        tasks = {"train_tensors": train, "test_tensors": test, "task_labels": [0, 0], "complete_test_set_only": False}
        benchmark = tensors_benchmark(**tasks)
        strategy = Naive(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.1),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=20,
            train_epochs=3,
            eval_mb_size=60,
            plugins=[plugin],
            evaluator=EvaluationPlugin(accuracy_metrics(experience=True, stream=True), loggers=[]),
            eval_every=1,
        )

        def accuracies():
            with torch.no_grad():
                return [float((net(x).argmax(1) == y).double().mean()) for x, y in test]

        rows = [accuracies()]
        strategy.eval(benchmark.test_stream)
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[benchmark.test_stream])
            strategy.eval(benchmark.test_stream)
            rows.append(accuracies())
        record = plugin.record()
    torch.testing.assert_close(record.R, torch.tensor(rows[1:], dtype=record.R.dtype))
    torch.testing.assert_close(record.baseline["accuracy"], torch.tensor(rows[0], dtype=record.R.dtype))
    assert rows[2][1] > 0.8 > rows[1][1]  # it learnt the second task when it came
    assert (record.seed, record.config["learner"]["method"]) == (3, "naive")
