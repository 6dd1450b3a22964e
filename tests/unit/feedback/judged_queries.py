"""Logged queries to be judged, a model that says what it is told to, and a store in memory."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from threading import current_thread, main_thread

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Evaluation, Judgement
from composable_memory_feedback.language_model import ChatReply
from composable_memory_feedback.logged.logged_query import LoggedList, LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import Candidate
from composable_memory_ops_logs.events import JsonValue

__all__ = ["NOW", "ScriptedModel", "ShelfStore", "hit", "judgments", "logged_query"]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class ScriptedModel:
    """Says one text after another, the last one again and again; an error is raised."""

    model = "scripted"

    def __init__(self, *says: str | FeedbackError, is_whole: bool = True) -> None:
        self._says = list(says)
        self._is_whole = is_whole
        self.asked: list[tuple[str, str]] = []
        self.schemas: list[Mapping[str, JsonValue] | None] = []

    async def complete(
        self,
        system: str,
        user: str,
        *,
        schema: Mapping[str, JsonValue] | None = None,
        schema_name: str = "answer",
    ) -> ChatReply:
        self.asked.append((system, user))
        self.schemas.append(schema)
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, FeedbackError):
            raise said
        return ChatReply(
            text=said,
            input_tokens=700,
            output_tokens=70,
            duration_ms=12.5,
            model=self.model,
            is_whole=self._is_whole,
        )


class ShelfStore(FeedbackStore):
    """Keeps evaluations and judgements in lists; must not be called on the event loop's thread."""

    def __init__(self) -> None:
        self.begun = 0
        self.finished: list[Evaluation] = []
        self.added: list[Judgement] = []

    def begin_evaluation(self, *, per_hour: int, now: datetime) -> bool:
        assert current_thread() is not main_thread()
        if self.begun >= per_hour:
            return False
        self.begun += 1
        return True

    def add_evaluation(self, evaluation: Evaluation, /) -> None:
        assert current_thread() is not main_thread()
        self.finished.append(evaluation)

    def add(self, judgements: Iterable[Judgement], /) -> int:
        assert current_thread() is not main_thread()
        before = len(self.added)
        self.added.extend(judgements)
        return len(self.added) - before


def hit(
    path: str, *, backend: str = "builtin", score: float = 0.8, others: tuple[str, ...] = ()
) -> RankedHit:
    return RankedHit(
        path=path,
        start_line=1,
        end_line=4,
        backend=backend,
        score=score,
        calibrated=score,
        others=others,
    )


def logged_query(*shown: RankedHit, query: str = "where is the boat?", stand_in: str = "") -> LoggedQuery:
    """Return a query that delivered these results; the previews in its log are `preview of PATH`."""
    backends = sorted({one.backend for one in shown} | {"builtin"})
    return LoggedQuery(
        trace_id="t1",
        query_id="q1",
        at=NOW,
        query=query,
        intent=IntentKind.GENERAL,
        policy=RankingPolicy(
            fusion="weighted",
            dedup="overlap",
            rrf_k=60,
            weights=dict.fromkeys(backends, 1.0),
            max_results=10,
            min_score=0.0,
            depth=40,
        ),
        lists=tuple(
            LoggedList(
                backend=backend,
                depth=40,
                answered_by="spare" if backend == stand_in else None,
                candidates=tuple(
                    _candidate(one, rank) for rank, one in enumerate(shown, start=1) if one.backend == backend
                ),
            )
            for backend in backends
        ),
        near=frozenset(),
        shown=shown,
    )


def judgments(*scores: float, **more: object) -> str:
    """Return a well-formed reply that gives the results these scores, in turn."""
    items = [
        {
            "resultIndex": index,
            "relevanceScore": score,
            "wasUsed": score > 0.7,
            "rationale": f"result {index} was judged",
            **more,
        }
        for index, score in enumerate(scores)
    ]
    return json.dumps({"judgments": items})


def _candidate(one: RankedHit, rank: int) -> Candidate:
    return Candidate(
        path=one.path,
        start_line=one.start_line,
        end_line=one.end_line,
        score=one.score,
        rank=rank,
        source="memory",
        snippet_preview=f"preview of {one.path}",
        content_hash=f"hash-{one.path}",
    )
