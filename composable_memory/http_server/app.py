"""What is served: MCP, the JSON API, and for each workspace the routes of its pages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from composable_memory.http_server.guard import MCP_PATH, refused
from composable_memory.http_server.json_api import api_routes
from composable_memory.inspector.routes import routes as inspector_routes
from composable_memory.mcp_server.open_memories import Service
from composable_memory.runtime.memory import Memory
from composable_memory.supervision.resource import LazyResource

PAGES: tuple[Callable[[Memory], Sequence[BaseRoute]], ...] = (inspector_routes,)
"""Each returns the routes of pages about an open workspace: whoever makes pages adds a function here.

They are mounted at `/`, or at `/w/NAME` if the server has several workspaces.
"""


def build_app(service: Service) -> Starlette:
    """Return the application for workspaces that are open and stay so meanwhile."""
    pages: list[BaseRoute] = []
    for name, opened in service.workspaces.items():
        routes = [one for made in PAGES for one in made(opened.memory)] if opened.memory else []
        pages += [Mount(f"/w/{name}", routes=routes)] if name else routes
    mcp = _McpOnDemand(service)
    return Starlette(
        routes=[Route(MCP_PATH, mcp, methods=["POST"]), *api_routes(service), *pages],
        lifespan=mcp.lifespan,
        exception_handlers={HTTPException: refused},  # type: ignore[dict-item]
    )


class _McpOnDemand:
    """MCP for those who ask for it: what it takes to import is half of what a server for browsers weighs."""

    def __init__(self, service: Service) -> None:
        self._server = LazyResource(partial(_mcp, service))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            server = await self._server.get()
        except ImportError as missing:
            raise HTTPException(503, f"MCP needs a newer package `mcp`: {missing}") from missing
        await server(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._server.close()


@asynccontextmanager
async def _mcp(service: Service) -> AsyncIterator[Starlette]:
    app = await asyncio.to_thread(_mcp_app, service)
    async with app.router.lifespan_context(app):
        yield app


def _mcp_app(service: Service) -> Starlette:
    from composable_memory.http_server.mcp_app import mcp_app
    from composable_memory.mcp_server.server import build_server

    return mcp_app(build_server(service))
