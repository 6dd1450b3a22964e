"""Every engine that searches vectors keeps the contract of a store."""

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


class TestSignBits(TestInMemory):
    """What is found by signs is rescored with the vectors themselves."""

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(InMemoryVectors(DIMENSIONS, exact_limit=0))


class TestExactThenSignBits(TestInMemory):
    """The vectors become signs while they are being stored."""

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(InMemoryVectors(exact_limit=3))


class TestSqliteVec(VectorContract):
    supports = frozenset({SupportsDelete, SupportsHealth, SupportsIds, SupportsPackedVectors})

    @pytest.fixture
    def open_vectors(self, tmp_path: Path) -> Opener[VectorAdapter]:
        @asynccontextmanager
        async def open_store() -> AsyncIterator[VectorAdapter]:
            async with SqliteFile.open(tmp_path / "vectors.sqlite") as file:
                yield SqliteVecVectors(file, dims=DIMENSIONS)

        return open_store
