"""Values made by the quick decorator behave as those of the standard one."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest
from pydantic import TypeAdapter

from composable_memory_ops_logs import quick_dataclass

Decorator = Callable[..., Callable[[type], type]]
QUICK: Decorator = quick_dataclass.dataclass
OPTIONS = {"frozen": True, "slots": True, "kw_only": True}


def note(decorator: Decorator, **options: bool) -> Any:
    """Return a class with every kind of field that the product uses."""

    class Note:
        """A note."""

        kind: ClassVar[str] = "note"
        path: str
        line: int = 1
        tags: list[str] = field(default_factory=list, hash=False)
        secret: str | None = field(default=None, repr=False)
        seen: int = field(default=0, compare=False)
        place: str = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "place", f"{self.path}:{self.line}")

    return decorator(**(OPTIONS | options))(Note)


BOTH = (note(dataclasses.dataclass), note(QUICK))


@QUICK(**OPTIONS)
class Place:
    """A value that a pickle can find."""

    path: str
    lines: tuple[int, ...] = ()


def test_its_values_are_made_compared_and_shown_alike() -> None:
    shown = []
    for make in BOTH:
        one = make(path="a", secret="x")
        assert (one.path, one.line, one.tags, one.place, one.kind) == ("a", 1, [], "a:1", "note")
        assert one.tags is not make(path="a").tags
        assert one == make(path="a", secret="x", seen=9)
        assert hash(one) == hash(make(path="a", secret="x", tags=["t"], seen=9))
        assert one not in (make(path="b", secret="x"), make(path="a"), make(path="a", secret="x", tags=["t"]))
        assert one != ("a", 1, [], "x", "a:1")
        shown.append(repr(one))

    assert shown[0] == shown[1]
    assert BOTH[0](path="a") != BOTH[1](path="a")


def test_its_values_stay_as_they_are() -> None:
    for make in BOTH:
        one = make(path="a")
        with pytest.raises(FrozenInstanceError):
            one.path = "b"
        with pytest.raises(FrozenInstanceError):
            del one.line
        with pytest.raises((FrozenInstanceError, TypeError)):  # Python 3.11 fails to say it properly
            one.unknown = 1
        assert (one.path, one.line) == ("a", 1)


def test_what_the_standard_library_asks_of_it_is_answered_alike() -> None:
    described = []
    for make in BOTH:
        one = make(path="a", tags=["t"])
        assert replace(one, line=3) == make(path="a", tags=["t"], line=3)
        assert dataclasses.asdict(one)["tags"] == ["t"]
        with pytest.raises(TypeError, match="path"):
            make()
        with pytest.raises(TypeError):
            make("a")
        parameters = inspect.signature(make).parameters.values()
        described.append(
            (
                [field.name for field in dataclasses.fields(make)],
                make.__match_args__,
                make.__slots__,
                [(each.name, each.kind, each.annotation, each.default is each.empty) for each in parameters],
                make.__init__.__qualname__,
            )
        )

    assert described[0] == described[1]


def test_a_copy_and_a_pickle_hold_the_same_values() -> None:
    place = Place(path="a", lines=(1, 2))  # type: ignore[call-arg]

    assert copy.copy(place) == copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place


def test_pydantic_reads_it() -> None:
    assert TypeAdapter(Place).validate_json('{"path": "a", "lines": [3]}') == Place(path="a", lines=(3,))  # type: ignore[call-arg]


def test_values_by_position_are_taken_in_order() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Pair:
            first: int
            second: int = 2

        make: Any = decorator(frozen=True, slots=True)(Pair)
        assert make(1) == make(1, 2) == make(second=2, first=1)


def test_values_without_slots_remember_what_is_computed_once() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Query:
            words: tuple[str, ...]
            language: str = "en"

            @cached_property
            def first(self) -> str:
                return self.words[0]

        make: Any = decorator(frozen=True, kw_only=True)(Query)
        one = make(words=("a", "b"))
        assert (one.first, one.__dict__["first"]) == ("a", "a")
        assert one == make(words=("a", "b"), language="en")
        assert (hash(one), copy.copy(one).first) == (hash(make(words=("a", "b"))), "a")
        with pytest.raises(FrozenInstanceError):
            one.language = "de"


def test_methods_of_its_own_are_kept() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Word:
            text: str

            def __eq__(self, other: object) -> bool:
                return isinstance(other, type(self)) and self.text.lower() == other.text.lower()

            def __hash__(self) -> int:
                return 7

            def __repr__(self) -> str:
                return self.text

        make: Any = decorator(**OPTIONS)(Word)
        assert make(text="A") == make(text="a")
        assert (hash(make(text="A")), repr(make(text="A"))) == (7, "A")


def test_a_class_may_be_derived_from_it_by_either_decorator() -> None:
    for base in BOTH:
        for decorator in (dataclasses.dataclass, QUICK):
            derived: Any = decorator(**OPTIONS)(type("Derived", (base,), {"__annotations__": {"more": int}}))
            one = derived(path="a", more=1)
            assert (one.path, one.more, one == derived(path="a", more=2)) == ("a", 1, False)
            assert copy.deepcopy(one) == one
            with pytest.raises(FrozenInstanceError):
                one.more = 2
            without_slots: Any = decorator(frozen=True)(
                type("Derived", (base,), {"__annotations__": {"more": int}, "more": 1})
            )
            assert (without_slots(path="a").path, without_slots(path="a").more) == ("a", 1)


def test_fields_that_only_the_class_sets_begin_with_their_defaults() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Run:
            name: str
            count: int = field(default=3, init=False)
            seen: list[str] = field(default_factory=list, init=False)

        make: Any = decorator(slots=True)(Run)
        assert (make("a").count, make("a").seen) == (3, [])
        assert make("a").seen is not make("a").seen
        with pytest.raises(TypeError):
            make("a", 4)


def test_values_that_are_not_frozen_can_change_and_have_no_hash() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Count:
            value: int = 0
            seen: list[str] = field(default_factory=list)

        make: Any = decorator(slots=True)(Count)
        one = make()
        one.value = 2
        assert one == make(2)
        assert (repr(one), copy.deepcopy(one)) == (repr(make(2)), one)
        with pytest.raises(TypeError):
            hash(one)


def test_values_that_are_not_compared_are_told_apart() -> None:
    for decorator in (dataclasses.dataclass, QUICK):

        class Open:
            value: int = 0

        make: Any = decorator(frozen=True, slots=True, eq=False)(Open)
        one = make()
        assert (one == one, one == make(), len({one, make()})) == (True, False, 2)
        with pytest.raises(FrozenInstanceError):
            one.value = 1
