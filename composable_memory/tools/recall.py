"""Recalling what is known about an entity or a time, listing facts, remembering, and forgetting."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from composable_memory.citations import is_wanted, read_citation
from composable_memory.facts import Fact
from composable_memory.forget.report import ForgetLine, ForgetPlan
from composable_memory.front_matter import has_tag
from composable_memory.json_documents import document
from composable_memory.query.filters import parse_until, path_matches
from composable_memory.recall.items import RECALL_KINDS, Recall, RecalledItem
from composable_memory.retain.retained_lines import MEMORY_TYPES
from composable_memory.tools.document import Document, FilterArguments, OneOrSeveral, ValueReply, filled
from composable_memory.tools.search import why_empty

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


DEFAULT_DAYS = 7
MOST_FILTERED = 500
"""How many items to read if a filter selects among them."""

MOST_EXAMPLES = 3


class MemoryRecallRequest(FilterArguments):
    """The entity or the time to recall; `types` are kinds of `RecalledItem`."""

    entity: str | None = Field(default=None, description="A person or thing; without one, a time")
    query: str | None = Field(default=None, description="Only what has half of these words")
    types: Annotated[tuple[str, ...], OneOrSeveral, WithJsonSchema({"enum": list(RECALL_KINDS)})] = Field(
        default=(), validation_alias="type"
    )
    max_results: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


class MemoryRecentRequest(Document):
    """How many days to cover."""

    days: Annotated[int, Field(ge=1, le=366)] = DEFAULT_DAYS
    max_results: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


class MemoryFactsRequest(Document):
    """The entity that facts are about, and when they held."""

    entity: str | None = Field(default=None, description="Whom or what they are about")
    as_of: str | None = Field(
        default=None, description="Only what was true then, such as 2026-05-03 or last week"
    )
    current: bool = Field(default=False, description="Only what is still true")
    limit: Annotated[int, Field(ge=1, le=200)] = 20
    session_key: SkipJsonSchema[str | None] = None


async def memory_recall(memory: "Memory", request: MemoryRecallRequest) -> ValueReply:
    """Recall what is known about an entity or a time; path, tag and source filter the result."""
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
    """Return what was written recently, newest first."""
    found = await memory.recall(since=f"{request.days}d", max_results=request.max_results)
    return _recalled(memory, found, found.items, found.total, request.session_key)


async def memory_facts(memory: "Memory", request: MemoryFactsRequest) -> ValueReply:
    """Return facts of the graph: the time line of an entity, or what held at a time.

    Raises:
        ConfigError: no open backend keeps facts.
        InvalidArgument: the time is invalid.
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
        told["warning"] = "no such facts are known; `cmem ingest` reads notes into the graph"
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
        told["warning"] = why_empty(memory) or "nothing is known about it"
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
            text=fact.statement,
            since=fact.valid_at,
            until=fact.invalid_at or fact.expired_at,
            confidence=fact.confidence,
            sources=[one.citation for one in fact.origins] if is_cited else None,
            gone=[one.citation for one in fact.origins if one.gone] if is_cited else None,
            id=fact.id,
        )
    )


class MemoryRememberRequest(Document):
    """A sentence to remember, and its attributes; see `Memory.remember`."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="One self-contained sentence"
    )
    type: Annotated[str, WithJsonSchema({"enum": list(MEMORY_TYPES)})] | None = None
    entities: Annotated[tuple[str, ...], OneOrSeveral] = Field(
        default=(), description="Whom or what it is about"
    )
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    tags: Annotated[tuple[str, ...], OneOrSeveral] = ()
    session_key: SkipJsonSchema[str | None] = None


async def memory_remember(memory: "Memory", request: MemoryRememberRequest) -> ValueReply:
    """Write a sentence into the day's note, unless the notes already say it.

    Raises:
        InvalidArgument: the text is too long or only a secret, or another argument is wrong.
        NoteNotWritten: the day's note cannot be written.
    """
    done = await memory.remember(
        request.text,
        type=request.type,
        entities=request.entities,
        confidence=request.confidence,
        tags=request.tags,
        session_key=request.session_key,
    )
    told = filled(document(done, path=None, start_line=None, end_line=None))
    if done.duplicate_of is not None:
        told["warning"] = "the notes already say so; nothing was written"
    return ValueReply(told)


class MemoryForgetRequest(Document):
    """What to forget, or the token of a preview to carry out."""

    target: str | None = Field(default=None, description="A question, a citation, or an id as ^m4k29x")
    token: str | None = Field(default=None, description="From the preview: forget exactly that")

    @model_validator(mode="after")
    def _one_step(self) -> Self:
        if (self.target is None) == (self.token is None):
            raise ValueError("give either a target, to see what would go, or its token, to forget it")
        return self


async def memory_forget(memory: "Memory", request: MemoryForgetRequest) -> ValueReply:
    """Show what would be forgotten, with a token; given the token, forget it.

    Raises:
        InvalidArgument: the target is blank, or the token is invalid.
        MemoryPathError: there is nothing at the place.
        NoteNotWritten: a note cannot be written; nothing was forgotten then.
        BackendUnavailable: another process is forgetting something.
    """
    if request.token is None:
        return ValueReply(_planned(await memory.plan_forgetting(request.target or "")))
    report = await memory.forget(request.token)
    if report.plan is not None:
        warning = "the notes have changed since the preview; nothing was forgotten; this is what would go now"
        return ValueReply(_planned(report.plan) | {"warning": warning})
    told = document(
        forgotten=[line.citation for line in report.lines if not line.stays],
        hidden=[_line(line) for line in report.lines if line.stays] or None,
        stores=report.stores,
    )
    if report.pending:
        told["warning"] = "some stores will follow when the memory is next opened"
    return ValueReply(told)


def _planned(plan: ForgetPlan) -> dict[str, JsonValue]:
    told = document(
        lines=[_line(one) for one in plan.lines],
        candidates=[_line(one) for one in plan.candidates if one.token],
        more=sum(not one.token for one in plan.candidates) or None,
        stores=[document(one, examples=one.examples[:MOST_EXAMPLES] or None) for one in plan.stores],
    )
    action = "No note says this."
    if plan.token:
        told["token"] = plan.token
        action = (
            "Nothing is forgotten yet. Show this to the user; if they agree, call again with only the token."
        )
    elif plan.candidates:
        found = "No line has these words; these are the nearest." if plan.is_guess else "Several lines match."
        action = f"{found} Ask which one is meant, then call again with its token."
        if not plan.candidates[-1].token:
            action += " More lines match than are shown; a target with more words narrows them down."
    return filled(told) | {"action": action}


def _line(line: ForgetLine) -> dict[str, JsonValue]:
    return filled(
        document(
            citation=line.citation,
            text=line.text,
            is_copy=line.is_copy or None,
            token=line.token,
            stays=line.stays,
        )
    )
