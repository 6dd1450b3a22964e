"""Queries an MCP server over one long-lived session."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, Implementation, Tool
from pydantic import JsonValue

from composable_memory.errors import BackendError, BackendRejected, BackendUnavailable
from composable_memory.supervision.resource import LazyResource
from composable_memory_adapters.external.answer_reader import SHORT, parsed
from composable_memory_adapters.external.guarded_stdio import guarded_stdio
from composable_memory_adapters.external.settings import MCP_PRESETS, McpSettings, Secrets, filled, within
from composable_memory_ops_logs import redact
from composable_memory_ops_logs.quick_dataclass import dataclass

CONNECT_S = 60.0
"""How long a server may take to start, in seconds; some load a model first."""
MOST_UNANSWERED = 3
"""After this many queries in a row without an answer, the server is assumed to hang."""

_Tool: TypeAlias = tuple[str, Mapping[str, JsonValue]]
"""A tool and its arguments, with placeholders not filled in yet."""

_SEARCHES = ("search", "recall", "query", "find", "retrieve")
_QUESTIONS = ("query", "q", "question", "search_query", "text", "search", "keywords", "keyword", "input")
_LIMITS = (
    "limit max_results maxResults top_k topK k top n_results num_results page_size max_facts max_nodes"
).split()


@dataclass(slots=True, kw_only=True)
class _Session:
    """A connection to a server, with the tool to call, its `arguments` and their `schema`.

    After the tool has refused a call, `is_unsure` is set: the server may have changed its tools.
    """

    client: Client
    tool: str = ""
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    is_unsure: bool = True


class McpSource:
    """Implements `Source` over one session, opened on first use and reopened after it has ended."""

    def __init__(
        self, settings: McpSettings, *, backend_id: str, environ: Mapping[str, str], folder: Path
    ) -> None:
        self._settings = settings
        self._id = backend_id
        self._environ = environ
        self._folder = folder
        self._secrets = Secrets(environ.get(ours, "") for ours in settings.env.values())
        self._unanswered = 0
        self._ended_since = ""
        self._ending: asyncio.Task[None] | None = None
        self.provider = settings.preset or (settings.command[0] if settings.command else settings.url)
        self.found: Mapping[str, JsonValue] = {}
        self._session = LazyResource(self._connected, limit_s=CONNECT_S)

    async def ask(self, query: str, limit: int) -> JsonValue:
        """Return the tool's answer: its structured content, else its text, parsed as JSON if possible.

        A broken session is reopened once.

        Raises:
            BackendError: the server cannot be started or reached, or its tool refused.
        """
        words: dict[str, str | int] = {"limit": limit, "query": query}
        return await self._called("search", None, words)

    async def use(self, what: Literal["read", "add"], words: Mapping[str, str]) -> JsonValue:
        """Have it read or add something; None if the settings name no tool for that.

        Raises:
            BackendError: the server cannot be started or reached, or its tool refused.
        """
        settings = self._settings
        tool, arguments = {
            "read": (settings.read_tool, settings.read_arguments),
            "add": (settings.add_tool, settings.add_arguments),
        }[what]
        if not tool:
            return None
        return await self._called(what, (tool, arguments), words) or ""

    async def _called(self, what: str, tool: _Tool | None, words: Mapping[str, str | int]) -> JsonValue:
        for is_last in (what == "add", True):  # never retry an add, which may have succeeded
            try:
                return await self._call(what, tool, words)
            except BackendError:
                raise
            except Exception as error:  # noqa: BLE001 - the session broke; the library may raise anything
                problem = self._lost(error, what)
                if is_last:
                    break
        raise problem  # without the cause, which may contain a secret

    async def close(self) -> None:
        """End the session and the server; idempotent."""
        with contextlib.suppress(Exception):  # errors of a server that is being stopped do not matter
            await self._session.close()

    async def _call(self, what: str, tool: _Tool | None, words: Mapping[str, str | int]) -> JsonValue:
        """Call a tool, by default the search tool, and return its answer."""
        session = await self._session.get()
        if self._ended_since:  # it ended between two calls, so nothing was sent to it
            await self._drop(session)
            session = await self._session.get()
        try:
            if session.is_unsure and not tool:
                await self._choose(session)
            name, given = tool or (session.tool, session.arguments)
            arguments = {key: filled(value, words) for key, value in given.items()}
            result = await session.client.call_tool(
                name, arguments if tool else _fitting(arguments, session.schema)
            )
        except asyncio.CancelledError:
            self._unanswered += 1
            if self._unanswered >= MOST_UNANSWERED:  # it hangs; the next query restarts it
                self._ending = asyncio.create_task(self.close(), name=f"end {self._id}")
            raise
        except MCPError as refused:
            if refused.code == CONNECTION_CLOSED:
                await self._drop(session)
                raise
            session.is_unsure = True
            raise BackendRejected(
                self._id, what, status=str(refused.code), body=self._masked(refused.message)
            ) from None
        except BackendError:
            raise
        except Exception:
            await self._drop(session)
            raise
        self._unanswered = 0
        blocks = (getattr(block, "resource", block) for block in result.content)
        texts = [text for block in blocks if isinstance(text := getattr(block, "text", None), str)]
        said = "\n".join(texts)
        if result.is_error:
            session.is_unsure = True
            raise BackendRejected(self._id, what, status=f"an error of {name}", body=self._masked(said))
        if result.structured_content is not None:
            return self._secrets.hidden_in(_unwrapped(result.structured_content))
        answer = read_blocks(texts) if len(said) < SHORT else await asyncio.to_thread(read_blocks, texts)
        return self._secrets.hidden_in(answer)

    def _masked(self, text: str) -> str:
        """Return a message from the server, without secrets."""
        return redact(self._secrets.hidden(text))

    async def _drop(self, session: _Session) -> None:
        """Close a broken session, unless another one is already open."""
        if self._session.value is session:
            await self.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Session]:
        settings = self._settings
        server = (
            _over_http(settings.url)
            if settings.url
            else guarded_stdio(
                settings.command,
                environ=self._variables(),
                cwd=self._folder,
                owner=self._id,
                on_end=self._note_end,
                tell=self._masked,
            )
        )
        self._ended_since = ""
        async with Client(
            server, client_info=Implementation(name="composable-memory", version="1")
        ) as client:
            session = _Session(client=client)
            await self._choose(session)
            yield session

    async def _choose(self, session: _Session) -> None:
        """Detect which of the server's tools searches, and its arguments."""
        tools = (await session.client.list_tools()).tools
        tool = self._tool(tools)
        given = self._settings.arguments or _arguments_for(tool)
        if not given:
            known = self._masked(", ".join(tool.input_schema.get("properties", {})))
            raise BackendUnavailable(
                self._id,
                f"its tool {tool.name} has no argument for a question ({known})",
                fix="set `arguments`",
            )
        self.found = {"search_tool": tool.name, "arguments": given}
        if not self._settings.read_tool and any(one.name == "open_nodes" for one in tools):
            reads = MCP_PRESETS["server-memory"]  # the tools look like those of the reference server
            self.found |= {key: reads[key] for key in ("read_tool", "read_arguments")}
        session.tool, session.arguments, session.is_unsure = tool.name, given, False
        session.schema = tool.input_schema

    def _tool(self, tools: Sequence[Tool]) -> Tool:
        wanted, arguments = self._settings.search_tool, self._settings.arguments
        if wanted is None:
            likely = sorted((tool for tool in tools if _is_named_as_search(tool)), key=_preference)
            found = [tool for tool in likely if arguments or _arguments_for(tool)]
            if likely and not found:
                name, needed = likely[0].name, self._masked(", ".join(_required(likely[0])))
                raise BackendUnavailable(
                    self._id,
                    f"its tool {name} needs more than a question; it requires: {needed or 'nothing'}",
                    fix="set `arguments`, with `{query}` for the question",
                )
        else:
            found = [tool for tool in tools if tool.name == wanted]
        if not found:
            names = self._masked(", ".join(tool.name for tool in tools)) or "none"
            what = f"has no tool {wanted!r}" if wanted else "has no tool that looks like a search"
            raise BackendUnavailable(
                self._id, f"the server {what}; its tools: {names}", fix="set `search_tool`"
            )
        return found[0]

    def _variables(self) -> dict[str, str]:
        """Return the environment of the command: the usual variables, and those that the settings name."""
        environ = get_default_environment()
        for name, ours in self._settings.env.items():
            if ours not in self._environ:
                raise BackendUnavailable(self._id, f"the variable {ours} is not set", fix="set it")
            environ[name] = self._environ[ours]
        return environ

    def _note_end(self, why: str) -> None:
        self._ended_since = self._ended_since or why

    def _lost(self, error: Exception, operation: str) -> BackendError:
        while isinstance(error, ExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, BackendError):
            return error
        what = self._ended_since or self._masked(str(error)) or type(error).__name__
        return BackendUnavailable(
            self._id,
            f"{self.provider} cannot be queried: {what[:300]}",
            fix="check that it is running",
            operation=operation,
        )


