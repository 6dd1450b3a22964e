"""A snapshot of a workspace on the server for the ranking code, which makes no requests."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from datetime import date, datetime, tzinfo
from fnmatch import fnmatchcase

from composable_memory_adapters.builtin.search.index_vectors import SAMPLE_SIZE, Followed
from composable_memory_adapters.builtin.store.message_times import (
    SaidPassage,
    days_among,
    said_passages,
    seconds_between,
)
from composable_memory_adapters.builtin.store.read_queries import (
    Origin,
    PassageRow,
    Passages,
    VectorCounts,
)
from composable_memory_adapters.postgres.server import Connection, Record, Server
from composable_memory_adapters.postgres.vector_index import made_of
from composable_memory_ops_logs.quick_dataclass import dataclass

STATE = """
SELECT revision, space, notes, passages, length, tokens, transcripts, said, pending
FROM workspace_states WHERE tenant = $1
"""
# As in the builtin index: the next passage after each of evenly spaced ids from the first to the last.
SAMPLE = """
SELECT DISTINCT (
  SELECT id FROM passage_words
  WHERE tenant = $1 AND id >= first + (last - first) * place / ($2::int - 1) ORDER BY id LIMIT 1
) AS id
FROM (SELECT min(id) AS first, max(id) AS last FROM passage_words WHERE tenant = $1) AS ends,
  generate_series(0, $2::int - 1) AS place
