"""Looks up episodes of the graph service by time or id.

The service only returns the last n episodes of a group, and does not say what became of a message.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from composable_memory.types import Origin
from composable_memory_adapters.graphiti.episodes import graph_id, origin_of
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.service.messages import ServiceEpisode

STEPS = (100, 1000, 4000)
"""How far back to look, in episodes; each step is only taken if the one before was not enough."""
STEPS_FOR_ORIGINS = STEPS[:2]
MAX_ORIGINS = 20_000

Found = Sequence[ServiceEpisode]


async def episodes_since(client: GraphitiClient, group_id: str, moment: datetime) -> Found:
    """Return the episodes of a group observed at `moment` or later, at most the last few thousand."""
    return await _back(
        client,
        group_id,
        STEPS,
        until=lambda found: any(one.valid_at and one.valid_at < moment for one in found),
    )


async def episode_of(client: GraphitiClient, group_id: str, own_id: str) -> ServiceEpisode | None:
    """Return the latest episode with this id, within the range of `STEPS`.

    The id may be the service's, the content's, or the one derived from the content's id in its group.
    """
    found = await _back(
        client, group_id, STEPS, until=lambda found: any(_is(one, group_id, own_id) for one in found)
    )
    return next((one for one in reversed(found) if _is(one, group_id, own_id)), None)


async def episodes_of(client: GraphitiClient, group_id: str, own_id: str) -> Found:
    """Return all episodes with this id, of any kind: a content that was changed has several."""
    found = await _back(client, group_id, STEPS, until=lambda _: False)
    return [one for one in found if _is(one, group_id, own_id)]


class Origins:
    """Caches the origins of episodes; asks the service only for unknown ones.

    An episode is in the graph before its facts, so one that is not found is never requested again.
    """

    def __init__(self, client: GraphitiClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str], Origin | None] = OrderedDict()
        self._asking = asyncio.Lock()

    async def of(self, group_id: str, episode_ids: Iterable[str]) -> Mapping[str, Origin]:
        """Return the origins of those episodes that have one."""
        wanted = list(dict.fromkeys(episode_ids))
        async with self._asking:
            missing = {one for one in wanted if (group_id, one) not in self._known}
            if missing:
                self._remember(group_id, missing, await self._look_for(group_id, missing))
        known = {one: self._known.get((group_id, one)) for one in wanted}
        return {one: origin for one, origin in known.items() if origin is not None}

    async def _look_for(self, group_id: str, missing: set[str]) -> Found:
        return await _back(
            self._client,
            group_id,
            STEPS_FOR_ORIGINS,
            until=lambda found: missing <= {one.uuid for one in found},
        )

    def _remember(self, group_id: str, missing: set[str], found: Found) -> None:
        # The requested ones go in last, so that they are the last to be evicted.
        new = {one.uuid: origin_of(one.source_description) for one in found}
        for one in (*new.keys() - missing, *missing):
            self._known[group_id, one] = new.get(one)
        while len(self._known) > MAX_ORIGINS:
            self._known.popitem(last=False)


def _is(episode: ServiceEpisode, group_id: str, own_id: str) -> bool:
    return own_id in (episode.uuid, episode.name) or own_id == graph_id(group_id, episode.name)


async def _back(
    client: GraphitiClient, group_id: str, steps: Sequence[int], *, until: Callable[[Found], bool]
) -> Found:
    found: Found = ()
    for last_n in steps:
        found = await client.episodes(group_id, last_n=last_n)
        if len(found) < last_n or until(found):
            break
    return found
