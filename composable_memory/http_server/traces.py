"""What the log tells of searches, as tools for programs: which there were, and one of them step by step."""

import asyncio

from composable_memory.inspector.logged_searches import TracesRequest, logged_searches
from composable_memory.json_documents import document
from composable_memory.query.waterfall import trace_document
from composable_memory.runtime.memory import Memory
from composable_memory.tools.document import Document, ErrorReply, Reply, ValueReply
from composable_memory.tools.explain import TraceId, is_search_of
from composable_memory.tools.tool import Tool
from composable_memory_ops_logs import OpsLogReader


class TraceRequest(Document):
    """Which search to show."""

    trace_id: TraceId


async def list_traces(memory: Memory, request: TracesRequest) -> ValueReply:
    """List the searches of this memory that the log still has.

    Raises:
        InvalidArgument: the time is none.
        OpsLogError: the log cannot be read.
    """
    rows = await logged_searches(memory, request)
    return ValueReply({"traces": [document(one, failed=sorted(one.failed), hidden=None) for one in rows]})


async def show_trace(memory: Memory, request: TraceRequest) -> Reply:
    """Show the events of a search of this memory, and its time line, as `cmem logs show --json` does.

    Raises:
        OpsLogError: the beginning of the trace id is not unique, or the log cannot be read.
    """
    await memory.ops_log.flush()
    events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).trace, request.trace_id)
    if not is_search_of(memory, events):
        return ErrorReply(error=f"no search of this memory has the trace id {request.trace_id!r}")
    return ValueReply(trace_document(events))


TRACE_TOOLS = (
    Tool(
        name="traces",
        title="Searches",
        description="List searches from the log, with how long they took and what they lacked.",
        run=list_traces,
        quotes=True,
    ),
    Tool(
        name="trace",
        title="A search step by step",
        description="Show the events of one search and its time line.",
        run=show_trace,
        quotes=True,
    ),
)
