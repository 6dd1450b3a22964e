"""Real foreign memories keep the contract: over MCP, and over HTTP."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from composable_memory.interfaces import BackendServices, BackendSpec, MemorySearchManager
from composable_memory.testing import SEED_NOTES, SEED_QUESTIONS, AnswerContract, BackendContract, Opener
from composable_memory_adapters.external.http import spec as http
from composable_memory_adapters.external.mcp import spec as mcp
from tests.integration.external import real_servers
from tests.integration.external.real_servers import Joining

WORDS_BETWEEN_BLANKS = tuple(one for one in SEED_QUESTIONS if one.query.isascii())
"""What a server can be asked to whom a run of Chinese characters is one word."""


class Joined(BackendContract, AnswerContract):
    """A server with the notes of the contracts, which is set up once."""

    capabilities = mcp.capabilities
    spec: ClassVar[BackendSpec] = mcp

    @pytest.fixture
    def open_backend(self, joining: Joining, services: BackendServices) -> Opener[MemorySearchManager]:
        section, environ = joining
        given: dict[str, Any] = {"env": {name: name for name in environ}} if environ else {}
        own = replace(services, backend_id="away", environ=environ)

        @asynccontextmanager
        async def opened() -> AsyncIterator[MemorySearchManager]:
            async with self.spec.open(self.spec.settings(**section, **given), own) as memory:
                yield memory

        return opened


@pytest.mark.needs("mcp-servers")
@pytest.mark.thorough
class TestReferenceServer(Joined):
    @pytest.fixture(scope="class")
    @classmethod
    def joining(cls, tmp_path_factory: pytest.TempPathFactory) -> Joining:
        return real_servers.reference_server(tmp_path_factory.mktemp("server"), SEED_NOTES)


@pytest.mark.needs("qmd")
@pytest.mark.thorough
class TestQmd(Joined):
    @pytest.fixture(scope="class")
    @classmethod
    def joining(cls, tmp_path_factory: pytest.TempPathFactory) -> Joining:
        return real_servers.qmd(tmp_path_factory.mktemp("server"), SEED_NOTES)


@pytest.mark.needs("basic-memory")
class TestBasicMemory(Joined):
    questions = WORDS_BETWEEN_BLANKS

    @pytest.fixture(scope="class")
    @classmethod
    def joining(cls, tmp_path_factory: pytest.TempPathFactory) -> Joining:
        return real_servers.basic_memory(tmp_path_factory.mktemp("server"), SEED_NOTES)


@pytest.mark.needs("datasette")
class TestDatasette(Joined):
    spec = http
    questions = WORDS_BETWEEN_BLANKS

    @pytest.fixture(scope="class")
    @classmethod
    def joining(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joining]:
        with real_servers.datasette(tmp_path_factory.mktemp("server"), SEED_NOTES) as joining:
            yield joining
