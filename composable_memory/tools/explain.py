"""How an answer came about and how good it was: an agent explains or judges a search by its trace id."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from composable_memory.citations import Citation, format_place, read_citation
from composable_memory.errors import ComposableMemoryError, MemoryPathError
from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.json_documents import document
from composable_memory.query.filters import filter_results, read_filters
from composable_memory.query.waterfall import Waterfall, waterfall
from composable_memory.supervision.deadline import deadline
from composable_memory.supervision.tasks import all_of
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.tools.document import Document, ErrorReply, Reply, ValueReply, filled
from composable_memory.tools.status import PROBE_QUERY
from composable_memory.types import LEGS, MemorySearchResult, SearchFilters, SearchOptions
from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLogError, OpsLogReader
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

MOST_DROPPED = 20
MOST_PASSAGES = 200
"""How many passages of the notes in question to look at."""
AGAIN_WITHIN_S = 10.0
RANKED_BY = ("fusion", "dedup", "minScore", "maxResults", "calibration", "weights", "intentKind")
CHANGED = "the note, the index or the weights have changed since"
AGENT = "agent"
"""The author of these judgements."""

TraceId = Annotated[str, Field(min_length=4, description="As a search gave it")]


class MemoryExplainRequest(Document):
    """Which search to explain, and for which note to say why it was found or not.

    `whole` adds what a page shows: the steps, the ranking, and the text of the results.
    """

    trace_id: TraceId | None = Field(default=None, description="Default: the last search")
    path: str | None = Field(default=None, description="Why this note, or not")
    whole: SkipJsonSchema[bool] = False


class MemoryFeedbackRequest(Document):
    """How good a result was, or an answer, from which the quoted results are found out."""

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
    """Explain from the log how a search of this memory came to its answer.

    Raises:
        OpsLogError: the prefix of the trace id is not unique, there was no search yet, or the log cannot be
        read.
    """
    await memory.ops_log.flush()
    trace_id, reader = request.trace_id, OpsLogReader(memory.ops_log_dir)
    if trace_id is None:
        trace_id = await asyncio.to_thread(last_search, reader, memory.context.memory_id)
    events = await events_of_search(memory, trace_id)
    if isinstance(events, ErrorReply):
        return events
    drawn = waterfall(events)
    cited = read_citation(request.path or "")
    place = cited or (Citation(request.path, 0, 0) if request.path else None)
    again = await _search_again(memory, drawn, events, place)
    found = _of(place, drawn.results, previews=request.whole)
    dropped = _of(place, drawn.dropped)
    told: dict[str, JsonValue] = document(
        trace_id=drawn.trace_id,
        query=drawn.query,
        total_ms=round(drawn.total_ms, 1),
        results=[
            row | _matched(row, again, whole=request.whole) | _logged_legs(row, events) for row in found
        ],
        dropped=dropped[:MOST_DROPPED],
    )
    told |= filled(document(hidden=_hidden(events) or None))
    if request.whole:
        told |= _timing_and_ranking(drawn, events)
    if place is not None:
        told |= document(found=[*_found(place, events)], why=await _why(memory, place, drawn, events, again))
    more = len(dropped) - MOST_DROPPED
    told |= filled(document(more_dropped=max(more, 0) or None, degraded=drawn.degraded))
    return ValueReply(told | {"backends": [*_backends(events)]})


async def memory_feedback(memory: "Memory", request: MemoryFeedbackRequest) -> ValueReply:
    """Record how good a result was, or which results an answer quotes.

    Raises:
        FeedbackError: this memory has no such search or result.
        OpsLogError: the prefix of the trace id is not unique, or the log cannot be read.
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


def last_search(reader: OpsLogReader, memory_id: str) -> str:
    """Return the trace id of the last query of a memory with this id; blocks.

    Raises:
        OpsLogError: there was none yet.
    """
    queries = reader.events(EventFilter(action="query.start"))
    own = (one for one in queries if str(one.logged.get("memory", "")).endswith(memory_id))
    found = next((one.trace_id for one in own if not _is_probe(one, reader)), None)
    if found is None:
        raise OpsLogError("there was no query yet", subject="last", advice="`cmem search` makes one")
    return found


def _is_probe(event: OpsEvent, reader: OpsLogReader) -> bool:
    """Return whether a query came from `cmem status --deep`, so that nobody was given its results."""
    if event.logged.get("query") != PROBE_QUERY:
        return False
    return all(one.action != "query.delivered" for one in reader.trace(event.trace_id))


async def events_of_search(memory: "Memory", trace_id: str) -> Sequence[OpsEvent] | ErrorReply:
    """Return the events of a trace, or an error if it is not of this memory: others may share the log.

    Raises:
        OpsLogError: the prefix of the trace id is not unique, or the log cannot be read.
    """
    await memory.ops_log.flush()
    events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).trace, trace_id)
    asked = [one.logged.get("memory") for one in events if one.action == "query.start"]
    if asked and all(one == memory.context.memory_id for one in asked):
        return events
    return ErrorReply(error=f"no search of this memory has the trace id {trace_id!r}")


