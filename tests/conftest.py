"""Tests run one torch thread a process, so that the same seed gives the same bits."""

import dataclasses
import gc
from pathlib import Path

import jaxtyping
import pytest
import torch

import typechecker

torch.set_num_threads(1)
jaxtyping.jaxtyped = typechecker.jaxtyped
gc.disable()


def pytest_collection_finish():
    """What is imported stays: from here on the garbage collector looks only at what the tests make, and seldom."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


class Few:
    """Whether the networks of a `Stack` take few steps, in few folds: the same code at a tenth of the cost."""

    full = ("golden", "ratios")  # where tests look at the numbers of a ratio, and not at what becomes of them
    steps, folds, em_steps = 10, 2, 5
    draws, null_folds = 300, 2  # of the null of a drift test: as few as it ever has
    now = False


def pytest_runtest_setup(item):
    """Before any fixture of the test; `full_training` is for a test of the numbers, `few_steps` for one that is not."""
    typechecker.Current.test = item  # types are checked anew
    place = item.path.relative_to(Path(__file__).parent).parts[0]
    few = place not in Few.full or item.get_closest_marker("few_steps") is not None
    Few.now = few and item.get_closest_marker("full_training") is None


@pytest.fixture(scope="session", autouse=True)
def few_steps_of_a_stack():
    """See `Few`."""
    from vestige.ratios.stack import mixture, stack

    schedules, plain, fit = stack.Stack._schedules, stack.StackSchedule, stack.Stack._fit
    cold = mixture.COLD

    def wide(self):
        few = {"min_steps": Few.steps, "max_steps": Few.steps}
        return tuple(dataclasses.replace(one, **few) if Few.now else one for one in schedules(self))

    def joint(steps, *others):
        return plain(min(steps, Few.steps) if Few.now else steps, *others)

    def folded(self, *sample, **previous):
        asked = self.folds
        self.folds = min(asked, Few.folds) if Few.now else asked
        mixture.COLD = Few.em_steps if Few.now else cold
        try:
            fit(self, *sample, **previous)
        finally:
            self.folds = asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "COLD", cold)
        patch.setattr(stack.Stack, "_fit", folded)
        patch.setattr(stack.Stack, "_schedules", wide)
        patch.setattr(stack, "StackSchedule", joint)
        yield


@pytest.fixture(scope="session", autouse=True)
def few_draws_of_a_null():
    """See `Few`: the null of a drift test is drawn whenever rows are kept, and most tests do not ask for its level."""
    from vestige.vestiges.drift_test import null, test

    drawn, usual, folds = test.drawn_null, test.DRAWS, null.FOLDS

    def fewer(*given, **named):
        test.DRAWS, null.FOLDS = (Few.draws, Few.null_folds) if Few.now else (usual, folds)
        return drawn(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test, "DRAWS", usual)
        patch.setattr(null, "FOLDS", folds)
        patch.setattr(test, "drawn_null", fewer)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_own_errors():
    """A vestige is kept in many tests, and the error of its draws is half of the cost: a quick ratio tells it here."""
    from vestige.vestiges import reference

    reference.ERRORS_BY = reference.fast()


@pytest.fixture
def own_errors_of_users(monkeypatch):
    """The error of a vestige's draws as users have it."""
    monkeypatch.setattr("vestige.vestiges.reference.ERRORS_BY", "auto")


@pytest.fixture(scope="session", autouse=True)
def no_width_of_a_terminal():
    """A runner may pass its own terminal's width on; tables in tests are as wide as they are in a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield
