"""Feeds a vector store from an index file: which vectors are new, which are gone, and what is stored.

Vectors keep the ids of the embedding cache, so passages with the same text share one. A store follows
`meta.revision`: after a change it receives the new vectors, and those that no passage uses any more are
deleted from it. The index keeps a log of these changes; if the log does not reach back far enough, all ids
are compared.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable
from uuid import uuid4

from composable_memory.errors import IndexProblem
from composable_memory.interfaces import SupportsDelete, SupportsIds, SupportsPackedVectors, VectorAdapter
from composable_memory.vector_values import VectorRecord
from composable_memory_adapters.builtin.store import index_meta, read_queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.read_queries import VectorChanges
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")

SAMPLE_SIZE = 32
"""How many passages to sample to see how far an average one is from the query."""

VECTORS_PER_STATEMENT = 8192
"""How many vectors to fetch per statement: between two statements a cancelled search can stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The state of the index that a vector store has caught up with.

    `forgotten` counts purges of forgotten lines; `position` is the position in the log of changed vectors.
    `sample` is an even sample of passages, the same until the index changes.
    """

    revision: int
    forgotten: int
    position: int
    counts: read_queries.VectorCounts
    sample: Sequence[int]

    @classmethod
    def of(cls, connection: Connection) -> "Followed":
        """Read the state of an index."""
        return cls(
            revision=read_queries.revision(connection),
            forgotten=index_meta.forgotten(connection),
            position=read_queries.vector_position(connection),
            counts=read_queries.vector_counts(connection),
            sample=read_queries.sample(connection, SAMPLE_SIZE),
        )


class IndexVectors:
    """Reads the vectors of one embedding space from an index file."""

    def __init__(self, file: SqliteFile, space: EmbeddingSpace) -> None:
        self.space = space
        self.followed: Followed | None = None
        """The state that the searched store holds; set by whoever keeps it up to date."""
        self.forgotten: int | None = None
        """The purge count at the last call of `note_forgotten`; None before."""
        self._file = file

    async def state(self) -> Followed:
        """Return the current state of the index."""
        return await self._file.read(Followed.of)

    async def key(self) -> str:
        """Return the key of the file last made from this index; no other file has the same.

        The key changes with the embedding space, and after every purge of forgotten lines.
        """
        await self.note_forgotten()
        name = await self._file.read(index_meta.value, index_meta.VECTOR_FILE)
        return self._key(name or "")

    def new_key(self) -> str:
        """Generate a key for a new file."""
        return self._key(uuid4().hex)

    def _key(self, name: str) -> str:
        return f"{name}-{self.space.provider_key}-{self.forgotten}"

    async def note_forgotten(self) -> None:
        """Record the current purge count: vectors read from now on contain nothing that was purged."""
        self.forgotten = await self._file.read(index_meta.forgotten)

    async def is_current(self) -> bool:
        """Return whether the index is still in the state that the store has caught up with."""
        return self.followed is not None and self.followed.revision == await self._file.read(
            read_queries.revision
        )

    async def changes(self, since: int) -> tuple[VectorChanges | None, Followed]:
        """Return the changes since a position, None if the log does not reach back, and the current state."""
        return await self._file.read(
            lambda connection: (read_queries.vector_changes(connection, since), Followed.of(connection))
        )

    async def live_ids(self) -> tuple[Sequence[int], Followed]:
        """Return the ids of all vectors in use by a passage, and the state of the index at that moment."""
        return await self._file.read(
            lambda connection: (read_queries.live_embedding_ids(connection), Followed.of(connection))
        )

    async def all(self) -> AsyncIterator[tuple[list[int], bytes]]:
        """Yield the ids and float32 values of all vectors in use, a batch at a time."""
        last = 0
        while True:
            ids, blobs = await self._file.read(
                read_queries.vectors_after, last, VECTORS_PER_STATEMENT, self.space
            )
            if not ids:
                return
            yield ids, b"".join(blobs)
            last = ids[-1]

    async def rows(self, ids: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """Return the ids and float32 values of those vectors among `ids` that belong to the space."""
        return await self._file.read(
            lambda connection: read_queries.vectors_in_space(connection, ids, self.space)
        )

    async def publish(self, made: Path, place: Path, key: str) -> None:
        """Move a new vector file to its place, unless lines were purged since `key` was requested.

        A purge removes such files in a transaction of its own, so it cannot miss this one. If the index
        cannot be written, the file stays where it is. The index stores the name in the key: an older copy of
        the index that takes its place has another name, though its log may reach the same positions by other
        changes.
        """

        def move(connection: Connection) -> None:
            if index_meta.forgotten(connection) == self.forgotten:
                with suppress(OSError):  # another process has removed it
                    made.replace(place)
                    index_meta.set_value(connection, index_meta.VECTOR_FILE, key.partition("-")[0])
                int8_file.remove_unfinished(place)

        from composable_memory_adapters.vectors import int8_file

        with suppress(IndexProblem):
            await self._file.write(move)


@runtime_checkable
class SupportsPosition(Protocol):
    """A vector store that outlives the process, and knows which changes of the index it has followed."""

    @property
    def position(self) -> int | None:
        """The store's position in the index's log; None if unknown."""
        ...

    async def open(self) -> None:
        """Read what is stored; must be called before anything else."""
        ...

    async def fill(
        self, batches: Callable[[], AsyncIterator[tuple[Sequence[int], bytes]]], position: int
    ) -> None:
        """Replace the contents by these vectors, which come in ascending order of id."""
        ...

    async def settle(self, position: int) -> None:
        """Record that all changes up to a position have been applied."""
        ...


class VectorFollower:
    """Keeps a vector store in step with the index. What a cancelled call did remains."""

    def __init__(self, vectors: IndexVectors, store: VectorAdapter) -> None:
        self._vectors = vectors
        self._store = store
        self._handed: set[int] = set()
        self._working = asyncio.Lock()

    async def begin(self) -> None:
        """Hand over all vectors once; concurrent calls share the work, and a cancelled one is resumed."""
        if self._vectors.followed is None:
            async with self._working:
                if self._vectors.followed is None:
                    await self._follow(
                        self._store.position if isinstance(self._store, SupportsPosition) else None
                    )

    async def catch_up(self) -> bool:
        """Apply changes of the index; return False at once if another call is doing so."""
        if self._working.locked():
            return False
        async with self._working:
            before = self._vectors.followed
            await self._follow(before.position if before else None)
        return True

    async def _follow(self, since: int | None) -> None:
        changes, followed = await self._vectors.changes(since or 0)
        if since is not None and changes is not None:
            await self._hand_over(new=changes.live, gone=changes.gone)
            if isinstance(self._store, SupportsPosition):
                await self._store.settle(followed.position)
        elif isinstance(self._store, SupportsPosition):
            await self._store.fill(self._vectors.all, followed.position)
        else:
            followed = await self._compare_all()
        self._vectors.followed = followed

    async def _compare_all(self) -> Followed:
        live, followed = await self._vectors.live_ids()
        known = await self._known()
        new = [id_ for id_ in live if id_ not in known]
        await self._hand_over(new=new, gone=sorted(known.difference(live)))
        return followed

    async def _hand_over(self, *, new: Sequence[int], gone: Sequence[int]) -> None:
        if gone and isinstance(self._store, SupportsDelete):
            await self._store.delete([str(id_) for id_ in gone])
        self._handed.difference_update(gone)
        for ids in _in_batches(new, VECTORS_PER_STATEMENT):
            await self._put(*await self._vectors.rows(ids))

    async def _known(self) -> set[int]:
        if isinstance(self._store, SupportsIds):
            return {int(id_) for id_ in await self._store.ids() if id_.isdecimal()}
        return set(self._handed)

    async def _put(self, ids: Sequence[int], blobs: Sequence[bytes]) -> None:
        names = [str(id_) for id_ in ids]
        if isinstance(self._store, SupportsPackedVectors):
            await self._store.upsert_packed(names, b"".join(blobs))
        elif ids:
            form = f"<{self._vectors.space.dims}f"
            values = (struct.unpack(form, blob) for blob in blobs)
            await self._store.upsert(
                [VectorRecord(id=name, values=one) for name, one in zip(names, values, strict=True)]
            )
        if not isinstance(self._store, SupportsIds):
            self._handed.update(ids)


def _in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
