"""The kinds of values in the feedback store, each stored as JSON in entries.

Floats are restored exactly, and values are validated against the class of their kind when read.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, RootModel, ValidationError

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome
from composable_memory_feedback.golden import GoldenRecord
from composable_memory_feedback.judgements import Evaluation, Judgement
from composable_memory_feedback.store.entries import Entries, Entry
from composable_memory_feedback.weights import WeightChange
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")


class _Kept(RootModel[T]):
    """The JSON form of one kind of value; nested dataclasses take over its settings."""

    # JSON has no NaN or infinity; written as constants they can at least be read back.
    model_config = ConfigDict(frozen=True, defer_build=True, ser_json_inf_nan="constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """Values of one kind as entries; `at` and `key` name the fields that give their time and key.

    Values without a `key` are distinguished only by their id.
    """

    name: str
    model: type[_Kept[T]]
    at: str = "at"
    key: str = ""

    def entry(self, value: T) -> Entry:
        """Convert a value to an entry.

        Raises:
            ValueError: The time has no zone.
        """
        parts = _fields(self.key)(value) if self.key else None
        key = None if parts is None else key_text(*(parts if isinstance(parts, tuple) else (parts,)))
        return Entry(self.name, key, time_text(_fields(self.at)(value)), self.write(value))

    def write(self, value: T) -> str:
        """Convert a value to JSON."""
        model = self.model(value)
        try:
            return model.model_dump_json(warnings=False)
        except ValueError:  # lone surrogates
            return plain_text(json.dumps(model.model_dump(mode="json"), ensure_ascii=False))

    def read(self, text: str) -> T:
        """Parse the text that `write` made from a value.

        Raises:
            FeedbackError: The text is not a value of this kind.
        """
        try:
            return self.model.model_validate_json(text).root
        except ValidationError as error:
            first = error.errors()[0]
            reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
            problem, advice = f"an entry of {self.name} cannot be read", "the feedback store is unchanged"
            raise FeedbackError(problem, subject=reason, advice=advice) from error

    def all(
        self, entries: Entries, *, since: datetime | None = None, prefix: str = "", newest: int | None = None
    ) -> list[T]:
        """Return the values since a time, in the order of storing, as `Entries.read` does."""
        found = entries.read(self.name, since=time_text(since) if since else "", prefix=prefix, newest=newest)
        return [self.read(one.detail) for one in found]

    def find(self, entries: Entries, *key: str | int) -> T | None:
        """Return the value with a key."""
        text = key_text(*key)
        found = entries.find(self.name, [text]).get(text)
        return None if found is None else self.read(found.detail)

    def put(self, entries: Entries, *values: T) -> None:
        """Store values, each replacing the one with its key."""
        entries.put(map(self.entry, values))


JUDGEMENTS = Kind(
    name="judgements",
    model=_Kept[Judgement],
    key="trace_id query_id path start_line end_line start_char kind by",
)
EVALUATIONS = Kind(name="evaluations", model=_Kept[Evaluation], key="trace_id query_id at model")
WEIGHTS = Kind(name="weight_changes", model=_Kept[WeightChange])
EXPERIMENTS = Kind(name="experiments", model=_Kept[Experiment], at="started_at", key="id")
OUTCOMES = Kind(name="outcomes", model=_Kept[Outcome], key="experiment_id trace_id query_id")
GOLDEN = Kind(name="golden", model=_Kept[GoldenRecord], at="query.at", key="question.id")

KINDS: Mapping[str, Kind[Any]] = {
    one.name: one for one in (WEIGHTS, GOLDEN, EXPERIMENTS, OUTCOMES, EVALUATIONS, JUDGEMENTS)
}
"""Everything that nothing else can restore, in the order of an export."""

_KEYS = json.JSONEncoder(ensure_ascii=False, default=lambda one: time_text(one))

MARKS = "marks"
"""What the store itself remembers, such as how far the log was read: plain text by name."""


@cache
def _fields(names: str) -> Callable[[object], Any]:
    return attrgetter(*names.split())


def key_text(*parts: str | int | datetime) -> str:
    """Return the text of a key; with fewer parts, minus its last character, it is a prefix of longer ones."""
    return plain_text(_KEYS.encode(parts))


def time_text(at: datetime) -> str:
    """Return a time as text that sorts chronologically: UTC, with microseconds.

    Raises:
        ValueError: The time has no zone.
    """
    if at.tzinfo is None:
        raise ValueError(f"a time needs its zone: {at.isoformat()}")
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def plain_text(text: str) -> str:
    """Return a text that a file can hold: lone surrogates, as from broken JSON, become `?`."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
