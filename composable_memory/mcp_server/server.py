"""The MCP server: it opens the memory, lists the tools and calls them."""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ListedTool

from composable_memory import __version__
from composable_memory.errors import ComposableMemoryError
from composable_memory.mcp_server.stdio import serve_stdio
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.tools import Document, ErrorReply, why_empty
from composable_memory.tools.catalogue import TOOLS
from composable_memory.tools.tool import Tool
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

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The open memory, or why it could not be opened, and the conversation that it serves."""

    memory: Memory | None
    problem: str
    session_key: str | None


Asked: TypeAlias = ServerRequestContext[Service]


def serve(workspace: Path, state_dir: Path | None, *, session_key: str | None = None) -> None:
    """Serve the memory of `workspace` on stdin and stdout until the client goes.

    Ctrl-C ends the process at once, like a signal to terminate.
    """
    # The SDK waits for a line in a thread that nothing interrupts: Python's own handling would hang there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(serve_stdio(build_server(workspace, state_dir, session_key=session_key)))


def build_server(
    workspace: Path, state_dir: Path | None, *, session_key: str | None = None
) -> Server[Service]:
    """Return the server; it opens the memory when it starts, and brings the index up to date meanwhile.

    A memory that cannot be opened does not keep the server from starting: its tools then say why.
    """

    @asynccontextmanager
    async def lifespan(_: Server[Service]) -> AsyncIterator[Service]:
        async with AsyncExitStack() as stack:
            memory, problem = None, ""
            try:
                memory = await stack.enter_async_context(open_memory(workspace, state_dir))
                await stack.enter_async_context(_syncing(memory))
            except ComposableMemoryError as error:
                problem = str(error)
            yield Service(memory=memory, problem=problem, session_key=session_key)

    tools = {tool.name: tool for tool in TOOLS}
    listed = ListToolsResult(tools=[_listed(tool) for tool in TOOLS])

    async def list_tools(_: Asked, __: PaginatedRequestParams | None) -> ListToolsResult:
        return listed

    async def call_tool(ctx: Asked, params: CallToolRequestParams) -> CallToolResult:
        tool, arguments = tools.get(params.name), params.arguments or {}
        if tool is None:
            return _result(
                ErrorReply(error=f"there is no tool {params.name!r}; there are {', '.join(tools)}")
            )
        if problem := tool.problem_with(arguments):
            return _result(ErrorReply(error=problem))
        service = ctx.lifespan_context
        if service.memory is None:
            return _result(tool.unavailable(service.problem))
        return _result(await tool.call(service.memory, arguments, session_key=service.session_key))

    return Server(
        "composable-memory",
        title="Composable Memory",
        instructions=INSTRUCTIONS,
        version=__version__,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _listed(tool: Tool) -> ListedTool:
    annotations = ToolAnnotations(
        read_only_hint=not tool.writes,
        destructive_hint=tool.destroys,
        idempotent_hint=not tool.writes,
        open_world_hint=False,
    )
    return ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=annotations,
    )


def _result(document: Document) -> CallToolResult:
    """Return the document as JSON in text, which every client gives to its model, and nothing twice."""
    text = json.dumps(document.as_json(), ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=document.is_error)


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
        if warning := why_empty(memory):
            log.warning("%s", warning)
