"""Asks an open memory golden questions, scores the answers, and keeps them as the floor for weights."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from composable_memory.learning.context import LearningContext
from composable_memory.learning.logged import queries_of
from composable_memory.learning.weight_tables import WeightTables
from composable_memory.query.replay import Replayer
from composable_memory.types import QueryResponse
from composable_memory_feedback.golden import (
    GoldenComparison,
    GoldenQuestion,
    GoldenRecord,
    GoldenScore,
    compare_golden,
    score_golden,
    score_hits,
)
from composable_memory_ops_logs import redact
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionScore:
    """How one golden question was answered; `first_rank` is the 1-based rank of the first correct result."""

    id: str
    question: str
    recall: float
    mrr: float
    ndcg: float
    first_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRun:
    """The result of asking the golden questions.

    `floor` compares with the answers kept before; None if there were none. `unanswered` names questions for
    which no backend could be asked; `kept` is the number kept as the floor from now on.
    """

    score: GoldenScore
    questions: tuple[QuestionScore, ...]
    floor: GoldenComparison | None = None
    unanswered: tuple[str, ...] = ()
    kept: int = 0


class Asked(Protocol):
    """A memory that can be asked questions."""

    async def query(self, query: str, *, max_results: int | None = None) -> QueryResponse:
        """Answer a question."""
        ...


class GoldenQuestions:
    """The golden questions of one memory."""

    def __init__(self, context: LearningContext, tables: WeightTables) -> None:
        self._context = context
        self._tables = tables

    async def record(
        self, memory: Asked, questions: Sequence[GoldenQuestion], *, k: int = 10, keep: bool = True
    ) -> GoldenRun:
        """Ask all questions and score the answers; with `keep` they become the new floor."""
        began = self._context.clock() - timedelta(seconds=1)
        traces = {}
        for question in questions:
            response = await memory.query(question.question, max_results=k)
            traces[response.trace_id] = question
        logged = await queries_of(self._context, since=began)
        asked = {
            one.trace_id: one for one in logged.queries if any(found.error is None for found in one.lists)
        }
        records = [
            # Masked: the store must not keep more of a question than the log does.
            GoldenRecord(
                question=replace(one, id=redact(one.id), question=redact(one.question)), query=asked[trace_id]
            )
            for trace_id, one in traces.items()
            if trace_id in asked
        ]
        before = await self._context.stored_if_any(lambda store: store.golden()) or []
        floor = None
        if before:
            table = (await self._tables.report()).table
            floor = await asyncio.to_thread(compare_golden, before, table, Replayer(), k=k)
        if keep and records:
            await self._context.stored(lambda store: store.put_golden(records))
        return GoldenRun(
            score=await asyncio.to_thread(score_golden, records, ranker=Replayer(), k=k),
            questions=tuple(_scored(record, k) for record in records),
            floor=floor,
            unanswered=tuple(one.id for trace_id, one in traces.items() if trace_id not in asked),
            kept=len(records) if keep else 0,
        )


def _scored(record: GoldenRecord, k: int) -> QuestionScore:
    hits, expected = record.query.shown, record.question.expected
    score = score_hits(hits, expected, k)
    ranks = (rank for rank, hit in enumerate(hits, 1) if any(place.is_in(hit) for place in expected))
    return QuestionScore(
        id=record.question.id,
        question=record.question.question,
        recall=score.recall,
        mrr=score.mrr,
        ndcg=score.ndcg,
        first_rank=next(ranks, None),
    )
