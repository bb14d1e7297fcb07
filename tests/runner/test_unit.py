"""A device that is not there, or that an experiment does not compute on, is refused by name; else the best is taken."""

import pytest
import torch

from dice import Dice
from far import FAR, far
from vestige import runner
from vestige.core.errors import InputError
from vestige.runner import unit as unit_module
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.unit import DEVICES, computing_on, device_of


@pytest.fixture
def there(monkeypatch):
    """What this machine has, as a test wants it."""

    def have(*devices):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)

    return have


@pytest.mark.parametrize(
    ("devices", "best"), [((), "cpu"), (("mps",), "mps"), (("cuda",), "cuda"), (("cuda", "mps"), "cuda")]
)
def test_the_default_is_the_best_there_is(there, devices, best):
    there(*devices)
    assert device_of(None) == torch.device(best)
    assert device_of(None, ("cpu",)) == torch.device("cpu")
    assert device_of("cpu") == torch.device("cpu")


def test_one_that_is_absent_is_refused(there):
    there("mps")
    with pytest.raises(InputError, match=r"must be on this machine: mps or cpu\. Got cuda instead"):
        device_of("cuda")


def test_one_that_an_experiment_cannot_use_is_refused(there):
    there("cuda")
    assert device_of("cuda") == torch.device("cuda")
    with pytest.raises(InputError, match=r"one that each of its units can compute on: cpu\. Got cuda instead"):
        device_of("cuda", ("cpu",))


def test_an_unknown_one_is_refused():
    with pytest.raises(InputError, match="device"):
        device_of("gpu")


def test_the_cpu_is_not_wrapped_and_another_is():
    with computing_on(torch.device("cpu")):
        assert not torch.overrides._get_current_function_mode_stack()
    with computing_on(torch.device("meta")):
        assert torch.empty(1).device.type == "meta"


def test_every_experiment_says_where_it_computes():
    assert {device for e in EXPERIMENTS.values() for device in e.devices} == set(DEVICES)
    assert all("cpu" in e.devices for e in EXPERIMENTS.values())


def test_a_unit_is_run_on_its_device(monkeypatch, tmp_path):
    seen = []

    class Far(Dice):
        devices = ("cuda", "cpu")

        def run(self, config, seed, on_progress):
            seen.append(torch.get_default_device())
            with torch.device("cpu"):
                return super().run(config, seed, on_progress)

    monkeypatch.setitem(EXPERIMENTS, "dice", Far())
    monkeypatch.setattr(unit_module, "device_of", lambda name, able: FAR if name == "cuda" else torch.device("cpu"))
    monkeypatch.setattr(unit_module, "computing_on", lambda device: far() if device == FAR else computing_on(device))
    for device in ("cuda", "cpu", None):
        list(runner.run(runner.plan("dice", tmp_path / str(device), preset="smoke"), device=device))
    assert seen == [FAR, torch.device("cpu"), torch.device("cpu")]
