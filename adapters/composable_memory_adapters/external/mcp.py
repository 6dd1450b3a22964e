"""MCP servers as backends: `kind: mcp`, started as a command or reached at an address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import BackendServices, BackendSpec
from composable_memory.supervision.resource import closing
from composable_memory_adapters.external.backend import CAPABILITIES, ExternalMemory
from composable_memory_adapters.external.settings import McpSettings

KIND = "mcp"
INSTALL = "run `pip install 'composable-memory[mcp]'`"


def _missing() -> str | None:
    return None if find_spec("mcp") else f"the package mcp is not installed; {INSTALL}"


@asynccontextmanager
async def _open(settings: McpSettings, services: BackendServices) -> AsyncIterator[ExternalMemory]:
    if bool(settings.command) == bool(settings.url):
        raise BackendUnavailable(
            services.backend_id, "it needs a command or an address", fix="set its `command`, or its `url`"
        )
    asked = await asyncio.to_thread(_imported)
    source = asked(
        settings, backend_id=services.backend_id, environ=services.environ, folder=services.state_dir
    )
    async with closing(
        ExternalMemory(source, settings, backend_id=services.backend_id, clock=services.clock)
    ) as memory:
        yield memory


def _imported() -> Any:
    import_module("jsonschema")  # otherwise the library imports it with the first answer, on the event loop
    from composable_memory_adapters.external.mcp_source import McpSource

    return McpSource


spec = BackendSpec(
    id=KIND,
    summary="An MCP server with a search tool",
    settings=McpSettings,
    open=_open,
    capabilities=CAPABILITIES,
    missing=_missing,
)
