"""The writes of a sync: files with their passages, words and vectors, one transaction for each file.

A writer first raises the revision of its workspace, which locks it: writers take turns, so none can change
what another has just read. Readers are not blocked.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

from composable_memory.paths import Reading
from composable_memory_adapters.builtin.notes.changed_notes import FileDraft, FileState
from composable_memory_adapters.builtin.notes.documents import Document
from composable_memory_adapters.builtin.notes.fields import NoteFields, keyword_row
from composable_memory_adapters.builtin.notes.sessions import Transcript
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.chunking import Chunk
from composable_memory_adapters.postgres import postings
from composable_memory_adapters.postgres.passage_tokens import PassageWords, words_of
from composable_memory_adapters.postgres.server import Connection, Record
from composable_memory_adapters.text.compounds import long_words
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_ops_logs.quick_dataclass import dataclass

LOCK = """
INSERT INTO workspace_states (tenant, revision) VALUES ($1, 1)
ON CONFLICT (tenant) DO UPDATE SET revision = workspace_states.revision + 1
RETURNING revision, next_passage, next_bucket, space
"""
NOTES = """
SELECT path, hash, mtime, recipe, source, title, aliases, tags, EXISTS (
  SELECT FROM copies WHERE copies.tenant = $1 AND copies.path = notes.path AND copies.hash = notes.hash
  AND owner <> $3
) AS is_others
FROM notes WHERE tenant = $1 AND path = ANY ($2)
"""
KNOWN = """
SELECT copies.path, copies.mtime, size, CASE WHEN notes.recipe = '' THEN '' ELSE copies.recipe END,
  copies.hash, source, is_utf8
FROM copies JOIN notes ON notes.tenant = copies.tenant AND notes.path = copies.path
WHERE copies.tenant = $1 AND owner = $2
"""
PUT_COPY = """
INSERT INTO copies (tenant, owner, path, hash, mtime, size, is_utf8, recipe)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, owner, path) DO UPDATE
SET hash = excluded.hash, mtime = excluded.mtime, size = excluded.size, is_utf8 = excluded.is_utf8,
  recipe = excluded.recipe
"""
PUT_NOTE = """
INSERT INTO notes (tenant, path, hash, mtime, recipe, title, aliases, tags, type, day, body, source, lines)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (tenant, path) DO UPDATE
SET hash = excluded.hash, mtime = excluded.mtime, recipe = excluded.recipe, title = excluded.title,
  aliases = excluded.aliases, tags = excluded.tags, type = excluded.type, day = excluded.day,
  body = excluded.body, source = excluded.source, lines = excluded.lines
"""
DELETE_TIMES = "DELETE FROM message_times WHERE tenant = $1 AND path = ANY ($2)"
PUT_TIME = "INSERT INTO message_times (tenant, path, first_line, last_line, at) VALUES ($1, $2, $3, $4, $5)"
STORED = """
SELECT path, id, start_line, end_line, start_char, hash, headings FROM passages
WHERE tenant = $1 AND path = ANY ($2) ORDER BY id
"""
MOVE_PASSAGE = """
UPDATE passages SET start_line = $3, end_line = $4, start_char = $5 WHERE tenant = $1 AND id = $2
"""
COUNTED = ("notes", "transcripts", "passages", "said", "length", "tokens", "pending")
COUNT = f"""
UPDATE workspace_states
SET {", ".join(f"{name} = {name} + ${at}" for at, name in enumerate(COUNTED, 2))},
  next_passage = $9, next_bucket = $10
