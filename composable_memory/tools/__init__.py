"""What an agent calls: to search, to pack, to read, and for the status; typed functions with JSON in and out.

None of them raises for a memory that fails: the reply then says what is wrong and what to do.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, TypeVar

from composable_memory.citations import CitationMode, cite, read_citation, with_source_line
from composable_memory.errors import ComposableMemoryError, InvalidArgument, MemoryPathError
from composable_memory.paths import NOTES, no_such_note, notes_called
from composable_memory.query.calibration import NOISE
from composable_memory.query.context_pack import PackBudget, estimate_tokens
from composable_memory.tools.tool_documents import (
    DeepProbe,
    Document,
    FilterRequest,
    MemoryContextPackReply,
    MemoryContextPackRequest,
    MemoryGetReply,
    MemoryGetRequest,
    MemorySearchReply,
    MemorySearchRequest,
    MemoryStatusReply,
    MemoryStatusRequest,
    OpsLogTrouble,
    PackedSource,
    ProviderStatus,
    ReadErrorCode,
    SearchHit,
    SearchProbe,
)
from composable_memory.types import (
    Attribution,
    DroppedCandidate,
    MemoryFileSlice,
    MemorySearchResult,
    QueryResponse,
)
from composable_memory_ops_logs import QueryDelivered, trace

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

__all__ = [
    "CitationMode",
    "DeepProbe",
    "Document",
    "MemoryContextPackReply",
    "MemoryContextPackRequest",
    "MemoryGetReply",
    "MemoryGetRequest",
    "MemorySearchReply",
    "MemorySearchRequest",
    "MemoryStatusReply",
    "MemoryStatusRequest",
    "PackedSource",
    "ProviderStatus",
    "SearchHit",
    "SearchProbe",
    "cite",
    "memory_context_pack",
    "memory_get",
    "memory_search",
    "memory_status",
    "query_cited",
    "unavailable_pack",
    "unavailable_search",
    "unreadable",
    "why_empty",
    "why_unavailable",
    "why_weak",
]

ReplyT = TypeVar("ReplyT", MemorySearchReply, MemoryContextPackReply)

PROBE_QUERY = "ping"


async def memory_search(memory: "Memory", request: MemorySearchRequest) -> MemorySearchReply:
    """Search; where the settings want citations, each snippet ends with its own."""
    first = _first_index(memory)
    try:
        response = await query_cited(memory, request)
    except InvalidArgument as error:
        return MemorySearchReply(results=(), error=str(error))
    except ComposableMemoryError as error:
        return unavailable_search(str(error))
    failure = why_unavailable(response)
    if failure is not None:
        known = {"trace_id": response.trace_id, "degraded": response.degraded}
        return unavailable_search(failure).model_copy(update=known)
    status = memory.status()
    reply = MemorySearchReply(
        results=tuple(SearchHit.of(with_source_line(one), weak=response.weak) for one in response.results),
        provider=status.provider,
        model=status.model,
        fallback=status.fallback,
        citations=memory.settings.memory.citations,
        mode=status.search_mode,
        trace_id=response.trace_id,
        degraded=response.degraded,
    )
    return _explained(memory, reply, response, first)


async def memory_context_pack(memory: "Memory", request: MemoryContextPackRequest) -> MemoryContextPackReply:
    """Pack the best results of all memories into one text under a budget.

    Where the settings want no citations, the pack does not say where facts are from.
    """
    query = memory.settings.memory.query
    search = MemorySearchRequest(
        **{name: getattr(request, name) for name in FilterRequest.model_fields},
        max_results=request.max_results or max(query.depth, query.max_results),
        weak=request.weak,
        session_key=request.session_key,
        backends=request.backends,
    )
    first = _first_index(memory)
    try:
        response = await query_cited(memory, search)
    except InvalidArgument as error:
        return MemoryContextPackReply(pack="", error=str(error))
    except ComposableMemoryError as error:
        return unavailable_pack(str(error))
    failure = why_unavailable(response)
    if failure is not None:
        known = {"trace_id": response.trace_id, "degraded": response.degraded}
        return unavailable_pack(failure).model_copy(update=known)
    shown = tuple(one if one.citation else replace(one, origin=None) for one in response.results)
    budget = PackBudget.of(request.max_chars, request.max_tokens)
    with trace(session_key=request.session_key):
        packed = memory.manager.pack(replace(response, results=shown), budget)
    reply = MemoryContextPackReply(
        pack=packed.pack,
        sources=tuple(map(PackedSource.of, packed.sources)),
        tokens=estimate_tokens(packed.pack),
        trace_id=packed.trace_id,
        degraded=response.degraded,
    )
    return _explained(memory, reply, response, first)


def why_empty(memory: "Memory") -> str | None:
    """Return that there are no notes, and where they are looked for; None if there are some."""
    status = memory.status()
    if status.files != 0 or status.dirty:
        return None
    return f"there are no notes in {memory.workspace_dir}; notes are {NOTES}"


def why_weak(response: QueryResponse) -> str | None:
    """Return that nothing matched well, and how many passages were left out for it; None if something did."""
    if not response.weak:
        return None
    left_out = sum(one.reason == "weak" for one in response.dropped)
    return "nothing matched well" + (f", {left_out} nearest left out" if left_out else "")


def _first_index(memory: "Memory") -> str | None:
    """Return the backend whose index of the notes has never been filled; None if it has, or keeps none."""
    status = memory.status()
    return status.backend if status.custom.get("lastSync", "") is None else None


def _is_first_indexing(memory: "Memory", response: QueryResponse, first: str | None) -> bool:
    """Return whether an answer came before the first sync, begun but not ended, had indexed the notes."""
    is_behind = any(one.code == "stale" and one.backend_id == first for one in response.degraded)
    return is_behind and "lastSyncError" not in memory.status().custom


def _explained(memory: "Memory", reply: ReplyT, response: QueryResponse, first: str | None) -> ReplyT:
    """Return a reply that says what to do where nothing was found, or nothing that matches well."""
    if not response.results and _is_first_indexing(memory, response, first):
        told = {"warning": "the notes are being indexed for the first time"}
        return reply.model_copy(update=told | {"action": "Search again in a few seconds."})
    if (weak := why_weak(response)) is not None:
        action = "Ask with other words, or again with `weak` to see the nearest passages."
        if response.results:
            action = "Take these passages for what lies nearest, not for an answer."
        return reply.model_copy(update={"weak": True, "warning": weak, "action": action})
    warning = None if response.results else why_empty(memory)
    if warning is None:
        return reply
    action = "Check that the memory was opened for the right folder (`--workspace`)."
    return reply.model_copy(update={"warning": warning, "action": action})


async def memory_get(memory: "Memory", request: MemoryGetRequest) -> MemoryGetReply:
    """Read a memory file or some lines of it, named by its path or by a citation.

    A file whose name looks like a citation goes before what is cited.
    """
    try:
        part = await _read(memory, request)
        if not part.text and await _is_missing(memory, part.path):
            error = await asyncio.to_thread(no_such_note, part.path, memory.workspace_dir)
            return MemoryGetReply(
                text="", path=part.path, status="error", code="MEMORY_NOT_FOUND", error=error
            )
    except MemoryPathError as error:
        workspace, is_all_notes = memory.workspace_dir, "**" in error.allowed
        meant = await asyncio.to_thread(notes_called, error.path, workspace, everywhere=is_all_notes)
        return unreadable(request.path, "MEMORY_PATH_NOT_ALLOWED", f"{error}{meant}")
    except (ComposableMemoryError, OSError) as error:
        return unreadable(request.path, "MEMORY_READ_FAILED", str(error))
    return MemoryGetReply(text=part.text, path=part.path)


async def _read(memory: "Memory", request: MemoryGetRequest) -> MemoryFileSlice:
    """Read what a request names; where that is no file but may be a citation, what it cites."""
    first, lines, cited = request.from_, request.lines, read_citation(request.path)
    try:
        part = await memory.read_file(request.path, from_line=first, lines=lines)
        if part.text or cited is None:
            return part
    except MemoryPathError:
        if cited is None:
            raise
    if first is None and cited.start_line:
        first = cited.start_line
        lines = lines or cited.end_line - cited.start_line + 1
    return await memory.read_file(cited.path, from_line=first, lines=lines)


async def _is_missing(memory: "Memory", path: str) -> bool:
    """Return whether there is no such file; one without text or without the lines asked for exists."""
    if await asyncio.to_thread((memory.workspace_dir / path).exists):
        return False
    return not (await memory.manager.read_file(path)).text


async def memory_status(memory: "Memory", request: MemoryStatusRequest) -> MemoryStatusReply:
    """Report on the memory; `deep` embeds a word, searches, and looks for damage in what is stored."""
    probe = await _probe(memory) if request.deep else None
    return MemoryStatusReply(
        status=ProviderStatus.of(memory.status()),
        backends={name: ProviderStatus.of(status) for name, status in memory.backend_statuses().items()},
        unavailable=tuple(memory.unavailable()),
        ops_log=await _log_trouble(memory),
        probe=probe,
    )


async def _log_trouble(memory: "Memory") -> OpsLogTrouble | None:
    """Return what the log could not write, with all that was logged until now; None where it wrote all."""
    await memory.ops_log.flush()
    stats = memory.ops_log.stats
    if stats.last_error is None:
        return None
    return OpsLogTrouble(written=stats.written, dropped=stats.dropped, last_error=stats.last_error)


async def query_cited(memory: "Memory", request: MemorySearchRequest) -> QueryResponse:
    """Ask all memories; the results carry citations where the settings want them.

    Where none matches the question well, they are in `dropped`, unless the request wants them all the same.

    Raises:
        ConfigError: a named backend does not exist.
        InvalidArgument: a filter is none.
        BackendUnavailable: the memory is closed.
    """
    with trace(session_key=request.session_key):
        response = await memory.query(
            request.query,
            max_results=request.max_results,
            min_score=request.min_score,
            session_key=request.session_key,
            backends=request.backends,
            filters=request.filters(memory.manager.asked_at()),
            now=request.now,
        )
        query = memory.settings.memory.query
        wants_weak = query.show_weak if request.weak is None else request.weak
        good = [True] * len(response.results)
        if not wants_weak and response.weak:
            good = [False] * len(response.results)
            response = _only(response, good, why="nothing matched well")
        elif not (wants_weak or response.narrowed) and request.min_score is None and query.min_score == 0.0:
            good = [*map(_is_no_noise, response.results, response.attributions)]
            response = _only(response, good, why="hardly matches")
        paths = tuple(result.path for result in response.results)
        hidden = [rank for rank, is_good in enumerate(good, 1) if not is_good]
        memory.ops_log.emit(QueryDelivered(result_count=len(paths), paths=paths, hidden=hidden or None))
    cited = cite(response.results, memory.settings.memory.citations, request.session_key)
    return replace(response, results=cited)


def _is_no_noise(result: MemorySearchResult, how: Attribution) -> bool:
    """Return whether a result has something of the question; scores that only order a list cannot tell."""
    is_absolute = how.calibrated_score == how.raw_score
    return result.exact or not is_absolute or how.calibrated_score >= NOISE


def _only(response: QueryResponse, good: Sequence[bool], *, why: str) -> QueryResponse:
    """Return a response with those of its results that are good; the others are dropped as weak."""
    if all(good):
        return response
    pairs = [*zip(response.results, response.attributions, strict=True)]
    dropped = [
        DroppedCandidate(backend_id=how.backend_id, result=one, reason="weak", detail=why)
        for one, how in compress(pairs, map(not_, good))
    ]
    kept = [*compress(pairs, good)]
    return replace(
        response,
        results=tuple(one for one, _ in kept),
        attributions=tuple(how for _, how in kept),
        dropped=(*dropped, *response.dropped),
    )


def why_unavailable(response: QueryResponse) -> str | None:
    """Return why no memory could answer; None if one did, or if none was meant to."""
    if not response.answers and not response.degraded:
        return None
    meant = [answer for answer in response.answers if answer.skipped in (None, "breaker-open")]
    answered = any(answer.skipped is None and answer.error is None for answer in meant)
    if answered or (response.answers and not meant):
        return None
    return "; ".join(f"{one.backend_id}: {one.reason}" for one in response.degraded)


def unavailable_search(error: str) -> MemorySearchReply:
    """Return the reply of a memory that cannot be searched, with what to do about it."""
    if re.search(r"quota|\b429\b", error, re.IGNORECASE):
        warning = "Memory search does not work: the quota of the embedding provider is used up."
        action = "Top up the quota or choose another embedding provider, then search again."
    else:
        warning = "Memory search does not work: a backend or its embedding provider failed."
        action = "Run `cmem status --deep`, correct the settings or the service it names, then search again."
    return MemorySearchReply(
        results=(),
        disabled=True,
        unavailable=True,
        error=error or "memory search is unavailable",
        warning=warning,
        action=action,
    )


def unavailable_pack(error: str) -> MemoryContextPackReply:
    """Return the reply of a memory of which nothing can be packed, with what to do about it."""
    reply = unavailable_search(error)
    return MemoryContextPackReply(
        pack="", unavailable=True, error=reply.error, warning=reply.warning, action=reply.action
    )


def unreadable(path: str, code: ReadErrorCode, error: str) -> MemoryGetReply:
    """Return the reply for a file that cannot be read."""
    return MemoryGetReply(text="", path=path, disabled=True, status="error", code=code, error=error)


async def _probe(memory: "Memory") -> DeepProbe:
    return DeepProbe(
        embedding=await memory.probe_embedding_availability(),
        vector=await memory.probe_vector_availability(),
        search=await _probe_search(memory),
        damage={backend_id: tuple(found) for backend_id, found in (await memory.check()).items()},
    )


async def _probe_search(memory: "Memory") -> SearchProbe:
    try:
        response = await memory.query(PROBE_QUERY)
    except ComposableMemoryError as error:
        return SearchProbe(ok=False, error=str(error))
    failure = why_unavailable(response)
    return SearchProbe(
        ok=failure is None,
        result_count=len(response.results),
        took_ms=round(response.latency_ms, 3),
        trace_id=response.trace_id,
        degraded=response.degraded,
        error=failure,
    )
