"""Both stores of vectors keep the contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from composable_memory.interfaces import SupportsDelete, SupportsHealth, VectorAdapter
from composable_memory.testing import Opener, VectorContract
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_adapters.vectors.brute_force import BruteForceVectors
from composable_memory_adapters.vectors.sqlite_vec import SqliteVecVectors

DIMENSIONS = VectorContract.dimensions


class TestBruteForce(VectorContract):
    supports = frozenset({SupportsDelete, SupportsHealth})

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(BruteForceVectors(DIMENSIONS))


class TestBruteForceOfUnknownLength(TestBruteForce):
    """The first record decides on the length."""

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        return lambda: nullcontext(BruteForceVectors())


class TestSqliteVec(VectorContract):
    supports = frozenset({SupportsDelete, SupportsHealth})

    @pytest.fixture
    def open_vectors(self, tmp_path: Path) -> Opener[VectorAdapter]:
        @asynccontextmanager
        async def open_store() -> AsyncIterator[VectorAdapter]:
            async with SqliteFile.open(tmp_path / "vectors.sqlite") as file:
                yield SqliteVecVectors(file, dims=DIMENSIONS)

        return open_store