WHERE tenant = $1
"""  # noqa: S608 - our own text
# Taken before the statement that stores them: of Citus, each server would count by itself.
NEXT_IDS = "SELECT nextval('vectors_id_seq') FROM generate_series(1, $1::int)"
PUT_PASSAGE = """
INSERT INTO passages (tenant, id, path, start_line, end_line, start_char, hash, headings, text)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
PUT_WORDS = """
INSERT INTO passage_words (tenant, id, source, length, tokens, words) VALUES ($1, $2, $3, $4, $5, $6)
"""
DELETE_PASSAGES = "DELETE FROM passages WHERE tenant = $1 AND id = ANY ($2) RETURNING id, hash, text"
DELETE_WORDS = """
DELETE FROM passage_words WHERE tenant = $1 AND id = ANY ($2) RETURNING id, source, length, tokens, words
"""
PUT_LONG_WORDS = """
INSERT INTO long_words (tenant, backwards) SELECT $1, * FROM unnest($2::text[]) ON CONFLICT DO NOTHING
"""
DELETE_LONG_WORDS = "DELETE FROM long_words WHERE tenant = $1 AND backwards = ANY ($2)"
DELETE_UNUSED_VECTORS = """
DELETE FROM vectors WHERE tenant = $1 AND hash = ANY ($2) AND NOT EXISTS (
  SELECT FROM passages WHERE passages.tenant = $1 AND passages.hash = vectors.hash
)
"""
OWNERS = """
SELECT owner, count(*) AS notes, max(mtime) AS latest, count(*) FILTER (WHERE NOT EXISTS (
  SELECT FROM copies AS others
  WHERE others.tenant = $1 AND others.path = copies.path AND others.owner <> copies.owner
)) AS alone
FROM copies WHERE tenant = $1 GROUP BY owner ORDER BY owner
"""
OWNED = "SELECT path FROM copies WHERE tenant = $1 AND owner = $2"
DELETE_COPIES = "DELETE FROM copies WHERE tenant = $1 AND owner = $2 AND path = ANY ($3)"
NOBODYS = """
SELECT path, source FROM notes WHERE tenant = $1 AND path = ANY ($2) AND NOT EXISTS (
  SELECT FROM copies WHERE copies.tenant = $1 AND copies.path = notes.path
)
"""
DELETE_NOTES = "DELETE FROM notes WHERE tenant = $1 AND path = ANY ($2)"
READ_AGAIN = """
UPDATE notes SET recipe = '' WHERE tenant = $1 AND path = ANY ($2) AND NOT EXISTS (
  SELECT FROM copies
  WHERE copies.tenant = $1 AND copies.path = notes.path AND copies.hash = notes.hash
)
"""
SPACE = "SELECT space FROM workspace_states WHERE tenant = $1"
FORGET_SPACE = "UPDATE workspace_states SET space = NULL, pending = passages WHERE tenant = $1"
CLAIM_SPACE = "UPDATE workspace_states SET space = $2 WHERE tenant = $1 AND space IS NULL"
# A page of all passages, so that each is looked at once, whatever row estimate the server has.
PENDING = """
SELECT page.id, page.hash, CASE WHEN vectors.id IS NULL THEN text END AS text
FROM (SELECT id, hash, text FROM passages WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3) AS page
LEFT JOIN vectors ON vectors.tenant = $1 AND vectors.hash = page.hash ORDER BY page.id DESC
"""
WITHOUT_VECTOR = """
SELECT DISTINCT passages.hash FROM passages
LEFT JOIN vectors ON vectors.tenant = passages.tenant AND vectors.hash = passages.hash
WHERE passages.tenant = $1 AND vectors.id IS NULL AND passages.hash > $2 ORDER BY passages.hash LIMIT $3
"""
VECTORS_AFTER = "SELECT hash, vector FROM vectors WHERE tenant = $1 AND hash > $2 ORDER BY hash LIMIT $3"
NOTES_AFTER = """
SELECT path, body, mtime FROM notes
WHERE tenant = $1 AND source = 'memory' AND path > $2 ORDER BY path LIMIT $3
"""
PENDING_AND_SPACE = "SELECT pending, space FROM workspace_states WHERE tenant = $1"
WITH_VECTOR = "SELECT hash FROM vectors WHERE tenant = $1 AND hash = ANY ($2)"
FEWER_PENDING = """
UPDATE workspace_states SET pending = pending - (
  SELECT count(*) FROM passages WHERE tenant = $1 AND hash = ANY ($2) AND NOT EXISTS (
    SELECT FROM vectors WHERE vectors.tenant = $1 AND vectors.hash = passages.hash
  )
) WHERE tenant = $1
"""
PUT_VECTOR = """
INSERT INTO vectors (tenant, id, hash, vector) OVERRIDING SYSTEM VALUE
SELECT $1, $4, $2, $3 WHERE EXISTS (SELECT FROM passages WHERE tenant = $1 AND hash = $2)
ON CONFLICT DO NOTHING
"""

NONE: Mapping[str, bytes] = MappingProxyType({})
PENDING_PAGE = 1_000
LAST = (1 << 63) - 1
"""Above every passage id."""

OTHER_SPACE = (
    "the workspace has vectors from another embedder, so passages are written without vectors; use that "
    "embedder, or embed everything again with `cmem index --force`"
)


