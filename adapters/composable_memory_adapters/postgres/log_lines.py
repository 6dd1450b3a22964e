"""Lines of operations logs in the tables of a server."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from composable_memory.interfaces import LogServices
from composable_memory.supervision.resource import closing
from composable_memory_adapters.postgres.server import Server, address_of
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.postgres.writing import storable
from composable_memory_ops_logs.erasing import masked_value

PUT_LINES = """
INSERT INTO log_lines (tenant, id, at, trace_id, action, line)
SELECT $1, * FROM unnest($2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::jsonb[])
ON CONFLICT DO NOTHING
"""
DELETE_OLD = "DELETE FROM log_lines WHERE tenant = $1 AND at < now() - make_interval(days => $2)"


@asynccontextmanager
async def open_log_store(settings: PostgresSettings, services: LogServices) -> AsyncIterator["LogLines"]:
    """Yield the log lines of a workspace; leaving the block closes the connections."""
    backend_id = services.backend_id
    address = address_of(settings, services.environ, backend_id)
    async with closing(Server(settings, address, backend_id)) as server:
        yield LogLines(server, settings.workspace or services.workspace_id, days=settings.log_days)


class LogLines:
    """Stores log lines in a workspace, which is created if missing; implements `LogStore`."""

    def __init__(self, server: Server, workspace: str, *, days: int) -> None:
        self.name = f"{server.address} {server.schema} {workspace}"
        self._server = server
        self._workspace = workspace
        self._days = days

    async def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Store lines, and delete old ones; lines already there are unchanged."""
        tenant = await self._server.tenant("ship the log", self._workspace, is_new=True)
        assert tenant is not None
        rows = [masked_value(dict(line), storable) for line in lines]
        times = [datetime.fromisoformat(row["ts"]) for row in rows]
        ids, traces, actions = ([row[key] for row in rows] for key in ("id", "traceId", "action"))
        texts = [json.dumps(row) for row in rows]
        async with self._server.writing("ship the log", tenant=tenant) as connection:
            await connection.execute(PUT_LINES, tenant, ids, times, traces, actions, texts)
            await connection.execute(DELETE_OLD, tenant, self._days)
