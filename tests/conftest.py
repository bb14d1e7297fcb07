"""Tests run one torch thread a process, so that the same seed gives the same bits."""

import gc

import jaxtyping
import pytest
import torch

import typechecker

torch.set_num_threads(1)
jaxtyping.jaxtyped = typechecker.jaxtyped
gc.disable()


def pytest_collection_finish():
    """What is imported stays: from here on the garbage collector looks only at what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_width_of_a_terminal(monkeypatch):
    """A runner may pass its own terminal's width on; tables in tests are as wide as they are in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def types_are_checked_anew(request):
    typechecker.Current.test = request.node
