"""What tests of the graph memory get: a graph server that all of a run share, and servers of their own."""

import secrets
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings, PrivateServerSettings

START_S = 30.0


class TcpServer:
    """A FalkorDB that listens on loopback and wants a password."""

    def __init__(self, port: int, password: str) -> None:
        self.port = port
        self.password = password

    @property
    def url(self) -> str:
        return f"falkor://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def shared_graph_dir() -> Iterator[Path]:
    """Return the folder of the server that `graph_database` starts; each test has a connection of its own."""
    with tempfile.TemporaryDirectory(prefix="cmem-test-graph-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def _kept_running(shared_graph_dir: Path, graph_parts: requirements.Binaries) -> Iterator[None]:
    """Start the shared server once, and stop it at the end of the run."""
    from composable_memory_adapters.graphiti.database.server import PrivateServer

    settings = PrivateServerSettings(fsync="everysec")
    server = PrivateServer(settings, shared_graph_dir)
    server.address()
    yield
    server.close()


@pytest.fixture
async def graph_database(_kept_running: None, shared_graph_dir: Path) -> AsyncIterator[CypherDatabase]:
    """Return a database on a server that all tests share: use `group_id`, and ask nothing of all groups."""
    async with open_database(GraphitiSettings(), data_dir=shared_graph_dir) as database:
        yield database


@pytest.fixture
def group_id() -> str:
    """Return a group that no other test uses."""
    return f"g{secrets.token_hex(8)}"


@pytest.fixture
async def private_database(
    tmp_path: Path, graph_parts: requirements.Binaries
) -> AsyncIterator[CypherDatabase]:
    """Return a database with a server of its own, which starts when it is first asked."""
    async with open_database(GraphitiSettings(), data_dir=tmp_path / "graphs") as database:
        yield database


@pytest.fixture(scope="session")
def tcp_server(graph_parts: requirements.Binaries) -> Iterator[TcpServer]:
    """Start a FalkorDB that is reached by address and password, as a shared one is."""
    with tcp_running(graph_parts, free_port()) as server:
        yield server


@contextmanager
def tcp_running(parts: requirements.Binaries, port: int, password: str | None = None) -> Iterator[TcpServer]:
    """Run a FalkorDB that listens on a port of loopback, and forgets everything at its end."""
    with tempfile.TemporaryDirectory(prefix="cmem-test-tcp-") as folder:
        server = TcpServer(port, password or secrets.token_hex(8))
        options = ["--port", str(server.port), "--bind", "127.0.0.1", "--requirepass", server.password]
        options += ["--dir", folder, "--save", "", "--appendonly", "no", "--loglevel", "warning"]
        with subprocess.Popen(
            [str(parts.server), *options, "--loadmodule", str(parts.module)],
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                _await_listening(process, server.port)
                yield server
            finally:
                process.kill()


def free_port() -> int:
    """Return a port that the system gives to nobody meanwhile: those it chooses by itself are higher."""
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _await_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    while process.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=START_S):
            return
    raise AssertionError(f"the server ended with {process.returncode}")
