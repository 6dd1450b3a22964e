"""The JSON documents of `cmem replay` and `cmem gate`."""

from collections.abc import Mapping
from datetime import datetime

from composable_memory.learning import ReplayRun
from composable_memory.tools import Document
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import GateVerdict, Judged, Move, PolicyChange, QueryReplay
from composable_memory_feedback.weights import WeightTable

__all__ = [
    "ChangeDocument",
    "GateDocument",
    "MoveDocument",
    "ReplayDocument",
    "ReplayedQueryDocument",
    "TableDocument",
]


class TableDocument(Document):
    """A weight table; `by_intent` holds what differs for questions of a kind."""

    version: str
    weights: Mapping[str, float]
    by_intent: Mapping[IntentKind, Mapping[str, float]]

    @classmethod
    def of(cls, table: WeightTable) -> "TableDocument":
        """Return the document of a table."""
        return cls(version=table.version, weights=table.weights, by_intent=table.by_intent)


class ChangeDocument(Document):
    """What was ranked otherwise than logged; what is not there stayed as it was."""

    table: TableDocument | None = None
    fusion: str | None = None
    dedup: str | None = None
    dropped: tuple[str, ...] = ()

    @classmethod
    def of(cls, change: PolicyChange) -> "ChangeDocument":
        """Return the document of a change."""
        return cls(
            table=TableDocument.of(change.table) if change.table else None,
            fusion=change.fusion,
            dedup=change.dedup,
            dropped=tuple(sorted(change.dropped)),
        )


class MoveDocument(Document):
    """A result that stands elsewhere; places count from 1, and one outside the top k is left out."""

    path: str
    start_line: int
    end_line: int
    backend: str
    move: str
    before: int | None = None
    after: int | None = None

    @classmethod
    def of(cls, move: Move) -> "MoveDocument":
        """Return the document of a move."""
        hit = move.hit
        return cls(
            path=hit.path,
            start_line=hit.start_line,
            end_line=hit.end_line,
            backend=hit.backend,
            move=move.kind,
            before=move.before,
            after=move.after,
        )


class ReplayedQueryDocument(Document):
    """One query whose ranking changes; the values of nDCG are there where it was judged."""

    trace_id: str
    query_id: str
    at: datetime
    query: str
    intent: IntentKind
    overlap: float
    kendall: float
    ndcg_before: float | None = None
    ndcg_after: float | None = None
    moves: tuple[MoveDocument, ...]

    @classmethod
    def of(cls, one: QueryReplay) -> "ReplayedQueryDocument":
        """Return the document of a query."""
        return cls(
            trace_id=one.query.trace_id,
            query_id=one.query.query_id,
            at=one.query.at,
            query=one.query.query,
            intent=one.query.intent,
            overlap=one.overlap,
            kendall=one.kendall,
            ndcg_before=one.ndcg_before,
            ndcg_after=one.ndcg_after,
            moves=tuple(map(MoveDocument.of, one.moves)),
        )


class ReplayDocument(Document):
    """`cmem replay`: how exact it was, what changes, and what the judgements say of it.

    `queries` holds those that change most, at most as many as were asked for; `changed` counts all that do.
    """

    k: int
    change: ChangeDocument
    total: int
    reproduced: int
    not_reproduced: tuple[str, ...]
    incomplete: Mapping[str, int]
    changed: int
    queries: tuple[ReplayedQueryDocument, ...]
    judged: Judged | None = None

    @classmethod
    def of(cls, run: ReplayRun) -> "ReplayDocument":
        """Return the document of a replay."""
        report = run.report
        return cls(
            k=report.k,
            change=ChangeDocument.of(report.change),
            total=run.total,
            reproduced=run.reproduced,
            not_reproduced=run.not_reproduced,
            incomplete=run.incomplete,
            changed=report.changed,
            queries=tuple(map(ReplayedQueryDocument.of, report.queries)),
            judged=report.judged,
        )


class GateDocument(Document):
    """`cmem gate`: whether the candidate may follow, by the difference in nDCG at `k` on judged queries."""

    passed: bool
    baseline: TableDocument
    candidate: TableDocument
    k: int
    tolerance: float
    difference: Interval
    judged_queries: int
    reason: str

    @classmethod
    def of(
        cls, verdict: GateVerdict, baseline: WeightTable, candidate: WeightTable, *, k: int, tolerance: float
    ) -> "GateDocument":
        """Return the document of a verdict."""
        return cls(
            passed=verdict.passed,
            baseline=TableDocument.of(baseline),
            candidate=TableDocument.of(candidate),
            k=k,
            tolerance=tolerance,
            difference=verdict.difference,
            judged_queries=verdict.cases,
            reason=verdict.reason,
        )
