"""Episodes of the graph service by their time or id, and which messages have not become one yet.

The service returns nothing but the last so many episodes of a group, and says nothing of what became of a
message."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from composable_memory.types import Origin
from composable_memory_adapters.graphiti.episodes import graph_id, origin_of
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.service.messages import ServiceEpisode


class SentMessages:
    """Remembers what the service has taken, because it says nothing of what became of it.

    Its only worker reads one message after the other. Where it has read none for `stalled_after`, it has
    probably ended, and what waits in its memory is lost. A key tells a message from all others of its group.
    """

    def __init__(self, stalled_after: timedelta) -> None:
        self._stalled_after = stalled_after
        self._waiting: dict[tuple[str, str], datetime] = {}
        self._moved_at: datetime | None = None

    @property
    def groups(self) -> frozenset[str]:
        """Return the groups in which something waits."""
        return frozenset(group_id for group_id, _ in self._waiting)

    def holds(self, group_id: str, key: str) -> bool:
        """Return whether a message waits."""
        return (group_id, key) in self._waiting

    def oldest(self, group_id: str) -> datetime | None:
        """Return the earliest date of the messages that wait in a group."""
        return min((dated for (group, _), dated in self._waiting.items() if group == group_id), default=None)

    def put(self, group_id: str, dates: dict[str, datetime], *, now: datetime) -> None:
        """Note messages, by key with the date they were sent with."""
        if not self._waiting:
            self._moved_at = now
        self._waiting.update({(group_id, key): dated for key, dated in dates.items()})

    def drop(self, group_id: str, keys: Collection[str]) -> None:
        """Forget messages that the service has not taken after all."""
        for key in keys:
            self._waiting.pop((group_id, key), None)

    def settle(self, group_id: str, there: Collection[str], *, now: datetime) -> frozenset[str]:
        """Take out what has become an episode; return the keys."""
        settled = frozenset(key for key in there if self.holds(group_id, key))
        self.drop(group_id, settled)
        if settled:
            self._moved_at = now
        return settled

    def stalled(self, now: datetime) -> str | None:
        """Return why nothing moves any more, in words; None while it may."""
        if not self._waiting or self._moved_at is None or now - self._moved_at < self._stalled_after:
            return None
        minutes = (now - self._moved_at).total_seconds() / 60
        return (
            f"the graph service has taken {len(self._waiting)} messages and read none for {minutes:.0f} min"
        )

    def give_up(self) -> None:
        """Forget all that waits, so that it is sent again."""
        self._waiting.clear()


STEPS = (100, 1000, 4000)
"""How far back one looks, in episodes; each step only if the one before does not reach."""
STEPS_FOR_ORIGINS = STEPS[:2]
MAX_ORIGINS = 20_000

Found = Sequence[ServiceEpisode]


async def episodes_since(client: GraphitiClient, group_id: str, moment: datetime) -> Found:
    """Return the episodes of a group that were observed at `moment` or later, or the last of very many."""
    return await _back(
        client,
        group_id,
        STEPS,
        until=lambda found: any(one.valid_at and one.valid_at < moment for one in found),
    )


async def episode_of(client: GraphitiClient, group_id: str, own_id: str) -> ServiceEpisode | None:
    """Return the last episode with this id, as far back as one looks.

    It may be the service's id, the content's, or the one that we know the content by in its group.
    """
    found = await _back(
        client, group_id, STEPS, until=lambda found: any(_is(one, group_id, own_id) for one in found)
    )
    return next((one for one in reversed(found) if _is(one, group_id, own_id)), None)


async def episodes_of(client: GraphitiClient, group_id: str, own_id: str) -> Found:
    """Return all episodes with this id, of whichever kind: a content that was changed has several."""
    found = await _back(client, group_id, STEPS, until=lambda _: False)
    return [one for one in found if _is(one, group_id, own_id)]


class Origins:
    """Knows where episodes were taken from; asks the service only for those that it has not met.

    An episode comes to the graph before its facts do, so one that is not found is not asked for again.
    """

    def __init__(self, client: GraphitiClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str], Origin | None] = OrderedDict()
        self._asking = asyncio.Lock()

    async def of(self, group_id: str, episode_ids: Iterable[str]) -> Mapping[str, Origin]:
        """Return the origins of episodes, where they have one."""
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
        # The wanted ones go in last, so that a small remainder of the room is theirs.
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
