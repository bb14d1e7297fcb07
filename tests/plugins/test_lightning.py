"""The callbacks of Lightning, called by Lightning itself."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vestige.continual.record import Record
from vestige.monitor import Monitor

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]  # what it warns of is not ours


@pytest.fixture
def pl():
    """Imported by the tests alone: whoever leaves them out need not wait for it."""
    return pytest.importorskip("pytorch_lightning", reason="the extra 'frameworks' is not installed")


def trainer(pl, callback, epochs, tmp_path):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[callback], default_root_dir=tmp_path, **quiet)


def classifier(pl):
    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(2, 2)
            nn.init.zeros_(self.net.weight)

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _, dataloader_idx=0):
            self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    return Classifier()


def loader(sign, n=64):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, (sign * x[:, 0] > 0).long()), batch_size=n)


def test_validation_after_each_task_is_the_record(pl, tmp_path):
    from vestige.plugins.lightning import LightningRecord

    collected, module, tests = LightningRecord(name="mine", seed=2), classifier(pl), [loader(1), loader(-1)]
    trainer(pl, collected, 1, tmp_path).validate(module, tests, verbose=False)
    for sign in (1, -1):
        trainer(pl, collected, 30, tmp_path).fit(module, loader(sign), val_dataloaders=tests)
        trainer(pl, collected, 1, tmp_path).validate(module, tests, verbose=False)
    record = Record.load(collected.save(tmp_path))
    assert record.R.shape == (2, 2)
    assert float(record.R.diagonal().min()) > 0.9
    assert float(record.R[1, 0]) < 0.2  # the second task is the first the other way round
    assert record.baseline["accuracy"].shape == (2,)
    assert record.seed == 2


def test_a_step_of_the_monitor_every_second_epoch(pl, tmp_path):
    from vestige.plugins.lightning import LightningMonitor

    real = torch.randn(120, 1, generator=torch.Generator().manual_seed(1))
    Monitor.create(tmp_path / "m", chain={"strategy": "every-step", "names": ("js",)})
    draw = functools.partial(lambda rows, module: rows + 0.1, real)
    watch = LightningMonitor(tmp_path / "m", "faces", draw, every=2, real=real)
    trainer(pl, watch, 4, tmp_path).fit(classifier(pl), loader(1))
    assert Monitor.open(tmp_path / "m").steps == 2
    assert list(Monitor.open(tmp_path / "m").tasks) == ["faces"]
