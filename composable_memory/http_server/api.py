"""The JSON API: the tools of an agent as addresses, with the same arguments and the same answers."""

from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from composable_memory.mcp_server.service import Service
from composable_memory.tools.catalogue import TOOLS
from composable_memory.tools.tool import Tool

BASE = "/api/v1"
NAMES = {"memory_context": "pack"}
"""Of tools whose command has another name."""


def api_routes(service: Service) -> list[Route]:
    """Return the routes of the API."""
    return [Route(_path(tool), partial(_call, service, tool), methods=_methods(tool)) for tool in TOOLS]


def _path(tool: Tool) -> str:
    return f"{BASE}/{NAMES.get(tool.name, tool.name.removeprefix('memory_'))}"


def _methods(tool: Tool) -> list[str]:
    return ["POST"] if tool.writes else ["GET", "POST"]


async def _call(service: Service, tool: Tool, request: Request) -> JSONResponse:
    reply = await service.call(tool, await _arguments(request))
    content = reply.as_json()
    status = 400 if reply.is_error else 503 if content.get("unavailable") else 200
    return JSONResponse(content, status_code=status)


async def _arguments(request: Request) -> dict[str, object]:
    """Return what a request asks for: of its address, or of the JSON in it.

    Raises:
        HTTPException: it is no JSON object.
    """
    if request.method != "POST":
        asked = request.query_params
        return {name: some if len(some := asked.getlist(name)) > 1 else some[0] for name in asked}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send `Content-Type: application/json`")
    try:
        given = await request.json()
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "this is no JSON") from error
    if not isinstance(given, dict):
        raise HTTPException(400, "send a JSON object")
    return given
