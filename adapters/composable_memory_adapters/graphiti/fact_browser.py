"""Lists facts, entities and episodes, and renders the pages that `get` shows."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from composable_memory.errors import BackendUnavailable, MemoryPathError
from composable_memory.facts import Episode, Fact, GraphEntity, Neighbourhood
from composable_memory.time.windows import FAR_FUTURE, FAR_PAST
from composable_memory.types import MemoryFileSlice
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.graphiti.fact_results import (
    PATH_ROOT,
    cited,
    cited_episode,
    episode_page,
    fact_page,
    ids_in,
)
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.observed_times import in_utc
from composable_memory_adapters.graphiti.status import GraphParts, Monitor


class FactBrowser:
    """The part of the graph memory that browses; an empty private graph is not started for that."""

    def __init__(self, parts: GraphParts, monitor: Monitor) -> None:
        self._parts = parts
        self._monitor = monitor
        self._is_closed = False

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the page of a fact, with its history and its sources, or the text of an episode.

        What is not there has no text, and neither has what is in a group that is not ours to read.
        """
        self._require_open("read a fact")
        ids = ids_in(rel_path)
        if ids is None:
            raise MemoryPathError(rel_path, "it is no fact", allowed=[f"{PATH_ROOT}/<group>/<id>"])
        is_readable = self._parts.scope.may_read(ids[0]) and await self._has_facts()
        text = await self._page(*ids) if is_readable else ""
        return MemoryFileSlice(text=excerpt(text, from_line, lines), path=rel_path)

    async def _page(self, group_id: str, own_id: str) -> str:
        fact = await self._parts.store.fact(group_id, own_id)
        if fact is None:
            episode = await self._parts.store.episode(group_id, own_id)
            if episode is None:
                return ""
            originals = await self._parts.outbox.originals(episode.id)
            return episode_page(cited_episode(episode, self._parts.scope), originals)
        history = await self._parts.store.history(fact)
        found = [await self._parts.store.episode(group_id, episode_id) for episode_id in fact.episodes]
        sources = [cited_episode(one, self._parts.scope) for one in found if one]
        return fact_page(fact, self._parts.services.clock(), history=history, sources=sources)

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        """Return facts, the newest first."""
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
        return [cited(fact, self._parts.scope) for fact in found]

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        """Return entities, those with most facts first."""
        self._require_open("list entities")
        if not await self._has_facts():
            return ()
        return await self._parts.store.entities(self._parts.scope.searched, named=named, limit=limit)

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        """Return what was ingested, the latest observed first."""
        self._require_open("list episodes")
        if not await self._has_facts():
            return ()
        found = await self._parts.store.episodes(self._parts.scope.searched, limit=limit)
        return [cited_episode(episode, self._parts.scope) for episode in found]

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        """Return the facts about one entity in the order of the time they hold from."""
        self._require_open("show a timeline")
        if not await self._has_facts():
            return ()
        found = await self._parts.store.timeline(self._parts.scope.searched, entity, limit=limit)
        return [cited(fact, self._parts.scope) for fact in found]

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
        return replace(found, facts=tuple(cited(fact, self._parts.scope) for fact in found.facts))

    async def _has_facts(self) -> bool:
        await self._monitor.count_waiting(anew=True)
        if self._monitor.is_empty:
            return False
        await self._monitor.compare(self._parts.scope.searched)
        return True

    def _require_open(self, operation: str) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)


def _in_calendar(moment: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken for UTC, and what no calendar has for its end."""
    try:
        return in_utc(moment)
    except OverflowError:
        return FAR_PAST if moment.year == 1 else FAR_FUTURE
