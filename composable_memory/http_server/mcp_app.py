"""MCP over HTTP. Imported on first use: it takes as long to import as everything else that is served."""

from typing import Any

from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from composable_memory.http_server.guard import MAX_REQUEST_BYTES, MCP_PATH, refused


def mcp_app(server: Server[Any]) -> Starlette:
    """Return the application for MCP; it keeps no state of a client between requests."""
    served = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        # The guard has already checked.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (asked,) = served.routes
    assert isinstance(asked, Route)
    return Starlette(
        # GET would open a stream of messages, which this server never sends.
        routes=[Route(MCP_PATH, asked.endpoint, methods=["POST"])],
        lifespan=served.router.lifespan_context,
        exception_handlers={HTTPException: refused},  # type: ignore[dict-item]
    )