@asynccontextmanager
async def _over_http(url: str) -> AsyncIterator[Any]:
    """Connect to a server over HTTP."""
    timeout = httpx2.Timeout(CONNECT_S, read=300)
    client = await asyncio.to_thread(httpx2.AsyncClient, timeout=timeout)  # imports, reads certificates
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


def _is_named_as_search(tool: Tool) -> bool:
    return any(word in tool.name.lower() for word in _SEARCHES)


def _required(tool: Tool) -> list[str]:
    return [str(name) for name in tool.input_schema.get("required") or ()]


def _preference(tool: Tool) -> tuple[int, int]:
    """Return a sort key for tools: by the verb in the name, then the shorter name first."""
    name = tool.name.lower()
    return next(place for place, word in enumerate(_SEARCHES) if word in name), len(name)


def _arguments_for(tool: Tool) -> dict[str, JsonValue]:
    """Return a tool's arguments as detected from its schema; empty if it requires others."""
    known = tool.input_schema.get("properties") or {}
    required = set(_required(tool))
    question = next((name for name in _QUESTIONS if name in known), None)
    if question is None or not required <= {question, *_LIMITS}:
        return {}
    limit = next((name for name in _LIMITS if name in known), None)
    arguments: dict[str, JsonValue] = {question: "{query}"}
    return arguments | ({limit: "{limit}"} if limit else {})


