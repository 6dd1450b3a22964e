"""The memory as an MCP server on stdin and stdout: tools for agents to search, pack and read it."""

import asyncio
import difflib
import inspect
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, CallToolResult, ErrorData, JSONRPCError, TextContent, ToolAnnotations
from pydantic import AwareDatetime, Field, ValidationError
from pydantic.alias_generators import to_camel

from composable_memory import __version__, tools
from composable_memory.errors import ComposableMemoryError
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.tools.tool_documents import (
    Document,
    LineNumber,
    MemoryContextPackReply,
    MemoryContextPackRequest,
    MemoryGetReply,
    MemoryGetRequest,
    MemorySearchReply,
    MemorySearchRequest,
    MemoryStatusReply,
    MemoryStatusRequest,
    PackSize,
    QueryText,
    ResultCount,
    Score,
)
from composable_memory.types import MemorySource
from composable_memory_ops_logs.quick_dataclass import dataclass

INSTRUCTIONS = """\
This server holds what was written down earlier: notes, decisions, people, preferences, to-dos, and dates.
Before you answer a question about any of these, or about work done before, call memory_search with the
question, or memory_context for one text of the best that is known, as long as you choose.
Where a snippet is not enough, read on with memory_get: it takes the path and the lines of a result.
If you are still unsure after searching, say that you looked and did not find it.
When a result has a citation, name it as `Source: <citation>` where that helps the reader; when results carry
none, do not mention paths or lines unless asked. `degraded` names what is missing from an answer.
"""

READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The open memory, or why it could not be opened, and the conversation that it serves."""

    memory: Memory | None
    problem: str
    session_key: str | None


ToolContext: TypeAlias = Context[Service]

Since = Annotated[
    str | None,
    Field(description="Only notes from then on: 2026-05-03, 2026-05, yesterday, last week, or 7d."),
]
Until = Annotated[str | None, Field(description="Only notes until the end of then.")]
PathGlob = Annotated[
    str | None, Field(description="Only notes in this folder or with this path; * and ** match any part.")
]
Tag = Annotated[str | None, Field(description="Only notes with this tag.")]
Source = Annotated[MemorySource | None, Field(description="Only notes (memory), or only transcripts.")]
Type = Annotated[str | None, Field(description="Only note, transcript or fact, or files ending so, as md.")]
Now = Annotated[
    AwareDatetime | None,
    Field(description='The time that "yesterday" is counted from, with its zone; default: the present.'),
]
Weak = Annotated[
    bool | None, Field(description="Also return the nearest passages where none matches the question well.")
]


def serve(workspace: Path, state_dir: Path | None, *, session_key: str | None = None) -> None:
    """Serve the memory of `workspace` on stdin and stdout until the client goes.

    Ctrl-C ends the process at once, like a signal to terminate.
    """
    # The SDK waits for a line in a thread that nothing interrupts: Python's own handling would hang there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    build_server(workspace, state_dir, session_key=session_key).run("stdio")


def build_server(
    workspace: Path, state_dir: Path | None, *, session_key: str | None = None
) -> MCPServer[Service]:
    """Return the server; it opens the memory when it starts, and brings the index up to date meanwhile.

    A memory that cannot be opened does not keep the server from starting: its tools then say why.
    """

    @asynccontextmanager
    async def lifespan(_: MCPServer[Service]) -> AsyncIterator[Service]:
        async with AsyncExitStack() as stack:
            memory, problem = None, ""
            try:
                memory = await stack.enter_async_context(open_memory(workspace, state_dir))
                await stack.enter_async_context(_syncing(memory))
            except ComposableMemoryError as error:
                problem = str(error)
            yield Service(memory=memory, problem=problem, session_key=session_key)

    return _Server(
        "composable-memory",
        title="Composable Memory",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        lifespan=lifespan,
        tools=[
            _StrictTool.of(memory_search, "Search memory"),
            _StrictTool.of(memory_context, "Pack memory"),
            _StrictTool.of(memory_get, "Read a note"),
            _StrictTool.of(memory_status, "Memory status"),
        ],
    )


async def memory_search(
    ctx: ToolContext,
    query: Annotated[QueryText, Field(description="What to look for, as a question or in key words.")],
    max_results: Annotated[
        ResultCount | None,
        Field(validation_alias="maxResults", description="How many passages at most."),
    ] = None,
    min_score: Annotated[
        Score | None,
        Field(validation_alias="minScore", description="Leave out passages that score lower, from 0 to 1."),
    ] = None,
    weak: Weak = None,
    since: Since = None,
    until: Until = None,
    path: PathGlob = None,
    tag: Tag = None,
    source: Source = None,
    type: Type = None,  # noqa: A002 - the argument's name
    now: Now = None,
) -> Annotated[CallToolResult, MemorySearchReply]:
    """Search the notes for earlier work, decisions, dates, people, preferences and to-dos.

    Returns the best passages with path, lines and score, best first. A query may ask for a time, as in "last
    week" or "in April 2026", and hold filters: `path:projects`, `tag:work`, `after:2026-04-01`,
    `before:2026-05`, `"exact phrase"`, `-word`.
    """
    service = ctx.request_context.lifespan_context
    if service.memory is None:
        return _result(tools.unavailable_search(service.problem))
    request = MemorySearchRequest(
        query=query,
        max_results=max_results,
        min_score=min_score,
        weak=weak,
        session_key=service.session_key,
        **_filters(since, until, path, tag, source, type, now),
    )
    return _result(await tools.memory_search(service.memory, request))


async def memory_context(
    ctx: ToolContext,
    query: Annotated[QueryText, Field(description="What the text should be about, as a question.")],
    max_tokens: Annotated[
        PackSize | None,
        Field(validation_alias="maxTokens", description="About how many tokens at most."),
    ] = None,
    max_chars: Annotated[
        PackSize | None,
        Field(
            validation_alias="maxChars",
            description="How many characters at most, in place of tokens; 2000 if neither is given.",
        ),
    ] = None,
    weak: Weak = None,
    since: Since = None,
    until: Until = None,
    path: PathGlob = None,
    tag: Tag = None,
    source: Source = None,
    type: Type = None,  # noqa: A002 - the argument's name
    now: Now = None,
) -> Annotated[CallToolResult, MemoryContextPackReply]:
    """Pack the best notes and facts about a question into one text, with their sources.

    Facts say since when and until when they hold.
    """
    service = ctx.request_context.lifespan_context
    if service.memory is None:
        return _result(tools.unavailable_pack(service.problem))
    request = MemoryContextPackRequest(
        query=query,
        max_chars=None if max_tokens else max_chars,
        max_tokens=max_tokens,
        weak=weak,
        session_key=service.session_key,
        **_filters(since, until, path, tag, source, type, now),
    )
    return _result(await tools.memory_context_pack(service.memory, request))


async def memory_get(
    ctx: ToolContext,
    path: Annotated[
        str, Field(description="The path of a note, or a citation with lines, as memory_search gives it.")
    ],
    from_line: Annotated[
        LineNumber | None,
        Field(validation_alias="from", description="The first line to read, counted from 1."),
    ] = None,
    lines: Annotated[LineNumber | None, Field(description="How many lines to read.")] = None,
) -> Annotated[CallToolResult, MemoryGetReply]:
    """Read a note, or some lines of it, after memory_search has found it."""
    service = ctx.request_context.lifespan_context
    if service.memory is None:
        return _result(tools.unreadable(path, "MEMORY_READ_FAILED", service.problem))
    request = MemoryGetRequest(path=path, from_=from_line, lines=lines)
    return _result(await tools.memory_get(service.memory, request))


async def memory_status(
    ctx: ToolContext,
    deep: Annotated[
        bool, Field(description="Also try an embedding, the vector engine and a search.")
    ] = False,
) -> Annotated[CallToolResult, MemoryStatusReply]:
    """Report what is indexed, which backends serve, and what does not work."""
    service = ctx.request_context.lifespan_context
    if service.memory is None:
        raise ToolError(service.problem)
    return _result(await tools.memory_status(service.memory, MemoryStatusRequest(deep=deep)))


@asynccontextmanager
async def _syncing(memory: Memory) -> AsyncIterator[None]:
    """Bring the index up to date behind the requests; leaving stops it."""
    task = asyncio.create_task(_sync(memory))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _sync(memory: Memory) -> None:
    try:
        await memory.sync(reason="boot")
    except ComposableMemoryError as error:
        log.warning("the index could not be brought up to date: %s", error)
    else:
        if warning := tools.why_empty(memory):
            log.warning("%s", warning)


def _filters(
    since: str | None,
    until: str | None,
    path: str | None,
    tag: str | None,
    source: MemorySource | None,
    type_: str | None,
    now: datetime | None,
) -> dict[str, Any]:
    """Return the fields of a request that filter."""
    lists = {"paths": path, "tags": tag, "sources": source, "types": type_}
    return {"since": since, "until": until, "now": now} | {
        name: (value,) for name, value in lists.items() if value
    }


def _result(document: Document) -> CallToolResult:
    """Return the document as structured content, and as text for clients that know only text.

    A note that cannot be read is an error of the tool, and so is a filter that is none.
    """
    text = TextContent(type="text", text=document.model_dump_json(by_alias=True, exclude_none=True))
    failed = isinstance(document, MemoryGetReply) and document.status == "error"
    if isinstance(document, MemorySearchReply | MemoryContextPackReply):
        failed = document.error is not None and not document.unavailable
    return CallToolResult(content=[text], structured_content=document.as_json(), is_error=failed)


class _StrictTool(Tool):
    """A tool that refuses arguments that it does not know, in plain words."""

    @classmethod
    def of(cls, function: Callable[..., Awaitable[CallToolResult]], title: str) -> Tool:
        tool = cls.from_function(
            function, title=title, description=inspect.getdoc(function), annotations=READ_ONLY
        )
        tool.parameters["additionalProperties"] = False
        return tool

    async def run(
        self,
        arguments: dict[str, Any],
        context: Context[Any, Any],
        convert_result: bool = False,
    ) -> object:
        known = list(self.parameters["properties"])
        for name in arguments.keys() - known:
            near = difflib.get_close_matches(to_camel(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{self.name} takes {', '.join(known)}"
            raise ToolError(f"unknown argument {name!r}; {hint}")
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_told(error.__cause__)) from error.__cause__
            raise


def _told(error: ValidationError) -> str:
    """Return which arguments are wrong and why, without the prose of the library that found out."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    )