Words: TypeAlias = tuple[PassageWords, Mapping[str, float]]
"""The words of a passage, with the weight of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordedFile:
    """A file to be written, with the words of each passage and their weights."""

    draft: FileDraft
    words: Sequence[Words]
    long_words: Set[str]

    @property
    def chunks(self) -> Sequence[Chunk]:
        """Return its passages; none if they are unchanged."""
        return self.draft.chunks or ()


@dataclass(slots=True, kw_only=True)
class Written:
    """How many files, passages and vectors were written, and how many files were removed."""

    files: int = 0
    passages: int = 0
    vectors: int = 0
    removed: int = 0


class _Change:
    """The changes of a writer that holds the lock of a workspace, for its counts and word index."""

    def __init__(self, connection: Connection, tenant: int, state: Record) -> None:
        self._connection = connection
        self._tenant = tenant
        self._revision, self.next_passage, self._next_bucket, self._space = state
        self._postings = postings.Changes()
        self._grown: Counter[str] = Counter()

    @classmethod
    async def begin(cls, connection: Connection, tenant: int) -> "_Change":
        """Take the lock."""
        state = await connection.fetchrow(LOCK, tenant)
        assert state is not None
        return cls(connection, tenant, state)

    def note(self, source: str, times: int = 1) -> None:
        """Count a note: 1 if it is added, -1 if it is removed."""
        self._grown["notes"] += times
        self._grown["transcripts"] += times * (source == "sessions")

    def passage(
        self, id_: int, source: str, words: PassageWords, weights: Mapping[str, float], times: int = 1
    ) -> None:
        """Count a passage that is added or removed, and its words."""
        grown = {"passages": 1, "said": source == "sessions", "length": words.length, "tokens": words.tokens}
        for name, more in grown.items():
            self._grown[name] += times * more
        self._postings.add(id_, weights, times)

    async def vectors(
        self, new: Sequence[str], gone: Sequence[str], space: str = "", vectors: Mapping[str, bytes] = NONE
    ) -> int:
        """Store the `vectors` of new passages by the hashes of their texts; return how many.

        Counts passages without a vector, so call it before unused vectors are removed.
        """
        rows = await self._connection.fetch(WITH_VECTOR, self._tenant, [*new, *gone])
        known = {row["hash"] for row in rows}
        self._grown["pending"] += sum(one not in known for one in new) - sum(one not in known for one in gone)
        if not vectors or self._space not in (None, space):
            return 0
        if self._space is None:
            await self._connection.execute(CLAIM_SPACE, self._tenant, space)
        stored = {one: vectors[one] for one in new if one in vectors and one not in known}
        await _put_vectors(self._connection, self._tenant, stored)
        return len(stored)

    async def store(self) -> None:
        """Store counts and words."""
        buckets = await self._postings.store(
            self._connection, self._tenant, batch=self._revision, merge_from=self._next_bucket
        )
        await self._connection.execute(
            COUNT, self._tenant, *(self._grown[name] for name in COUNTED), self.next_passage, buckets
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A contributor of notes: how many, how many nobody else has, and when the latest was changed."""

    name: str
    notes: int
    alone: int
    latest: datetime


def worded(draft: FileDraft) -> WordedFile:
    """Return a file with the words of its passages; takes about 2 ms per passage, so call it in a thread."""
    key, fields = draft.key, draft.fields
    return WordedFile(
        draft=draft,
        words=[_words(key, fields, "\n".join(chunk.headings), chunk.text) for chunk in draft.chunks or ()],
        long_words=long_words(chunk.text for chunk in draft.chunks or ()),
    )


@lru_cache(maxsize=128)  # editing a followed note changes few of its passages
def _words(path: str, fields: NoteFields, headings: str, text: str) -> Words:
    words = words_of(keyword_row(path, fields, headings, text), Stemmer())
    return words, words.weights()


async def known_files(connection: Connection, tenant: int, owner: str) -> dict[str, FileState]:
    """Return the files that an owner has contributed, with their state at that time."""
    return {row[0]: FileState(*row[1:]) for row in await connection.fetch(KNOWN, tenant, owner)}


