"""FalkorDB, private or shared: where its server is, its graphs, one for each group, and copies of these."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from composable_memory.content import Health
from composable_memory.errors import BackendError, BackendUnavailable
from composable_memory_adapters.graphiti.database.cypher import (
    DatabaseKind,
    Row,
    ServerAddress,
    ServerHandle,
    batches,
)
from composable_memory_adapters.graphiti.database.requirements import INSTALL, Reason
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, LINES, VECTORS, LinkLine, NodeLine

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.database.server import PrivateServer
    from composable_memory_adapters.graphiti.database.session import Session

T = TypeVar("T")

QUERY_LIMIT_S = 60.0


class PrivateServerHandle(ServerHandle):
    """A server that we start, or that another process of this machine has started for the same folder."""

    def __init__(self, server: "PrivateServer") -> None:
        self._server = server

    @property
    def name(self) -> str:
        """Return the folder of the server."""
        return f"the server of {self._server.data_dir}"

    async def address(self) -> ServerAddress:
        """Return the socket of the server that has the folder now."""
        return ServerAddress(url=f"unix://{await asyncio.to_thread(self._server.address)}")

    async def reason(self) -> Reason | None:
        """Return what the log of a server of ours tells."""
        return await asyncio.to_thread(self._server.reason)

    async def close(self) -> None:
        """Stop the server, if it is ours, also when the caller is cancelled meanwhile."""
        await asyncio.to_thread(self._server.close)


class FalkorDatabase:
    """A FalkorDB server, found and its client loaded when it is first asked. Keeps `CypherDatabase`."""

    def __init__(self, server: ServerHandle, *, limit_s: float = QUERY_LIMIT_S) -> None:
        self._server = server
        self._limit_s = limit_s
        self._session: Session | None = None
        self._is_closed = False

    @property
    def kind(self) -> DatabaseKind:
        """Return the dialect."""
        return "falkordb"

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that changes nothing."""
        return await (await self._ready()).read(group_id, cypher, parameters)

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph.

        Raises:
            BackendUnavailable: also when it was cut off, so that nobody knows whether it was done.
        """
        return await (await self._ready()).write(group_id, cypher, parameters)

    async def groups(self) -> Sequence[str]:
        """Return the names of all graphs of the server."""
        return await (await self._ready()).groups()

    async def drop(self, group_id: str) -> None:
        """Remove the graph of a group."""
        await (await self._ready()).drop(group_id)

    async def rename(self, group_id: str, to: str) -> None:
        """Let the graph of a group take the place of another one's; one that is not there is fine."""
        await (await self._ready()).rename(group_id, to)

    async def rewrite_journal(self) -> None:
        """Have the server write its journal anew, so that it says nothing of what was removed since.

        Raises:
            BackendError: it does not, or takes too long.
        """
        await (await self._ready()).rewrite_journal()

    def describe(self) -> Mapping[str, str]:
        """Return kind, place and, once it was asked, version."""
        version = self._session.version if self._session else None
        return {"kind": self.kind, "place": self._server.name} | ({"version": version} if version else {})

    async def health(self) -> Health:
        """Return whether it answers; a private server is started for that."""
        try:
            await (await self._ready()).ping()
        except BackendError as error:
            return Health(ok=False, message=str(error))
        return Health(ok=True)

    async def close(self) -> None:
        """Close the connections, and stop the server if it is ours."""
        self._is_closed = True
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            await self._server.close()

    async def _ready(self) -> "Session":
        self._require_open()
        if self._session is None:
            try:
                # Starting a server is waiting, loading its client is computing; so they go well together.
                _, made = await asyncio.gather(self._server.address(), asyncio.to_thread(_load_session))
            except ImportError as error:
                what = f"the client of FalkorDB cannot be loaded ({error})"
                raise BackendUnavailable(BACKEND_ID, what, fix=INSTALL) from error
            self._require_open()
            if self._session is None:  # or another call was quicker
                self._session = made(self._server, limit_s=self._limit_s)
        return self._session

    def _require_open(self) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it was closed", fix="open the memory again")


def _load_session() -> "type[Session]":
    from composable_memory_adapters.graphiti.database.session import Session

    return Session


