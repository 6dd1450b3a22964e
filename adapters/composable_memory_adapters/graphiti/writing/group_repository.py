"""Reads and changes the entities, facts and episodes of one group, in statements of bounded size."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from composable_memory.facts import Forgotten
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row, batches
from composable_memory_adapters.graphiti.library import load
from composable_memory_adapters.graphiti.library.graph_records import (
    EntityRecord,
    FactRecord,
    entity_record,
    fact_record,
)
from composable_memory_adapters.graphiti.library.vectors import fits_space
from composable_memory_adapters.graphiti.reading.namesakes import by_first_name, one_person
from composable_memory_adapters.graphiti.writing import graph_statements
from composable_memory_adapters.graphiti.writing.superseding import (
    as_one_person,
    rejoined,
    retired_facts,
    under_both_names,
    with_ends,
)

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.library.bridges import Saver


class GroupRepository:
    """The records of one group. Callers that change what they have read must hold the group's lock."""

    def __init__(self, database: CypherDatabase, group_id: str, embedder: EmbedderAdapter | None) -> None:
        self.database = database
        self.group_id = group_id
        self._embedder = embedder
        self._savers: dict[bool, Saver] = {}

    async def entities(self, uuids: Iterable[str]) -> dict[str, EntityRecord]:
        """Return entities by UUID; missing ones are left out."""
        rows = await self.rows(graph_statements.ENTITIES, uuids=list(uuids))
        return {record.uuid: record for record in map(entity_record, rows)}

    async def facts(self, uuids: Iterable[str]) -> dict[str, FactRecord]:
        """Return facts by UUID; missing ones are left out."""
        return _by_uuid(await self.rows(graph_statements.FACTS, uuids=list(uuids)))

    async def facts_of(self, episodes: Iterable[str]) -> dict[str, FactRecord]:
        """Return the facts stated by any of these episodes."""
        return _by_uuid(await self.rows(graph_statements.FACTS_OF_EPISODES, uuids=list(episodes)))

    async def kin_of(
        self, facts: Iterable[FactRecord], *, gone: Collection[str] = ()
    ) -> dict[str, FactRecord]:
        """Return the given facts in all their periods, the facts that may end them, and those they may end.

        For an exclusive relation, or one with a single holder, these are all its facts. For any other
        relation they are, between the same two entities, the statements that something ended and the facts
        that these may end: many facts may hold side by side.
        """
        facts = list(facts)
        facts = [*under_both_names(facts, await self.full_names(facts, gone=gone))]
        found = await self._kin(facts)
        # A fact that another statement made exclusive may be ended by facts not read so far.
        asked = {_pair(one) for one in facts}
        further = [one for one in found.values() if one.exclusive and _pair(one) not in asked]
        return found | await self._kin(further)

    async def full_names(self, facts: Iterable[FactRecord], *, gone: Collection[str] = ()) -> dict[str, str]:
        """Return the full name for the first name of each person in facts that may end others, as entity ids.

        The two are one person if nobody else has that first name, ignoring entities that are `gone`, and no
        fact connects the two.
        """
        able = (one for one in facts if one.exclusive or one.one_holder or one.ends)
        ids = sorted({end for one in able for end in (one.source, one.target)})
        rows = await self.rows(graph_statements.NAMESAKES, uuids=ids)
        people = by_first_name(row for row in rows if row["id"] not in gone)
        full = dict(filter(None, map(one_person, people)))
        pairs = [{"first": first, "full": name} for first, name in full.items()]
        for row in await self.rows(graph_statements.BETWEEN_TWO, pairs=pairs):
            full.pop(str(row["first"]), None)
        return full

    async def namesakes(self, entities: Collection[str]) -> list[str]:
        """Return the other entities that are, or were, possibly the same person as one of these."""
        people = by_first_name(await self.rows(graph_statements.NAMESAKES, uuids=sorted(entities)))
        others = ([id_ for row in rows if (id_ := str(row["id"])) not in entities] for rows in people)
        return [id_ for ids in others if len(ids) <= 2 for id_ in ids]

    async def settle_people(
        self, entities: Sequence[str], now: datetime, *, gone: Collection[str] = ()
    ) -> None:
        """Work out again when facts about entities end, as if the `gone` entities did not exist."""
        facts = _by_uuid(await self.rows(graph_statements.ENDING_ABOUT, uuids=entities))
        if facts:
            await self._settle(facts.values(), now, gone=gone)
            await self._rejoin((await self.kin_of(facts.values(), gone=gone)).values(), now, gone=gone)

    async def _kin(self, facts: Sequence[FactRecord]) -> dict[str, FactRecord]:
        of_pair: dict[tuple[str, str, str | None], list[FactRecord]] = {}
        for one in facts:
            of_pair.setdefault(_pair(one), []).append(one)
        pairs = [
            {
                "source": source,
                "relation": relation,
                "target": target,
                "ends": any(one.ends for one in same),
                "own_ids": sorted({one.own_id for one in same}),
            }
            for (source, relation, target), same in of_pair.items()
        ]
        between = [pair for pair in pairs if pair["target"] is not None]
        of_relation = [pair for pair in pairs if pair["target"] is None]
        rows = await self.rows(graph_statements.BETWEEN, pairs=between)
        rows += await self.rows(graph_statements.OF_RELATION, pairs=of_relation)
        held = {(one.relation, one.target) for one in facts if one.one_holder}
        holders = [{"relation": relation, "target": target} for relation, target in sorted(held)]
        return _by_uuid([*rows, *await self.rows(graph_statements.OF_HOLDERS, pairs=holders)])

    async def rows(self, cypher: str, **lists: Sequence[object]) -> list[Row]:
        """Run a read statement for a list of any length."""
        ((name, items),) = lists.items()
        return [
            row
            for batch in batches(items)
            for row in await self.database.read(self.group_id, cypher, **{name: batch})
        ]

    async def change(self, cypher: str, items: Mapping[str, Sequence[object]], **parameters: object) -> None:
        """Run a write statement for a list of any length."""
        ((name, values),) = items.items()
        for batch in batches(values):
            await self.database.write(self.group_id, cypher, **{name: batch}, **parameters)

    async def set_times(self, facts: Iterable[FactRecord]) -> None:
        """Store only when facts hold."""
        rows = [
            {
                "uuid": one.uuid,
                "valid_at": one.valid_at,
                "invalid_at": one.invalid_at,
                "expired_at": one.expired_at,
                "retired_at": one.retired_at.isoformat() if one.retired_at else None,
            }
            for one in facts
        ]
        await self.change(graph_statements.SET_TIMES, {"facts": rows})

    async def link(self, pairs: Iterable[tuple[str, str]], now: datetime) -> None:
        """Store which episodes mention which entities, as pairs of UUIDs; skip pairs with a missing one."""
        await (await self.saver()).save_mentions(pairs, now)

    # --- retiring, restoring, merging and forgetting episodes ---

    async def _settle(
        self,
        facts: Iterable[FactRecord],
        now: datetime,
        *,
        leaving: Collection[str] = (),
        gone: Collection[str] = (),
    ) -> None:
        """Store when facts and related ones end, given `facts` and whatever else stays."""
        changed = {one.uuid: one for one in facts}
        kin = await self.kin_of(changed.values(), gone=gone)
        stored = {uuid: one for uuid, one in kin.items() if uuid not in leaving}
        known = {**stored, **{uuid: one for uuid, one in changed.items() if uuid in stored}}
        after = await self._with_ends(known, now, gone)
        await self.set_times(one for uuid, one in after.items() if one != stored[uuid])

    async def _with_ends(
        self, known: Mapping[str, FactRecord], now: datetime, gone: Collection[str]
    ) -> Mapping[str, FactRecord]:
        full = await self.full_names(known.values(), gone=gone)
        return await asyncio.to_thread(as_one_person, known, full, partial(with_ends, now=now))

    async def retire(self, episodes: Sequence[str], at: datetime, now: datetime) -> int:
        """Retire episodes; return how many facts end because all their supporting episodes are retired."""
        await self.change(graph_statements.RETIRE_EPISODES, {"uuids": episodes}, at=at.isoformat())
        facts = [one for one in (await self.facts_of(episodes)).values() if one.retired_at is None]
        retired = await self.retirements({uuid for one in facts for uuid in one.episodes})
        ended = [replace(one, retired_at=at) for one in facts if retired.keys() >= set(one.episodes)]
        await self._settle(ended, now)
        await self.change(graph_statements.MARK_AS_READ, {"uuids": episodes}, at=now)
        return len(ended)

    async def restore(self, episodes: Sequence[str], now: datetime) -> None:
        """Undo `retire` for episodes whose source says the same again."""
        retired = await self.retirements(episodes)
        if not retired:
            return
        facts = [one for one in (await self.facts_of(retired)).values() if one.retired_at is not None]
        await self._settle([replace(one, retired_at=None, expired_at=None) for one in facts], now)
        await self.change(graph_statements.RESTORE_EPISODES, {"uuids": sorted(retired)})

    async def move_facts(self, episodes: Sequence[str], merged: str, now: datetime) -> None:
        """Repoint the facts and entities of several episodes to a merged one, and remove the several."""
        old = [one for one in episodes if one != merged]
        facts = await self.facts_of(old)
        await self.change(graph_statements.MOVE_FACTS, {"uuids": list(facts)}, episodes=old, merged=merged)
        mentioned = await self.rows(graph_statements.MENTIONED, uuids=old)
        await self.link([(merged, str(row["uuid"])) for row in mentioned], now)
        links = [{"episode": merged, "facts": sorted(facts)}] if facts else []
        await self.change(graph_statements.ADD_FACTS_TO_EPISODES, {"links": links})
        await self.change(graph_statements.MARK_AS_READ, {"uuids": [merged]}, at=now)
        await self.change(graph_statements.DELETE_EPISODES, {"uuids": old})

    async def forget(self, episode_id: str, now: datetime) -> Forgotten | None:
        """Remove an episode, the facts that only it supports, and the entities left without any."""
        rows = await self.database.read(self.group_id, graph_statements.NAMED_EPISODES, id=episode_id)
        if not rows:
            return None
        uuid = str(rows[0]["uuid"])
        facts = await self.facts_of([uuid])
        lone = {one.uuid: one for one in facts.values() if set(one.episodes) == {uuid}}
        shared = [_without(one, uuid) for one in facts.values() if one.uuid not in lone]
        await self._settle([*shared, *await self._unsupported(shared)], now)
        await self.change(graph_statements.CUT_EPISODE, {"uuids": [one.uuid for one in shared]}, episode=uuid)
        # Settle what they ended before they go, so that a retry after a kill still finds the related facts.
        await self._settle(await self._kin_without(lone), now, leaving=lone)
        await self._rejoin(await self._kin_without(lone), now)
        await self.change(graph_statements.DELETE_FACTS, {"uuids": list(lone)})
        orphans = await self.database.read(self.group_id, graph_statements.ORPHANS, episode=uuid)
        gone = [str(row["uuid"]) for row in orphans]
        await self.settle_people(await self.namesakes(gone), now, gone=gone)
        await self.change(graph_statements.DELETE_ENTITIES, {"uuids": gone})
        # The episode goes last, so that the next attempt removes the remains of an interrupted one.
        await self.change(graph_statements.DELETE_EPISODES, {"uuids": [uuid]})
        return Forgotten(episode_id=uuid, facts=len(lone), entities=len(orphans))

    async def _kin_without(self, lone: Mapping[str, FactRecord]) -> list[FactRecord]:
        return [one for one in (await self.kin_of(lone.values())).values() if one.uuid not in lone]

    async def _rejoin(self, kin: Iterable[FactRecord], now: datetime, *, gone: Collection[str] = ()) -> None:
        """Store periods as one fact if nothing separates them any more."""
        facts = {one.uuid: one for one in kin}
        parts = rejoined(facts)
        pairs = [
            {"uuid": one.uuid, "other": uuid, "episodes": list(one.episodes)}
            for uuid, one in parts.items()
            if uuid != one.uuid
        ]
        if not pairs:
            return
        left = {uuid: one for uuid, one in facts.items() if uuid not in parts}
        after = await self._with_ends({**left, **{one.uuid: one for one in parts.values()}}, now, gone)
        whole = [after[uuid] for uuid in dict.fromkeys(one.uuid for one in parts.values())]
        await (await self.saver()).save_facts(whole)
        await self.change(graph_statements.PUT_FACTS_FOR_OTHERS, {"pairs": pairs})
        await self.change(graph_statements.DELETE_FACTS, {"uuids": [pair["other"] for pair in pairs]})
        await self.set_times(after.values())

    async def _unsupported(self, facts: Sequence[FactRecord]) -> list[FactRecord]:
        """Return the facts whose episodes are all retired."""
        return retired_facts(facts, await self.retirements({uuid for one in facts for uuid in one.episodes}))

    async def retirements(self, episodes: Iterable[str]) -> dict[str, datetime]:
        """Return when each retired episode was retired."""
        rows = await self.rows(graph_statements.RETIRED, uuids=sorted(episodes))
        return {str(row["uuid"]): datetime.fromisoformat(str(row["retired_at"])) for row in rows}

    # --- saving ---

    async def saver(self) -> "Saver":
        """Return a saver; it leaves out vectors that do not fit those in the group."""
        await load()
        from composable_memory_adapters.graphiti.library.bridges import GroupDriver, Saver

        fits = self._embedder is not None and await fits_space(self.database, self.group_id, self._embedder)
        if fits not in self._savers:
            driver = GroupDriver(self.database, self.group_id)
            self._savers[fits] = Saver(driver, self.group_id, self._embedder if fits else None)
        return self._savers[fits]


def _pair(fact: FactRecord) -> tuple[str, str, str | None]:
    return fact.source, fact.relation, None if fact.exclusive else fact.target


def _by_uuid(rows: Iterable[Row]) -> dict[str, FactRecord]:
    return {record.uuid: record for record in map(fact_record, rows)}


def _without(fact: FactRecord, episode: str) -> FactRecord:
    told = tuple(one for one in fact.told if one.episode != episode)
    return replace(fact, episodes=tuple(one for one in fact.episodes if one != episode), told=told)
