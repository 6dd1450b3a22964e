"""A vector store in a memory-mapped file of int8 codes; their best candidates are compared again in full.

New vectors stay in memory, where they are compared exactly, until there are enough for a new file. The file
records its position in a log of changes: whoever opens it reads only what has changed since.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike

from composable_memory.errors import BackendUnavailable, DimensionMismatch
from composable_memory.vector_values import Health, VectorMatch, VectorQuery, VectorQueryResult, VectorRecord
from composable_memory_adapters.vectors import int8_file
from composable_memory_adapters.vectors.in_memory import (
    Ids,
    InMemoryVectors,
    Matrix,
    Neighbour,
    cosines,
    direction,
    from_bytes,
    nearest,
    number_of,
    places_of,
)
from composable_memory_adapters.vectors.int8_file import CodeFileWriter, Codes, Label, Places, no_codes
from composable_memory_ops_logs.quick_dataclass import dataclass

RECENT_BYTES = 8 * 2**20
"""How many bytes of vectors are kept in memory before a new file is written."""

GONE_SHARE = 8
"""A new file is also written once one in this many of its vectors is gone."""

FEWEST_MORE = 24
"""At least this many more candidates than wanted are compared in full, or as many again if that is more."""

ROWS_AT_ONCE = 8192

Batches = Callable[[], AsyncIterator[tuple[Sequence[int], bytes]]]


class StoredVectors(Protocol):
    """The source of the vectors, which are stored elsewhere under numeric ids."""

    def new_key(self) -> str:
        """Generate the key for a new file."""
        ...

    async def publish(self, made: Path, place: Path, key: str) -> None:
        """Move a file to its place, unless vectors in it were purged since it was begun.

        From then on, only a file with this key belongs to these vectors.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """The codes in the file, and the positions of those no longer in use."""

    codes: Codes
    gone: Places

    def without(self, ids: Sequence[int] | Ids) -> "Filed":
        """Return a copy without some ids."""
        places = places_of(self.codes.ids, ids)
        if not len(places):
            return self
        gone = np.sort(np.concatenate([self.gone, places]))
        is_first = np.concatenate([[True], gone[1:] != gone[:-1]])
        return Filed(codes=self.codes, gone=gone[is_first])

    def search(self, query: Sequence[float] | Matrix, k: int) -> list[Neighbour]:
        """Return the `k` nearest: select more than enough by code, then compare these in full."""
        unit = direction(query)
        if unit is None or k < 1 or not len(self.codes.ids):
            return []
        found = self.codes.taken(self.codes.nearest(unit, max(2 * k, k + FEWEST_MORE), self.gone))
        return nearest(found.ids, np.clip(np.vecdot(found.vectors(), unit), -1.0, 1.0), k)


