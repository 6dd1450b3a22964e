"""What becomes of facts when their episodes are taken back, come back, are merged, or are forgotten."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from composable_memory.facts import Forgotten
from composable_memory_adapters.graphiti.library.records import FactRecord
from composable_memory_adapters.graphiti.writing import graph_statements
from composable_memory_adapters.graphiti.writing.group_repository import GroupRepository
from composable_memory_adapters.graphiti.writing.superseding import settled, taken_back

__all__ = ["forget", "move_facts", "restore", "retire", "retired", "settle"]


async def settle(repository: GroupRepository, facts: Iterable[FactRecord], now: datetime) -> None:
    """Store the ends of facts and of their kin, as they follow from `facts` and from what else is stored."""
    changed = {one.uuid: one for one in facts}
    stored = await repository.kin_of(changed.values())
    after = await asyncio.to_thread(
        settled, {**stored, **{uuid: one for uuid, one in changed.items() if uuid in stored}}, now
    )
    await repository.set_times(one for uuid, one in after.items() if one != stored[uuid])


async def retire(repository: GroupRepository, episodes: Sequence[str], at: datetime, now: datetime) -> int:
    """Take episodes back; return how many facts hold no more since all that supported them is taken back."""
    await repository.change(graph_statements.RETIRE_EPISODES, {"uuids": episodes}, at=at.isoformat())
    facts = [one for one in (await repository.facts_of(episodes)).values() if one.retired_at is None]
    gone = await retired(repository, {uuid for one in facts for uuid in one.episodes})
    ended = [replace(one, retired_at=at) for one in facts if gone.keys() >= set(one.episodes)]
    await settle(repository, ended, now)
    await repository.change(graph_statements.MARK_AS_READ, {"uuids": episodes}, at=now)
    return len(ended)


async def restore(repository: GroupRepository, episodes: Sequence[str], now: datetime) -> None:
    """Undo `retire`, for episodes whose source says the same again."""
    gone = await retired(repository, episodes)
    if not gone:
        return
    facts = [one for one in (await repository.facts_of(gone)).values() if one.retired_at is not None]
    await settle(repository, [replace(one, retired_at=None, expired_at=None) for one in facts], now)
    await repository.change(graph_statements.RESTORE_EPISODES, {"uuids": sorted(gone)})


async def move_facts(
    repository: GroupRepository, episodes: Sequence[str], merged: str, now: datetime
) -> None:
    """Let facts and entities of several episodes point to one in their place, and remove these."""
    old = [one for one in episodes if one != merged]
    facts = await repository.facts_of(old)
    await repository.change(graph_statements.MOVE_FACTS, {"uuids": list(facts)}, episodes=old, merged=merged)
    mentioned = await repository.rows(graph_statements.MENTIONED, uuids=old)
    await repository.link([(merged, str(row["uuid"])) for row in mentioned], now)
    links = [{"episode": merged, "facts": sorted(facts)}] if facts else []
    await repository.change(graph_statements.ADD_FACTS_TO_EPISODES, {"links": links})
    await repository.change(graph_statements.MARK_AS_READ, {"uuids": [merged]}, at=now)
    await repository.change(graph_statements.DELETE_EPISODES, {"uuids": old})


async def forget(repository: GroupRepository, episode_id: str, now: datetime) -> Forgotten | None:
    """Remove an episode, the facts that only it supports, and the entities that nothing is left about."""
    rows = await repository.database.read(repository.group_id, graph_statements.NAMED_EPISODES, id=episode_id)
    if not rows:
        return None
    uuid = str(rows[0]["uuid"])
    facts = await repository.facts_of([uuid])
    lone = {one.uuid: one for one in facts.values() if set(one.episodes) == {uuid}}
    shared = [_without(one, uuid) for one in facts.values() if one.uuid not in lone]
    await settle(repository, await _unsupported(repository, shared), now)
    await repository.change(
        graph_statements.CUT_EPISODE, {"uuids": [one.uuid for one in shared]}, episode=uuid
    )
    kin = await repository.kin_of(lone.values())
    await repository.change(graph_statements.DELETE_FACTS, {"uuids": list(lone)})
    await settle(repository, [one for one in kin.values() if one.uuid not in lone], now)
    orphans = await repository.database.read(repository.group_id, graph_statements.ORPHANS, episode=uuid)
    await repository.change(graph_statements.DELETE_ENTITIES, {"uuids": [row["uuid"] for row in orphans]})
    # The episode goes last: what is left of an attempt that was cut off is removed by the next one.
    await repository.change(graph_statements.DELETE_EPISODES, {"uuids": [uuid]})
    return Forgotten(episode_id=uuid, facts=len(lone), entities=len(orphans))


def _without(fact: FactRecord, episode: str) -> FactRecord:
    return replace(fact, episodes=tuple(one for one in fact.episodes if one != episode))


async def _unsupported(repository: GroupRepository, facts: Sequence[FactRecord]) -> list[FactRecord]:
    """Return those of the facts whose support is all taken back by now."""
    return taken_back(facts, await retired(repository, {uuid for one in facts for uuid in one.episodes}))


async def retired(repository: GroupRepository, episodes: Iterable[str]) -> dict[str, datetime]:
    """Return which of the episodes are taken back, and since when."""
    rows = await repository.rows(graph_statements.RETIRED, uuids=sorted(episodes))
    return {str(row["uuid"]): datetime.fromisoformat(str(row["retired_at"])) for row in rows}