def _fitting(arguments: Mapping[str, JsonValue], schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Shorten texts and lower numbers in the arguments to what a tool's schema allows."""
    known, fitting = schema.get("properties") or {}, dict(arguments)
    for name, value in arguments.items():
        match known.get(name), value:
            case {"maxLength": int(longest)}, str(text) if longest > 0:
                fitting[name] = within(text, longest)
            case {"maximum": int(largest)}, int(number):
                fitting[name] = min(number, largest)
    return fitting


def _unwrapped(structured: JsonValue) -> JsonValue:
    """Unwrap structured content that some servers put into `result` because it is not an object."""
    match structured:
        case {"result": inner, **rest} if not rest:
            return _parsed(inner) if isinstance(inner, str) else inner
    return structured


def read_blocks(texts: Sequence[str]) -> JsonValue:
    """Return the content of an answer's texts; if each is JSON, as some servers send lists, a list of all.

    A single JSON text among others is the answer; several texts that are not JSON are joined.
    """
    values = [_parsed(text) for text in texts]
    structured = [value for value in values if isinstance(value, (dict, list))]
    if len(values) > 1 and len(structured) == len(values):
        return [one for value in structured for one in (value if isinstance(value, list) else [value])]
    return structured[0] if len(structured) == 1 else _parsed("\n".join(texts))


def _parsed(text: str) -> JsonValue:
    try:
        return parsed(text)
    except ValueError:
        return text
