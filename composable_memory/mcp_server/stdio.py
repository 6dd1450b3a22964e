"""The transport over stdin and stdout; unlike the SDK's, it also answers requests that cannot be parsed."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our stdin."""
    async with stdio_server() as (incoming, outgoing):
        options = server.create_initialization_options()
        await server.run(_ErrorReplies(incoming, outgoing), outgoing, options)


class _ErrorReplies:
    """The messages of a client; a request that cannot be parsed is answered with an error and skipped."""

    def __init__(
        self, incoming: ReadStream[SessionMessage | Exception], outgoing: WriteStream[SessionMessage]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self._next_valid(self._incoming.__anext__)

    async def receive(self) -> SessionMessage | Exception:
        return await self._next_valid(self._incoming.receive)

    async def _next_valid(
        self, take: Callable[[], Awaitable[SessionMessage | Exception]]
    ) -> SessionMessage | Exception:
        while isinstance(message := await take(), ValidationError):
            request_id = _request_id(message)
            if request_id is None:  # nobody is waiting for an answer
                break
            problem = "the request cannot be read: it must be JSON-RPC 2.0 in valid Unicode"
            error = ErrorData(code=PARSE_ERROR, message=problem)
            await self._outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))
        return message


def _request_id(error: ValidationError) -> str | int | None:
    """Return the id of a request that could not be parsed, if it can be found."""
    for problem in error.errors(include_url=False):
        request = problem["input"]
        if problem["type"] == "json_invalid":
            # Unlike the SDK's parser, this one accepts a lone surrogate in an escape sequence.
            with suppress(ValueError, RecursionError):
                request = json.loads(request)
        found = request.get("id") if isinstance(request, dict) and "method" in request else None
        if isinstance(found, str | int):
            return found
    return None