NODES = """
MATCH (n) WHERE id(n) > $after
RETURN id(n) AS id, labels(n) AS labels, properties(n) AS properties ORDER BY id LIMIT $limit
"""
LINKS = """
MATCH (s)-[e]->(t) WHERE id(e) > $after
RETURN id(e) AS id, type(e) AS type, labels(s)[0] AS source_label, s.uuid AS source,
  labels(t)[0] AS target_label, t.uuid AS target, properties(e) AS properties ORDER BY id LIMIT $limit
"""
ANYTHING = "MATCH (n) WHERE n.uuid IS NOT NULL RETURN n.uuid AS uuid LIMIT 1"
MAKE_NODES = "UNWIND $rows AS row CREATE (e:{labels}) SET e = row.properties"
MAKE_LINKS = """
UNWIND $rows AS row
MATCH (s:{source_label} {{uuid: row.source}}) MATCH (t:{target_label} {{uuid: row.target}})
CREATE (s)-[e:{type}]->(t) SET e = row.properties
"""
SET_VECTOR = " SET e.{name} = vecf32(row.vector)"


class FalkorCopies:
    """The graphs of groups as lines; nobody may write to a group while it is copied or replaced."""

    def __init__(self, database: FalkorDatabase) -> None:
        self._database = database

    async def has_anything(self, group: str) -> bool:
        """Return whether there is an entity or an episode in a group."""
        return bool(await self._database.read(group, ANYTHING))

    async def nodes(self, group: str) -> AsyncIterator[list[NodeLine]]:
        """Yield all nodes."""
        async for rows in self._pages(group, NODES):
            yield [NodeLine.model_validate({"group": group, **row}) for row in rows]

    async def links(self, group: str) -> AsyncIterator[list[LinkLine]]:
        """Yield all relationships."""
        async for rows in self._pages(group, LINKS):
            yield [LinkLine.model_validate({"group": group, **row}) for row in rows]

    async def _pages(self, group: str, statement: str) -> AsyncIterator[list[dict[str, object]]]:
        after: object = -1
        while rows := await self._database.read(group, statement, after=after, limit=LINES):
            after = rows[-1]["id"]
            yield [{name: value for name, value in row.items() if name != "id"} for row in rows]

    async def discard(self, group: str) -> None:
        """Remove a graph that was being made; one that is not there is fine."""
        await self._database.drop(group)

    async def make_nodes(self, group: str, nodes: Sequence[NodeLine]) -> None:
        """Store nodes in the graph of a group, beside what is in it."""
        for labels, some in _alike(nodes, lambda one: ":".join(one.labels)):
            rows = [{"properties": one.properties} for one in some]
            await self._make(group, MAKE_NODES.format(labels=labels), rows)

    async def make_links(self, group: str, links: Sequence[LinkLine]) -> None:
        """Store relationships between nodes that are there."""
        for _, some in _alike(links, lambda one: f"{one.type} {one.source_label} {one.target_label}"):
            rows = [{"source": e.source, "target": e.target, "properties": e.properties} for e in some]
            first = some[0]
            statement = MAKE_LINKS.format(
                type=first.type, source_label=first.source_label, target_label=first.target_label
            )
            await self._make(group, statement, rows)

    async def _make(self, group: str, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        for name, some in _by_vector(rows):
            made = statement + SET_VECTOR.format(name=name) if name else statement
            for batch in batches(some, LINES):
                await self._database.write(group, made, rows=batch)

    async def put_in_place(self, group: str, staged: str | None) -> None:
        """Let a graph that was made take the place of a group's at once, or none; twice is as once."""
        if staged is None:
            await self._database.drop(group)
        else:
            await self._database.rename(staged, group)


def _alike(lines: Iterable[T], kind: Callable[[T], str]) -> list[tuple[str, list[T]]]:
    return [(name, list(some)) for name, some in groupby(sorted(lines, key=kind), key=kind)]


def _by_vector(rows: Sequence[Mapping[str, object]]) -> list[tuple[str, list[dict[str, object]]]]:
    """Return the rows by the name of the vector among their properties, which is set apart from these."""
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        properties = row["properties"]
        assert isinstance(properties, Mapping)
        name = next((one for one in VECTORS if properties.get(one) is not None), "")
        plain = {key: value for key, value in properties.items() if key not in VECTORS}
        found.setdefault(name, []).append({**row, "properties": plain, "vector": properties.get(name)})
    return list(found.items())
