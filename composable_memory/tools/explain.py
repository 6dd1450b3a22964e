"""How an answer came about, and how good it was: what an agent asks and says of a search, by its trace."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from composable_memory.citations import format_place, read_citation
from composable_memory.json_documents import document
from composable_memory.query.waterfall import waterfall
from composable_memory.tools.document import Document, ErrorReply, Reply, ValueReply, filled
from composable_memory_ops_logs import OpsEvent, OpsLogReader

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

MOST_DROPPED = 20
AGENT = "agent"
"""Who judges here."""

TraceId = Annotated[str, Field(min_length=4, description="As a search gave it")]


class MemoryExplainRequest(Document):
    """Which search to explain, and which note alone."""

    trace_id: TraceId
    path: str | None = Field(default=None, description="This note alone")


class MemoryFeedbackRequest(Document):
    """How good a result was, or what was answered, from which it is told which results it quotes."""

    trace_id: TraceId
    result: str | None = Field(
        default=None, coerce_numbers_to_str=True, description="Its place from 1, its path, or its citation"
    )
    relevance: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=1.0, description="1 answers the question, 0 does not"
    )
    used: bool = Field(default=False, description="You based your answer on it")
    answer: str | None = Field(default=None, description="Instead of a result: your answer")
    session_key: SkipJsonSchema[str | None] = None

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if (self.result is None) == (self.answer is None):
            raise ValueError("give a result or an answer, and not both")
        return self


async def memory_explain(memory: "Memory", request: MemoryExplainRequest) -> Reply:
    """Tell from the log how a search of this memory came to its answer.

    Raises:
        OpsLogError: the beginning of the trace id is not unique, or the log cannot be read.
    """
    await memory.ops_log.flush()
    events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).trace, request.trace_id)
    if not _is_search_of(memory, events):
        return ErrorReply(error=f"no search of this memory has the trace id {request.trace_id!r}")
    drawn = waterfall(events)
    cited = read_citation(request.path or "")
    path = cited.path if cited else request.path
    dropped = _of(path, drawn.dropped)
    told: dict[str, JsonValue] = document(
        trace_id=drawn.trace_id,
        query=drawn.query,
        total_ms=round(drawn.total_ms, 1),
        results=_of(path, drawn.results),
        dropped=dropped[:MOST_DROPPED],
    )
    if path is not None:
        told["found"] = [*_found(path, events)]
        if not told["found"]:
            told["warning"] = f"no backend returned {path!r} for this question"
    more = len(dropped) - MOST_DROPPED
    told |= filled(document(more_dropped=max(more, 0) or None, degraded=drawn.degraded))
    return ValueReply(told | {"backends": [*_backends(events)]})


async def memory_feedback(memory: "Memory", request: MemoryFeedbackRequest) -> ValueReply:
    """Keep how good a result was, or which results an answer quotes.

    Raises:
        FeedbackError: there is no such search or result of this memory.
        OpsLogError: the beginning of the trace id is not unique, or the log cannot be read.
    """
    if request.answer is not None:
        quoted = memory.record_answer(request.trace_id, request.answer, session_key=request.session_key)
        return ValueReply({"quoted": quoted})
    await memory.ops_log.flush()
    one = await memory.learning.judging.judge(
        request.trace_id, request.result or "", relevance=request.relevance, used=request.used, by=AGENT
    )
    return ValueReply(
        document(trace_id=one.trace_id, result=format_place(one), rank=one.rank, relevance=one.relevance)
    )


def _is_search_of(memory: "Memory", events: Sequence[OpsEvent]) -> bool:
    """Return whether a trace is that of searches of this memory alone: others may use the same log."""
    asked = [_detail(one).get("memory") for one in events if one.action == "query.start"]
    return bool(asked) and all(one == memory.context.memory_id for one in asked)


def _detail(event: OpsEvent) -> Mapping[str, object]:
    return event.detail if isinstance(event.detail, Mapping) else {}


def _of(path: str | None, rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the rows of a note, or all, without the texts of results: these are told by the search."""
    wanted = [row for row in rows if path is None or row.get("path") == path]
    return [
        {name: one for name, one in row.items() if name != "snippetPreview" and one not in (None, [], 0.0)}
        for row in wanted
    ]


def _found(path: str, events: Sequence[OpsEvent]) -> Iterator[JsonValue]:
    """Yield where the backends had a note in their lists, from 1, also below what was returned."""
    for event in events:
        rows = _detail(event).get("results") if event.action == "query.backend_result" else None
        for rank, row in enumerate(rows if isinstance(rows, list) else (), 1):
            if isinstance(row, Mapping) and row.get("path") == path:
                yield document(
                    backend=event.backend, rank=rank, score=row.get("score"), start_line=row.get("startLine")
                )


def _backends(events: Sequence[OpsEvent]) -> Iterator[JsonValue]:
    for event in events:
        if event.action == "query.backend_result":
            told = _detail(event)
            yield filled(
                document(
                    id=event.backend,
                    took_ms=round(event.duration_ms or 0.0, 1),
                    weight=told.get("weight"),
                    result_count=told.get("resultCount"),
                    skipped=told.get("skipped"),
                    error=told.get("error"),
                )
            )
