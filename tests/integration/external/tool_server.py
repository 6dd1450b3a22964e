"""An MCP server of a few functions, on standard input and output; one made with the SDK starts 1 s later."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

__all__ = ["ToolError", "Tools", "answer_to", "ask", "serve"]

JSON_TYPES = {str: {"type": "string"}, int: {"type": "integer"}}

Tools = Mapping[str, Callable[..., Any]]


class ToolError(Exception):
    """What a tool says when it fails."""


def serve(tools: Tools, *, instructions: str = "") -> None:
    """Answer what is asked, one request after the other, until the input ends."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "id" in request and "method" in request:
            _write(answer_to(request, tools, instructions=instructions))


def ask(method: str, params: Mapping[str, Any] | None = None) -> Any:
    """Return what the client answers to a request of the server.

    Raises:
        ToolError: the client refuses it.
    """
    _write({"jsonrpc": "2.0", "id": f"ours-{method}", "method": method, "params": params or {}})
    while line := sys.stdin.readline():
        answer = json.loads(line)
        if answer.get("id") == f"ours-{method}":
            if "error" in answer:
                raise ToolError(answer["error"]["message"])
            return answer["result"]
    raise SystemExit


def answer_to(request: Mapping[str, Any], tools: Tools, *, instructions: str = "") -> Mapping[str, Any]:
    """Return the message that answers a request."""
    reply = _reply(tools, request["method"], request.get("params", {}), instructions)
    return {"jsonrpc": "2.0", "id": request["id"], **reply}


def _reply(tools: Tools, method: str, params: Mapping[str, Any], instructions: str) -> Mapping[str, Any]:
    match method:
        case "initialize":
            about = {"serverInfo": {"name": "tools", "version": "1"}, "capabilities": {"tools": {}}}
            version = params["protocolVersion"]
            return {"result": {"protocolVersion": version, "instructions": instructions, **about}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": [_described(name, tool) for name, tool in tools.items()]}}
        case "tools/call" if params["name"] in tools:
            return {"result": _called(tools[params["name"]], params.get("arguments") or {})}
        case _:
            return {"error": {"code": -32601, "message": f"there is no {method}"}}


def _described(name: str, tool: Callable[..., Any]) -> Mapping[str, Any]:
    takes = inspect.signature(tool).parameters
    schema = {
        "type": "object",
        "properties": {each.name: _property(each.annotation) for each in takes.values()},
        "required": [each.name for each in takes.values() if each.default is each.empty],
    }
    return {"name": name, "description": tool.__doc__, "inputSchema": schema}


def _property(annotation: Any) -> Mapping[str, Any]:
    """Return the schema of an argument; what an `Annotated` type says beside it is taken over."""
    more = getattr(annotation, "__metadata__", [{}])[0]
    return {**JSON_TYPES.get(get_args(annotation)[0] if more else annotation, {}), **more}


def _called(tool: Callable[..., Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        value = tool(**arguments)
    except (ToolError, TypeError) as error:  # the latter of arguments that it does not take
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = value if isinstance(value, str) else json.dumps(value)
    structured = value if isinstance(value, dict) else {"result": value}
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


def _write(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
