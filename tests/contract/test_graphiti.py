"""The graph memory keeps the contract over a private server, over one by address, and over a REST service."""

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.interfaces import (
    BackendServices,
    EmbedderServices,
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
    IngestContract,
    Opener,
)
from composable_memory_adapters.embedders.wordllama import WordLlamaSettings
from composable_memory_adapters.embedders.wordllama import spec as wordllama
from composable_memory_adapters.graphiti import GraphitiSettings, spec
from composable_memory_ops_logs import utc_now
from tests.integration.graphiti.conftest import (  # noqa: F401 - fixtures
    TcpServer,
    _kept_running,
    graph_parts,
    shared_graph_dir,
    tcp_server,
)
from tests.integration.graphiti.graph_service import GraphService, running

Options = Callable[[], Mapping[str, object]]


class GraphitiContract(BackendContract, AnswerContract, IngestContract, FactsContract):
    """The graph memory with the seeded notes in it; each opening has a group of its own."""

    capabilities = spec.capabilities
    missing_path: ClassVar[str] = "graphiti/nobody/00000000-0000-5000-8000-000000000000"
    embeds: ClassVar[bool] = True

    @pytest.fixture
    def options(self) -> Options:
        raise NotImplementedError

    @pytest.fixture
    def open_backend(
        self, services: BackendServices, embedder_services: EmbedderServices, options: Options
    ) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_seeded() -> AsyncIterator[MemorySearchManager]:
            async with AsyncExitStack() as stack:
                handed = replace(services, load_extractor=load_extractor, clock=utc_now)
                if self.embeds:
                    opening = wordllama.open(WordLlamaSettings(), embedder_services)
                    embedder = await stack.enter_async_context(opening)
                    handed = replace(handed, embedder=embedder)
                settings = GraphitiSettings.model_validate({"also_search": ["nobody"], **options()})
                memory = await stack.enter_async_context(spec.open(settings, handed))
                await seed(memory)
                yield memory

        return open_seeded


async def seed(memory: MemorySearchManager) -> None:
    assert isinstance(memory, SupportsIngest)
    for path, text in SEED_NOTES.items():
        source = WrittenSource(path=path, text=text, written_at=FIXED_NOW)
        await memory.ingest_source(path, contents_of(source))


class TestPrivate(GraphitiContract):
    """A server of its own, in a folder of this run: what is stored under one group is there for the next."""

    @pytest.fixture
    def options(self, _kept_running: None, shared_graph_dir: Path, request: pytest.FixtureRequest) -> Options:
        name = f"t{abs(hash(request.node.nodeid)):x}"
        return lambda: {"private": {"dir": str(shared_graph_dir)}, "group": name}


class TestWordsOnly(TestPrivate):
    """Without an embedder facts are found by their words."""

    embeds = False


class TestByAddress(GraphitiContract):
    """A FalkorDB by address and password, as a team shares one."""

    @pytest.fixture
    def options(self, tcp_server: TcpServer, request: pytest.FixtureRequest) -> Options:
        name = f"t{abs(hash(request.node.nodeid)):x}"
        return lambda: {"url": tcp_server.url, "password": tcp_server.password, "group": name}


# A call that is cancelled just when its connection is made leaves that to the garbage collector: anyio's
# `connect_tcp` drops what it has by then. It is collected here, and not in the test of somebody else.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
class TestService(GraphitiContract):
    """A Graphiti REST service, which takes episodes now and reads them later."""

    knows_entities = False

    @pytest.fixture(autouse=True)
    def _dropped_connections_are_collected(self) -> Iterator[None]:
        yield
        gc.collect()

    @pytest.fixture
    async def service(self) -> AsyncIterator[GraphService]:
        async with running(GraphService(now=FIXED_NOW)) as service:
            yield service

    @pytest.fixture
    def options(self, service: GraphService) -> Options:
        return lambda: {"base_url": service.url}
