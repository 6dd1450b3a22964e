"""Searching: the best passages of all memories for a question, or why there are none."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from operator import not_
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BeforeValidator, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import to_jsonable_python

from composable_memory.citations import CitationMode, with_source_line
from composable_memory.errors import ComposableMemoryError, InvalidArgument
from composable_memory.paths import FOREIGN, NOTE_SUFFIXES, NOTES
from composable_memory.query.calibration import NOISE
from composable_memory.query.filters import NAMED_TYPES, path_matches, read_filters
from composable_memory.retain.retained_lines import MEMORY_TYPES
from composable_memory.tools.document import Document, FilterRequest
from composable_memory.types import (
    LEGS,
    Attribution,
    Degradation,
    DroppedCandidate,
    FallbackStatus,
    MemorySearchResult,
    MemorySource,
    Origin,
    QueryResponse,
    SupportingFact,
)
from composable_memory_ops_logs import QueryDelivered, trace

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

ReplyT = TypeVar("ReplyT", bound=Document)

MOST_NEAR = 3
OTHER_ENDINGS = frozenset({"jsonl", "pdf", "docx", "epub", "html", "htm", "xhtml"})
"""File types searched beside notes: transcripts and documents."""


def _json_or_none(value: Mapping[str, object] | None) -> object:
    """Convert a backend's metadata of a result to JSON, whatever it contains; None if empty."""
    return to_jsonable_python(dict(value), fallback=str, inf_nan_mode="null") if value else None


def without_legs(metadata: Mapping[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    """Return the metadata of a result without the scores of the legs; None if empty."""
    return {name: one for name, one in (metadata or {}).items() if name not in LEGS} or None


Metadata = Annotated[dict[str, JsonValue] | None, BeforeValidator(_json_or_none)]


class MemorySearchRequest(FilterRequest):
    """What to search for; defaults come from the settings.

    `weak` asks for the nearest passages even if none matches the question well.
    """

    max_results: Annotated[int, Field(ge=1)] | None = None
    min_score: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    weak: bool | None = Field(default=None, description="Also the nearest, if none matches well")
    session_key: SkipJsonSchema[str | None] = None
    backends: SkipJsonSchema[tuple[str, ...] | None] = None


class PackedSource(Document):
    """A result without its text: lines are 1-based and inclusive, 0 for none; the score is in [0, 1]."""

    path: str
    start_line: int
    end_line: int
    score: float
    source: MemorySource
    citation: str | None = None
    source_backend: str | None = None


class SearchHit(PackedSource):
    """One passage or fact with its text.

    `origin` is where a fact was taken from, `metadata` what else its backend knows. `start_char` is set for a
    piece of a long line: its 0-based offset in the line. `highlights` are the parts of the snippet that match
    the query, as `[begin, end]` offsets. `facts` are those about it, with the time in which they hold.
    `title` is that of the note, `headings` are those above the passage. `weak` is set if no passage matches
    the question well.
    """

    snippet: str
    origin: Origin | None = None
    start_char: int | None = None
    metadata: Metadata = None
    highlights: tuple[tuple[int, int], ...] | None = None
    facts: tuple[SupportingFact, ...] | None = None
    title: str | None = None
    headings: tuple[str, ...] | None = None
    weak: bool | None = None

    @classmethod
    def of(cls, result: MemorySearchResult, *, weak: bool = False) -> "SearchHit":
        """Return a result as a document."""
        hit = cls.model_validate(result, from_attributes=True)
        optional = ("start_char", "highlights", "facts", "title", "headings")
        changed: dict[str, object] = {name: None for name in optional if not getattr(hit, name)}
        changed["metadata"] = without_legs(hit.metadata)
        return hit.model_copy(update=changed | {"weak": weak or None})


class MemorySearchReply(Document):
    """The answer to a search, or with `unavailable`, why there is none and what to do about it.

    With `weak` no passage matches the question well; `warning` and `action` then say what to do.
    """

    results: tuple[SearchHit, ...]
    provider: str | None = None
    model: str | None = None
    fallback: FallbackStatus | None = None
    citations: CitationMode | None = None
    mode: str | None = None
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] | None = None
    weak: bool | None = None
    disabled: bool | None = None
    unavailable: bool | None = None
    error: str | None = None
    warning: str | None = None
    action: str | None = None


async def memory_search(memory: "Memory", request: MemorySearchRequest) -> MemorySearchReply:
    """Search; if the settings want citations, each snippet ends with its own."""
    first = first_index(memory)
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
    return await explained(memory, request, reply, response, first)


async def unknown_filter(memory: "Memory", request: MemorySearchRequest) -> str | None:
    """Return which requested tag, type or path no note has, with the nearest; None if all are found.

    Transcripts, documents and other memories are not checked.
    """
    _, in_query = read_filters(request.query or "", memory.manager.asked_at())
    tags = [tag.lstrip("#").lower() for tag in (*request.tags, *in_query.tags)]
    types = [one.strip().lower().removeprefix(".") for one in (*request.types, *in_query.types)]
    paths = (*request.paths, *in_query.paths)
    from composable_memory.front_matter import has_tag  # late, as below: most searches find something
    from composable_memory.recall.retained_notes import labels_of_notes, paths_of_notes

    folders = memory.workspace_dir, memory.status().note_paths
    if tags or types:
        known, told = await asyncio.to_thread(labels_of_notes, *folders)
        unknown = next((tag for tag in tags if not has_tag(known, tag)), None)
        if unknown is not None:
            return (
                f"no note has the tag {unknown!r}{_nearest(unknown, known)}" if known else "no note has a tag"
            )
        of_all = {*NAMED_TYPES, *MEMORY_TYPES, *told, *(one[1:] for one in NOTE_SUFFIXES)}
        if types and not any(one in of_all or one in OTHER_ENDINGS for one in types):
            return f"no note is of the type {types[0]!r}{_nearest(types[0], of_all)}"
    if paths and all(map(_names_notes, paths)):
        names = await asyncio.to_thread(paths_of_notes, *folders)
        if not any(path_matches(name, paths) for name in names):
            above = {str(one) for name in names for one in PurePosixPath(name).parents if one.name}
            bare = paths[0].strip().removeprefix("./").rstrip("*/")
            return f"no note has a path like {paths[0]!r}{_nearest(bare, {*names, *above})}"
    return None


def _names_notes(pattern: str) -> bool:
    """Return whether a path pattern is for notes; other files are not known here."""
    first, ending = pattern.removeprefix("./").partition("/")[0], pattern.rpartition(".")[2].lower()
    return first != "sessions" and ending not in OTHER_ENDINGS and FOREIGN not in pattern


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=MOST_NEAR)
    return f"; nearest: {', '.join(near)}" if near else ", nor one like it"


