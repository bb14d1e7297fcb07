"""A device that is not there, or that units do not compute on, is refused by name."""

import pytest
import torch

from vestige.errors import InputError
from vestige.runner.device import device_of


def test_the_cpu_is_always_there_and_the_default():
    assert device_of("cpu") == device_of(None) == torch.device("cpu")


def test_one_that_is_absent_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"must be on this machine: cpu.* Got cuda"):
        device_of("cuda")


def test_one_that_is_there_but_would_not_be_used_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match="units do not compute elsewhere"):
        device_of("cuda")


def test_an_unknown_one_is_refused():
    with pytest.raises(InputError, match="device"):
        device_of("gpu")
