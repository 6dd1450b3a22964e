"""Adds episodes to the outbox: recognizes what is known, and retires what a source no longer says.

Another text under a known id is another episode to the graph, with the beginning of its hash at the end of
its id, and the earlier one is retired when it is stored: what both say goes on to hold, and what was said
before stays in the history.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from composable_memory_adapters.graphiti.episodes import PART_OF, EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.outbox.entry import (
    ACTIVE_STATES,
    EntryState,
    digest_of,
    draft_to_json,
)
from composable_memory_adapters.sqlite_file import Connection

Novelty = Literal["new", "known", "changed"]
"""Whether the id of an episode was unknown, known with the same text, or known with another one."""

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
) -> Novelty:
    """Add an episode; one that is known with the same text stays as it is, unless it was retired."""
    digest = digest_of(draft)
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
        return "known"
    return "changed" if others else "new"


def retire_missing(
    connection: Connection,
    drafts: Sequence[EpisodeDraft],
    *,
    group_id: str,
    source_path: str | None,
    now: float,
) -> tuple[str, ...]:
    """Mark as to be retired what `drafts` leave out of their source, and of each long text among them."""
    active = ", ".join(f"'{state}'" for state in ACTIVE_STATES)
    present = {draft.id for draft in drafts}
    queries = [] if source_path is None else [(OF_SOURCE, source_path)]
    queries += [(OF_WHOLE, whole) for whole in sorted({_whole_of(draft) for draft in drafts})]
    rows = (
        row for sql, key in queries for row in connection.execute(sql.format(active=active), (group_id, key))
    )
    missing = tuple(dict.fromkeys(str(row[0]) for row in rows if row[1] not in present))
    _retire(connection, missing, now=now)
    return missing


def _retire(connection: Connection, ids: Iterable[str], *, now: float) -> None:
    connection.executemany(RETIRE, [(now, own_id) for own_id in ids])


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
    """Return the id of the content that a draft is a part of, or its own."""
    return str(draft.content.metadata.get(PART_OF) or draft.content.id)


def _session_of(draft: EpisodeDraft) -> str | None:
    """Return the session of a message; only messages are merged, and only with those of their session."""
    provenance = draft.content.provenance
    return provenance.session_key if draft.content.kind == "message" and provenance is not None else None
