"""sqlite-vec on real files: loading, KNN tables, and the store of vectors made of them."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from composable_memory.content import VectorQuery, VectorRecord
from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.vectors import sqlite_vec
from composable_memory_adapters.vectors.sqlite_vec import SqliteVecVectors

TABLE = "chunks_vec"


def blob(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with SqliteFile.open(tmp_path / "vectors.sqlite") as file:
        yield file


@pytest.fixture
async def filled(file: SqliteFile) -> SqliteFile:
    def fill(connection: Connection) -> None:
        sqlite_vec.load(connection)
        sqlite_vec.create_table(connection, TABLE, 2)
        rows = [(1, blob(1, 0)), (2, blob(0, 1)), (3, blob(5, 0)), (4, blob(0, 0)), (9, blob(-1, 0))]
        sqlite_vec.insert(connection, TABLE, rows)

    await file.write(fill)
    return file


async def nearest(
    file: SqliteFile, *query: float, k: int = 10, among: list[int] | None = None
) -> list[tuple[int, float]]:
    def search(connection: Connection) -> list[tuple[int, float]]:
        sqlite_vec.load(connection)
        return sqlite_vec.nearest(connection, TABLE, blob(*query), k, among=among)

    return await file.read(search)


async def test_the_extension_loads_more_than_once_on_readers_and_the_writer(file: SqliteFile) -> None:
    def load_twice(connection: Connection) -> str:
        sqlite_vec.load(connection)
        sqlite_vec.load(connection)
        return str(connection.execute("SELECT vec_version()").get)

    assert await file.write(load_twice) == await file.read(load_twice)


async def test_an_extension_that_cannot_be_loaded_is_named_with_what_to_do(
    file: SqliteFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sqlite_vec.loadable_path", lambda: str(tmp_path / "nothing"))

    with pytest.raises(BackendUnavailable, match=r"cannot be loaded .*nothing.*pip install"):
        await file.write(sqlite_vec.load)


async def test_loading_leaves_no_door_open_for_other_extensions(file: SqliteFile) -> None:
    def load_another_by_sql(connection: Connection) -> None:
        sqlite_vec.load(connection)
        connection.execute("SELECT load_extension('anything')")

    with pytest.raises(Exception, match="not authorized"):
        await file.write(load_another_by_sql)


async def test_neighbours_come_by_cosine_and_equal_ones_by_id(filled: SqliteFile) -> None:
    assert await nearest(filled, 2, 0) == [(1, 1.0), (3, 1.0), (2, 0.0), (9, -1.0)]


async def test_a_search_can_be_kept_to_some_ids(filled: SqliteFile) -> None:
    assert await nearest(filled, 1, 0, among=[9, 2, 77]) == [(2, 0.0), (9, -1.0)]
    assert await nearest(filled, 1, 0, among=[]) == []


async def test_more_neighbours_than_one_knn_statement_returns(filled: SqliteFile) -> None:
    many = sqlite_vec.MAX_K + 1

    assert await nearest(filled, 2, 0, k=many) == await nearest(filled, 2, 0)
    assert await nearest(filled, 1, 0, k=many, among=[9, 2]) == [(2, 0.0), (9, -1.0)]


async def test_rows_can_be_listed_and_removed(filled: SqliteFile) -> None:
    def remove(connection: Connection) -> set[int]:
        sqlite_vec.delete(connection, TABLE, [1, 77])
        return sqlite_vec.stored_ids(connection, TABLE)

    assert await filled.write(remove) == {2, 3, 4, 9}


async def test_a_table_for_another_length_takes_the_place_of_the_old_one(filled: SqliteFile) -> None:
    def recreate(connection: Connection) -> tuple[int | None, set[int]]:
        sqlite_vec.create_table(connection, TABLE, 3)
        return sqlite_vec.stored_dims(connection, TABLE), sqlite_vec.stored_ids(connection, TABLE)

    assert await filled.write(recreate) == (3, set())


async def test_what_was_stored_is_found_after_opening_the_file_again(tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path / "v.sqlite") as file:
        await SqliteVecVectors(file, dims=2).upsert([VectorRecord(id="a", values=[1, 0], metadata={"n": 1})])

    async with SqliteFile.open(tmp_path / "v.sqlite") as file:
        answer = await SqliteVecVectors(file, dims=2).query(VectorQuery(vector=[1, 0], top_k=1))

    assert [(match.id, match.score, dict(match.metadata)) for match in answer.matches] == [
        ("a", 1.0, {"n": 1})
    ]


async def test_a_store_of_another_length_is_made_anew(file: SqliteFile) -> None:
    await SqliteVecVectors(file, dims=2).upsert([VectorRecord(id="a", values=[1, 0])])

    await SqliteVecVectors(file, dims=3).upsert([VectorRecord(id="b", values=[1, 0, 0])])

    answer = await SqliteVecVectors(file, dims=3).query(VectorQuery(vector=[1, 0, 0], top_k=5))
    assert [match.id for match in answer.matches] == ["b"]


async def test_health_says_what_is_wrong(
    file: SqliteFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sqlite_vec.loadable_path", lambda: str(tmp_path / "nothing"))

    health = await SqliteVecVectors(file, dims=2).health()

    assert not health.ok
    assert "cannot be loaded" in (health.message or "")
