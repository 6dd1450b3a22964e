"""Parses log lines into values; what does not fit its model is a `ValueError`.

Unknown fields are ignored, so that lines of later versions can be read. Numbers are checked as far as they
could make a ranking or a learner go wrong, or never end.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
)
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import Candidate, Interleaved, OpsEvent, TakenFrom
from composable_memory_ops_logs.short_form import ShortRanking, final_row, is_short, short_detail

Count = Annotated[int, Field(ge=0)]
Weights = dict[str, Annotated[float, Field(ge=0.0)]]


class Line(BaseModel):
    """The specific part of a line: camelCase on disk, with exactly the types that are written."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True, allow_inf_nan=False)


class QueryStartLine(Line):
    """A `query.start`."""

    query: str
    active_backends: list[str]
    manager: str
    query_id: Annotated[str, Field(min_length=1)]
    memory: str | None = None


class PlaceLine(Line):
    """Lines of a file."""

    path: str
    start_line: Count
    end_line: Count
    start_char: Count | None = None


class ErrorLine(Line):
    """An error: its class and its message."""

    type: str
    message: str


class ShortAnswer(Line):
    """The answer of a backend, within a `query.merged`."""

    backend: str
    depth: Count
    error: ErrorLine | None = None
    calibration: str
    is_absolute: bool
    answered_by: str | None = None
    found: list[Count]
    scores: list[float]
    exact: list[Count] | None = None


class ExperimentLine(Line):
    """How a list was drawn from two rankings."""

    id: str
    weights_a: Weights
    weights_b: Weights
    seed: int
    teams: Annotated[tuple[Literal["a", "b", "-"], ...], Field(strict=False)]


class MergedLine(Line):
    """A `query.merged` in the short form, with everything from which `ShortRanking` makes candidates.

    A depth of 0 could be doubled forever, so it is rejected.
    """

    fusion: str
    weights: Weights
    dedup: str
    min_score: Annotated[float, Field(ge=0.0, le=1.0)]
    max_results: Annotated[int, Field(ge=1)]
    depth: Annotated[int, Field(ge=1)]
    rrf_k: Count
    intent_kind: str | None = None
    experiment: ExperimentLine | None = None
    backends: list[ShortAnswer]
    shown: list[Any]
    ruled_out: list[Any]
    near: list[Count]
    paths: list[str]
    places: list[Count]
    previews: list[str]
    # Not a list: pydantic copies a default list for every line.
    sources: dict[str, list[Count]] | None = None
    origins: list[Count] | None = None
    start_chars: list[Count] | None = None
    outdated: list[Count] | None = None


class ReadLine(Line):
    """A `memory.read`."""

    path: str
    from_line: int | None = None
    lines: int | None = None
    query_trace_id: str | None = None
    memory: str | None = None


class AnswerLine(Line):
    """An `answer.given`."""

    query_trace_id: str
    quoted: list[PlaceLine] = []


class MissingLines(ValueError):
    """Lines of a query are missing."""


def start_from(event: OpsEvent) -> QueryStartLine:
    """Parse a `query.start`.

    Raises:
        ValueError: the line is invalid.
    """
    start = QueryStartLine.model_validate(event.detail)
    if len(set(start.active_backends)) < len(start.active_backends):
        raise ValueError("a backend cannot be asked twice")
    return start


