"""Records against the standard decorator: the same class twice, made by either."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from dvm_graph.records import record


@record
class Made:
    """A record."""

    name: str
    numbers: tuple[int, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    unseen: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unseen", len(self.name))


@dataclass(frozen=True, slots=True)
class Standard:
    """The same."""

    name: str
    numbers: tuple[int, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    unseen: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unseen", len(self.name))


@record(frozen=False)
class Open:
    """One that may change."""

    number: int = 0


@record(frozen=False)
class Wider(Open):
    """One with more."""

    more: int = 1


@record(eq=False)
class Itself:
    """One that is equal to itself alone."""

    number: int


BOTH = [Made, Standard]


def test_what_the_standard_library_sees() -> None:
    for look in (
        lambda c: [(f.name, f.type, f.init, f.compare) for f in fields(c)],
        lambda c: repr(c("a", (1, 2))).removeprefix(c.__name__),
        lambda c: asdict(c("a", table={"b": 3})),
        lambda c: replace(c("a"), name="bcd").unseen,
        lambda c: c.__slots__,
        lambda c: c.__match_args__,
    ):
        made, standard = map(look, BOTH)
        assert made == standard


@pytest.mark.parametrize("kind", BOTH)
def test_records_are_what_their_fields_are(kind: Any) -> None:
    a = kind("a", (1,))
    assert a == kind("a", (1,)) == copy.deepcopy(a) == pickle.loads(pickle.dumps(a))
    assert pickle.loads(pickle.dumps(a)).unseen == 1
    assert a != kind("a")
    assert (Made("a") == Standard("a")) is False
    assert kind("a").table is not kind("a").table
    assert not hasattr(a, "__dict__")


@pytest.mark.parametrize("kind", BOTH)
def test_fields_are_set_once(kind: Any) -> None:
    a = kind("a")
    for change in (lambda: setattr(a, "name", "b"), lambda: delattr(a, "name")):
        with pytest.raises(FrozenInstanceError):
            change()
    with pytest.raises(TypeError):
        hash(a)  # its table has none
    with pytest.raises(TypeError, match="name"):
        kind()


def test_hashes_are_those_of_fields() -> None:
    @record
    class Pair:
        first: int
        second: str = "b"

    assert {Pair(1), Pair(1, "b"), Pair(2)} == {Pair(1), Pair(2)}
    assert len({Itself(1), Itself(1)}) == 2


def test_records_that_change() -> None:
    wider = Wider(2, 3)
    wider.number = 4
    assert (wider.number, wider.more) == (4, 3)
    assert wider == Wider(4, 3) != Wider(4)
    assert Wider.__slots__ == ("more",)
    with pytest.raises(TypeError):
        hash(wider)
    with pytest.raises(AttributeError):
        wider.other = 1
