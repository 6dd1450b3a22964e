"""What is known of somebody, or of a time: retained lines, facts and passages; and facts with their times."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, JsonValue, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from composable_memory.citations import is_wanted, read_citation
from composable_memory.facts import Fact
from composable_memory.front_matter import has_tag
from composable_memory.json_documents import document
from composable_memory.query.filters import parse_until, path_matches
from composable_memory.recall.items import RECALL_KINDS, Recall, RecalledItem
from composable_memory.tools.document import Document, FilterArguments, OneOrSeveral, ValueReply, filled
from composable_memory.tools.search import why_empty

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

DEFAULT_DAYS = 7
MOST_FILTERED = 500
"""So many items are read where a filter picks among them."""


class MemoryRecallRequest(FilterArguments):
    """Whom or what to recall, or a time; `types` are kinds of `RecalledItem`."""

    entity: str | None = Field(default=None, description="A person or thing; without one, a time")
    query: str | None = Field(default=None, description="Only what has half of these words")
    types: Annotated[tuple[str, ...], OneOrSeveral, WithJsonSchema({"enum": list(RECALL_KINDS)})] = Field(
        default=(), validation_alias="type"
    )
    max_results: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


class MemoryRecentRequest(Document):
    """Of how many days to tell."""

    days: Annotated[int, Field(ge=1, le=366)] = DEFAULT_DAYS
    max_results: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


class MemoryFactsRequest(Document):
    """Whom or what facts are about, and when they held."""

    entity: str | None = Field(default=None, description="Whom or what they are about")
    as_of: str | None = Field(default=None, description="Only what held then, as 2026-05-03 or last week")
    current: bool = Field(default=False, description="Only what still holds")
    limit: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


async def memory_recall(memory: "Memory", request: MemoryRecallRequest) -> ValueReply:
    """Recall what is known of an entity or a time; path, tag and source pick among what is found."""
    is_picky = bool(request.paths or request.tags or request.sources)
    found = await memory.recall(
        request.entity,
        since=request.since,
        until=request.until,
        types=request.types,
        query=request.query,
        max_results=MOST_FILTERED if is_picky else request.max_results,
        now=request.now,
    )
    items = [item for item in found.items if _passes(item, request)] if is_picky else found.items
    shown = items[: request.max_results]
    return _recalled(memory, found, shown, len(items) if is_picky else found.total, request.session_key)


async def memory_recent(memory: "Memory", request: MemoryRecentRequest) -> ValueReply:
    """Tell what was written lately, the newest first."""
    found = await memory.recall(since=f"{request.days}d", max_results=request.max_results)
    return _recalled(memory, found, found.items, found.total, request.session_key)


async def memory_facts(memory: "Memory", request: MemoryFactsRequest) -> ValueReply:
    """Tell the facts of the graph: the time line of an entity, or what held at a time.

    Raises:
        ConfigError: no open backend keeps facts.
        InvalidArgument: the time is none.
    """
    graph = memory.facts_of()
    as_of = parse_until(request.as_of, memory.manager.asked_at(), "asOf") if request.as_of else None
    if request.entity and not (as_of or request.current):
        facts = await graph.timeline(request.entity, limit=request.limit)
    else:
        facts = await graph.facts(
            about=request.entity, as_of=as_of, current_only=request.current, limit=request.limit
        )
    is_cited = is_wanted(memory.settings.memory.citations, request.session_key)
    told: dict[str, JsonValue] = {"facts": [_fact(one, is_cited=is_cited) for one in facts]}
    if not facts:
        told["warning"] = "no such facts are known; `cmem ingest` takes notes into the graph"
        near = await graph.entities(named=request.entity, limit=10) if request.entity else ()
        told |= filled({"entities": [one.name for one in near]})
    return ValueReply(told)


def _recalled(
    memory: "Memory", found: Recall, items: Sequence[RecalledItem], total: int, session_key: str | None
) -> ValueReply:
    is_cited = is_wanted(memory.settings.memory.citations, session_key)
    told: dict[str, JsonValue] = {
        "items": [filled(document(one, source=one.source if is_cited else None)) for one in items],
        "total": total,
    }
    told |= filled(document(names=found.names, nearest=found.nearest, degraded=found.degraded))
    if not items:
        told["warning"] = why_empty(memory) or "nothing is known of it"
    return ValueReply(told)


def _passes(item: RecalledItem, request: MemoryRecallRequest) -> bool:
    place = read_citation(item.source or "")
    path = place.path if place else item.source or ""
    tags = [tag.lower() for tag in item.tags]
    has_tags = all(has_tag(tags, wanted) for wanted in request.tags)
    is_of_paths = not request.paths or path_matches(path, request.paths)
    source = "sessions" if path.startswith("sessions/") and path.endswith(".jsonl") else "memory"
    return has_tags and is_of_paths and (not request.sources or source in request.sources)


def _fact(fact: Fact, *, is_cited: bool) -> dict[str, JsonValue]:
    return filled(
        document(
            text=fact.text,
            since=fact.valid_at,
            until=fact.invalid_at or fact.expired_at,
            confidence=fact.confidence,
            sources=[one.citation for one in fact.origins] if is_cited else None,
            id=fact.id,
        )
    )
