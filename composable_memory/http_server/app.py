"""What is served: MCP, the JSON API, and for each workspace the routes of its pages."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from composable_memory.http_server.api import api_routes
from composable_memory.http_server.guard import MAX_REQUEST_BYTES, problem
from composable_memory.inspector.routes import routes as inspector_routes
from composable_memory.mcp_server import build_server
from composable_memory.mcp_server.open_memories import Service
from composable_memory.runtime.memory import Memory

PATH = "/mcp"
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
    return mcp_app(build_server(service), [*api_routes(service), *pages])


def mcp_app(server: Server[Any], more: Iterable[BaseRoute] = ()) -> Starlette:
    """Return the application for MCP, and more; nothing of a client of MCP stays after its request."""
    served = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        # The guard has looked already.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (asked,) = served.routes
    assert isinstance(asked, Route)
    # GET would ask for a stream of messages that this server never sends.
    routes = [Route(PATH, asked.endpoint, methods=["POST"]), *more]
    return Starlette(
        routes=routes,
        lifespan=served.router.lifespan_context,
        exception_handlers={HTTPException: _refused},  # type: ignore[dict-item]
    )


async def _refused(_: Request, refusal: HTTPException) -> Response:
    return problem(refusal.status_code, refusal.detail, **(refusal.headers or {}))
