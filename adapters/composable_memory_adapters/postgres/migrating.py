"""Moves vectors of the builtin index to a workspace on the server, and notes and vectors back.

Nothing is embedded. Each batch is written in one transaction and existing rows are skipped, so an interrupted
move resumes where it stopped.
"""

import asyncio
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from composable_memory.errors import BackendError, MemoryPathError
from composable_memory_adapters.builtin.store import index_meta, integrity, schema
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.integrity import StoredVector
from composable_memory_adapters.postgres import writing
from composable_memory_adapters.postgres.passage_tokens import numbers_of, vector_of
from composable_memory_adapters.postgres.server import Server
from composable_memory_adapters.postgres.writing import OTHER_SPACE, space_id, space_of
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.private_files import replacing
from composable_memory_ops_logs.quick_dataclass import dataclass

BATCH = 500
NOTES = 50

EMBEDDED_HERE = """
SELECT id, provider, model, provider_key, hash, embedding, dims, updated_at, checksum FROM embedding_cache
WHERE provider_key = ? AND model = ? AND provider = ? AND hash IN (SELECT value FROM json_each(?))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedNotes:
    """The notes that were written, how many were here already, and those that differ or are refused."""

    written: Sequence[str]
    same: int
    left: Mapping[str, str]


async def vectors_to_server(server: Server, tenant: int, index: Path) -> tuple[int, int]:
    """Store on the server the vectors of the passages that the builtin index has embedded.

    Returns how many vectors were stored, and how many passages have none yet.

    Raises:
        BackendError: the workspace holds vectors of another embedder.
    """
    moved = 0
    if await asyncio.to_thread(index.exists):
        async with SqliteFile.open(index, readers=1) as file:
            space = await file.read(index_meta.stored_space)
            if space is not None:
                moved = await _to_server(server, tenant, file, space)
    look = partial(writing.pending_and_space, tenant=tenant)
    pending, _ = await server.read("migrate", look, tenant=tenant)
    return moved, pending


async def _to_server(server: Server, tenant: int, file: SqliteFile, space: EmbeddingSpace) -> int:
    name, moved, after = space_id(space), 0, ""
    claim = partial(writing.claim_space, tenant=tenant, space=name, force=False)
    if await server.write("migrate", claim, tenant=tenant) != name:
        raise BackendError("postgres", "migrate", OTHER_SPACE)
    while True:
        find = partial(writing.without_vector, tenant=tenant, after=after, count=BATCH)
        if not (hashes := await server.read("migrate", find, tenant=tenant)):
            return moved
        after = hashes[-1]
        vectors = await file.read(_embedded_here, space=space, hashes=hashes)
        write = partial(writing.write_vectors, tenant=tenant, space=name, vectors=vectors)
        if not await server.write("migrate", write, tenant=tenant):
            raise BackendError("postgres", "migrate", OTHER_SPACE)
        moved += len(vectors)


def _embedded_here(
    connection: Connection, *, space: EmbeddingSpace, hashes: Sequence[str]
) -> dict[str, bytes]:
    rows = connection.execute(EMBEDDED_HERE, (*space.identity, json.dumps(hashes)))
    found = [StoredVector(id_, tuple(values)) for id_, *values in rows]
    return {one.values[3]: vector_of(one.values[4]) for one in found if one.is_whole}


async def vectors_from_server(server: Server, tenant: int, index: Path, *, now_ms: int) -> int:
    """Save vectors from the server for the next sync of the builtin index; return how many."""
    _, name = await server.read("migrate", partial(writing.pending_and_space, tenant=tenant), tenant=tenant)
    if name is None:
        return 0
    space, moved, after = space_of(name), 0, ""
    async with SqliteFile.open(index, readers=1) as file:
        await file.write(schema.create, path=file.path)
        while True:
            find = partial(writing.vectors_after, tenant=tenant, after=after, count=BATCH)
            if not (vectors := await server.read("migrate", find, tenant=tenant)):
                return moved
            after = max(vectors)
            known = await file.read(_embedded_here, space=space, hashes=[*vectors])
            rows = [
                _cached(space, hash_, numbers_of(vector), now_ms)
                for hash_, vector in vectors.items()
                if hash_ not in known
            ]
            await file.write(integrity.restore_vectors, rows=rows)
            moved += len(rows)


def _cached(space: EmbeddingSpace, hash_: str, numbers: bytes, now_ms: int) -> StoredVector:
    made_by = (space.provider, space.model, space.provider_key)
    return StoredVector(0, (*made_by, hash_, numbers, space.dims, now_ms, zlib.crc32(numbers)))


async def notes_from_server(
    server: Server, tenant: int, place_of: Callable[[str], Path], hide: Callable[[str], str]
) -> MovedNotes:
    """Write the notes of a workspace that are missing in the folder; nothing is overwritten.

    `place_of` returns the file of a note, or raises `MemoryPathError`; `hide` blanks what was forgotten here.
    """
    written: list[str] = []
    left: dict[str, str] = {}
    same, after = 0, ""
    while True:
        find = partial(writing.notes_after, tenant=tenant, after=after, count=NOTES)
        notes = await server.read("migrate", find, tenant=tenant)
        if not notes:
            return MovedNotes(written=written, same=same, left=left)
        after = notes[-1][0]
        for path, body, mtime in notes:
            problem = await asyncio.to_thread(_write_note, path, body, mtime, place_of, hide)
            if problem is None:
                written.append(path)
            elif problem:
                left[path] = problem
            else:
                same += 1


def _write_note(
    path: str, body: bytes, mtime: int, place_of: Callable[[str], Path], hide: Callable[[str], str]
) -> str | None:
    """Write a note; return why it cannot be written, or an empty string if it is already here."""
    text = hide(body.decode()).encode()
    try:
        file = place_of(path)
    except MemoryPathError as error:
        return error.problem
    try:
        if file.exists():
            return "" if file.read_bytes() in (text, body) else "another text is here under this name"
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, survives="power cut") as scratch:
            scratch.write_bytes(text)
            os.utime(scratch, ns=(mtime, mtime))  # the later version counts, as on the server
    except OSError as error:
        return error.strerror or str(error)
    return None
