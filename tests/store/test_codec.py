"""The codec: whatever is stored comes back, and what does not fit is named by its key."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.core.errors import StoreError
from vestige.core.estimate import Estimate
from vestige.core.plain import plain
from vestige.store.codec import decode, encode, newer, restore, restore_tensors, to_tensors


@dataclass(frozen=True)
class Inner:
    x: Float[Tensor, "n d"]
    scale: float = 1.0


class Shape:
    pass


@dataclass
class Circle(Shape):
    radius: float


@dataclass
class Square(Shape):
    side: float
    inner: Inner | None = None


@dataclass
class Thing:
    name: str
    numbers: tuple[int, ...] = (1, 2)
    pair: tuple[int, str] = (1, "a")
    table: dict[int, list[float]] = field(default_factory=dict)
    maybe: float | None = None
    inner: Inner | None = None
    mode: Literal["a", "b"] = "a"
    anything: Any = None
    shape: Shape = field(default_factory=lambda: Circle(1.0))
    coef_: Tensor = field(init=False, repr=False)
    report_: dict[str, Any] = field(init=False, default_factory=dict)


SHAPES = {"Circle": Circle, "Square": Square}


def full() -> Thing:
    thing = Thing("it", (3, 4), (7, "z"), {1: [0.5, math.nan], 2: []}, math.inf, Inner(torch.eye(2), -math.inf), "b")
    thing.anything = {"deep": [1, {"t": torch.arange(3)}]}
    thing.shape = Square(2.0, Inner(torch.ones(1, 1)))
    thing.coef_ = torch.arange(4.0, dtype=torch.float64)
    thing.report_ = {"steps": 3}
    return thing


def round_trip(thing):
    fields, tensors = encode(thing)
    return decode(type(thing), json.loads(json.dumps(fields, allow_nan=False)), tensors, classes=SHAPES)


def test_everything_comes_back():
    a, b = full(), round_trip(full())
    assert (b.name, b.numbers, b.pair, b.mode, b.maybe, b.report_) == (
        a.name,
        a.numbers,
        a.pair,
        "b",
        math.inf,
        a.report_,
    )
    assert b.table[1][0] == 0.5
    assert math.isnan(b.table[1][1])
    assert b.table[2] == []
    assert torch.equal(b.inner.x, torch.eye(2))
    assert b.inner.scale == -math.inf
    assert torch.equal(b.anything["deep"][1]["t"], torch.arange(3))
    assert isinstance(b.shape, Square)
    assert torch.equal(b.shape.inner.x, torch.ones(1, 1))
    assert torch.equal(b.coef_, a.coef_)
    assert b.coef_.dtype == torch.float64


def test_what_was_not_learnt_stays_unlearnt():
    assert not hasattr(round_trip(Thing("new")), "coef_")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"numbers": [1, "2"]}, r"'numbers.1' must be a whole number"),
        ({"numbers": 3}, "'numbers' must be a list"),
        ({"pair": [1]}, "'pair' must be 2 long"),
        ({"pair": [1, 2.0, 3]}, "'pair' must be 2 long"),
        ({"mode": "c"}, "'mode' must be one of"),
        ({"table": {"x": []}}, "'table' must be an object with whole numbers"),
        ({"maybe": "much"}, "'maybe' must be"),
        ({"coef_": [1, 2]}, "'coef_' must be a tensor"),
        ({"coef_": {"tensor": "gone"}}, "'gone' is missing"),
        ({"shape": {"class": "Thing", "name": "x"}}, "'shape' must be a Shape. Got 'Thing'"),
        ({"shape": {"class": "os.system"}}, "'shape' must be a Shape"),
        ({"class": "Other"}, "must be a Thing. Got 'Other'"),
        ({"extra": 1}, "'extra' of the stored Thing is unknown"),
        ({"name": True}, "'name' must be a text"),
    ],
)
def test_what_does_not_fit_is_named(change, sentence):
    fields, tensors = encode(full())
    with pytest.raises(StoreError, match=sentence):
        decode(Thing, fields | change, tensors, classes=SHAPES)


def test_a_missing_field_is_named():
    fields, tensors = encode(full())
    del fields["name"]
    with pytest.raises(StoreError, match="'name' of the stored Thing is missing"):
        decode(Thing, fields, tensors, classes=SHAPES)


def test_a_field_that_is_newer_than_its_file_has_its_default():
    @dataclass(frozen=True)
    class Grown:
        first: int
        second: float = newer(0.5)

    fields, tensors = encode(Grown(1, 2.0))
    assert decode(Grown, fields, tensors) == Grown(1, 2.0)
    del fields["second"]
    assert decode(Grown, fields, tensors) == Grown(1, 0.5)
    del fields["first"]
    with pytest.raises(StoreError, match="'first' of the stored Grown is missing"):
        decode(Grown, fields, tensors)


def test_plain_json_is_read_by_its_annotations_alone():
    assert decode(dict[str, Circle], plain({"a": Circle(2.0)})) == {"a": Circle(2.0)}
    for data in (3, {}, {"class": 3}, {"radius": 1.0, "side": 1.0}):
        with pytest.raises(StoreError):
            decode(Circle, data)
    with pytest.raises(StoreError, match="must be a Shape"):
        decode(Shape, {"radius": 1.0})


def test_a_class_that_nobody_allowed_is_not_built():
    fields, tensors = encode(full())
    with pytest.raises(StoreError, match=r"'shape' must be a Shape\. Got 'Square'"):
        decode(Thing, fields, tensors)


class Fitted:
    """No dataclass: only what it learnt is stored, into an object that was built from its configuration."""

    net_: nn.Module
    steps_: int

    def __init__(self, width):
        self.width = width
        self.net_ = nn.Linear(width, 1)


def test_learnt_attributes_and_networks_are_restored_in_place():
    torch.manual_seed(0)
    a, b = Fitted(3), Fitted(3)
    a.steps_ = 5
    fields, tensors = encode(a)
    restore(b, json.loads(json.dumps(fields)), tensors)
    assert b.steps_ == 5
    assert torch.equal(a.net_.weight, b.net_.weight)
    with pytest.raises(StoreError, match=r"'net_.weight' must be of shape \(1, 2\)"):
        restore(Fitted(2), fields, tensors)


class Owner:
    """Holds an object that it built itself, a random generator, and a property that stands for what is not storable."""

    part_: Fitted
    noise_: torch.Generator

    def __init__(self):
        self.part_, self.noise_ = Fitted(2), torch.Generator().manual_seed(0)
        self.numbers = {}

    @property
    def numbers_(self) -> dict[int, Tensor]:
        return {key: torch.tensor(value) for key, value in self.numbers.items()}

    @numbers_.setter
    def numbers_(self, stored: dict[int, Tensor]) -> None:
        self.numbers = {key: value.tolist() for key, value in stored.items()}

    @property
    def fixed_(self) -> int:
        return 3


def test_a_state_of_tensors_alone_goes_into_an_object_that_is_there():
    a, b = Owner(), Owner()
    a.part_.steps_, a.numbers = 7, {4: [1.0, 2.0]}
    torch.rand(3, generator=a.noise_)
    state = to_tensors(a)
    assert {"json", "noise_", "numbers_.4", "part_.net_.weight", "part_.net_.bias"} == state.keys()
    part = b.part_
    restore_tensors(b, state)
    assert b.part_ is part
    assert (b.part_.steps_, b.numbers) == (7, {4: [1.0, 2.0]})
    assert torch.equal(a.part_.net_.weight, b.part_.net_.weight)
    assert torch.equal(torch.rand(3, generator=a.noise_), torch.rand(3, generator=b.noise_))
    with pytest.raises(StoreError, match="'json' of the stored Owner is missing"):
        restore_tensors(b, {})
    with pytest.raises(StoreError, match="is no JSON"):
        restore_tensors(b, {"json": torch.tensor([123], dtype=torch.uint8)})


def test_what_has_no_stored_form_is_a_bug_of_ours():
    with pytest.raises(TypeError, match="no way to store a object"):
        encode({"a": object()})


def test_an_estimate_comes_back_whole_with_numbers_that_are_not_finite():
    e = Estimate.refused("Too few rows.", name="kl", n=3, details={"pareto_k": math.inf, "form": "eq4"})
    assert round_trip(e) == e


@dataclass
class Pair:
    """Networks that follow from what was learnt: as many as `names_` says, and one behind them."""

    width: int = 2
    names_: tuple[int, ...] = field(default=(), init=False)
    each_: dict[int, nn.Module] = field(default_factory=dict, init=False)
    last_: nn.Module = field(init=False)

    def _rebuild(self) -> None:
        self.each_ = {name: nn.Linear(self.width, 1) for name in self.names_}
        self.last_ = nn.Linear(len(self.names_), 1)


def taught() -> Pair:
    pair = Pair(3)
    pair.names_ = (4, 7)
    pair._rebuild()
    return pair


def test_networks_that_follow_from_what_was_learnt_are_made_and_take_their_weights():
    pair = taught()
    for same in (round_trip(pair), Pair(3)):
        if same.names_ == ():
            restore_tensors(same, to_tensors(pair))
        assert same.names_ == (4, 7)
        assert torch.equal(same.each_[7].weight, pair.each_[7].weight)
        assert torch.equal(same.last_.bias, pair.last_.bias)


def test_a_state_dict_with_a_tensor_too_many_or_too_few_is_refused():
    state = to_tensors(taught())
    assert set(state) > {"json", "each_.4.weight", "last_.bias"}
    with pytest.raises(StoreError, match="'stray'"):
        restore_tensors(Pair(3), state | {"stray": torch.zeros(1)})
    for key in state:
        with pytest.raises(StoreError, match=key):
            restore_tensors(Pair(3), {k: v for k, v in state.items() if k != key})
    with pytest.raises(StoreError, match=r"each_\.4\.weight"):
        restore_tensors(Pair(2), state)
    with pytest.raises(StoreError, match="no JSON"):
        restore_tensors(Pair(3), state | {"json": torch.zeros(1, dtype=torch.uint8)})
