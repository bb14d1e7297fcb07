"""The type checker of the tests sees what it should: otherwise every annotation would pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

from typechecker import CALLS, Current, check, jaxtyped
from vestige.core.numerics import log_mean_exp


def product(x: Float[Tensor, "n d"], y: Float[Tensor, "d k"]) -> Float[Tensor, "n k"]:
    return x @ y if len(x) else x


def named(size: float, name: str = "") -> str:
    return name * 2 if name else 0


def test_sizes_hold_over_all_arguments_and_the_result():
    checked = check(product)
    assert checked(torch.zeros(2, 3), torch.zeros(3, 4)).shape == (2, 4)
    assert checked(torch.zeros(5, 1), torch.zeros(1, 4)).shape == (5, 4)  # sizes are those of one call
    for x, y in ((torch.zeros(2, 3), torch.zeros(2, 4)), (torch.zeros(2, 3, 1), torch.zeros(3, 4)), ([[1.0]], [[1.0]])):
        with pytest.raises(BeartypeCallHintViolation):
            check(product)(x, y)
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        check(product)(torch.zeros(0, 3), torch.zeros(3, 4))


def test_arguments_and_results_without_sizes():
    checked = check(named)
    assert checked(1, "a") == "aa"  # an int is a float
    with pytest.raises(BeartypeCallHintViolation):
        checked("1", "a")
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        checked(1.0)


def rows(x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Iterator[Tensor]:
    yield from x


def test_generators_are_checked_when_they_are_made():
    checked = check(rows)
    first, second = checked(torch.zeros(2, 3), torch.zeros(2)), checked(torch.zeros(4, 3), torch.zeros(4))
    assert (len(list(first)), len(list(second))) == (2, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        checked(torch.zeros(2, 3), torch.zeros(3))


@dataclass
class Point:
    x: int

    def moved(self, by: Unknown) -> Self:
        return Point(self.x + by)


def test_dataclasses_are_checked_and_what_cannot_be_resolved_is_not():
    decorate = jaxtyped(typechecker=check)
    with pytest.raises(BeartypeCallHintViolation):
        decorate(decorate(Point))("1")
    assert check(Point.moved)(Point(1), 2) == Point(3)


def test_the_package_is_checked(request):
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("run without --jaxtyping-packages")
    with pytest.raises(BeartypeCallHintViolation):
        log_mean_exp(torch.zeros(3), torch.ones(4))


def test_the_first_calls_of_every_test_are_checked(monkeypatch):
    checked = check(named)
    for _ in range(CALLS):
        assert checked(1.0, "a") == "aa"
    assert checked("1", "a") == "aa"  # no longer
    monkeypatch.setattr(Current, "test", "the next one")
    with pytest.raises(BeartypeCallHintViolation):
        checked("1", "a")
