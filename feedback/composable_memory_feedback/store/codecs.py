"""How values become text in the feedback store and come back equal, and what each row holds.

Floats come back to the last bit. A row is checked when it is imported, or saved from a damaged file.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from sqlite3 import Row
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
)

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome
from composable_memory_feedback.golden import GoldenQuestion
from composable_memory_feedback.judgements import Evaluation, Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")


class Kept(RootModel[T]):
    """The text form of one kind of value; nested dataclasses take over its settings."""

    # NaN and infinity have no place in JSON; written as constants they are at least read back as they were.
    model_config = ConfigDict(frozen=True, defer_build=True, ser_json_inf_nan="constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[T]):
    """Writes values of one kind as JSON and reads them."""

    what: str
    model: type[Kept[T]]

    def write(self, value: T) -> str:
        """Return a value as JSON.

        Raises:
            FeedbackError: The value holds something that JSON cannot.
        """
        try:
            return self.model(value).model_dump_json(warnings=False)
        except ValueError as error:
            raise _unusable("cannot be kept", self.what, error) from error

    def read(self, text: str) -> T:
        """Return the value that `write` made the text from.

        Raises:
            FeedbackError: The text is of something else.
        """
        try:
            return self.model.model_validate_json(text).root
        except ValueError as error:
            raise _unusable("cannot be read", self.what, error) from error

    def of_rows(self, rows: Iterable[Row]) -> list[T]:
        """Return the values of rows that have a column for every field.

        Raises:
            FeedbackError: A row is of something else.
        """
        try:
            return [self.model.model_validate(dict(row)).root for row in rows]
        except ValueError as error:
            raise _unusable("cannot be read", self.what, error) from error


TABLES = Codec(what="weight table", model=Kept[WeightTable])
EXPERIMENTS = Codec(what="experiment", model=Kept[Experiment])
EVALUATIONS = Codec(what="evaluation", model=Kept[Evaluation])
INTERVALS = Codec(what="interval", model=Kept[Interval])
WEIGHTS = Codec(what="weights", model=Kept[Mapping[str, float]])
QUESTIONS = Codec(what="golden question", model=Kept[GoldenQuestion])
QUERIES = Codec(what="logged query", model=Kept[LoggedQuery])
JUDGEMENTS = Codec(what="judgement", model=Kept[Judgement])
OUTCOMES = Codec(what="outcome", model=Kept[Outcome])


def columns_of(value: Judgement | Outcome) -> dict[str, Any]:
    """Return the fields of a value as a row holds them, by their names."""
    return {one.name: _column(getattr(value, one.name)) for one in fields(value)}


def _column(value: object) -> object:
    if isinstance(value, datetime):
        return time_text(value)
    return plain_text(value) if isinstance(value, str) else value


def time_text(at: datetime) -> str:
    """Return a time as text that sorts by time: UTC, with microseconds.

    Raises:
        ValueError: The time says nothing of its zone.
    """
    if at.tzinfo is None:
        raise ValueError(f"a time needs its zone: {at.isoformat()}")
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str) -> datetime:
    """Return the time that `time_text` wrote."""
    return datetime.fromisoformat(text)


def plain_text(text: str) -> str:
    """Return a text that a file can hold: halves of characters, as broken JSON has them, become `?`."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _unusable(problem: str, what: str, error: ValueError) -> FeedbackError:
    reason = str(error).splitlines()[0]
    return FeedbackError(f"the {what} {problem}", subject=reason, advice="the feedback store is unchanged")


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


def _readable(read: Callable[[str], object]) -> AfterValidator:
    """Refuse a text that the store could not read; a `FeedbackError` says what is wrong."""

    def checked(text: str) -> str:
        read(text)
        return text

    return AfterValidator(checked)


class RowModel(BaseModel):
    """A row of a table, by the names of its columns."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class _Judgement(RowModel):
    trace_id: str
    query_id: str
    path: str
    start_line: int
    end_line: int
    kind: JudgementKind
    judge: str
    at: AwareDatetime
    rank: int
    backend: str | None
    intent: IntentKind
    relevance: Share
    was_used: Literal[0, 1]
    rationale: str
    start_char: Count = 0


class _Evaluation(RowModel):
    reserved_at: AwareDatetime
    at: AwareDatetime
    detail: Annotated[str, _readable(EVALUATIONS.read)]


class _WeightTable(RowModel):
    number: Count
    version: str
    replaced: str | None
    detail: Annotated[str, _readable(TABLES.read)]


class _WeightChange(RowModel):
    version: str | None
    replaced: str | None
    at: AwareDatetime
    actor: str
    action: Literal["adopt", "rollback", "reset"]
    reason: str
    base: Annotated[str, _readable(WEIGHTS.read)]
    gain: Annotated[str, _readable(INTERVALS.read)] | None


class _Experiment(RowModel):
    id: str
    memory: str | None
    state: Literal["running", "decided", "stopped"]
    started_at: AwareDatetime
    detail: Annotated[str, _readable(EXPERIMENTS.read)]


class _Outcome(RowModel):
    experiment_id: str
    trace_id: str
    query_id: str
    at: AwareDatetime
    a: float
    b: float


class _Golden(RowModel):
    question: Annotated[str, _readable(QUESTIONS.read)]
    query: Annotated[str, _readable(QUERIES.read)]


ROWS: Mapping[str, type[RowModel]] = {
    "weight_tables": _WeightTable,
    "weight_changes": _WeightChange,
    "golden": _Golden,
    "experiments": _Experiment,
    "outcomes": _Outcome,
    "evaluations": _Evaluation,
    "judgements": _Judgement,
}
"""In the order of writing: what the loss of would cost most comes first."""
