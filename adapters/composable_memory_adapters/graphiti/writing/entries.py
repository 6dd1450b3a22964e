"""What the ledger knows of an episode, and the statements that read and change it in the file."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, get_args

from composable_memory_adapters.graphiti.episodes import PART_OF, EpisodeDraft, graph_id, owner_of
from composable_memory_adapters.graphiti.writing.draft_wire import draft_from_json, draft_to_json
from composable_memory_adapters.sqlite_file import Connection, Unreadable

__all__ = [
    "ALIVE",
    "DUE",
    "STATES",
    "Entry",
    "EntryState",
    "Fate",
    "add",
    "by_ids",
    "digest_of",
    "select",
    "set_state",
    "vanish",
]

EntryState = Literal[
    "queued",
    "sent",
    "done",
    "failed",
    "retiring",
    "retired",
    "lost",
    "merging",
    "merged",
    "moved",
    "forgotten",
]
"""Where an episode is on its way.

`queued` is to be stored, `sent` was taken by a service that has not shown it yet, `done` is in the graph,
`failed` waits for somebody to ask for another try. What its source says no more is `retiring`, and then
`retired`; what the graph has lost of that is `lost` until it is stored and retired again. An episode that
takes the place of several is `merging` until it has, these are `merged` then. `moved` was taken in once more,
in a group of the workspace that it is of. `forgotten` keeps of an episode that it must not come back.
"""

STATES: frozenset[str] = frozenset(get_args(EntryState))

Fate = Literal["new", "known", "changed"]
"""What an episode that is handed in is to the ledger: its id was unknown, had the same text, had another.

Another text is another episode to the graph, with a mark at the end of its id, and the earlier one is retired
when it is stored: what both say goes on to hold, and what was said before stays in the history.
"""

DUE: tuple[EntryState, ...] = ("queued", "retiring", "merging", "lost", "sent")
"""States in which there is something to do, in the order in which it is done.

What was restated is stored before what vanished is retired, so that facts of both stay.
"""

SELECT = """
SELECT id, sequence, state, draft_id, draft, hash, source_path, attempts, next_try_at, last_error,
  merged_into, trace_id, enqueued_at, since
FROM episodes WHERE state <> 'forgotten' AND ({where}) ORDER BY {order} LIMIT ?
"""
FIND = "SELECT id, state, hash FROM episodes WHERE draft_id = ?"
ADD = """
INSERT INTO episodes (id, sequence, group_id, draft_id, content_id, part_of, session_key, source_path, state,
  draft, hash, trace_id, observed_at, enqueued_at, since, workspace)
VALUES (:id, (SELECT coalesce(max(sequence), 0) + 1 FROM episodes), :group_id, :draft_id, :content_id,
  :part_of, :session_key, :source_path, :state, :draft, :hash, :trace_id, :observed_at, :now, :now,
  :workspace)
"""
RECOGNIZE = """
UPDATE episodes SET draft_id = :draft_id, part_of = :part_of, workspace = :workspace,
  source_path = coalesce(:source_path, source_path)
WHERE draft_id = :before AND (workspace = :workspace OR workspace IS NULL AND EXISTS (
  SELECT 1 FROM episodes AS same WHERE same.draft_id = :before AND same.hash = :hash))
"""
AGAIN = """
UPDATE episodes SET sequence = (SELECT max(sequence) + 1 FROM episodes), state = 'queued', attempts = 0,
  next_try_at = 0, last_error = NULL, source_path = coalesce(:source_path, source_path), since = :now
WHERE id = :id
"""
ADOPT = "UPDATE episodes SET source_path = ? WHERE id = ?"
OF_SOURCE = "SELECT id, draft_id FROM episodes WHERE group_id = ? AND source_path = ? AND state IN ({alive})"
OF_WHOLE = "SELECT id, draft_id FROM episodes WHERE group_id = ? AND part_of = ? AND state IN ({alive})"
SET_STATE = "UPDATE episodes SET state = ?, since = ?, next_try_at = 0 WHERE id = ?"

ALIVE: tuple[EntryState, ...] = ("queued", "sent", "done", "failed")
MARK_CHARS = 8
GONE: tuple[EntryState, ...] = ("retiring", "retired", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger knows of one episode.

    `draft_id` is the id that it was handed in with, which several texts may share, one after the other; `id`
    is its own, by which the graph knows it. `attempts` counts tries that went wrong, `last_error` says how.
    `since` is when it came to its state. `sequence` tells the order in which entries came.
    """

    draft: EpisodeDraft
    state: EntryState
    sequence: int
    draft_id: str
    enqueued_at: datetime
    since: datetime
    source_path: str | None = None
    attempts: int = 0
    next_try_at: datetime | None = None
    last_error: str | None = None
    merged_into: str | None = None
    trace_id: str | None = None

    @property
    def id(self) -> str:
        """Return the id that the graph knows the episode by."""
        return self.draft.id


def add(
    connection: Connection,
    draft: EpisodeDraft,
    *,
    now: float,
    workspace: str,
    state: EntryState = "queued",
    source_path: str | None = None,
    trace_id: str | None = None,
) -> Fate:
    """Take an episode in; one that is known with the same text stays as it is, unless it was retired."""
    digest = digest_of(draft)
    _recognize(connection, draft, digest, workspace=workspace, source_path=source_path)
    rows = connection.execute(FIND, (draft.id,)).fetchall()
    same = next((row for row in rows if row[2] == digest), None)
    others = [str(row[0]) for row in rows if row[2] != digest and row[1] in ALIVE]
    set_state(connection, others, "retiring", now=now)
    if same is None:
        own = _marked(draft, digest) if rows else draft
        values = _values(own, draft, state=state, digest=digest)
        more = {"source_path": source_path, "trace_id": trace_id, "now": now, "workspace": workspace}
        connection.execute(ADD, {**values, **more})
    elif same[1] in GONE:
        connection.execute(AGAIN, {"id": same[0], "source_path": source_path, "now": now})
    else:
        if source_path is not None:
            connection.execute(ADOPT, (source_path, same[0]))
        return "known"
    return "changed" if others else "new"