class MappedVectors:
    """Keeps records of `dims` numbers in the file at `path`, and newer ones in memory.

    A file that is damaged or has another `key` is ignored. Only vectors without metadata whose ids are plain
    numbers go into the file: `stored` has them too, and outlives this store.
    """

    engine = "mapped"

    def __init__(
        self, path: Path, *, key: str, dims: int, stored: StoredVectors, recent_bytes: int = RECENT_BYTES
    ) -> None:
        self._path = path
        self._key = key
        self._dims = dims
        self._stored = stored
        self._most_recent = recent_bytes // (4 * dims)
        self._recent = InMemoryVectors(dims)
        self._filed = Filed(codes=no_codes(dims), gone=np.empty(0, dtype=np.intp))
        self._changing = asyncio.Lock()
        self._problem: str | None = None
        self.position: int | None = None
        """The position in the log up to which the store is current; None if unknown."""

    async def open(self) -> None:
        """Map the file if there is one."""
        found = await asyncio.to_thread(int8_file.read, self._path, self._key, self._dims)
        if found is not None:
            codes, self.position = found
            self._filed = Filed(codes=codes, gone=np.empty(0, dtype=np.intp))

    async def fill(self, batches: Batches, position: int) -> None:
        """Replace the contents by these vectors, of unit length or zero and ascending ids, in a new file.

        Raises:
            BackendUnavailable: the file cannot be written.
        """
        async with self._changing:
            made, label = self._beside(), Label(key=self._stored.new_key(), position=position)
            try:
                writer = await asyncio.to_thread(CodeFileWriter, made, self._dims)
                try:
                    async for ids, numbers in batches():
                        await asyncio.to_thread(_append, writer, ids, from_bytes(numbers, self._dims))
                    codes = await asyncio.to_thread(writer.finish, label)
                finally:
                    await asyncio.to_thread(writer.close)
                await self._adopt(codes, made, label)
            except OSError as error:
                problem = f"{self._path} cannot be written ({error})"
                fix = "free some space, or set store.vector.engine to exact"
                raise BackendUnavailable(self.engine, problem, fix=fix, operation="store vectors") from error
            finally:
                await asyncio.to_thread(made.unlink, missing_ok=True)

    async def settle(self, position: int) -> None:
        """Record that all changes up to a position were applied; write a new file if there are many."""
        async with self._changing:
            self.position = position
            filed = self._filed
            are_few_gone = GONE_SHARE * len(filed.gone) <= len(filed.codes.ids)
            if len(self._recent) <= self._most_recent and are_few_gone:
                return
            ids, matrix = self._recent.plain()
            made, label = self._beside(), Label(key=self._stored.new_key(), position=position)
            try:
                codes = await asyncio.to_thread(self._write, made, filed, ids, matrix, label)
                await self._adopt(codes, made, label)
            except OSError as error:
                self._problem = f"{self._path} cannot be written ({error})"  # the new vectors stay in memory
            finally:
                await asyncio.to_thread(made.unlink, missing_ok=True)

    async def ids(self) -> Sequence[str]:
        """Return the ids of all records."""
        filed = np.delete(self._filed.codes.ids, self._filed.gone).tolist()
        return [*map(str, filed), *await self._recent.ids()]

    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        """Store `records`, replacing those with the same id.

        Raises:
            DimensionMismatch: a record's length differs from that of the stored ones; nothing is stored.
        """
        async with self._changing:
            await self._recent.upsert(records)
            self._filed = self._filed.without(_numbers(record.id for record in records))

    async def upsert_packed(self, ids: Sequence[str], numbers: bytes) -> None:
        """Store vectors without metadata, of unit length or zero, packed as float32.

        Raises:
            DimensionMismatch: the amount of numbers does not fit the ids; nothing is stored.
        """
        async with self._changing:
            await self._recent.upsert_packed(ids, numbers)
            self._filed = self._filed.without(_numbers(ids))

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are ignored."""
        async with self._changing:
            self._filed = self._filed.without(_numbers(ids))
            await self._recent.delete(ids)

    async def query(self, query: VectorQuery) -> VectorQueryResult:
        """Return the `top_k` nearest by cosine, best first, ties in the order they were stored.

        Raises:
            DimensionMismatch: the query's length differs from that of the stored vectors.
        """
        if len(query.vector) != self._dims:
            raise DimensionMismatch(self.engine, "vectors", expected=self._dims, got=len(query.vector))
        while True:
            found: dict[str, VectorMatch] = {}
            filed = self._filed
            if not query.filter:
                for id_, cosine in await asyncio.to_thread(filed.search, query.vector, query.top_k):
                    found[str(id_)] = VectorMatch(id=str(id_), score=cosine)
            found |= {match.id: match for match in (await self._recent.query(query)).matches}
            if self._filed.codes is filed.codes:  # otherwise a new file has absorbed the recent ones
                break
        best = sorted(found.values(), key=lambda match: -match.score)[: max(0, query.top_k)]
        return VectorQueryResult(matches=tuple(best))

    def cosines(self, query: ArrayLike, ids: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of `ids` that is present; may be called from any thread."""
        filed = self._filed
        places = places_of(filed.codes.ids, ids)
        found = filed.codes.taken(places[~np.isin(places, filed.gone)])
        numbers = zip(found.ids.tolist(), cosines(found.vectors(), query), strict=False)
        return dict(numbers) | self._recent.cosines(query, ids)

    async def health(self) -> Health:
        """Report whether the last file was written successfully."""
        return Health(ok=self._problem is None, message=self._problem)

    def _beside(self) -> Path:
        return self._path.with_name(f"{self._path.name}.{uuid4().hex}")

    def _write(self, made: Path, filed: Filed, ids: Ids, matrix: Matrix, label: Label) -> Codes:
        with closing(CodeFileWriter(made, self._dims)) as writer:
            for codes in _merged(filed, Codes.of(ids, matrix)):
                writer.add(codes)
            return writer.finish(label)

    async def _adopt(self, codes: Codes, made: Path, label: Label) -> None:
        """Replace the current file, and the vectors in memory that the new one contains.

        The codes are already mapped, so they remain usable if another process removes or replaces the file,
        or if it could not be moved.
        """
        await self._stored.publish(made, self._path, label.key)
        self._filed = Filed(codes=codes, gone=np.empty(0, dtype=np.intp))
        self.position, self._problem = label.position, None
        recent, _ = self._recent.plain()
        await self._recent.delete([*map(str, recent.tolist())])


def _append(writer: CodeFileWriter, ids: Sequence[int], matrix: Matrix) -> None:
    writer.add(Codes.of(ids, matrix))


def _merged(filed: Filed, new: Codes) -> Iterator[Codes]:
    """Yield the codes of a file and new ones, merged in order of id, a batch at a time."""
    kept = np.delete(np.arange(len(filed.codes.ids)), filed.gone)
    all_ids = np.concatenate([filed.codes.ids[kept], new.ids])
    order = np.argsort(all_ids)
    for start in range(0, len(order), ROWS_AT_ONCE):
        rows = order[start : start + ROWS_AT_ONCE]
        is_old = rows < len(kept)
        yield filed.codes.taken(kept[rows[is_old]]).and_others(new.taken(rows[~is_old] - len(kept)))


def _numbers(ids: Iterator[str] | Sequence[str]) -> list[int]:
    return [number for id_ in ids if (number := number_of(id_)) is not None]