def _of(
    place: Citation | None, rows: Sequence[Mapping[str, object]], *, previews: bool = False
) -> list[dict[str, object]]:
    """Return the rows for a place, or all, without previews: the search itself has returned those."""
    left_out = () if previews else ("snippetPreview",)
    return [
        {name: one for name, one in row.items() if name not in left_out and one not in (None, [], 0.0)}
        for row in rows
        if _is_at(row, place)
    ]


def _is_at(row: Mapping[str, object], place: Citation | None) -> bool:
    if place is None:
        return True
    first, last = row.get("startLine") or 0, row.get("endLine") or 0
    if row.get("path") != place.path or not isinstance(first, int) or not isinstance(last, int):
        return False
    return not place.start_line or (first <= place.end_line and place.start_line <= last)


def _candidates(events: Sequence[OpsEvent]) -> Iterator[tuple[str, list[Mapping[str, object]]]]:
    """Yield each backend with what it found, best first."""
    for event in events:
        if event.action == "query.backend_result":
            rows = event.logged.get("results")
            rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
            yield event.backend or "", rows


def _found(place: Citation, events: Sequence[OpsEvent]) -> Iterator[JsonValue]:
    """Yield the 1-based ranks of a place in the backends' lists, including results that were not returned."""
    for backend, rows in _candidates(events):
        for rank, row in enumerate(rows, 1):
            if _is_at(row, place):
                yield document(
                    backend=backend, rank=rank, score=row.get("score"), start_line=row.get("startLine")
                )


async def _search_again(
    memory: "Memory", drawn: Waterfall, events: Sequence[OpsEvent], place: Citation | None
) -> list[tuple[str, MemorySearchResult]]:
    """Search again, only in the notes in question, for details that the log does not keep.

    Returns what each backend finds in them now, best first: the notes may have changed since.
    """
    paths = dict.fromkeys(str(row.get("path")) for row in drawn.results)
    if place is not None:
        # Include the best result: scores depend on whether any passage has most of the words.
        best = (str(rows[0].get("path")) for _, rows in _candidates(events) if rows)
        paths = dict.fromkeys((place.path, *best))
    now = next((one.logged.get("now") for one in events if one.action == "query.start"), None)
    moment = datetime.fromisoformat(now) if isinstance(now, str) else drawn.started_at
    here = moment.astimezone(LOCAL_TIME)
    if now is None or here.utcoffset() == moment.utcoffset():
        moment = here
    words, _ = read_filters(drawn.query or "", moment)
    if not paths or not words.strip():
        return []
    filters = SearchFilters(paths=tuple(paths))
    options = SearchOptions(max_results=MOST_PASSAGES, filters=filters, now=moment, by_word=True)
    # Ask the backends directly: a query of the composite would be logged, and become the last one.
    backends = memory.manager.backends_with(Capability.ANSWER)
    found = await all_of(*(_search(one, backend, words, options) for one, backend in backends.items()))
    return [(name, one) for name, some in zip(backends, found, strict=True) for one in some]


async def _search(
    name: str, backend: MemorySearchManager, words: str, options: SearchOptions
) -> Sequence[MemorySearchResult]:
    try:
        async with deadline(name, "search", AGAIN_WITHIN_S):
            return filter_results(await backend.search(words, options), options.filters).results
    except ComposableMemoryError:  # shown as missing: the log has what it found then
        return ()


def _timing_and_ranking(drawn: Waterfall, events: Sequence[OpsEvent]) -> dict[str, JsonValue]:
    """Return when a search took which steps, and how it was ranked."""
    told = {one.action: one.logged for one in events}
    start, merged = told.get("query.start", {}), told.get("query.merged", {})
    ranked = {name: merged.get(name) for name in RANKED_BY} | {"weightsVersion": start.get("weightsVersion")}
    return document(
        started_at=drawn.started_at,
        session=next((one.session_key for one in events if one.session_key), None),
        steps=drawn.steps,
        ranking={name: value for name, value in ranked.items() if value is not None},
    )


def _hidden(events: Sequence[OpsEvent]) -> list[int]:
    """Return the 1-based ranks of the results that matched too little to be shown."""
    delivered = [one.logged.get("hidden") for one in events if one.action == "query.delivered"]
    return [rank for some in delivered if isinstance(some, list) for rank in some if isinstance(rank, int)]


def _matched(
    row: Mapping[str, object], again: Sequence[tuple[str, MemorySearchResult]], *, whole: bool
) -> dict[str, JsonValue]:
    """Return the matching words of a passage, and its scores by leg."""
    for backend, one in again:
        key = (one.path, one.start_line, one.end_line, one.start_char)
        if backend == row.get("backend") and key == (
            row.get("path"),
            row.get("startLine"),
            row.get("endLine"),
            row.get("startChar") or 0,
        ):
            return _shares(one) | (_text_and_facts(one, again) if whole else {})
    return {}


