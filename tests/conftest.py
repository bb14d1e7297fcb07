"""Tests run one torch thread a process, so that the same seed gives the same bits."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_width_of_a_terminal(monkeypatch):
    """A runner may pass its own terminal's width on; tables in tests are as wide as they are in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
