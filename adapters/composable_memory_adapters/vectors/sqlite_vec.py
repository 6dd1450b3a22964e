"""The only module that uses sqlite-vec: loads the extension, and provides KNN tables and a vector store.

A KNN statement is never joined with another table: the planner may reorder the join and search once for each
of the other table's rows. Callers look up what belongs to the ids in a separate statement.
"""

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import apsw
import sqlite_vec

from composable_memory.content import (
    Health,
    VectorMatch,
    VectorQuery,
    VectorQueryResult,
    VectorRecord,
)
from composable_memory.errors import (
    BackendUnavailable,
    ComposableMemoryError,
    DimensionMismatch,
    IndexProblem,
)
from composable_memory.types import JsonValue
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.vectors.in_memory import FIRST_NAMED_ROW, Neighbour, number_of, satisfies

MAX_K = 4096
"""The most neighbours that one KNN statement returns."""

ROWS_PER_TRANSACTION = 2000
"""How many vectors to write per transaction, so that a sync never waits long for the lock."""

TABLE = "chunks_vec"
"""The table of vectors; those with names or metadata have a record in `RECORDS`."""

RECORDS = f"{TABLE}_records"


def extension_path() -> str:
    """Return the extension's path, without the platform's suffix."""
    path: str = sqlite_vec.loadable_path()
    return path


def load(connection: Connection) -> None:
    """Load sqlite-vec into `connection`; idempotent.

    Raises:
        BackendUnavailable: the extension cannot be loaded here.
    """
    if _is_loaded(connection):
        return
    try:
        connection.enable_load_extension(True)
        connection.load_extension(extension_path())
    except apsw.ExtensionLoadingError as error:
        raise BackendUnavailable(
            "sqlite-vec",
            f"the extension cannot be loaded ({error})",
            fix="`pip install --force-reinstall sqlite-vec`, or set store.vector.engine to auto",
            operation="load",
        ) from error
    finally:
        connection.enable_load_extension(False)


def create_table(connection: Connection, table: str, dims: int) -> None:
    """Create `table` for vectors of `dims` numbers, replacing one with another length.

    The cosine metric is explicit: vec0's default is the Euclidean distance.
    """
    present = stored_dims(connection, table)
    if present is not None and present != dims:
        connection.execute(f"DROP TABLE {table}")
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING vec0("
        f"id INTEGER PRIMARY KEY, embedding float[{dims:d}] distance_metric=cosine)"
    )


def stored_dims(connection: Connection, table: str) -> int | None:
    """Return the length of the vectors in `table`; None if there is no such table."""
    row = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    declared = row and re.search(r"float\[(\d+)\]", row[0])
    return int(declared[1]) if declared else None


def stored_ids(connection: Connection, table: str) -> set[int]:
    """Return the ids in `table`."""
    return {row[0] for row in connection.execute(f"SELECT id FROM {table}")}  # noqa: S608 - a constant


def insert(connection: Connection, table: str, rows: Iterable[tuple[int, bytes]]) -> None:
    """Store float32 blobs under ids that are not in `table` yet."""
    connection.executemany(f"INSERT INTO {table}(id, embedding) VALUES (?, ?)", rows)  # noqa: S608


def delete(connection: Connection, table: str, ids: Iterable[int]) -> None:
    """Remove `ids` from `table`; unknown ones are ignored."""
    connection.executemany(f"DELETE FROM {table} WHERE id = ?", ((id_,) for id_ in ids))  # noqa: S608


def nearest(
    connection: Connection, table: str, query: bytes, k: int, *, among: Sequence[int] | None = None
) -> list[Neighbour]:
    """Return the `k` nearest to the float32 blob `query`, best first, ties by id.

    `among` restricts the search to these ids. Vectors without direction are never returned.
    """
    within = "" if among is None else "AND id IN (SELECT value FROM json_each(?))"
    ids = () if among is None else (json.dumps(list(among)),)
    if k <= MAX_K:
        sql = f"SELECT id, distance FROM {table} WHERE embedding MATCH ? AND k = ? {within}"  # noqa: S608
        rows = list(connection.execute(sql, (query, k, *ids)))
    else:
        sql = (
            f"SELECT id, vec_distance_cosine(embedding, ?) AS away FROM {table} "  # noqa: S608
            f"WHERE away IS NOT NULL {within} ORDER BY away, id LIMIT ?"
        )
        rows = list(connection.execute(sql, (query, *ids, k)))
    found = [(id_, min(1.0, 1.0 - distance)) for id_, distance in rows if distance is not None]
    return sorted(found, key=lambda neighbour: (-neighbour[1], neighbour[0]))


