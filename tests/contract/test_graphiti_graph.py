"""The graph of a group keeps the contract of graphs, with vectors and without."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from composable_memory.interfaces import EmbedderAdapter, GraphAdapter, SupportsDelete, SupportsHealth
from composable_memory.testing import FIXED_NOW, GraphContract, HashEmbedder, Opener
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")


class TestGraphitiGraph(GraphContract):
    supports = frozenset({SupportsDelete, SupportsHealth})

    def embedder(self) -> EmbedderAdapter | None:
        return HashEmbedder()

    @pytest.fixture
    def open_graph(self, tmp_path: Path) -> Opener[GraphAdapter]:
        @asynccontextmanager
        async def open_graph() -> AsyncIterator[GraphAdapter]:
            async with open_database(GraphitiSettings(), data_dir=tmp_path) as database:
                yield GraphitiGraph(database, "g1", embedder=self.embedder(), clock=lambda: FIXED_NOW)

        return open_graph


class TestGraphitiGraphWithoutVectors(TestGraphitiGraph):
    def embedder(self) -> EmbedderAdapter | None:
        return None
