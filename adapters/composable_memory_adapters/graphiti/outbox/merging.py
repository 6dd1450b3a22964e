"""Merges the old messages of a session and day into one episode; the outbox keeps them verbatim.

A message left over joins the episode of its day in the next round.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import groupby

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.outbox.entries import Entry, add, select
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_adapters.sqlite_file import Connection

MAX_MESSAGES = 20
"""The most messages that are merged into one episode."""
HASH_CHARS = 16
OLD_MESSAGES = """
state = 'done' AND session_key IS NOT NULL AND merged_into IS NULL AND observed_at < ? AND workspace = ?
"""
BY_SESSION = "group_id, session_key, observed_at, sequence"
SET_MERGED = "UPDATE episodes SET merged_into = ? WHERE id = ?"
MERGED_THAT_DAY = "state = 'done' AND content_id GLOB ? AND group_id = ? AND workspace = ?"
HAND_OVER = "UPDATE episodes SET merged_into = ? WHERE merged_into = ?"
REPLACE = "DELETE FROM episodes WHERE id = ?"
REPLACES = "replaces"
"""The key under which a merged episode names the one it replaces, with all that one had merged."""


async def plan_merges(outbox: Outbox, settings: IngestSettings, *, now: datetime) -> int:
    """Plan which old messages to merge; return the number of resulting episodes.

    The plan is stored before any of it is carried out, so that it survives a crash. A worker carries it out.
    """
    if not settings.merge_after_days:
        return 0
    before = (now - timedelta(days=settings.merge_after_days)).timestamp()
    old = await outbox.read(
        lambda connection: select(connection, OLD_MESSAGES, before, outbox.workspace, order=BY_SESSION)
    )
    planned = 0
    for bundle in _bundles(old, settings.max_episode_chars):
        earlier = (
            await _with_room(outbox, bundle[0], settings.max_episode_chars) if len(bundle) == 1 else None
        )
        if earlier is not None or len(bundle) > 1:
            drafts = [entry.draft for entry in (*([earlier] if earlier else ()), *bundle)]
            await _plan(outbox, merged_draft(drafts, now=now), bundle, earlier)
            planned += 1
    return planned


async def _with_room(outbox: Outbox, message: Entry, max_chars: int) -> Entry | None:
    """Return the merged episode of a message's session and day that has room for the message."""
    day = f"merged:{message.draft.observed_at:%Y-%m-%d}:*"
    values = (day, message.draft.group_id, outbox.workspace)
    merged = await outbox.read(lambda connection: select(connection, MERGED_THAT_DAY, *values))
    room = max_chars - len(_line(message.draft)) - 1
    same = (one for one in merged if _day_of_session(one) == _day_of_session(message))
    return next(
        (one for one in same if len(one.draft.text) <= room and len(_ids(one.draft)) < MAX_MESSAGES), None
    )


async def _plan(
    outbox: Outbox, merged: EpisodeDraft, originals: Sequence[Entry], earlier: Entry | None
) -> None:
    def work(connection: Connection) -> None:
        add(connection, merged, now=outbox.now(), workspace=outbox.workspace, state="merging")
        connection.executemany(SET_MERGED, [(merged.id, entry.id) for entry in originals])
        if earlier is not None:
            connection.execute(HAND_OVER, (merged.id, earlier.id))
            connection.execute(REPLACE, (earlier.id,))

    await outbox.write(work)


def merged_draft(drafts: Sequence[EpisodeDraft], *, now: datetime) -> EpisodeDraft:
    """Return the episode that replaces messages of one session and day; the first may be a merged one."""
    first, last = drafts[0], drafts[-1]
    ids = [one for draft in drafts for one in _ids(draft)]
    replaces = {REPLACES: first.id} if _is_merged(first) else {}
    digest = sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]
    own_id = f"merged:{first.observed_at:%Y-%m-%d}:{digest}"
    source = first.content.provenance
    text = "\n".join(_line(draft) for draft in drafts)
    content = MemoryContentObject(
        id=own_id,
        kind="message",
        text=text,
        metadata={"mergedFrom": list(ids), **replaces},
        provenance=MemoryProvenance(
            source=source.source if source else "merge",
            channel=source.channel if source else None,
            session_key=source.session_key if source else None,
        ),
        temporal=MemoryTemporalMetadata(created_at=first.observed_at, observed_at=last.observed_at),
    )
    return EpisodeDraft(
        id=graph_id(first.group_id, own_id),
        group_id=first.group_id,
        content=content,
        text=text,
        observed_at=last.observed_at,
        ingested_at=now,
        source="message",
        description=first.description,
        origin=first.origin,
    )


def _bundles(old: Sequence[Entry], max_chars: int) -> Iterator[list[Entry]]:
    for _, day in groupby(old, key=_day_of_session):
        yield from _filled(day, max_chars)


def _filled(entries: Iterator[Entry], max_chars: int) -> Iterator[list[Entry]]:
    bundle: list[Entry] = []
    size = 0
    for entry in entries:
        chars = len(_line(entry.draft)) + 1
        if bundle and (len(bundle) == MAX_MESSAGES or size + chars > max_chars):
            yield bundle
            bundle, size = [], 0
        bundle.append(entry)
        size += chars
    yield bundle


def _day_of_session(entry: Entry) -> tuple[str, str | None, str]:
    provenance = entry.draft.content.provenance
    session = provenance.session_key if provenance else None
    return entry.draft.group_id, session, f"{entry.draft.observed_at:%Y-%m-%d}"


def _is_merged(draft: EpisodeDraft) -> bool:
    return "mergedFrom" in draft.content.metadata


def _ids(draft: EpisodeDraft) -> list[str]:
    """Return the ids of the messages in a draft."""
    merged = draft.content.metadata.get("mergedFrom")
    return [str(one) for one in merged] if isinstance(merged, list) else [draft.content.id]


def _line(draft: EpisodeDraft) -> str:
    if _is_merged(draft):
        return draft.text
    actor = draft.content.provenance.actor_id if draft.content.provenance else None
    return f"{draft.observed_at:%H:%M} {f'{actor}: ' if actor else ''}{draft.text}"
