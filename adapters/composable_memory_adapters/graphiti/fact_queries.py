"""Answers questions with facts, lists facts, entities and episodes, and renders the pages for `get`."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from time import perf_counter

from composable_memory.content import Health
from composable_memory.errors import ComposableMemoryError, MemoryPathError
from composable_memory.facts import Episode, Fact, GraphEntity, Neighbourhood
from composable_memory.query.fusion import ANSWERING
from composable_memory.query.intent import parse_query_intent
from composable_memory.supervision.tasks import all_of
from composable_memory.time.windows import FAR_FUTURE, FAR_PAST, window_of
from composable_memory.types import MemoryFileSlice, MemorySearchResult, Origin, SearchAnswer, SearchOptions
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.graphiti.fact_results import (
    PATH_ROOT,
    as_result,
    cited,
    cited_episode,
    episode_page,
    fact_page,
    files_gone,
    group_in,
    ids_in,
    passage_result,
)
from composable_memory_adapters.graphiti.fact_stores import (
    BACKEND_ID,
    STATES,
    FactAnswer,
    Question,
)
from composable_memory_adapters.graphiti.observed_times import in_utc
from composable_memory_adapters.graphiti.status import OpenGraph
from composable_memory_ops_logs import QUERY_PREVIEW_CHARS, ErrorInfo, GraphitiQuery

MIN_FACTS = 24
"""The fewest facts searched for, so that a short answer is a prefix of a longer one."""
MOST_HISTORIES = 3
"""The number of top facts for which the history of the same subject is looked up."""
MAX_FACTS = 100_000
"""An upper bound, as a database does not accept every number that a caller may pass."""


class FactQueries(OpenGraph):
    """The part of the graph memory that answers and browses; it never starts an empty private graph."""

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the facts that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and report what is missing; a question about a time is answered with what held then."""
        self._require_open("search")
        options = options or SearchOptions()
        if not query.strip():
            return SearchAnswer(results=())
        await self._monitor.count_waiting()
        if self._monitor.is_empty:
            return SearchAnswer(results=(), degraded=(self._monitor.never_indexed(),))
        question = self._question(query, options)
        answer, others = await self._ask(question)
        scope, facts = self._parts.scope, [scored.fact for scored in answer.facts]
        told = [fact for history in others.values() for fact in history]
        gone = await self._gone(
            *(origin for fact in (*facts, *told) for origin in fact.origins),
            *(passage.origin for passage in answer.passages),
        )
        results = [
            as_result(
                replace(scored, fact=cited(scored.fact, scope, gone)),
                question,
                outdated=[cited(one, scope, gone) for one in others.get(scored.fact.id, ())],
            )
            for scored in answer.facts
        ]
        passages = [passage_result(one, scope, gone) for one in answer.passages]
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
        """Return the facts that answer, and for the best of them the facts they superseded."""
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
        """Map the best facts that hold at the time asked about to facts on the same subject that do not."""
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

    # --- lists and pages ------------------------------------------------------------------------------------

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the page of a fact, with its history and sources, or the text of an episode.

        For a file of another workspace, return what the graph has of the lines. A missing record has no text,
        and neither has one in a group that we may not read.
        """
        self._require_open("read a fact")
        group, ids = group_in(rel_path), ids_in(rel_path)
        if group is None:
            raise MemoryPathError(rel_path, "it is not a fact", allowed=[f"{PATH_ROOT}/<group>/<id>"])
        if not self._parts.scope.may_read(group) or not await self._has_facts():
            text = ""
        elif ids:
            text = excerpt(await self._page(*ids), from_line, lines)
        else:
            text = await self._said_in(group, rel_path, from_line or 1, lines or MAX_FACTS)
        return MemoryFileSlice(text=text, path=rel_path)

    async def _said_in(self, group_id: str, path: str, first: int, count: int) -> str:
        """Return what the graph has of lines of another workspace's file."""
        # Search for a part that is never escaped in a description: only these two characters are.
        part = max(re.split("[%#]", path.rpartition("/")[2]), key=len)
        found = await self._parts.store.episodes([group_id], limit=MAX_FACTS, place=part)
        scope = self._parts.scope
        places = [(one, one.origin) for one in (cited_episode(one, scope, ()) for one in found)]
        said = [
            (place.start_line, episode.text.strip())
            for episode, place in places
            if place
            and place.path == path
            and place.start_line < first + count
            and first <= (place.end_line or MAX_FACTS)
        ]
        return "\n\n".join(text for _, text in sorted(said))

    async def _page(self, group_id: str, own_id: str) -> str:
        fact = await self._parts.store.fact(group_id, own_id)
        if fact is None:
            episode = await self._parts.store.episode(group_id, own_id)
            if episode is None:
                return ""
            originals = await self._parts.outbox.originals(episode.id)
            return episode_page((await self._cited_episodes([episode]))[0], originals)
        history = await self._parts.store.history(fact)
        found = [await self._parts.store.episode(group_id, episode_id) for episode_id in fact.episodes]
        sources = await self._cited_episodes([one for one in found if one])
        return fact_page(fact, self._parts.services.clock(), history=history, sources=sources)

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        """Return facts, newest first."""
        self._require_open("list facts")
        if not await self._has_facts():
            return ()
        found = await self._parts.store.facts(
            self._parts.scope.searched,
            about=about,
            as_of=None if as_of is None else _in_calendar(as_of),
            current_at=self._parts.services.clock() if current_only else None,
            limit=limit,
        )
        return await self._cited(found)

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        """Return entities, those with the most facts first."""
        self._require_open("list entities")
        if not await self._has_facts():
            return ()
        return await self._parts.store.entities(self._parts.scope.searched, named=named, limit=limit)

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        """Return ingested episodes, latest observed first."""
        self._require_open("list episodes")
        if not await self._has_facts():
            return ()
        found = await self._parts.store.episodes(self._parts.scope.searched, limit=limit)
        return await self._cited_episodes(found)

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        """Return the latest facts about one entity, ordered by when they begin to hold."""
        self._require_open("show a timeline")
        if not await self._has_facts():
            return ()
        found = await self._parts.store.facts(
            self._parts.scope.searched, about=entity, as_of=None, current_at=None, limit=limit
        )
        return await self._cited([*reversed(found)])

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        """Return at most `limit` facts within `depth` steps of an entity, or the newest of all."""
        self._require_open("show a neighbourhood")
        if not await self._has_facts():
            return Neighbourhood()
        found = await self._parts.store.neighbourhood(
            self._parts.scope.searched, entity, depth=depth, limit=limit
        )
        return replace(found, facts=tuple(await self._cited(found.facts)))

    async def _cited(self, facts: Sequence[Fact]) -> list[Fact]:
        gone = await self._gone(*(origin for fact in facts for origin in fact.origins))
        return [cited(fact, self._parts.scope, gone) for fact in facts]

    async def _cited_episodes(self, episodes: Sequence[Episode]) -> list[Episode]:
        gone = await self._gone(*(episode.origin for episode in episodes))
        return [cited_episode(episode, self._parts.scope, gone) for episode in episodes]

    async def _gone(self, *origins: Origin | None) -> frozenset[str]:
        return await asyncio.to_thread(files_gone, origins, self._parts.services.workspace_dir)

    async def _has_facts(self) -> bool:
        await self._monitor.count_waiting(anew=True)
        if self._monitor.is_empty:
            return False
        await self._monitor.compare(self._parts.scope.searched)
        return True


def _in_calendar(moment: datetime) -> datetime:
    """Convert a time to UTC; one without a zone counts as UTC, one outside the calendar is clamped."""
    try:
        return in_utc(moment)
    except OverflowError:
        return FAR_PAST if moment.year == 1 else FAR_FUTURE
