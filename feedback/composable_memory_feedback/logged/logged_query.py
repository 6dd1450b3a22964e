"""Values of logged queries and of what was done with the answers; a `Ranker` ranks them again."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, Any, Protocol

from pydantic import Field

from composable_memory_feedback.judgements import Judgement, JudgementKind, QueryKey
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import Candidate, Interleaved, TakenFrom, place_key
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPolicy:
    """How candidates become a ranking: everything that a replay can change.

    `weights` are those active for this query. `dropped` names backends whose candidates are left out as if
    they had not answered. With `calibration`, the scores of all are calibrated by this method, not by that of
    their list.
    """

    fusion: str
    dedup: str
    rrf_k: int
    weights: Mapping[str, float]
    max_results: int
    min_score: float
    depth: int
    dropped: frozenset[str] = frozenset()
    calibration: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedList:
    """The answer of one backend, best first.

    `calibration` is its configured method, `is_absolute` says whether it promises absolute scores.
    `answered_by` names a backend that stood in for it.
    """

    backend: str
    depth: int
    candidates: tuple[Candidate, ...] = ()
    calibration: str = "auto"
    is_absolute: bool = True
    answered_by: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedHit:
    """One place of a ranking: the passage that represents it, and its duplicates.

    `calibrated` is their best calibrated score, in [0, 1].
    """

    path: str
    start_line: int
    end_line: int
    backend: str
    score: float
    calibrated: float
    others: tuple[str, ...] = ()
    """Keys of the duplicates."""
    start_char: int = 0
    """The offset in its first line of a piece of a long line."""

    @classmethod
    def of(
        cls, found: Candidate, backend: str, *, score: float, calibrated: float, others: tuple[str, ...] = ()
    ) -> "RankedHit":
        """Return a hit represented by a candidate."""
        return cls(
            path=found.path,
            start_line=found.start_line,
            end_line=found.end_line,
            start_char=found.start_char or 0,
            backend=backend,
            score=score,
            calibrated=calibrated,
            others=others,
        )

    @property
    def key(self) -> str:
        """Return `path:start_line:end_line`, with `:start_char` for a piece that does not begin its line."""
        return place_key(self.path, self.start_line, self.end_line, self.start_char)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return its own key, then those of the duplicates."""
        return (self.key, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQuery:
    """One complete query of one composite: candidates, policy, and the resulting ranking.

    `lists` are in the order in which the backends were asked. `near` has the pairs of candidates with nearly
    equal texts, as indices into all lists laid end to end. `shown` is what was delivered, best first.
    """

    trace_id: str
    query_id: str
    at: datetime
    query: str
    """The beginning of the question, with secrets masked."""
    intent: IntentKind
    policy: RankingPolicy
    lists: tuple[LoggedList, ...]
    near: frozenset[tuple[int, int]]
    shown: tuple[RankedHit, ...]
    manager: str = "composite"
    memory: str | None = None
    """The id of the memory, for when several share one log."""
    session_key: str | None = None
    experiment: Interleaved | None = None
    written: Annotated[Any, Field(exclude=True)] = field(default=None, repr=False, compare=False)
    """The log's `ShortRanking`, for the byte-for-byte comparison; not kept in a store."""

    @property
    def key(self) -> QueryKey:
        """Return the trace id and the query id."""
        return self.trace_id, self.query_id

    @property
    def backends(self) -> tuple[str, ...]:
        """Return the ids of the backends that were asked."""
        return tuple(one.backend for one in self.lists)

    @property
    def fallbacks(self) -> frozenset[str]:
        """Return the backends for which another one answered; their results say nothing about them."""
        return frozenset(one.backend for one in self.lists if one.answered_by is not None)

    def under(self, table: WeightTable) -> RankingPolicy:
        """Return the policy with the weights that a table has for questions of this kind."""
        weights = {one: table.of(one, self.intent) for one in self.backends}
        return replace(self.policy, weights={**self.policy.weights, **weights})

    def rank_of(self, hit: RankedHit) -> int:
        """Return the 1-based rank of a result in the answer; what was not shown comes after the last."""
        shown = (rank for rank, one in enumerate(self.shown, 1) if one.key == hit.key)
        return next(shown, len(self.shown) + 1)

    @property
    def previews(self) -> Mapping[str, str]:
        """Return the beginning of each candidate's text, by key."""
        return {one.key: one.snippet_preview for found in self.lists for one in found.candidates}

    def brought_by(self, hit: RankedHit) -> str | None:
        """Return the backend that returned a result; None if another one answered for it."""
        return None if hit.backend in self.fallbacks else hit.backend

    def judged(
        self,
        hit: RankedHit,
        kind: JudgementKind,
        *,
        at: datetime,
        relevance: float,
        was_used: bool = False,
        rationale: str = "",
        by: str = "",
    ) -> Judgement:
        """Return a judgement of a result of this query."""
        return Judgement(
            trace_id=self.trace_id,
            query_id=self.query_id,
            at=at,
            path=hit.path,
            start_line=hit.start_line,
            end_line=hit.end_line,
            start_char=hit.start_char,
            rank=self.rank_of(hit),
            backend=self.brought_by(hit),
            intent=self.intent,
            kind=kind,
            relevance=relevance,
            was_used=was_used,
            rationale=rationale,
            by=by,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRead:
    """A read of a memory file: `lines` lines from `from_line` on, from 1; None reads to the end.

    `query_trace_id` names the search that led there, if the reader said so.
    """

    at: datetime
    path: str
    from_line: int | None = None
    lines: int | None = None
    session_key: str | None = None
    memory: str | None = None
    query_trace_id: str | None = None

    def covers(self, place: TakenFrom) -> bool:
        """Return whether any line of a place was read; for a place without lines, whether its file was."""
        if place.path != self.path or (self.lines is not None and self.lines < 1):
            return False
        first = self.from_line or 1
        is_before_the_end = self.lines is None or place.start_line < first + self.lines
        return place.start_line < 1 or (first <= place.end_line and is_before_the_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAnswer:
    """An answer based on a search; `quoted` are the results it quotes."""

    at: datetime
    query_trace_id: str
    quoted: tuple[TakenFrom, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQueries:
    """Queries, oldest first. `incomplete` counts, by reason, what could not be used."""

    queries: tuple[LoggedQuery, ...] = ()
    incomplete: Mapping[str, int] = field(default_factory=dict)


class Ranker(Protocol):
    """Ranks the candidates of a logged query under a policy, with the same code that ranked it then."""

    def __call__(self, query: LoggedQuery, policy: RankingPolicy) -> Sequence[RankedHit]:
        """Return the ranking, best first, at most `policy.max_results` long."""
        ...
