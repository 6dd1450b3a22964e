"""A loopback endpoint that speaks chat completions, scripted by the name of the schema that is asked for."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

__all__ = ["ChatEndpoint", "Reply", "facts_of"]

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the endpoint answers: a status with headers, and the text of the model where all is well."""

    text: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the endpoint was asked: the name of the schema or None, the form of the request, and all of it."""

    schema: str | None
    form: str | None
    body: Mapping[str, object]
    authorization: str | None


Script = Callable[[Call], Reply | None]
"""Returns the answer to a call; None never answers."""


class ChatEndpoint:
    """Runs while its block runs; `calls` are those that came."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.script = script
        self.calls: list[Call] = []
        self._lock = Lock()
        self._ended = Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                reply = endpoint.take(body, self.headers.get("authorization"))
                if reply is None:
                    endpoint.wait_for_the_end()
                else:
                    self.answer(reply)

            def answer(self, reply: Reply) -> None:
                message = {"message": {"content": reply.text}, "finish_reason": reply.finish_reason}
                usage = {"prompt_tokens": 100, "completion_tokens": 10}
                said = (
                    {"choices": [message], "usage": usage} if reply.status == 200 else {"error": reply.text}
                )
                content = json.dumps(said).encode()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def schemas(self) -> list[str | None]:
        """Return the names of the schemas that were asked for, in turn."""
        return [call.schema for call in self.calls]

    def take(self, body: Mapping[str, object], authorization: str | None) -> Reply | None:
        """Note a call and return what the script says to it."""
        asked = body.get("response_format")
        asked = asked if isinstance(asked, Mapping) else {}
        schema = asked.get("json_schema") or asked.get("schema")
        name = (schema.get("name") or schema.get("title")) if isinstance(schema, Mapping) else None
        form = asked.get("type")
        call = Call(
            schema=str(name) if name else _schema_in(body),
            form=str(form) + ("+schema" if "schema" in asked else "") if form else None,
            body=body,
            authorization=authorization,
        )
        with self._lock:
            self.calls.append(call)
        return self.script(call)

    def wait_for_the_end(self) -> None:
        """Return when the block ends."""
        self._ended.wait(timeout=60)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join(timeout=10)
        self._server.server_close()


def facts_of(call: Call, *, fact: str = "Zelda keeps the boat in Bergen") -> Reply:
    """Answer as a model would that finds Zelda, the boat and Bergen, and two facts about them."""
    names = ("Zelda", "the boat", "Bergen")
    answers: dict[str, object] = {
        "ExtractedEntities": {"extracted_entities": [{"name": one, "entity_type_id": 0} for one in names]},
        "ExtractedEdges": {
            "edges": [
                _edge("Zelda", "the boat", "KEEPS", fact),
                _edge("the boat", "Bergen", "LIES_IN", "The boat lies in Bergen"),
            ]
        },
        "NodeResolutions": {"entity_resolutions": []},
        "EdgeDuplicate": {"duplicate_facts": [], "contradicted_facts": []},
        "EdgeTimestamps": {"valid_at": None, "invalid_at": None},
    }
    return Reply(text=json.dumps(answers[call.schema or ""]))


def _edge(source: str, target: str, relation: str, fact: str) -> dict[str, object]:
    return {
        "source_entity_name": source,
        "target_entity_name": target,
        "relation_type": relation,
        "fact": fact,
        "valid_at": None,
        "invalid_at": None,
    }


def _schema_in(body: Mapping[str, object]) -> str | None:
    """Return the title of the schema that the question itself holds."""
    messages = body["messages"]
    text = json.dumps(messages)
    known = ("ExtractedEntities", "ExtractedEdges", "NodeResolutions", "EdgeDuplicate", "EdgeTimestamps")
    return next((name for name in known if f'\\"title\\": \\"{name}\\"' in text), None)