def digest_of(draft: EpisodeDraft) -> str:
    """Return the SHA-256 of a text."""
    return sha256(draft.text.encode("utf-8", "surrogatepass")).hexdigest()


def _recognize(
    connection: Connection, draft: EpisodeDraft, digest: str, *, workspace: str, source_path: str | None
) -> None:
    """Take what was handed in before ids told the workspace for the same episode; nothing is stored twice."""
    owner, name = owner_of(draft.content.id)
    if owner is None:
        return
    values = {
        "draft_id": draft.id,
        "part_of": str(draft.content.metadata.get(PART_OF) or draft.content.id),
        "before": graph_id(draft.group_id, name),
        "hash": digest,
        "workspace": workspace,
        "source_path": source_path,
    }
    connection.execute(RECOGNIZE, values)


def _marked(draft: EpisodeDraft, digest: str) -> EpisodeDraft:
    own_id = f"{draft.content.id}@{digest[:MARK_CHARS]}"
    content = replace(draft.content, id=own_id)
    return replace(draft, id=graph_id(draft.group_id, own_id), content=content)


def _values(
    own: EpisodeDraft, given: EpisodeDraft, *, state: EntryState, digest: str
) -> dict[str, str | float | None]:
    return {
        "id": own.id,
        "group_id": own.group_id,
        "draft_id": given.id,
        "content_id": own.content.id,
        "part_of": str(given.content.metadata.get(PART_OF) or given.content.id),
        "session_key": _session_of(own) if state == "queued" else None,
        "state": state,
        "draft": draft_to_json(own),
        "hash": digest,
        "observed_at": own.observed_at.timestamp(),
    }


def vanish(
    connection: Connection,
    drafts: Sequence[EpisodeDraft],
    *,
    group_id: str,
    source_path: str | None,
    now: float,
) -> tuple[str, ...]:
    """Mark as to be retired what `drafts` leave out: of their source, and of each long text among them."""
    alive = ", ".join(f"'{state}'" for state in ALIVE)
    held = {draft.id for draft in drafts}
    asked: list[tuple[str, str]] = []
    if source_path is not None:
        asked.append((OF_SOURCE, source_path))
    wholes = {str(draft.content.metadata.get(PART_OF) or draft.content.id) for draft in drafts}
    asked += ((OF_WHOLE, whole) for whole in sorted(wholes))
    rows = (row for sql, key in asked for row in connection.execute(sql.format(alive=alive), (group_id, key)))
    gone = tuple(dict.fromkeys(str(row[0]) for row in rows if row[1] not in held))
    set_state(connection, gone, "retiring", now=now)
    return gone


def set_state(connection: Connection, ids: Iterable[str], state: EntryState, *, now: float) -> None:
    """Bring episodes to a state."""
    connection.executemany(SET_STATE, [(state, now, own_id) for own_id in ids])


def by_ids(connection: Connection, ids: Sequence[str]) -> tuple[Entry, ...]:
    """Return what is known of episodes that were handed in with these ids: of their present texts."""
    asked = json.dumps(ids)
    found = select(connection, "draft_id IN (SELECT value FROM json_each(?))", asked, order="sequence")
    latest = {entry.draft_id: entry for entry in found}
    return tuple(latest[own_id] for own_id in dict.fromkeys(ids) if own_id in latest)


def select(
    connection: Connection, where: str, *values: str | float, order: str = "sequence", limit: int = -1
) -> tuple[Entry, ...]:
    """Return the entries that an expression of SQL is true of; forgotten ones have nothing to tell."""
    query = SELECT.format(where=where, order=order)
    return tuple(_entries(connection.execute(query, (*values, limit))))


def _entries(rows: Iterable[tuple[Any, ...]]) -> Iterator[Entry]:
    for row in rows:
        try:
            yield _entry(row)
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise Unreadable(f"episode {row[0]}: {cause}") from cause


def _entry(row: tuple[Any, ...]) -> Entry:
    (own_id, sequence, state, draft_id, wire, digest, source_path, attempts, *rest) = row
    draft = draft_from_json(wire)
    if (draft.id, digest_of(draft)) != (own_id, digest):
        raise ValueError("it is not the one that was stored")
    (next_try_at, last_error, merged_into, trace_id, enqueued_at, since) = rest
    return Entry(
        draft=draft,
        state=state,
        sequence=sequence,
        draft_id=draft_id,
        source_path=source_path,
        attempts=attempts,
        next_try_at=datetime.fromtimestamp(next_try_at, UTC) if next_try_at else None,
        last_error=last_error,
        merged_into=merged_into,
        trace_id=trace_id,
        enqueued_at=datetime.fromtimestamp(enqueued_at, UTC),
        since=datetime.fromtimestamp(since, UTC),
    )


def _session_of(draft: EpisodeDraft) -> str | None:
    """Name the session of a message; only messages are merged, and only with those of their session."""
    provenance = draft.content.provenance
    is_message = draft.content.kind == "message" and provenance is not None
    return provenance.session_key if is_message and provenance is not None else None