async def write_files(
    connection: Connection,
    tenant: int,
    owner: str,
    files: Sequence[WordedFile],
    *,
    space: str = "",
    vectors: Mapping[str, bytes] = NONE,
    force: bool = False,
) -> Written:
    """Write the files of an owner; a newer one of the same name from another owner stays.

    `vectors` of their passages are stored if the workspace has vectors of the same `space`.

    Unchanged passages of an existing note keep their rows. Repeating the call changes nothing. If two owners
    chunk one text differently, the last whose file or chunking is new wins. With `force`, files and all their
    passages count as written even if unchanged.
    """
    written = Written()
    change = await _Change.begin(connection, tenant)
    paths = [one.draft.key for one in files]
    rows = await connection.fetch(NOTES, tenant, paths, owner)
    stored = {row["path"]: row for row in rows}
    changed, anew = [], set[str]()
    for one in files:
        draft, found = one.draft, stored.get(one.draft.key)
        if draft.chunks is None:
            continue
        is_same = found is not None and (found["hash"], found["recipe"]) == (draft.note.hash, draft.recipe)
        is_newer = (
            found is not None
            and found["hash"] != draft.note.hash
            and found["mtime"] > draft.note.mtime_ns
            and found["is_others"]
        )
        if not is_newer and (force or not is_same):
            changed.append(one)
            if force or found is None or not _has_same_words(draft, found):
                anew.add(draft.key)
    for one in changed:
        if row := stored.get(one.draft.key):
            change.note(row["source"], -1)
        change.note(one.draft.source)
    if changed:
        await _replace_notes(connection, tenant, changed, written, change, anew, space, vectors)
    copies = [_copy(tenant, owner, one.draft) for one in files]
    await connection.executemany(PUT_COPY, copies)
    return written


async def owners(connection: Connection, tenant: int) -> list[Owner]:
    """Return the owners that have contributed notes to a workspace."""
    return [
        Owner(name=name, notes=notes, alone=alone, latest=datetime.fromtimestamp(latest / 1e9, UTC))
        for name, notes, latest, alone in await connection.fetch(OWNERS, tenant)
    ]


async def remove_owner(connection: Connection, tenant: int, owner: str) -> Written:
    """Remove everything an owner has contributed; notes that others have stay."""
    paths = [row["path"] for row in await connection.fetch(OWNED, tenant, owner)]
    return await remove_files(connection, tenant, owner, paths)


async def remove_files(connection: Connection, tenant: int, owner: str, paths: Sequence[str]) -> Written:
    """Remove an owner's deleted files; those that others have stay, and are reread if their text differs."""
    change = await _Change.begin(connection, tenant)
    await connection.execute(DELETE_COPIES, tenant, owner, paths)
    gone = list[str]()
    for path, source in await connection.fetch(NOBODYS, tenant, paths):
        change.note(source, -1)
        gone.append(path)
    stored = await connection.fetch(STORED, tenant, gone)
    passages = await _taken_out(connection, tenant, [row["id"] for row in stored], change)
    await change.vectors((), [row["hash"] for row in passages])
    await change.store()
    await _clean_up(connection, tenant, passages)
    await connection.execute(DELETE_NOTES, tenant, gone)
    await connection.execute(DELETE_TIMES, tenant, gone)
    await connection.execute(READ_AGAIN, tenant, paths)
    return Written(removed=len(paths))