class _Server(MCPServer[Service]):
    """The server of the SDK, which answers also a request that the SDK cannot read."""

    async def run_stdio_async(self) -> None:
        async with stdio_server() as (incoming, outgoing):
            await self._lowlevel_server.run(
                _Answered(incoming, outgoing),
                outgoing,
                self._lowlevel_server.create_initialization_options(),
            )


class _Answered:
    """The messages of a client; a request that cannot be read is answered with an error and left out."""

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
        return await self._readable(self._incoming.__anext__)

    async def receive(self) -> SessionMessage | Exception:
        return await self._readable(self._incoming.receive)

    async def _readable(
        self, take: Callable[[], Awaitable[SessionMessage | Exception]]
    ) -> SessionMessage | Exception:
        while isinstance(message := await take(), ValidationError):
            request_id = _request_id(message)
            if request_id is None:  # nobody waits for an answer
                break
            problem = "the request cannot be read: it has to be JSON-RPC 2.0, in valid Unicode"
            error = ErrorData(code=PARSE_ERROR, message=problem)
            await self._outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))
        return message


def _request_id(error: ValidationError) -> str | int | None:
    """Return the id of a request that could not be read, as far as it can be found in what came in."""
    for problem in error.errors(include_url=False):
        request = problem["input"]
        if problem["type"] == "json_invalid":
            # Unlike the parser of the SDK this one takes half a surrogate pair, written as an escape.
            with suppress(ValueError):
                request = json.loads(request)
        found = request.get("id") if isinstance(request, dict) and "method" in request else None
        if isinstance(found, str | int):
            return found
    return None
