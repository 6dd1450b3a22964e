"""The entries of the outbox: adds and retires episodes and records the state of each.

A new text under a known id is a new episode to the graph; the start of its hash is appended to its id. The
earlier one is retired once the new one is stored: what both say stays valid, and what only the old one said
remains in the history.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter

from composable_memory_adapters.graphiti.episodes import PART_OF, EpisodeDraft, graph_id, owner_of
from composable_memory_adapters.sqlite_file import Connection, Unreadable
from composable_memory_ops_logs.quick_dataclass import dataclass


@cache  # built on first use: this takes longer than a search
def _drafts() -> TypeAdapter[EpisodeDraft]:
    return TypeAdapter(EpisodeDraft)


def draft_to_json(draft: EpisodeDraft) -> str:
    """Return a draft as JSON that `draft_from_json` can read."""
    return json.dumps(asdict(draft), default=datetime.isoformat, separators=(",", ":"))


def draft_from_json(text: str) -> EpisodeDraft:
    """Parse a draft.

    Raises:
        ValueError: the text was not written by `draft_to_json`.
    """
    return _drafts().validate_json(text)


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
"""The state of an episode.

`queued` is to be stored, `sent` was accepted by a service that has not shown it yet, `done` is in the graph,
`failed` waits for a requested retry. When its source no longer says it, an episode is `retiring` and then
`retired`; if the graph has lost a retired one, it is `lost` until it is stored and retired again. An episode
that replaces several is `merging`; the several are `merged` afterwards. `moved` was enqueued again in a group
of the workspace it belongs to. `forgotten` keeps only what is needed to refuse the episode in future.
"""

STATES: frozenset[str] = frozenset(get_args(EntryState))

ACTIVE_STATES: tuple[EntryState, ...] = ("queued", "sent", "done", "failed")
"""States of episodes whose source still says them."""

DUE_STATES: tuple[EntryState, ...] = ("queued", "retiring", "merging", "lost", "sent")
"""States that need work, in the order in which it is done.

Restated facts are stored before vanished ones are retired, so that facts in both survive.
"""

COLUMNS = """
id sequence state draft_id draft hash source_path attempts next_try_at last_error merged_into trace_id since
""".split()
SELECT = "SELECT {columns} FROM episodes WHERE state <> 'forgotten' AND ({where}) ORDER BY {order} LIMIT ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the outbox knows about one episode.

    `draft_id` is the id it was enqueued with, which successive texts may share; `id` is its own id in the
    graph. `attempts` counts failed attempts, and `last_error` has the latest failure. `since` is when it
    entered its state. `sequence` is the order in which entries arrived.
    """

    draft: EpisodeDraft
    state: EntryState
    sequence: int
    draft_id: str
    since: datetime
    source_path: str | None = None
    attempts: int = 0
    next_try_at: datetime | None = None
    last_error: str | None = None
    merged_into: str | None = None
    trace_id: str | None = None

    @property
    def id(self) -> str:
        """Return the id of the episode in the graph."""
        return self.draft.id


class EntryRow(BaseModel):
    """An entry as stored in its columns, for backups; the fields are named after the columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sequence: int
    group_id: str
    draft_id: str
    content_id: str
    part_of: str
    session_key: str | None
    source_path: str | None
    state: EntryState
    draft: str
    hash: str
    attempts: int
    last_error: str | None
    merged_into: str | None
    trace_id: str | None
    observed_at: float
    enqueued_at: float
    since: float
    is_marked: int


def digest_of(draft: EpisodeDraft) -> str:
    """Return the SHA-256 of a draft's text."""
    return sha256(draft.text.encode("utf-8", "surrogatepass")).hexdigest()