def why_empty(memory: "Memory") -> str | None:
    """Return that there are no notes, and where they should be; None if there are some."""
    status = memory.status()
    if status.files != 0 or status.dirty:
        return None
    return f"there are no notes in {memory.workspace_dir}; notes are {NOTES}"


def why_weak(response: QueryResponse) -> str | None:
    """Return that nothing matched well, and how many passages were left out; None if something did."""
    if not response.weak:
        return None
    left_out = sum(one.reason == "weak" for one in response.dropped)
    return "nothing matched well" + (f", {left_out} nearest left out" if left_out else "")


def why_unavailable(response: QueryResponse) -> str | None:
    """Return why no memory could answer; None if one did, or none was configured."""
    if not response.answers and not response.degraded:
        return None
    meant = [answer for answer in response.answers if answer.skipped in (None, "breaker-open")]
    answered = any(answer.skipped is None and answer.error is None for answer in meant)
    if answered or (response.answers and not meant):
        return None
    return "; ".join(f"{one.backend_id}: {one.reason}" for one in response.degraded)


async def query_cited(
    memory: "Memory", request: MemorySearchRequest, *, least: float = NOISE
) -> QueryResponse:
    """Ask all memories; the results carry citations if the settings want them.

    If none matches the question well, they are moved to `dropped`, unless the request wants them anyway; if
    some do, those that score below `least` are.

    Raises:
        ConfigError: a named backend does not exist.
        InvalidArgument: a filter is invalid.
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
            unscored = {one.backend_id for one in response.degraded if one.code == "vector-only"}
            good = [
                how.backend_id in unscored or _is_good(one, how, least)
                for one, how in zip(response.results, response.attributions, strict=True)
            ]
            response = _only(response, good, why="hardly matches")
        paths = tuple(result.path for result in response.results)
        hidden = [rank for rank, is_good in enumerate(good, 1) if not is_good]
        memory.ops_log.emit(QueryDelivered(result_count=len(paths), paths=paths, hidden=hidden or None))
    return response


def unavailable_search(error: str) -> MemorySearchReply:
    """Return the reply if the memory cannot be searched, saying what to do about it."""
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


def first_index(memory: "Memory") -> str | None:
    """Return the backend whose index of the notes has never been filled, if any."""
    status = memory.status()
    return status.backend if status.custom.get("lastSync", "") is None else None


def _is_first_indexing(memory: "Memory", response: QueryResponse, first: str | None) -> bool:
    """Return whether the answer came before the first sync, still running, had indexed the notes."""
    is_behind = any(one.code == "stale" and one.backend_id == first for one in response.degraded)
    return is_behind and "lastSyncError" not in memory.status().custom


async def explained(
    memory: "Memory", request: MemorySearchRequest, reply: ReplyT, response: QueryResponse, first: str | None
) -> ReplyT:
    """Return a reply that says what to do if nothing was found, or nothing that matches well."""
    if not response.results and _is_first_indexing(memory, response, first):
        told = {"warning": "the notes are being indexed for the first time"}
        return reply.model_copy(update=told | {"action": "Search again in a few seconds."})
    if (weak := why_weak(response)) is not None:
        action = "Use other words, or add `weak` to see the nearest passages."
        if response.results:
            action = "These passages are the nearest, not an answer."
        return reply.model_copy(update={"weak": True, "warning": weak, "action": action})
    if response.results:
        return reply
    if warning := why_empty(memory):
        action = "Check that the memory was opened for the right folder (`--workspace`)."
    elif warning := await unknown_filter(memory, request):
        action = "Search again without it, or with one that the notes have."
    return reply.model_copy(update={"warning": warning, "action": action}) if warning else reply


def _is_good(result: MemorySearchResult, how: Attribution, least: float) -> bool:
    """Return whether a result matches as well as that; scores that only order a list cannot tell."""
    is_absolute = how.calibrated_score == how.raw_score
    return result.exact or not is_absolute or how.calibrated_score >= least


def _only(response: QueryResponse, good: Sequence[bool], *, why: str) -> QueryResponse:
    """Return a response with only the good results; the others are dropped as weak."""
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