WHERE first IS NOT NULL
"""
ROWS = """
SELECT id, passages.path, source, start_line, end_line, start_char, text, headings, title, mtime
FROM passages JOIN notes ON notes.tenant = passages.tenant AND notes.path = passages.path
WHERE passages.tenant = $1 AND id = ANY ($2)
"""
COSINES = """
SELECT passages.id, -(vector <#> $3) AS cosine
FROM passages JOIN vectors ON vectors.tenant = passages.tenant AND vectors.hash = passages.hash
WHERE passages.tenant = $1 AND passages.id = ANY ($2)
"""
DAYS = "SELECT path, source, day, mtime FROM notes WHERE tenant = $1"
TEXTS_AFTER = "SELECT id, text FROM passages WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3"
COUNT = "SELECT count(*) FROM passages WHERE tenant = $1"
TIMED = "SELECT DISTINCT path FROM message_times WHERE tenant = $1"
SAID_BETWEEN = "SELECT DISTINCT path FROM message_times WHERE tenant = $1 AND at BETWEEN $2 AND $3"
IN_FILES = """
SELECT id, path, start_line, end_line FROM passages
WHERE tenant = $1 AND path = ANY ($2) ORDER BY path COLLATE "C", start_line, start_char
"""
TIMES = "SELECT path, first_line, last_line, at FROM message_times WHERE tenant = $1 AND path = ANY ($2)"


COUNTS = ("notes", "passages", "length", "tokens", "transcripts", "said", "pending")
NOTHING = {"revision": 0, "space": None, **dict.fromkeys(COUNTS, 0)}
"""The counts of an empty workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceState:
    """A workspace at one revision: its counts, and a sample of passages from all over it.

    `length` counts the tokens of all texts, `tokens` those of names, headings and tags too.
    """

    revision: int
    space: str | None
    notes: int
    passages: int
    length: int
    tokens: int
    transcripts: int
    said: int
    """How many notes are transcripts, and how many passages theirs."""
    sample: Sequence[int]
    pending: int
    indexed: int
    """How many vectors the index was made from; 0 without an index."""

    @property
    def followed(self) -> Followed:
        """Return it in the form for the ranking code."""
        counts = VectorCounts(passages=self.passages, pending=self.pending)
        return Followed(revision=self.revision, forgotten=0, position=0, counts=counts, sample=self.sample)


async def read_state(connection: Connection, tenant: int, *, known: WorkspaceState | None) -> WorkspaceState:
    """Return the state of a workspace; if the revision is that of `known`, return `known`."""
    found = dict(await connection.fetchrow(STATE, tenant) or NOTHING)
    if known is not None and known.revision == found["revision"]:
        return known
    sample = await connection.fetch(SAMPLE, tenant, SAMPLE_SIZE)
    indexed = await made_of(connection, tenant, found["space"])
    ids = [row["id"] for row in sample]
    return WorkspaceState(**found, sample=ids, indexed=indexed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Implements `PassageReader` for the passages that were read."""

    rows: Mapping[int, PassageRow]
    mtimes: Mapping[int, int]
    held: Mapping[int, Sequence[int]]
    near: Mapping[int, float]
    said: Sequence[SaidPassage]

    def passages(self, ids: Iterable[int]) -> Passages:
        """Return texts and places."""
        return Passages(rows={id_: self.rows[id_] for id_ in ids if id_ in self.rows}, damaged=frozenset())

    def origins(self, ids: Iterable[int]) -> Mapping[int, Origin]:
        """Return the file of each."""
        return {
            id_: Origin(path=self.rows[id_].path, source=self.rows[id_].source, mtime_ns=self.mtimes[id_])
            for id_ in ids
            if id_ in self.rows
        }

    def sessions(self, ids: Iterable[int]) -> Set[int]:
        """Return those that belong to transcripts."""
        return {id_ for id_ in ids if id_ in self.rows and self.rows[id_].source == "sessions"}

    def holders(self, embeddings: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """Return for each vector the passages with it, in ascending order."""
        return {one: self.held[one] for one in embeddings if one in self.held}

    def cosines(self, vector: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:  # noqa: ARG002
        """Return the cosine to the question for each passage that has a vector."""
        return {id_: self.near[id_] for id_ in ids if id_ in self.near}

    def days_of(self, ids: Iterable[int], zone: tzinfo | None) -> Mapping[int, set[date]]:
        """Return the days on which the messages in passages were said, if known."""
        return days_among(self.said, frozenset(ids), zone)


async def read_snapshot(
    connection: Connection,
    tenant: int,
    *,
    ids: Iterable[int],
    held: Mapping[int, Sequence[int]],
    direction: bytes | None,
    sample: Sequence[int],
    is_dated: bool = False,
) -> Snapshot:
    """Read what ranking needs of some passages, and of those with some vectors; and their times, if dated."""
    wanted = [*{*ids, *(id_ for some in held.values() for id_ in some)}]
    rows, mtimes = {}, {}
    for id_, path, source, start, end, start_char, text, headings, title, mtime in await connection.fetch(
        ROWS, tenant, wanted
    ):
        mtimes[id_] = mtime
        rows[id_] = PassageRow(
            id=id_,
            path=path,
            source=source,
            start_line=start,
            end_line=end,
            start_char=start_char,
            text=text,
            title=title,
            headings=tuple(headings.split("\n")) if headings else (),
        )
    near: dict[int, float] = {}
    if direction is not None:
        found = await connection.fetch(COSINES, tenant, [*{*wanted, *sample}], direction)
        near = {row["id"]: row["cosine"] for row in found}
    transcripts = {row.path for row in rows.values() if row.source == "sessions"} if is_dated else ()
    said = await _said(connection, tenant, sorted(transcripts)) if transcripts else ()
    return Snapshot(rows=rows, mtimes=mtimes, held=held, near=near, said=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceTexts:
    """Implements `IndexTexts` for a workspace; one that does not exist has no texts."""

    server: Server
    workspace: str
    name: str

    async def collection(self) -> str:
        """Return a name of the workspace on this machine."""
        return re.sub(r"[^A-Za-z0-9-]", "-", self.name)

    async def count(self) -> int:
        """Return the number of passages."""
        return sum([row[0] for row in await self._read(COUNT)])

    async def after(self, last: int, count: int) -> Sequence[tuple[int, str]]:
        """Return the next `count` passages after the id `last`, with their texts."""
        return [(row["id"], row["text"]) for row in await self._read(TEXTS_AFTER, last, count)]

    async def _read(self, query: str, *values: object) -> Sequence[Record]:
        tenant = await self.server.tenant("read for reranking", self.workspace)
        if tenant is None:
            return []
        return await self.server.read(
            "read for reranking",
            lambda connection: connection.fetch(query, tenant, *values),
            tenant=tenant,
        )


async def timed_paths(connection: Connection, tenant: int) -> frozenset[str]:
    """Return the transcripts whose messages have times."""
    return frozenset(row["path"] for row in await connection.fetch(TIMED, tenant))


async def said_between(
    connection: Connection, tenant: int, since: datetime | None, until: datetime | None
) -> list[SaidPassage]:
    """Return the passages with messages from a period, both ends included."""
    first, last = seconds_between(since, until)
    paths = [row["path"] for row in await connection.fetch(SAID_BETWEEN, tenant, first, last)]
    found = await _said(connection, tenant, paths) if paths else ()
    return [one for one in found if first <= one.at <= last]


async def _said(connection: Connection, tenant: int, paths: Sequence[str]) -> Sequence[SaidPassage]:
    passages = await connection.fetch(IN_FILES, tenant, paths)
    times = await connection.fetch(TIMES, tenant, paths)
    return await asyncio.to_thread(lambda: [*said_passages(map(tuple, passages), map(tuple, times))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Implements `NoteTimes` for a workspace: the days of notes, and when transcripts changed.

    `timed` are the transcripts whose messages have times; `said` are passages of these, and `places` passages
    of files, from all requested times.
    """

    days: Mapping[str, str]
    changed: Mapping[str, int]
    timed: frozenset[str]
    said: Sequence[SaidPassage] = ()
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def of_days(self, first: str, last: str) -> Iterable[tuple[str, str]]:
        """Return the files with a day between two ISO dates in their front matter, each with that day."""
        return [(path, day) for path, day in self.days.items() if first <= day <= last]

    def files(self, pattern: str, first_ns: int, last_ns: int) -> Iterable[tuple[str, str, int]]:
        """Return path, source and time of the notes whose path matches, and of transcripts from a period."""
        notes = [(path, "memory", 0) for path in self.days if fnmatchcase(path, pattern)]
        changed = self.changed.items()
        return notes + [(path, "sessions", at) for path, at in changed if first_ns <= at <= last_ns]

    def passages(self, paths: Iterable[str], limit: int) -> Iterable[tuple[int, str]]:
        """Return the passages of files with their paths, in the order of the files."""
        return [(id_, path) for path in sorted({*paths}) for id_ in self.places.get(path, ())][:limit]

    def timed_paths(self) -> frozenset[str]:
        """Return the transcripts whose messages have times."""
        return self.timed

    def said_between(self, since: datetime, until: datetime) -> Sequence[SaidPassage]:
        """Return the passages with messages from a period."""
        first, last = seconds_between(since, until)
        return [one for one in self.said if first <= one.at <= last]


async def read_times(connection: Connection, tenant: int) -> Times:
    """Read the times of all notes and transcripts, without those of single messages."""
    days, changed = dict[str, str](), dict[str, int]()
    for path, source, day, mtime in await connection.fetch(DAYS, tenant):
        if source == "sessions":
            changed[path] = mtime
        else:
            days[path] = day
    timed = await timed_paths(connection, tenant) if changed else frozenset()
    return Times(days=days, changed=changed, timed=timed)


async def read_places(connection: Connection, tenant: int, paths: Iterable[str]) -> dict[str, list[int]]:
    """Return the passages of files, in the order of the files."""
    places: dict[str, list[int]] = {}
    for row in await connection.fetch(IN_FILES, tenant, [*paths]):
        places.setdefault(row["path"], []).append(row["id"])
    return places
