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


@pytest.fixture(scope="session", autouse=True)
def quick_own_errors():
    """A vestige is kept in many tests, and the error of its draws is half of the cost: a quick ratio tells it here."""
    from vestige.vestiges import reference

    reference.ERRORS_BY = reference.fast()


@pytest.fixture
def own_errors_of_users(monkeypatch):
    """The error of a vestige's draws as users have it."""
    monkeypatch.setattr("vestige.vestiges.reference.ERRORS_BY", "auto")


@pytest.fixture(autouse=True)
def no_width_of_a_terminal(monkeypatch):
    """A runner may pass its own terminal's width on; tables in tests are as wide as they are in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def types_are_checked_anew(request):
    typechecker.Current.test = request.node