class SqliteVecVectors:
    """Keeps records of `dims` numbers in two tables of an index file.

    They are created on first use, and recreated if they hold vectors of another length: the index has them
    all. An id that is a plain number is itself the row of its vector, and needs no record unless it has
    metadata.
    """

    engine = "sqlite-vec"

    def __init__(self, file: SqliteFile, *, dims: int) -> None:
        self._file = file
        self._dims = dims
        self._has_tables = False
        self._numbers_are_rows = True

    async def ids(self) -> Sequence[str]:
        """Return the ids of all records."""
        await self._prepare()
        return await self._file.read(self._all_ids)

    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        """Store `records`, replacing those with the same id.

        Raises:
            DimensionMismatch: a record's length differs from the table's; nothing is stored.
        """
        latest = {record.id: record for record in records}
        blobs = [self._blob(record.values) for record in latest.values()]
        await self._prepare()
        await self._file.write(partial(self._store, records=list(latest.values()), blobs=blobs))

    async def upsert_packed(self, ids: Sequence[str], numbers: bytes) -> None:
        """Store vectors without metadata, packed as float32, in several transactions.

        Raises:
            DimensionMismatch: the amount of numbers does not fit the ids; nothing is stored.
        """
        size = 4 * self._dims
        if len(numbers) != size * len(ids):
            raise self._mismatch(len(numbers) // (4 * max(1, len(ids))))
        await self._prepare()
        for start in range(0, len(ids), ROWS_PER_TRANSACTION):
            end = min(len(ids), start + ROWS_PER_TRANSACTION)
            records = [VectorRecord(id=id_, values=()) for id_ in ids[start:end]]
            blobs = [numbers[place * size : (place + 1) * size] for place in range(start, end)]
            await self._file.write(partial(self._store, records=records, blobs=blobs))

    async def query(self, query: VectorQuery) -> VectorQueryResult:
        """Return the `top_k` nearest by cosine, best first, ties in the order they were stored.

        Raises:
            DimensionMismatch: the query's length differs from the table's.
        """
        blob = self._blob(query.vector)
        if query.top_k < 1 or not any(query.vector):
            return VectorQueryResult()
        await self._prepare()
        return await self._file.read(partial(self._matches, query=query, blob=blob))

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are ignored."""
        await self._prepare()
        for start in range(0, len(ids), ROWS_PER_TRANSACTION):
            await self._file.write(partial(self._remove, ids=ids[start : start + ROWS_PER_TRANSACTION]))

    async def health(self) -> Health:
        """Report whether the extension can be loaded, and the file written and read."""
        try:
            await self._prepare()
            await self._file.read(load)
        except ComposableMemoryError as error:
            return Health(ok=False, message=str(error))
        return Health(ok=True)

    async def _prepare(self) -> None:
        if not self._has_tables:
            try:
                are_there = await self._file.read(self._are_tables_there)
            except IndexProblem:  # usually the file does not exist yet; otherwise writing raises the reason
                are_there = False
            if not are_there:
                await self._file.write(self._make_tables)
            self._numbers_are_rows = await self._file.read(self._is_numbered)
            self._has_tables = True

    def _all_ids(self, connection: Connection) -> list[str]:
        load(connection)
        names = dict(connection.execute(f"SELECT id, name FROM {RECORDS}"))  # noqa: S608 - a constant
        return [names.get(row) or str(row) for row in stored_ids(connection, TABLE)]

    def _store(
        self, connection: Connection, *, records: Sequence[VectorRecord], blobs: Sequence[bytes]
    ) -> None:
        load(connection)
        rows = [self._row(connection, record) for record in records]
        delete(connection, TABLE, rows)
        insert(connection, TABLE, zip(rows, blobs, strict=True))

    def _row(self, connection: Connection, record: VectorRecord) -> int:
        """Return the row of a record's vector; store its name and metadata unless the id says it all."""
        number = number_of(record.id) if self._numbers_are_rows else None
        if number is not None and not record.metadata:
            connection.execute(f"DELETE FROM {RECORDS} WHERE id = ?", (number,))  # noqa: S608 - a constant
            return number
        sql = (
            f"INSERT INTO {RECORDS}(id, name, metadata) VALUES (?, ?, ?) "  # noqa: S608 - a constant
            "ON CONFLICT(name) DO UPDATE SET metadata = excluded.metadata RETURNING id"
        )
        row: int = connection.execute(sql, (number, record.id, json.dumps(dict(record.metadata)))).get
        return row

    def _matches(self, connection: Connection, *, query: VectorQuery, blob: bytes) -> VectorQueryResult:
        load(connection)
        among = self._ids_within(connection, query.filter) if query.filter else None
        found = nearest(connection, TABLE, blob, query.top_k, among=among)
        sql = (
            f"SELECT id, name, metadata FROM {RECORDS} "  # noqa: S608 - a constant
            "WHERE id IN (SELECT value FROM json_each(?))"
        )
        ids = json.dumps([id_ for id_, _ in found])
        stored = {id_: (name, json.loads(text)) for id_, name, text in connection.execute(sql, (ids,))}
        matches = [(cosine, *stored.get(row, (str(row), {}))) for row, cosine in found]
        return VectorQueryResult(
            matches=tuple(
                VectorMatch(id=name, score=cosine, metadata=metadata) for cosine, name, metadata in matches
            )
        )

    def _ids_within(self, connection: Connection, wanted: Mapping[str, JsonValue]) -> list[int]:
        rows = connection.execute(f"SELECT id, metadata FROM {RECORDS}")  # noqa: S608 - a constant
        return [id_ for id_, metadata in rows if satisfies(json.loads(metadata), wanted)]

    def _remove(self, connection: Connection, *, ids: Sequence[str]) -> None:
        load(connection)
        sql = (
            f"DELETE FROM {RECORDS} "  # noqa: S608 - a constant
            "WHERE name IN (SELECT value FROM json_each(?)) RETURNING id"
        )
        gone = [id_ for (id_,) in connection.execute(sql, (json.dumps(list(ids)),))]
        if self._numbers_are_rows:
            gone += [number for id_ in ids if (number := number_of(id_)) is not None]
        delete(connection, TABLE, gone)

    def _are_tables_there(self, connection: Connection) -> bool:
        load(connection)
        has_records = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)"
        is_there: bool = connection.execute(has_records, (RECORDS,)).get
        return is_there and stored_dims(connection, TABLE) == self._dims

    def _make_tables(self, connection: Connection) -> None:
        load(connection)
        create_table(connection, TABLE, self._dims)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {RECORDS} ("
            "id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, metadata TEXT NOT NULL)"
        )
        begin = (
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 "
            "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)"
        )
        connection.execute(begin, (RECORDS, FIRST_NAMED_ROW - 1))

    def _is_numbered(self, connection: Connection) -> bool:
        """Return whether no name has a row that could be a numeric id; in older tables some may."""
        last = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        return int(connection.execute(last, (RECORDS,)).get or 0) >= FIRST_NAMED_ROW - 1

    def _blob(self, vector: Sequence[float]) -> bytes:
        if len(vector) != self._dims:
            raise self._mismatch(len(vector))
        return struct.pack(f"<{self._dims}f", *vector)

    def _mismatch(self, got: int) -> DimensionMismatch:
        return DimensionMismatch("sqlite-vec", TABLE, expected=self._dims, got=got)


def _is_loaded(connection: Connection) -> bool:
    try:
        connection.execute("SELECT vec_version()")
    except apsw.SQLError:
        return False
    return True