def query_from(event: OpsEvent, start: QueryStartLine, rest: Sequence[OpsEvent]) -> LoggedQuery:
    """Build a query from its start, which is in `event`, and its other lines in the order of writing.

    Raises:
        MissingLines: the merged list, or the answer of a backend, is missing.
        ValueError: a line is invalid.
    """
    merges = [one for one in rest if one.action == "query.merged"]
    if not merges:
        raise MissingLines(start.query_id)
    detail = merges[0].detail
    if isinstance(detail, Mapping) and not is_short(detail):
        alone = [one for one in reversed(rest) if one.action == "query.backend_result"]
        apart = {one.backend: one for one in alone if isinstance(one.backend, str)}
        if not apart.keys() >= set(start.active_backends):
            raise MissingLines(start.query_id)
        detail = short_detail(merges[0], apart.values())
    merged, ranking = MergedLine.model_validate(detail), ShortRanking(cast("Mapping[str, Any]", detail))
    found = zip(merged.backends, ranking.candidates, strict=True)
    answers = {one.backend: _list(one, tuple(candidates)) for one, candidates in found}
    if not answers.keys() >= set(start.active_backends):
        raise MissingLines(start.query_id)
    lists = tuple(answers[one] for one in start.active_backends)
    near = frozenset(zip(merged.near[::2], merged.near[1::2], strict=True))
    shown = tuple(_hit(row, ranking) for row in merged.shown)
    _check(merged, lists, near, len(shown))
    return LoggedQuery(
        trace_id=event.trace_id,
        query_id=start.query_id,
        at=event.ts,
        query=start.query,
        intent=IntentKind(merged.intent_kind or IntentKind.GENERAL),
        policy=RankingPolicy(
            fusion=merged.fusion,
            dedup=merged.dedup,
            rrf_k=merged.rrf_k,
            weights=merged.weights,
            max_results=merged.max_results,
            min_score=merged.min_score,
            depth=merged.depth,
        ),
        lists=lists,
        near=near,
        shown=shown,
        manager=start.manager,
        memory=start.memory,
        session_key=_session(event),
        experiment=None if (drawn := merged.experiment) is None else Interleaved(**drawn.model_dump()),
        written=ranking,
    )


def read_from(event: OpsEvent) -> LoggedRead:
    """Parse a `memory.read`.

    Raises:
        ValueError: the line is invalid.
    """
    line = ReadLine.model_validate(event.detail)
    return LoggedRead(at=event.ts, session_key=_session(event), **line.model_dump())


def answer_from(event: OpsEvent) -> LoggedAnswer:
    """Parse an `answer.given`.

    Raises:
        ValueError: the line is invalid.
    """
    line = AnswerLine.model_validate(event.detail)
    quoted = tuple(TakenFrom(**one.model_dump()) for one in line.quoted)
    return LoggedAnswer(at=event.ts, query_trace_id=line.query_trace_id, quoted=quoted)


def _list(line: ShortAnswer, candidates: tuple[Candidate, ...]) -> LoggedList:
    return LoggedList(
        backend=line.backend,
        depth=line.depth,
        candidates=candidates,
        calibration=line.calibration,
        is_absolute=line.is_absolute,
        answered_by=line.answered_by,
        error=None if line.error is None else f"{line.error.type}: {line.error.message}",
    )


def _check(merged: MergedLine, lists: Sequence[LoggedList], near: Set[tuple[int, int]], results: int) -> None:
    """Refuse a merged list that does not fit the backends' answers."""
    found = sum(len(one.candidates) for one in lists)
    if any(max(pair) >= found for pair in near):
        raise ValueError("a pair names a candidate that was not found")
    if not merged.weights.keys() >= {one.backend for one in lists}:
        raise ValueError("a backend has no weight")
    if merged.experiment is not None and len(merged.experiment.teams) != results:
        raise ValueError("not every result has a team")


def _hit(row: object, ranking: ShortRanking) -> RankedHit:
    """Return a result, whose passage knows its offset in the line."""
    try:
        number, score, calibrated, others, *_ = final_row(cast("Sequence[object]", row))
        backend, one = ranking.found[number]
        if not (isinstance(score, float) and isinstance(calibrated, float)):
            raise TypeError("a score is a number")
        keys = tuple(ranking.key(other) for other in others)
        return RankedHit.of(one, backend, score=score, calibrated=calibrated, others=keys)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not a result: {error!r}") from error


def _session(event: OpsEvent) -> str | None:
    if not isinstance(event.session_key, str | None):
        raise ValueError("a session key is a text")
    return event.session_key
