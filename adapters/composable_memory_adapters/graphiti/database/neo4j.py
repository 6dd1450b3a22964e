"""A shared Neo4j: all groups in one database, in the schema of graphiti-core."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

import neo4j
from neo4j.exceptions import (
    AuthConfigurationError,
    AuthError,
    BrokenRecordError,
    ClientError,
    ConfigurationError,
    ConnectionPoolError,
    DriverError,
    Forbidden,
    IncompleteCommit,
    Neo4jError,
    ServiceUnavailable,
    SessionExpired,
    TokenExpired,
)

from composable_memory.content import Health
from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.graphiti.database.cypher import (
    DatabaseKind,
    Row,
    ServerAddress,
    plain,
    readable,
    without_options,
)
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

if TYPE_CHECKING:
    from neo4j import AsyncDriver


QUERY_LIMIT_S = 60.0
CONNECT_S = 10.0
RETRY_S = 2.0
"""How long the driver retries, also to connect to an unreachable server, in seconds."""
DEFAULT_USER = "neo4j"
GROUPS = """
MATCH (n:Entity|Episodic) WHERE n.group_id IS NOT NULL
RETURN DISTINCT n.group_id AS group_id ORDER BY group_id
"""

INDEXES = (
    "CREATE INDEX entity_uuid IF NOT EXISTS FOR (n:Entity) ON (n.uuid)",
    "CREATE INDEX episode_uuid IF NOT EXISTS FOR (n:Episodic) ON (n.uuid)",
    "CREATE INDEX relation_uuid IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.uuid)",
    "CREATE INDEX mention_uuid IF NOT EXISTS FOR ()-[e:MENTIONS]-() ON (e.uuid)",
    "CREATE INDEX entity_group_id IF NOT EXISTS FOR (n:Entity) ON (n.group_id)",
    "CREATE INDEX episode_group_id IF NOT EXISTS FOR (n:Episodic) ON (n.group_id)",
    "CREATE INDEX relation_group_id IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.group_id)",
    "CREATE INDEX mention_group_id IF NOT EXISTS FOR ()-[e:MENTIONS]-() ON (e.group_id)",
    "CREATE INDEX name_entity_index IF NOT EXISTS FOR (n:Entity) ON (n.name)",
    "CREATE INDEX name_edge_index IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.name)",
    """CREATE FULLTEXT INDEX episode_content IF NOT EXISTS
    FOR (e:Episodic) ON EACH [e.content, e.source, e.source_description, e.group_id]""",
    """CREATE FULLTEXT INDEX node_name_and_summary IF NOT EXISTS
    FOR (n:Entity) ON EACH [n.name, n.summary, n.group_id]""",
    """CREATE FULLTEXT INDEX edge_name_and_fact IF NOT EXISTS
    FOR ()-[e:RELATES_TO]-() ON EACH [e.name, e.fact, e.group_id]""",
)
"""The indexes of graphiti-core, except those on times."""


class Neo4jDatabase:
    """A Neo4j server that others run. Implements `CypherDatabase`."""

    def __init__(
        self, address: ServerAddress, *, database: str | None, limit_s: float = QUERY_LIMIT_S
    ) -> None:
        self._address = address
        self._server = without_options(address.url)
        self._database = database
        self._limit_s = limit_s
        self._driver: AsyncDriver | None = None
        self._version: str | None = None
        self._has_indexes = False
        self._indexing = asyncio.Lock()
        self._is_closed = False

    @property
    def kind(self) -> DatabaseKind:
        """Return the dialect."""
        return "neo4j"

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a read-only statement."""
        try:
            return await self._run(cypher, parameters | {"group_id": group_id}, is_write=False)
        except BackendRejected as error:
            if "no such fulltext schema index" in str(error):  # nothing has been written yet
                return []
            raise

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph; the driver repeats it if it certainly had no effect."""
        await self._index()
        return await self._run(cypher, parameters | {"group_id": group_id}, is_write=True)

    async def groups(self) -> Sequence[str]:
        """Return the ids of all groups."""
        return [str(row["group_id"]) for row in await self._run(GROUPS, {}, is_write=False)]

    def describe(self) -> Mapping[str, str]:
        """Return kind, address, database and, after a health check, version."""
        found = {"kind": self.kind, "place": self._server}
        database = {"database": self._database} if self._database else {}
        return found | database | ({"version": self._version} if self._version else {})

    async def health(self) -> Health:
        """Return whether it answers."""
        try:
            rows = await self._run(
                "CALL dbms.components() YIELD versions RETURN versions[0] AS version", {}, is_write=False
            )
        except BackendError as error:
            return Health(ok=False, message=str(error))
        self._version = str(rows[0]["version"]) if rows else None
        return Health(ok=True)

    async def close(self) -> None:
        """Close the connections; the server is not ours to stop."""
        self._is_closed = True
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    def _open(self) -> "AsyncDriver":
        if self._is_closed:
            raise self._unavailable("it was closed", "open the memory again", "ask the graph")
        if self._driver is None:
            try:
                self._driver = neo4j.AsyncGraphDatabase.driver(
                    self._address.url,
                    auth=_auth(self._address),
                    connection_timeout=CONNECT_S,
                    max_transaction_retry_time=RETRY_S,
                    notifications_min_severity="OFF",
                    telemetry_disabled=True,
                )
            except (DriverError, ValueError) as error:
                raise self._unavailable(str(error), "check graphiti.url", "open") from error
        return self._driver

    async def _index(self) -> None:
        if self._has_indexes:
            return
        async with self._indexing:
            for statement in () if self._has_indexes else INDEXES:
                await self._run(statement, {}, is_write=True)
            await self._run("CALL db.awaitIndexes(30)", {}, is_write=False)
            self._has_indexes = True

    async def _run(self, cypher: str, parameters: Mapping[str, object], *, is_write: bool) -> list[Row]:
        operation = "write to the graph" if is_write else "read the graph"
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._limit_s):
                answer = await self._open().execute_query(
                    neo4j.Query(cypher, timeout=self._limit_s),
                    {name: _storable(value) for name, value in parameters.items()},
                    routing_=neo4j.RoutingControl.WRITE if is_write else neo4j.RoutingControl.READ,
                    database_=self._database,
                )
        except (Neo4jError, DriverError) as error:
            raise self._refused(error, operation) from error
        except TimeoutError as error:
            raise self._timed_out(operation, loop.time() - began) from error
        except (OSError, ValueError) as error:  # an unknown host name
            raise self._unavailable(str(error), "check graphiti.url", operation) from error
        return [{name: _readable(value) for name, value in record.items()} for record in answer.records]

    def _refused(self, error: Exception, operation: str) -> BackendError:
        """Translate an error of the driver."""
        match error:
            case AuthError() | TokenExpired() | AuthConfigurationError():
                fix = "check graphiti.username and graphiti.password"
                return self._unavailable(f"{self._server} rejects the user or password", fix, operation)
            case Forbidden():
                return self._unavailable(f"{self._server}: {error}", "grant the user that right", operation)
            case IncompleteCommit():
                fix = "it may or may not have been done; try again"
                return self._unavailable(f"{self._server} was lost: {error}", fix, operation)
            case ServiceUnavailable() | SessionExpired() | ConnectionPoolError():
                return self._unavailable(
                    f"no connection to {self._server}: {error}", "check that it is running", operation
                )
            case ConfigurationError():
                return self._unavailable(f"{self._server}: {error}", "check graphiti.url", operation)
            case BrokenRecordError():
                return BackendGarbled(BACKEND_ID, operation, excerpt=str(error), expected="a record")
            case ClientError():
                return self._of_client(error, operation)
            case Neo4jError():  # transient errors, and errors inside the server
                return self._unavailable(f"{self._server}: {error}", "try again later", operation)
            case _:
                status = type(error).__name__
                return BackendRejected(BACKEND_ID, operation, status=status, body=str(error))

    def _of_client(self, error: Neo4jError, operation: str) -> BackendError:
        code = error.code or ""
        if "TransactionTimedOut" in code:
            return self._timed_out(operation, self._limit_s)
        if "DatabaseNotFound" in code:
            what = f"{self._server} has no database {self._database!r}"
            return self._unavailable(what, "name another one in graphiti.database", operation)
        return BackendRejected(BACKEND_ID, operation, status=code, body=error.message or str(error))

    def _timed_out(self, operation: str, elapsed_s: float) -> BackendTimeout:
        return BackendTimeout(BACKEND_ID, operation, limit_s=self._limit_s, elapsed_s=elapsed_s)

    def _unavailable(self, what: str, fix: str, operation: str) -> BackendUnavailable:
        return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=operation)


def _auth(address: ServerAddress) -> tuple[str, str] | None:
    if address.username is None and address.password is None:
        return None
    return address.username or DEFAULT_USER, address.password or ""


def _storable(value: object) -> object:
    return value if isinstance(value, datetime | date) else plain(value)


def _readable(value: object) -> object:
    """Convert a value of an answer to plain types; the driver has its own time types."""
    if isinstance(value, neo4j.time.DateTime | neo4j.time.Date):
        return readable(value.to_native())
    if isinstance(value, Mapping):  # nodes are mappings
        return {name: _readable(item) for name, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value
