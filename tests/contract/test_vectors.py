"""Every engine that searches vectors keeps the contract of a store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from composable_memory.interfaces import (
    SupportsDelete,
    SupportsHealth,
    SupportsIds,
    SupportsPackedVectors,
    VectorAdapter,
)
from composable_memory.testing import Opener, VectorContract
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from composable_memory_adapters.vectors.mapped import MappedVectors
from composable_memory_adapters.vectors.sqlite_vec import SqliteVecVectors

DIMENSIONS = VectorContract.dimensions


class TestInMemory(VectorContract):
    supports = frozenset({SupportsDelete, SupportsHealth, SupportsIds, SupportsPackedVectors})

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(InMemoryVectors(DIMENSIONS))


class TestInMemoryOfUnknownLength(TestInMemory):
    """The first record decides on the length."""

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(InMemoryVectors())


class Elsewhere:
    """Publishes the files of a mapped store, as an index does."""

    def new_key(self) -> str:
        return "contract"

    async def publish(self, made: Path, place: Path, key: str) -> None:
        await asyncio.to_thread(made.replace, place)


class TestMapped(TestInMemory):
    """Nothing is in the file yet."""

    @pytest.fixture
    def open_vectors(self, tmp_path: Path) -> Opener[VectorAdapter]:
        return lambda: nullcontext(
            MappedVectors(
                tmp_path / "vectors",
                key="contract",
                dims=DIMENSIONS,
                stored=Elsewhere(),
            )
        )


class TestSqliteVec(VectorContract):
    supports = frozenset({SupportsDelete, SupportsHealth, SupportsIds, SupportsPackedVectors})

    @pytest.fixture
    def open_vectors(self, tmp_path: Path) -> Opener[VectorAdapter]:
        @asynccontextmanager
        async def open_store() -> AsyncIterator[VectorAdapter]:
            async with SqliteFile.open(tmp_path / "vectors.sqlite") as file:
                yield SqliteVecVectors(file, dims=DIMENSIONS)

        return open_store
