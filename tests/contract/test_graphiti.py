"""The graph memory keeps the contract over a private server, over one by address, and over a REST service."""

import gc
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.interfaces import (
    BackendServices,
    MemorySearchManager,
    SupportsIngest,
)
from composable_memory.registry import load_extractor
from composable_memory.testing import (
    FIXED_NOW,
    SEED_NOTES,
    AnswerContract,
    BackendContract,
    FactsContract,
    ForgetContract,
    IngestContract,
    Opener,
    WriteNote,
)
from composable_memory.testing.contracts.opening import BackendSuite
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.graphiti import GraphitiSettings, spec
from composable_memory_ops_logs import utc_now
from tests.contract.in_short import InShort
from tests.integration.conftest import graph_parts  # noqa: F401 - a fixture
from tests.integration.graphiti.conftest import (  # noqa: F401 - fixtures
    TcpServer,
    _kept_running,
    shared_graph_dir,
    tcp_server,
)
from tests.integration.graphiti.graph_service import GraphService, running

Options = Callable[[], Mapping[str, object]]


class GraphitiSuite(BackendSuite):
    """The graph memory with the seeded notes in it."""

    capabilities = spec.capabilities
    missing_path: ClassVar[str] = "graphiti/nobody/00000000-0000-5000-8000-000000000000"
    embeds: ClassVar[bool] = True
    memory: MemorySearchManager

    @pytest.fixture
    def options(self) -> Options:
        raise NotImplementedError

    @pytest.fixture
    def open_backend(
        self, services: BackendServices, word_vectors: WordLlamaEmbedder, options: Options
    ) -> Opener[MemorySearchManager]:
        handed = replace(services, load_extractor=load_extractor, clock=utc_now)
        if self.embeds:
            handed = replace(handed, embedder=word_vectors)

        @asynccontextmanager
        async def open_seeded() -> AsyncIterator[MemorySearchManager]:
            settings = GraphitiSettings.model_validate({"also_search": ["nobody"], **options()})
            async with spec.open(settings, handed) as memory:
                await seed(memory)
                self.memory = memory
                yield memory

        return open_seeded


@pytest.fixture(scope="class")
def state_of_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a name that no other test uses."""
    return tmp_path_factory.mktemp(f"t{secrets.token_hex(8)}", numbered=False)


class SharedGraph(GraphitiSuite, BackendContract, AnswerContract):
    """A graph that nobody changes, so that the tests of a class share one, with its outbox."""

    @pytest.fixture
    def group(self, state_of_class: Path) -> str:
        return state_of_class.name

    @pytest.fixture
    def state_dir(self, state_of_class: Path) -> Path:
        return state_of_class


class ForgettingGraph(GraphitiSuite, ForgetContract):
    """A graph hears of a note when it is handed in, and of lines that have gone when it is to forget them."""

    @pytest.fixture
    def write_note(self) -> WriteNote:
        told: set[str] = set()

        async def write_note(path: str, text: str | None) -> None:
            assert isinstance(self.memory, SupportsIngest)
            if path not in told:
                told.add(path)
                source = WrittenSource(path=path, text=text or "", written_at=FIXED_NOW)
                await self.memory.ingest_source(path, contents_of(source))

        return write_note


class ChangingGraph(ForgettingGraph, IngestContract, FactsContract):
    """A graph that takes contents in: each test has one of its own."""

    @pytest.fixture
    def group(self) -> str:
        return f"t{secrets.token_hex(8)}"


async def seed(memory: MemorySearchManager) -> None:
    assert isinstance(memory, SupportsIngest)
    for path, text in SEED_NOTES.items():
        source = WrittenSource(path=path, text=text, written_at=FIXED_NOW)
        await memory.ingest_source(path, contents_of(source))


class Private:
    """A server of its own, in a folder of this run."""

    @pytest.fixture
    def options(self, _kept_running: None, shared_graph_dir: Path, group: str) -> Options:
        return lambda: {"private": {"dir": str(shared_graph_dir)}, "group": group}


class ByAddress:
    """A FalkorDB by address and password, as a team shares one."""

    @pytest.fixture
    def options(self, tcp_server: TcpServer, group: str) -> Options:
        return lambda: {"url": tcp_server.url, "password": tcp_server.password, "group": group}


class TestPrivate(Private, SharedGraph): ...


class TestPrivateFacts(Private, ChangingGraph): ...


@pytest.mark.thorough
class TestWordsOnly(Private, SharedGraph):
    """Without an embedder facts are found by their words."""

    embeds = False


@pytest.mark.thorough
class TestByAddress(ByAddress, SharedGraph): ...


@pytest.mark.thorough
class TestByAddressFacts(ByAddress, ChangingGraph): ...


@pytest.fixture(scope="class")
def _dropped_connections_are_collected() -> Iterator[None]:
    yield
    gc.collect()


# A call that is cancelled just when its connection is made leaves that to the garbage collector: anyio's
# `connect_tcp` drops what it has by then. It is collected here, and not in the tests of somebody else.
@pytest.mark.usefixtures("_dropped_connections_are_collected")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
class Served(GraphitiSuite):
    """A Graphiti REST service, which takes episodes now and reads them later."""

    knows_entities = False

    @pytest.fixture
    async def service(self) -> AsyncIterator[GraphService]:
        async with running(GraphService(now=FIXED_NOW)) as service:
            yield service

    @pytest.fixture
    def options(self, service: GraphService) -> Options:
        return lambda: {"base_url": service.url}


class TestServiceInShort(Served, InShort): ...


@pytest.mark.thorough
class TestService(Served, BackendContract, AnswerContract): ...


@pytest.mark.thorough
class TestServiceFacts(Served, ForgettingGraph, IngestContract, FactsContract): ...
