"""MCP over HTTP. It takes as long to import as all else that is served: only who asks for it does."""

from typing import Any

from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from composable_memory.http_server.guard import MAX_REQUEST_BYTES, MCP_PATH, refused


def mcp_app(server: Server[Any]) -> Starlette:
    """Return the application for MCP; nothing of a client stays after its request."""
    served = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        # The guard has looked already.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (asked,) = served.routes
    assert isinstance(asked, Route)
    return Starlette(
        # GET would ask for a stream of messages that this server never sends.
        routes=[Route(MCP_PATH, asked.endpoint, methods=["POST"])],
        lifespan=served.router.lifespan_context,
        exception_handlers={HTTPException: refused},  # type: ignore[dict-item]
    )
