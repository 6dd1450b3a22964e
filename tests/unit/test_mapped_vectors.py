"""The store of mapped vectors beside other processes, and while it makes a new file."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from composable_memory.content import VectorQuery
from composable_memory_adapters.vectors import int8_file
from composable_memory_adapters.vectors.mapped import MappedVectors

DIMS = 8
UNITS = np.eye(DIMS, dtype=np.float32)


class Elsewhere:
    """Publishes files, as an index does, also where another process has removed them."""

    def new_key(self) -> str:
        return "index"

    async def publish(self, made: Path, place: Path, key: str) -> None:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(made.replace, place)


class HeldBack(list[float]):
    """A vector that nobody can read before it is let go."""

    def __init__(self, numbers: Sequence[float]) -> None:
        super().__init__(numbers)
        self.is_let_go = Event()

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        self.is_let_go.wait(10)
        return np.array(list(self), dtype)


async def all_but_the_last() -> AsyncIterator[tuple[Sequence[int], bytes]]:
    yield range(DIMS - 1), UNITS[:-1].tobytes()


def store_at(folder: Path, elsewhere: Elsewhere) -> MappedVectors:
    return MappedVectors(folder / "vectors", key="index", dims=DIMS, stored=elsewhere, recent_bytes=0)


async def nearest(store: MappedVectors, number: int) -> str:
    found = await store.query(VectorQuery(vector=UNITS[number].tolist(), top_k=1))
    return found.matches[0].id


async def test_a_file_that_another_process_removes_while_it_is_written_is_of_use(tmp_path: Path) -> None:
    async def while_another_publishes() -> AsyncIterator[tuple[Sequence[int], bytes]]:
        async for batch in all_but_the_last():
            yield batch
        await asyncio.to_thread(int8_file.remove, tmp_path / "vectors")

    store = store_at(tmp_path, Elsewhere())

    await store.fill(while_another_publishes, 1)

    assert await nearest(store, 3) == "3"
    assert (await store.health()).ok


async def test_a_query_beside_a_new_file_misses_none_of_the_vectors_that_it_takes_up(tmp_path: Path) -> None:
    store = store_at(tmp_path, Elsewhere())
    await store.fill(all_but_the_last, 1)
    last = DIMS - 1
    await store.upsert_packed([str(last)], UNITS[last].tobytes())
    vector = HeldBack(UNITS[last].tolist())

    asked = asyncio.create_task(store.query(VectorQuery(vector=vector, top_k=1)))
    await asyncio.sleep(0)
    await store.settle(2)
    vector.is_let_go.set()

    assert [match.id for match in (await asked).matches] == [str(last)]
    reopened = store_at(tmp_path, Elsewhere())
    await reopened.open()
    assert await reopened.ids() == [*map(str, range(DIMS))]


@pytest.mark.parametrize(
    "left", [0, 300, int8_file.HEADER_BYTES - 1, int8_file.HEADER_BYTES, int8_file.HEADER_BYTES + 8]
)
async def test_a_file_that_was_cut_is_not_read(tmp_path: Path, left: int) -> None:
    store = store_at(tmp_path, Elsewhere())
    await store.fill(all_but_the_last, 1)
    place = tmp_path / "vectors"
    content = place.read_bytes()
    place.write_bytes(content[:left])

    reopened = store_at(tmp_path, Elsewhere())
    await reopened.open()

    assert len(content) > left
    assert reopened.position is None