async def _replace_notes(
    connection: Connection,
    tenant: int,
    files: Sequence[WordedFile],
    written: Written,
    change: _Change,
    anew: Set[str],
    space: str,
    vectors: Mapping[str, bytes],
) -> None:
    await connection.executemany(PUT_NOTE, [_note(tenant, one) for one in files])
    written.files += len(files)
    said = {one.draft.key: one.draft.note for one in files}
    if transcripts := {key: note.times for key, note in said.items() if isinstance(note, Transcript)}:
        await connection.execute(DELETE_TIMES, tenant, [*transcripts])
        times = [(tenant, key, *time) for key, some in transcripts.items() for time in some]
        await connection.executemany(PUT_TIME, times)
    # Unchanged passages keep their ids; only their place is updated.
    paths = [one.draft.key for one in files]
    kept: defaultdict[tuple[str, str, str], list[tuple[int, ...]]] = defaultdict(list)
    unused = set[int]()
    for path, id_, *lines, hash_, headings in reversed(await connection.fetch(STORED, tenant, paths)):
        unused.add(id_)
        if path not in anew:
            kept[path, hash_, headings].append((id_, *lines))
    new, moved = list[tuple[WordedFile, Chunk, Words]](), list[tuple[int, ...]]()
    for one in files:
        for chunk, words in zip(one.chunks, one.words, strict=True):
            lines = [chunk.start_line, chunk.end_line, chunk.start_char]
            same = kept[one.draft.key, chunk.hash, _headings(chunk)]
            if not same:
                new.append((one, chunk, words))
                continue
            id_, *before = same.pop()
            unused.remove(id_)
            if before != lines:
                moved.append((tenant, id_, *lines))
    gone = await _taken_out(connection, tenant, sorted(unused), change)
    await connection.executemany(MOVE_PASSAGE, moved)
    written.passages += len(new)
    ids = range(change.next_passage, change.next_passage + len(new))
    change.next_passage = ids.stop
    for id_, (one, _, words) in zip(ids, new, strict=True):
        change.passage(id_, one.draft.source, *words)
    await connection.executemany(
        PUT_PASSAGE,
        [
            (
                *(tenant, id_, one.draft.key, chunk.start_line, chunk.end_line, chunk.start_char),
                *(chunk.hash, _headings(chunk), storable(chunk.text)),
            )
            for id_, (one, chunk, _) in zip(ids, new, strict=True)
        ],
    )
    await connection.executemany(
        PUT_WORDS,
        [
            (tenant, id_, one.draft.source, words.length, words.tokens, words.words)
            for id_, (one, _, (words, _)) in zip(ids, new, strict=True)
        ],
    )
    hashes, others = [chunk.hash for _, chunk, _ in new], [row["hash"] for row in gone]
    written.vectors += await change.vectors(hashes, others, space, vectors)
    await change.store()
    await _clean_up(connection, tenant, gone)
    if backwards := {word[::-1] for one in files for word in one.long_words}:
        await connection.execute(PUT_LONG_WORDS, tenant, sorted(backwards))


async def _taken_out(
    connection: Connection, tenant: int, ids: Sequence[int], change: _Change
) -> list[Record]:
    """Remove passages with their words; return them."""
    gone: list[Record] = await connection.fetch(DELETE_PASSAGES, tenant, ids) if ids else []
    if gone:
        rows = await connection.fetch(DELETE_WORDS, tenant, [row["id"] for row in gone])
        for id_, source, *row in rows:
            words = PassageWords(*row)
            change.passage(id_, source, words, words.weights(), -1)
    return gone


async def _clean_up(connection: Connection, tenant: int, gone: Sequence[Record]) -> None:
    """Remove long words and vectors that only removed passages had."""
    if gone:
        await _forget_long_words(connection, tenant, [row["text"] for row in gone])
        await connection.execute(DELETE_UNUSED_VECTORS, tenant, [row["hash"] for row in gone])


async def _forget_long_words(connection: Connection, tenant: int, texts: Sequence[str]) -> None:
    """Remove the long words of removed texts, unless another passage has them in any form."""
    tokens = await asyncio.to_thread(_tokens_of_long_words, texts)
    if not tokens:
        return
    used = await postings.count_words(connection, tenant, [*{*chain.from_iterable(tokens.values())}])
    gone = [word[::-1] for word, some in tokens.items() if not used.keys() >= {*some}]
    await connection.execute(DELETE_LONG_WORDS, tenant, gone)


def _tokens_of_long_words(texts: Sequence[str]) -> dict[str, list[str]]:
    stemmer = Stemmer()
    return {word: [*stemmer.of_forms(word)] for word in long_words(texts)}


def _has_same_words(draft: FileDraft, stored: Record) -> bool:
    """Return whether a passage of an unchanged note has the same words as before.

    They include the words of the note's names and tags.
    """
    is_cut_so = stored["recipe"] == draft.recipe if stored["recipe"] else stored["hash"] == draft.note.hash
    names = ("title", "aliases", "tags")
    return is_cut_so and all(stored[name] == storable(getattr(draft.fields, name)) for name in names)


def _copy(tenant: int, owner: str, draft: FileDraft) -> tuple[object, ...]:
    return (
        tenant,
        owner,
        draft.key,
        draft.note.hash,
        draft.note.mtime_ns,
        draft.note.size,
        draft.note.reading != Reading.IN_PART,
        draft.recipe,
    )


def _note(tenant: int, one: WordedFile) -> tuple[object, ...]:
    draft = one.draft
    fields = map(storable, draft.fields)
    body = draft.note.text.encode("utf-8", "replace")
    place = (tenant, draft.key, draft.note.hash, draft.note.mtime_ns, draft.recipe)
    lines = draft.note.lines if isinstance(draft.note, Document) else None
    return (*place, *fields, body, draft.source, lines)


