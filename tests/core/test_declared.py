"""Declared constraints refuse at the door, in the one sentence, and know their own type."""

from dataclasses import dataclass

import pytest

from vestige.core.checks import declared, option
from vestige.core.errors import InputError, UnknownName


@dataclass
class Settings:
    learning_rate: float = option(1e-3, above=0)
    share: float = option(0.5, low=0, high=1)
    steps: int = option(10, low=1, high=100)
    hidden: tuple[int, ...] = option((8, 8), low=1, least=1)
    loss: str = option("js", among=("js", "kl"))
    late: str = option("a", among=lambda: {"a": 1, "b": 2})
    cap: int | None = option(None, low=1)
    rate: float | tuple[float, ...] = option(0.1, above=0)
    quick: bool = option(False)
    words: str = "whatever"

    def __post_init__(self):
        declared(self)


GOOD = [
    {},
    {"steps": 1},
    {"steps": 100},
    {"share": 0},
    {"share": 1.0},
    {"hidden": (1,)},
    {"loss": "kl"},
    {"late": "b"},
    {"cap": 3},
    {"rate": (0.1, 0.2)},
    {"learning_rate": 1},
    {"quick": True},
    {"words": 3},
]
BAD = [
    ({"learning_rate": 0}, r"The 'learning_rate' of Settings must be in \(0, inf\]. Got 0 instead."),
    ({"learning_rate": "x"}, "The 'learning_rate' of Settings must be a number. Got 'x' instead."),
    ({"share": 1.1}, r"in \[0, 1\]"),
    ({"steps": 0}, "at least 1"),
    ({"steps": 101}, "at most 100"),
    ({"steps": 2.5}, "a whole number"),
    ({"steps": True}, "a whole number"),
    ({"hidden": ()}, "at least 1 long"),
    ({"hidden": (8, 0)}, "at least 1"),
    ({"hidden": 8}, "a list"),
    ({"loss": "jss"}, "Did you mean 'js'"),
    ({"late": "c"}, "one of a, b"),
    ({"cap": 0}, "at least 1"),
    ({"rate": (0.1, -1.0)}, r"in \(0, inf\]"),
    ({"quick": 1}, "True or False"),
]


@pytest.mark.parametrize("fields", GOOD)
def test_what_is_declared_is_taken(fields):
    made = Settings(**fields)
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize(("fields", "sentence"), BAD)
def test_what_is_not_is_refused(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        Settings(**fields)


def test_an_unknown_name_is_one():
    with pytest.raises(UnknownName):
        Settings(loss="nothing")


def test_whole_numbers_can_have_open_ends():
    @dataclass
    class Open:
        k: int = option(2, above=1, below=4)

    declared(Open(3))
    for k in (1, 4):
        with pytest.raises(InputError, match=r"in \(1, 4\)"):
            declared(Open(k))
