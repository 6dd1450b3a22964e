"""What a row of the feedback store holds: checked when one is imported, or saved from a damaged file."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.store.codecs import (
    EVALUATIONS,
    EXPERIMENTS,
    INTERVALS,
    QUESTIONS,
    TABLES,
    WEIGHTS,
    logged_query_of,
)

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


def _readable(read: Callable[[str], object]) -> AfterValidator:
    """Refuse a text that the store could not read; a `FeedbackError` says what is wrong."""

    def checked(text: str) -> str:
        read(text)
        return text

    return AfterValidator(checked)


class Row(BaseModel):
    """A row of a table, by the names of its columns."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class _Judgement(Row):
    table: Literal["judgements"]
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


class _BackendQuery(Row):
    table: Literal["backend_queries"]
    trace_id: str
    query_id: str
    backend: str
    kind_group: Literal["judged", "implicit"]
    day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    intent: IntentKind
    precision: Share
    mean_relevance: Share
    used: Count
    results: Count


class _Evaluation(Row):
    table: Literal["evaluations"]
    reserved_at: AwareDatetime
    at: AwareDatetime
    detail: Annotated[str, _readable(EVALUATIONS.read)]


class _WeightTable(Row):
    table: Literal["weight_tables"]
    number: Count
    version: str
    replaced: str | None
    detail: Annotated[str, _readable(TABLES.read)]


class _WeightChange(Row):
    table: Literal["weight_changes"]
    version: str | None
    replaced: str | None
    at: AwareDatetime
    actor: str
    action: Literal["adopt", "rollback", "reset"]
    reason: str
    base: Annotated[str, _readable(WEIGHTS.read)]
    gain: Annotated[str, _readable(INTERVALS.read)] | None


class _Experiment(Row):
    table: Literal["experiments"]
    id: str
    memory: str | None
    state: Literal["running", "decided", "stopped"]
    started_at: AwareDatetime
    detail: Annotated[str, _readable(EXPERIMENTS.read)]


class _Outcome(Row):
    table: Literal["outcomes"]
    experiment_id: str
    trace_id: str
    query_id: str
    at: AwareDatetime
    a: float
    b: float


class _Golden(Row):
    table: Literal["golden"]
    question: Annotated[str, _readable(QUESTIONS.read)]
    query: Annotated[str, _readable(logged_query_of)]


ROWS: Mapping[str, type[Row]] = {
    "weight_tables": _WeightTable,
    "weight_changes": _WeightChange,
    "golden": _Golden,
    "experiments": _Experiment,
    "outcomes": _Outcome,
    "evaluations": _Evaluation,
    "backend_queries": _BackendQuery,
    "judgements": _Judgement,
}
"""In the order of writing: what the loss of would cost most comes first."""
