"""The plugin of Avalanche beside a small copy of the protocol that it is called by.

Avalanche needs torchvision, of which there is no build for every machine that these tests run on: the events, and the
names and the order in which they come, are those of its SupervisedTemplate; nothing of Avalanche itself runs here.
"""

import importlib
import sys
import types

import pytest

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
