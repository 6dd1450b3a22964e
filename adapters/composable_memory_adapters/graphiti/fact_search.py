"""Answers questions with facts, and says what is missing from the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from composable_memory.content import Health
from composable_memory.errors import ComposableMemoryError
from composable_memory.facts import Fact
from composable_memory.query.fusion import ANSWERING
from composable_memory.query.intent import parse_query_intent
from composable_memory.supervision.tasks import all_of
from composable_memory.time.windows import window_of
from composable_memory.types import SearchAnswer, SearchOptions
from composable_memory_adapters.graphiti.fact_results import as_result, cited, passage_result
from composable_memory_adapters.graphiti.fact_stores import (
    BACKEND_ID,
    STATES,
    FactAnswer,
    Question,
)
from composable_memory_adapters.graphiti.status import GraphParts, Monitor
from composable_memory_ops_logs import QUERY_PREVIEW_CHARS, ErrorInfo, GraphitiQuery

MIN_FACTS = 24
"""So many facts are looked for at least, so that a short answer is the beginning of a longer one."""
MOST_HISTORIES = 3
"""Of so many facts that answer best it is looked up what else was said of the same matter."""
MAX_FACTS = 100_000
"""A database would not take every number that somebody may write."""


class FactSearch:
    """The search over one workspace's groups."""

    def __init__(self, parts: GraphParts, monitor: Monitor) -> None:
        self._parts = parts
        self._monitor = monitor

    async def answer(self, query: str, options: SearchOptions) -> SearchAnswer:
        """Return the facts that answer `query`, best first; of a question of a time, what held then."""
        if not query.strip():
            return SearchAnswer(results=())
        await self._monitor.count_waiting()
        if self._monitor.is_empty:
            return SearchAnswer(results=(), degraded=(self._monitor.never_indexed(),))
        question = self._question(query, options)
        answer, others = await self._ask(question)
        results = [
            as_result(
                replace(scored, fact=cited(scored.fact, self._parts.scope)),
                question,
                outdated=[cited(one, self._parts.scope) for one in others.get(scored.fact.id, ())],
            )
            for scored in answer.facts
        ]
        passages = [passage_result(one, self._parts.scope) for one in answer.passages]
        results = sorted([*results, *passages], key=lambda one: -one.score)
        kept = [one for one in results if one.exact or one.score >= options.min_score]
        degraded = self._monitor.degradations(nothing_found=not results)
        return SearchAnswer(
            results=tuple(kept[: options.max_results]),
            degraded=(*answer.degraded, *degraded),
            engines=answer.engines,
        )

    def _question(self, query: str, options: SearchOptions) -> Question:
        now = options.now or self._parts.services.clock()
        intent = options.intent or parse_query_intent(query)
        window = window_of(intent.time_hints, now)
        return Question(
            text=query,
            groups=self._parts.scope.searched_by(options.session_key),
            limit=min(max(MIN_FACTS, options.max_results), MAX_FACTS),
            now=now,
            window=window,
            when=" ".join(hint.phrase for hint in intent.time_hints) if window else "",
            entities=intent.entities,
        )

    async def _ask(self, question: Question) -> tuple[FactAnswer, Mapping[str, Sequence[Fact]]]:
        """Return the facts that answer, and to those that answer it best what they have outdated."""
        began = perf_counter()
        try:
            await self._monitor.compare(question.groups)
            answer = await self._parts.store.search(question)
            outdated = await self._outdated(question, answer)
        except ComposableMemoryError as error:
            self._log(question, began, error=error)
            self._monitor.note_health(Health(ok=False, message=str(error)))
            raise
        self._log(question, began, answer)
        self._monitor.note_health(Health(ok=True))
        return answer, outdated

    async def _outdated(self, question: Question, answer: FactAnswer) -> Mapping[str, Sequence[Fact]]:
        """Return to the best facts that hold at the time asked about what does not, of the same matter."""
        holding = [
            one.fact
            for one in answer.facts
            if one.score >= ANSWERING and one.fact.relation != STATES and question.is_true_of(one.fact)
        ][:MOST_HISTORIES]
        histories = await all_of(*(self._parts.store.history(fact) for fact in holding))
        return {
            fact.id: [one for one in history if not question.is_true_of(one)]
            for fact, history in zip(holding, histories, strict=True)
        }

    def _log(
        self,
        question: Question,
        began: float,
        answer: FactAnswer | None = None,
        *,
        error: ComposableMemoryError | None = None,
    ) -> None:
        facts = [scored.fact for scored in answer.facts] if answer else []
        self._parts.services.ops_log.emit(
            GraphitiQuery(
                query=question.text[:QUERY_PREVIEW_CHARS],
                limit=question.limit,
                fact_count=len(facts),
                node_ids=[fact.id for fact in facts],
                episode_ids=list(dict.fromkeys(id_ for fact in facts for id_ in fact.episodes)),
                error=ErrorInfo.of(error) if error else None,
            ),
            status="failure" if error else "success",
            backend=BACKEND_ID,
            duration_ms=(perf_counter() - began) * 1000,
        )
