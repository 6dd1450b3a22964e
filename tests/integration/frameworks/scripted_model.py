"""A loopback endpoint that speaks as OpenAI does: it calls the tools it is told to, then quotes the last."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["ScriptedModel", "ToolCall", "scripted_model"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool and what it is called with."""

    name: str
    arguments: Mapping[str, object]


@dataclass(slots=True)
class ScriptedModel:
    """Calls its tools one by one, then quotes what the last one said; `requests` are those that came.

    It speaks chat completions and responses.
    """

    calls: Sequence[ToolCall]
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """Return the tools that it was offered, by their names."""
        offered = [one.get("function", one) for one in self.requests[0]["tools"]]
        return {one["name"]: one for one in offered}

    def replies(self) -> list[str]:
        """Return what its calls came back with."""
        return _replies(self.requests[-1])

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the next message."""
        self.requests.append(request)
        told = _replies(request)
        form = _completion if "messages" in request else _response
        if len(told) < len(self.calls):
            return form(len(told), self.calls[len(told)])
        return form(len(told), f"The notes say: {told[-1] if told else 'nothing'}")


def _replies(request: dict[str, Any]) -> list[str]:
    if "messages" in request:
        return [one["content"] for one in request["messages"] if one["role"] == "tool"]
    items = request["input"] if isinstance(request["input"], list) else []
    return [one["output"] for one in items if one.get("type") == "function_call_output"]


def _completion(number: int, says: ToolCall | str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": says}
    if isinstance(says, ToolCall):
        function = {"name": says.name, "arguments": json.dumps(says.arguments)}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    reason = "tool_calls" if isinstance(says, ToolCall) else "stop"
    return {
        "id": "chat_1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _response(number: int, says: ToolCall | str) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"item_{number}", "status": "completed"}
    if isinstance(says, ToolCall):
        call = {"name": says.name, "arguments": json.dumps(says.arguments), "call_id": f"call_{number}"}
        item |= {"type": "function_call"} | call
    else:
        content = [{"type": "output_text", "text": says, "annotations": []}]
        item |= {"type": "message", "role": "assistant", "content": content}
    return {
        "id": f"response_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": "scripted",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


@contextmanager
def scripted_model(*calls: ToolCall) -> Iterator[ScriptedModel]:
    """Serve a model on loopback that makes these calls."""
    model = ScriptedModel(calls)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps(model.answer(request)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