def _logged_legs(row: Mapping[str, object], events: Sequence[OpsEvent]) -> dict[str, JsonValue]:
    """Return the scores that each leg gave to a result at that time."""
    answers = (one for one in events if one.action == "query.backend_result")
    told = next((one.logged.get("legScores") for one in answers if one.backend == row.get("backend")), None)
    rank = row.get("backendRank")
    if not isinstance(told, Mapping) or not isinstance(rank, int):
        return {}
    return filled(document(**{leg: scores[rank - 1] for leg, scores in told.items() if rank <= len(scores)}))


def _text_and_facts(
    one: MemorySearchResult, again: Sequence[tuple[str, MemorySearchResult]]
) -> dict[str, JsonValue]:
    """Return the text of a passage, and the facts taken from it."""
    lines = {"path": one.path, "startLine": one.start_line, "endLine": one.end_line}
    taken = [
        fact
        for _, other in again
        for fact in other.facts
        if other.origin is not None
        and _is_at(lines, Citation(other.origin.path, other.origin.start_line, other.origin.end_line))
    ]
    return filled(
        document(
            title=one.title,
            headings=one.headings,
            snippet=one.snippet,
            text=one.text,
            highlights=one.highlights,
            facts=[
                document(text=fact.text, time=fact.validity, holds=fact.holds)
                for fact in dict.fromkeys((*one.facts, *taken))
            ],
        )
    )


def _shares(one: MemorySearchResult) -> dict[str, JsonValue]:
    words = dict.fromkeys(one.snippet[begin:end].casefold() for begin, end in one.highlights)
    legs = {name: one.metadata.get(name) for name in LEGS}
    return filled(document(matched=[*words], words=one.metadata.get("words"), **legs))


async def _why(
    memory: "Memory",
    place: Citation,
    drawn: Waterfall,
    events: Sequence[OpsEvent],
    again: Sequence[tuple[str, MemorySearchResult]],
) -> str:
    """Say why a place was found, or why not."""
    for rank, row in enumerate(drawn.results, 1):
        if _is_at(row, place):
            unshown = "; it matches weakly, so it was not shown" if rank in _hidden(events) else ""
            return f"it is result {rank} of {len(drawn.results)}{unshown}"
    lost = next((row for row in drawn.dropped if _is_at(row, place)), None)
    if lost is not None:
        return (
            f"{lost.get('backend')} found it, and it was left out: {lost.get('reason')}, {lost.get('detail')}"
        )
    for backend, rows in _candidates(events):
        for rank, row in enumerate(rows, 1):
            if _is_at(row, place):
                after = counted(len(drawn.results), "result")
                return (
                    f"{backend} found it as number {rank} of {len(rows)}, with {_score(row)}; "
                    f"the answer ended after {after}, at {_score(*drawn.results[-1:])}"
                )
    return await _why_not_found(memory, place, events, again)


async def _why_not_found(
    memory: "Memory",
    place: Citation,
    events: Sequence[OpsEvent],
    again: Sequence[tuple[str, MemorySearchResult]],
) -> str:
    for backend, one in again:
        if place.path not in (one.path, one.origin and one.origin.path):
            continue
        if not place.start_line or (one.start_line <= place.end_line and place.start_line <= one.end_line):
            now = f"its best passage, {format_place(one)}, gets {one.score:.3f} from {backend}{_matches(one)}"
            rows = next((rows for asked, rows in _candidates(events) if asked == backend), [])
            if rows and _number(rows[-1].get("score")) >= one.score:
                return f"{now}; the lowest of the {len(rows)} found has {_score(rows[-1])}"
            asked_for = next((event.logged.get("filters") for event in events), None)
            reason = f"a filter of the question left it out: {asked_for}" if asked_for else CHANGED
            return f"{now}, which is enough to be found; {reason}"
    try:
        text = (await memory.read_file(place.path)).text
    except ComposableMemoryError as error:
        return f"it cannot be read: {error.problem if isinstance(error, MemoryPathError) else error}"
    if not text:
        return "there is no such file, or it is empty"
    return "no passage of it contains a word of the question or is close in meaning, or it is not indexed"


def _matches(one: MemorySearchResult) -> str:
    words = _shares(one).get("matched")
    return f", matching {', '.join(map(str, words))}" if isinstance(words, list) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _score(row: Mapping[str, object] | None = None) -> str:
    return f"{_number(row.get('score') if row else None):.3f}"


def _backends(events: Sequence[OpsEvent]) -> Iterator[JsonValue]:
    for event in events:
        if event.action == "query.backend_result":
            told = event.logged
            yield filled(
                document(
                    id=event.backend,
                    took_ms=round(event.duration_ms or 0.0, 1),
                    weight=told.get("weight"),
                    result_count=told.get("resultCount"),
                    legs=told.get("legs"),
                    skipped=told.get("skipped"),
                    error=told.get("error"),
                )
            )
