"""Values for the tests of the feedback store."""

from datetime import UTC, datetime, timedelta

from composable_memory_feedback.judgements import Evaluation, Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import (
    LoggedList,
    LoggedQuery,
    RankedHit,
    RankingPolicy,
)
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import Candidate, Interleaved, TakenFrom

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def judgement(
    path: str = "a.md",
    *,
    query: str = "q1",
    backend: str | None = "builtin",
    kind: JudgementKind = JudgementKind.MODEL,
    relevance: float = 1.0,
    at: datetime = NOON,
    by: str = "",
    was_used: bool = False,
    rationale: str = "",
    intent: IntentKind = IntentKind.GENERAL,
) -> Judgement:
    return Judgement(
        trace_id="t1",
        query_id=query,
        at=at,
        path=path,
        start_line=1,
        end_line=9,
        rank=1,
        backend=backend,
        intent=intent,
        kind=kind,
        relevance=relevance,
        was_used=was_used,
        rationale=rationale,
        by=by,
    )


def evaluation(query: str = "q1", at: datetime = NOON) -> Evaluation:
    return Evaluation(
        trace_id="t1",
        query_id=query,
        query="where are the keys",
        at=at,
        model="small",
        precision=2 / 3,
        mean_relevance=0.1 + 0.2,
        used_count=1,
        judged_count=3,
        input_tokens=900,
        output_tokens=80,
        duration_ms=412.5,
    )


def table(builtin: float = 1.0, graphiti: float = 0.5, reason: str = "it answers better") -> WeightTable:
    return WeightTable(
        weights={"builtin": builtin, "graphiti": graphiti},
        by_intent={IntentKind.TIME: {"graphiti": 0.9}},
        version="proposed",
        made_at=NOON,
        reason=reason,
    )


def logged_query(query_id: str = "q1") -> LoggedQuery:
    candidate = Candidate(
        path="notes/a b.md",
        start_line=1,
        end_line=9,
        score=1 / 3,
        rank=1,
        source="memory",
        snippet_preview="die Schlüssel 鑰匙 🗝",
        content_hash="ab12",
        origin=TakenFrom("graph.md", 3, 4),
    )
    return LoggedQuery(
        trace_id="t1",
        query_id=query_id,
        at=NOON,
        query="where are the keys",
        intent=IntentKind.ENTITY,
        policy=RankingPolicy(
            fusion="weighted-max",
            dedup="near",
            rrf_k=60,
            weights={"builtin": 0.7, "graphiti": 0.1 + 0.2},
            max_results=6,
            min_score=0.0,
            depth=20,
            dropped=frozenset({"qmd"}),
        ),
        lists=(
            LoggedList(backend="builtin", depth=20, candidates=(candidate, candidate._replace(rank=2))),
            LoggedList(backend="graphiti", depth=20, answered_by="builtin", error="it was down"),
        ),
        near=frozenset({(0, 1)}),
        shown=(
            RankedHit(
                path="notes/a b.md",
                start_line=1,
                end_line=9,
                backend="builtin",
                score=0.1,
                calibrated=0.3,
                others=("c.md:1:2",),
            ),
        ),
        memory="home",
        session_key="agent:main:main",
        experiment=Interleaved(
            id="e1", weights_a={"builtin": 1.0}, weights_b={}, seed=2**40, teams=("a", "b")
        ),
    )