def _headings(chunk: Chunk) -> str:
    return storable("\n".join(chunk.headings))


def storable(text: str) -> str:
    """Return a text without characters that PostgreSQL rejects."""
    return text.replace("\0", "\ufffd")


# --- vectors ------------------------------------------------------------------------------------------------


def space_id(space: EmbeddingSpace) -> str:
    """Return the name of a vector space for the row of a workspace."""
    return f"{space.provider}/{space.model}/{space.dims}/{space.provider_key}"


def space_of(id_: str) -> EmbeddingSpace:
    """Return the space that `space_id` named; the name of a model may contain a slash."""
    provider, rest = id_.split("/", 1)
    model, dims, provider_key = rest.rsplit("/", 2)
    return EmbeddingSpace(provider=provider, model=model, dims=int(dims), provider_key=provider_key)


async def claim_space(connection: Connection, tenant: int, space: str, *, force: bool) -> str:
    """Return the vector space of a workspace: that of the first to embed, or of whoever forces theirs.

    Vectors of another space are then removed.
    """
    await connection.execute(LOCK, tenant)
    if force and await connection.fetchval(SPACE, tenant) not in (None, space):
        await connection.execute("DELETE FROM vectors WHERE tenant = $1", tenant)
        await connection.execute(FORGET_SPACE, tenant)
    await connection.execute(CLAIM_SPACE, tenant, space)
    return str(await connection.fetchval(SPACE, tenant))


async def pending(
    connection: Connection, tenant: int, *, before: int, count: int
) -> tuple[int | None, list[tuple[str, str]]]:
    """Return hash and text of those of the next `count` passages that have no vector, newest first.

    The following page is before the returned id, which is None at the end.
    """
    rows = await connection.fetch(PENDING, tenant, before, count)
    found = [(row["hash"], row["text"]) for row in rows if row["text"] is not None]
    return rows[-1]["id"] if len(rows) == count else None, found


async def pending_and_space(connection: Connection, tenant: int) -> tuple[int, str | None]:
    """Return how many passages have no vector, and the space of the vectors."""
    pending, space = await connection.fetchrow(PENDING_AND_SPACE, tenant) or (0, None)
    return pending, space


async def known_vectors(
    connection: Connection, tenant: int, hashes: Sequence[str]
) -> tuple[frozenset[str], str | None]:
    """Return the texts that have a vector, by their hashes, and the space of the vectors."""
    rows = await connection.fetch(WITH_VECTOR, tenant, hashes)
    return frozenset(row["hash"] for row in rows), await connection.fetchval(SPACE, tenant)


async def write_vectors(
    connection: Connection, tenant: int, space: str, vectors: Mapping[str, bytes]
) -> bool:
    """Store vectors by the hashes of their texts; return false if the workspace now has another space."""
    await connection.execute(LOCK, tenant)
    if await connection.fetchval(SPACE, tenant) != space:
        return False
    await _put_vectors(connection, tenant, vectors)
    return True


async def _put_vectors(connection: Connection, tenant: int, vectors: Mapping[str, bytes]) -> None:
    """Store vectors; they also apply to passages that others wrote before with the same text."""
    if not vectors:
        return
    await connection.execute(FEWER_PENDING, tenant, [*vectors])
    ids = await connection.fetch(NEXT_IDS, len(vectors))
    rows = [(tenant, hash_, one, id_) for (hash_, one), (id_,) in zip(vectors.items(), ids, strict=True)]
    await connection.executemany(PUT_VECTOR, rows)


# --- pages, for reading a whole workspace -------------------------------------------------------------------


async def without_vector(connection: Connection, tenant: int, *, after: str, count: int) -> list[str]:
    """Return the next hashes of texts without a vector, in ascending order."""
    return [row["hash"] for row in await connection.fetch(WITHOUT_VECTOR, tenant, after, count)]


async def vectors_after(connection: Connection, tenant: int, *, after: str, count: int) -> dict[str, bytes]:
    """Return the next vectors by the hashes of their texts, in ascending order."""
    return dict(await connection.fetch(VECTORS_AFTER, tenant, after, count))


async def notes_after(
    connection: Connection, tenant: int, *, after: str, count: int
) -> list[tuple[str, bytes, int]]:
    """Return path, text and modification time of the next notes, by path."""
    return [tuple(row) for row in await connection.fetch(NOTES_AFTER, tenant, after, count)]
