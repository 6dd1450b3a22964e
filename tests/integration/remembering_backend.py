"""A small memory of facts for tests of the command line: it reads `X works at Y`.

What says `later` waits, what says `never` is refused. Facts are kept by state folder as long as the process
lives, so that one command finds what another one left.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from composable_memory.config.settings import SettingsModel
from composable_memory.content import IngestReport, IngestWarning, MemoryContentObject
from composable_memory.errors import BackendRejected
from composable_memory.facts import Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.ingest.normalize import origin_of
from composable_memory.interfaces import BackendServices, BackendSpec, Capability
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_ops_logs import utc_now

__all__ = ["STORES", "RememberingBackend", "Store", "spec"]

WORKS_AT = re.compile(r"(?P<source>[^\s.]+) works at (?P<target>[^\s.]+)")


@dataclass(slots=True)
class Store:
    """What was ingested."""

    episodes: dict[str, Episode] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    waits: list[bool] = field(default_factory=list)


STORES: dict[Path, Store] = {}


class RememberingBackend(FakeBackend):
    """Keeps episodes and facts of a store; a later workplace ends an earlier one."""

    def __init__(self, store: Store) -> None:
        super().__init__("remembering")
        self._store = store

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        self.note_question(query, options)
        return []

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        self._store.waits.append(wait)
        known = [one for one in contents if one.id in self._store.episodes]
        fresh = [one for one in contents if one.id not in self._store.episodes]
        pending = [one for one in fresh if "later" in (one.text or "")]
        failed = [one for one in fresh if "never" in (one.text or "")]
        stored = [one for one in fresh if one not in pending and one not in failed]
        facts = sum(map(self._store_one, stored))
        return IngestReport(
            run_id="1",
            stored=len(stored),
            known=len(known),
            pending=len(pending),
            failed=len(failed),
            facts=facts,
            warnings=tuple(
                IngestWarning(code="extract.nothing", message="no fact was found")
                for one in stored
                if not WORKS_AT.search(one.text or "")
            ),
            problems=tuple(f"{one.id.split('#')[0]}: it is refused" for one in failed),
        )

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        told = {one.id for one in contents}
        gone = {
            episode.id
            for episode in self._store.episodes.values()
            if episode.origin and episode.origin.path == path and episode.content_id not in told
        }
        now = utc_now()
        self._store.facts = [
            replace(one, invalid_at=now, expired_at=now) if gone.issuperset(one.episodes) else one
            for one in self._store.facts
        ]
        return await self.ingest(contents, wait=wait)

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        found = [one for one in self._store.facts if about is None or _is_about(one, about)]
        found = [one for one in found if as_of is None or one.holds_at(as_of)]
        found = [one for one in found if not current_only or one.is_current(utc_now())]
        return sorted(found, key=_start, reverse=True)[:limit]

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        names = dict.fromkeys(name for one in self._store.facts for name in (one.source, one.target))
        return [
            GraphEntity(
                id=f"id-{name}",
                group_id="main",
                name=name,
                kind="organization" if name[0] == "A" else None,
                fact_count=sum(_is_about(one, name) for one in self._store.facts),
            )
            for name in names
            if (named or "").casefold() in name.casefold()
        ][:limit]

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        return list(self._store.episodes.values())[::-1][:limit]

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        return sorted(await self.facts(about=entity, limit=limit), key=_start)

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        facts = await self.facts(about=entity, limit=limit)
        names = {name for one in facts for name in (one.source, one.target)}
        entities = [one for one in await self.entities() if one.name in names]
        return Neighbourhood(entities=tuple(entities), facts=tuple(facts))

    async def forget(self, episode_id: str) -> Forgotten:
        names = {episode_id, episode_id.removeprefix("remembering/main/")}
        found = next((one for one in await self.episodes() if names & {one.id, one.content_id}), None)
        if found is None:
            raise BackendRejected(self.id, "forget", status="404", body=f"there is no episode {episode_id}")
        del self._store.episodes[found.content_id]
        gone = [one for one in self._store.facts if one.episodes == (found.id,)]
        self._store.facts = [one for one in self._store.facts if one not in gone]
        return Forgotten(episode_id=found.id, facts=len(gone), entities=0)

    def _store_one(self, content: MemoryContentObject) -> int:
        observed = content.temporal.observed_at if content.temporal else None
        episode_id = f"00000000-0000-0000-0000-{len(self._store.episodes):012}"
        origin = origin_of(content)
        matches = list(WORKS_AT.finditer(content.text or ""))
        self._store.episodes[content.id] = Episode(
            id=episode_id,
            group_id="main",
            content_id=content.id,
            text=content.text or "",
            observed_at=observed,
            ingested_at=observed,
            origin=origin,
            source="note",
            fact_count=len(matches),
            metadata=content.metadata,
        )
        for match in matches:
            self._end(match["source"], observed)
            self._store.facts.append(
                Fact(
                    id=f"f{len(self._store.facts)}",
                    group_id="main",
                    text=match[0],
                    relation="WORKS_AT",
                    source=match["source"],
                    target=match["target"],
                    valid_at=observed,
                    created_at=observed,
                    confidence=0.9,
                    episodes=(episode_id,),
                    origins=(origin,) if origin else (),
                )
            )
        return len(matches)

    def _end(self, source: str, at: datetime | None) -> None:
        self._store.facts = [
            replace(one, invalid_at=at, expired_at=at) if one.source == source and not one.invalid_at else one
            for one in self._store.facts
        ]


@asynccontextmanager
async def open_remembering(
    settings: SettingsModel, services: BackendServices
) -> AsyncIterator[RememberingBackend]:
    """Open the memory of a state folder."""
    del settings
    memory = RememberingBackend(STORES.setdefault(services.state_dir, Store()))
    try:
        yield memory
    finally:
        await memory.close()


def _is_about(fact: Fact, name: str) -> bool:
    return name.casefold() in (fact.source.casefold(), fact.target.casefold())


def _start(fact: Fact) -> float:
    return fact.valid_at.timestamp() if fact.valid_at else 0.0


spec = BackendSpec(
    id="remembering",
    summary="Remembers who works where; for tests.",
    settings=SettingsModel,
    open=open_remembering,
    capabilities=frozenset({Capability.FACTS, Capability.INGEST}),
)
