"""Judgements: how well one result answered one query, who says so, and how much that counts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from statistics import fmean
from typing import TypeAlias

from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import place_key
from composable_memory_ops_logs.quick_dataclass import dataclass

QueryKey: TypeAlias = tuple[str, str]
"""The trace id and the query id."""
RELEVANT = 0.5
"""A result is relevant if its relevance is greater."""


class JudgementKind(StrEnum):
    """Who or what judged how well a result answered."""

    EXPLICIT = "explicit"
    """A person or an agent said so."""
    MODEL = "model"
    """A language model judged it."""
    OPENED = "opened"
    """It was read after the search."""
    QUOTED = "quoted"
    """Its words are in the answer that was given."""
    REQUERIED = "requeried"
    """The question was asked again in other words. Only found in stores of earlier versions."""

    @property
    def is_implicit(self) -> bool:
        """Return whether it was inferred from use; such signals depend on the rank of a result."""
        return self in (JudgementKind.OPENED, JudgementKind.QUOTED, JudgementKind.REQUERIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How relevant one result was to its query, from 0 to 1.

    The place of the result is the delivered passage; `rank` is its 1-based rank, or the one after the last
    for a candidate that was not delivered. `backend` is the one that returned it, or None if a fallback did,
    about which the judgement says nothing.
    """

    trace_id: str
    query_id: str
    at: datetime
    path: str
    start_line: int
    end_line: int
    rank: int
    backend: str | None
    intent: IntentKind
    kind: JudgementKind
    relevance: float
    was_used: bool = False
    rationale: str = ""
    by: str = ""
    """The model, or the person, that judged."""
    start_char: int = 0
    """The offset in its first line of a piece of a long line."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.relevance <= 1.0:
            raise ValueError(f"a relevance is from 0 to 1, not {self.relevance}")

    @property
    def key(self) -> str:
        """Return `path:start_line:end_line`, with `:start_char` for a piece that does not begin its line."""
        return place_key(self.path, self.start_line, self.end_line, self.start_char)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One call of a model that judged one query: its outcome and its cost.

    `precision` and `mean_relevance` are over the judged results, 0 if there are none. `error` says why a call
    brought no judgements.
    """

    trace_id: str
    query_id: str
    query: str
    """The beginning of the question, with secrets masked."""
    at: datetime
    model: str
    precision: float = 0.0
    mean_relevance: float = 0.0
    used_count: int = 0
    judged_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecord:
    """How well the results of a backend did in judged queries.

    `precision` (the share of relevant results) and `mean_relevance` are means over the queries, each from 0
    to 1; `used` and `results` are sums over them.
    """

    queries: int
    precision: float
    mean_relevance: float
    used: int
    results: int
    """How many results were judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendDay(BackendRecord):
    """The record of one backend in the queries of one kind that were judged on one day (UTC)."""

    day: date
    backend: str
    intent: IntentKind


def total_of(days: Iterable[BackendDay]) -> BackendRecord:
    """Sum up several days; the means are 0 without queries."""
    days = [*days]
    queries = sum(one.queries for one in days)
    return BackendRecord(
        queries=queries,
        precision=sum(one.precision * one.queries for one in days) / (queries or 1),
        mean_relevance=sum(one.mean_relevance * one.queries for one in days) / (queries or 1),
        used=sum(one.used for one in days),
        results=sum(one.results for one in days),
    )


def backend_days(judgements: Iterable[Judgement]) -> list[BackendDay]:
    """Return how backends did, day by day, from judgements in the order in which they were stored.

    A query counts on the day of its latest judgement. Judgements inferred from use are left out: used results
    are nearly always relevant, so they say little about quality.
    """
    by_query: defaultdict[tuple[str, str, str], list[Judgement]] = defaultdict(list)
    for one in judgements:
        if one.backend is not None and not one.kind.is_implicit:
            by_query[one.trace_id, one.query_id, one.backend].append(one)
    by_day: defaultdict[tuple[date, str, IntentKind], list[list[Judgement]]] = defaultdict(list)
    for (_, _, backend), several in by_query.items():
        latest = several[-1]
        by_day[latest.at.astimezone(UTC).date(), backend, latest.intent].append(several)
    return [_day(*key, by_day[key]) for key in sorted(by_day)]


def _day(day: date, backend: str, intent: IntentKind, queries: Sequence[Sequence[Judgement]]) -> BackendDay:
    """Return the figures of a day; of several judgements of a result, the latest by a person counts."""
    relevances = []
    for judgements in queries:
        by_weight = sorted(judgements, key=lambda one: one.kind is JudgementKind.EXPLICIT)
        deciding = {one.key: one.relevance for one in by_weight}
        relevances.append([*deciding.values()])
    return BackendDay(
        day=day,
        backend=backend,
        intent=intent,
        queries=len(queries),
        precision=fmean(fmean(one > RELEVANT for one in own) for own in relevances),
        mean_relevance=fmean(fmean(own) for own in relevances),
        used=sum(len({one.key for one in several if one.was_used}) for several in queries),
        results=sum(map(len, relevances)),
    )
