"""FalkorDB, private or shared: graphs in the schema of graphiti-core, one for each group."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from composable_memory.content import Health
from composable_memory.errors import BackendError, BackendUnavailable
from composable_memory_adapters.graphiti.database.cypher import DatabaseKind, Row
from composable_memory_adapters.graphiti.database.requirements import INSTALL
from composable_memory_adapters.graphiti.database.server_handle import ServerHandle
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.database.session import Session

QUERY_LIMIT_S = 60.0


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