def by_ids(connection: Connection, ids: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries enqueued with these ids: the current text of each."""
    wanted = json.dumps(ids)
    found = select(connection, "draft_id IN (SELECT value FROM json_each(?))", wanted)
    latest = {entry.draft_id: entry for entry in found}
    return tuple(latest[own_id] for own_id in dict.fromkeys(ids) if own_id in latest)


def select(
    connection: Connection, where: str, *values: str | float, order: str = "sequence", limit: int = -1
) -> tuple[Entry, ...]:
    """Return the entries that match an SQL condition, without forgotten ones.

    Raises:
        Unreadable: one of them is damaged.
    """
    query = SELECT.format(columns=", ".join(COLUMNS), where=where, order=order)
    return tuple(_entries(connection.execute(query, (*values, limit))))


def _entries(rows: Iterable[tuple[Any, ...]]) -> Iterator[Entry]:
    for row in rows:
        try:
            yield _entry(row)
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise Unreadable(f"episode {row[0]}: {cause}") from cause


def _entry(row: tuple[Any, ...]) -> Entry:
    known = dict(zip(COLUMNS, row, strict=True))
    draft = draft_from_json(known.pop("draft"))
    if (draft.id, digest_of(draft)) != (known.pop("id"), known.pop("hash")):
        raise ValueError("it is not the one that was stored")
    next_try_at, since = known.pop("next_try_at"), datetime.fromtimestamp(known.pop("since"), UTC)
    next_try = datetime.fromtimestamp(next_try_at, UTC) if next_try_at else None
    return Entry(draft=draft, next_try_at=next_try, since=since, **known)


# --- adding and retiring ------------------------------------------------------------------------------------

HASH_CHARS = 8
RETIRED_STATES: tuple[EntryState, ...] = ("retiring", "retired", "lost")

FIND = "SELECT id, state, hash FROM episodes WHERE draft_id = ?"
INSERT = """
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
REQUEUE = """
UPDATE episodes SET sequence = (SELECT max(sequence) + 1 FROM episodes), state = 'queued', attempts = 0,
  next_try_at = 0, last_error = NULL, source_path = coalesce(:source_path, source_path), since = :now
WHERE id = :id
"""
SET_SOURCE = "UPDATE episodes SET source_path = ? WHERE id = ?"
RETIRE = "UPDATE episodes SET state = 'retiring', since = ?, next_try_at = 0 WHERE id = ?"
OF_SOURCE = "SELECT id, draft_id FROM episodes WHERE group_id = ? AND source_path = ? AND state IN ({active})"
OF_WHOLE = "SELECT id, draft_id FROM episodes WHERE group_id = ? AND part_of = ? AND state IN ({active})"


def add(
    connection: Connection,
    draft: EpisodeDraft,
    *,
    now: float,
    workspace: str,
    state: EntryState = "queued",
    source_path: str | None = None,
    trace_id: str | None = None,
) -> bool:
    """Add an episode; return True, changing nothing, if it is known with this text and not retired."""
    digest = digest_of(draft)
    _recognize(connection, draft, digest, workspace=workspace, source_path=source_path)
    rows = connection.execute(FIND, (draft.id,)).fetchall()
    same = next((row for row in rows if row[2] == digest), None)
    others = [str(row[0]) for row in rows if row[2] != digest and row[1] in ACTIVE_STATES]
    _retire(connection, others, now=now)
    if same is None:
        own = _with_hash_in_id(draft, digest) if rows else draft
        values = _columns(own, draft, state=state, digest=digest)
        more = {"source_path": source_path, "trace_id": trace_id, "now": now, "workspace": workspace}
        connection.execute(INSERT, {**values, **more})
    elif same[1] in RETIRED_STATES:
        connection.execute(REQUEUE, {"id": same[0], "source_path": source_path, "now": now})
    else:
        if source_path is not None:
            connection.execute(SET_SOURCE, (source_path, same[0]))
        return True
    return False


def retire_missing(
    connection: Connection,
    drafts: Sequence[EpisodeDraft],
    *,
    group_id: str,
    source_path: str | None,
    now: float,
) -> None:
    """Mark for retirement what `drafts` omit of their source, and of each long text among them."""
    active = ", ".join(f"'{state}'" for state in ACTIVE_STATES)
    present = {draft.id for draft in drafts}
    queries = [] if source_path is None else [(OF_SOURCE, source_path)]
    queries += [(OF_WHOLE, whole) for whole in sorted({_whole_of(draft) for draft in drafts})]
    rows = (
        row for sql, key in queries for row in connection.execute(sql.format(active=active), (group_id, key))
    )
    _retire(connection, {str(row[0]) for row in rows if row[1] not in present}, now=now)


def _retire(connection: Connection, ids: Iterable[str], *, now: float) -> None:
    connection.executemany(RETIRE, [(now, own_id) for own_id in ids])


def _recognize(
    connection: Connection, draft: EpisodeDraft, digest: str, *, workspace: str, source_path: str | None
) -> None:
    """Rename what was enqueued before ids named the workspace, so that nothing is stored twice."""
    owner, name = owner_of(draft.content.id)
    if owner is None:
        return
    values = {
        "draft_id": draft.id,
        "part_of": _whole_of(draft),
        "before": graph_id(draft.group_id, name),
        "hash": digest,
        "workspace": workspace,
        "source_path": source_path,
    }
    connection.execute(RECOGNIZE, values)


def _with_hash_in_id(draft: EpisodeDraft, digest: str) -> EpisodeDraft:
    own_id = f"{draft.content.id}@{digest[:HASH_CHARS]}"
    content = replace(draft.content, id=own_id)
    return replace(draft, id=graph_id(draft.group_id, own_id), content=content)


def _columns(
    own: EpisodeDraft, given: EpisodeDraft, *, state: EntryState, digest: str
) -> dict[str, str | float | None]:
    return {
        "id": own.id,
        "group_id": own.group_id,
        "draft_id": given.id,
        "content_id": own.content.id,
        "part_of": _whole_of(given),
        "session_key": _session_of(own) if state == "queued" else None,
        "state": state,
        "draft": draft_to_json(own),
        "hash": digest,
        "observed_at": own.observed_at.timestamp(),
    }


def _whole_of(draft: EpisodeDraft) -> str:
    """Return the id of the content that a draft is part of, or its own id."""
    return str(draft.content.metadata.get(PART_OF) or draft.content.id)


def _session_of(draft: EpisodeDraft) -> str | None:
    """Return the session of a message; only messages are merged, and only within their session."""
    provenance = draft.content.provenance
    return provenance.session_key if draft.content.kind == "message" and provenance is not None else None
