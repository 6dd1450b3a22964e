"""Opens the database that the settings name: a private FalkorDB, a shared one, or Neo4j."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, ServerAddress, ServerHandle
from composable_memory_adapters.graphiti.database.falkor import (
    FalkorDatabase,
    PrivateServerHandle,
)
from composable_memory_adapters.graphiti.database.server import PrivateServer
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.settings import GraphitiSettings


@asynccontextmanager
async def open_database(settings: GraphitiSettings, *, data_dir: Path) -> AsyncIterator[CypherDatabase]:
    """Hold a database open for the time of the block; it is reached, or started, when it is first asked.

    A private one lives in `data_dir`, unless the settings name another folder.

    Raises:
        BackendUnavailable: what it needs is not installed.
    """
    database = await asyncio.to_thread(_choose, settings, data_dir)
    try:
        yield database
    finally:
        await database.close()


def _choose(settings: GraphitiSettings, data_dir: Path) -> CypherDatabase:
    lacking = requirements.lacking(settings)
    if lacking is not None:
        what, _, fix = lacking.partition("; ")
        raise BackendUnavailable(BACKEND_ID, what, fix=fix)
    if settings.url is None:
        server = PrivateServer(settings.private, settings.private.dir or data_dir)
        return FalkorDatabase(PrivateServerHandle(server))
    password = settings.password.get_secret_value() if settings.password else None
    address = ServerAddress(url=settings.url, username=settings.username, password=password)
    if requirements.is_neo4j(settings):
        return _neo4j(address, settings.database)
    return FalkorDatabase(ServerHandle(address))


def _neo4j(address: ServerAddress, database: str | None) -> CypherDatabase:
    try:
        from composable_memory_adapters.graphiti.database.neo4j import Neo4jDatabase
    except ImportError as error:
        what = f"the client of Neo4j cannot be loaded ({error})"
        raise BackendUnavailable(BACKEND_ID, what, fix=requirements.INSTALL) from error
    return Neo4jDatabase(address, database=database)
