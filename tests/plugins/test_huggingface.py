"""The callbacks for the Trainer of transformers, called by the Trainer itself."""

import pytest
import torch
from torch import nn

from vestige.continual.record import Record
from vestige.monitor import Monitor

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]  # what it warns of is not ours


@pytest.fixture
def transformers():
    """Imported by the tests alone: whoever leaves them out need not wait for it."""
    pytest.importorskip("accelerate", reason="the extra 'frameworks' is not installed")
    return pytest.importorskip("transformers", reason="the extra 'frameworks' is not installed")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)
        nn.init.zeros_(self.net.weight)

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def rows(sign, n=64):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return [{"x": a, "labels": b} for a, b in zip(x, (sign * x[:, 0] > 0).long(), strict=True)]


def trainer(transformers, callback, model, train, folder, epochs):
    args = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=epochs, per_device_train_batch_size=64, learning_rate=0.5,
        per_device_eval_batch_size=64, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip

    def accuracy(found):
        return {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())}

    return transformers.Trainer(model, args, train_dataset=train, compute_metrics=accuracy, callbacks=[callback])


def test_evaluation_after_each_task_is_the_record(transformers, tmp_path):
    from vestige.plugins.huggingface import TrainerRecord

    sets = {"news": rows(1), "sport": rows(-1)}
    collected, model = TrainerRecord(list(sets), name="mine", seed=5), Model()
    for task in sets:
        made = trainer(transformers, collected, model, sets[task], tmp_path, 20)
        made.train()
        made.evaluate(sets)
    record = Record.load(collected.save(tmp_path))
    assert float(record.R.diagonal().min()) > 0.9
    assert float(record.R[1, 0]) < 0.2
    assert record.seed == 5


def test_a_step_of_the_monitor_every_second_epoch(transformers, tmp_path):
    from vestige.plugins.huggingface import TrainerMonitor

    real = torch.randn(120, 1, generator=torch.Generator().manual_seed(1))
    Monitor.create(tmp_path / "m", chain={"strategy": "every-step", "names": ("js",)})
    watch = TrainerMonitor(tmp_path / "m", "faces", lambda model: real + 0.1, every=2, real=real)
    trainer(transformers, watch, Model(), rows(1), tmp_path, 4).train()
    assert Monitor.open(tmp_path / "m").steps == 2
